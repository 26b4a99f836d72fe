"""From a plain network and its scales to a strongly typed Q/DQ model: implicit to explicit INT8.

TensorRT from 11.4.1 on reads no calibration cache: INT8 is what lies between a DequantizeLinear
and a QuantizeLinear. Where the pairs stand is :func:`edgekit.dla.lowering`'s decision.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from edgekit.errors import ModelError, UsageError
from edgekit.network import QDQ
from edgekit.quantize._measure_checks import check_weights
from edgekit.quantize._to_qdq_graph import Lowered

if TYPE_CHECKING:
    from edgekit.network import Model, Network

__all__ = ["WEIGHTS", "to_qdq"]

#: How weights can be quantised: a scale for each output channel, or one for the tensor.
WEIGHTS = ("per_channel", "per_tensor")


def to_qdq(
    model: Model,
    network: Network,
    scales: Mapping[str, float],
    *,
    fp16_layers: Collection[str] = frozenset(),
    weights: str = "per_channel",
    float16: bool = True,
) -> Model:
    """Gives a plain network Q/DQ nodes, so that a strongly typed TensorRT runs it in INT8.

    Quantisation is symmetric with zero point 0 everywhere: activations with one scale, weights
    with amax / 127 of each output channel (1 for a channel of zeros) on their FP32 values, which
    stay in the file as they are. Biases stay floats. Models below opset 13 are raised to it,
    since QuantizeLinear has an axis only from there on.

    Args:
        model: The plain FP32 model.
        network: Its layers.
        scales: Symmetric INT8 scale (amax / 127, in the tensor's unit) by tensor.
        fp16_layers: Names of layers that stay in FP16.
        weights: "per_channel" or "per_tensor".
        float16: Whether layers outside of INT8 get FP16 types, with casts at their borders: a DLA
            has no FP32. The network's inputs and outputs keep their types.

    Returns:
        The Q/DQ model, of the same inputs and outputs. A network without any layer for INT8, or
        without the scales for one, comes back without Q/DQ nodes.

    Raises:
        ModelError: "qdq.present": it has Q/DQ nodes; "qdq.opset": it cannot be raised to opset 13;
            "model.nonfinite": a weight has NaN or infinite values.
        UsageError: ``weights`` is something else.
        DataError: "qdq.scale": a scale is not a positive number.
    """
    from edgekit.dla import lowering
    from edgekit.network import canonical, layers
    from edgekit.rewrite import obstacle, raise_opset

    if weights not in WEIGHTS:
        raise UsageError(
            f"weights can be quantised {' or '.join(WEIGHTS)}, not {weights!r}", code="qdq.weights"
        )
    if any(node.op_type in QDQ for node in model.proto.graph.node):
        raise ModelError(
            "the model has Q/DQ nodes already",
            code="qdq.present",
            where=model.source,
            hint="TensorRT reads it as it is from 11.4.1 on; edgekit calibrate from-qdq takes them "
            "out",
        )
    check_weights(model)
    raised = raise_opset(model)
    if raised is None:
        raise ModelError(
            f"Q/DQ nodes need opset 13, and {obstacle(model)} cannot be raised to it",
            code="qdq.opset",
            where=model.source,
            hint="export the model again in opset 13 or later",
        )
    if raised is not model:
        network = layers(raised)
    plan = lowering(network, scales, fp16_layers)
    writer = Lowered(raised, network, plan, scales, weights)
    writer.write()
    if float16:
        from edgekit.quantize._to_qdq_half import half

        half(writer.proto, writer.floats(), writer.taken)
    made = canonical(
        writer.proto, None, source=model.source,
        weights={**raised.weights, **writer.values},
    )  # fmt: skip
    return replace(made, folded={**raised.folded, **made.folded})
