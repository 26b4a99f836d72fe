"""Selects the regions of a search that help without making the whole network slower."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgekit.network.lowering.layers import layers
from edgekit.network.model import Model
from edgekit.rewriting.engine.replay import Region, Replayed, regions, replay_regions
from edgekit.rewriting.engine.scoring import Judge, Score, gpu_constants, layer_counts, score
from edgekit.rewriting.graph import RewriteGraph, emit

if TYPE_CHECKING:
    from edgekit.rewriting.engine.search import RewriteSearch, Taken


# smallest relative rise of a predicted time; smaller rises are rounding
_RISE = 1e-4
# most kinds of regions that are tried, and most nodes of the network for each trial
_MOST_KINDS = 8
_MOST_NODES = 2000
_SHOWN = 6
# most regions without an improvement of their own that are tried one by one
_FEW = 8


class Judged:
    """A model judged as a whole: its score, and the score of the layers of any of its nodes."""

    def __init__(self, model: Model, judge: Judge) -> None:
        network = layers(model, judge.tensorrt)
        judgement = judge.judge(network)
        predicted = judge.cost(network, judgement) if judge.cost is not None else None
        times = predicted.layer_us if predicted else {}
        # without ``cost``: it would predict the same network again
        whole = score(network, judgement)
        self.model = model
        self.network = network
        self.judgement = judgement
        self.auto_us = predicted.auto_us if predicted else 0.0
        self.best_us = min(self.auto_us, predicted.gpu_only_us) if predicted else 0.0
        self.whole = Score(whole.off, whole.disputed, self.auto_us)
        self._layers: list[tuple[int, int, float]] = []
        self._after: dict[str, list[int]] = {}
        for layer in (*network.layers, *gpu_constants(network, judgement)):
            for name in layer.origin:
                self._after.setdefault(name, []).append(len(self._layers))
            count = layer_counts(network, layer, judgement.verdicts[layer.name])
            self._layers.append((*count, times.get(layer.name) or 0.0))

    def slower(self, other: Judged) -> bool:
        """Returns True if it is predicted to be slower than ``other``.

        A layer that a DLA can run need not run there, so a slower automatic placement is no loss if
        the better of automatic placement and GPU only is as fast as before.
        """
        rise = 1 + _RISE
        return self.auto_us > other.auto_us * rise and self.best_us > other.best_us * rise

    def of(self, nodes: Collection[str]) -> Score:
        """Returns the score of the layers of ``nodes``, with the sum of the layers' times."""
        # a set: fused nodes share a layer, which counts once
        own = {index for name in nodes for index in self._after.get(name, ())}
        rows = [self._layers[index] for index in sorted(own)]
        return Score(sum(r[0] for r in rows), sum(r[1] for r in rows), sum(r[2] for r in rows))


class SearchState:
    """The remaining steps of a search, and their judgement."""

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
        """Returns the names of a region's rewrites."""
        return frozenset(self._left.taken[i].step.rewrite.name for i in region.steps)

    def without(self, gone: Collection[Region]) -> SearchState:
        """Returns the state without some regions, and without steps that then do not apply."""
        # by steps: the regions of another state are other objects
        lost = {region.steps for region in gone}
        left = [region for region in self.regions if region.steps not in lost]
        again = replay_regions(self._raised, self._left.taken, left, self._notes)
        return SearchState(self._raised, self._judge, again, self._notes)


def salvage(full: SearchState, before: Judged) -> SearchState | None:
    """Returns the regions that can be added kind by kind without a loss of time.

    Args:
        full: State with all regions that help the DLA, which together make the network slower.
        before: The model before rewriting.

    Returns:
        None without such regions, and for large networks, for which it would take too long.
    """
    if len(before.model.proto.graph.node) > _MOST_NODES:
        return None
    # by kind: each trial judges a whole network
    kinds: dict[frozenset[str], list[Region]] = {}
    for region in full.regions:
        kinds.setdefault(full.names(region), []).append(region)
    gains = {
        kind: sum(before.of(r.old).off - full.judged.of(r.new).off for r in found)
        for kind, found in kinds.items()
    }
    best: SearchState | None = None
    accepted: list[Region] = []
    # greedy by gain; the names break ties, so that the result does not depend on the order of a set
    for kind in sorted(kinds, key=lambda kind: (-gains[kind], sorted(kind)))[:_MOST_KINDS]:
        wanted = {region.steps for region in (*accepted, *kinds[kind])}
        trial = full.without([r for r in full.regions if r.steps not in wanted])
        than = best.judged if best else before
        helps = trial.regions and trial.judged.whole.better(than.whole)
        if helps and not trial.judged.slower(before):
            best, accepted = trial, [*accepted, *kinds[kind]]
    return best


def describe_salvaged(before: Judged, full: SearchState | None, state: SearchState) -> list[str]:
    """Returns notes on regions omitted for their predicted time, and on a slower placement.

    Args:
        before: The model before rewriting.
        full: State with all regions that help the DLA, if together they make it slower.
        state: State with the regions that stay.
    """
    notes = []
    if full is not None:
        left = {region.steps for region in state.regions}
        gone = [region for region in full.regions if region.steps not in left]
        names = sorted({name for region in gone for name in full.names(region)})
        shown = ", ".join(names[:_SHOWN]) + (" and others" if names[_SHOWN:] else "")
        if names:
            notes.append(
                f"not used, because the predicted time is longer with them: {shown} "
                f"({_times(before, full.judged)})"
            )
    if state.regions and state.judged.auto_us > before.auto_us * 1.001:
        notes.append(
            "the rewrites are kept although the predicted time is longer with TensorRT's automatic "
            f"DLA placement: {_times(before, state.judged)}"
        )
    return notes


def _times(before: Judged, after: Judged) -> str:
    """Returns both predicted times, by which rewrites are kept or left out."""
    return (
        f"automatic DLA placement {before.auto_us:.0f} to {after.auto_us:.0f} µs, the faster of "
        f"that and the GPU alone {before.best_us:.0f} to {after.best_us:.0f} µs"
    )


@dataclass(frozen=True, slots=True, eq=False)
class Settled:
    """The judged model with the steps that stay, its graph, and these steps."""

    judged: Judged
    graph: RewriteGraph
    taken: tuple[Taken, ...]


def settle(source: Model, raised: Model, judge: Judge, search: RewriteSearch) -> Settled | None:
    """Takes back steps without an improvement, and steps that make the whole network slower.

    A region helps if it leaves fewer of its layers off the DLA, or as many with fewer disputed
    layers. A region that ties in both is judged in the whole network: its neighbours may get faster
    or slower.

    Args:
        source: The model before rewriting.
        raised: The same model in the opset in which the steps were found.
        judge: The board's judge.
        search: The finished search.

    Returns:
        The steps that stay; None if the unchanged model is best.
    """
    found = regions(search.graph, [item.step for item in search.taken])
    if not found and raised is source:
        return None
    before = Judged(source, judge)
    steps = dict(enumerate(search.taken))
    state = SearchState(raised, judge, Replayed(search.graph, steps, found), search.notes)
    full: SearchState | None = None
    while state.regions:
        after = state.judged
        # each round again: without a region its neighbours fuse differently
        scores = {r: (before.of(r.old), after.of(r.new)) for r in state.regions}
        tied = [r for r, (old, new) in scores.items() if not (old.worse(new) or new.worse(old))]
        worse = [r for r, (old, new) in scores.items() if new.worse(old)]
        # first: until these are gone, times of the whole network include their harm
        if worse:
            state = state.without(worse)
            continue
        if tied:
            dear = [r for r in tied if not scores[r][1].better(scores[r][0])]
            state = _settle_by_whole(state, tied, dear)
        if not state.judged.slower(before):
            break
        # the first state that is too slow has all regions that help; later states have lost some
        full = full or state
        state = state.without(_dearest(state, before))
    if full is not None and not state.regions:
        # taking the dearest kinds back one by one ended with nothing; adding them may find a set
        # that pays
        state = salvage(full, before) or state
    search.notes += describe_salvaged(before, full, state)
    if state.regions:
        return Settled(state.judged, state.graph, state.taken)
    # raising alone may help, because Softmax of opset 13 keeps its four dimensions
    if raised is not source:
        after = Judged(raised, judge)
        if after.whole.better(before.whole) and not after.slower(before):
            return Settled(after, RewriteGraph(raised), ())
    return None


def _settle_by_whole(state: SearchState, tied: list[Region], dear: list[Region]) -> SearchState:
    """Takes back the ``tied`` regions that do not improve the whole network.

    Args:
        state: State with all regions.
        tied: Regions whose own layers suit the DLA neither better nor worse than before.
        dear: Regions of ``tied`` without a better score of their own.
    """
    # all of them at once first: each trial judges a whole network
    none = state.without(tied)
    if not state.judged.whole.better(none.judged.whole):
        return none
    if len(tied) == 1:
        return state
    # many regions are tried at once, to save time in large networks
    parts = [[region] for region in tied] if len(tied) <= _FEW else [dear] if dear else []
    for part in parts:
        fewer = state.without(part)
        if not state.judged.whole.better(fewer.judged.whole):
            state = fewer
    return state


def _dearest(state: SearchState, before: Judged) -> list[Region]:
    """Returns the most expensive kind of region; regions of the same rewrites are one kind."""
    kinds = {region: state.names(region) for region in state.regions}
    dearer: Counter[frozenset[str]] = Counter()
    for region, kind in kinds.items():
        us = state.judged.of(region.new).us - before.of(region.old).us
        # in whole nanoseconds: sums of floats depend on the order of the regions
        dearer[kind] += round(1000 * us)
    worst = max(dearer, key=lambda kind: (dearer[kind], sorted(kind)))
    return [region for region, kind in kinds.items() if kind == worst]
