"""Raises models of opsets 1 to 6 to 7, the oldest opset of TensorRT's parser and ONNX Runtime:
from opset 7 on operators broadcast as NumPy does, without an attribute.

The onnx package's converter is not used: it lacks Pad, comparisons and logic, and trusts the shapes
that a file declares.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NoReturn

import numpy as np
import onnx
from onnx import defs, helper, numpy_helper

from edgekit.errors import ModelError
from edgekit.network.protos import free_name, reads, subgraphs

#: The opset to which older models are raised.
RAISED = 7
# operators that broadcast the second input from the dimension `axis` of the first on
_BROADCASTS = frozenset(
    {
        "Add",
        "And",
        "Div",
        "Equal",
        "Greater",
        "Less",
        "Mul",
        "Or",
        "Pow",
        "Sub",
        "Xor",
    }
)
# attributes that opset 7 no longer has and that do not affect inference
_DROPPED = {
    "BatchNormalization": ("is_test",),
    "Dropout": ("is_test",),
    "GRU": ("output_sequence",),
    "Gemm": ("broadcast",),
    "LSTM": ("output_sequence",),
    "RNN": ("output_sequence",),
}
# inputs whose buffers a framework may overwrite; every operator of opset 1 may have it
_BUFFERS = "consumed_inputs"
_OLD_ATTRIBUTES = frozenset({_BUFFERS, "broadcast", "is_test", "output_sequence"})
_AGAIN = "export it again with opset 9 or later"


def raise_opset(proto: onnx.ModelProto, version: int) -> onnx.ModelProto:
    """Returns a copy of a model of an opset before 7 in the form of opset 7.

    Args:
        proto: The model, which is not changed.
        version: Its ai.onnx opset.

    Raises:
        ModelError: ``model.opset``: a node has no form in opset 7.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    _Raising(copy, proto, version).run()
    for item in copy.opset_import:
        if item.domain in {"", "ai.onnx"}:
            item.version = RAISED
    return copy


class _Raising:
    """Rewrites the nodes of a graph in place."""

    def __init__(self, proto: onnx.ModelProto, file: onnx.ModelProto, version: int) -> None:
        self._file = file
        self._graph = proto.graph
        self._version = version
        self._found: dict[str, int] | None = None
        self._constants = {tensor.name: tensor for tensor in proto.graph.initializer}
        self._taken = {name for node in proto.graph.node for name in (*node.input, *node.output)}
        self._taken |= self._constants.keys() | {value.name for value in proto.graph.input}
        self._readers: dict[str, int] = {}
        for node in proto.graph.node:
            for name in reads(node):
                self._readers[name] = self._readers.get(name, 0) + 1

    def run(self) -> None:
        nodes = [part for node in self._graph.node for part in self._node(node)]
        del self._graph.node[:]
        self._graph.node.extend(nodes)

    def _node(self, node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
        for body in subgraphs(node):
            for inner in body.node:
                if self._is_old(inner):
                    self._refuse(inner, "it is in the body of another node")
        if node.domain not in {"", "ai.onnx"}:
            yield node
            return
        _pop(node, _BUFFERS)
        if node.op_type in _BROADCASTS:
            yield from self._broadcast(node)
        elif node.op_type == "PRelu":
            yield from self._reshape_slopes(node)
        elif node.op_type in _DROPPED:
            for name in _DROPPED[node.op_type]:
                value = _pop(node, name)
                trains = node.op_type == "BatchNormalization" or len(node.output) > 1
                if name == "is_test" and value == 0 and trains:
                    self._refuse(node, "it is in training mode")
        elif node.op_type in _FORMS and self._has_changed(node):
            _FORMS[node.op_type](self, node)
        elif node.op_type == "Tile" and self._has_changed(node):
            self._refuse(node, "it repeats along one axis")
        yield node

    def _is_old(self, node: onnx.NodeProto) -> bool:
        """Returns True if a node has another meaning, or none, in opset 7."""
        if any(item.name in _OLD_ATTRIBUTES for item in node.attribute):
            return True
        return node.op_type in {*_FORMS, "PRelu", "Tile"} and self._has_changed(node)

    def _has_changed(self, node: onnx.NodeProto) -> bool:
        """Returns True if opset 7 has another form of a node's operator."""
        try:
            own = defs.get_schema(node.op_type, self._version)
            new = defs.get_schema(node.op_type, RAISED)
        except defs.SchemaError:
            return False
        return bool(own.since_version != new.since_version)

    def _refuse(self, node: onnx.NodeProto, why: str) -> NoReturn:
        name = node.name or next(iter(node.output), "")
        raise ModelError(
            f"node {name!r} ({node.op_type}) of ai.onnx opset {self._version} has no form in opset "
            f"{RAISED}, the oldest that TensorRT reads: {why}",
            code="model.opset",
            where=name,
            hint=_AGAIN,
        )

    def _broadcast(self, node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
        """Appends dimensions of size 1 to the second input, so that it broadcasts as in NumPy."""
        axis = _pop(node, "axis")
        # without an axis old broadcasting aligns the last dimensions, as NumPy does
        if not _pop(node, "broadcast") or axis is None:
            return
        first, second = self._rank(node.input[0]), self._rank(node.input[1])
        if first is None or second is None:
            unknown = node.input[0] if first is None else node.input[1]
            self._refuse(
                node, f"it broadcasts along axis {axis}, and the shape of {unknown!r} is unknown"
            )
        start = int(axis) + first if int(axis) < 0 else int(axis)
        behind = first - start - second
        if second == 0 or behind == 0:
            return
        if start < 0 or behind < 0:
            self._refuse(node, f"it broadcasts {second} dimensions from axis {axis} of {first} on")
        yield from self._extend(node, second, behind)

    def _reshape_slopes(self, node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
        """Reshapes the slopes of PRelu, of which there was one for each channel."""
        first, second = self._rank(node.input[0]), self._rank(node.input[1])
        slopes = self._constants.get(node.input[1])
        if second != 1 or (slopes is not None and list(slopes.dims) == [1]):
            return
        if first is None:
            self._refuse(
                node, f"it has slopes per channel, and the shape of {node.input[0]!r} is unknown"
            )
        if first > 2:
            yield from self._extend(node, 1, first - 2)

    def _extend(self, node: onnx.NodeProto, rank: int, behind: int) -> Iterator[onnx.NodeProto]:
        name = node.input[1]
        tensor = self._constants.get(name)
        target = free_name(f"{name}:{rank + behind}d", self._taken)
        self._taken.add(target)
        if tensor is not None:
            # other readers and the graph's output need the old shape
            if self._readers[name] > 1 or any(o.name == name for o in self._graph.output):
                own = self._graph.initializer.add()
                own.CopyFrom(tensor)
                own.name = target
                tensor, node.input[1] = own, target
                self._constants[target] = own
            # sizes of 1 do not change the data, so the initializer itself is reshaped
            tensor.dims.extend([1] * behind)
            return
        node.input[1] = target
        axes = list(range(rank, rank + behind))
        yield helper.make_node("Unsqueeze", [name], [target], name=target, axes=axes)

    def _rank(self, name: str) -> int | None:
        if name in self._constants:
            return len(self._constants[name].dims)
        # inferred once, and only if an initializer does not already give the rank
        if self._found is None:
            self._found = _ranks(self._file)
        return self._found.get(name)

    # operators with another form

    def _cast(self, node: onnx.NodeProto) -> None:
        to = _pop(node, "to")
        text = to.decode() if isinstance(to, bytes) else str(to)
        try:
            kind = onnx.TensorProto.DataType.Value(text.upper())
        except ValueError:
            self._refuse(node, f"it casts to {text!r}")
        node.attribute.append(helper.make_attribute("to", kind))

    def _concat(self, node: onnx.NodeProto) -> None:
        if all(item.name != "axis" for item in node.attribute):
            node.attribute.append(helper.make_attribute("axis", 1))

    def _norm(self, node: onnx.NodeProto) -> None:
        # opset 1 has a float, opset 2 an integer
        power = _pop(node, "p")
        if power is not None:
            node.attribute.append(helper.make_attribute("p", int(float(power))))

    def _pad(self, node: onnx.NodeProto) -> None:
        for item in node.attribute:
            if item.name == "paddings":
                item.name = "pads"

    def _reshape(self, node: onnx.NodeProto) -> None:
        shape = _pop(node, "shape")
        if shape is None:
            self._refuse(node, "the attribute shape is left out")
        name = free_name(f"{node.output[0]}:shape", self._taken)
        self._taken.add(name)
        value = np.array(shape, np.int64)
        self._graph.initializer.append(numpy_helper.from_array(value, name))
        node.input.append(name)

    def _split(self, node: onnx.NodeProto) -> None:
        if len(node.input) < 2:
            return
        sizes = self._constants.get(node.input[1])
        if sizes is None:
            self._refuse(node, "its sizes are computed")
        found = numpy_helper.to_array(sizes).astype(np.int64).tolist()
        del node.input[1:]
        # the input has precedence over the attribute
        _pop(node, "split")
        node.attribute.append(helper.make_attribute("split", found))

    def _upsample(self, node: onnx.NodeProto) -> None:
        # NCHW: batch and channels keep their size
        scales = [1.0, 1.0, _pop(node, "height_scale"), _pop(node, "width_scale")]
        if None in scales:
            self._refuse(node, "height_scale or width_scale is left out")
        node.attribute.append(helper.make_attribute("scales", scales))


_FORMS: dict[str, Callable[[_Raising, onnx.NodeProto], None]] = {
    "Cast": _Raising._cast,
    "Concat": _Raising._concat,
    "GlobalLpPool": _Raising._norm,
    "LpPool": _Raising._norm,
    "Pad": _Raising._pad,
    "Reshape": _Raising._reshape,
    "Split": _Raising._split,
    "Upsample": _Raising._upsample,
}


def _pop(node: onnx.NodeProto, name: str) -> Any:
    """Removes an attribute and returns its value; None if absent."""
    for index, item in enumerate(node.attribute):
        if item.name == name:
            value = helper.get_attribute_value(item)
            del node.attribute[index]
            return value
    return None


def _ranks(proto: onnx.ModelProto) -> dict[str, int]:
    """Returns the numbers of dimensions of the file's inputs, and those inferred from them."""
    import onnx.shape_inference

    bare = onnx.ModelProto()
    bare.CopyFrom(proto)
    # the file may declare wrong shapes for other tensors, and broadcasting would hide that
    del bare.graph.value_info[:]
    for value in bare.graph.output:
        value.type.tensor_type.ClearField("shape")
    with suppress(onnx.shape_inference.InferenceError, ValueError):
        bare = onnx.shape_inference.infer_shapes(bare, data_prop=True)
    return {
        value.name: len(value.type.tensor_type.shape.dim)
        for value in (*bare.graph.input, *bare.graph.value_info, *bare.graph.output)
        if value.type.tensor_type.HasField("shape")
    }
