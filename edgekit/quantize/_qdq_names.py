"""Takes the Q/DQ nodes out of a graph, and says what tensors are called without them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

    from edgekit.network import Model
    from edgekit.quantize._qdq_read import Fixed, Reading

__all__ = ["Names"]

# onnxruntime.quantization calls the codes of NAME so
_CODES = "_quantized"


class Names:
    """The names of a plain network's constants: those of the network before it was quantised."""

    def __init__(self, model: Model, reading: Reading) -> None:
        self._model = model
        self._reading = reading
        self._readers: dict[str, list[onnx.NodeProto]] = {}
        for node in model.proto.graph.node:
            for name in filter(None, node.input):
                self._readers.setdefault(name, []).append(node)
        self._names: dict[str, str] = {}
        self._dropped: set[str] = set()
        self._choose()

    def _choose(self) -> None:
        from onnx import AttributeProto

        graph = self._model.proto.graph
        taken = {name for node in graph.node for name in (*node.input, *node.output)}
        taken |= {item.name for item in (*graph.input, *graph.output, *graph.initializer)}
        ends = {value.name for value in graph.output}
        # the bodies of control flow refer to tensors of the graph by name
        captured = any(
            item.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS)
            for node in graph.node
            for item in node.attribute
        )
        for fixed in self._reading.fixed:
            wanted = fixed.source.removesuffix(_CODES) if fixed.codes else fixed.source
            free = wanted not in taken or wanted == fixed.tensor
            if not fixed.codes:
                # the constant's own name, where nothing else reads its floats
                free = fixed.source not in ends and len(self._readers[fixed.source]) == 1
            if captured or fixed.tensor in ends or not free:
                wanted = fixed.tensor
            elif not fixed.codes:
                self._dropped.add(wanted)
            self._names[fixed.tensor] = wanted
            taken.add(wanted)

    def of(self, fixed: Fixed) -> str:
        """Returns the name of a constant's floats."""
        return self._names[fixed.tensor]

    def readers(self, codes: str) -> list[onnx.NodeProto]:
        """Returns what reads the dequantised codes; nothing where something moves the codes."""
        found: list[onnx.NodeProto] = []
        for node in self._readers.get(codes, ()):
            if node.op_type != "DequantizeLinear":
                return []
            found += self._readers.get(node.output[0], ())
        return found

    def plain(self) -> onnx.ModelProto:
        """Returns the graph with an Identity for each Q/DQ node; loading takes those out.

        What dequantises a constant stays under its new name: values are given in its place.
        """
        import onnx

        proto = onnx.ModelProto()
        proto.CopyFrom(self._model.proto)
        plain = set(self._reading.plain)
        for node in proto.graph.node:
            if node.name in plain:
                node.op_type = "Identity"
                del node.input[1:]
                del node.attribute[:]
            for names in (node.input, node.output):
                for index, name in enumerate(names):
                    if name in self._names:
                        names[index] = self._names[name]
        gone = self._reading.integers | set(self._names)
        infos = [item for item in proto.graph.value_info if item.name not in gone]
        kept = [item for item in proto.graph.initializer if item.name not in self._dropped]
        for field, items in (("value_info", infos), ("initializer", kept)):
            proto.graph.ClearField(field)
            getattr(proto.graph, field).extend(items)
        return proto

    def renamed(self, scales: Mapping[str, float], plain: Model) -> dict[str, float]:
        """Returns the scales under the plain network's names.

        A tensor whose dequantised form is an output of the network has the output's name now.
        """
        there = plain.tensor_names
        output: dict[str, str] = {}
        for value in plain.proto.graph.output:
            output.setdefault(self._reading.roots.get(value.name, ""), value.name)
        found: dict[str, float] = {}
        for name, scale in scales.items():
            now = name if name in there else output.get(name, "")
            if now:
                found[now] = scale
        return found
