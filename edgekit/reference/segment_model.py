"""Writes one segment as a stripped ONNX model with the target's numerics in the graph: INT8
codes, exact INT32 sums, rounding.
"""

from __future__ import annotations

from math import gcd, prod
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from edgekit.errors import BuildError
from edgekit.network.graph import OnnxGraph
from edgekit.network.model import Model
from edgekit.network.plugins import CODES, SCALES, plugin_for
from edgekit.network.protos import reads
from edgekit.placement.segments import Segment
from edgekit.quantize.scales import is_scale
from edgekit.reference.artefacts import Weight
from edgekit.reference.numerics import Numerics, quantised_weight
from edgekit.reference.weights import WeightStore

if TYPE_CHECKING:
    from collections.abc import Iterable


# Codes of activations are -128 to 127, of weights -127 to 127. The TensorRT Developer Guide, of
# implicit and of explicit quantisation alike: xq = roundWithTiesToEven(clip(x / s, -128, 127))
# ("Quantization Schemes"); NVIDIA/TensorRT#1796 on weights. ONNX's QuantizeLinear saturates in the
# same way. Assumed for the DLA, because no document contradicts it.
LOWEST_CODE, HIGHEST_CODE = -128, 127
# all partial sums of up to this many products are exact in float32, with integers up to 2**24
EXACT_PRODUCTS = (1 << 24) // (-LOWEST_CODE * HIGHEST_CODE)
STRIPPED = "stripped"
MICROSOFT = "com.microsoft"
# ONNX's numbers of element types
_FLOAT, _UINT8, _INT8, _INT32, _HALF, _DOUBLE = 1, 2, 3, 6, 10, 11
# opset 7 broadcasts as NumPy does, which rounding needs; 10 is the first with ConvInteger and
# MatMulInteger
_OLDEST_OPSET, _INTEGER_OPSET = 7, 10
# opset 10 only added optional attributes to them, as far as inference on a CPU is concerned
_GREW = frozenset({"AveragePool", "Dropout", "MaxPool"})
# no sum of codes exceeds this bound: a Clip there changes no value, but keeps ONNX Runtime from
# folding the scale into the integer weights, which would make the sums inexact, and from joining
# scale and bias into a multiplication and addition that round once
_ACCUMULATOR = 2.0**31
# f(scale * codes) = scale * f(codes)
_AVERAGES = frozenset({"AveragePool", "GlobalAveragePool", "ReduceMean", "Resize", "Upsample"})
_SUMS = frozenset({"Add", "Sub", "Sum"})
# IR version of opset 10
_IR_OF_INTEGERS = 5


class ModelWriter:
    """The nodes and initializers of an engine; each tensor is created once."""

    def __init__(self, opset: int) -> None:
        self.opset = opset
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: dict[str, onnx.TensorProto] = {}
        self.made: set[str] = set()

    def node(self, op: str, inputs: list[str], output: str, **attributes: Any) -> str:
        """Adds a node named after its output and operator, and returns the output."""
        # ONNX has QuantizeLinear from opset 10 on, ONNX Runtime's own takes any opset
        domain = MICROSOFT if op == "QuantizeLinear" else ""
        name = f"{output}#{op}"
        # names follow from tensors, so that equal segments have equal bytes
        made = helper.make_node(op, inputs, [output], name=name, domain=domain, **attributes)
        self.nodes.append(made)
        self.made.add(output)
        return output

    def constant(self, name: str, value: np.ndarray) -> str:
        """Adds a small inline constant and returns its name."""
        if name not in self.initializers:
            self.initializers[name] = numpy_helper.from_array(value, name)
        return name

    def keep(self, tensor: onnx.TensorProto) -> str:
        """Adds an initializer of the model unchanged."""
        self.initializers.setdefault(tensor.name, tensor)
        return tensor.name

    def weight(self, weight: Weight) -> str:
        """Adds the stub of a stripped weight and returns its name."""
        if weight.name not in self.initializers:
            elem = helper.np_dtype_to_tensor_dtype(np.dtype(weight.dtype))
            stub = onnx.TensorProto(name=weight.name, data_type=elem, dims=weight.shape)
            stub.data_location = onnx.TensorProto.EXTERNAL
            stub.external_data.add(key="location", value=STRIPPED)
            self.initializers[weight.name] = stub
        return weight.name

    def cast(self, source: str, target: str, elem: int) -> str:
        """Adds a Cast to an ONNX element type, once."""
        return target if target in self.made else self.node("Cast", [source], target, to=elem)

    def clip(self, source: str, target: str, low: float, high: float) -> str:
        """Adds a Clip: bounds are attributes before opset 11 and inputs from opset 11."""
        if self.opset < 11:
            return self.node("Clip", [source], target, min=low, max=high)
        bounds = [
            self.constant(f"#clip:{value!r}", np.array(value, np.float32)) for value in (low, high)
        ]
        return self.node("Clip", [source, *bounds], target)

    def reshape(self, source: str, target: str, shape: list[int]) -> str:
        """Adds a Reshape to a constant shape."""
        name = self.constant("#shape:" + ",".join(map(str, shape)), np.array(shape, np.int64))
        return self.node("Reshape", [source, name], target)

    def split(self, source: str, sizes: list[int], axis: int, target: str) -> list[str]:
        """Adds a Split: sizes are an attribute before opset 13 and an input from opset 13."""
        names = [f"{target}{number}" for number in range(len(sizes))]
        title = f"{target}#Split"
        if self.opset < 13:
            made = helper.make_node("Split", [source], names, name=title, axis=axis, split=sizes)
        else:
            counts = "#sizes:" + ",".join(map(str, sizes))
            inputs = [source, self.constant(counts, np.array(sizes, np.int64))]
            made = helper.make_node("Split", inputs, names, name=title, axis=axis)
        self.nodes.append(made)
        return names


def products(graph: OnnxGraph, node: onnx.NodeProto, axis: int) -> int:
    """Returns the largest number of products that an output of a weighted node sums."""
    shape: list[int] = list(graph.initializers[node.input[1]].dims)
    if node.op_type != "ConvTranspose":
        return prod(shape) // shape[axis]
    # ONNX: a deconvolution's weights are [C, M / groups, *kernel]
    groups: int = _attribute(node, "group", 1)
    return (shape[0] // groups) * _taps(node, shape[2:])


def _taps(node: onnx.NodeProto, kernel: list[int]) -> int:
    """Returns the number of places of a deconvolution's kernel that contribute to an output.

    An output takes every (stride / gcd(stride, dilation))-th place.
    """
    ones = [1] * len(kernel)
    strides, dilations = _attribute(node, "strides", ones), _attribute(node, "dilations", ones)
    every = [s // gcd(s, d) for s, d in zip(strides, dilations, strict=True)]
    return prod(-(-size // step) for size, step in zip(kernel, every, strict=True))


def engine_opset(model: Model, segment: Segment, numerics: Numerics) -> int:
    """Returns the opset for a segment: the model's, or 10 if long sums need it and nodes allow it.

    Raises:
        BuildError: The model's opset is too old for broadcasting, which rounding needs.
    """
    graph, opset = model.graph, model.graph.opset
    rounds = any(p != "fp32" for p in numerics.precision.values())
    if rounds and opset < _OLDEST_OPSET:
        raise BuildError(
            f"opset {opset} is too old to write FP16 or INT8 numerics into the graph",
            code="build.opset",
            where=model.source,
            hint=f"convert the model to opset {_OLDEST_OPSET} or later, preferably 13",
        )
    # a model function imports an opset of its own, which would have to be raised, too
    if opset >= _INTEGER_OPSET or graph.proto.functions:
        return opset
    precision_of = {
        node.name: numerics.precision[unit.name] for unit in segment.units for node in unit.nodes
    }
    for node in segment.nodes:
        quantised = quantised_weight(graph, node) if precision_of[node.name] == "int8" else None
        if quantised is not None and products(graph, node, quantised[1]) > EXACT_PRODUCTS:
            break
    else:
        return opset
    nodes = [*segment.nodes, *graph.derived.values()]
    return _INTEGER_OPSET if _means_the_same(nodes, opset) else opset


def _means_the_same(nodes: Iterable[onnx.NodeProto], opset: int) -> bool:
    """Returns True if nodes of an older opset are unchanged in opset 10."""
    import onnx.defs

    for node in nodes:
        if node.domain:
            continue
        # nodes in a body would need the same check
        if any(a.HasField("g") or a.graphs for a in node.attribute):
            return False
        try:
            old = onnx.defs.get_schema(node.op_type, opset)
            new = onnx.defs.get_schema(node.op_type, _INTEGER_OPSET)
        except onnx.defs.SchemaError:
            return False
        grew = old.since_version == new.since_version or node.op_type in _GREW
        if new.deprecated or not grew:
            return False
    return True


def write_sum(engine: SegmentWriter, node: onnx.NodeProto, weight: str, target: str) -> str:
    """Writes the sums of a weighted node's products, exact for all codes, as floats.

    A layer's form depends on its shape alone, so that a refit with other weights needs no build.
    ONNX Runtime's integer kernels are used with UINT8 on both sides, 128 above the codes: these
    widen before they multiply, so they are exact on every CPU. UINT8 by INT8 would saturate sums of
    two products on AVX2 (ONNX Runtime, "Quantize ONNX models", data type selection). The integer
    kernels exist from opset 10. Deconvolutions, which have no integer kernel, and engines that
    cannot be raised to opset 10 add parts in float64; each part is exact in float32.

    Args:
        engine: The engine to write to.
        node: A convolution, deconvolution, Gemm or MatMul that reads INT8 codes.
        weight: The stub of its INT8 weights.
        target: Name of the node's result, for names of added tensors.

    Returns:
        Name of the sums, each rounded once to float32, as for INT32 when scales are applied.
    """
    if node.op_type == "ConvTranspose" or engine.out.opset < _INTEGER_OPSET:
        return _sum_in_parts(engine, node, weight, target)
    data = node.input[0]
    codes = engine.quantised(data, data, shifted=True)
    shifted = _as_uint8(engine, weight)
    if node.op_type == "Conv":
        op, attributes = "ConvInteger", _attributes(node)
    else:
        op, attributes = "MatMulInteger", {}
        codes, shifted = _transpose_operands(engine, node, codes, shifted, target)
    zero = "#zero128"
    sums = engine.out.node(op, [codes, shifted, zero, zero], f"{target}#int", **attributes)
    return engine.out.cast(sums, f"{target}#sum", _FLOAT)


def _as_uint8(engine: SegmentWriter, weight: str) -> str:
    """Writes INT8 weights as UINT8, 128 above."""
    wide = engine.out.cast(weight, f"{weight}#wide", _INT32)
    if f"{weight}#up" not in engine.out.made:
        shift = engine.out.constant("#shift128", np.array(128, np.int32))
        engine.out.node("Add", [wide, shift], f"{weight}#up")
    return engine.out.cast(f"{weight}#up", f"{weight}#u8", _UINT8)


def _transpose_operands(
    engine: SegmentWriter, node: onnx.NodeProto, codes: str, weight: str, target: str
) -> tuple[str, str]:
    """Transposes the operands that a Gemm reads transposed."""
    if node.op_type == "Gemm":
        if _attribute(node, "transA", 0):
            codes = engine.out.node("Transpose", [codes], f"{target}#a", perm=[1, 0])
        if _attribute(node, "transB", 0):
            weight = engine.out.node("Transpose", [weight], f"{target}#b", perm=[1, 0])
    return codes, weight


def _sum_in_parts(engine: SegmentWriter, node: onnx.NodeProto, weight: str, target: str) -> str:
    """Writes the sums over parts of the input channels, and their sum in float64."""
    data = node.input[0]
    codes = engine.codes(data, data)
    values = engine.out.cast(weight, f"{weight}#float", _FLOAT)
    shape = list(engine.graph.initializers[node.input[1]].dims)
    groups = 1
    if node.op_type in ("Gemm", "MatMul"):
        # channels: the axis of the data that is summed; weight_axis: the same axis of the weights
        op, attributes, channels = "MatMul", {}, -1 if node.op_type == "MatMul" else 1
        codes, values = _transpose_operands(engine, node, codes, values, target)
        turned = node.op_type == "Gemm" and _attribute(node, "transB", 0)
        size, taps, weight_axis = shape[1 if turned else 0], 1, 0
    else:
        op, channels, attributes = node.op_type, 1, _attributes(node)
        groups = int(attributes.pop("group", 1))
        deconvolution = op == "ConvTranspose"
        size = shape[0] // groups if deconvolution else shape[1]
        taps = _taps(node, shape[2:]) if deconvolution else prod(shape[2:])
        weight_axis = 0 if deconvolution else 1
    # a kernel of more than EXACT_PRODUCTS places a channel would still exceed the exact integers
    part = max(1, EXACT_PRODUCTS // taps)
    sizes = [min(part, size - start) for start in range(0, size, part)]
    inputs = _split(engine, codes, sizes * groups, channels, f"{target}#x")
    outputs = shape[0] // groups
    rows = [values]
    # Conv weights [M, C / groups, ...]: first by group along M, then by part along C
    if weight_axis and groups > 1:
        rows = _split(engine, values, [outputs] * groups, 0, f"{target}#g")
    if weight_axis:
        kernels = [
            kernel
            for number, row in enumerate(rows)
            for kernel in _split(engine, row, sizes, 1, f"{target}#w{number}")
        ]
    else:
        # the summed axis is the first and has all groups in a row
        kernels = _split(engine, values, sizes * groups, 0, f"{target}#w")
    totals = []
    for group in range(groups):
        parts = []
        for number in range(group * len(sizes), (group + 1) * len(sizes)):
            name = f"{target}#part{number}"
            engine.out.node(op, [inputs[number], kernels[number]], name, **attributes)
            # integers below 2**53 add exactly, in any order
            parts.append(engine.out.cast(name, f"{name}#double", _DOUBLE))
        totals.append(engine.out.node("Sum", parts, f"{target}#total{group}"))
    whole = totals[0]
    if groups > 1:
        whole = engine.out.node("Concat", totals, f"{target}#total", axis=1)
    return engine.out.cast(whole, f"{target}#sum", _FLOAT)


def _split(
    engine: SegmentWriter, source: str, sizes: list[int], axis: int, target: str
) -> list[str]:
    if len(sizes) == 1:
        return [source]
    return engine.out.split(source, sizes, axis, target)


def _attribute(node: onnx.NodeProto, name: str, default: Any) -> Any:
    return _attributes(node).get(name, default)


def _attributes(node: onnx.NodeProto) -> dict[str, Any]:
    return {a.name: helper.get_attribute_value(a) for a in node.attribute}


def write_integer(engine: SegmentWriter, node: onnx.NodeProto, weight: str, axis: int) -> None:
    """Writes a convolution, Gemm or MatMul on INT8 codes; scale and bias follow in FP32.

    INT8 products are summed as integer-valued floats: with codes of the input and of the weights
    every product is an integer, so the float32 sum is the INT32 accumulator bit for bit while
    partial sums stay within 2**24, in any order of additions. Layers whose shape allows larger sums
    are written in another form (:func:`write_sum`). Then follow, each rounded to FP32: the sum,
    times scale of the input * scale of the channel's weights, plus the bias. The bias is FP32 as in
    TensorRT's kernels on the GPU ("Bias": {"Type": "Float"} of INT8 convolutions in engine
    information, NVIDIA/TensorRT#3737). Assumed for the DLA: its open relative NVDLA holds a bias in
    steps of the sum, INT16 with a common shift (nvdla/sw, BiasOp.cpp).
    """
    codes = engine.out.weight(engine.store.get(weight, f"int8:{axis}"))
    target = engine.raw(node.output[0])
    if products(engine.graph, node, axis) > EXACT_PRODUCTS:
        alpha, beta = _factors(node)
        total = write_sum(engine, node, codes, target)
    else:
        alpha, beta = _write_floats(engine, node, codes, target)
        total = f"{target}#sum"
    total = engine.out.clip(total, f"{target}#acc", -_ACCUMULATOR, _ACCUMULATOR)
    spread = _channel_shape(engine, node)
    factor = _factor(engine, node, weight, axis, alpha, target, spread)
    bias = node.input[2] if len(node.input) > 2 else ""
    scaled = engine.out.node("Mul", [total, factor], f"{target}#scaled" if bias else target)
    if bias:
        engine.out.node("Add", [scaled, _bias(engine, bias, beta, target, spread)], target)


def _write_floats(
    engine: SegmentWriter, node: onnx.NodeProto, codes: str, target: str
) -> tuple[float, float]:
    """Writes the node itself on codes as floats, and returns its alpha and beta."""
    data = node.input[0]
    source = engine.codes(data, data)
    # a weight that is read along two axes has two stubs, so casts are named after the stub
    as_float = engine.out.cast(codes, f"{codes}#float", _FLOAT)
    core = onnx.NodeProto()
    core.CopyFrom(node)
    del core.input[:]
    core.input.extend([source, as_float])
    core.output[0] = f"{target}#sum"
    alpha, beta = 1.0, 1.0
    if node.op_type == "Gemm":
        alpha, beta = _factors(node)
        # they are part of scale and bias: a factor here would make the integer sums inexact
        retained = [a for a in core.attribute if a.name not in ("alpha", "beta")]
        del core.attribute[:]
        core.attribute.extend(retained)
        if engine.out.opset < 11:
            # Gemm's third input is optional from opset 11 on
            core.input.append(engine.out.constant("#none", np.zeros(1, np.float32)))
    engine.out.nodes.append(core)
    return alpha, beta


def _channel_shape(engine: SegmentWriter, node: onnx.NodeProto) -> list[int]:
    """Returns the shape that broadcasts a value per output channel over the node's output."""
    if node.op_type in ("Gemm", "MatMul"):
        return []
    spatial = engine.graph.initializers[node.input[1]].dims[2:]
    return [1, -1, *[1] * len(spatial)]


def _factor(
    engine: SegmentWriter,
    node: onnx.NodeProto,
    weight: str,
    axis: int,
    alpha: float,
    target: str,
    spread: list[int],
) -> str:
    """Writes scale of the input times scales of the weights, a value per output channel."""
    scales = engine.out.weight(engine.store.get(weight, f"int8-scale:{axis}"))
    groups = next((a.i for a in node.attribute if a.name == "group"), 1)
    if node.op_type == "ConvTranspose" and groups > 1:
        # its channel axis is within a group: all groups share the scales
        scales = engine.out.node("Concat", [scales] * groups, f"{target}#groups", axis=0)
    # in float32, as the engine multiplies
    value = np.float32(engine.scales[node.input[0]]) * np.float32(alpha)
    common = engine.out.constant(f"{target}#common", np.array(value, np.float32))
    factor = engine.out.node("Mul", [scales, common], f"{target}#factor")
    return engine.out.reshape(factor, f"{target}#spread", spread) if spread else factor


def _bias(engine: SegmentWriter, name: str, beta: float, target: str, spread: list[int]) -> str:
    source = engine.static(name) if engine.is_static(name) else engine.view(name, "int8")
    if beta != 1.0:
        common = engine.out.constant(f"{target}#beta", np.array(beta, np.float32))
        source = engine.out.node("Mul", [source, common], f"{target}#scaledbias")
    return engine.out.reshape(source, f"{target}#bias", spread) if spread else source


def _factors(node: onnx.NodeProto) -> tuple[float, float]:
    """Returns alpha and beta of a Gemm, (1, 1) for other nodes."""
    found = {a.name: a.f for a in node.attribute if a.name in ("alpha", "beta")}
    return found.get("alpha", 1.0), found.get("beta", 1.0)


def write_on_codes(engine: SegmentWriter, node: onnx.NodeProto) -> bool:
    """Writes a node of an INT8 unit on codes, if its operator allows it and its inputs have codes.

    Averages of codes are often halfway between two codes (two of four, three of six), where
    rounding decides. Averages of values, each code * scale rounded to FP32, miss the middle by
    chance. Integer sums do not: the result is in steps of the input's scale, exact up to one
    division. If the output has the same scale (which the DLA requires of pooling), it is rounded
    without rescaling. This is assumed for the hardware: the DLA's division is undocumented.

    Returns:
        True if it was written.
    """
    if node.op_type in _AVERAGES:
        moving = list(node.input[:1])
    elif node.op_type in _SUMS:
        moving = list(node.input)
    else:
        return False
    if not all(_has_codes(engine, node, name) for name in moving):
        return False
    scale = engine.scales[moving[0]]
    # codes of different scales have no common step
    if any(engine.scales[name] != scale for name in moving):
        return False
    output = node.output[0]
    target = f"{output}#mean"
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    copy.output[0] = target
    for position, name in enumerate(node.input):
        if name in moving:
            copy.input[position] = engine.codes(name, name)
        elif name:
            copy.input[position] = engine.operand(node, name, "int8")
    engine.out.nodes.append(copy)
    # already in steps of the output's scale: rounding needs no scale
    if engine.numerics.rounding.get(output) == "int8" and engine.scales[output] == scale:
        engine.in_steps.add(output)
    else:
        engine.out.node("Mul", [target, engine.scale(moving[0])], engine.raw(output))
    return True


def write_plugin_on_codes(engine: SegmentWriter, node: onnx.NodeProto) -> bool:
    """Writes a plugin's node on INT8 codes, if its function takes them, as the board's plugin does.

    The function gets the scales of input and output as attributes. A function without INT8 gets
    dequantised values, and its result is rounded like any other.

    Returns:
        True if it was written.
    """
    plugin = plugin_for(engine.graph.plugins, node.op_type, node.domain)
    reads, writes = [n for n in node.input if n], [n for n in node.output if n]
    if plugin is None or len(reads) != 1 or len(writes) != 1 or not plugin.takes_codes:
        return False
    (source,), (output,) = reads, writes
    if engine.numerics.rounding.get(output) != "int8" or not _has_codes(engine, node, source):
        return False
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    del copy.attribute[:]
    copy.attribute.extend(a for a in node.attribute if a.name not in SCALES)
    copy.attribute.extend(
        helper.make_attribute(name, float(engine.scales[tensor]))
        for name, tensor in zip(SCALES, (source, output), strict=True)
    )
    copy.input[0], copy.output[0] = engine.quantised(source, source), f"{output}{CODES}"
    engine.out.nodes.append(copy)
    engine.out.cast(copy.output[0], f"{output}#mean", _FLOAT)
    engine.in_steps.add(output)
    return True


def _has_codes(engine: SegmentWriter, node: onnx.NodeProto, name: str) -> bool:
    """Returns True if the unit's kernel reads a tensor as INT8 codes."""
    if engine.is_static(name) or not engine.graph.is_float32(name) or name not in engine.scales:
        return False
    # a tensor within the layer, which the target never rounds
    if engine.written_by.get(name) is engine.unit_of[node.name]:
        return False
    inside = engine.is_inside(name, "int8")
    return engine.numerics.rounding.get(name, "none") == "int8" or not inside


def emit(
    model: Model,
    segment: Segment,
    numerics: Numerics,
    store: WeightStore,
) -> bytes:
    """Returns the engine: a serialized ModelProto whose weights are EXTERNAL stubs.

    The bytes depend only on the nodes, numerics and scales, not on device, segment number or
    weight values, so equal segments of different lanes share an engine.

    Every tensor between units is FP32 with rounded values. Names that edgekit adds contain a ``#``:
    ``T#raw`` before rounding, ``T#q`` INT8 codes, ``T#codes`` the same as floats, ``T#u8`` as
    UINT8, ``T#half`` and ``T#grid`` a tensor rounded by its reader, ``W#...`` weights.

    Raises:
        BuildError: The model's opset is too old for broadcasting, which rounding needs.
    """
    engine = SegmentWriter(model, segment, numerics, store)
    engine.write()
    proto = onnx.ModelProto(ir_version=model.proto.ir_version, producer_name="edgekit")
    # the model may import ONNX Runtime's domain in another version
    proto.opset_import.extend(
        entry for entry in model.proto.opset_import if entry.domain != MICROSOFT
    )
    proto.opset_import.add(domain=MICROSOFT, version=1)
    for entry in proto.opset_import:
        if not entry.domain and entry.version != engine.out.opset:
            entry.version = engine.out.opset
            proto.ir_version = max(proto.ir_version, _IR_OF_INTEGERS)
    proto.functions.extend(model.proto.functions)
    # constant, so that equal segments of different lanes share an engine
    proto.graph.name = "segment"
    proto.graph.input.extend(engine.value(name) for name in segment.inputs)
    proto.graph.output.extend(engine.value(name) for name in segment.outputs)
    proto.graph.node.extend(engine.out.nodes)
    proto.graph.initializer.extend(engine.out.initializers.values())
    # a session runs plugins apart from the nodes after them, and must know the types
    proto.graph.value_info.extend(engine.written_by_plugins())
    # its digest is the engine's name in a bundle
    data: bytes = proto.SerializeToString(deterministic=True)
    return data


class SegmentWriter:
    """Writes a segment."""

    def __init__(
        self,
        model: Model,
        segment: Segment,
        numerics: Numerics,
        store: WeightStore,
    ) -> None:
        self.graph = model.graph
        self.segment = segment
        self.numerics = numerics
        self.scales = numerics.scales
        self.store = store
        self.out = ModelWriter(engine_opset(model, segment, numerics))
        # tensors that their node wrote in steps of the tensor's scale, as T#mean
        self.in_steps: set[str] = set()
        self.unit_of = {node.name: unit for unit in segment.units for node in unit.nodes}
        self.written_by = {t: unit for unit in segment.units for t in unit.writes}

    def value(self, name: str) -> onnx.ValueInfoProto:
        """Returns the type of a border tensor; the model was shape-inferred, so it is known."""
        known = self.graph.values.get(name)
        if known is not None:
            return known
        blank = onnx.ValueInfoProto(name=name)
        blank.type.tensor_type.elem_type = _FLOAT
        return blank

    def written_by_plugins(self) -> list[onnx.ValueInfoProto]:
        """Returns the output types of the user's own plugin nodes."""
        if not self.graph.plugins:
            return []
        found = []
        for node in self.out.nodes:
            if plugin_for(self.graph.plugins, node.op_type, node.domain) is None:
                continue
            for name in filter(None, node.output):
                value = onnx.ValueInfoProto()
                value.CopyFrom(self.value(name.partition("#")[0]))
                value.name = name
                if name.endswith(CODES):
                    value.type.tensor_type.elem_type = _INT8
                found.append(value)
        return found

    def write(self) -> None:
        for node in self.segment.nodes:
            precision = self.numerics.precision[self.unit_of[node.name].name]
            quantised = quantised_weight(self.graph, node) if precision == "int8" else None
            if quantised is not None:
                write_integer(self, node, *quantised)
            elif precision != "int8" or not (
                write_on_codes(self, node) or write_plugin_on_codes(self, node)
            ):
                self.plain(node, precision)
            for name in node.output:
                if name:
                    self.round(name)
        for name in self.segment.outputs:
            if self.is_static(name):
                self.static(name)

    def plain(self, node: onnx.NodeProto, precision: str) -> None:
        """Copies a node; its inputs are replaced by their form in its precision."""
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        own = set(node.input)
        for name in reads(node):
            if name not in own:
                # captured by a subgraph, which refers to it by its name
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
        return name in self.graph.initializers or name in self.graph.derived

    def static(self, name: str, *, half: bool = False) -> str:
        """Adds a weight, a small constant, or a node that computes a constant."""
        weight = self.graph.weights.get(name)
        if weight is not None:
            if half and str(weight.dtype) == "float32":
                stub = self.out.weight(self.store.get(name, "fp16"))
                return self.out.cast(stub, f"{name}#half", _FLOAT)
            return self.out.weight(self.store.get(name, "none"))
        if name in self.graph.initializers:
            return self.out.keep(self.graph.initializers[name])
        if name in self.graph.derived and name not in self.out.made:
            node = self.graph.derived[name]
            # a recipe's inputs first: nodes must be in topological order
            for source in reads(node):
                self.static(source)
            self.out.nodes.append(node)
            self.out.made.update(node.output)
        return name

    def raw(self, name: str) -> str:
        """Returns the name under which a node writes a tensor that may be rounded afterwards."""
        rounds = self.numerics.rounding.get(name, "none") != "none"
        return f"{name}#raw" if rounds and name not in self.numerics.exact else name

    def round(self, name: str) -> None:
        """Rounds the tensor just written, if it must be rounded."""
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
        """Returns True if a unit of the segment writes the tensor in a precision.

        A tensor that stays inside an INT8 kernel is not rounded.
        """
        local = self.written_by.get(name)
        return local is not None and self.numerics.precision[local.name] == precision

    def half(self, source: str, target: str) -> str:
        # to FP16 and back: tensors between units are FP32
        return self.out.node("Cast", [self.out.cast(source, f"{target}#f16", _HALF)], target, to=1)

    def scale(self, name: str) -> str:
        """Writes a tensor's INT8 scale.

        Raises:
            BuildError: It is not valid: zero, negative, NaN, or so large that codes overflow.
        """
        value = self.scales[name]
        if not is_scale(value):
            raise BuildError(
                f"the INT8 scale of {name!r} is {value!r}",
                code="build.scale",
                where=name,
                hint="a scale must be a positive number: the largest magnitude divided by 127",
            )
        return self.out.constant(f"{name}#s", np.array(value, np.float32))

    def codes(self, name: str, source: str) -> str:
        """Writes the INT8 codes of ``source`` as floats."""
        return self.out.cast(self.quantised(name, source), f"{name}#codes", _FLOAT)

    def quantised(self, name: str, source: str, *, shifted: bool = False) -> str:
        """Writes INT8 codes: round half to even of value / scale, saturated to [-128, 127].

        ``shifted`` codes are UINT8, 128 above. NaN has no code: the result is arbitrary.
        """
        target = f"{name}#u8" if shifted else f"{name}#q"
        if target in self.out.made:
            return target
        if shifted:
            zero = self.out.constant("#zero128", np.array(128, np.uint8))
        else:
            zero = self.out.constant("#zero", np.array(0, np.int8))
        step = self.scale(name)
        if source == f"{name}#mean":
            # ``#mean`` is already in steps of the scale
            step = self.out.constant("#one", np.array(1, np.float32))
        return self.out.node("QuantizeLinear", [source, step, zero], target)

    def grid(self, name: str, source: str, target: str) -> None:
        """Writes ``source`` rounded to multiples of the scale."""
        self.out.node("Mul", [self.codes(name, source), self.scale(name)], target)
