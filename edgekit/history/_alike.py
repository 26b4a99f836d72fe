"""Whether measurements may be compared, and in what else they differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from edgekit.errors import DataError
from edgekit.history._types import Result
from edgekit.history._words import words_of

__all__ = ["differing", "objections", "refuse_predictions", "untold"]

# other values of these make other measurements
_SAME: tuple[tuple[str, Callable[[Result], Any]], ...] = (
    ("clock", lambda result: result.clock),
    ("board", lambda result: result.board or None),
    ("machine", lambda result: result.host or None),
    ("power mode", lambda result: result.power_mode),
    ("target", lambda result: result.document.get("target")),
)
# what one wants to compare, often enough
_MAY_DIFFER: tuple[tuple[str, Callable[[Result], Any]], ...] = (
    ("configuration", lambda result: result.name),
    ("bundle", lambda result: result.bundle and result.bundle[:12]),
    ("commit", lambda result: result.git and result.git.commit[:12] + "+" * result.git.dirty),
    ("precision", lambda result: result.document.get("precision")),
    ("backend", lambda result: result.document.get("backend")),
)


def refuse_predictions(results: Sequence[Result]) -> None:
    """Refuses what was not measured.

    Raises:
        DataError: A result is a prediction, or nothing says what was measured.
    """
    for result in results:
        lacking = [name for name in ("clock", "latency_ms") if name not in result.document]
        if lacking:
            raise DataError(
                f"the bench document has no {' and no '.join(lacking)}: it is cut, or edgekit "
                "bench did not write it",
                code="compare.form", where=result.label,
                hint="give the bench.json of an edgekit bench",
            )  # fmt: skip
        if result.clock == "predicted" or not result.document["latency_ms"]:
            raise DataError(
                "it is a prediction, and only measurements are compared",
                code="compare.predicted", where=result.label,
                hint="edgekit bench measures; edgekit plan compares predictions",
            )  # fmt: skip


def objections(a: Sequence[Result], b: Sequence[Result]) -> list[str]:
    """Returns why the sides should not be compared; --force does it nevertheless."""
    found = []
    for result in [*a, *b]:
        if result.verdict == "INVALID":
            reasons = result.document["verdict"].get("reasons") or ()
            codes = ", ".join(str(reason.get("code")) for reason in reasons)
            found.append(f"{result.label} is INVALID" + (f" ({codes})" if codes else ""))
    for what, value in _SAME:
        values = _values([*a, *b], value)
        if len(values) > 1:
            found.append(f"the {what} is not the same: {', '.join(values)}")
    return found


def differing(a: Sequence[Result], b: Sequence[Result]) -> list[dict[str, str]]:
    """Returns what else differs between the sides: {"what", "a", "b"}, values for people.

    What a side does not tell is no difference: :func:`untold`.
    """
    return [
        {"what": what, "a": ", ".join(one), "b": ", ".join(other)}
        for what, one, other in _facts_of(a, b)
        if one and other and sorted(one) != sorted(other)
    ]


def untold(a: Sequence[Result], b: Sequence[Result]) -> list[str]:
    """Returns notes on what one side tells and the other does not, as a file beside the history."""
    found: dict[str, list[str]] = {"A": [], "B": []}
    for what, one, other in _facts_of(a, b):
        if bool(one) != bool(other):
            found["B" if one else "A"].append(what)
    return [f"not told by {side}: {', '.join(names)}" for side, names in found.items() if names]


def _facts_of(
    a: Sequence[Result], b: Sequence[Result]
) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yields what may differ, with the values of either side."""
    for what, value in _MAY_DIFFER:
        yield what, _values(a, value), _values(b, value)
    for what in ("settings", "runtime", "fingerprint"):
        sides = [[_flat(_facts(result, what)) for result in side] for side in (a, b)]
        for key in sorted({key for side in sides for flat in side for key in flat}):
            one, other = (
                list(dict.fromkeys(flat[key] for flat in side if key in flat)) for side in sides
            )
            yield f"{what}: {key}", one, other


def _facts(result: Result, what: str) -> Mapping[str, Any]:
    """What was asked for gives way to what held: the runtime's flag of that name."""
    found: Mapping[str, Any] = getattr(result, what)
    flags = result.runtime.get("flags")
    if what != "settings" or not isinstance(flags, Mapping):
        return found
    return {key: value for key, value in found.items() if key not in flags}


def _values(results: Sequence[Result], value: Callable[[Result], Any]) -> list[str]:
    found = (value(result) for result in results)
    return list(dict.fromkeys(str(one) for one in found if one is not None))


def _flat(mapping: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Returns the leaves of a document by their path; notes are no facts."""
    found: dict[str, str] = {}
    for key, value in mapping.items():
        if key == "notes":
            continue
        if isinstance(value, Mapping):
            found |= _flat(value, f"{prefix}{key}.")
        elif value is not None:
            found[f"{prefix}{key}"] = words_of(value)
    return found
