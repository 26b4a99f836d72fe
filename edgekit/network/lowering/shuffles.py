"""Layers that move elements: shuffles, slices, padding, concatenation, gathering."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgekit.network.lowering import kinds
from edgekit.network.lowering.compositions import last_index

if TYPE_CHECKING:
    from edgekit.network.graph import Node
    from edgekit.network.lowering.placer import Placer


_PAD_MODES = {"constant": "FILL", "reflect": "REFLECT", "edge": "CLAMP", "wrap": "WRAP"}
# the row of such a Pad in trt/layers.yaml
_PAD_OF_ZEROS = "Pad of zeros"
_GATHER = {"Gather": "DEFAULT", "GatherElements": "ELEMENT", "GatherND": "ND"}


def reshape(placer: Placer, node: Node) -> None:
    """Reshape, Flatten -> SHUFFLE without transposition; Squeeze, Unsqueeze by release."""
    params = {"mode": "RESHAPE", "shape": placer.shape(node.outputs[0])}
    kind = kinds.kind_in_release(node.op, placer.release) or "SHUFFLE"
    placer.emit(node, kind, params, inputs=[node.inputs[0]])


def transpose(placer: Placer, node: Node) -> None:
    """Transpose -> SHUFFLE with a permutation."""
    rank = len(placer.shape(node.inputs[0]))
    perm = tuple(node.attrs.get("perm") or reversed(range(rank)))
    params = {"mode": "TRANSPOSE", "perm": perm, "shape": placer.shape(node.outputs[0])}
    placer.emit(node, "SHUFFLE", params)


def depth_to_space(placer: Placer, node: Node) -> None:
    """DepthToSpace and SpaceToDepth -> SHUFFLE of blocks."""
    given = node.attrs
    params = {
        "mode": "DEPTH_TO_SPACE" if node.op == "DepthToSpace" else "SPACE_TO_DEPTH",
        "block": given["blocksize"],
        "order": given.get("mode", "DCR"),
        "shape": placer.shape(node.outputs[0]),
    }
    placer.emit(node, "SHUFFLE", params)


def concat(placer: Placer, node: Node) -> None:
    """Concat -> CONCATENATION with the axis counted from 0."""
    rank = len(placer.shape(node.outputs[0]))
    axis = node.attrs.get("axis", 1) % rank
    read = [name for name in node.inputs if name]
    placer.emit(node, "CONCATENATION", {"axis": axis, "inputs": len(read)})


def slice_(placer: Placer, node: Node) -> None:
    """Slice -> SLICE with start, size and stride of every axis."""
    shape, target = placer.shape(node.inputs[0]), placer.shape(node.outputs[0])
    given = node.attrs
    # starts, ends and axes are attributes before opset 10
    if placer.version < 10:
        first = tuple(given["starts"])
        axes = tuple(given.get("axes") or range(len(first)))
        steps = (1,) * len(first)
    else:
        first = placer.ints(node, 1) or ()
        axes = placer.ints(node, 3) or tuple(range(len(first)))
        steps = placer.ints(node, 4) or (1,) * len(first)
    starts, strides = [0] * len(shape), [1] * len(shape)
    for start, axis, step in zip(first, axes, steps, strict=True):
        size = shape[axis]
        inside = start + size if start < 0 else start
        # ONNX clamps to the axis; a backward slice may begin at its last element
        starts[axis] = min(max(inside, 0), size if step > 0 else size - 1)
        strides[axis] = step
    _slice(placer, node, starts, target, strides, node.outputs[0])


def split(placer: Placer, node: Node) -> None:
    """Split -> a SLICE for each output, called NAME, NAME_1, …"""
    shape = placer.shape(node.inputs[0])
    axis = node.attrs.get("axis", 0) % len(shape)
    offset = 0
    for name in node.outputs:
        if not name:
            continue
        target = placer.shape(name)
        starts = [0] * len(shape)
        starts[axis] = offset
        _slice(placer, node, starts, target, [1] * len(shape), name)
        offset += target[axis]


def _slice(
    placer: Placer,
    node: Node,
    starts: list[int],
    sizes: tuple[int, ...],
    strides: list[int],
    output: str,
    **more: Any,
) -> None:
    params = {
        "starts": tuple(starts),
        "sizes": tuple(sizes),
        "strides": tuple(strides),
        "mode": "DEFAULT",
        **more,
    }
    placer.emit(node, "SLICE", params, inputs=[node.inputs[0]], outputs=[output])


def pad(placer: Placer, node: Node) -> None:
    """Pad -> SLICE that begins before the tensor, in FILL, REFLECT, CLAMP or WRAP mode.

    Newer parsers write an IDENTITY for pads that are all 0.
    """
    given = node.attrs
    shape = placer.shape(node.inputs[0])
    rank = len(shape)
    # pads and value are attributes before opset 11
    if placer.version < 11:
        pads = tuple(given["pads"])
        value = given.get("value", 0.0)
        axes = tuple(range(rank))
    else:
        pads = placer.ints(node, 1) or ()
        value = placer.scalar(node, 2) or 0.0
        axes = placer.ints(node, 3) or tuple(range(rank))
    if not any(pads) and kinds.kind_in_release(_PAD_OF_ZEROS, placer.release) == "IDENTITY":
        placer.emit(node, "IDENTITY", inputs=[node.inputs[0]])
        return
    starts = [0] * rank
    for position, axis in enumerate(axes):
        starts[axis] = -pads[position]
    mode = _PAD_MODES.get(given.get("mode", "constant"), "FILL")
    target = node.outputs[0]
    _slice(
        placer,
        node,
        starts,
        placer.shape(target),
        [1] * rank,
        target,
        mode=mode,
        value=float(value),
    )


def expand(placer: Placer, node: Node) -> None:
    """Expand and Tile -> SLICE: with stride 0 if an axis repeats a single element, or wrapping."""
    source, target = placer.shape(node.inputs[0]), placer.shape(node.outputs[0])
    source = (1,) * (len(target) - len(source)) + source
    wraps = node.op == "Tile"
    strides = [
        0 if s == 1 and t != 1 and not wraps else 1 for s, t in zip(source, target, strict=True)
    ]
    mode = "WRAP" if wraps else "DEFAULT"
    _slice(placer, node, [0] * len(target), target, strides, node.outputs[0], mode=mode)


def constant_of_shape(placer: Placer, node: Node) -> None:
    """ConstantOfShape of a computed shape -> SLICE that repeats a value."""
    target = node.outputs[0]
    sizes = placer.shape(target)
    params = {"starts": (0,) * len(sizes), "sizes": sizes, "strides": (0,) * len(sizes)}
    placer.emit(node, "SLICE", {**params, "mode": "DEFAULT"})


def gather(placer: Placer, node: Node) -> None:
    """Gather, GatherElements, GatherND -> GATHER."""
    rank = len(placer.shape(node.inputs[0]))
    axis = node.attrs.get("axis", 0) % max(rank, 1)
    placer.emit(node, "GATHER", {"axis": axis, "mode": _GATHER[node.op]})


def topk(placer: Placer, node: Node) -> None:
    """TopK, ArgMax, ArgMin -> TOPK."""
    given = node.attrs
    rank = len(placer.shape(node.inputs[0]))
    if node.op == "TopK":
        axis = given.get("axis", -1) % rank
        count = placer.shape(next(name for name in node.outputs if name))[axis]
        largest = bool(given.get("largest", 1))
    else:
        axis = given.get("axis", 0) % rank
        count = 1
        largest = node.op == "ArgMax"
    params = {"axis": axis, "k": count, "function": "MAX" if largest else "MIN"}
    if given.get("select_last_index", 0):
        last_index(placer, node, params)
        return
    placer.emit(node, "TOPK", params, inputs=[node.inputs[0]])


def quantization(placer: Placer, node: Node) -> None:
    """QuantizeLinear and DequantizeLinear -> QUANTIZE and DEQUANTIZE."""
    kind = "QUANTIZE" if node.op == "QuantizeLinear" else "DEQUANTIZE"
    rank = max(len(placer.shape(node.inputs[0])), 1)
    per_axis = len(placer.shape(node.inputs[1])) > 0 and placer.shape(node.inputs[1]) != (1,)
    axis = node.attrs.get("axis", 1) % rank if per_axis else None
    placer.emit(node, kind, {"axis": axis, "scale": node.inputs[1]})
