"""In which precision a layer runs: by its scales, or by the Q/DQ nodes around it.

Up to TensorRT 10.7 a layer of an INT8 build runs in INT8 where its tensors have scales. From
11.4.1 on the network is strongly typed: a layer between a DequantizeLinear and a QuantizeLinear
runs in INT8 and the others in FP16, whatever was asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgekit.network import Layer, Network

__all__ = ["QUANTIZATION", "by_quantization", "by_scales"]

QUANTIZATION = frozenset({"QUANTIZE", "DEQUANTIZE"})
# what the builder runs together with the layer before it, so that no tensor lies between them
_FUSED = frozenset({"ACTIVATION", "PARAMETRIC_RELU", "SCALE", "ELEMENTWISE"})


def by_scales(layer: Layer, precision: str, scales: Mapping[str, float] | None) -> str:
    """Returns the precision of a layer in a build with a calibration cache.

    Args:
        layer: The layer.
        precision: What was asked for.
        scales: INT8 scales by tensor; None where every tensor is taken to have one.
    """
    if precision != "int8" or scales is None:
        return precision
    return "int8" if all(name in scales for name in (*layer.inputs, *layer.outputs)) else "fp16"


def by_quantization(network: Network) -> dict[str, str]:
    """Returns the precision of each layer of a strongly typed network, by layer name.

    INT8 needs a DEQUANTIZE before every input and a QUANTIZE behind every reader's output. Layers
    that fuse (a convolution with the activation behind it) are one in this respect. Linear in the
    number of layers.
    """
    producers, consumers = network.producers(), network.consumers()
    fed: dict[str, bool] = {}
    for layer in network.layers:
        sources = [producers.get(name) for name in layer.inputs]
        fed[layer.name] = bool(sources) and all(
            source is not None
            and (
                source.kind == "DEQUANTIZE"
                or (
                    layer.kind in _FUSED
                    and fed[source.name]
                    and source.kind not in QUANTIZATION
                    and all(len(consumers.get(name, ())) == 1 for name in source.outputs)
                )
            )
            for source in sources
        )
    read: dict[str, bool] = {}
    outputs = set(network.outputs)
    for layer in reversed(network.layers):
        readers = [reader for name in layer.outputs for reader in consumers.get(name, ())]
        read[layer.name] = (
            bool(readers)
            and not outputs.intersection(layer.outputs)
            and all(
                reader.kind == "QUANTIZE"
                or (reader.kind in _FUSED and fed[reader.name] and read[reader.name])
                for reader in readers
            )
        )
    return {
        layer.name: "int8"
        if layer.kind in QUANTIZATION or (fed[layer.name] and read[layer.name])
        else "fp16"
        for layer in network.layers
    }
