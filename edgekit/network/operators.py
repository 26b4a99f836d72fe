"""The rows of ``trt/operators.yaml``: the operators that TensorRT's ONNX parser imports, by
release, the parser's refusals, and the plugins that TensorRT ships.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from edgekit.knowledge import data_folder, read_document
from edgekit.targets.releases import parse_version, within
from edgekit_device.protocol.codec import (
    array,
    choice,
    document,
    fail,
    flag,
    integer,
    long_text,
    mapping,
    member,
    record,
    records,
)
from edgekit_device.versions import Version

Value = int | float | str
_texts = array(long_text)
_index = integer(0, 1 << 16)


def _value(value: object) -> Value:
    """Returns an attribute's value."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        fail("", f"expected a number or a text, found {value!r}")
    return value


@document(frozen=True, eq=False, kw_only=True)
class _Row:
    since: str | None = member(long_text, absent=None)
    until: str | None = member(long_text, absent=None)
    avoid: str = member(long_text, absent="")
    rewrite: str = member(long_text, absent="")
    source: tuple[str, ...] = member(_texts, absent=())
    interpolated: bool = member(flag, absent=False)

    def holds(self, version: Version) -> bool:
        """Returns True if the row applies to a release, from ``since`` to before ``until``."""
        return within(version, self.since, self.until)


@document(frozen=True, eq=False, kw_only=True)
class Importer(_Row):
    """An operator; ``avoid`` is a way to export the network without it.

    Attributes:
        foreign: True for an operator of NVIDIA or ONNX Runtime that ONNX does not define.
    """

    foreign: bool = member(flag, absent=False)


@document(frozen=True, eq=False, kw_only=True)
class Refusal(_Row):
    """A use of imported operators that the parser refuses or ignores.

    A row applies to a node if all of its tests are true.

    Attributes:
        id: The row's name.
        operators: Names of the operators; empty for all.
        what: Description of the refused use, with ``{operator}``, ``{value}`` and ``{type}``.
        ignores: True if the parser imports the node but ignores this, so that results differ.
        builder: True if the parser imports the node, but the builder refuses the network.
        attribute: The attribute to test; a list is tested by element.
        default: The attribute's value if a node omits it.
        values: Values that are refused.
        other_than: The only values that are not refused.
        present: Any value of the attribute is refused.
        matches: A value that contains a match of this regular expression is refused.
        output: Position from which on a written output is refused.
        input: The input that the following tests apply to; without it, ``types`` applies to all
            tensors that the node reads or writes.
        types: NumPy's names of the types that are refused.
        ranks_other_than: The only numbers of dimensions that are not refused.
        most_dimensions: Tensors of more dimensions are refused.
        variable: Refused unless it is a constant.
        nonzero: Refused if it is a constant with a value other than 0.
        nonpositive: Refused if it is a constant with a value of 0 or less.
        not_from: Refused unless a node of these operators writes it.
        absent: Refused if it is omitted.
        given: Refused if it is present.
        condition: Name of a condition in ``parsing/conditions.py``.
        opset_since: The first version of ai.onnx that is refused.
        opset_until: The first version of ai.onnx that is not refused.
        below_capability: Refused if the board's GPU has a lower compute capability.
    """

    id: str = member(long_text)
    operators: tuple[str, ...] = member(_texts)
    what: str = member(long_text)
    ignores: bool = member(flag, absent=False)
    builder: bool = member(flag, absent=False)
    attribute: str | None = member(long_text, absent=None)
    default: Value | None = member(_value, absent=None)
    values: tuple[Value, ...] | None = member(array(_value), absent=None)
    other_than: tuple[Value, ...] | None = member(array(_value), absent=None)
    present: bool = member(flag, absent=False)
    matches: str | None = member(long_text, absent=None)
    output: int | None = member(_index, absent=None)
    input: int | None = member(_index, absent=None)
    types: tuple[str, ...] | None = member(_texts, absent=None)
    ranks_other_than: tuple[int, ...] | None = member(array(_index), absent=None)
    most_dimensions: int | None = member(_index, absent=None)
    variable: bool = member(flag, absent=False)
    nonzero: bool = member(flag, absent=False)
    nonpositive: bool = member(flag, absent=False)
    not_from: tuple[str, ...] | None = member(_texts, absent=None)
    absent: bool = member(flag, absent=False)
    given: bool = member(flag, absent=False)
    condition: str | None = member(long_text, absent=None)
    opset_since: int | None = member(_index, absent=None)
    opset_until: int | None = member(_index, absent=None)
    below_capability: str | None = member(long_text, absent=None)


@document(frozen=True, eq=False)
class Opsets:
    """A range of releases, and the newest version of ai.onnx that their parser reads correctly."""

    newest: int = member(_index)
    why: str = member(long_text)
    until: str = member(long_text)
    source: tuple[str, ...] = member(_texts)


@document(frozen=True, eq=False)
class Plugins:
    """The plugins that TensorRT ships, with their versions."""

    source: tuple[str, ...] = member(_texts)
    names: Mapping[str, tuple[str, ...]] = member(mapping(_texts))


@document(frozen=True, eq=False)
class OperatorTable:
    """``trt/operators.yaml``: operators by name, and the parser's refusals."""

    schema: str = member(choice("edgekit.tensorrt-operators/1"))
    oldest: str = member(long_text)
    newest: str = member(long_text)
    source: tuple[str, ...] = member(_texts)
    opsets: tuple[Opsets, ...] = member(records(Opsets))
    operators: Mapping[str, Importer] = member(mapping(record(Importer)))
    missing: Mapping[str, Importer] = member(mapping(record(Importer)))
    refusals: tuple[Refusal, ...] = member(records(Refusal))
    plugins: Plugins = member(record(Plugins))

    def imports(self, operator: str, version: Version) -> bool:
        """Returns True if the parser of a release has an importer for an operator, in any
        domain."""
        row = self.operators.get(operator)
        return row is not None and row.holds(version)


@lru_cache(maxsize=1)
def operator_table() -> OperatorTable:
    """Returns ``trt/operators.yaml``."""
    return read_document(OperatorTable, data_folder("trt") / "operators.yaml")


def has_importer(operator: str) -> bool:
    """Returns True if the parser of any release imports an operator."""
    return operator in operator_table().operators


def newest_opset(release: str) -> int | None:
    """Returns the newest version of ai.onnx that the parser of a release reads correctly.

    None if it reads every version; ``release`` is TensorRT's, such as "8.5.2".
    """
    version = parse_version(release)
    rows = operator_table().opsets
    return next((row.newest for row in rows if within(version, None, row.until)), None)


@lru_cache(maxsize=1024)
def refusals(operator: str, release: str) -> tuple[Refusal, ...]:
    """Returns the possible refusals of an operator by the parser of a release."""
    version = parse_version(release)
    return tuple(
        row
        for row in operator_table().refusals
        if (not row.operators or operator in row.operators) and row.holds(version)
    )
