"""A rewritten model judged as a whole, with the regions that are in it."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from edgekit.rewrite._decide import Judge, Score, apart, pieces, score
from edgekit.rewrite._emit import emit
from edgekit.rewrite._replay import Replayed, replayed

if TYPE_CHECKING:
    from edgekit.network import Model
    from edgekit.rewrite._regions import Region
    from edgekit.rewrite._search import Taken

__all__ = ["Judged", "State"]

# predicted times: a smaller rise is rounding
_RISE = 1e-4


class Judged:
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
        self._layers: list[tuple[int, int, float]] = []
        self._behind: dict[str, list[int]] = {}
        for layer in (*network.layers, *apart(network, judgement)):
            for name in layer.origin:
                self._behind.setdefault(name, []).append(len(self._layers))
            count = pieces(network, layer, judgement.verdicts[layer.name])
            self._layers.append((*count, times.get(layer.name, 0.0)))

    def slower(self, other: Judged) -> bool:
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


class State:
    """What is left, and what is thought of it."""

    def __init__(self, raised: Model, judge: Judge, left: Replayed, notes: list[str]) -> None:
        self._raised = raised
        self._judge = judge
        self._left = left
        self._notes = notes
        self.graph = left.graph
        self.regions = left.regions
        self.judged = Judged(emit(left.graph) if left.regions else raised, judge)

    @property
    def taken(self) -> tuple[Taken, ...]:
        """The steps, in order."""
        return tuple(self._left.taken.values())

    def names(self, region: Region) -> frozenset[str]:
        """The rewrites of a region."""
        return frozenset(self._left.taken[i].step.rewrite.name for i in region.steps)

    def without(self, gone: Collection[Region]) -> State:
        """The state without some regions, and without what cannot be repeated then."""
        lost = {region.steps for region in gone}
        left = [region for region in self.regions if region.steps not in lost]
        again = replayed(self._raised, self._left.taken, left, self._notes)
        return State(self._raised, self._judge, again, self._notes)
