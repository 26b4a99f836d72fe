"""What a check must say of a release beside its verdicts, layer counts included."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.dla._facts import Facts
from edgekit.dla._graph import Graph
from edgekit.dla._rule import ANY_KIND
from edgekit.dla._rules import load_rules
from edgekit.dla._versions import parse_version

if TYPE_CHECKING:
    from edgekit.dla._types import Judgement
    from edgekit.network import Network
    from edgekit.targets import Target

__all__ = ["release_warnings"]


def release_warnings(network: Network, judgement: Judgement, target: Target) -> tuple[str, ...]:
    """Returns one sentence for every note whose condition some layers meet, with their number.

    A release newer than all sources comes first: then the verdicts are those of the newest known.
    The notes are those with ``counts`` and ``warning`` under ``dla/``. Beside the facts of other
    rules they can ask for ``allowed`` (the verdict) and for ``precision`` (what the layer was
    judged in). Costs nothing for a release for which no such note holds.

    Args:
        network: The layer graph that was judged.
        judgement: Its verdicts.
        target: The board.
    """
    rules = load_rules()
    version = parse_version(judgement.tensorrt)
    newer = _newer(judgement.tensorrt, rules.newest)
    generation = target.dla.generation
    notes = [
        rule
        for rule in rules
        if rule.counts is not None and rule.holds_for(ANY_KIND, generation, version)
    ]
    if not notes or not generation:
        return newer
    graph = Graph(network)
    met = dict.fromkeys((rule.id for rule in notes), 0)
    for layer in network.layers:
        facts = Facts(layer, graph, {})
        facts["precision"] = judgement.precision_of(layer.name)
        facts["allowed"] = judgement.verdicts[layer.name].ok
        for rule in notes:
            met[rule.id] += rule.counts is not None and rule.counts(facts) is not None
    return newer + tuple(
        f"{rule.warning.format(tensorrt=judgement.tensorrt, layers=_layers(met[rule.id]))} "
        f"({rule.id})"
        for rule in notes
        if met[rule.id]
    )


def _newer(release: str, newest: str) -> tuple[str, ...]:
    if parse_version(release) <= parse_version(newest):
        return ()
    told = f"TensorRT {release} is newer than the newest release in edgekit's sources ({newest})"
    return (f"{told}: it is judged by the rules of {newest}",)


def _layers(count: int) -> str:
    return f"{count:,} layer is" if count == 1 else f"{count:,} layers are"
