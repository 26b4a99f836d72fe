"""Memory pools of a loadable: managed SRAM, local DRAM (tensors), global DRAM (weights)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakKeyDictionary

from edgekit.dla._formats import nbytes
from edgekit.dla._rules import memory_facts
from edgekit.dla._types import MemoryNeed

if TYPE_CHECKING:
    from edgekit.network import Layer, Network
    from edgekit.targets import Target

__all__ = ["Sizes", "internal_bytes", "memory", "pool_limits", "sizes_of", "weight_bytes"]

# precision: (NumPy type, tensor format)
_STORAGE = {"int8": ("int8", "CHW32"), "fp16": ("float16", "CHW16")}


class Sizes(NamedTuple):
    """What a loadable takes in bytes: its pools, and the tensors and weights that they hold."""

    need: MemoryNeed
    tensors: int
    weights: int
    # by the size that their types have, and without what is at the border; builds were seen to
    # take more
    documented_weights: int
    documented_need: MemoryNeed


class _Uses:
    """Who reads what in a network, and its layers by name: made once, so a loadable costs only
    what it holds itself."""

    def __init__(self, network: Network) -> None:
        self.place = {layer.name: index for index, layer in enumerate(network.layers)}
        self.readers = network.consumers()
        self.outputs = frozenset(network.outputs)


_USES: WeakKeyDictionary[Network, _Uses] = WeakKeyDictionary()


def memory(
    network: Network,
    layers: Sequence[str],
    target: Target,
    precision: str | Mapping[str, str] = "int8",
) -> MemoryNeed:
    """Returns the smallest legal pools that hold a loadable, predicted.

    Each pool is a power of two. Local DRAM holds the tensors between the loadable's layers at the
    moment when they are most, and those at its border; global DRAM holds its weights. Floors,
    factors and extras come from the verbose builds named in ``dla/memory.yaml``: exact for these
    (ResNet-50 and DETR).

    Args:
        network: The layer graph.
        layers: The names of the loadable's layers.
        target: The board.
        precision: "int8" or "fp16", of all layers or by layer name ("fp32", or no word on a
            layer, counts as "fp16": no DLA computes in FP32).
    """
    return sizes_of(network, layers, target, precision).need


def sizes_of(
    network: Network, layers: Sequence[str], target: Target, precision: str | Mapping[str, str]
) -> Sizes:
    """Returns pools, tensors and weights of a loadable; arguments as for :func:`memory`."""
    chosen = _ordered(network, layers)
    generation = target.dla.generation or "2.0"
    facts = memory_facts()
    smallest = facts["smallest"]
    tensors, inside, local = _local(network, chosen, precision, generation)
    weights = weight_bytes(network, chosen, precision, generation)
    documented = weight_bytes(network, chosen, precision, generation, documented=True)
    sram = facts["managed_sram"]["default"]
    if target.dla.sram_bytes:
        sram = min(sram, target.dla.sram_bytes)
    predicted, least = (
        MemoryNeed(
            managed_sram=_pool(sram, smallest),
            local_dram=_pool(max(held, facts["local_dram"]["floor"]), smallest),
            global_dram=_pool(max(size, facts["global_dram"]["floor"]), smallest),
        )
        for held, size in ((local, weights), (inside, documented))
    )
    return Sizes(predicted, tensors, weights, documented, least)


def _local(
    network: Network,
    chosen: Sequence[Layer],
    precision: str | Mapping[str, str],
    generation: str,
) -> tuple[int, int, int]:
    """Returns bytes: of the tensors inside, of local DRAM for these, of local DRAM for all."""
    facts = memory_facts()
    extra, borders = facts["local_extra"], facts["local_borders"]
    live = _live(network, chosen, precision, generation)
    inside = max(math.ceil(_scaled(by_width)) for by_width in live)
    tensors = max(sum(by_width) for by_width in live)
    if inside:
        # what a precision takes beside the tensors it takes once, however few layers have it
        most = max(extra[_width(layer.name, precision)] for layer in chosen)
        inside += min(most, math.ceil(extra["of_tensors"] * tensors))
    border = _border_bytes(network, chosen, precision, generation)
    rows = sum(_rows(network, layer) for layer in chosen)
    whole = border + max(tensors, math.ceil((borders["factor"] - 1) * border))
    return tensors, inside, max(inside, whole) + rows * facts["local_rows"]["value"]


def _border_bytes(
    network: Network,
    chosen: Sequence[Layer],
    precision: str | Mapping[str, str],
    generation: str,
) -> int:
    """Returns the bytes of the tensors that enter and leave a loadable."""
    uses = _uses(network)
    inside = {layer.name for layer in chosen}
    written = {name for layer in chosen for name in layer.outputs}
    found: dict[str, int] = {}
    for layer in chosen:
        entering = (name for name in layer.inputs if name not in written)
        leaving = (
            name
            for name in layer.outputs
            if name in uses.outputs
            or any(reader.name not in inside for reader in uses.readers.get(name, ()))
        )
        width = _width(layer.name, precision)
        for name in (*entering, *leaving):
            size = nbytes(network.tensors[name].shape, *_STORAGE[width], generation)
            found[name] = max(size, found.get(name, 0))
    return sum(found.values())


def _rows(network: Network, layer: Layer) -> int:
    """Returns the rows of a matrix product of several, which the DLA runs one by one."""
    rows = network.tensors[layer.outputs[0]].shape[0] if layer.params.get("gemm") else 0
    return rows if rows > 1 else 0


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
    network: Network,
    layers: Sequence[Layer],
    precision: str | Mapping[str, str],
    generation: str,
) -> int:
    """The most bytes of tensors alive at once between ``layers`` (in graph order).

    A tensor lives from the layer that writes it to the last one that reads it; what enters or
    leaves the loadable is the caller's memory and does not count. Between layers of two
    precisions it counts in the format that takes more. Linear in ``layers``.

    Args:
        network: The layer graph.
        layers: The loadable's layers.
        precision: As for :func:`memory`.
        generation: DLA generation, "1.0" (Xavier) or "2.0" (Orin).
    """
    return max(sum(by_width) for by_width in _live(network, layers, precision, generation))


def _live(
    network: Network,
    layers: Sequence[Layer],
    precision: str | Mapping[str, str],
    generation: str,
) -> list[tuple[int, ...]]:
    """Returns the bytes alive while each layer runs, by the widths of ``_STORAGE``."""
    uses = _uses(network)
    inside = {layer.name for layer in layers}
    last = {name: index for index, layer in enumerate(layers) for name in layer.inputs}
    alive = dict.fromkeys(_STORAGE, 0)
    held: dict[str, tuple[str, int]] = {}
    found = [tuple(alive.values())]
    for index, layer in enumerate(layers):
        for name in layer.outputs:
            readers = uses.readers.get(name, ())
            leaves = name in uses.outputs or any(r.name not in inside for r in readers)
            if name in last and not leaves:
                shape = network.tensors[name].shape
                widths = dict.fromkeys(_width(la.name, precision) for la in (layer, *readers))
                sizes = {w: nbytes(shape, *_STORAGE[w], generation) for w in widths}
                held[name] = max(sizes.items(), key=lambda item: item[1])
                alive[held[name][0]] += held[name][1]
        found.append(tuple(alive.values()))
        for name in set(layer.inputs):
            if last[name] == index and name in held:
                width, size = held.pop(name)
                alive[width] -= size
    return found


def _scaled(by_width: Sequence[int]) -> float:
    factor = memory_facts()["local_factor"]
    return float(sum(factor[w] * size for w, size in zip(_STORAGE, by_width, strict=True)))


def _width(layer: str, precision: str | Mapping[str, str]) -> str:
    own = precision if isinstance(precision, str) else precision.get(layer)
    return "int8" if own == "int8" else "fp16"


def weight_bytes(
    network: Network,
    layers: Sequence[Layer],
    precision: str | Mapping[str, str],
    generation: str,
    *,
    documented: bool = False,
) -> int:
    """Bytes of weights in global DRAM, with the padding of the channels.

    Convolution weights take two bytes each in either precision (the build log's pools cannot be
    explained by one); biases, scales and slopes take four on Orin (FP19) and two on Xavier.
    With ``documented`` they take what their type does: one byte in INT8. Other arguments as for
    :func:`internal_bytes`.
    """
    facts = memory_facts()
    sizes = facts["convolution_weight_bytes"]
    other = facts["other_weight_bytes"][generation]
    total = 0
    for layer in layers:
        params = layer.params
        width = _width(layer.name, precision)
        multiple = facts["channel_multiple"][width]
        each = sizes["documented"][width] if documented else sizes["value"]
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


def _ordered(network: Network, layers: Sequence[str]) -> list[Layer]:
    """Returns the layers of these names in graph order; costs what they are, not the network."""
    place = _uses(network).place
    return [network.layers[index] for index in sorted({place[name] for name in layers})]


def _round_up(value: int, step: int) -> int:
    return -(-value // step) * step


def _pool(size: int, smallest: int) -> int:
    return 1 << (max(size, smallest) - 1).bit_length()
