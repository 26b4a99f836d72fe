"""What stays of a search: regions that help, as long as the whole gets no slower."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgekit.rewrite._graph import Graph
from edgekit.rewrite._judged import Judged, State
from edgekit.rewrite._regions import Region, regions
from edgekit.rewrite._replay import Replayed
from edgekit.rewrite._salvage import salvaged, told

if TYPE_CHECKING:
    from edgekit.network import Model
    from edgekit.rewrite._decide import Judge
    from edgekit.rewrite._search import Search, Taken

__all__ = ["Settled", "settle"]

# up to so many regions that are no improvement by themselves are tried out one by one
_FEW = 8


@dataclass(frozen=True, slots=True, eq=False)
class Settled:
    """The model with the steps that stay, its graph, and these steps."""

    model: Model
    graph: Graph
    taken: tuple[Taken, ...]


def settle(source: Model, raised: Model, judge: Judge, search: Search) -> Settled | None:
    """Takes back what did not lead to an improvement, and what makes the whole slower.

    A region helps where it leaves fewer layers off the DLA, or as many and fewer of them disputed,
    among its own layers. Whether one that ties in both helps is seen in the whole network alone:
    its neighbours may get faster by it, or slower.

    Args:
        source: The model as it came.
        raised: The same in the opset in which the steps were found.
        judge: Of the board.
        search: The search, run to its end.

    Returns:
        What stays; None where the model as it came is best.
    """
    found = regions(search.graph, [item.step for item in search.taken])
    if not found and raised is source:
        return None
    before = Judged(source, judge)
    steps = dict(enumerate(search.taken))
    state = State(raised, judge, Replayed(search.graph, steps, found), search.notes)
    full: State | None = None
    while state.regions:
        after = state.judged
        scores = {r: (before.of(r.old), after.of(r.new)) for r in state.regions}
        tied = [r for r, (old, new) in scores.items() if not (old.worse(new) or new.worse(old))]
        worse = [r for r, (old, new) in scores.items() if new.worse(old)]
        if worse:
            state = state.without(worse)
            continue
        if tied:
            dear = [r for r in tied if not scores[r][1].better(scores[r][0])]
            state = _by_the_whole(state, tied, dear)
        if not state.judged.slower(before):
            break
        full = full or state
        state = state.without(_dearest(state, before))
    if full is not None and not state.regions:
        state = salvaged(full, before) or state
    search.notes += told(before, full, state)
    if state.regions:
        return Settled(state.judged.model, state.graph, state.taken)
    if raised is not source:
        after = Judged(raised, judge)
        if after.whole.better(before.whole) and not after.slower(before):
            return Settled(raised, Graph(raised), ())
    return None


def _by_the_whole(state: State, tied: list[Region], dear: list[Region]) -> State:
    """Takes back the ``tied`` regions that do not make the whole better.

    Args:
        state: With all of them.
        tied: Those of which the layers behind them do not tell.
        dear: Those of them that are not even faster by themselves.
    """
    none = state.without(tied)
    if not state.judged.whole.better(none.judged.whole):
        return none
    if len(tied) == 1:
        return state
    # many are tried out at once, so that large networks take no longer than they must
    parts = [[region] for region in tied] if len(tied) <= _FEW else [dear] if dear else []
    for part in parts:
        fewer = state.without(part)
        if not state.judged.whole.better(fewer.judged.whole):
            state = fewer
    return state


def _dearest(state: State, before: Judged) -> list[Region]:
    """The kind of region that costs most; all regions of the same rewrites are one kind."""
    kinds = {region: state.names(region) for region in state.regions}
    dearer: Counter[frozenset[str]] = Counter()
    for region, kind in kinds.items():
        us = state.judged.of(region.new).us - before.of(region.old).us
        dearer[kind] += round(1000 * us)
    worst = max(dearer, key=lambda kind: (dearer[kind], sorted(kind)))
    return [region for region, kind in kinds.items() if kind == worst]
