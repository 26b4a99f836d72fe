"""From a Q/DQ model to a plain network with a scale for each tensor: explicit to implicit
INT8. ``read_qdq`` reads the Q/DQ nodes; ``from_qdq`` removes them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, numpy_helper

from edgekit.dla.scales import LEVELS, channel_axis, channel_blocks, weight_scales
from edgekit.errors import ModelError, UsageError
from edgekit.network.graph import OnnxGraph
from edgekit.network.loading.load import canonical
from edgekit.network.lowering.layers import layers
from edgekit.network.model import QDQ, Layer, Model, Network
from edgekit.quantize.missing_scales import find_missing_scales, propagate_scales
from edgekit.quantize.scales import to_float32
from edgekit.text import counted, listed
from edgekit_device.protocol import fields
from edgekit_device.protocol.codec import document, long_text, member

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


_FAULTS_LISTED = 5
# the middle of uint8: uint8 codes minus 128 are the int8 codes
_MIDDLE = 128
# result type of a QuantizeLinear without zero point and output_dtype
_UINT8 = 2
_AGAIN = (
    "quantise again with symmetric INT8 (onnxruntime.quantization: activation_type and "
    'weight_type QInt8, extra_options {"ActivationSymmetric": True, "WeightSymmetric": True})'
)
#: by code: the fault of the listed nodes or tensors, and the hint
_FAULTS: dict[str, tuple[str, str]] = {
    "qdq.zero_point": (
        "asymmetric quantisation: implicit INT8 has no zero points and no UINT8",
        _AGAIN,
    ),
    "qdq.type": ("quantised to a type that implicit INT8 does not have", _AGAIN),
    "qdq.axis": (
        "an activation with one scale per channel: implicit INT8 has one per tensor",
        "quantise activations per tensor; only weights may have a scale per channel",
    ),
    "qdq.blocked": (
        "blocked quantisation (block_size): implicit INT8 has no blocks",
        "quantise activations per tensor and weights per output channel",
    ),
    "qdq.scale_computed": (
        "a scale or zero point computed by the network (dynamic quantisation)",
        "quantise statically: scales must be constants in the file",
    ),
    "qdq.scale_value": (
        "a scale that is not a positive finite number",
        "calibrate again; for a tensor that is always zero use any scale, such as 1",
    ),
    "qdq.pair": (
        "DequantizeLinear with other scales than its QuantizeLinear",
        "give both nodes the same scale; implicit INT8 cannot rescale between them",
    ),
    "qdq.integer": (
        "computes with integers (QOperator format or dynamic quantisation)",
        "export the Q/DQ format: quantize_static(..., quant_format=QuantFormat.QDQ)",
    ),
    "qdq.open": (
        "an input or output of the network with INT8 values",
        "start the network with QuantizeLinear and end it with DequantizeLinear, or cut it there "
        "with model.outputs (--outputs)",
    ),
    "qdq.subgraph": (
        "quantised inside an If, Loop or Scan",
        "export the model without control flow around quantised layers",
    ),
    "qdq.conflict": (
        "quantised with different scales: implicit INT8 has one per tensor",
        "share one quantiser between the readers, or use the larger scale: edgekit calibrate "
        "from-qdq --unequal largest",
    ),
}
# operators that may read INT8 codes from a QuantizeLinear, because they do not change values
_MOVES = frozenset(
    {
        "DepthToSpace",
        "Expand",
        "Flatten",
        "Gather",
        "Identity",
        "MaxPool",
        "Reshape",
        "Slice",
        "SpaceToDepth",
        "Split",
        "Squeeze",
        "Tile",
        "Transpose",
        "Unsqueeze",
    }
)
_INTEGER = frozenset(
    {"ConvInteger", "DynamicQuantizeLinear", "MatMulInteger", "QLinearConv", "QLinearMatMul"}
)
# relative to the scale: float32 rounding between two ways to compute a value
_ROUNDING = 1e-4
# suffix by which onnxruntime.quantization names the codes of NAME
_CODES = "_quantized"
# their result is as large as their input, or combines several inputs
_KEEPING = frozenset({"Add", "Clip", "Relu", "Sub", "Sum"})
# the builder erases some of these, so the layers may lack one of the two tensors
_SHAPES = frozenset({"Flatten", "Reshape", "Squeeze", "Unsqueeze"})
_AVERAGES = frozenset({"AveragePool", "GlobalAveragePool", "ReduceMean"})
_FLOAT, _HALF = 1, 10
# suffix by which to_qdq names the FP16 form of NAME
_SUFFIX = "_fp16"
# attributes that are element types
_TYPES = frozenset({"dtype", "output_dtype", "to"})
UNEQUAL = ("refuse", "largest")
_LISTED = 3


class Problems:
    """Collects the faults of a translation, so that all of a kind are reported at once."""

    def __init__(self) -> None:
        self._found: dict[str, list[tuple[str, str]]] = {}

    def add(self, code: str, name: str, detail: str = "") -> None:
        """Notes a problem of a node or tensor."""
        self._found.setdefault(code, []).append((name, detail))

    def refuse(self, where: str) -> None:
        """Raises ModelError for the first kind of problem found, if there is any."""
        for code, rows in self._found.items():
            what, hint = _FAULTS[code]
            items = [f"{name!r}" + (f" ({detail})" if detail else "") for name, detail in rows]
            raise ModelError(
                f"{what}: {listed(items, _FAULTS_LISTED)}",
                code=code,
                where=rows[0][0] or where,
                hint=hint,
            )


def required_constant(model: Model, name: str) -> np.ndarray:
    """Returns the values of a constant that the model has."""
    value = model.graph.value(name)
    assert value is not None
    return value


@dataclass(frozen=True, eq=False)
class Grid:
    """The values of the codes: ``scale * code``, with signed, symmetric codes.

    Attributes:
        node: The QuantizeLinear or DequantizeLinear.
        scale: One value, or one for each index of ``axis``; float32.
        axis: The tensor's axis of the scales; None with a single scale.
        shift: The code of zero: 128 for UINT8, otherwise 0.
        kind: "int8", "uint8" or "int32" (a bias).
        exact: The scale's own type ("float32", "float16"), which is the dequantised type.
    """

    node: str
    scale: np.ndarray
    axis: int | None
    shift: int
    kind: str
    exact: str

    @property
    def step(self) -> float:
        """The scale of a tensor with a single scale."""
        return float(self.scale.reshape(-1)[0])

    def same(self, other: Grid) -> bool:
        """Returns True if both have the same scales and zero point."""
        return self.shift == other.shift and np.array_equal(
            self.scale.reshape(-1), other.scale.reshape(-1)
        )

    def along(self, values: np.ndarray) -> np.ndarray:
        """Returns the scale in a shape that broadcasts over ``values``."""
        if self.axis is None:
            return self.scale.reshape(())
        shape = [1] * values.ndim
        shape[self.axis] = -1
        return self.scale.reshape(shape)


def read_grid(node: onnx.NodeProto, model: Model, problems: Problems) -> Grid | None:
    """Reads one node; returns None if it cannot be translated, and adds why to ``problems``.

    Forms of ai.onnx 10 to 23: a scale of rank 0, or of rank 1 with ``axis``; the zero point may
    be absent, and then ``output_dtype`` (opset 21) or UINT8 is the type; ``block_size`` is
    refused.

    Args:
        node: QuantizeLinear or DequantizeLinear.
        model: Its model.
        problems: Collects the faults.
    """
    given = {item.name: item.i for item in node.attribute}
    # ONNX leaves an absent zero point out of the list, or gives it an empty name
    inputs = [*node.input, "", ""]
    data, scale_name, zero_name = inputs[:3]
    is_constant = model.graph.constant(data)
    # block_size 0 is ONNX's default: no blocks
    if given.get("block_size"):
        problems.add("qdq.blocked", node.name, f"block_size {given['block_size']}")
        return None
    for name in (scale_name, zero_name):
        if name and not model.graph.constant(name):
            problems.add("qdq.scale_computed", node.name, name)
            return None
    kind = _code_type(node, zero_name, given, model.graph)
    # INT32 codes are biases: their scale is that of the input times that of the weight
    if kind not in ("int8", "uint8") and not (kind == "int32" and is_constant):
        problems.add("qdq.type", node.name, kind)
        return None
    zero = required_constant(model, zero_name) if zero_name else np.zeros((), np.int32)
    shift = _MIDDLE if kind == "uint8" else 0
    if (zero.astype(np.int64) != shift).any():
        found = sorted({int(value) for value in zero.reshape(-1)[:_FAULTS_LISTED]})
        points = " and ".join(map(str, found[:3])) + (" ..." if len(found) > 3 else "")
        problems.add("qdq.zero_point", node.name, f"{kind}, zero point {points}")
        return None
    raw = required_constant(model, scale_name)
    scale = raw.astype(np.float32)
    # a weight's channel of zeros may have the scale 0; in a cache 0 means that a tensor has no
    # scale
    if not np.isfinite(scale).all() or (scale < 0).any() or (not is_constant and not scale.all()):
        problems.add("qdq.scale_value", node.name, scale_name)
        return None
    if scale.size == 1:
        return Grid(node.name, scale, None, shift, kind, str(raw.dtype))
    if scale.ndim != 1:
        problems.add("qdq.blocked", node.name, f"scale of shape {list(scale.shape)}")
        return None
    # 1 is ONNX's default; the remainder turns a negative axis into a positive axis
    axis = int(given.get("axis", 1)) % max(len(model.graph.shape(data)), 1)
    return Grid(node.name, scale, axis, shift, kind, str(raw.dtype))


def _code_type(node: onnx.NodeProto, zero: str, given: Mapping[str, int], graph: OnnxGraph) -> str:
    elem = given.get("output_dtype", 0) or _UINT8
    # the zero point has the codes' type; so has the input of a DequantizeLinear without zero point
    name = zero or (node.input[0] if node.op_type == "DequantizeLinear" else "")
    if name in graph.initializers:
        elem = graph.initializers[name].data_type
    elif name in graph.values:
        elem = graph.values[name].type.tensor_type.elem_type
    elif name:
        return "int8"
    return str(TensorProto.DataType.Name(elem)).lower()


@dataclass(frozen=True, eq=False)
class Quantisation:
    """One quantisation of a tensor.

    Attributes:
        grid: The grid of the QuantizeLinear.
        before: The previous quantisation of the same tensor, if the result of its
            DequantizeLinear is quantised again; None otherwise.
    """

    grid: Grid
    before: Quantisation | None = None


@dataclass(frozen=True, eq=False)
class QuantisedConstant:
    """A quantised constant.

    Attributes:
        tensor: The tensor that takes the dequantised values: the result of the QuantizeLinear
            that reads a float constant, or of the DequantizeLinear that reads codes.
        source: The constant of the file: floats or codes.
        grid: Its scales.
        codes: True if the file holds codes.
    """

    tensor: str
    source: str
    grid: Grid
    codes: bool


@dataclass(eq=False)
class QdqReading:
    """The content of a model's Q/DQ nodes.

    Attributes:
        uses: The quantisations of a tensor, by the float tensor that remains.
        roots: The float tensor that remains, by the result of each DequantizeLinear.
        fixed: The quantised constants.
        plain: Names of the nodes that turn into Identity.
        integers: Tensors that held codes and hold floats afterwards.
        direct: Uses whose result is read by a node other than QuantizeLinear.
        floats: The nodes that read a quantised tensor unquantised, by tensor.
    """

    uses: dict[str, list[Quantisation]] = field(default_factory=dict)
    roots: dict[str, str] = field(default_factory=dict)
    fixed: list[QuantisedConstant] = field(default_factory=list)
    plain: list[str] = field(default_factory=list)
    integers: set[str] = field(default_factory=set)
    direct: set[Quantisation] = field(default_factory=set)
    floats: dict[str, list[str]] = field(default_factory=dict)


def read_qdq(model: Model) -> QdqReading:
    """Reads the Q/DQ nodes of a model.

    A quantised tensor is named by the float tensor that remains without the Q/DQ nodes: the input
    of QuantizeLinear (steps 1 and 2 of NVIDIA's qdq-translator). Nodes between QuantizeLinear and
    DequantizeLinear that only move codes move floats afterwards, so their results are quantised
    tensors as well.

    Raises:
        ModelError: Codes ``qdq.*``: the model has no Q/DQ nodes, or some that implicit INT8
            cannot express; all of a kind are named.
    """
    reader = _QdqReader(model)
    for node in model.proto.graph.node:
        reader.take(node)
    reader.finish()
    return reader.reading


class _QdqReader:
    """Goes through the nodes in graph order."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._problems = Problems()
        self.reading = QdqReading()
        # tensors of codes: the tensor they encode, its grid, and its use (None for constants)
        self._codes: dict[str, tuple[str, Grid, Quantisation | None]] = {}
        # results of DequantizeLinear nodes
        self._given: dict[str, Quantisation] = {}

    def take(self, node: onnx.NodeProto) -> None:
        if node.op_type == "QuantizeLinear":
            self._quantize(node)
        elif node.op_type == "DequantizeLinear":
            self._dequantize(node)
        elif node.op_type in _INTEGER:
            self._problems.add("qdq.integer", node.name, node.op_type)
        else:
            self._read_other(node)

    def _quantize(self, node: onnx.NodeProto) -> None:
        source, target = node.input[0], node.output[0]
        grid = read_grid(node, self._model, self._problems)
        self.reading.integers.add(target)
        if self._model.graph.constant(source):
            if grid is not None:
                self.reading.fixed.append(QuantisedConstant(target, source, grid, codes=False))
                self._codes[target] = target, grid, None
            return
        self.reading.plain.append(node.name)
        if grid is None:
            return
        if grid.axis is not None:
            self._problems.add("qdq.axis", source, node.name)
            return
        root = self.reading.roots.get(source, source)
        # a dequantised tensor that is quantised again keeps both grids: the readers decide which
        # counts
        use = Quantisation(grid, self._given.get(source))
        self.reading.uses.setdefault(root, []).append(use)
        self._codes[target] = root, grid, use

    def _dequantize(self, node: onnx.NodeProto) -> None:
        source, target = node.input[0], node.output[0]
        grid = read_grid(node, self._model, self._problems)
        if self._model.graph.constant(source):
            if grid is not None:
                self.reading.fixed.append(QuantisedConstant(target, source, grid, codes=True))
            return
        self.reading.plain.append(node.name)
        if source not in self._codes:
            # a fault of the QuantizeLinear itself is already reported
            if source not in self.reading.integers:
                self._problems.add("qdq.open", source, f"read by {node.name}")
            return
        root, before, use = self._codes[source]
        if grid is not None and not grid.same(before):
            detail = f"{grid.step:g}, but {before.step:g} in {before.node}"
            self._problems.add("qdq.pair", node.name, detail)
        if use is not None:
            self.reading.roots[target] = root
            self._given[target] = use

    def _read_other(self, node: onnx.NodeProto) -> None:
        bodies = [item.g for item in node.attribute if item.type == AttributeProto.GRAPH]
        if any(inner.op_type in QDQ for body in bodies for inner in body.node):
            self._problems.add("qdq.subgraph", node.name)
        held = [name for name in node.input if name in self._codes]
        if held:
            self._move(node, held)

    def _move(self, node: onnx.NodeProto, held: list[str]) -> None:
        """Handles a node that reads codes: if it only moves them, it moves floats afterwards."""
        # Concat moves codes only if all have the same scale. For other operators the codes must be
        # the data: as indices, shapes or limits they are integers
        sources = {self._codes[name][1].step for name in held}
        joins = node.op_type == "Concat" and len(held) == len(node.input) and len(sources) == 1
        if not joins and (node.op_type not in _MOVES or list(node.input[:1]) != held):
            self._problems.add("qdq.integer", node.name, node.op_type)
            return
        _, grid, use = self._codes[held[0]]
        for name in filter(None, node.output):
            self._codes[name] = name, grid, use
            self.reading.integers.add(name)
            if use is not None:
                self.reading.uses.setdefault(name, []).append(use)

    def finish(self) -> None:
        """Refuses a model that cannot be translated.

        Raises:
            ModelError: See :func:`read_qdq`.
        """
        graph = self._model.proto.graph
        for node in graph.node:
            if node.op_type == "QuantizeLinear":
                continue
            self.reading.direct.update(self._given[x] for x in node.input if x in self._given)
            for name in node.input:
                if name in self.reading.uses and name not in self._codes:
                    self.reading.floats.setdefault(name, []).append(node.name)
        for value in graph.output:
            if value.name in self._given:
                self.reading.direct.add(self._given[value.name])
            if value.name in self.reading.integers:
                self._problems.add("qdq.open", value.name, "an output of the network")
        # faults first: they name the nodes of an integer model that has no Q/DQ nodes
        self._problems.refuse(self._model.source)
        if not any(node.op_type in QDQ for node in graph.node):
            raise ModelError(
                "the model has no QuantizeLinear or DequantizeLinear nodes",
                code="qdq.none",
                where=self._model.source,
                hint="measure its scales instead: edgekit calibrate",
            )


def dequantised_values(fixed: QuantisedConstant, model: Model) -> np.ndarray:
    """Returns the dequantised values of a quantised constant, in its scales' type.

    As ONNX defines them: codes are round half to even of value / scale, saturated.

    TensorRT's implicit INT8 quantises weights anew, per output channel: scale = amax / 127. A
    weight with exactly these Q/DQ scales keeps the floats of the file. Any other weight takes its
    dequantised values. Quantised anew, a channel with a code of 127 gets the same codes; a channel
    without such a code gets a finer grid and other codes.
    """
    grid = fixed.grid
    source = required_constant(model, fixed.source)
    scale = grid.along(source)
    if fixed.codes:
        codes = source.astype(np.float32) - np.float32(grid.shift)
    else:
        # also for UINT8, since the grid's codes have 128 subtracted
        low, high = (-128, 127)
        # a channel of zeros may have the scale 0
        safe = np.where(scale > 0, scale, np.float32(1))
        codes = np.clip(np.rint(source.astype(np.float32) / safe), low, high)
    return np.ascontiguousarray((codes * scale).astype(grid.exact))


def keeps_values(value: np.ndarray, wanted: np.ndarray, axis: int) -> bool:
    """Returns True if ``value``, quantised per index of ``axis``, dequantises to ``wanted``."""
    source, target = np.moveaxis(value, axis, 0), np.moveaxis(wanted, axis, 0)
    scales = weight_scales(value, axis).reshape(-1, *[1] * (value.ndim - 1))
    for block in channel_blocks(source):
        scale = scales[block]
        # not a multiple of the old scale: one step of the code is far more than rounding
        again = np.rint(source[block].astype(np.float32) / scale) * scale
        apart = np.abs(again - target[block])
        if (apart > _ROUNDING * scale).any():
            return False
    return True


def keeps_codes(
    fixed: QuantisedConstant,
    value: np.ndarray,
    model: Model,
    readers: Sequence[onnx.NodeProto],
) -> bool:
    """Returns True if the file's floats give the same codes when they are quantised anew.

    Args:
        fixed: A quantised constant.
        value: Its dequantised values.
        model: Its model.
        readers: All nodes that read it.
    """
    # with codes in the file there are no floats to keep
    if fixed.codes or not readers:
        return False
    original = required_constant(model, fixed.source)
    axes = [channel_axis(node, value.ndim) for node in readers]
    return all(axis is not None and keeps_values(original, value, axis) for axis in axes)


def other_codes(model: Model, names: set[str]) -> list[str]:
    """Returns the weights whose codes differ once they are quantised anew per output channel.

    Args:
        model: The plain model.
        names: Its constants that are quantised in the Q/DQ model and hold dequantised values.
    """
    found: dict[str, None] = {}
    for node in model.proto.graph.node:
        name = node.input[1] if len(node.input) > 1 else ""
        value = model.weights.get(name)
        if name not in names or value is None:
            continue
        axis = channel_axis(node, value.ndim)
        if axis is not None and not keeps_values(value, value, axis):
            found[name] = None
    return list(found)


class PlainNames:
    """The names of a plain network's constants, as in the network before quantisation."""

    def __init__(self, model: Model, reading: QdqReading) -> None:
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
            # onnxruntime.quantization named the codes after the weight, which gets its name back
            wanted = fixed.source.removesuffix(_CODES) if fixed.codes else fixed.source
            free = wanted not in taken or wanted == fixed.tensor
            if not fixed.codes:
                # the constant's own name, if no other node reads its floats
                free = fixed.source not in ends and len(self._readers[fixed.source]) == 1
            if captured or fixed.tensor in ends or not free:
                wanted = fixed.tensor
            elif not fixed.codes:
                self._dropped.add(wanted)
            self._names[fixed.tensor] = wanted
            taken.add(wanted)

    def of(self, fixed: QuantisedConstant) -> str:
        """Returns the name of a constant's floats."""
        return self._names[fixed.tensor]

    def readers(self, codes: str) -> list[onnx.NodeProto]:
        """Returns the readers of the dequantised codes; empty if a node moves the codes."""
        found: list[onnx.NodeProto] = []
        for node in self._readers.get(codes, ()):
            if node.op_type != "DequantizeLinear":
                return []
            found += self._readers.get(node.output[0], ())
        return found

    def plain(self) -> onnx.ModelProto:
        """Returns the graph with an Identity for each Q/DQ node; loading removes these.

        The node that dequantises a constant keeps the constant's new name; the caller supplies its
        values.
        """
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
        # the types of codes would contradict the floats that these tensors hold now
        gone = self._reading.integers | set(self._names)
        infos = [item for item in proto.graph.value_info if item.name not in gone]
        retained = [item for item in proto.graph.initializer if item.name not in self._dropped]
        for part, items in (("value_info", infos), ("initializer", retained)):
            proto.graph.ClearField(part)
            getattr(proto.graph, part).extend(items)
        return proto

    def renamed(self, scales: Mapping[str, float], plain: Model) -> dict[str, float]:
        """Returns the scales under the plain network's names.

        A tensor whose dequantised form is an output of the network gets the output's name.
        """
        there = plain.graph.tensor_names
        output: dict[str, str] = {}
        for value in plain.proto.graph.output:
            output.setdefault(self._reading.roots.get(value.name, ""), value.name)
        found: dict[str, float] = {}
        for name, scale in scales.items():
            now = name if name in there else output.get(name, "")
            if now:
                found[now] = scale
        return found


def without_effect(
    network: Network, given: Mapping[str, float], scales: Mapping[str, float]
) -> list[str]:
    """Returns the tensors whose Q/DQ nodes matter, and whose scale implicit INT8 does not use.

    A convolution, the sum after it and an activation are one kernel, in FP32 until its end. A
    quantiser between them rounds, which hardly matters, and clips to its range. A range narrower
    than that at the end of the kernel changes results much.

    Args:
        network: The plain network's layers.
        given: Scales of the Q/DQ nodes, by tensor.
        scales: All scales.
    """
    inside = find_missing_scales(network, scales).inside
    consumers = network.consumers()
    return [name for name in given if name in inside and _clips(name, scales, consumers, inside)]


def _clips(
    name: str,
    scales: Mapping[str, float],
    consumers: Mapping[str, tuple[Layer, ...]],
    inside: frozenset[str],
) -> bool:
    end = name
    while end in inside:
        # a tensor inside a kernel has a single reader
        (layer,) = consumers[end]
        if layer.op not in _KEEPING:
            return True
        end = layer.outputs[0]
    # without a scale the kernel writes floats, which clip no value
    return scales[name] < scales.get(end, float("inf"))


@document(frozen=True)
class Propagated:
    """A scale that no Q/DQ node gives.

    Attributes:
        tensor: Its name.
        scale: Value of one INT8 step, in the tensor's unit.
        rule: "follows" (the values are all or some of a neighbour's), "average", "Mul" or
            "Sigmoid".
    """

    tensor: str = member(long_text)
    scale: float = member(fields.figure)
    rule: str = member(long_text)


def propagate(
    model: Model, network: Network, scales: Mapping[str, float]
) -> tuple[dict[str, float], tuple[Propagated, ...]]:
    """Returns all scales, given and propagated; and the propagated scales in the order found.

    Repeats until no further scale follows; no given scale is changed.

    Step 3 of NVIDIA's qdq-translator goes forward and backward through MaxPool Flatten Relu Pad
    Transpose Reshape Squeeze and Concat; :func:`propagate_scales` does so if all readers agree. For
    a Mul it solves ``out = 127 * a * b`` for the missing scale; a Sigmoid gets 1/127. Averages take
    the scale of their input (its options AveragePool, GlobalAveragePool and ReduceMean), because
    the DLA has one scale for both. An average gives no scale back to its input, since it is smaller
    than its input.

    Args:
        model: A plain model.
        network: Its layers.
        scales: The scales of the Q/DQ nodes.
    """
    known = dict(scales)
    found: list[Propagated] = []
    graph = model.proto.graph
    readers = Counter(name for node in graph.node for name in node.input)
    ends = {value.name for value in graph.output}
    there = {value.name for value in (*graph.value_info, *graph.input, *graph.output)}

    def give(tensor: str, scale: float, rule: str) -> None:
        # layers have inner tensors that are no ONNX tensors
        if tensor in there and tensor not in known and scale > 0:
            known[tensor] = to_float32(scale)
            found.append(Propagated(tensor, known[tensor], rule))

    before = -1
    while before != len(found):
        before = len(found)
        for tensor, scale in propagate_scales(network, known).items():
            give(tensor, scale, "follows")
        for node in graph.node:
            three = [*node.input[:2], *node.output[:1]]
            if node.op_type == "Sigmoid":
                give(node.output[0], 1 / LEVELS, "Sigmoid")
            elif node.op_type in _AVERAGES and node.input[0] in known:
                give(node.output[0], known[node.input[0]], "average")
            elif node.op_type in _SHAPES:
                source, target = node.input[0], node.output[0]
                give(target, known.get(source, 0.0), "follows")
                # another reader, or the caller, may need a wider range
                if readers[source] == 1 and source not in ends:
                    give(source, known.get(target, 0.0), "follows")
            elif node.op_type == "Mul" and all(name in there for name in three):
                _solve_product(three[0], three[1], three[2], known, give)
    return known, tuple(found)


def _solve_product(
    left: str,
    right: str,
    product: str,
    known: Mapping[str, float],
    give: Callable[[str, float, str], None],
) -> None:
    """Solves ``product = 127 * left * right`` if exactly one of the three scales is missing."""
    # the largest magnitudes multiply: 127 product = (127 left) (127 right)
    if left in known and right in known:
        give(product, LEVELS * known[left] * known[right], "Mul")
    elif product in known and left in known:
        give(right, known[product] / known[left] / LEVELS, "Mul")
    elif product in known and right in known:
        give(left, known[product] / known[right] / LEVELS, "Mul")


def widen(model: Model) -> tuple[Model, tuple[str, ...], str]:
    """Returns a Q/DQ model in FP32 throughout, its former FP16 nodes, and why FP16 types remain.

    Weights keep their FP16 values, so they stay rounded. A model whose Q/DQ nodes themselves are in
    FP16 is not changed: that is an FP16 network, not a network with FP16 layers.

    The inverse of :mod:`edgekit.quantize.qdq.to_explicit` and of NVIDIA's
    ``modelopt.onnx.autocast``: layers between a Cast to FP16 and a Cast to FP32 are in FP16.

    Args:
        model: A Q/DQ model.

    Returns:
        The model; names of nodes; and a text for people if FP16 types had to stay, else "".
    """
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
    wide = _WideGraph(model, halves)
    wide.write()
    made = canonical(
        wide.proto, None, source=model.source, weights=wide.weights, plugins=model.plugins
    )
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


class _WideGraph:
    """A graph whose FP16 types are replaced by FP32.

    Attributes:
        proto: The graph.
        weights: Its constants' values.
    """

    def __init__(self, model: Model, halves: set[str]) -> None:
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
        self._names = self._float32_names()
        self.weights = {
            self._names.get(n, n): self._widen_array(v) for n, v in model.weights.items()
        }

    def _float32_names(self) -> dict[str, str]:
        """Returns the FP32 names of FP16 tensors: the name of the FP32 form, if the file has it."""
        names: dict[str, str] = {}
        for target, node in self._cast.items():
            source = node.input[0]
            # several casts of one tensor: the first gives the name, the others become Identity
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
        retained = []
        for node in graph.node:
            target = node.output[0] if node.output else ""
            if node.op_type == "Cast" and self._is_between(node.input[0], target):
                # the FP16 tensor now has the name of this cast's result: its writer replaces the
                # cast
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
            retained.append(node)
        infos = [v for v in graph.value_info if v.name not in self._halves]
        constants = [self._constant(item) for item in graph.initializer]
        self._replace("node", retained)
        self._replace("value_info", infos)
        self._replace("initializer", constants)

    def _replace(self, field: str, items: Iterable[object]) -> None:
        whole = list(items)
        self.proto.graph.ClearField(field)
        getattr(self.proto.graph, field).extend(whole)

    def _is_between(self, source: str, target: str) -> bool:
        """Returns True if a cast is between FP32 and FP16, or within FP16."""
        if source not in self._halves and target not in self._halves:
            return False
        attribute = next(a.i for a in self._cast[target].attribute if a.name == "to")
        return attribute in (_FLOAT, _HALF) and (source in self._halves or source in self._floats)

    def _constant(self, item: onnx.TensorProto) -> onnx.TensorProto:
        made = onnx.TensorProto()
        made.CopyFrom(item)
        if item.data_type == _HALF:
            # a weight's initializer holds no data, only its type; the values are in ``weights``
            if self._names.get(item.name, item.name) in self.weights:
                made.data_type = _FLOAT
            else:
                made = self._tensor(item)
        made.name = self._names.get(item.name, item.name)
        return made

    def _tensor(self, item: onnx.TensorProto) -> onnx.TensorProto:
        return numpy_helper.from_array(self._widen_array(numpy_helper.to_array(item)), item.name)

    def _widen_array(self, value: np.ndarray) -> np.ndarray:
        return value.astype("float32") if str(value.dtype) == "float16" else value


@dataclass(frozen=True, eq=False)
class Translated:
    """A Q/DQ model as implicit INT8.

    Attributes:
        model: The plain network; its weights are floats.
        scales: By activation tensor of ``model``: those of the Q/DQ nodes bit for bit, and those
            that follow from them (``propagated``).
        fp16_nodes: Nodes that run in FP16, since they have FP16 types in the Q/DQ model or a
            tensor that they read has no scale.
        missing: Tensors without a scale that INT8 layers need.
        propagated: Scales that no Q/DQ node gives.
        quantizers: Number of scales from the Q/DQ nodes.
        weights: Number of quantised constants.
        other_codes: Weights that get other codes when they are quantised anew per output
            channel, as TensorRT's implicit INT8 and edgekit's emulation do.
        notes: Notes for the user.
    """

    model: Model
    scales: Mapping[str, float]
    fp16_nodes: tuple[str, ...]
    missing: tuple[str, ...]
    propagated: tuple[Propagated, ...]
    quantizers: int
    weights: int
    other_codes: tuple[str, ...]
    notes: tuple[str, ...]

    def precisions(self, name: str) -> str:
        """Returns the text of a file with the FP16 nodes.

        A ``.json`` file gets the format of NVIDIA's translator (int8_tensor_scales, fp16_nodes),
        any other file the value of trtexec's ``--layerPrecisions``.
        """
        if not name.lower().endswith(".json"):
            return ",".join(f"{node}:fp16" for node in self.fp16_nodes) + "\n"
        both = {"int8_tensor_scales": dict(self.scales), "fp16_nodes": list(self.fp16_nodes)}
        return json.dumps(both, indent=2) + "\n"


def has_qdq(model: Model) -> bool:
    """Returns True if a model has Q/DQ nodes."""
    return any(node.op_type in QDQ for node in model.proto.graph.node)


def from_qdq(model: Model, *, unequal: str = "refuse") -> Translated:
    """Translates a Q/DQ model: removes its Q/DQ nodes and keeps their scales.

    A tensor's scale holds for all its readers, also for those that read it unquantised in the
    Q/DQ model. Constants hold their dequantised values, or the file's own floats if these give
    the same codes.

    TensorRT up to 10.7 runs no layer of a Q/DQ model on a DLA. A DLA needs a plain network with a
    calibration cache and a precision for each layer. The steps are those of NVIDIA's qdq-translator
    0.2.0 (Deep-Learning-Accelerator-SW, tools/qdq-translator).

    Args:
        model: A model with Q/DQ nodes, of ai.onnx opset 10 or later.
        unequal: "refuse" a tensor that is read with different scales, or take the "largest".

    Returns:
        The plain network and its scales.

    Raises:
        ModelError: Codes ``qdq.*``: it has no Q/DQ nodes, or quantises in a way that implicit
            INT8 does not have; the nodes or tensors are named.
        UsageError: ``unequal`` is neither of the two.
    """
    if unequal not in UNEQUAL:
        raise UsageError(
            f"unequal scales cannot be {unequal!r}",
            code="qdq.unequal",
            where="unequal",
            hint=f"one of {', '.join(UNEQUAL)}",
        )
    model, typed, left = widen(model)
    reading = read_qdq(model)
    notes = [left] if left else []
    steps = _scales(model, reading, unequal, notes)
    names = PlainNames(model, reading)
    values: dict[str, np.ndarray] = {}
    coded: set[str] = set()
    for fixed in reading.fixed:
        value = dequantised_values(fixed, model)
        if keeps_codes(fixed, value, model, names.readers(fixed.tensor)):
            value = required_constant(model, fixed.source)
        else:
            coded.add(names.of(fixed))
        values[names.of(fixed)] = value
    proto = names.plain()
    weights: dict[str, np.ndarray] = {n: v for n, v in model.weights.items() if n not in values}
    plain = canonical(
        proto, None, source=model.source, weights={**weights, **values}, plugins=model.plugins
    )
    plain = replace(plain, folded={**model.folded, **plain.folded}, notes=model.notes)
    steps = names.renamed(steps, plain)
    network = layers(plain)
    scales, propagated = propagate(plain, network, steps)
    nodes, missing = _nodes_without_scales(network, scales, frozenset(typed))
    differ = other_codes(plain, coded)
    notes += _notes(reading, propagated, nodes, missing, differ)
    lost = without_effect(network, steps, scales)
    if lost:
        notes.append(
            f"the scales of {_summary(lost, 'tensor')} have no effect, because a kernel does not "
            "round inside; values that they clip in the Q/DQ model are not clipped"
        )
    if typed:
        notes.append(f"kept in FP16, as in the file: {_summary(typed, 'node')}")
    halves = tuple(dict.fromkeys((*typed, *nodes)))
    return Translated(
        plain,
        scales,
        halves,
        missing,
        propagated,
        len(steps),
        len(reading.fixed),
        tuple(differ),
        tuple(notes),
    )


def _scales(model: Model, reading: QdqReading, unequal: str, notes: list[str]) -> dict[str, float]:
    """Returns one scale for each quantised tensor.

    If a tensor is quantised twice in a row (requantised) and only the last result is read, the
    last scale counts.
    """
    found: dict[str, float] = {}
    problems = Problems()
    again = []
    for tensor, uses in reading.uses.items():
        # a quantisation that only another quantiser reads rounds, but does not set the range
        read = [use for use in uses if use in reading.direct] or uses[-1:]
        if len({use.grid.step for use in uses}) > len({use.grid.step for use in read}):
            again.append(tensor)
        steps = {use.grid.step: use for use in read}
        if len(steps) > 1 and unequal == "refuse":
            problems.add("qdq.conflict", tensor, _steps_by_node(steps))
        elif len(steps) > 1:
            notes.append(f"{tensor!r} gets the larger of its scales: {_steps_by_node(steps)}")
        found[tensor] = max(steps)
    problems.refuse(model.source)
    if again:
        notes.append(
            f"quantised twice in a row: {_summary(again, 'tensor')}; only the last scale is used"
        )
    return found


def _nodes_without_scales(
    network: Network, scales: Mapping[str, float], typed: frozenset[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the nodes that read a tensor which lacks a scale, and those tensors (step 5).

    Nodes are named as in the file, so that they can be found after any rewrite. Nodes that are
    ``typed`` FP16 need no scale.
    """
    known = {**scales, **propagate_scales(network, scales)}
    halves = {layer.name for layer in network.layers if typed.issuperset(layer.nodes)}
    found = {
        lack.tensor: {*lack.layers} - halves for lack in find_missing_scales(network, known).lacks
    }
    lacks = {tensor: layers for tensor, layers in found.items() if layers}
    nodes: dict[str, None] = {}
    for layer in network.layers:
        if any(layer.name in lacks.get(name, ()) for name in layer.inputs):
            nodes.update(dict.fromkeys(layer.nodes or layer.origin))
    return tuple(nodes), tuple(lacks)


def _steps_by_node(steps: Mapping[float, Quantisation]) -> str:
    return ", ".join(f"{step:g} by {use.grid.node}" for step, use in steps.items())


def _notes(
    reading: QdqReading,
    propagated: tuple[Propagated, ...],
    nodes: tuple[str, ...],
    missing: tuple[str, ...],
    differ: list[str],
) -> list[str]:
    notes = []
    if reading.floats:
        notes.append(
            f"also read unquantised in the Q/DQ model: {_summary(reading.floats, 'tensor')}; in "
            "implicit INT8 all readers share the scale"
        )
    if propagated:
        notes.append(
            "without Q/DQ, so with the scale of a neighbour: "
            f"{_summary([row.tensor for row in propagated], 'tensor')}"
        )
    if nodes:
        notes.append(
            f"kept in FP16: {_summary(nodes, 'node')} (no scale for {_summary(missing, 'tensor')})"
        )
    if differ:
        notes.append(
            f"{_summary(differ, 'weight')} {'has' if len(differ) == 1 else 'have'} other codes "
            "than in the Q/DQ model: TensorRT takes amax/127 of each output channel as its scale, "
            "and the model does not"
        )
    return notes


def _summary(names: Collection[str], noun: str) -> str:
    first = ", ".join(list(names)[:_LISTED]) + (", ..." if len(names) > _LISTED else "")
    return f"{counted(len(names), noun)} ({first})"
