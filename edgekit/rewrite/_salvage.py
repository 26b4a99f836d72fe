"""Regions that can stay where all of them make a network slower, and what is told of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgekit.rewrite._judged import Judged, State
    from edgekit.rewrite._regions import Region

__all__ = ["salvaged", "told"]

# kinds of regions that are tried, each on a whole network of up to so many nodes
_MOST_KINDS = 8
_MOST_NODES = 2000
_SHOWN = 6


def salvaged(full: State, before: Judged) -> State | None:
    """Returns the regions that can be added one kind after the other without a loss of time.

    Args:
        full: With all regions that help the DLA, which together make the network slower.
        before: The model as it came.

    Returns:
        None where there are none, and for large networks, for which it would take too long.
    """
    if len(before.model.proto.graph.node) > _MOST_NODES:
        return None
    kinds: dict[frozenset[str], list[Region]] = {}
    for region in full.regions:
        kinds.setdefault(full.names(region), []).append(region)
    gains = {
        kind: sum(before.of(r.old).off - full.judged.of(r.new).off for r in found)
        for kind, found in kinds.items()
    }
    best: State | None = None
    kept: list[Region] = []
    for kind in sorted(kinds, key=lambda kind: (-gains[kind], sorted(kind)))[:_MOST_KINDS]:
        wanted = {region.steps for region in (*kept, *kinds[kind])}
        trial = full.without([r for r in full.regions if r.steps not in wanted])
        than = best.judged if best else before
        helps = trial.regions and trial.judged.whole.better(than.whole)
        if helps and not trial.judged.slower(before):
            best, kept = trial, [*kept, *kinds[kind]]
    return best


def told(before: Judged, full: State | None, state: State) -> list[str]:
    """Returns notes: what was left out for its predicted time, and what is slower in one way.

    Args:
        before: The model as it came.
        full: With all regions that help the DLA, where together they make it slower.
        state: With those that stay.
    """
    notes = []
    if full is not None:
        left = {region.steps for region in state.regions}
        gone = [region for region in full.regions if region.steps not in left]
        names = sorted({name for region in gone for name in full.names(region)})
        shown = ", ".join(names[:_SHOWN]) + (" and others" if names[_SHOWN:] else "")
        if names:
            notes.append(
                f"not used, for the network is predicted to be slower with them: {shown} "
                f"({_times(before, full.judged)})"
            )
    if state.regions and state.judged.auto_us > before.auto_us * 1.001:
        notes.append(
            "with all that a DLA can run on it the network is predicted to be slower than before, "
            f"with a free choice it is not ({_times(before, state.judged)})"
        )
    return notes


def _times(before: Judged, after: Judged) -> str:
    return (
        f"automatic placement {before.auto_us:.0f} to {after.auto_us:.0f} µs, the better of it "
        f"and the GPU alone {before.best_us:.0f} to {after.best_us:.0f} µs"
    )
