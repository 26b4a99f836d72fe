"""From a placement to layers, segments and loadables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from edgekit.dla import MemoryNeed, memory, pool_limits
from edgekit.errors import GateError
from edgekit.network import Network
from edgekit.placement._costs import CostModel
from edgekit.placement._kernels import Kernel
from edgekit.placement._loadables import Step
from edgekit.placement._problem import Problem
from edgekit.placement._types import Loadable, PlacedLayer

__all__ = ["loadables_of", "placed_layers", "pools_of", "split_by_memory", "transitions_of"]

DIGITS = 6  # of microseconds and microjoules in a plan


def placed_layers(
    network: Network,
    model: CostModel,
    kernels: Sequence[Kernel],
    problem: Problem,
    steps: Sequence[Step],
) -> tuple[PlacedLayer, ...]:
    """Returns every layer with its device and segment, in graph order.

    A kernel's time is shared out by multiply-accumulates; hand-over and launches belong to no
    layer, so the layers of a plan add up to less than its latency.
    """
    found: dict[int, PlacedLayer] = {}
    for segment, step in enumerate(steps):
        device = problem.devices[step.device]
        for v in step.kernels:
            layers = [(i, network.layers[i]) for i in kernels[v].layers]
            time = problem.times[v][step.device] or 0.0
            total = sum(layer.macs for _, layer in layers)
            for index, layer in layers:
                share = layer.macs / total if total else 1 / len(layers)
                found[index] = PlacedLayer(
                    layer.name,
                    layer.nodes,
                    device,
                    model.layer_precision(layer, device),
                    segment,
                    round(time * share, DIGITS),
                    round(time * share * model.watts(device), DIGITS),
                )
    return tuple(found[index] for index in sorted(found))


def split_by_memory(
    network: Network, model: CostModel, kernels: Sequence[Kernel], steps: Sequence[Step]
) -> tuple[Step, ...]:
    """Cuts loadables that need larger pools than a build gets, in topological order.

    Raises:
        GateError: One kernel alone is too large (code "plan.infeasible").
    """
    limits = pool_limits(model.target)
    precisions = _precisions(network, model)

    def fits(chosen: Sequence[int]) -> bool:
        names = [network.layers[i].name for v in chosen for i in kernels[v].layers]
        return _within(memory(network, names, model.target, precisions), limits)

    found: list[Step] = []
    for step in steps:
        rest = step.kernels
        while step.device and not fits(rest):
            count = _longest_prefix(rest, fits)
            if not count:
                name = network.layers[kernels[rest[0]].layers[0]].name
                raise GateError(
                    "the layer alone needs larger memory pools than a loadable can have",
                    code="plan.infeasible",
                    where=name,
                    hint=f"pin it to the GPU: {{layers: {name}, device: GPU}}",
                )
            found.append(Step(step.device, rest[:count]))
            rest = rest[count:]
        found.append(Step(step.device, rest))
    return tuple(found)


def _within(need: MemoryNeed, limits: MemoryNeed) -> bool:
    return need.local_dram <= limits.local_dram and need.global_dram <= limits.global_dram


def _longest_prefix(rest: Sequence[int], fits: Callable[[Sequence[int]], bool]) -> int:
    low, high = 0, len(rest)  # a longer prefix never needs less
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(rest[:middle]) else (low, middle - 1)
    return low


def loadables_of(
    network: Network, model: CostModel, layers: Sequence[PlacedLayer]
) -> tuple[Loadable, ...]:
    """Returns the DLA segments with their memory and border formats, in running order."""
    segments: dict[int, list[PlacedLayer]] = {}
    for layer in layers:
        if layer.device != "GPU":
            segments.setdefault(layer.segment, []).append(layer)
    found = []
    precisions = _precisions(network, model)
    for _, members in sorted(segments.items()):
        names = tuple(layer.name for layer in members)
        need = memory(network, names, model.target, precisions)
        formats = _formats(network, members)
        found.append(Loadable(int(members[0].device[3:]), names, need, formats))
    return tuple(found)


def _precisions(network: Network, model: CostModel) -> dict[str, str]:
    """Returns what each layer would run in on a DLA."""
    return {layer.name: model.layer_precision(layer, "DLA") for layer in network.layers}


def _formats(network: Network, members: Sequence[PlacedLayer]) -> dict[str, str]:
    """Returns the vector format of each tensor that a loadable reads or writes.

    32-byte vectors of channels: CHW32 in INT8, CHW16 in FP16; images of up to 4 channels that a
    convolution reads are DLA_HWC4 (cuDLA samples, TensorRT's DLA formats).
    """
    precision = {layer.name: layer.precision for layer in members}
    own = [layer for layer in network.layers if layer.name in precision]
    written = {name: layer.name for layer in own for name in layer.outputs}
    others = [layer for layer in network.layers if layer.name not in precision]
    read_outside = {name for layer in others for name in layer.inputs} | set(network.outputs)
    formats: dict[str, str] = {}
    for layer in own:
        vector = "CHW32" if precision[layer.name] == "int8" else "CHW16"
        for name in layer.inputs:
            if name not in written:
                shape = network.tensors[name].shape
                image = len(shape) == 4 and shape[1] in (1, 3, 4) and layer.kind == "CONVOLUTION"
                formats.setdefault(name, "DLA_HWC4" if image else vector)
        formats.update((name, vector) for name in layer.outputs if name in read_outside)
    return formats


def pools_of(loadables: Sequence[Loadable]) -> dict[str, int]:
    """Returns the bytes of each pool: the largest any loadable needs; empty without loadables."""
    needs = [loadable.memory.to_json() for loadable in loadables]
    return {name: max(need[name] for need in needs) for name in needs[0]} if needs else {}


def transitions_of(steps: Sequence[Step]) -> int:
    """Returns the device changes along the running order."""
    return sum(a.device != b.device for a, b in pairwise(steps))
