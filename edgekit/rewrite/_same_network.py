"""Whether another model differs in weights alone: a refit can change nothing else."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from edgekit.errors import DataError, ModelError
from edgekit.rewrite._parameters import built_in, operators_of, parameters_of
from edgekit.rewrite._record_read import record_of
from edgekit.rewrite._types import MalformedError

if TYPE_CHECKING:
    import numpy as np

    from edgekit.network import Model
    from edgekit.rewrite._recorded import Record

__all__ = ["check_derived", "check_network"]

_SHOWN = 20
_PRINTED = 4


def check_network(rewritten: Model, other: Model) -> None:
    """Refuses a model whose small constants or attributes are not those of the original.

    What a recipe reads may differ: it is derived again.

    Args:
        rewritten: A rewritten model, whose record says what the original had; or one that was not.
        other: The model with other weights.

    Raises:
        DataError: Code "refit.mismatch"; the hint lists constants and operators.
        ModelError: "rewrite.record": a record cannot be true.
    """
    record, before = record_of(rewritten), record_of(other)
    if record is not None and before is not None:
        found, there = before.parameters, before.operators
        values: Mapping[str, np.ndarray] = {}
    else:
        found, there, values = parameters_of(other), operators_of(other), built_in(other)
    if record is None:
        faults = _differing(parameters_of(rewritten), found, (), values)
        faults += _fewer(operators_of(rewritten), there)
    else:
        faults = _differing(record.parameters, found, record.originals, values)
        faults += _fewer(record.operators, there)
    if faults:
        raise _refusal(faults, other.source)


def check_derived(rewritten: Model, record: Record | None, made: Model, other: Model) -> None:
    """Refuses weights that are right only with other constants than those of the build.

    Args:
        rewritten: The model that was rewritten.
        record: Its record.
        made: The same with the weights of ``other``.
        other: The model with other weights.

    Raises:
        DataError: Code "refit.mismatch"; the hint lists the constants.
    """
    import numpy as np

    faults = []
    values = built_in(made)
    for name, old in built_in(rewritten).items():
        # bit for bit: an infinite bound or a NaN is a value like others
        if name in values and _bits(old) == _bits(values[name]):
            continue
        derived = record.weights.get(name) if record is not None else None
        faults += [
            f"{source}{_told(values.get(source, values.get(name)))}"
            for source in (derived.sources if derived else ()) or (name,)
        ]
    if record is None:
        if faults:
            raise _refusal(faults, other.source)
        return
    before = record_of(other)
    if before is not None:
        # rewritten likewise: what rewrites brought along must be the same
        for name, item in record.weights.items():
            theirs = before.weights.get(name)
            if item.recipe or theirs is None or name not in rewritten.weights:
                continue
            if name in other.weights and not np.array_equal(
                rewritten.weights[name], other.weights[name]
            ):
                faults.append(f"{name} (other values)")
    else:
        faults += _read_otherwise(record, made, other)
    if faults:
        raise _refusal(list(dict.fromkeys(faults)), other.source)


def _read_otherwise(record: Record, made: Model, other: Model) -> list[str]:
    """Small constants that recipes read and rewrites may have read as well, if they differ.

    A rewrite may have been chosen for the value; only doing the same steps again can tell.
    """
    from edgekit.rewrite._emit import emit
    from edgekit.rewrite._raise_opset import raise_opset
    from edgekit.rewrite._replay import replay

    found = built_in(other)
    given = parameters_of(other)
    changed = [
        name
        for name, digest in record.parameters.items()
        if name in record.originals and given.get(name) not in (None, digest)
    ]
    if not changed:
        return []
    faults = [f"{name}{_told(found.get(name))}" for name in changed]
    again = other
    try:
        for steps in record.rounds:
            raised = raise_opset(again, record.opset[1])
            if raised is None:
                return faults
            again = emit(replay(raised, steps))
    except (MalformedError, ModelError):
        return faults
    return [] if _agree(made, again) else faults


def _agree(made: Model, again: Model) -> bool:
    """Whether two models have the same nodes and constants, those that ``made`` has."""
    import numpy as np

    left, right = parameters_of(made), parameters_of(again)
    if any(right.get(name) != digest for name, digest in left.items()):
        return False
    return all(
        name in again.weights and np.array_equal(value, again.weights[name])
        for name, value in made.weights.items()
    ) and not _fewer(operators_of(made), operators_of(again))


def _differing(
    parameters: Mapping[str, str],
    found: Mapping[str, str],
    derived: Collection[str],
    values: Mapping[str, np.ndarray],
) -> list[str]:
    known = set(found.values())
    faults = []
    for name, digest in parameters.items():
        if name in derived or found.get(name) == digest:
            continue
        if name in found:
            faults.append(f"{name}{_told(values.get(name))}")
        elif digest not in known:
            # exporters number shapes and bounds, and another export may count differently
            faults.append(f"{name} (missing)")
    return faults


def _fewer(operators: Mapping[str, int], there: Mapping[str, int]) -> list[str]:
    """Operators of which the other has fewer: more it may have, if this one was cut out of it."""
    return [
        f"{text} ({count - there.get(text, 0)} fewer)"
        for text, count in operators.items()
        if there.get(text, 0) < count
    ]


def _refusal(faults: Sequence[str], where: str) -> DataError:
    more = f" and {len(faults) - _SHOWN} more" if len(faults) > _SHOWN else ""
    return DataError(
        f"{len(faults)} constants or operators of the file are not those of the build, and a "
        "refit changes weights only",
        code="refit.mismatch",
        where=where,
        hint="build again, or give a file that differs in weights alone: "
        + ", ".join(faults[:_SHOWN])
        + more,
    )


def _told(value: np.ndarray | None) -> str:
    if value is None or value.size > _PRINTED:
        return " (other values)"
    return f" (here {', '.join(str(item) for item in value.reshape(-1).tolist())})"


def _bits(value: np.ndarray) -> tuple[object, ...]:
    return value.dtype.name, value.shape, value.tobytes()
