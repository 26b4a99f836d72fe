"""Parts of a transformer that TensorRT's GPU compiler runs fused if no layer is on a DLA.

On the GPU alone the compiler (Myelin) gets a connected part of a network with attention as one
unit: products keep their matrices on the chip, softmax, normalisations and transpositions are
merged into their neighbours. With a loadable inside, layers run separately, with reformats and FP32
between them. Fully connected and pointwise layers have the same cost in both cases here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import field

from edgekit.network.model import Network
from edgekit.placement.costs.constants import layer_kinds
from edgekit.placement.costs.kernel_costs import product_us
from edgekit.placement.costs.model import CostModel
from edgekit.placement.kernels import LayerKernel, fuse, join
from edgekit_device.protocol.codec import document


@document(frozen=True)
class FusedRegion:
    """Layers (indices) that are fused if all are on the GPU, and the cost of breaking the fusion.

    ``broken_us`` is the GPU's extra time over the fused part.
    """

    layers: frozenset[int]
    broken_us: float


@document(frozen=True)
class FusedRegions:
    """All fused parts of a network.

    Attributes:
        parts: Each part with the cost of breaking it.
        saved_us: By layer, the time that the fusion saves over a kernel of its own. Only layers
            that no DLA can run have savings, so the saving is certain unless a part is broken.
    """

    parts: tuple[FusedRegion, ...] = ()
    saved_us: Mapping[int, float] = field(default_factory=dict)

    def saved(self, kernel: LayerKernel) -> float:
        """Returns the saving of a kernel on the GPU, in microseconds."""
        return self.saved_us.get(kernel.layers[0], 0.0) if self.saved_us else 0.0

    def broken_us(self, on_dla: Collection[int]) -> float:
        """Returns the cost of all parts that these layers on a DLA break, in microseconds."""
        return sum(p.broken_us for p in self.parts if any(i in p.layers for i in on_dla))


def find_regions(model: CostModel, network: Network, able: Mapping[str, bool]) -> FusedRegions:
    """Returns the parts of a network that run fused on the GPU.

    Args:
        model: Times of kernels; measured times are unchanged. Pieces that a profile timed next to a
            DLA give the cost of breaking the part.
        network: The layer graph.
        able: By layer, True if a DLA can run it; False for a layer that is not named.
    """
    rules = layer_kinds().regions
    if not any(layer.kind in rules.anchors for layer in network.layers):
        return FusedRegions()
    measured = model.measured
    consumers = network.consumers()
    saved_us: dict[int, float] = {}
    parts = []
    constants = model.constants.gpu[model.target.gpu.arch]
    known = measured.fused_parts()
    for layers in attention_parts(model, network) if known is None else known:
        price = 0.0
        for i in sorted(layers):
            layer = network.layers[i]
            # a saving is certain only for layers that no DLA can run
            if layer.kind not in rules.fused or able.get(layer.name):
                continue
            kernel = join(network, (i,), consumers)
            us = model.kernel_us(network, kernel, "GPU")
            if measured.is_fused(kernel):
                # measured in the fusion; predicted without the fusion
                alone = model.predicted_us(network, kernel, "GPU")
                price += max(0.0, constants.broken * alone - us)
            elif us and not measured.has_kernel(kernel, "GPU"):
                fused = 0.0
                if layer.macs:
                    precision = model.layer_precision(layer, "GPU")
                    fused = product_us(
                        network, layer, precision, model.target, model.mode, constants
                    )
                saved_us[i] = max(0.0, us - fused)
                if not measured.is_piece(i):
                    price += saved_us[i] + (constants.broken - 1) * us
        price += measured.breaking_us(layers, saved_us)
        if price:
            parts.append(FusedRegion(layers, price))
    return FusedRegions(tuple(parts), saved_us)


def attention_parts(model: CostModel, network: Network) -> list[frozenset[int]]:
    """Returns the connected groups of kernels that contain attention and no convolutions."""
    fusion, regions = layer_kinds().fusion, layer_kinds().regions
    fp16 = model.fp16_layers
    kernels = fuse(network, fusion.heads, fusion.tails, lambda layer: layer.name in fp16)
    group_of: dict[str, list[LayerKernel]] = {}  # by tensor
    groups: dict[int, list[LayerKernel]] = {}
    for kernel in kernels:
        layers = [network.layers[i] for i in kernel.layers]
        if not all(
            (layer.kind in regions.kinds and layer.formula)
            or (layer.kind == "CONVOLUTION" and layer.op in regions.ops)
            for layer in layers
        ):
            continue
        near = {id(g): g for n in kernel.inputs if (g := group_of.get(n)) is not None}
        # the smaller groups join the largest: each layer changes its group a few times only
        own = max(near.values(), key=len, default=[])
        for other in near.values():
            if other is not own:
                own += other
                for member in other:
                    group_of.update(dict.fromkeys((*member.inputs, *member.outputs), own))
                del groups[id(other)]
        own.append(kernel)
        groups[id(own)] = own
        group_of.update(dict.fromkeys((*kernel.inputs, *kernel.outputs), own))
    found = []
    for group in groups.values():
        members = [i for kernel in group for i in kernel.layers]
        if any(network.layers[i].kind in regions.anchors for i in members):
            found.append(frozenset(members))
    return sorted(found, key=min)
