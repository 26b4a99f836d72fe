"""What stays of a search: regions that help, as long as the whole gets no slower."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgekit.errors import ModelError
from edgekit.rewrite._decide import Judge, Predicted, Score, score
from edgekit.rewrite._emit import emit
from edgekit.rewrite._graph import Graph
from edgekit.rewrite._regions import Region, regions
from edgekit.rewrite._replay import replay

if TYPE_CHECKING:
    from edgekit.dla import Judgement
    from edgekit.network import Model, Network
    from edgekit.rewrite._search import Search, Taken

__all__ = ["settle"]

# predicted times: a smaller rise is rounding
_RISE = 1e-4


def settle(
    source: Model, raised: Model, judge: Judge, search: Search
) -> tuple[Graph | None, tuple[Taken, ...]]:
    """Takes back what did not lead to an improvement, and what makes the whole slower.

    Args:
        source: The model as it came.
        raised: The same in the opset in which the steps were found.
        judge: Of the board.
        search: The search, run to its end.

    Returns:
        The graph with the steps that stay, and these; None where the model as it came is best.
    """
    found = regions(search.graph, [item.step for item in search.taken])
    before = _judged(source, judge)
    left = list(found)
    while True:
        again = _replayed(raised, search.taken, left)
        if again is None:
            break
        graph, taken = again
        after = _judged(emit(graph), judge)
        useless = [r for r in left if not _of(after, r.new).better(_of(before, r.old))]
        if useless:
            left = [region for region in left if region not in useless]
        elif after.us > before.us * (1 + _RISE):
            left = _without_dearest(left, search.taken, before, after)
        else:
            return graph, taken
    if raised is not source and _judged(raised, judge).whole().better(before.whole()):
        return Graph(raised), ()
    return None, ()


@dataclass(frozen=True, slots=True, eq=False)
class _Judged:
    network: Network
    judgement: Judgement
    predicted: Predicted | None

    @property
    def us(self) -> float:
        return self.predicted.auto_us if self.predicted else 0.0

    def whole(self) -> Score:
        found = score(self.network, self.judgement)
        return Score(found.off, found.disputed, self.us)


def _judged(model: Model, judge: Judge) -> _Judged:
    from edgekit.network import layers

    network = layers(model)
    judgement = judge.judge(network)
    predicted = judge.cost(network, judgement) if judge.cost is not None else None
    return _Judged(network, judgement, predicted)


def _of(judged: _Judged, nodes: frozenset[str]) -> Score:
    """The score of the layers that stand for some nodes, their own times summed."""
    found = score(judged.network, judged.judgement, nodes=nodes)
    if judged.predicted is None:
        return found
    times = judged.predicted.layer_us
    own = [la.name for la in judged.network.layers if not nodes.isdisjoint(la.origin)]
    return Score(found.off, found.disputed, sum(times.get(name, 0.0) for name in own))


def _replayed(
    raised: Model, taken: Sequence[Taken], left: list[Region]
) -> tuple[Graph, tuple[Taken, ...]] | None:
    """The steps of ``left`` once more; regions that need a lost one are taken out of it."""
    while left:
        kept = [taken[i] for i in sorted(i for region in left for i in region.steps)]
        try:
            steps = [(item.step.rewrite.name, item.step.anchor) for item in kept]
            return replay(raised, steps), tuple(kept)
        except ModelError as error:
            lost = [r for r in left if any(taken[i].step.anchor == error.where for i in r.steps)]
            left.remove(lost[0])
    return None


def _without_dearest(
    left: Sequence[Region], taken: Sequence[Taken], before: _Judged, after: _Judged
) -> list[Region]:
    """Leaves out the kind of region that costs most; all regions of the same rewrites are one."""
    kinds = {r: frozenset(taken[i].step.rewrite.name for i in r.steps) for r in left}
    dearer: Counter[frozenset[str]] = Counter()
    for region, kind in kinds.items():
        dearer[kind] += round(1000 * (_of(after, region.new).us - _of(before, region.old).us))
    worst = max(dearer, key=lambda kind: (dearer[kind], sorted(kind)))
    return [region for region in left if kinds[region] != worst]
