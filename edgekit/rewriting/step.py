"""One application of a rewrite: the old and new nodes, with shapes and types by ONNX's shape
inference, and a check that FP16 can hold the numbers.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from functools import lru_cache

import numpy as np
import onnx
from onnx import helper, numpy_helper

from edgekit.network.graph import Node, form, node_proto
from edgekit.network.windows import POOLS, pool_output_sizes
from edgekit.rewriting.errors import MalformedError, TooLargeError
from edgekit.rewriting.graph import (
    LARGEST,
    NewConstant,
    Rewrite,
    RewriteGraph,
    RewriteStep,
    Writer,
    in_order,
)

# constants of up to this many elements are shown to shape inference
_SHOWN = 64
# operators with floating-point inputs that inference reads; other values would make equal steps
# differ
_READS_FLOATS = frozenset({"OneHot", "Range", "Resize", "Upsample"})
_REMEMBERED_SHAPES = 4096
#: Shape, type name and, if inference may need it, the value of a tensor read from outside.
_Outer = tuple[tuple[int, ...], str, "np.ndarray | None"]
_Found = Mapping[str, tuple[tuple[int, ...], str]]
# IEEE 754 binary16: the smallest normal number and the largest number
_LEAST, _MOST = 2.0**-14, 65504.0
# products of their weights are summed: small products are lost beside large products in any case
_SUMS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
# larger constants of the model are weights, whose values rewrites do not read
_SMALL = 4096


def infer(
    graph: RewriteGraph, rewrite: str, nodes: Sequence[Node], fixed: Sequence[NewConstant]
) -> tuple[dict[str, tuple[int, ...]], dict[str, str]]:
    """Returns the shapes and the types of every tensor that ``nodes`` write.

    Args:
        graph: The graph that gets the nodes.
        rewrite: Name of the rewrite, for errors.
        nodes: The nodes in topological order.
        fixed: Added constants.

    Raises:
        MalformedError: A shape is not static, or ONNX refuses the nodes.
    """
    brought = {item.name: item for item in fixed}
    written = {name for node in nodes for name in node.outputs if name}
    read = dict.fromkeys(n for node in nodes for n in node.inputs if n and n not in written)
    deciding = {n for node in nodes if node.op in _READS_FLOATS for n in node.inputs}
    outer = {
        name: _outer(graph, brought.get(name) or graph.added_constant(name), name, name in deciding)
        for name in read
    }
    made = _outputs(nodes)
    # by numbers, not names: the layers of a network repeat, and names are new at each
    key = _key(graph.opset, nodes, outer, {name: i for i, name in enumerate((*read, *made))})
    found = _cache().get(key)
    if found is None:
        if len(_cache()) >= _REMEMBERED_SHAPES:
            _cache().clear()
        # onnx infers shapes of whole models: each call builds, serialises and parses one
        by_name = _inferred(graph.opset, rewrite, nodes, outer)
        forms = [by_name[name] for name in made]
        found = _cache()[key] = [shape for shape, _ in forms], [dtype for _, dtype in forms]
    return dict(zip(made, found[0], strict=True)), dict(zip(made, found[1], strict=True))


@lru_cache(1)
def _cache() -> dict[Hashable, tuple[list[tuple[int, ...]], list[str]]]:
    return {}


def _outputs(nodes: Sequence[Node]) -> list[str]:
    return [name for node in nodes for name in node.outputs if name]


def _key(
    opset: int, nodes: Sequence[Node], outer: Mapping[str, _Outer], numbers: Mapping[str, int]
) -> Hashable:
    rows: list[Hashable] = [
        (
            form(node),
            tuple(numbers.get(name, -1) for name in (*node.inputs, *node.outputs)),
        )
        for node in nodes
    ]
    rows += [
        (shape, dtype, None if value is None else value.tobytes())
        for shape, dtype, value in outer.values()
    ]
    return opset, tuple(rows)


def _outer(graph: RewriteGraph, item: NewConstant | None, name: str, floats: bool) -> _Outer:
    shape = tuple(item.value.shape) if item else graph.shape(name)
    dtype = item.dtype if item else graph.dtype(name)
    value = None
    # shapes, axes and the like decide output shapes; values of weights do not, and would only split
    # the cache
    if math.prod(shape) <= _SHOWN and (floats or not dtype.startswith(("float", "bfloat"))):
        value = item.stored() if item else graph.value(name)
    return shape, dtype, value


def _inferred(
    opset: int, rewrite: str, nodes: Sequence[Node], outer: Mapping[str, _Outer]
) -> _Found:
    """Infers all nodes at once; nodes after a pool that onnx makes too long are inferred again."""
    found = _by_onnx(opset, rewrite, nodes, outer)
    for index, node in enumerate(nodes):
        if node.op not in POOLS or not node.attrs.get("ceil_mode"):
            continue
        name = node.inputs[0]
        source = outer[name][0] if name in outer else found[name][0]
        shape = found[node.outputs[0]][0]
        # with ceil_mode, onnx counts a last window entirely in the end padding; runtimes drop it
        right = (*shape[:2], *pool_output_sizes(node.attrs, source[2:], shape[2:]))
        if right == shape:
            continue
        done: dict[str, tuple[tuple[int, ...], str]] = {
            name: found[name] for name in _outputs(nodes[:index])
        }
        done |= {name: (right, found[name][1]) for name in _outputs([node])}
        known = {name: (shape, dtype, None) for name, (shape, dtype) in done.items()}
        return {**done, **_inferred(opset, rewrite, nodes[index + 1 :], {**outer, **known})}
    return found


def _by_onnx(
    opset: int, rewrite: str, nodes: Sequence[Node], outer: Mapping[str, _Outer]
) -> _Found:
    inputs, constants = [], []
    for name, (shape, dtype, value) in outer.items():
        if value is not None:
            constants.append(numpy_helper.from_array(value, name))
            continue
        elem = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        inputs.append(helper.make_tensor_value_info(name, elem, shape))
    # no declared outputs: inference then lists every tensor of the nodes in value_info
    body = helper.make_graph([node_proto(node) for node in nodes], "step", inputs, [], constants)
    proto = helper.make_model(body, opset_imports=[helper.make_opsetid("", opset)])
    try:
        # data_prop follows shapes that nodes compute, for example a Concat that a Reshape reads
        made = onnx.shape_inference.infer_shapes(proto, strict_mode=True, data_prop=True)
    except onnx.shape_inference.InferenceError as error:
        raise MalformedError(f"{rewrite} wrote nodes that ONNX refuses: {error}") from error
    found: dict[str, tuple[tuple[int, ...], str]] = {}
    for value in made.graph.value_info:
        tensor = value.type.tensor_type
        if tensor.HasField("shape") and all(d.HasField("dim_value") for d in tensor.shape.dim):
            dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type).name
            found[value.name] = tuple(d.dim_value for d in tensor.shape.dim), dtype
    missing = set(_outputs(nodes)) - set(found)
    if missing:
        raise MalformedError(f"{rewrite} leaves the shape of {min(missing)!r} open")
    return found


def in_half(*values: float) -> bool:
    """Returns True if each value is zero or a normal number of FP16.

    The DLA computes in FP16 or INT8, so a factor outside is infinite there, or inexact.
    """
    return all(value == 0 or _LEAST <= abs(value) <= _MOST for value in values)


def fits_half(graph: RewriteGraph, step: RewriteStep) -> bool:
    """Returns True if FP16 can hold the floating-point constants that a step adds.

    Constants of the replaced nodes may stay, whatever their value. Inputs of recipes are not
    constants of the new nodes, and results of recipes depend on weights.
    """
    fixed = {item.name: item for item in step.fixed if item.value.dtype.kind == "f"}
    had: set[float] | None = None
    for node in step.new:
        if node.name in step.recipes:
            continue
        for name in node.inputs:
            if name not in fixed:
                continue
            beyond = _magnitudes_beyond_fp16(fixed[name], node)
            if beyond:
                # rarely needed, and reads constants: only with the first number out of range
                had = _old_magnitudes(graph, step) if had is None else had
                if not beyond <= had:
                    return False
    return True


def _magnitudes_beyond_fp16(item: NewConstant, node: Node) -> set[float]:
    """Returns the magnitudes that FP16 cannot hold, rounded to FP32."""
    sizes = np.abs(item.value.reshape(-1))
    # a bias is added by itself, so none of its values is small beside another
    if node.op in _SUMS and item.name != node.input(2):
        sizes = sizes.max(initial=0.0, keepdims=True)
    held = (sizes == 0) | ((sizes >= _LEAST) & (sizes <= _MOST))
    return set() if held.all() else _magnitudes(sizes[~held])


def _old_magnitudes(graph: RewriteGraph, step: RewriteStep) -> set[float]:
    found: set[float] = set()
    for node in step.old:
        for name in node.inputs:
            if name and graph.constant(name) and graph.floats(name):
                # a larger constant is a memory map that this would read from disk
                small = math.prod(graph.shape(name)) <= _SMALL
                value = graph.value(name) if small else None
                found |= set() if value is None else _magnitudes(value)
        for value in node.attrs.values():
            if isinstance(value, float):
                found |= _magnitudes(value)
    return found


def _magnitudes(value: np.ndarray | float) -> set[float]:
    return set(np.abs(np.asarray(value, np.float32)).reshape(-1).tolist())


def step_at(graph: RewriteGraph, rewrite: Rewrite, node: Node) -> RewriteStep | None:
    """Returns the step of ``rewrite`` at ``node``; None if it does not match.

    Also None if it would add numbers that FP16, in which the DLA computes, cannot hold, or
    constants so large that reading them takes longer than the replaced nodes.

    Raises:
        MalformedError: An output is missing, or changes its shape or type.
    """
    # rewrites know ai.onnx only; another domain may use the same name for another operator
    if node.op not in rewrite.operators or node.domain:
        return None
    return find_step(graph, rewrite, node)


def find_step(graph: RewriteGraph, rewrite: Rewrite, node: Node) -> RewriteStep | None:
    """Like :func:`step_at`, for a node with an operator of ``rewrite``."""
    replacement = rewrite.at(graph, node)
    old = next(replacement, None)
    if old is None:
        return None
    new = Writer(graph, old)
    try:
        replacement.send(new)
    # the generator's normal end, after it wrote its nodes
    except StopIteration:
        pass
    except TooLargeError:
        return None
    step = _step(graph, rewrite, old, new)
    return (
        step if _count_added_elements(graph, step) <= LARGEST and fits_half(graph, step) else None
    )


def _count_added_elements(graph: RewriteGraph, step: RewriteStep) -> int:
    """Returns the elements of the new nodes' constants, less those of the old nodes."""
    sizes = {item.name: item.value.size for item in step.fixed}
    sizes |= {
        name: math.prod(step.shapes[name])
        for node in step.new
        if node.name in step.recipes
        for name in node.outputs
        if name
    }
    made = [node for node in step.new if node.name not in step.recipes]
    return _count_constant_elements(graph, made, sizes) - _count_constant_elements(
        graph, step.old, {}
    )


def _count_constant_elements(
    graph: RewriteGraph, nodes: Sequence[Node], sizes: Mapping[str, int]
) -> int:
    total = 0
    for name in {name for node in nodes for name in node.inputs if name}:
        if name in sizes:
            total += sizes[name]
        elif graph.constant(name):
            total += math.prod(graph.shape(name))
    return total


def _step(graph: RewriteGraph, rewrite: Rewrite, old: tuple[Node, ...], new: Writer) -> RewriteStep:
    written = {name for node in old for name in node.outputs if name}
    read = dict.fromkeys(name for node in old for name in node.inputs if name)
    inputs = tuple(n for n in read if n not in written and not graph.constant(n))
    # sorted: the order of a set would differ from run to run, and with it the record
    outputs = tuple(sorted(n for n in written if not graph.inner(n, old)))
    shapes, dtypes = infer(graph, rewrite.name, new.nodes, new.fixed)
    for name in outputs:
        if name not in shapes:
            raise MalformedError(f"{rewrite.name} at {old[0].name} does not write {name!r}")
        was, made = (graph.dtype(name), graph.shape(name)), (dtypes[name], shapes[name])
        if was != made:
            raise MalformedError(
                f"{rewrite.name} at {old[0].name} makes {name!r} {made}, it was {was}"
            )
    return RewriteStep(
        rewrite,
        old[0].name,
        in_order(old),
        tuple(new.nodes),
        frozenset(new.recipes),
        tuple(new.fixed),
        shapes,
        dtypes,
        inputs,
        outputs,
    )
