"""Each operator that changed between old opsets and 13, in its form of 13."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import onnx

    from edgekit.rewrite._raise_opset import Raiser

__all__ = ["CHANGED"]


def _take(node: onnx.NodeProto, *names: str) -> dict[str, Any]:
    """Takes attributes out of a node and returns their values; None for those that it lacks."""
    from edgekit.network._window import attributes

    found = attributes(node)
    kept = [item for item in node.attribute if item.name not in names]
    del node.attribute[:]
    node.attribute.extend(kept)
    return {name: found.get(name) for name in names}


def _read(node: onnx.NodeProto, inputs: Sequence[str]) -> list[onnx.NodeProto]:
    inputs = list(inputs)
    while inputs and not inputs[-1]:
        inputs.pop()
    del node.input[:]
    node.input.extend(inputs)
    return [node]


def _softmax(at: Raiser, node: onnx.NodeProto) -> list[onnx.NodeProto]:
    # all axes from this one on were one: often all but one of them have size 1
    from onnx import helper

    shape = at.types[node.input[0]][1]
    given = _take(node, "axis")["axis"]
    first = (1 if given is None else given) % max(len(shape), 1)
    wide = [axis for axis in range(first, len(shape)) if shape[axis] > 1]
    if len(wide) <= 1 or first >= len(shape):
        axis = wide[0] if wide else min(first, len(shape) - 1)
        node.attribute.append(helper.make_attribute("axis", axis))
        return [node]
    before, after = (at.name(node, role) for role in ("flatten", "reshape"))
    source, target = node.input[0], node.output[0]
    at.tensors |= {before, after}
    node.input[0], node.output[0] = before, after
    node.attribute.append(helper.make_attribute("axis", 1))
    size = at.whole(node, "shape", shape)
    return [
        helper.make_node("Flatten", [source], [before], before, axis=first),
        node,
        helper.make_node("Reshape", [after, size], [target], after),
    ]


def _clip(at: Raiser, node: onnx.NodeProto) -> list[onnx.NodeProto]:
    from onnx import helper

    if at.opset >= 11:
        return [node]
    kind = helper.tensor_dtype_to_np_dtype(at.types[node.input[0]][0])
    bounds = _take(node, "min", "max")
    named = ["" if v is None else at.constant(node, n, v, kind) for n, v in bounds.items()]
    return _read(node, [node.input[0], *named])


def _batch_norm(at: Raiser, node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
    return [node] if at.opset >= 9 or _take(node, "spatial")["spatial"] in {None, 1} else None


def _pad(at: Raiser, node: onnx.NodeProto) -> list[onnx.NodeProto]:
    from onnx import helper

    if at.opset >= 11:
        return [node]
    kind = helper.tensor_dtype_to_np_dtype(at.types[node.input[0]][0])
    given = _take(node, "pads", "value")
    fill = "" if given["value"] is None else at.constant(node, "value", given["value"], kind)
    return _read(node, [node.input[0], at.whole(node, "pads", given["pads"]), fill])


def _slice(at: Raiser, node: onnx.NodeProto) -> list[onnx.NodeProto]:
    if at.opset >= 10:
        return [node]
    given = _take(node, "starts", "ends", "axes")
    return _read(node, [node.input[0], *(at.whole(node, n, v) for n, v in given.items())])


def _top_k(at: Raiser, node: onnx.NodeProto) -> list[onnx.NodeProto]:
    if at.opset >= 10:
        return [node]
    return _read(node, [node.input[0], at.whole(node, "k", [_take(node, "k")["k"]])])


def _listed(attribute: str) -> Callable[[Raiser, onnx.NodeProto], list[onnx.NodeProto]]:
    def change(at: Raiser, node: onnx.NodeProto) -> list[onnx.NodeProto]:
        given = _take(node, attribute)[attribute]
        return _read(node, [node.input[0], at.whole(node, attribute, given)])

    return change


def _resize(at: Raiser, node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
    from onnx import helper

    from edgekit.network._window import attributes

    if node.op_type == "Resize" and at.opset >= 11:
        return [node] if _half_pixels(node) else None
    given = _take(node, "scales")["scales"]
    scales = at.constant(node, "scales", given, "float32") if given else node.input[1]
    word = "floor"
    if attributes(node).get("mode", "nearest") == "nearest":
        sizes = (at.types[name][1] for name in (node.input[0], node.output[0]))
        steps = {(b > a) - (b < a) for a, b in zip(*sizes, strict=True)}
        if {1, -1} <= steps:
            return None
        # onnx's own example of opset 10 and ONNX Runtime take the next element when shrinking
        word = "ceil" if -1 in steps else "floor"
    node.op_type = "Resize"
    fixed = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": word}
    node.attribute.extend(helper.make_attribute(name, word) for name, word in fixed.items())
    return _read(node, [node.input[0], "", scales])


# floor(x + 0.5) and ceil(x - 0.5 + 0.5) by their names; the other two have none
_WITHOUT_HALF = {"floor": "round_prefer_ceil", "round_prefer_floor": "ceil"}


def _half_pixels(node: onnx.NodeProto) -> bool:
    """Puts what opset 13 has in the place of tf_half_pixel_for_nn; False where it has nothing.

    That mode, of opset 11 alone, reads at (x + 0.5) / scale, and half_pixel 0.5 before it (ONNX's
    operator changelog, Resize).
    """
    from onnx import helper

    from edgekit.network._window import attributes

    given = attributes(node)
    if given.get("coordinate_transformation_mode") != "tf_half_pixel_for_nn":
        return True
    word = _WITHOUT_HALF.get(given.get("nearest_mode", "round_prefer_floor"))
    if word is None or given.get("mode", "nearest") != "nearest":
        return False
    _take(node, "coordinate_transformation_mode", "nearest_mode")
    modes = {"coordinate_transformation_mode": "half_pixel", "nearest_mode": word}
    node.attribute.extend(helper.make_attribute(key, value) for key, value in modes.items())
    return True


def _scatter(at: Raiser, node: onnx.NodeProto) -> list[onnx.NodeProto]:
    node.op_type = "ScatterElements"
    return [node]


def _scan(at: Raiser, node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
    return [node] if at.opset >= 9 else None


#: What raises a node, by operator: the nodes that stand for it, None where there are none.
CHANGED: Mapping[str, Callable[[Raiser, Any], list[onnx.NodeProto] | None]] = {
    "BatchNormalization": _batch_norm,
    "Clip": _clip,
    "Hardmax": _softmax,
    "LogSoftmax": _softmax,
    "Pad": _pad,
    "ReduceSum": _listed("axes"),
    "Resize": _resize,
    "Scan": _scan,
    "Scatter": _scatter,
    "Slice": _slice,
    "Softmax": _softmax,
    "Split": _listed("split"),
    "Squeeze": _listed("axes"),
    "TopK": _top_k,
    "Unsqueeze": _listed("axes"),
    "Upsample": _resize,
}
