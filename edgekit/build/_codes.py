"""Writes averages, interpolations and plain sums on INT8 codes instead of on their values.

Averages of codes fall on the middle between two codes often (two of four, three of six), where
rounding decides; averages of values, each of them code * scale rounded to FP32, miss the middle
by chance. Integer sums do not: the result is in steps of the input's scale, exact up to one
division, and where the output has the same scale (which the DLA wants of pooling) it is rounded
as it is. Assumed of the hardware: no text tells how a DLA divides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

    from edgekit.build._emit import Engine

__all__ = ["write_on_codes"]

# f(scale * codes) = scale * f(codes)
_AVERAGES = frozenset({"AveragePool", "GlobalAveragePool", "ReduceMean", "Resize", "Upsample"})
_SUMS = frozenset({"Add", "Sub", "Sum"})


def write_on_codes(engine: Engine, node: onnx.NodeProto) -> bool:
    """Writes a node of an INT8 unit on codes, if it is one of these and its inputs have them.

    Returns:
        Whether it was written.
    """
    import onnx

    if node.op_type in _AVERAGES:
        moving = list(node.input[:1])
    elif node.op_type in _SUMS:
        moving = list(node.input)
    else:
        return False
    if not all(_has_codes(engine, node, name) for name in moving):
        return False
    scale = engine.scales[moving[0]]
    if any(engine.scales[name] != scale for name in moving):
        return False
    output = node.output[0]
    target = f"{output}#mean"
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    copy.output[0] = target
    for position, name in enumerate(node.input):
        if name in moving:
            copy.input[position] = engine.codes(name, name)
        elif name:
            copy.input[position] = engine.operand(node, name, "int8")
    engine.out.nodes.append(copy)
    if engine.numerics.rounding.get(output) == "int8" and engine.scales[output] == scale:
        engine.in_steps.add(output)
    else:
        engine.out.node("Mul", [target, engine.scale(moving[0])], engine.raw(output))
    return True


def _has_codes(engine: Engine, node: onnx.NodeProto, name: str) -> bool:
    """Tells whether the unit's kernel reads a tensor as INT8 codes."""
    if engine.is_static(name) or not engine.graph.is_float32(name) or name not in engine.scales:
        return False
    if engine.written_by.get(name) is engine.unit_of[node.name]:
        return False
    inside = engine.is_inside(name, "int8")
    return engine.numerics.rounding.get(name, "none") == "int8" or not inside
