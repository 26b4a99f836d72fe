"""From a plain network and its scales to a strongly typed Q/DQ model: implicit to explicit
INT8.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
from onnx import defs, helper, numpy_helper

from edgekit.dla.precision import Lowering, int8_operators, plan_lowering
from edgekit.dla.scales import channel_axis, weight_scales
from edgekit.errors import DataError, ModelError, UsageError
from edgekit.network.loading import validation
from edgekit.network.loading.load import canonical
from edgekit.network.lowering.layers import layers
from edgekit.network.model import QDQ, Model, Network
from edgekit.network.protos import free_name, reads
from edgekit.quantize.calibration.checks import check_weights
from edgekit.quantize.scales import is_scale, scales_in
from edgekit.rewriting.engine.opset import find_obstacle, raise_opset

_QUANTIZE, _DEQUANTIZE = "QuantizeLinear", "DequantizeLinear"
# operators whose constant operands must be INT8 like the other operands
_JOINING = frozenset({"Concat", "Max", "Min"})
_FLOAT, _HALF = 1, 10
_QDQ_OPSET = 13
_FP16 = "tensor(float16)"
_UNCHANGED_OPERATORS = frozenset({"Cast", "DequantizeLinear", "QuantizeLinear"})
#: How weights can be quantised: a scale for each output channel, or one for the tensor.
WEIGHTS = ("per_channel", "per_tensor")


class LoweredGraph:
    """A graph that gets Q/DQ nodes.

    Attributes:
        proto: The graph.
        values: Its new constants.
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
                # layers that share a node have the same precision
                self._precision[name] = plan.precisions[layer.name]
        self._zero = ""
        self._made: dict[tuple[str, int | None], str] = {}

    def write(self) -> None:
        """Inserts the nodes."""
        graph = self.proto.graph
        nodes = list(graph.node)
        ends = {value.name for value in graph.output}
        writer = {name: node for node in nodes for name in node.output}
        # by tensor, the tensor that its readers read instead; and the nodes by output
        given: dict[str, str] = {}
        pairs: dict[str, list[onnx.NodeProto]] = {}
        for name in self._tensors:
            source = writer.get(name)
            # an output keeps its name, so the floats before its Q/DQ pair get another; results of
            # layers outside of INT8 leave the network unrounded
            is_end = name in ends and source is not None and self._is_int8(source)
            floats = self._free(f"{name}_float") if is_end else name
            target = name if is_end else self._free(f"{name}_dequantized")
            if is_end and source is not None:
                source.output[:] = [floats if out == name else out for out in source.output]
            given[name] = target
            pairs[floats] = self._qdq_pair(name, floats, target, self._scale(name))
        made: list[onnx.NodeProto] = []
        for value in graph.input:
            made += pairs.pop(value.name, ())
        for node in nodes:
            for index, name in enumerate(node.input):
                if name in given and self._reads_codes(node, writer.get(name)):
                    node.input[index] = given[name]
            made += self._quantise_constants(node)
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
        """Returns True if a reader gets dequantised values: always, except between FP16 layers."""
        if source is not None and self._is_int8(source):
            return True
        return self._precision.get(node.name, "int8") == "int8"

    def _quantise_constants(self, node: onnx.NodeProto) -> list[onnx.NodeProto]:
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
        """Returns a constant operand's scale: a concatenation's result's, otherwise its own."""
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
        # layers that share a weight share its Q/DQ pair
        known = self._made.get((name, axis))
        if known is not None:
            node.input[index] = known
            return []
        target = self._free(f"{name}_dequantized")
        self._made[name, axis] = node.input[index] = target
        return self._qdq_pair(name, name, target, scale, axis)

    def _scale(self, name: str) -> np.ndarray:
        if not is_scale(self._scales[name]):
            raise DataError(
                f"the scale of {name!r} is {self._scales[name]!r}",
                code="qdq.scale",
                where=name,
                hint="a scale must be a positive number: the largest magnitude divided by 127",
            )
        return np.array(self._scales[name], np.float32)

    def _qdq_pair(
        self, stem: str, source: str, target: str, scale: np.ndarray, axis: int | None = None
    ) -> list[onnx.NodeProto]:
        """Returns QuantizeLinear and DequantizeLinear with their scale and zero point."""
        step = self._initializer(f"{stem}_scale", scale)
        if axis is None:
            # one scalar zero point serves all tensors with a single scale
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
        name = self._free(stem)
        self.proto.graph.initializer.append(numpy_helper.from_array(value, name))
        self.values[name] = value
        return name

    def _free(self, stem: str) -> str:
        name = free_name(stem, self.taken)
        self.taken.add(name)
        return name


def write_half(proto: onnx.ModelProto, nodes: Collection[str], taken: set[str]) -> None:
    """Gives nodes FP16 types, in place.

    As NVIDIA's ``modelopt.onnx.autocast --low_precision_type fp16``: a Cast at each tensor that
    changes its type. Operators for which ONNX has no FP16 keep FP32.

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
        # tensors of Q/DQ nodes are in no list of types
        self._floats |= {n.output[0] for n in graph.node if n.op_type == "DequantizeLinear"}
        self._nodes = [
            node for node in graph.node if node.name in nodes and self._can_be_half(node)
        ]
        self._half_of: dict[str, str] = {}

    def _can_be_half(self, node: onnx.NodeProto) -> bool:
        if node.domain or node.op_type in _UNCHANGED_OPERATORS:
            return False
        if any(item.HasField("g") or item.graphs for item in node.attribute):
            return False
        if not defs.has(node.op_type, max_inclusive_version=self._opset):
            return False
        return any(self._changes(node, node.output, index) for index in range(len(node.output)))

    def _changes(self, node: onnx.NodeProto, names: Collection[str], index: int) -> bool:
        """Returns True if an input or output is FP32 and may be FP16."""
        name = list(names)[index]
        if not name or name not in self._floats:
            return False
        schema = defs.get_schema(node.op_type, self._opset)
        formal = schema.inputs if names is node.input else schema.outputs
        # a variadic operator's last formal parameter is that of all further tensors
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
        # bodies of loops and conditionals read by name
        ends |= {name for node in graph.node for name in {*reads(node)} - {*node.input}}
        made: list[onnx.NodeProto] = []
        for node in graph.node:
            if node.name not in chosen:
                made.append(node)
                continue
            changed = [i for i in range(len(node.input)) if self._changes(node, node.input, i)]
            for index in changed:
                name = node.input[index]
                if name not in self._half_of:
                    self._half_of[name] = self._free(f"{name}_fp16")
                    made.append(self._cast(name, self._half_of[name], _HALF))
                node.input[index] = self._half_of[name]
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
        retained = [v for v in graph.value_info if v.name in written]
        del graph.value_info[:]
        graph.value_info.extend(retained)

    def _cast(self, source: str, target: str, kind: int) -> onnx.NodeProto:
        return helper.make_node("Cast", [source], [target], self._free(f"{target}_cast"), to=kind)

    def _free(self, stem: str) -> str:
        name = free_name(stem, self._taken)
        self._taken.add(name)
        return name


def to_qdq(
    model: Model,
    network: Network,
    scales: Mapping[str, float],
    *,
    fp16_layers: Collection[str] = frozenset(),
    weights: str = "per_channel",
    float16: bool = True,
) -> Model:
    """Gives a plain network Q/DQ nodes, so that a strongly typed TensorRT runs it in INT8.

    Quantisation is symmetric with zero point 0 everywhere: activations with one scale, weights
    with amax / 127 of each output channel (1 for a channel of zeros) on their FP32 values, which
    stay unchanged in the file. Biases stay floats. Models below opset 13 are raised to it, because
    QuantizeLinear has an axis only from opset 13.

    TensorRT from 11.4.1 on reads no calibration cache: layers between a DequantizeLinear and a
    QuantizeLinear are INT8. :func:`edgekit.dla.precision.plan_lowering` decides the places of the
    pairs.

    Args:
        model: The plain FP32 model.
        network: Its layers.
        scales: Symmetric INT8 scale (amax / 127, in the tensor's unit) by tensor.
        fp16_layers: Names of layers that stay in FP16.
        weights: "per_channel" or "per_tensor".
        float16: True if layers outside of INT8 get FP16 types, with casts at their borders: a DLA
            has no FP32. The network's inputs and outputs keep their types.

    Returns:
        The Q/DQ model, with the same inputs and outputs. A network without any layer for INT8, or
        without the scales for such a layer, is returned without Q/DQ nodes.

    Raises:
        ModelError: "qdq.present": it has Q/DQ nodes; "qdq.opset": it cannot be raised to opset 13;
            "model.nonfinite": a weight has NaN or infinite values.
        UsageError: ``weights`` is neither of the two.
        DataError: "qdq.scale": a scale is not a positive number.
    """
    if weights not in WEIGHTS:
        raise UsageError(
            f"weights cannot be quantised {weights!r}",
            code="qdq.weights",
            hint=f"one of {', '.join(WEIGHTS)}",
        )
    if any(node.op_type in QDQ for node in model.proto.graph.node):
        raise ModelError(
            "the model already has Q/DQ nodes",
            code="qdq.present",
            where=model.source,
            hint="use it unchanged with TensorRT 11.4.1 or later, or remove the nodes: edgekit "
            "calibrate from-qdq",
        )
    check_weights(model)
    raised = raise_opset(model)
    if raised is None:
        raise ModelError(
            f"Q/DQ nodes need opset 13, and {find_obstacle(model)} cannot be converted to it",
            code="qdq.opset",
            where=model.source,
            hint="export the model again with opset 13 or later",
        )
    # raising the opset may add or replace nodes
    if raised is not model:
        network = layers(raised, network.release)
    plan = plan_lowering(network, scales, fp16_layers)
    writer = LoweredGraph(raised, network, plan, scales, weights)
    writer.write()
    if float16:
        write_half(writer.proto, writer.floats(), writer.taken)
    made = canonical(
        writer.proto,
        None,
        source=model.source,
        weights={**raised.weights, **writer.values},
        plugins=model.plugins,
    )
    return replace(made, folded={**raised.folded, **made.folded})


def to_open_qdq(
    model: Model,
    network: Network,
    scales: Mapping[str, float],
    *,
    fp16_layers: Collection[str] = frozenset(),
) -> Model | None:
    """Gives a network with open axes the Q/DQ nodes and FP16 types that it has at one shape.

    Nodes that exist only for open sizes compute these sizes, and keep their types.

    Args:
        model: The plain FP32 model with its open axes.
        network: The layers of the same model at one shape.
        scales: As in ``to_qdq``, at that shape.
        fp16_layers: As in ``to_qdq``.

    Returns:
        The typed model; None if the file's opset is below 13.

    Raises:
        ModelError: "model.nonfinite".
        DataError: "qdq.scale".
    """
    if validation.opset(model.proto) < _QDQ_OPSET:
        return None
    check_weights(model)
    inferred = onnx.shape_inference.infer_shapes(model.proto)
    # loading at a fixed shape folds nodes, so the tensors of both models differ
    known = scales_in(inferred.graph, scales)
    opened = replace(model, proto=inferred)
    writer = LoweredGraph(
        opened, network, plan_lowering(network, known, fp16_layers), known, "per_channel"
    )
    writer.write()
    write_half(writer.proto, writer.floats(), writer.taken)
    return replace(opened, proto=writer.proto)
