"""Writes convolutions and matrix products on INT8 codes.

INT8 products are summed as integer-valued floats: with codes of the input and of the weights
every product is an integer, so the float32 sum is the INT32 accumulator bit for bit while partial
sums stay below 2**24, in whatever order the kernel adds. The engine does not depend on weight
values (a refit needs no build), so sums are not split by their worst case: ``build_reference``
counts the layers that could leave that range and says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import onnx

    from edgekit.build._emit import Engine

__all__ = ["write_integer"]

_FLOAT = 1
# far beyond any sum of codes: a Clip there changes nothing, and keeps ONNX Runtime from folding
# the scale into the integer weights, which would make the sums inexact
_ACCUMULATOR = 2.0**31


def write_integer(engine: Engine, node: onnx.NodeProto, weight: str, axis: int) -> None:
    """Writes a convolution, Gemm or MatMul on INT8 codes; scale and bias follow in FP32."""
    import onnx

    data = node.input[0]
    source = engine.codes(data, data, engine.op_of.get(data, ""))
    codes = engine.out.weight(engine.store.get(weight, f"int8:{axis}"))
    # a weight read along two axes has two stubs, so casts are named after the stub
    as_float = engine.out.cast(codes, f"{codes}#float", _FLOAT)
    target = engine.raw(node.output[0])
    core = onnx.NodeProto()
    core.CopyFrom(node)
    del core.input[:]
    core.input.extend([source, as_float])
    core.output[0] = f"{target}#sum"
    alpha, beta = 1.0, 1.0
    if node.op_type == "Gemm":
        alpha, beta = _take_factors(core)
        if engine.out.opset < 11:
            core.input.append(engine.out.constant("#none", _zero()))
    engine.out.nodes.append(core)
    total = engine.out.clip(f"{target}#sum", f"{target}#acc", -_ACCUMULATOR, _ACCUMULATOR)
    spread = _spread(engine, node)
    factor = _factor(engine, node, weight, axis, alpha, target, spread)
    bias = node.input[2] if len(node.input) > 2 else ""
    scaled = engine.out.node("Mul", [total, factor], f"{target}#scaled" if bias else target)
    if bias:
        engine.out.node("Add", [scaled, _bias(engine, bias, beta, target, spread)], target)


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


def _take_factors(gemm: onnx.NodeProto) -> tuple[float, float]:
    """Takes alpha and beta out of a Gemm."""
    found = {a.name: a.f for a in gemm.attribute if a.name in ("alpha", "beta")}
    kept = [a for a in gemm.attribute if a.name not in found]
    del gemm.attribute[:]
    gemm.attribute.extend(kept)
    return found.get("alpha", 1.0), found.get("beta", 1.0)


def _zero() -> np.ndarray:
    import numpy as np

    return np.zeros(1, np.float32)
