"""The numerics of each unit: precision, rounding of values, and outputs of fused kernels."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import onnx

from edgekit.dla.precision import int8_operators
from edgekit.dla.scales import channel_axis
from edgekit.network.graph import OnnxGraph
from edgekit.network.model import SAME_VALUES
from edgekit.network.plugins import plugin_for
from edgekit.placement.segments import Segment, Unit

if TYPE_CHECKING:
    from edgekit.quantize.scales import Scales


_FLOAT = 1


def leaving_tensors(graph: OnnxGraph, unit: Unit) -> list[str]:
    """Returns the unit's tensors that other units or the caller may read."""
    inner = {name for node in unit.nodes for name in graph.variable_reads(node)}
    names = {node.name for node in unit.nodes}
    return [
        name
        for name in unit.writes
        if name not in inner
        or name in graph.outputs
        or any(reader not in names for reader in graph.readers.get(name, ()))
    ]


def _ends_in_arithmetic(unit: Unit) -> bool:
    """Returns True if the unit ends in arithmetic, so that its result first exists in FP32."""
    ops = int8_operators()
    return unit.ops[-1] in ops.computing and set(unit.ops) <= ops.computing | ops.moving


def float_results(
    graph: OnnxGraph, cuts: tuple[Segment, ...], precision: Mapping[str, str]
) -> set[str]:
    """Returns results that INT8 kernels on the GPU write as floats, as no INT8 unit reads them."""
    unit_of = {node.name: unit.name for cut in cuts for unit in cut.units for node in unit.nodes}
    found: set[str] = set()
    for segment in cuts:
        # a DLA writes INT8
        if segment.device != "GPU":
            continue
        for unit in segment.units:
            if precision[unit.name] == "int8" and _ends_in_arithmetic(unit):
                found.update(
                    name
                    for name in leaving_tensors(graph, unit)
                    if not any(
                        precision[unit_of[reader]] == "int8"
                        for reader in graph.readers.get(name, ())
                    )
                )
    return found


def inside_kernels(
    graph: OnnxGraph, cuts: tuple[Segment, ...], precision: Mapping[str, str]
) -> set[str]:
    """Returns the tensors that never leave a fused INT8 kernel."""
    inside: set[str] = set()
    for segment in cuts:
        writer = {name: unit for unit in segment.units for name in unit.writes}
        place = {unit.name: number for number, unit in enumerate(segment.units)}
        unit_of = {node.name: unit for unit in segment.units for node in unit.nodes}
        for unit in segment.units:
            if precision[unit.name] != "int8" or not set(unit.ops) <= int8_operators().pointwise:
                continue
            eligible: list[str] = []
            for name in unit.reads:
                source = writer.get(name)
                if (
                    source is not None
                    and precision[source.name] == "int8"
                    and _ends_in_arithmetic(source)
                    and name not in segment.outputs
                    and all(unit_of.get(reader) is unit for reader in graph.readers[name])
                ):
                    eligible.append(name)
            if eligible:
                # a sum of two chains: the later chain is fused, the earlier is read back as INT8
                written_at = {name: place[writer[name].name] for name in eligible}
                inside.add(max(eligible, key=written_at.__getitem__))
    return inside


def typed_inside(
    units: Iterable[Unit], precision: Mapping[str, str], quantised: Collection[str]
) -> set[str]:
    """Returns the tensors that INT8 units write and that have no Q/DQ nodes.

    In a strongly typed network the builder makes no choice: a tensor with Q/DQ nodes is INT8 for
    every reader, and an INT8 layer's result without Q/DQ nodes stays within its fused kernel.

    Args:
        units: The layers of a lane.
        precision: Precision by unit name.
        quantised: Tensors with Q/DQ nodes.
    """
    return {
        name
        for unit in units
        if precision[unit.name] == "int8"
        for name in unit.writes
        if name not in quantised
    }


@dataclass(frozen=True, eq=False)
class Numerics:
    """The numerics of a lane.

    Attributes:
        precision: "fp32", "fp16" or "int8" by unit name, after fall-backs.
        rounding: "none", "fp16" or "int8" by tensor that a unit writes.
        exact: Tensors that need no rounding because their values are already on the grid.
        scales: INT8 scale by tensor, inherited scales included.
        unscaled: Units meant for INT8 that lack a scale, with the tensors.
    """

    precision: Mapping[str, str]
    rounding: Mapping[str, str]
    exact: frozenset[str]
    scales: Mapping[str, float]
    unscaled: Mapping[str, tuple[str, ...]]


def decide(
    graph: OnnxGraph, cuts: tuple[Segment, ...], scales: Scales | None, *, alone: bool = True
) -> Numerics:
    """Chooses numerics for all units of a lane, and the rounding of all tensors.

    A build of several lanes (not ``alone``) has the same golden answer for all lanes. Lanes are cut
    at different places, so results that stay in FP16 to the end would differ a little.

    INT8 units fall back to FP16 if their operators have no INT8 kernel, their weights are not
    constants, or a tensor that they read or write lacks a scale. Falling back moves the borders
    of kernels, so the choice is repeated until it is stable.

    FP32 does not round. FP16 rounds the output of every layer. INT8 rounds at the borders of
    kernels: a chain that the target fuses (convolution, batch normalisation, sum, activation) stays
    in FP32 inside, and its result is rounded to INT8 with the tensor's scale. On the GPU an
    arithmetic kernel (not a pool, not a reshape) whose result no INT8 layer reads, such as logits
    before a softmax or a network output, writes floats rounded to FP16: TensorRT has such kernels
    and picks them, because INT8 has no advantage there. A DLA writes INT8.
    """
    known = _inherit_scales(graph, scales.scales if scales is not None else {})
    units = [unit for segment in cuts for unit in segment.units]
    precision = {unit.name: _has_int8_kernel(graph, unit) for unit in units}
    quantised = None if scales is None else scales.quantised
    # in a network with Q/DQ nodes the nodes decide
    if alone and quantised is None:
        _follow_floats(graph, units, precision)
    unscaled: dict[str, tuple[str, ...]] = {}
    while True:
        if quantised is None:
            inside = inside_kernels(graph, cuts, precision)
            floats = float_results(graph, cuts, precision)
        else:
            inside, floats = typed_inside(units, precision, quantised), set()
        fallen = {}
        for unit in units:
            if precision[unit.name] == "int8":
                weighted = int8_operators().weighted
                # a product reads codes even if its layer itself writes the input
                from_codes = [node.input[0] for node in unit.nodes if node.op_type in weighted]
                tensors = (*unit.reads, *leaving_tensors(graph, unit), *from_codes)
                border = [t for t in dict.fromkeys(tensors) if t not in inside | floats]
                lacking = tuple(t for t in border if graph.is_float32(t) and t not in known)
                if lacking:
                    fallen[unit.name] = lacking
        if not fallen:
            break
        unscaled.update(fallen)
        precision.update(dict.fromkeys(fallen, "fp16"))
    rounding: dict[str, str] = {}
    exact: set[str] = set()
    for unit in units:
        kind = {"fp32": "none", "fp16": "fp16", "int8": "int8"}[precision[unit.name]]
        left = set(leaving_tensors(graph, unit))
        for name in unit.writes:
            rounds = name in left and name not in inside and graph.is_float32(name)
            rounding[name] = kind if rounds else "none"
            if rounds and name in floats:
                rounding[name] = "fp16"
            elif rounds and _keeps_grid(graph, unit, name, kind, known, inside):
                exact.add(name)
    return Numerics(precision, rounding, frozenset(exact), known, unscaled)


def quantised_weight(graph: OnnxGraph, node: onnx.NodeProto) -> tuple[str, int] | None:
    """Returns the weight and output channel axis of a node that can run on INT8 codes."""
    inputs = list(node.input)
    if node.op_type not in int8_operators().weighted or len(inputs) < 2:
        return None
    weight = graph.weights.get(inputs[1])
    if weight is None or str(weight.dtype) != "float32" or weight.ndim < 2:
        return None
    # a constant has no calibrated range
    if inputs[0] in graph.initializers or inputs[0] in graph.derived:
        return None
    axis = channel_axis(node, weight.ndim)
    return None if axis is None else (inputs[1], axis)


def _inherit_scales(graph: OnnxGraph, scales: Mapping[str, float]) -> dict[str, float]:
    """Gives a tensor without a scale the scale of the tensor with the same values.

    TensorRT's layers, and so its calibration caches, do not have every ONNX tensor: it merges
    neighbouring shuffles and drops Dropout and Identity. If it merges all layers between a matrix
    product and a Transpose, only the result of the Transpose has a scale.
    """
    known = dict(scales)
    for node in graph.computed:
        reads = [name for name in graph.variable_reads(node) if graph.is_float32(name)]
        if (
            node.op_type in int8_operators().moving - {"Pad"}
            and len(reads) == 1
            and reads[0] in known
        ):
            for name in node.output:
                known.setdefault(name, known[reads[0]])
    # backwards, so that a chain of shuffles inherits in one pass
    for node in reversed(graph.computed):
        if node.op_type in SAME_VALUES and node.output[0] in known:
            for name in graph.variable_reads(node)[:1]:
                known.setdefault(name, known[node.output[0]])
    return known


def _keeps_grid(
    graph: OnnxGraph,
    unit: Unit,
    name: str,
    kind: str,
    scales: Mapping[str, float],
    inside: set[str],
) -> bool:
    """Returns True if the unit only moves or selects values that its inputs already rounded."""
    if not set(unit.ops) <= int8_operators().selecting:
        return False
    for node in unit.nodes:
        for source in node.input:
            stub = graph.initializers.get(source)
            # a constant among the operands was not rounded to the grid
            if source in graph.derived or (stub is not None and stub.data_type == _FLOAT):
                return False
    if kind == "int8":
        reads = [read for read in unit.reads if graph.is_float32(read)]
        # a tensor inside a kernel may have a scale, but was never rounded
        return all(scales[read] == scales[name] and read not in inside for read in reads)
    return True


def _has_int8_kernel(graph: OnnxGraph, unit: Unit) -> str:
    if unit.precision != "int8":
        return unit.precision
    for node in unit.nodes:
        if plugin_for(graph.plugins, node.op_type, node.domain) is not None:
            continue  # the plan has it in INT8 because it accepts INT8
        if node.op_type not in int8_operators().every:
            return "fp16"
        if node.op_type in int8_operators().weighted and quantised_weight(graph, node) is None:
            return "fp16"
    return "int8"


def _follow_floats(graph: OnnxGraph, units: list[Unit], precision: dict[str, str]) -> None:
    """Lets units that only move FP16 values for non-INT8 readers keep FP16.

    A reshape in INT8 after a softmax, which has no INT8, would round the network's result without
    an INT8 reader.
    """
    producer = {name: unit for unit in units for name in unit.writes}
    unit_of = {node.name: unit.name for unit in units for node in unit.nodes}
    for unit in units:
        if precision[unit.name] != "int8" or not set(unit.ops) <= int8_operators().moving:
            continue
        sources = [producer.get(name) for name in unit.reads if graph.is_float32(name)]
        readers = {
            unit_of[reader] for name in unit.writes for reader in graph.readers.get(name, ())
        } - {unit.name}
        floats = [source for source in sources if source and precision[source.name] != "int8"]
        # a network input, or an INT8 source or reader, keeps it in INT8
        if floats and floats == sources and all(precision[name] != "int8" for name in readers):
            precision[unit.name] = "fp16"
