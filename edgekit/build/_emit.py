"""Writes one segment as a stripped ONNX model with the target's numerics in the graph.

Every tensor between units is FP32 and carries values already rounded. Names that edgekit adds
hold a ``#``: ``T#raw`` before rounding, ``T#q`` INT8 codes, ``T#codes`` the same as floats,
``T#half`` and ``T#grid`` a tensor rounded by its reader, ``W#...`` weights.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.build._graph import Cut, Graph, node_reads
from edgekit.build._integer import write_integer
from edgekit.build._numerics import Numerics, quantised_weight
from edgekit.build._weights import WeightStore
from edgekit.build._writer import MICROSOFT, Writer
from edgekit.errors import BuildError

if TYPE_CHECKING:
    import onnx

__all__ = ["Engine", "emit"]

_FLOAT, _HALF = 1, 10
_LEVELS = 127
_NON_NEGATIVE = frozenset({"Relu", "Sigmoid", "Softmax"})
_OLDEST_OPSET = 7


def emit(
    graph: Graph,
    segment: Cut,
    numerics: Numerics,
    store: WeightStore,
) -> bytes:
    """Returns the engine: a serialized ModelProto whose weights are EXTERNAL stubs.

    The bytes depend on the nodes, numerics and scales only, not on device, segment number or
    weight values, so equal segments of different lanes share one engine.

    Raises:
        BuildError: The model's opset is too old for broadcasting, which rounding needs.
    """
    import onnx

    engine = Engine(graph, segment, numerics, store)
    engine.write()
    proto = onnx.ModelProto(ir_version=graph.model.proto.ir_version, producer_name="edgekit")
    proto.opset_import.extend(
        entry for entry in graph.model.proto.opset_import if entry.domain != MICROSOFT
    )
    proto.opset_import.add(domain=MICROSOFT, version=1)
    proto.functions.extend(graph.model.proto.functions)
    proto.graph.name = "segment"
    proto.graph.input.extend(engine.value(name) for name in segment.inputs)
    proto.graph.output.extend(engine.value(name) for name in segment.outputs)
    proto.graph.node.extend(engine.out.nodes)
    proto.graph.initializer.extend(engine.out.initializers.values())
    data: bytes = proto.SerializeToString(deterministic=True)
    return data


class Engine:
    """One segment being written."""

    def __init__(
        self,
        graph: Graph,
        segment: Cut,
        numerics: Numerics,
        store: WeightStore,
    ) -> None:
        self.graph = graph
        self.segment = segment
        self.numerics = numerics
        self.scales = numerics.scales
        self.store = store
        opset = next((o.version for o in graph.model.proto.opset_import if not o.domain), 0)
        rounds = any(p != "fp32" for p in numerics.precision.values())
        if rounds and 0 < opset < _OLDEST_OPSET:
            raise BuildError(
                f"opset {opset} is too old to write FP16 or INT8 numerics into the graph",
                code="build.opset",
                where=graph.model.source,
                hint=f"convert the model to opset {_OLDEST_OPSET} or later, 13 is a good choice",
            )
        self.out = Writer(opset)
        self.unit_of = {node.name: unit for unit in segment.units for node in unit.nodes}
        self.written_by = {t: unit for unit in segment.units for t in unit.writes}
        self.op_of = {t: node.op_type for node in segment.nodes for t in node.output}

    def value(self, name: str) -> onnx.ValueInfoProto:
        """Returns the type of a border tensor; the model was shape-inferred, so it is known."""
        import onnx

        known = self.graph.values.get(name)
        if known is not None:
            return known
        blank = onnx.ValueInfoProto(name=name)
        blank.type.tensor_type.elem_type = _FLOAT
        return blank

    def write(self) -> None:
        for node in self.segment.nodes:
            precision = self.numerics.precision[self.unit_of[node.name].name]
            quantised = quantised_weight(self.graph, node) if precision == "int8" else None
            if quantised is None:
                self.plain(node, precision)
            else:
                write_integer(self, node, *quantised)
            for name in node.output:
                if name:
                    self.round(name)
        for name in self.segment.outputs:
            if name in self.graph.constants:
                self.static(name)

    def plain(self, node: onnx.NodeProto, precision: str) -> None:
        """Copies a node; its inputs become what its precision reads."""
        import onnx

        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        own = set(node.input)
        for name in node_reads(node):
            if name not in own:
                # captured by a subgraph, which refers to it by its own name
                self.static(name)
        for position, name in enumerate(node.input):
            if name:
                copy.input[position] = self.operand(node, name, precision)
        for position, name in enumerate(node.output):
            if name:
                copy.output[position] = self.raw(name)
        self.out.nodes.append(copy)

    def operand(self, node: onnx.NodeProto, name: str, precision: str) -> str:
        if self.is_static(name):
            # TensorRT folds batch normalisation in FP32, where a variance may exceed FP16
            half = precision == "fp16" and node.op_type != "BatchNormalization"
            return self.static(name, half=half)
        if self.written_by.get(name) is self.unit_of[node.name]:
            return name
        return self.view(name, precision)

    def is_static(self, name: str) -> bool:
        return name in self.graph.initializers or name in self.graph.constants

    def static(self, name: str, *, half: bool = False) -> str:
        """Brings in a weight, a small constant, or a node that computes one."""
        weight = self.graph.model.weights.get(name)
        if weight is not None:
            if half and str(weight.dtype) == "float32":
                stub = self.out.weight(self.store.get(name, "fp16"))
                return self.out.cast(stub, f"{name}#half", _FLOAT)
            return self.out.weight(self.store.get(name, "none"))
        if name in self.graph.initializers:
            return self.out.keep(self.graph.initializers[name])
        if name in self.graph.constants and name not in self.out.made:
            node = self.graph.constants[name]
            for source in node_reads(node):
                self.static(source)
            self.out.nodes.append(node)
            self.out.made.update(node.output)
        return name

    def raw(self, name: str) -> str:
        """Returns the name under which a node writes a tensor that may be rounded afterwards."""
        rounds = self.numerics.rounding.get(name, "none") != "none"
        return f"{name}#raw" if rounds and name not in self.numerics.exact else name

    def round(self, name: str) -> None:
        """Rounds a tensor that has just been written, if it is to be rounded."""
        kind = self.numerics.rounding.get(name, "none")
        if name in self.numerics.exact:
            return
        if kind == "fp16":
            self.half(f"{name}#raw", name)
        elif kind == "int8":
            self.grid(name, f"{name}#raw", name, self.op_of[name])

    def view(self, name: str, precision: str) -> str:
        """Returns a tensor of another unit as a reader of the given precision sees it."""
        rounding = self.numerics.rounding.get(name, "none")
        local = self.written_by.get(name)
        inside = local is not None and self.numerics.precision[local.name] == precision
        if precision in ("fp32", rounding) or not self.graph.is_float32(name):
            return name
        # a tensor that stays inside an INT8 kernel is not rounded at all
        if inside and rounding == "none":
            return name
        if precision == "fp16":
            target = f"{name}#half"
            return target if target in self.out.made else self.half(name, target)
        target = f"{name}#grid"
        if target not in self.out.made:
            self.grid(name, name, target, self.op_of.get(name, ""))
        return target

    def half(self, source: str, target: str) -> str:
        return self.out.node("Cast", [self.out.cast(source, f"{target}#f16", _HALF)], target, to=1)

    def scale(self, name: str) -> str:
        import numpy as np

        return self.out.constant(f"{name}#s", np.array(self.scales[name], np.float32))

    def codes(self, name: str, source: str, op: str) -> str:
        """Writes the INT8 codes of ``source`` as floats: round half to even, [-127, 127]."""
        import numpy as np

        target = f"{name}#codes"
        if target in self.out.made:
            return target
        if op not in _NON_NEGATIVE:
            # QuantizeLinear saturates at -128, the symmetric scheme at -127
            edge = float(np.float32(self.scales[name]) * np.float32(_LEVELS))
            source = self.out.clip(source, f"{name}#clip", -edge, edge)
        zero = self.out.constant("#zero", np.array(0, np.int8))
        quantised = self.out.node("QuantizeLinear", [source, self.scale(name), zero], f"{name}#q")
        return self.out.cast(quantised, target, _FLOAT)

    def grid(self, name: str, source: str, target: str, op: str) -> None:
        """Writes ``source`` rounded to multiples of the scale."""
        self.out.node("Mul", [self.codes(name, source, op), self.scale(name)], target)
