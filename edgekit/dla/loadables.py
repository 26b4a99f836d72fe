"""TensorRT's groups of layers with automatic DLA placement, and the groups without a slot.

TensorRT 10.3 visits the layers in graph order (seen in verbose builds of ResNet-50 and DETR).
DLA-capable layers form a run, connected or not, until a layer needs the run's results through the
GPU: that layer begins the next run. A run never includes layers after its end, even if they
would fit. A tensor of fewer than four dimensions passes through the GPU, because the builder
reshapes it there. A run is cut into candidates at changes of the batch size; in INT8 also in front
of a product of several rows that is not connected to the candidate. The builder keeps the
candidates with the most layers, ties in graph order, and puts the rest on the GPU.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from edgekit.dla.facts import dla_batch
from edgekit.dla.rule_files import join_titles
from edgekit.dla.rules import load_rules, loadables_per_core
from edgekit.dla.verdicts import Judgement, LoadableCandidate, SlotReason
from edgekit.network.model import SHUFFLES
from edgekit.text import counted

if TYPE_CHECKING:
    from edgekit.network.model import Layer, Network


_NO_RUN = -1
_NCHW = 4
SLOTS = "memory.loadables"  # the rule with the number of loadables of a core


def find_candidates(
    network: Network,
    ok: Mapping[str, bool],
    max_loadables: int | None = None,
    precision: str | Mapping[str, str] = "",
) -> tuple[LoadableCandidate, ...]:
    """Groups the layers that ``ok`` allows, in graph order; linear in the size of the network.

    Candidates follow each other among the layers that ``ok`` allows, so each is convex, and they
    can run one after the other.

    Args:
        network: The layer graph.
        ok: By layer name, True if the DLA can run it.
        max_loadables: Number of candidates kept; None for as many as a core holds.
        precision: "int8" or "fp16", of all layers or by layer name.
    """
    producers = network.producers()
    # by layer its run; for a layer on the GPU the last run that it depends on
    run: dict[str, int] = {}
    found: list[list[str]] = []
    current = _NO_RUN
    last = _OpenCandidate()
    for layer in network.layers:
        if not ok.get(layer.name, False):
            read = (producers[name].name for name in layer.inputs if name in producers)
            run[layer.name] = max((run[source] for source in read), default=_NO_RUN)
            last.pass_on(layer)
            continue
        int8 = (precision if isinstance(precision, str) else precision.get(layer.name)) == "int8"
        over_gpu = any(
            run[source.name] == current
            and (not ok.get(source.name, False) or len(network.tensors[name].shape) < _NCHW)
            for name in layer.inputs
            if (source := producers.get(name)) is not None
        )
        if current == _NO_RUN or over_gpu:
            current += 1
            found.append([])
            last.clear()
        # the same run, so that layers behind the GPU are still found to depend on it
        elif not last.takes(layer, network, int8=int8):
            found.append([])
            last.clear()
        run[layer.name] = current
        found[-1].append(layer.name)
        last.add(layer, network)
    largest = sorted(range(len(found)), key=lambda i: (-len(found[i]), i))
    slots = loadables_per_core() if max_loadables is None else max_loadables
    chosen = set(largest[: max(slots, 0)])
    return tuple(
        LoadableCandidate(tuple(names), i in chosen, "" if i in chosen else SLOTS)
        for i, names in enumerate(found)
    )


class _OpenCandidate:
    """The candidate that is being filled: its batch size, and the tensors that connect it."""

    def __init__(self) -> None:
        self._batch = 0
        self._tensors: set[str] = set()
        # by output of a shuffle on the GPU its input
        self._origin: dict[str, str] = {}

    def clear(self) -> None:
        self._tensors.clear()

    def pass_on(self, layer: Layer) -> None:
        """Notes a layer on the GPU."""
        if layer.kind in SHUFFLES and layer.inputs:
            source = layer.inputs[0]
            # through chains of shuffles, to the tensor that a layer wrote
            self._origin[layer.outputs[0]] = self._origin.get(source, source)

    def takes(self, layer: Layer, network: Network, *, int8: bool) -> bool:
        """Returns True if a layer that could join does so."""
        size = loadable_batch(layer, network)
        if size != self._batch:
            return False
        if not (int8 and size > 1 and layer.params.get("gemm")):
            return True
        return any(self._origin.get(name, name) in self._tensors for name in layer.inputs)

    def add(self, layer: Layer, network: Network) -> None:
        self._batch = loadable_batch(layer, network)
        self._tensors.update(self._origin.get(name, name) for name in layer.inputs)
        self._tensors.update(layer.outputs)


def find_working_candidates(
    network: Network,
    ok: Mapping[str, bool],
    idle: Collection[str],
    max_loadables: int,
    precision: str | Mapping[str, str] = "",
) -> tuple[LoadableCandidate, ...]:
    """Returns the candidates without those that have only kinds in ``idle``.

    Q/DQ nodes whose neighbours are all on the GPU are parts of kernels there.
    """
    groups = find_candidates(network, ok, max_loadables, precision)
    kinds = {layer.name: layer.kind for layer in network.layers}
    bare = {
        name
        for group in groups
        if all(kinds[name] in idle for name in group.layers)
        for name in group.layers
    }
    if not bare:
        return groups
    # grouped again: without these layers the slots go to others
    able = {name: ok[name] and name not in bare for name in ok}
    return find_candidates(network, able, max_loadables, precision)


def loadable_batch(layer: Layer, network: Network) -> int:
    """Returns the batch size that a layer gives its loadable, which has a single batch size."""
    name = (layer.outputs or layer.inputs)[0]
    return dla_batch(network.tensors[name].shape)


def slot_reason(judgement: Judgement) -> SlotReason | None:
    """Returns why DLA-capable layers stay on the GPU; None if none do.

    Args:
        judgement: A network's verdicts and loadables.
    """
    lost = [group.layers for group in judgement.candidates if group.dropped == SLOTS]
    if not lost:
        return None
    rule = load_rules().rules[SLOTS]
    names = tuple(name for layers in lost for name in layers)
    found = counted(len(names), "layer")
    limit = f"{judgement.slots} loadables"
    message = f"{found} could run on the DLA, but a core is limited to {limit}"
    source = join_titles(rule.source)
    return SlotReason(rule.id, message, found, limit, source, rule.fix, layers=names)
