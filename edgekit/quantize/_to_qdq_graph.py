"""A graph that gets Q/DQ nodes around its INT8 layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from edgekit.dla import channel_axis, int8_operators, weight_scales
from edgekit.quantize._scales import is_scale

if TYPE_CHECKING:
    import numpy as np
    import onnx

    from edgekit.dla import Lowering
    from edgekit.network import Model, Network

__all__ = ["Lowered"]

_QUANTIZE, _DEQUANTIZE = "QuantizeLinear", "DequantizeLinear"
# a constant operand of theirs has to be INT8 as the other operands are
_JOINING = frozenset({"Concat", "Max", "Min"})


class Lowered:
    """A graph that gets Q/DQ nodes.

    Attributes:
        proto: The graph.
        values: Constants of it that are new.
        taken: Names of its tensors and nodes.
    """

    def __init__(
        self,
        model: Model,
        network: Network,
        plan: Lowering,
        scales: Mapping[str, float],
        weights: str,
    ) -> None:
        import onnx

        self.proto = onnx.ModelProto()
        self.proto.CopyFrom(model.proto)
        graph = self.proto.graph
        self.values: dict[str, np.ndarray] = {}
        self.taken = {name for node in graph.node for name in (node.name, *node.input)}
        self.taken |= {name for node in graph.node for name in node.output}
        self.taken |= {value.name for value in (*graph.input, *graph.output)}
        self.taken |= {item.name for item in graph.initializer}
        self._model = model
        self._tensors = plan.tensors
        self._scales = scales
        self._per_channel = weights == "per_channel"
        self._constants = {item.name for item in graph.initializer}
        self._precision: dict[str, str] = {}
        for layer in network.layers:
            for name in layer.nodes:
                # of several layers that share a node all have the same
                self._precision[name] = plan.precisions[layer.name]
        self._zero = ""
        self._made: dict[tuple[str, int | None], str] = {}

    def write(self) -> None:
        """Puts the nodes in."""
        graph = self.proto.graph
        nodes = list(graph.node)
        ends = {value.name for value in graph.output}
        writer = {name: node for node in nodes for name in node.output}
        # by tensor, what its readers read instead; and its nodes by what is written then
        given: dict[str, str] = {}
        pairs: dict[str, list[onnx.NodeProto]] = {}
        for name in self._tensors:
            source = writer.get(name)
            is_end = name in ends and source is not None and self._is_int8(source)
            floats = self._free(f"{name}_float") if is_end else name
            target = name if is_end else self._free(f"{name}_dequantized")
            if is_end and source is not None:
                source.output[:] = [floats if out == name else out for out in source.output]
            given[name] = target
            pairs[floats] = self._pair(name, floats, target, self._scale(name))
        made: list[onnx.NodeProto] = []
        for value in graph.input:
            made += pairs.pop(value.name, ())
        for node in nodes:
            for index, name in enumerate(node.input):
                if name in given and self._reads_codes(node, writer.get(name)):
                    node.input[index] = given[name]
            made += self._constants_of(node)
            made.append(node)
            for name in node.output:
                made += pairs.pop(name, ())
        del graph.node[:]
        graph.node.extend(made)

    def floats(self) -> set[str]:
        """Returns the nodes of layers outside of INT8."""
        return {name for name, precision in self._precision.items() if precision != "int8"}

    def _is_int8(self, node: onnx.NodeProto) -> bool:
        return self._precision.get(node.name) == "int8"

    def _reads_codes(self, node: onnx.NodeProto, source: onnx.NodeProto | None) -> bool:
        """Whether a reader gets what is dequantised: but for floats between two FP16 layers."""
        if source is not None and self._is_int8(source):
            return True
        return self._precision.get(node.name, "int8") == "int8"

    def _constants_of(self, node: onnx.NodeProto) -> list[onnx.NodeProto]:
        """Quantises the weight of an INT8 layer, and constants that it joins to activations."""
        if not self._is_int8(node):
            return []
        made: list[onnx.NodeProto] = []
        if node.op_type in int8_operators().weighted and len(node.input) > 1:
            value = self._model.weights.get(node.input[1])
            if value is not None and str(value.dtype) == "float32" and value.ndim > 1:
                axis = channel_axis(node, value.ndim) if self._per_channel else None
                made += self._constant(node, 1, axis, weight_scales(value, axis))
        elif node.op_type in _JOINING:
            for index, name in enumerate(node.input):
                if name in self._constants:
                    scale = self._joined_scale(node, name)
                    made += self._constant(node, index, None, scale)
        return made

    def _joined_scale(self, node: onnx.NodeProto, name: str) -> np.ndarray:
        """A concatenation has one scale for all; a maximum compares what it reads."""
        import numpy as np
        from onnx import numpy_helper

        result = self._scales.get(node.output[0])
        if node.op_type == "Concat" and result is not None:
            return np.array(result, np.float32)
        value = self._model.weights.get(name)
        if value is None:
            stubs = (item for item in self.proto.graph.initializer if item.name == name)
            value = numpy_helper.to_array(next(stubs))
        return weight_scales(np.asarray(value, np.float32), None)

    def _constant(
        self, node: onnx.NodeProto, index: int, axis: int | None, scale: np.ndarray
    ) -> list[onnx.NodeProto]:
        name = node.input[index]
        known = self._made.get((name, axis))
        if known is not None:
            node.input[index] = known
            return []
        target = self._free(f"{name}_dequantized")
        self._made[name, axis] = node.input[index] = target
        return self._pair(name, name, target, scale, axis)

    def _scale(self, name: str) -> np.ndarray:
        import numpy as np

        from edgekit.errors import DataError

        if not is_scale(self._scales[name]):
            raise DataError(
                f"the scale of {name!r} is {self._scales[name]!r}",
                code="qdq.scale",
                where=name,
                hint="a scale is a positive number: the largest magnitude divided by 127",
            )
        return np.array(self._scales[name], np.float32)

    def _pair(
        self, stem: str, source: str, target: str, scale: np.ndarray, axis: int | None = None
    ) -> list[onnx.NodeProto]:
        """Returns QuantizeLinear and DequantizeLinear with their scale and zero point."""
        import numpy as np
        from onnx import helper

        step = self._initializer(f"{stem}_scale", scale)
        if axis is None:
            self._zero = self._zero or self._initializer("zero_point", np.array(0, np.int8))
            zero = self._zero
        else:
            zero = self._initializer(f"{stem}_zero_point", np.zeros(scale.shape, np.int8))
        codes = self._free(f"{stem}_quantized")
        along: dict[str, Any] = {} if axis is None else {"axis": axis}
        return [
            helper.make_node(op, [data, step, zero], [result], self._free(f"{stem}_{op}"), **along)
            for op, data, result in ((_QUANTIZE, source, codes), (_DEQUANTIZE, codes, target))
        ]

    def _initializer(self, stem: str, value: np.ndarray) -> str:
        from onnx import numpy_helper

        name = self._free(stem)
        self.proto.graph.initializer.append(numpy_helper.from_array(value, name))
        self.values[name] = value
        return name

    def _free(self, stem: str) -> str:
        from edgekit.network._graph import free_name

        name = free_name(stem, self.taken)
        self.taken.add(name)
        return name
