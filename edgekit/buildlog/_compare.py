"""Prediction and builder, layer by layer and loadable by loadable."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from edgekit.buildlog._comparable import warnings
from edgekit.buildlog._comparison import (
    Comparison,
    LayerComparison,
    LoadableComparison,
    PoolComparison,
    pools,
)
from edgekit.buildlog._messages import load_messages
from edgekit.buildlog._placed import Placed, placed
from edgekit.dla import memory

if TYPE_CHECKING:
    from edgekit.buildlog._types import BuildLog
    from edgekit.dla import Judgement
    from edgekit.network import Layer, Network
    from edgekit.targets import Target

__all__ = ["compare"]

_STATUSES = ("agree", "disagree", "slots", "unseen")


def compare(
    network: Network, judgement: Judgement, log: BuildLog, *, target: Target | None = None
) -> Comparison:
    """Holds a judgement against what the builder says in a log.

    A disagreement is a layer that one side lets the DLA run and the other does not. Where both
    allow it but differ in which subgraphs fit the core, the status is "slots". Constants and
    shuffles that the builder refuses and then fuses away are no layers of ours: they are listed
    as absorbed. Cost is linear in layers and in names of the log.

    Args:
        network: The layer graph that was judged.
        judgement: Our verdicts.
        log: What the builder said.
        target: The board, for the memory pools; the judgement's board when None.
    """
    if target is None:
        from edgekit import targets

        target = targets.get(judgement.target)
    found = placed(network, judgement, log)
    layers = tuple(_layer(layer, judgement, found) for layer in network.whole.layers)
    loadables = _loadables(network, judgement, log, found, target)
    counts = Counter(layer.status for layer in layers)
    return Comparison(
        evidence=log.evidence,
        tensorrt=log.tensorrt,
        layers=layers,
        loadables=loadables,
        absorbed=tuple(found.absorbed.values()),
        only_builder=tuple(found.unknown.values()),
        warnings=warnings(judgement, log, target, layers, found.foreign),
        counts={status: counts[status] for status in _STATUSES},
    )


def _layer(layer: Layer, judgement: Judgement, found: Placed) -> LayerComparison:
    verdict = judgement.verdicts[layer.name]
    ours = judgement.placed[layer.name]
    if ours == "GPU" and verdict.ok:
        ours = "slots"
    theirs = found.where.get(layer.name, "")
    refusal = found.refused.get(layer.name)
    words = refusal.words if refusal else ()
    rules = tuple(dict.fromkeys(reason.rule for reason in verdict.reasons))
    kind = (refusal.kind or layer.kind) if refusal else ""
    meant = load_messages().rules(words, kind) if theirs == "GPU" else ()
    return LayerComparison(
        layer=layer.name,
        kind=layer.kind,
        predicted=ours,
        builder=theirs,
        status=_status(ours, theirs, inserted=not layer.nodes),
        certainty=verdict.certainty,
        rules=rules,
        words=words,
        builder_rules=meant,
        reasons=_reasons(rules if ours == "GPU" else (), words, meant),
    )


def _status(ours: str, theirs: str, *, inserted: bool) -> str:
    if not theirs:
        return "unseen"
    if ours == theirs or (theirs == "capable" and ours in ("DLA", "slots")):
        return "agree"
    if "GPU" in (ours, theirs):
        # a refusal can only be missed where the builder speaks of the layer at all
        return "unseen" if theirs == "capable" and inserted else "disagree"
    return "slots"


def _reasons(ours: Sequence[str], words: Sequence[str], meant: Sequence[str]) -> str:
    if not ours or not (words or meant):
        return ""
    if not meant:
        return "unknown"
    return "same" if set(ours) & set(meant) else "other"


def _loadables(
    network: Network, judgement: Judgement, log: BuildLog, found: Placed, target: Target
) -> tuple[LoadableComparison, ...]:
    if log.evidence != "placement" or found.foreign:
        return ()
    predicted = [group.layers for group in judgement.candidates if group.kept]
    of = {name: index for index, layers in enumerate(predicted) for name in layers}
    # every subgraph meets the prediction that it shares the most layers with
    shared = []
    for index, (_, layers) in enumerate(found.subgraphs):
        hits = Counter(of[name] for name in layers if name in of)
        shared += [(-count, index, ours) for ours, count in hits.items()]
    match: dict[int, int] = {}
    used: set[int] = set()
    for _, index, ours in sorted(shared):
        if index not in match and ours not in used:
            match[index] = ours
            used.add(ours)
    rows = []
    for index, (loadable, theirs) in enumerate(found.subgraphs):
        ours_at = match.get(index)
        mine = predicted[ours_at] if ours_at is not None else ()
        sizes: tuple[PoolComparison, ...] = ()
        if loadable.pools is not None and theirs:
            # of the builder's own layers: a wrong set is told once, not again as a wrong size
            by_layer = judgement.precisions or judgement.precision
            need = memory(network, theirs, target, by_layer)
            sizes = pools(need, loadable.pools)
        inside, expected = set(theirs), set(mine)
        rows.append(
            LoadableComparison(
                name=loadable.name,
                predicted=mine,
                builder=theirs,
                only_predicted=tuple(name for name in mine if name not in inside),
                only_builder=tuple(name for name in theirs if name not in expected),
                pools=sizes,
            )
        )
    for index, layers in enumerate(predicted):
        if index not in used:
            rows.append(LoadableComparison("", layers, (), layers, ()))
    return tuple(rows)
