"""Takes the FP16 types of a strongly typed Q/DQ model out: implicit INT8 has a list of layers.

The way back of :mod:`edgekit.quantize._to_qdq_half`, and of what NVIDIA's
``modelopt.onnx.autocast`` writes: between a Cast to FP16 and one to FP32 lie layers in FP16.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from edgekit.network import QDQ

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np
    import onnx

    from edgekit.network import Model

__all__ = ["widened"]

_FLOAT, _HALF = 1, 10
# to_qdq calls the FP16 form of NAME so
_SUFFIX = "_fp16"
# attributes that are element types
_TYPES = frozenset({"dtype", "output_dtype", "to"})


def widened(model: Model) -> tuple[Model, tuple[str, ...], str]:
    """Returns a Q/DQ model in FP32 throughout, the nodes that were FP16, and why it was left so.

    Weights hold what their FP16 values are, so they come back rounded. Nothing is changed where
    Q/DQ nodes themselves are in FP16: that is a network in FP16, not one with FP16 layers.

    Args:
        model: A Q/DQ model.

    Returns:
        The model; names of nodes; and a text for people where FP16 types had to stay, else "".
    """
    from edgekit.network import canonical

    graph = model.proto.graph
    values = (*graph.value_info, *graph.input, *graph.output)
    halves = {v.name for v in values if v.type.tensor_type.elem_type == _HALF}
    halves |= {item.name for item in graph.initializer if item.data_type == _HALF}
    if not halves or any(
        name in halves
        for node in graph.node
        if node.op_type in QDQ
        for name in (*node.input, *node.output)
    ):
        return model, (), ""
    reason = _obstacle(model.proto, halves)
    if reason:
        return model, (), f"FP16 types and their casts stay in the network: {reason}"
    nodes = tuple(
        node.name
        for node in graph.node
        if node.op_type != "Cast" and halves.intersection(node.output)
    )
    wide = _Wide(model, halves)
    wide.write()
    made = canonical(wide.proto, None, source=model.source, weights=wide.weights)
    made = replace(made, folded={**model.folded, **made.folded}, notes=model.notes)
    return made, nodes, ""


def _obstacle(proto: onnx.ModelProto, halves: set[str]) -> str:
    graph = proto.graph
    for value in (*graph.input, *graph.output):
        if value.name in halves:
            return f"the network's own {value.name!r} is FP16"
    for node in graph.node:
        if any(item.HasField("g") or item.graphs for item in node.attribute):
            return f"{node.name!r} has a body of its own ({node.op_type})"
    return ""


class _Wide:
    """A graph that loses its FP16 types.

    Attributes:
        proto: The graph.
        weights: Its constants' values.
    """

    def __init__(self, model: Model, halves: set[str]) -> None:
        import onnx

        self.proto = onnx.ModelProto()
        self.proto.CopyFrom(model.proto)
        self._halves = halves
        graph = self.proto.graph
        values = (*graph.value_info, *graph.input, *graph.output)
        self._floats = {v.name for v in values if v.type.tensor_type.elem_type == _FLOAT}
        self._floats |= {item.name for item in graph.initializer if item.data_type == _FLOAT}
        self._taken = {name for node in graph.node for name in (*node.input, *node.output)}
        self._taken |= {item.name for item in (*graph.input, *graph.output, *graph.initializer)}
        self._cast = {n.output[0]: n for n in graph.node if n.op_type == "Cast"}
        self._names = self._chosen()
        self.weights = {self._names.get(n, n): self._wide(v) for n, v in model.weights.items()}

    def _chosen(self) -> dict[str, str]:
        """Returns what FP16 tensors are called in FP32: as the FP32 form of the file, if it has."""
        names: dict[str, str] = {}
        for target, node in self._cast.items():
            source = node.input[0]
            # several casts of one tensor: one gives the name, the others stand for it
            if source in self._halves and target not in self._halves and source not in self._cast:
                names.setdefault(source, target)
        for name in sorted(self._halves - names.keys() - self._cast.keys()):
            plain = name.removesuffix(_SUFFIX)
            if plain not in self._taken:
                names[name] = plain
                self._taken.add(plain)
        return names

    def write(self) -> None:
        graph = self.proto.graph
        kept = []
        for node in graph.node:
            target = node.output[0] if node.output else ""
            if node.op_type == "Cast" and self._is_between(node.input[0], target):
                if self._names.get(node.input[0]) == target:
                    continue
                node.op_type = "Identity"
                del node.attribute[:]
            for item in node.attribute:
                if item.name in _TYPES and item.i == _HALF:
                    item.i = _FLOAT
                elif item.HasField("t") and item.t.data_type == _HALF:
                    item.t.CopyFrom(self._tensor(item.t))
            for names in (node.input, node.output):
                for index, name in enumerate(names):
                    names[index] = self._names.get(name, name)
            kept.append(node)
        infos = [v for v in graph.value_info if v.name not in self._halves]
        constants = [self._constant(item) for item in graph.initializer]
        self._replace("node", kept)
        self._replace("value_info", infos)
        self._replace("initializer", constants)

    def _replace(self, field: str, items: Iterable[object]) -> None:
        whole = list(items)
        self.proto.graph.ClearField(field)
        getattr(self.proto.graph, field).extend(whole)

    def _is_between(self, source: str, target: str) -> bool:
        """Whether a cast is one between FP32 and FP16, or within FP16."""
        if source not in self._halves and target not in self._halves:
            return False
        attribute = next(a.i for a in self._cast[target].attribute if a.name == "to")
        return attribute in (_FLOAT, _HALF) and (source in self._halves or source in self._floats)

    def _constant(self, item: onnx.TensorProto) -> onnx.TensorProto:
        import onnx

        made = onnx.TensorProto()
        made.CopyFrom(item)
        if item.data_type == _HALF:
            if self._names.get(item.name, item.name) in self.weights:
                made.data_type = _FLOAT
            else:
                made = self._tensor(item)
        made.name = self._names.get(item.name, item.name)
        return made

    def _tensor(self, item: onnx.TensorProto) -> onnx.TensorProto:
        from onnx import numpy_helper

        return numpy_helper.from_array(self._wide(numpy_helper.to_array(item)), item.name)

    def _wide(self, value: np.ndarray) -> np.ndarray:
        return value.astype("float32") if str(value.dtype) == "float16" else value
