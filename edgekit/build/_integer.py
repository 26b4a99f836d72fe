"""Writes convolutions and matrix products on INT8 codes.

INT8 products are summed as integer-valued floats: with codes of the input and of the weights
every product is an integer, so the float32 sum is the INT32 accumulator bit for bit while partial
sums stay within 2**24, in whatever order the kernel adds. Layers whose shape allows larger sums
are written in another form (``_sums``). Then come, each rounded to FP32: the sum, times scale of
the input * scale of the channel's weights, plus the bias. The bias is FP32 as in TensorRT's
kernels on the GPU ("Bias": {"Type": "Float"} of INT8 convolutions in engine information,
NVIDIA/TensorRT#3737). Assumed for the DLA: its open relative NVDLA holds a bias in steps of the
sum, INT16 with a common shift (nvdla/sw, BiasOp.cpp).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.build._levels import EXACT_PRODUCTS
from edgekit.build._sums import products, write_sum

if TYPE_CHECKING:
    import numpy as np
    import onnx

    from edgekit.build._emit import Engine

__all__ = ["write_integer"]

_FLOAT = 1
# no sum of codes is beyond: a Clip there changes nothing, and keeps ONNX Runtime from folding the
# scale into the integer weights, which would make the sums inexact, and from joining scale and
# bias into a multiplication and addition that round once
_ACCUMULATOR = 2.0**31


def write_integer(engine: Engine, node: onnx.NodeProto, weight: str, axis: int) -> None:
    """Writes a convolution, Gemm or MatMul on INT8 codes; scale and bias follow in FP32."""
    codes = engine.out.weight(engine.store.get(weight, f"int8:{axis}"))
    target = engine.raw(node.output[0])
    if products(engine.graph, node, axis) > EXACT_PRODUCTS:
        alpha, beta = _factors(node)
        total = write_sum(engine, node, codes, target)
    else:
        alpha, beta = _write_floats(engine, node, codes, target)
        total = f"{target}#sum"
    total = engine.out.clip(total, f"{target}#acc", -_ACCUMULATOR, _ACCUMULATOR)
    spread = _spread(engine, node)
    factor = _factor(engine, node, weight, axis, alpha, target, spread)
    bias = node.input[2] if len(node.input) > 2 else ""
    scaled = engine.out.node("Mul", [total, factor], f"{target}#scaled" if bias else target)
    if bias:
        engine.out.node("Add", [scaled, _bias(engine, bias, beta, target, spread)], target)


def _write_floats(
    engine: Engine, node: onnx.NodeProto, codes: str, target: str
) -> tuple[float, float]:
    """Writes the node itself on codes as floats, and returns its alpha and beta."""
    import onnx

    data = node.input[0]
    source = engine.codes(data, data)
    # a weight read along two axes has two stubs, so casts are named after the stub
    as_float = engine.out.cast(codes, f"{codes}#float", _FLOAT)
    core = onnx.NodeProto()
    core.CopyFrom(node)
    del core.input[:]
    core.input.extend([source, as_float])
    core.output[0] = f"{target}#sum"
    alpha, beta = 1.0, 1.0
    if node.op_type == "Gemm":
        alpha, beta = _factors(node)
        kept = [a for a in core.attribute if a.name not in ("alpha", "beta")]
        del core.attribute[:]
        core.attribute.extend(kept)
        if engine.out.opset < 11:
            core.input.append(engine.out.constant("#none", _zero()))
    engine.out.nodes.append(core)
    return alpha, beta


def _spread(engine: Engine, node: onnx.NodeProto) -> list[int]:
    """Returns the shape that lays one value per output channel over the node's output."""
    if node.op_type in ("Gemm", "MatMul"):
        return []
    spatial = engine.graph.initializers[node.input[1]].dims[2:]
    return [1, -1, *[1] * len(spatial)]


def _factor(
    engine: Engine,
    node: onnx.NodeProto,
    weight: str,
    axis: int,
    alpha: float,
    target: str,
    spread: list[int],
) -> str:
    """Writes scale of the input times scales of the weights, one value per output channel."""
    import numpy as np

    scales = engine.out.weight(engine.store.get(weight, f"int8-scale:{axis}"))
    groups = next((a.i for a in node.attribute if a.name == "group"), 1)
    if node.op_type == "ConvTranspose" and groups > 1:
        # its channel axis is within a group: all groups share the scales
        scales = engine.out.node("Concat", [scales] * groups, f"{target}#groups", axis=0)
    value = np.float32(engine.scales[node.input[0]]) * np.float32(alpha)
    common = engine.out.constant(f"{target}#common", np.array(value, np.float32))
    factor = engine.out.node("Mul", [scales, common], f"{target}#factor")
    return engine.out.reshape(factor, f"{target}#spread", spread) if spread else factor


def _bias(engine: Engine, name: str, beta: float, target: str, spread: list[int]) -> str:
    import numpy as np

    source = engine.static(name) if engine.is_static(name) else engine.view(name, "int8")
    if beta != 1.0:
        common = engine.out.constant(f"{target}#beta", np.array(beta, np.float32))
        source = engine.out.node("Mul", [source, common], f"{target}#scaledbias")
    return engine.out.reshape(source, f"{target}#bias", spread) if spread else source


def _factors(node: onnx.NodeProto) -> tuple[float, float]:
    """Returns alpha and beta of a Gemm, (1, 1) of others."""
    found = {a.name: a.f for a in node.attribute if a.name in ("alpha", "beta")}
    return found.get("alpha", 1.0), found.get("beta", 1.0)


def _zero() -> np.ndarray:
    import numpy as np

    return np.zeros(1, np.float32)
