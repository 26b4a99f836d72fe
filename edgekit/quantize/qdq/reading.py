"""Reads a Q/DQ model: what each QuantizeLinear or DequantizeLinear does, which tensor has
which scale, and its constants as floats.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto

from edgekit.dla.scales import channel_axis, channel_blocks, weight_scales
from edgekit.errors import ModelError
from edgekit.network.graph import OnnxGraph
from edgekit.network.model import QDQ, Model
from edgekit.text import listed

_LISTED = 5
# the middle of uint8: codes - 128 are those of int8, value for value
_MIDDLE = 128
# what a QuantizeLinear without zero point and output_dtype gives
_UINT8 = 2
_AGAIN = (
    "quantise again with symmetric INT8 (onnxruntime.quantization: activation_type and "
    'weight_type QInt8, extra_options {"ActivationSymmetric": True, "WeightSymmetric": True})'
)
#: by code: what is wrong with those that are listed, and what to do
_FAULTS: dict[str, tuple[str, str]] = {
    "qdq.zero_point": (
        "asymmetric quantisation: implicit INT8 has no zero points, nor UINT8 from 0",
        _AGAIN,
    ),
    "qdq.type": ("quantised to a type that implicit INT8 does not have", _AGAIN),
    "qdq.axis": (
        "an activation with one scale for each channel: implicit INT8 has one for the tensor",
        "quantise activations per tensor; only weights may have a scale for each channel",
    ),
    "qdq.blocked": (
        "blocked quantisation (block_size): implicit INT8 has no blocks",
        "quantise activations per tensor and weights per output channel",
    ),
    "qdq.scale_computed": (
        "a scale or zero point that the network computes (dynamic quantisation)",
        "quantise statically: scales must be constants of the file",
    ),
    "qdq.scale_value": (
        "a scale that is no positive finite number",
        "calibrate again; a tensor that is always zero takes any scale, such as 1",
    ),
    "qdq.pair": (
        "DequantizeLinear with other scales than its QuantizeLinear",
        "implicit INT8 cannot rescale between the two: give both nodes one scale",
    ),
    "qdq.integer": (
        "computes on integers (QOperator format or dynamic quantisation)",
        "export the Q/DQ format: quantize_static(..., quant_format=QuantFormat.QDQ)",
    ),
    "qdq.open": (
        "an input or output of the network that holds INT8 codes",
        "let the network begin with QuantizeLinear and end with DequantizeLinear, or cut it "
        "there with model.outputs (--outputs)",
    ),
    "qdq.subgraph": (
        "quantised inside a body of If, Loop or Scan",
        "export the model without control flow around quantised layers",
    ),
    "qdq.conflict": (
        "quantised with different scales, and implicit INT8 has one for a tensor",
        "share one quantiser between the readers, or take the larger scale: edgekit calibrate "
        "from-qdq --unequal largest",
    ),
}
# a QuantizeLinear gives INT8 to them as well as to DequantizeLinear: values stay what they are
_MOVES = frozenset(
    {
        "DepthToSpace", "Expand", "Flatten", "Gather", "Identity", "MaxPool", "Reshape", "Slice",
        "SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze",
    }
)  # fmt: skip
_INTEGER = frozenset(
    {"ConvInteger", "DynamicQuantizeLinear", "MatMulInteger", "QLinearConv", "QLinearMatMul"}
)
# of the scale: two ways to compute one value in float32
_ROUNDING = 1e-4


class Problems:
    """Collects what cannot be translated, so that all of a kind are reported at once."""

    def __init__(self) -> None:
        self._found: dict[str, list[tuple[str, str]]] = {}

    def add(self, code: str, name: str, detail: str = "") -> None:
        """Notes a problem of a node or tensor."""
        self._found.setdefault(code, []).append((name, detail))

    def refuse(self, where: str) -> None:
        """Raises ModelError for the kind of problem that was met first, if any was."""
        for code, rows in self._found.items():
            what, hint = _FAULTS[code]
            items = [f"{name!r}" + (f" ({detail})" if detail else "") for name, detail in rows]
            raise ModelError(
                f"{what}: {listed(items, _LISTED)}",
                code=code,
                where=rows[0][0] or where,
                hint=hint,
            )


def constant_of(model: Model, name: str) -> np.ndarray:
    """Returns the values of a constant, which a model has."""
    value = model.graph.value(name)
    assert value is not None
    return value


@dataclass(frozen=True, eq=False)
class Grid:
    """The values that codes stand for: ``scale * code``, the code signed and symmetric.

    Attributes:
        node: The QuantizeLinear or DequantizeLinear.
        scale: One value, or one for each index of ``axis``; float32.
        axis: Of the tensor, where there are several scales.
        shift: What stands for zero: 128 for UINT8, otherwise 0.
        kind: "int8", "uint8" or "int32" (a bias).
        exact: The scale's own type ("float32", "float16"), which dequantising gives.
    """

    node: str
    scale: np.ndarray
    axis: int | None
    shift: int
    kind: str
    exact: str

    @property
    def step(self) -> float:
        """The scale of a tensor that has one."""
        return float(self.scale.reshape(-1)[0])

    def same(self, other: Grid) -> bool:
        """Whether both have the same scales and zero."""
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


def grid_of(node: onnx.NodeProto, model: Model, problems: Problems) -> Grid | None:
    """Reads one node; None if it cannot be translated, which ``problems`` then has.

    Forms of ai.onnx 10 to 23: a scale of rank 0, or of rank 1 with ``axis``; the zero point may
    be absent, and then ``output_dtype`` (opset 21) or UINT8 is the type; ``block_size`` is
    refused.

    Args:
        node: QuantizeLinear or DequantizeLinear.
        model: Its model.
        problems: Where faults are noted.
    """
    given: dict[str, Any] = {item.name: item.i for item in node.attribute}
    inputs = [*node.input, "", ""]
    data, scale_name, zero_name = inputs[:3]
    is_constant = model.graph.constant(data)
    if given.get("block_size"):
        problems.add("qdq.blocked", node.name, f"block_size {given['block_size']}")
        return None
    for name in (scale_name, zero_name):
        if name and not model.graph.constant(name):
            problems.add("qdq.scale_computed", node.name, name)
            return None
    kind = _kind(node, zero_name, given, model.graph)
    if kind not in ("int8", "uint8") and not (kind == "int32" and is_constant):
        problems.add("qdq.type", node.name, kind)
        return None
    zero = constant_of(model, zero_name) if zero_name else np.zeros((), np.int32)
    shift = _MIDDLE if kind == "uint8" else 0
    if (zero.astype(np.int64) != shift).any():
        found = sorted({int(value) for value in zero.reshape(-1)[:_LISTED]})
        problems.add("qdq.zero_point", node.name, f"{kind}, zero point {_few(found)}")
        return None
    raw = constant_of(model, scale_name)
    scale = raw.astype(np.float32)
    if not np.isfinite(scale).all() or (scale < 0).any() or (not is_constant and not scale.all()):
        problems.add("qdq.scale_value", node.name, scale_name)
        return None
    if scale.size == 1:
        return Grid(node.name, scale, None, shift, kind, str(raw.dtype))
    if scale.ndim != 1:
        problems.add("qdq.blocked", node.name, f"scale of shape {list(scale.shape)}")
        return None
    axis = int(given.get("axis", 1)) % max(len(model.graph.shape(data)), 1)
    return Grid(node.name, scale, axis, shift, kind, str(raw.dtype))


def _kind(node: onnx.NodeProto, zero: str, given: Mapping[str, Any], graph: OnnxGraph) -> str:
    elem = int(given.get("output_dtype", 0)) or _UINT8
    name = zero or (node.input[0] if node.op_type == "DequantizeLinear" else "")
    if name in graph.initializers:
        elem = graph.initializers[name].data_type
    elif name in graph.values:
        elem = graph.values[name].type.tensor_type.elem_type
    elif name:
        return "int8"
    return str(TensorProto.DataType.Name(elem)).lower()


def _few(values: list[int]) -> str:
    return " and ".join(map(str, values[:3])) + (" ..." if len(values) > 3 else "")


# Reads a Q/DQ model: which tensor has which scale, and what its quantised constants are.
#
# A quantised tensor is known by the float tensor that stays when the Q/DQ nodes are gone: the one
# that QuantizeLinear reads (steps 1 and 2 of NVIDIA's qdq-translator). Nodes between the two that
# only move codes move floats afterwards, so their results are quantised tensors as well.


@dataclass(frozen=True, eq=False)
class Quantisation:
    """One quantisation of a tensor.

    Attributes:
        grid: Of the QuantizeLinear.
        before: What quantised the same tensor before it (a DequantizeLinear whose result is
            quantised again), or None.
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
        codes: Whether the file holds codes.
    """

    tensor: str
    source: str
    grid: Grid
    codes: bool


@dataclass(eq=False)
class QdqReading:
    """What the Q/DQ nodes of a model say.

    Attributes:
        uses: The quantisations of a tensor, by the float tensor that stays.
        roots: That tensor, by the result of each DequantizeLinear.
        fixed: The quantised constants.
        plain: Names of the nodes that turn into Identity.
        integers: Tensors that held codes and hold floats afterwards.
        direct: Uses whose result something else than a QuantizeLinear reads.
        floats: By quantised tensor that is also read unquantised, the nodes that do so.
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

    Raises:
        ModelError: Codes ``qdq.*``: it has none, or some that implicit INT8 cannot express; all
            of a kind are named.
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
        # tensors of codes: what they are the codes of, and on which grid; no use for constants
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
            self._other(node)

    def _quantize(self, node: onnx.NodeProto) -> None:
        source, target = node.input[0], node.output[0]
        grid = grid_of(node, self._model, self._problems)
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
        use = Quantisation(grid, self._given.get(source))
        self.reading.uses.setdefault(root, []).append(use)
        self._codes[target] = root, grid, use

    def _dequantize(self, node: onnx.NodeProto) -> None:
        source, target = node.input[0], node.output[0]
        grid = grid_of(node, self._model, self._problems)
        if self._model.graph.constant(source):
            if grid is not None:
                self.reading.fixed.append(QuantisedConstant(target, source, grid, codes=True))
            return
        self.reading.plain.append(node.name)
        if source not in self._codes:
            # where the QuantizeLinear itself is at fault, that is reported
            if source not in self.reading.integers:
                self._problems.add("qdq.open", source, f"read by {node.name}")
            return
        root, before, use = self._codes[source]
        if grid is not None and not grid.same(before):
            detail = f"{grid.step:g}, and {before.step:g} in {before.node}"
            self._problems.add("qdq.pair", node.name, detail)
        if use is not None:
            self.reading.roots[target] = root
            self._given[target] = use

    def _other(self, node: onnx.NodeProto) -> None:
        bodies = [item.g for item in node.attribute if item.type == AttributeProto.GRAPH]
        if any(inner.op_type in QDQ for body in bodies for inner in body.node):
            self._problems.add("qdq.subgraph", node.name)
        held = [name for name in node.input if name in self._codes]
        if held:
            self._move(node, held)

    def _move(self, node: onnx.NodeProto, held: list[str]) -> None:
        """A node that reads codes: what only moves them is one that moves floats."""
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
        """Refuses what cannot be translated.

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
        self._problems.refuse(self._model.source)
        if not any(node.op_type in QDQ for node in graph.node):
            raise ModelError(
                "the model has no QuantizeLinear or DequantizeLinear nodes",
                code="qdq.none",
                where=self._model.source,
                hint="it is plain already: edgekit calibrate measures its scales",
            )


# Constants of a Q/DQ model as the floats that the plain network holds.
#
# TensorRT's implicit INT8 quantises weights anew, per output channel: scale = amax / 127. A weight
# whose Q/DQ scales are just that keeps the floats of the file. Any other takes the values that its
# codes stand for: quantised anew they give the same codes wherever a channel has a code of 127,
# and a finer grid, with other codes, where it has none.


def values_of(fixed: QuantisedConstant, model: Model) -> np.ndarray:
    """Returns the floats that a quantised constant stands for, in its scales' type.

    As ONNX defines them: codes are round half to even of value / scale, saturated.
    """
    grid = fixed.grid
    source = constant_of(model, fixed.source)
    scale = grid.along(source)
    if fixed.codes:
        codes = source.astype(np.float32) - np.float32(grid.shift)
    else:
        low, high = (-128, 127)
        safe = np.where(scale > 0, scale, np.float32(1))
        codes = np.clip(np.rint(source.astype(np.float32) / safe), low, high)
    return np.ascontiguousarray((codes * scale).astype(grid.exact))


def requantised(value: np.ndarray, wanted: np.ndarray, axis: int) -> bool:
    """Whether ``value``, quantised per index of ``axis``, stands for ``wanted``."""
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


def keeps(
    fixed: QuantisedConstant,
    value: np.ndarray,
    model: Model,
    readers: Sequence[onnx.NodeProto],
) -> bool:
    """Whether the file's floats give the very codes when they are quantised anew.

    Args:
        fixed: A quantised constant.
        value: What it stands for.
        model: The one that has it.
        readers: What reads it, all of it.
    """
    if fixed.codes or not readers:
        return False
    original = constant_of(model, fixed.source)
    axes = [channel_axis(node, value.ndim) for node in readers]
    return all(axis is not None and requantised(original, value, axis) for axis in axes)


def other_codes(model: Model, names: set[str]) -> list[str]:
    """Returns the weights whose codes differ once they are quantised anew per output channel.

    Args:
        model: The plain model.
        names: Its constants that are quantised in the Q/DQ model and hold what codes stand for.
    """
    found: dict[str, None] = {}
    for node in model.proto.graph.node:
        name = node.input[1] if len(node.input) > 1 else ""
        value = model.weights.get(name)
        if name not in names or value is None:
            continue
        axis = channel_axis(node, value.ndim)
        if axis is not None and not requantised(value, value, axis):
            found[name] = None
    return list(found)
