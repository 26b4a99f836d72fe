"""Memory pools of a loadable: managed SRAM, local DRAM (tensors), global DRAM (weights)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from edgekit.dla._formats import nbytes
from edgekit.dla._rules import memory_facts
from edgekit.dla._types import MemoryNeed

if TYPE_CHECKING:
    from edgekit.network import Layer, Network
    from edgekit.targets import Target

__all__ = ["internal_bytes", "memory", "ordered", "pool_limits", "pools_for", "weight_bytes"]

# precision: (tensor format, NumPy type)
_STORAGE = {"int8": ("CHW32", "int8"), "fp16": ("CHW16", "float16")}


class _Uses:
    """Who reads what in a network, and its layers by name: made once, so a loadable costs only
    what it holds itself."""

    def __init__(self, network: Network) -> None:
        self.place = {layer.name: index for index, layer in enumerate(network.layers)}
        self.readers = network.consumers()
        self.outputs = frozenset(network.outputs)


_USES: WeakKeyDictionary[Network, _Uses] = WeakKeyDictionary()


def memory(
    network: Network, layers: Sequence[str], target: Target, precision: str = "int8"
) -> MemoryNeed:
    """Returns the smallest legal pools that hold a loadable, predicted.

    Each pool is a power of two. Local DRAM holds the tensors between the loadable's layers at the
    moment when they are most; global DRAM holds its weights. Floors, factors and extras come from
    the verbose builds named in ``dla/memory.yaml``: exact for ResNet-50.

    Args:
        network: The layer graph.
        layers: The loadable's layers.
        target: The board.
        precision: "int8" or "fp16" ("fp32" counts as "fp16": no DLA computes in FP32).
    """
    chosen = ordered(network, layers)
    precision = "int8" if precision == "int8" else "fp16"
    generation = target.dla.generation or "2.0"
    local = internal_bytes(network, chosen, precision, generation)
    weights = weight_bytes(network, chosen, precision, generation)
    return pools_for(local, weights, target, precision)


def pools_for(local: int, weights: int, target: Target, precision: str) -> MemoryNeed:
    """Returns the smallest legal pools for bytes of live tensors and of weights."""
    facts = memory_facts()
    smallest = facts["smallest"]
    width = "int8" if precision == "int8" else "fp16"
    if local:
        local = math.ceil(local * facts["local_factor"][width]) + facts["local_extra"][width]
    sram = facts["managed_sram"]["default"]
    if target.dla.sram_bytes:
        sram = min(sram, target.dla.sram_bytes)
    return MemoryNeed(
        managed_sram=_pool(sram, smallest),
        local_dram=_pool(max(local, facts["local_dram"]["floor"]), smallest),
        global_dram=_pool(max(weights, facts["global_dram"]["floor"]), smallest),
    )


def pool_limits(target: Target) -> MemoryNeed:
    """Returns the largest pools that a build gets without asking for more, in bytes.

    Managed SRAM is what the hardware has (on Xavier shared by all cores); the DRAM pools are
    TensorRT's defaults, which are also the documented limits for weights and internal tensors.
    """
    facts = memory_facts()
    return MemoryNeed(
        managed_sram=target.dla.sram_bytes,
        local_dram=facts["local_dram"]["default"],
        global_dram=facts["global_dram"]["default"],
    )


def internal_bytes(
    network: Network, layers: Sequence[Layer], precision: str, generation: str
) -> int:
    """The most bytes of tensors alive at once between ``layers`` (in graph order).

    A tensor lives from the layer that writes it to the last one that reads it; what enters or
    leaves the loadable is the caller's memory and does not count. Linear in ``layers``.
    """
    form, dtype = _STORAGE[precision]
    uses = _uses(network)
    inside = {layer.name for layer in layers}
    last = {name: index for index, layer in enumerate(layers) for name in layer.inputs}
    alive = peak = 0
    size: dict[str, int] = {}
    for index, layer in enumerate(layers):
        for name in layer.outputs:
            readers = uses.readers.get(name, ())
            leaves = name in uses.outputs or any(r.name not in inside for r in readers)
            if name in last and not leaves:
                size[name] = nbytes(network.tensors[name].shape, dtype, form, generation)
                alive += size[name]
        peak = max(peak, alive)
        for name in set(layer.inputs):
            if last[name] == index:
                alive -= size.pop(name, 0)
    return peak


def weight_bytes(network: Network, layers: Sequence[Layer], precision: str, generation: str) -> int:
    """Bytes of weights in global DRAM, with the padding of the channels.

    Convolution weights take two bytes each in either precision (the build log's pools cannot be
    explained by one); biases, scales and slopes take four on Orin (FP19) and two on Xavier.
    """
    facts = memory_facts()
    multiple = facts["channel_multiple"][precision]
    each = facts["convolution_weight_bytes"]["value"]
    other = facts["other_weight_bytes"][generation]
    total = 0
    for layer in layers:
        params = layer.params
        if layer.kind in {"CONVOLUTION", "DECONVOLUTION"} and layer.inputs:
            groups = params.get("groups", 1)
            maps = _round_up(params.get("out_maps", 1), facts["map_multiple"]["value"])
            inputs = network.tensors[layer.inputs[0]].shape[1]
            # a grouped convolution keeps only its own channels
            per_kernel = _round_up(inputs, multiple) if groups == 1 else -(-inputs // groups)
            total += maps * per_kernel * math.prod(params.get("kernel", (1,))) * each
            total += maps * other
        elif layer.weight_elements:
            total += _round_up(layer.weight_elements, multiple) * other
    return total


def _uses(network: Network) -> _Uses:
    found = _USES.get(network)
    if found is None:
        found = _USES[network] = _Uses(network)
    return found


def ordered(network: Network, layers: Sequence[str]) -> list[Layer]:
    """Returns the layers of these names in graph order; costs what they are, not the network."""
    place = _uses(network).place
    return [network.layers[index] for index in sorted({place[name] for name in layers})]


def _round_up(value: int, step: int) -> int:
    return -(-value // step) * step


def _pool(size: int, smallest: int) -> int:
    return 1 << (max(size, smallest) - 1).bit_length()
