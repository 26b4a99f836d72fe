"""The rows of ``trt/operators.yaml``: the operators that TensorRT's ONNX parser imports, by
release, what the parser refuses of them, and the plugins that TensorRT ships.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from edgekit.network.protos import operators_document
from edgekit.targets.releases import parse_version, within
from edgekit_device.versions import Version

Value = int | float | str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    since: str | None = None
    until: str | None = None
    avoid: str = ""
    rewrite: str = ""
    source: tuple[str, ...] = ()
    interpolated: bool = False

    def holds(self, version: Version) -> bool:
        """Whether the row holds for a release: from ``since`` up to, without, ``until``."""
        return within(version, self.since, self.until)


@dataclass(frozen=True, slots=True, kw_only=True)
class Importer(_Row):
    """An operator; ``avoid`` is how a network does without it.

    Attributes:
        foreign: Whether it is no operator of ONNX, but one of NVIDIA's or ONNX Runtime's.
    """

    foreign: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal(_Row):
    """What the parser refuses or ignores of operators that it imports; all of a row's tests must
    hold.

    Attributes:
        id: The row's name.
        operators: Their names; empty for all.
        what: What is refused, with ``{operator}``, ``{value}`` and ``{type}``.
        ignores: Whether the parser imports the node without it, so that its results are other ones.
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
    """

    id: str
    operators: tuple[str, ...]
    what: str
    ignores: bool = False
    attribute: str | None = None
    default: Value | None = None
    values: tuple[Value, ...] | None = None
    other_than: tuple[Value, ...] | None = None
    present: bool = False
    matches: str | None = None
    output: int | None = None
    input: int | None = None
    types: tuple[str, ...] | None = None
    ranks_other_than: tuple[int, ...] | None = None
    most_dimensions: int | None = None
    variable: bool = False
    nonzero: bool = False
    nonpositive: bool = False
    not_from: tuple[str, ...] | None = None
    absent: bool = False
    given: bool = False
    condition: str | None = None
    opset_since: int | None = None
    opset_until: int | None = None


@dataclass(frozen=True, slots=True)
class Opsets:
    """Releases, and the newest version of ai.onnx that their parser reads as it is meant."""

    newest: int
    why: str
    until: str
    source: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Plugins:
    """The plugins that TensorRT ships, with their versions."""

    source: tuple[str, ...]
    names: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class OperatorTable:
    """``trt/operators.yaml``: operators by name, and what is refused of them."""

    oldest: str
    newest: str
    source: tuple[str, ...]
    opsets: tuple[Opsets, ...]
    operators: Mapping[str, Importer]
    missing: Mapping[str, Importer]
    refusals: tuple[Refusal, ...]
    plugins: Plugins

    def imports(self, operator: str, version: Version) -> bool:
        """Whether the parser of a release has an importer for an operator, in any domain."""
        row = self.operators.get(operator)
        return row is not None and row.holds(version)


@lru_cache(maxsize=1)
def operator_table() -> OperatorTable:
    """Returns ``trt/operators.yaml``."""
    content = operators_document()
    plugins = content["plugins"]
    return OperatorTable(
        oldest=content["oldest"],
        newest=content["newest"],
        source=tuple(content["source"]),
        opsets=tuple(Opsets(**_values(row)) for row in content["opsets"]),
        operators={name: Importer(**_values(row)) for name, row in content["operators"].items()},
        missing={name: Importer(**_values(row)) for name, row in content["missing"].items()},
        refusals=tuple(Refusal(**_values(row)) for row in content["refusals"]),
        plugins=Plugins(
            tuple(plugins["source"]),
            {name: tuple(versions) for name, versions in plugins["names"].items()},
        ),
    )


def _values(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(one) if isinstance(one, list) else one for key, one in row.items()}


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
