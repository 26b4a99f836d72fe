"""What stays of a search: regions that help, as long as the whole gets no slower."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgekit.rewrite._decide import Judge, Score, apart, score
from edgekit.rewrite._emit import emit
from edgekit.rewrite._graph import Graph
from edgekit.rewrite._regions import Region, regions
from edgekit.rewrite._replay import Replayed, replayed

if TYPE_CHECKING:
    from edgekit.network import Model
    from edgekit.rewrite._search import Search, Taken

__all__ = ["Settled", "settle"]

# predicted times: a smaller rise is rounding
_RISE = 1e-4
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
    before = _Judged(source, judge)
    steps = dict(enumerate(search.taken))
    state = _State(raised, judge, Replayed(search.graph, steps, found), search.notes)
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
            if state.regions:
                return Settled(state.judged.model, state.graph, state.taken)
            break
        state = state.without(_dearest(state, before))
    if raised is not source:
        after = _Judged(raised, judge)
        if after.whole.better(before.whole) and not after.slower(before):
            return Settled(raised, Graph(raised), ())
    return None


class _State:
    """What is left, and what is thought of it."""

    def __init__(self, raised: Model, judge: Judge, left: Replayed, notes: list[str]) -> None:
        self._raised = raised
        self._judge = judge
        self._left = left
        self._notes = notes
        self.graph = left.graph
        self.regions = left.regions
        self.judged = _Judged(emit(left.graph) if left.regions else raised, judge)

    @property
    def taken(self) -> tuple[Taken, ...]:
        """The steps, in order."""
        return tuple(self._left.taken.values())

    def names(self, region: Region) -> frozenset[str]:
        """The rewrites of a region."""
        return frozenset(self._left.taken[i].step.rewrite.name for i in region.steps)

    def without(self, gone: Collection[Region]) -> _State:
        """The state without some regions, and without what cannot be repeated then."""
        lost = {region.steps for region in gone}
        left = [region for region in self.regions if region.steps not in lost]
        again = replayed(self._raised, self._left.taken, left, self._notes)
        return _State(self._raised, self._judge, again, self._notes)


def _by_the_whole(state: _State, tied: list[Region], dear: list[Region]) -> _State:
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


class _Judged:
    """A model judged as a whole: its score, and that of the layers behind any of its nodes."""

    def __init__(self, model: Model, judge: Judge) -> None:
        from edgekit.network import layers

        network = layers(model)
        judgement = judge.judge(network)
        predicted = judge.cost(network, judgement) if judge.cost is not None else None
        times = predicted.layer_us if predicted else {}
        whole = score(network, judgement)
        self.model = model
        self.auto_us = predicted.auto_us if predicted else 0.0
        self.best_us = min(self.auto_us, predicted.gpu_only_us) if predicted else 0.0
        self.whole = Score(whole.off, whole.disputed, self.auto_us)
        self._layers: list[tuple[bool, bool, float]] = []
        self._behind: dict[str, list[int]] = {}
        for layer in (*network.layers, *apart(network, judgement)):
            for name in layer.origin:
                self._behind.setdefault(name, []).append(len(self._layers))
            verdict = judgement.verdicts[layer.name]
            ok = verdict.ok and layer.kind != "CONSTANT"
            self._layers.append((not ok, ok and bool(verdict.reasons), times.get(layer.name, 0.0)))

    def slower(self, other: _Judged) -> bool:
        """Whether it is predicted to be slower than ``other``.

        A layer that a DLA can run need not run there, so what makes the automatic placement slower
        is no loss as long as the better of it and the GPU alone is as fast as before.
        """
        rise = 1 + _RISE
        return self.auto_us > other.auto_us * rise and self.best_us > other.best_us * rise

    def of(self, nodes: Collection[str]) -> Score:
        """The score of the layers that stand for some of ``nodes``, their own times summed."""
        own = {index for name in nodes for index in self._behind.get(name, ())}
        rows = [self._layers[index] for index in sorted(own)]
        return Score(sum(r[0] for r in rows), sum(r[1] for r in rows), sum(r[2] for r in rows))


def _dearest(state: _State, before: _Judged) -> list[Region]:
    """The kind of region that costs most; all regions of the same rewrites are one kind."""
    kinds = {region: state.names(region) for region in state.regions}
    dearer: Counter[frozenset[str]] = Counter()
    for region, kind in kinds.items():
        us = state.judged.of(region.new).us - before.of(region.old).us
        dearer[kind] += round(1000 * us)
    worst = max(dearer, key=lambda kind: (dearer[kind], sorted(kind)))
    return [region for region, kind in kinds.items() if kind == worst]
