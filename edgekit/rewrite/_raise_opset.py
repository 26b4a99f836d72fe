"""The same network in opset 13, the oldest that rewrites are written for.

Node by node and not by onnx's version converter, which gives nodes that it adds no names, adds
nodes where an axis would do, and takes models with half of their constants away for damaged ones.
What changed between the opsets: ONNX's operator changelog.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from edgekit.errors import ModelError

if TYPE_CHECKING:
    import numpy as np
    import onnx

    from edgekit.network import Model

__all__ = ["raise_opset"]

_OPSET = 13


def raise_opset(model: Model, least: int = _OPSET) -> Model | None:
    """Returns the network in ai.onnx opset 13 or the newer one that it has.

    Weights, their names and the names of all nodes and tensors stay; parameters that were
    attributes become constants called "NODE:PARAMETER".

    Args:
        model: The network.
        least: Models of at least this opset are returned as they are; at most 13.

    Returns:
        None where an operator cannot be raised (a Scan of opset 8, batch normalization per
        element).
    """
    from edgekit.network import canonical

    opset = next(int(o.version) for o in model.proto.opset_import if not o.domain)
    if opset >= min(least, _OPSET):
        return model
    proto = _Raiser(model, opset).run()
    if proto is None:
        return None
    try:
        raised = canonical(proto, None, source=model.source, weights=model.weights)
    except ModelError:
        return None
    return replace(raised, folded={**raised.folded, **model.folded})


class _Raiser:
    def __init__(self, model: Model, opset: int) -> None:
        import onnx

        self.opset = opset
        self.proto = onnx.ModelProto()
        self.proto.CopyFrom(model.proto)
        graph = self.proto.graph
        self.types: dict[str, tuple[int, tuple[int, ...]]] = {}
        for value in (*graph.input, *graph.value_info, *graph.output):
            tensor = value.type.tensor_type
            self.types[value.name] = tensor.elem_type, tuple(d.dim_value for d in tensor.shape.dim)
        for item in graph.initializer:
            self.types[item.name] = item.data_type, tuple(item.dims)
        self.tensors = set(self.types)
        self.names = {node.name for node in graph.node}

    def run(self) -> onnx.ModelProto | None:
        """Returns the raised model; None when a node cannot be raised."""
        from onnx import helper

        from edgekit.network._graph import subgraphs

        graph = self.proto.graph
        made: list[onnx.NodeProto] = []
        for node in graph.node:
            for body in subgraphs(node):
                if any(_CHANGED.get(inner.op_type) or not self.fits(inner) for inner in body.node):
                    return None
            change = None if node.domain else _CHANGED.get(node.op_type)
            nodes = change(self, node) if change is not None else [node]
            if nodes is None or not all(self.fits(item) for item in nodes):
                return None
            made += nodes
        del graph.node[:]
        graph.node.extend(made)
        for item in self.proto.opset_import:
            if not item.domain:
                item.version = _OPSET
        needed = helper.find_min_ir_version_for(self.proto.opset_import, ignore_unknown=True)
        self.proto.ir_version = max(self.proto.ir_version, needed)
        return self.proto

    def fits(self, node: onnx.NodeProto) -> bool:
        """Whether opset 13 has an operator of this name with these attributes."""
        import onnx

        if node.domain:
            return True
        if not onnx.defs.has(node.op_type, max_inclusive_version=_OPSET):
            return False
        schema = onnx.defs.get_schema(node.op_type, _OPSET)
        named = all(item.name in schema.attributes for item in node.attribute)
        fit = schema.min_input <= len(node.input) <= schema.max_input
        return named and fit and not schema.deprecated

    def constant(self, node: onnx.NodeProto, role: str, value: Any, kind: Any) -> str:
        """Adds a constant and returns its name."""
        import numpy as np
        from onnx import numpy_helper

        from edgekit.network._graph import free_name

        name = free_name(f"{node.name}:{role}", self.tensors)
        self.tensors.add(name)
        array: np.ndarray = np.asarray(value, kind)
        self.proto.graph.initializer.append(numpy_helper.from_array(array, name))
        return name

    def whole(self, node: onnx.NodeProto, role: str, value: Sequence[int] | None) -> str:
        """Adds a list of whole numbers; "" for None."""
        return "" if value is None else self.constant(node, role, list(value), "int64")

    def name(self, node: onnx.NodeProto, role: str) -> str:
        """Returns a free name for a node beside ``node``."""
        from edgekit.network._graph import free_name

        name = free_name(f"{node.name}:{role}", self.names)
        self.names.add(name)
        return name


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


def _softmax(at: _Raiser, node: onnx.NodeProto) -> list[onnx.NodeProto]:
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


def _clip(at: _Raiser, node: onnx.NodeProto) -> list[onnx.NodeProto]:
    from onnx import helper

    if at.opset >= 11:
        return [node]
    kind = helper.tensor_dtype_to_np_dtype(at.types[node.input[0]][0])
    bounds = _take(node, "min", "max")
    named = ["" if v is None else at.constant(node, n, v, kind) for n, v in bounds.items()]
    return _read(node, [node.input[0], *named])


def _batch_norm(at: _Raiser, node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
    return [node] if at.opset >= 9 or _take(node, "spatial")["spatial"] in {None, 1} else None


def _pad(at: _Raiser, node: onnx.NodeProto) -> list[onnx.NodeProto]:
    from onnx import helper

    if at.opset >= 11:
        return [node]
    kind = helper.tensor_dtype_to_np_dtype(at.types[node.input[0]][0])
    given = _take(node, "pads", "value")
    fill = "" if given["value"] is None else at.constant(node, "value", given["value"], kind)
    return _read(node, [node.input[0], at.whole(node, "pads", given["pads"]), fill])


def _slice(at: _Raiser, node: onnx.NodeProto) -> list[onnx.NodeProto]:
    if at.opset >= 10:
        return [node]
    given = _take(node, "starts", "ends", "axes")
    return _read(node, [node.input[0], *(at.whole(node, n, v) for n, v in given.items())])


def _top_k(at: _Raiser, node: onnx.NodeProto) -> list[onnx.NodeProto]:
    if at.opset >= 10:
        return [node]
    return _read(node, [node.input[0], at.whole(node, "k", [_take(node, "k")["k"]])])


def _listed(attribute: str) -> Callable[[_Raiser, onnx.NodeProto], list[onnx.NodeProto]]:
    def change(at: _Raiser, node: onnx.NodeProto) -> list[onnx.NodeProto]:
        given = _take(node, attribute)[attribute]
        return _read(node, [node.input[0], at.whole(node, attribute, given)])

    return change


def _resize(at: _Raiser, node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
    from onnx import helper

    from edgekit.network._window import attributes

    if node.op_type == "Resize" and at.opset >= 11:
        return [node]
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


def _scatter(at: _Raiser, node: onnx.NodeProto) -> list[onnx.NodeProto]:
    node.op_type = "ScatterElements"
    return [node]


def _scan(at: _Raiser, node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
    return [node] if at.opset >= 9 else None


_CHANGED: Mapping[str, Callable[[_Raiser, Any], list[onnx.NodeProto] | None]] = {
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
