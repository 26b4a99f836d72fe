"""What a reader of a comparison has to know of its runs: few, the same, drifting, dependent."""

from __future__ import annotations

from collections.abc import Sequence

from edgekit.history._bootstrap import independent, spread
from edgekit.history._difference import difference
from edgekit.history._metrics import Measure
from edgekit.history._types import Result

__all__ = ["drift", "remarks"]

_DRIFT = 0.02  # of a run's median, from its first third to its last
_SAMPLES_FOR_DRIFT = 30
# a drift that noise alone would make once in a hundred runs: each comparison looks at two or more
_SURE = 0.99
# benchmarks/compare_power.py: with 50 independent samples' worth (a memory of 0.9) false alarms are
# those that were asked for, with 10 (0.98) three times as many, with 3 (a random walk) ten times
_FEW_INDEPENDENT = 30


def remarks(
    a: Sequence[Result], b: Sequence[Result], sides: Sequence[Sequence[Measure]]
) -> list[str]:
    """Returns notes for people.

    Args:
        a: The runs of A.
        b: Those of B.
        sides: The metric of each run of A, and of B.
    """
    drifting = filter(None, map(_drifting, _distinct([*a, *b])))
    return [*_notes(a, b, sides), *_shared(a, b), *drifting]


def drift(samples: Sequence[float]) -> float | None:
    """Returns the change of the median from the first third of a run to its last.

    None where it is less than a fiftieth, or no more than the noise of the thirds explains.

    Args:
        samples: In the order of their measurement, ms.
    """
    third = len(samples) // 3
    if len(samples) < _SAMPLES_FOR_DRIFT or min(samples) <= 0:
        return None
    measures = [
        Measure(found.value, found)
        for found in (spread(part, 50) for part in (samples[:third], samples[-third:]))
    ]
    change = difference([measures[0]], [measures[1]], _SURE)
    if change.low is None or change.high is None or change.low <= 1 <= change.high:
        return None
    return change.ratio - 1 if abs(change.ratio - 1) > _DRIFT else None


def _drifting(result: Result) -> str:
    found = drift(result.samples)
    if found is None:
        return ""
    why = (
        "it was not warm yet, or something else was busy at its start: a longer warm-up shows which"
        if found < 0
        else "it got hot, its clocks fell, or something else became busy; a longer warm-up shows "
        "what it is in the long run"
    )
    return (
        f"{result.label}: the latency drifts by {found:+.1%} from the first third of the run to "
        f"the last, which is more than its noise: {why}"
    )


def _notes(
    a: Sequence[Result], b: Sequence[Result], sides: Sequence[Sequence[Measure]]
) -> list[str]:
    notes = []
    if len(a) == len(b) == 1:
        unsure = [
            (result, found)
            for result, found in ((a[0], sides[0][0]), (b[0], sides[1][0]))
            if found.spread is None
        ]
        notes += [f"{result.label}: {_unsure(found)}" for result, found in unsure]
        if not notes:
            notes.append(
                "one run a side: how much one run differs from the next is not in the interval"
            )
            notes += _dependent([*a, *b])
    elif min(len(a), len(b)) == 1:
        notes.append("one side has one run: it is taken to vary from run to run as the other does")
    return notes


def _unsure(measure: Measure) -> str:
    if measure.ends is None:
        return f"{measure.why}; compare several runs a side"
    return (
        f"{measure.why}: until then its lowest and its highest time are the ends of the interval; "
        "measure longer (edgekit bench --duration)"
    )


def _shared(a: Sequence[Result], b: Sequence[Result]) -> list[str]:
    """Notices what stands on both sides, under whatever name."""
    shared = [one for one in b if any(_same(one, other) for other in a)]
    if not shared:
        return []
    if len(shared) == len(b) == len(a):
        return ["A and B are the same measurement: that is no comparison"]
    return [f"both sides have {', '.join(sorted({one.label for one in shared}))}"]


def _same(one: Result, other: Result) -> bool:
    if one.id is not None and one.id == other.id:
        return True
    return bool(one.samples) and one.samples == other.samples


def _distinct(results: Sequence[Result]) -> list[Result]:
    return list({result.label: result for result in results}.values())


def _dependent(results: Sequence[Result]) -> list[str]:
    """Warns of runs that hold too few independent samples for an interval from one run."""
    worth = [(result, independent(result.samples)) for result in results]
    return [
        f"{result.label}: its {len(result.samples):,} inferences follow each other so closely that "
        f"they are worth about {count:.0f} independent ones: the interval is too narrow, and a "
        "difference may be none; measure several runs a side (edgekit compare 1,2,3,4 5,6,7,8)"
        for result, count in worth
        if count is not None and count < _FEW_INDEPENDENT
    ]
