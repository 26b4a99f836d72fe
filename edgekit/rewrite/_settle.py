"""What stays of a search: regions that help, as long as the whole gets no slower."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgekit.errors import ModelError
from edgekit.rewrite._decide import Judge, Score, apart, score
from edgekit.rewrite._emit import emit
from edgekit.rewrite._graph import Graph
from edgekit.rewrite._regions import Region, regions
from edgekit.rewrite._replay import replay

if TYPE_CHECKING:
    from edgekit.network import Model
    from edgekit.rewrite._search import Search, Taken

__all__ = ["Settled", "settle"]

# predicted times: a smaller rise is rounding
_RISE = 1e-4


@dataclass(frozen=True, slots=True, eq=False)
class Settled:
    """The model with the steps that stay, its graph, and these steps."""

    model: Model
    graph: Graph
    taken: tuple[Taken, ...]


def settle(source: Model, raised: Model, judge: Judge, search: Search) -> Settled | None:
    """Takes back what did not lead to an improvement, and what makes the whole slower.

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
    left = list(found)
    while True:
        if len(left) == len(found) > 0:
            graph, taken = search.graph, tuple(search.taken)
        else:
            again = _replayed(raised, search.taken, left)
            if again is None:
                break
            graph, taken = again
        after = _Judged(emit(graph), judge)
        helpful = [r for r in left if after.of(r.new).better(before.of(r.old))]
        if len(helpful) < len(left):
            left = helpful
        elif after.slower(before):
            left = _without_dearest(left, search.taken, before, after)
        else:
            return Settled(after.model, graph, taken)
    if raised is not source:
        after = _Judged(raised, judge)
        if after.whole.better(before.whole) and not after.slower(before):
            return Settled(raised, Graph(raised), ())
    return None


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
        dearer[kind] += round(1000 * (after.of(region.new).us - before.of(region.old).us))
    worst = max(dearer, key=lambda kind: (dearer[kind], sorted(kind)))
    return [region for region in left if kinds[region] != worst]
