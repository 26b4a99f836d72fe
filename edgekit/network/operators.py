"""The rows of ``trt/operators.yaml``: the operators that TensorRT's ONNX parser imports, by
release, what the parser refuses of them, and the plugins that TensorRT ships.
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
    """An attribute's value."""
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
        """Whether the row holds for a release: from ``since`` up to, without, ``until``."""
        return within(version, self.since, self.until)


@document(frozen=True, eq=False, kw_only=True)
class Importer(_Row):
    """An operator; ``avoid`` is how a network does without it.

    Attributes:
        foreign: Whether it is no operator of ONNX, but one of NVIDIA's or ONNX Runtime's.
    """

    foreign: bool = member(flag, absent=False)


@document(frozen=True, eq=False, kw_only=True)
class Refusal(_Row):
    """What the parser refuses or ignores of operators that it imports; all of a row's tests must
    hold.

    Attributes:
        id: The row's name.
        operators: Their names; empty for all.
        what: What is refused, with ``{operator}``, ``{value}`` and ``{type}``.
        ignores: Whether the parser imports the node without it, so that its results are other ones.
        builder: Whether the parser imports it, and the builder refuses the network.
        attribute: An attribute; a list is tested by element.
        default: The attribute's value where a node leaves it out.
        values: Values that are refused.
        other_than: Values that are not refused.
        present: An attribute of any value is refused.
        matches: A text is refused in which this regular expression is found.
        output: An output that is refused where a node writes it.
        input: The input that the following tests are about; without it, types are those of any
            tensor that the node reads or writes.
        types: NumPy's names of the types that are refused.
        ranks_other_than: Numbers of dimensions that are not refused.
        most_dimensions: Tensors of more dimensions are refused.
        variable: Refused unless it is a constant.
        nonzero: Refused where it is a constant with a value that is not 0.
        nonpositive: Refused where it is a constant with a value that is 0 or less.
        not_from: Refused unless a node of these operators writes it.
        absent: Refused where it is left out.
        given: Refused where it is given.
        condition: A condition by its name in ``parsing/conditions.py``.
        opset_since: The first version of ai.onnx that is refused.
        opset_until: The first version of ai.onnx that is not refused.
        below_capability: Refused where the board's GPU has a lower compute capability.
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
    """Releases, and the newest version of ai.onnx that their parser reads as it is meant."""

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
    """``trt/operators.yaml``: operators by name, and what is refused of them."""

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
        """Whether the parser of a release has an importer for an operator, in any domain."""
        row = self.operators.get(operator)
        return row is not None and row.holds(version)


@lru_cache(maxsize=1)
def operator_table() -> OperatorTable:
    """Returns ``trt/operators.yaml``."""
    return read_document(OperatorTable, data_folder("trt") / "operators.yaml")


def has_importer(operator: str) -> bool:
    """Whether the parser of any release imports an operator."""
    return operator in operator_table().operators


def newest_opset(release: str) -> int | None:
    """Returns the newest version of ai.onnx that the parser of a release reads as it is meant.

    None where it reads any that ONNX has; ``release`` is TensorRT's, such as "8.5.2".
    """
    version = parse_version(release)
    rows = operator_table().opsets
    return next((row.newest for row in rows if within(version, None, row.until)), None)


@lru_cache(maxsize=1024)
def refusals(operator: str, release: str) -> tuple[Refusal, ...]:
    """Returns what the parser of a release may refuse of an operator."""
    version = parse_version(release)
    return tuple(
        row
        for row in operator_table().refusals
        if (not row.operators or operator in row.operators) and row.holds(version)
    )
