"""FP16 types for the layers of a strongly typed network that are outside of INT8.

What NVIDIA's ``modelopt.onnx.autocast --target_dla --low_precision_type fp16`` does as well: a
Cast where a tensor changes its type. Operators keep FP32 where ONNX has no FP16 for them.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

__all__ = ["half"]

_FLOAT, _HALF = 1, 10
_FP16 = "tensor(float16)"
_KEPT = frozenset({"Cast", "DequantizeLinear", "QuantizeLinear"})


def half(proto: onnx.ModelProto, nodes: Collection[str], taken: set[str]) -> None:
    """Gives nodes FP16 types, in place.

    Args:
        proto: A graph whose tensors' types are known.
        nodes: Names of nodes.
        taken: Names that are used already; it grows.
    """
    _Half(proto, nodes, taken).write()


class _Half:
    def __init__(self, proto: onnx.ModelProto, nodes: Collection[str], taken: set[str]) -> None:
        self._graph = proto.graph
        self._taken = taken
        graph = self._graph
        self._opset = next(e.version for e in proto.opset_import if not e.domain)
        values = (*graph.input, *graph.value_info, *graph.output)
        self._floats = {v.name for v in values if v.type.tensor_type.elem_type == _FLOAT}
        self._floats |= {item.name for item in graph.initializer if item.data_type == _FLOAT}
        # what Q/DQ nodes brought is in no list of types
        self._floats |= {n.output[0] for n in graph.node if n.op_type == "DequantizeLinear"}
        self._nodes = [node for node in graph.node if node.name in nodes and self._can(node)]
        self._half_of: dict[str, str] = {}

    def _can(self, node: onnx.NodeProto) -> bool:
        from onnx import defs

        if node.domain or node.op_type in _KEPT:
            return False
        if any(item.HasField("g") or item.graphs for item in node.attribute):
            return False
        if not defs.has(node.op_type, max_inclusive_version=self._opset):
            return False
        return any(self._changes(node, node.output, index) for index in range(len(node.output)))

    def _changes(self, node: onnx.NodeProto, names: Collection[str], index: int) -> bool:
        """Whether an input or output is FP32 and may be FP16."""
        from onnx import defs

        name = list(names)[index]
        if not name or name not in self._floats:
            return False
        schema = defs.get_schema(node.op_type, self._opset)
        formal = schema.inputs if names is node.input else schema.outputs
        kinds = formal[min(index, len(formal) - 1)].types
        return _FP16 in kinds

    def write(self) -> None:
        chosen = {node.name for node in self._nodes}
        graph = self._graph
        readers: dict[str, list[onnx.NodeProto]] = {}
        for node in graph.node:
            for name in node.input:
                readers.setdefault(name, []).append(node)
        ends = {value.name for value in graph.output}
        made: list[onnx.NodeProto] = []
        for node in graph.node:
            if node.name not in chosen:
                made.append(node)
                continue
            changed = [i for i in range(len(node.input)) if self._changes(node, node.input, i)]
            for index in changed:
                node.input[index] = self._as_half(node.input[index], made)
            results = [i for i in range(len(node.output)) if self._changes(node, node.output, i)]
            casts = []
            for index in results:
                name = node.output[index]
                self._half_of[name] = node.output[index] = self._free(f"{name}_fp16")
                wide = name in ends or any(r.name not in chosen for r in readers.get(name, ()))
                wide = wide or any(
                    not self._changes(reader, reader.input, list(reader.input).index(name))
                    for reader in readers.get(name, ())
                    if name in reader.input
                )
                if wide:
                    casts.append(self._cast(self._half_of[name], name, _FLOAT))
            made += [node, *casts]
        del graph.node[:]
        graph.node.extend(made)
        written = {name for node in made for name in node.output}
        kept = [v for v in graph.value_info if v.name in written]
        del graph.value_info[:]
        graph.value_info.extend(kept)

    def _as_half(self, name: str, made: list[onnx.NodeProto]) -> str:
        if name not in self._half_of:
            self._half_of[name] = self._free(f"{name}_fp16")
            made.append(self._cast(name, self._half_of[name], _HALF))
        return self._half_of[name]

    def _cast(self, source: str, target: str, kind: int) -> onnx.NodeProto:
        from onnx import helper

        return helper.make_node("Cast", [source], [target], self._free(f"{target}_cast"), to=kind)

    def _free(self, stem: str) -> str:
        from edgekit.network._graph import free_name

        name = free_name(stem, self._taken)
        self._taken.add(name)
        return name
