"""Writes one segment as a stripped ONNX model with the target's numerics in the graph.

Every tensor between units is FP32 and carries values already rounded. Names that edgekit adds
hold a ``#``: ``T#raw`` before rounding, ``T#q`` INT8 codes, ``T#codes`` the same as floats,
``T#u8`` as UINT8, ``T#half`` and ``T#grid`` a tensor rounded by its reader, ``W#...`` weights.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.build._codes import write_on_codes
from edgekit.build._graph import Cut, Graph, node_reads
from edgekit.build._integer import write_integer
from edgekit.build._numerics import Numerics, quantised_weight
from edgekit.build._sums import engine_opset
from edgekit.build._weights import WeightStore
from edgekit.build._writer import MICROSOFT, Writer
from edgekit.errors import BuildError
from edgekit.quantize import is_scale

if TYPE_CHECKING:
    import onnx

__all__ = ["Engine", "emit"]

_FLOAT, _HALF = 1, 10
# IR version that opset 10 came with
_IR_OF_INTEGERS = 5


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
    for entry in proto.opset_import:
        if not entry.domain and entry.version != engine.out.opset:
            entry.version = engine.out.opset
            proto.ir_version = max(proto.ir_version, _IR_OF_INTEGERS)
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
        self.out = Writer(engine_opset(graph, segment, numerics))
        # tensors that their node wrote in steps of their own scale, as T#mean
        self.in_steps: set[str] = set()
        self.unit_of = {node.name: unit for unit in segment.units for node in unit.nodes}
        self.written_by = {t: unit for unit in segment.units for t in unit.writes}

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
            if quantised is not None:
                write_integer(self, node, *quantised)
            elif precision != "int8" or not write_on_codes(self, node):
                self.plain(node, precision)
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
            source = f"{name}#mean" if name in self.in_steps else f"{name}#raw"
            self.grid(name, source, name)

    def view(self, name: str, precision: str) -> str:
        """Returns a tensor of another unit as a reader of the given precision sees it."""
        rounding = self.numerics.rounding.get(name, "none")
        if precision in ("fp32", rounding) or not self.graph.is_float32(name):
            return name
        if rounding == "none" and self.is_inside(name, precision):
            return name
        if precision == "fp16":
            target = f"{name}#half"
            return target if target in self.out.made else self.half(name, target)
        target = f"{name}#grid"
        if target not in self.out.made:
            self.grid(name, name, target)
        return target

    def is_inside(self, name: str, precision: str) -> bool:
        """Tells whether a unit here writes the tensor in a precision.

        One that stays inside an INT8 kernel is not rounded at all.
        """
        local = self.written_by.get(name)
        return local is not None and self.numerics.precision[local.name] == precision

    def half(self, source: str, target: str) -> str:
        return self.out.node("Cast", [self.out.cast(source, f"{target}#f16", _HALF)], target, to=1)

    def scale(self, name: str) -> str:
        """Writes a tensor's INT8 scale.

        Raises:
            BuildError: It is no scale: zero, negative, NaN, or so large that codes overflow.
        """
        import numpy as np

        value = self.scales[name]
        if not is_scale(value):
            raise BuildError(
                f"the INT8 scale of {name!r} is {value!r}",
                code="build.scale",
                where=name,
                hint="a scale is a positive number: the largest magnitude divided by 127",
            )
        return self.out.constant(f"{name}#s", np.array(value, np.float32))

    def codes(self, name: str, source: str) -> str:
        """Writes the INT8 codes of ``source`` as floats."""
        return self.out.cast(self.quantised(name, source), f"{name}#codes", _FLOAT)

    def quantised(self, name: str, source: str, *, shifted: bool = False) -> str:
        """Writes INT8 codes: round half to even of value / scale, saturated to [-128, 127].

        ``shifted`` ones are UINT8, 128 above. What is not a number has no code: any comes out.
        """
        import numpy as np

        target = f"{name}#u8" if shifted else f"{name}#q"
        if target in self.out.made:
            return target
        if shifted:
            zero = self.out.constant("#zero128", np.array(128, np.uint8))
        else:
            zero = self.out.constant("#zero", np.array(0, np.int8))
        step = self.scale(name)
        if source == f"{name}#mean":
            step = self.out.constant("#one", np.array(1, np.float32))
        return self.out.node("QuantizeLinear", [source, step, zero], target)

    def grid(self, name: str, source: str, target: str) -> None:
        """Writes ``source`` rounded to multiples of the scale."""
        self.out.node("Mul", [self.codes(name, source), self.scale(name)], target)
