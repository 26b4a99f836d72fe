"""INT32 sums of INT8 products that float32 could not hold.

Which form a layer gets follows from its shape alone, so that a refit with other weights needs no
build. ONNX Runtime's integer kernels are used with UINT8 on both sides, 128 above the codes: those
widen before they multiply, so that they are exact on every CPU, where UINT8 by INT8 saturates sums
of two products on AVX2 (ONNX Runtime, "Quantize ONNX models", data type selection). They came with
opset 10. Deconvolutions, which have no integer kernel, and engines that cannot be lifted to opset
10 add parts in float64, each of them exact in float32.
"""

from __future__ import annotations

from math import gcd, prod
from typing import TYPE_CHECKING, Any

from edgekit.build._graph import Cut, Graph
from edgekit.build._levels import EXACT_PRODUCTS
from edgekit.build._numerics import Numerics, quantised_weight
from edgekit.errors import BuildError

if TYPE_CHECKING:
    from collections.abc import Iterable

    import onnx

    from edgekit.build._emit import Engine

__all__ = ["engine_opset", "products", "write_sum"]

_FLOAT, _UINT8, _INT32, _DOUBLE = 1, 2, 6, 11
_OLDEST_OPSET, _INTEGER_OPSET = 7, 10
# opset 10 gave them optional attributes, and changed nothing else that a CPU's inference sees
_GREW = frozenset({"AveragePool", "Dropout", "MaxPool"})


def products(graph: Graph, node: onnx.NodeProto, axis: int) -> int:
    """Returns the most products that one output of a weighted node adds up."""
    shape: list[int] = list(graph.initializers[node.input[1]].dims)
    if node.op_type != "ConvTranspose":
        return prod(shape) // shape[axis]
    groups: int = _attribute(node, "group", 1)
    return (shape[0] // groups) * _taps(node, shape[2:])


def _taps(node: onnx.NodeProto, kernel: list[int]) -> int:
    """Returns how many places of a deconvolution's kernel meet in one output.

    An output takes every (stride / gcd(stride, dilation))-th place.
    """
    one = [1] * len(kernel)
    strides, dilations = _attribute(node, "strides", one), _attribute(node, "dilations", one)
    every = [s // gcd(s, d) for s, d in zip(strides, dilations, strict=True)]
    return prod(-(-size // step) for size, step in zip(kernel, every, strict=True))


def engine_opset(graph: Graph, segment: Cut, numerics: Numerics) -> int:
    """Returns the opset for a segment: the model's, or 10 where long sums need and allow it.

    Raises:
        BuildError: The model's is too old for broadcasting, which rounding needs.
    """
    opset = next((o.version for o in graph.model.proto.opset_import if not o.domain), 0)
    rounds = any(p != "fp32" for p in numerics.precision.values())
    if rounds and 0 < opset < _OLDEST_OPSET:
        raise BuildError(
            f"opset {opset} is too old to write FP16 or INT8 numerics into the graph",
            code="build.opset",
            where=graph.model.source,
            hint=f"convert the model to opset {_OLDEST_OPSET} or later, 13 is a good choice",
        )
    if not 0 < opset < _INTEGER_OPSET or graph.model.proto.functions:
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
    nodes = [*segment.nodes, *graph.constants.values()]
    return _INTEGER_OPSET if _means_the_same(nodes, opset) else opset


def _means_the_same(nodes: Iterable[onnx.NodeProto], opset: int) -> bool:
    """Tells whether nodes of an older opset are the same nodes in opset 10."""
    import onnx.defs

    for node in nodes:
        if node.domain:
            continue
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


def write_sum(engine: Engine, node: onnx.NodeProto, weight: str, target: str) -> str:
    """Writes the sums of a weighted node's products, exact whatever the codes, as floats.

    Args:
        engine: Where to.
        node: A convolution, deconvolution, Gemm or MatMul that reads INT8 codes.
        weight: The stub of its INT8 weights.
        target: Name of the node's result, for names of what is added.

    Returns:
        Name of the sums, each rounded once to float32, as INT32 is when scales are applied.
    """
    if node.op_type == "ConvTranspose" or engine.out.opset < _INTEGER_OPSET:
        return _in_parts(engine, node, weight, target)
    data = node.input[0]
    codes = engine.quantised(data, data, shifted=True)
    shifted = _shifted(engine, weight)
    if node.op_type == "Conv":
        op, attributes = "ConvInteger", _attributes(node)
    else:
        op, attributes = "MatMulInteger", {}
        codes, shifted = _turned(engine, node, codes, shifted, target)
    zero = "#zero128"
    sums = engine.out.node(op, [codes, shifted, zero, zero], f"{target}#int", **attributes)
    return engine.out.cast(sums, f"{target}#sum", _FLOAT)


def _shifted(engine: Engine, weight: str) -> str:
    """Writes INT8 weights as UINT8, 128 above."""
    import numpy as np

    wide = engine.out.cast(weight, f"{weight}#wide", _INT32)
    if f"{weight}#up" not in engine.out.made:
        shift = engine.out.constant("#shift128", np.array(128, np.int32))
        engine.out.node("Add", [wide, shift], f"{weight}#up")
    return engine.out.cast(f"{weight}#up", f"{weight}#u8", _UINT8)


def _turned(
    engine: Engine, node: onnx.NodeProto, codes: str, weight: str, target: str
) -> tuple[str, str]:
    """Transposes what a Gemm reads transposed."""
    if node.op_type == "Gemm":
        if _attribute(node, "transA", 0):
            codes = engine.out.node("Transpose", [codes], f"{target}#a", perm=[1, 0])
        if _attribute(node, "transB", 0):
            weight = engine.out.node("Transpose", [weight], f"{target}#b", perm=[1, 0])
    return codes, weight


def _in_parts(engine: Engine, node: onnx.NodeProto, weight: str, target: str) -> str:
    """Writes the sums over parts of the input channels, and their sum in float64."""
    data = node.input[0]
    codes = engine.codes(data, data)
    values = engine.out.cast(weight, f"{weight}#float", _FLOAT)
    shape = list(engine.graph.initializers[node.input[1]].dims)
    groups = 1
    if node.op_type in ("Gemm", "MatMul"):
        op, attributes, channels = "MatMul", {}, -1 if node.op_type == "MatMul" else 1
        codes, values = _turned(engine, node, codes, values, target)
        turned = node.op_type == "Gemm" and _attribute(node, "transB", 0)
        size, taps, weight_axis = shape[1 if turned else 0], 1, 0
    else:
        op, channels, attributes = node.op_type, 1, _attributes(node)
        groups = int(attributes.pop("group", 1))
        deconvolution = op == "ConvTranspose"
        size = shape[0] // groups if deconvolution else shape[1]
        taps = _taps(node, shape[2:]) if deconvolution else prod(shape[2:])
        weight_axis = 0 if deconvolution else 1
    # a kernel of more than EXACT_PRODUCTS places a channel would still leave the exact integers
    part = max(1, EXACT_PRODUCTS // taps)
    sizes = [min(part, size - start) for start in range(0, size, part)]
    inputs = _split(engine, codes, sizes * groups, channels, f"{target}#x")
    outputs = shape[0] // groups
    rows = [values]
    if weight_axis and groups > 1:
        rows = _split(engine, values, [outputs] * groups, 0, f"{target}#g")
    if weight_axis:
        kernels = [
            kernel
            for number, row in enumerate(rows)
            for kernel in _split(engine, row, sizes, 1, f"{target}#w{number}")
        ]
    else:
        kernels = _split(engine, values, sizes * groups, 0, f"{target}#w")
    totals = []
    for group in range(groups):
        parts = []
        for number in range(group * len(sizes), (group + 1) * len(sizes)):
            name = f"{target}#part{number}"
            engine.out.node(op, [inputs[number], kernels[number]], name, **attributes)
            parts.append(engine.out.cast(name, f"{name}#double", _DOUBLE))
        totals.append(engine.out.node("Sum", parts, f"{target}#total{group}"))
    whole = totals[0]
    if groups > 1:
        whole = engine.out.node("Concat", totals, f"{target}#total", axis=1)
    return engine.out.cast(whole, f"{target}#sum", _FLOAT)


def _split(engine: Engine, source: str, sizes: list[int], axis: int, target: str) -> list[str]:
    if len(sizes) == 1:
        return [source]
    return engine.out.split(source, sizes, axis, target)


def _attribute(node: onnx.NodeProto, name: str, default: Any) -> Any:
    return _attributes(node).get(name, default)


def _attributes(node: onnx.NodeProto) -> dict[str, Any]:
    from onnx import helper

    return {a.name: helper.get_attribute_value(a) for a in node.attribute}
