"""Transpositions.

Transpositions merge, move after an operation, or become part of weights.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple, TypeAlias

from edgekit.network.graph import Attributes, Node
from edgekit.rewriting.graph import Replacement, RewriteGraph, Writer, rewrite
from edgekit.rewriting.rules.operands import reshape
from edgekit.rewriting.rules.reshapes import (
    ALONG,
    BROADCASTING,
    REDUCTIONS,
    SINGLE,
    Carried,
    Operand,
    is_reshape,
    moves_ones,
    parameters,
    permutation,
    reduced_axes,
    reduces_by_input,
    write,
    write_needed,
)

# batch and channels come before the axes of an image
_LED = 2
# operands after the first, attributes, dropped axes
_Found: TypeAlias = tuple[tuple[Operand, ...], Attributes, set[int]]
_ARG = ("ArgMax", "ArgMin")
_AXES = ("Pad", "Slice", "Split", "Tile", "Resize", "Gather")
#: All operators that :func:`without_transpose` supports.
TURNED = (
    *SINGLE,
    *BROADCASTING,
    *ALONG,
    *REDUCTIONS,
    *_ARG,
    *_AXES,
    "Concat",
    "BatchNormalization",
)
_LOOKED_AT = 16
_DLA_RANK = 4


def with_axes(graph: RewriteGraph, node: Node, perm: tuple[int, ...]) -> _Found | None:
    """Returns an operation's other operands, its attributes, and its dropped axes.

    Args:
        graph: The graph with the operation.
        node: Pad, Slice, Split, Tile, Resize or Gather, which reads a tensor transposed by
            ``perm``.
        perm: Source axis by axis.
    """
    if any(name and not graph.constant(name) for name in node.inputs[1:]):
        return None
    if node.op == "Split":
        axis = perm[node.attrs.get("axis", 0)]
        rest = tuple(Operand(name) for name in node.inputs[1:])
        return rest, {**node.attrs, "axis": axis}, set()
    if node.op == "Gather":
        return _gather(graph, node, perm)
    if node.op == "Slice":
        starts, ends = graph.ints(node.inputs[1]), graph.ints(node.inputs[2])
        if starts is None or ends is None:
            return None
        axes = (graph.ints(node.inputs[3]) if node.input(3) else None) or range(len(starts))
        steps = (graph.ints(node.inputs[4]) if node.input(4) else None) or [1] * len(starts)
        numbers = [starts, ends, [perm[axis] for axis in axes], steps]
        return tuple(Operand(numbers=tuple(item)) for item in numbers), {**node.attrs}, set()
    if node.op == "Pad":
        return _pad(graph, node, perm)
    if node.op == "Tile":
        times = graph.ints(node.inputs[1])
        if times is None:
            return None
        return (Operand(numbers=_by_source_axis(times, perm)),), {}, set()
    return _resize(graph, node, perm)


def _by_source_axis(values: list[int], perm: tuple[int, ...]) -> tuple[int, ...]:
    found = [0] * len(perm)
    for axis, value in enumerate(values):
        found[perm[axis]] = value
    return tuple(found)


def _gather(graph: RewriteGraph, node: Node, perm: tuple[int, ...]) -> _Found | None:
    axis = perm[node.attrs.get("axis", 0)]
    rank = graph.rank(node.inputs[1])
    # several index axes in place of one: the permutation after it is not ``perm`` any more
    if rank > 1:
        return None
    attrs = {**node.attrs, "axis": axis}
    return (Operand(node.inputs[1]),), attrs, {axis} if rank == 0 else set()


def _pad(graph: RewriteGraph, node: Node, perm: tuple[int, ...]) -> _Found | None:
    pads = graph.ints(node.inputs[1])
    if pads is None:
        return None
    axes = (graph.ints(node.inputs[3]) if node.input(3) else None) or range(len(perm))
    wide = [0] * (2 * len(perm))
    for index, axis in enumerate(axes):
        wide[perm[axis]] = pads[index]
        wide[perm[axis] + len(perm)] = pads[index + len(pads) // 2]
    value = (Operand(node.inputs[2]),) if node.input(2) else ()
    return (Operand(numbers=tuple(wide)), *value), {**node.attrs}, set()


def _resize(graph: RewriteGraph, node: Node, perm: tuple[int, ...]) -> _Found | None:
    # a region of interest lists all axes in order, too
    if node.input(1) or node.attrs.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        return None
    # only height and width of images: no runtime resizes other axes in every mode
    if len(perm) > _LED and any(perm[axis] < _LED for axis in _resized(graph, node)):
        return None
    attrs = dict(node.attrs)
    if "axes" in attrs:
        attrs["axes"] = [perm[axis] for axis in attrs["axes"]]
        return tuple(Operand(name) for name in node.inputs[1:]), attrs, set()
    if node.input(3):
        sizes = graph.ints(node.inputs[3])
        if sizes is None:
            return None
        return (Operand(), Operand(), Operand(numbers=_by_source_axis(sizes, perm))), attrs, set()
    scales = graph.value(node.inputs[2])
    if scales is None:
        return None
    there = [1.0] * len(perm)
    for axis, scale in enumerate(scales):
        there[perm[axis]] = float(scale)
    return (Operand(), Operand(node.inputs[2], numbers=tuple(there))), attrs, set()


def _resized(graph: RewriteGraph, node: Node) -> set[int]:
    """Returns the axes that a Resize changes, or may change."""
    source, target = graph.shape(node.inputs[0]), graph.shape(node.outputs[0])
    found = {axis for axis in range(len(source)) if source[axis] != target[axis]}
    scales = None if node.input(3) else graph.value(node.input(2))
    if scales is not None:
        # a scale near 1 can keep the size and still move every value
        which = [axis % len(source) for axis in node.attrs.get("axes", range(len(source)))]
        found |= {axis for axis, scale in zip(which, scales, strict=True) if scale != 1}
    return found


def without_transpose(graph: RewriteGraph, node: Node, perm: tuple[int, ...]) -> Carried | None:
    """Returns ``node``, which reads a tensor transposed by ``perm``, without the transposition.

    None if it reads another activation that is not transposed in the same way, or if the operation
    has no such form. ``Carried.perm`` turns the new results into the old results; it is the
    identity if the moved axes are dropped.
    """
    if node.op in BROADCASTING or node.op == "Concat":
        return _joining(graph, node, perm)
    source = graph.producer(node.inputs[0])
    assert source is not None
    data, passed = Operand(source.inputs[0]), (source,)
    if node.op in SINGLE and parameters(graph, node, 1):
        rest = tuple(Operand(name) for name in node.inputs[1:])
        return Carried((data, *rest), node.attrs, passed, perm)
    if node.op in ALONG:
        axis = perm[node.attrs.get("axis", -1)]
        return Carried((data,), {**node.attrs, "axis": axis}, passed, perm)
    # its vectors are by channel, the second dimension
    if node.op == "BatchNormalization" and perm[:2] == (0, 1):
        if node.attrs.get("training_mode") or any(node.outputs[1:]):
            return None
        return Carried((data, *map(Operand, node.inputs[1:])), node.attrs, passed, perm)
    if node.op in REDUCTIONS:
        return _reduction(graph, node, perm, data, passed)
    if node.op in _ARG:
        axis = perm[node.attrs.get("axis", 0)]
        keeps = bool(node.attrs.get("keepdims", 1))
        after = perm if keeps else _remaining_permutation(perm, {axis})
        return Carried((data,), {**node.attrs, "axis": axis}, passed, after)
    if node.op not in _AXES:
        return None
    found = with_axes(graph, node, perm)
    if found is None:
        return None
    rest, attrs, gone = found
    return Carried((data, *rest), attrs, passed, _remaining_permutation(perm, gone))


def _joining(graph: RewriteGraph, node: Node, perm: tuple[int, ...]) -> Carried | None:
    """Returns an operation that treats all its operands alike; None if it has no such form."""
    # broadcasting adds leading dimensions, which ``perm`` does not have
    if graph.rank(node.outputs[0]) != len(perm):
        return None
    operands: list[Operand] = []
    passed: dict[str, Node] = {}
    before = [graph.producer(name) for name in node.inputs]
    plain = {item.inputs[0] for item in before if item and _transposes(graph, item, perm)}
    # a sum of an input and its own transposition would turn endlessly
    fed = frozenset() if plain & set(graph.inputs) else frozenset(graph.inputs)
    for name in node.inputs:
        found = _operand_before(graph, name, perm, fed, scalars=node.op != "Concat")
        if found is None:
            return None
        operands.append(found[0])
        passed |= {item.name: item for item in found[1]}
    attrs = dict(node.attrs)
    if node.op == "Concat":
        attrs["axis"] = perm[attrs["axis"]]
        if len(perm) == 4 and attrs["axis"] != 1 and node.attrs["axis"] % 4 == 1:
            # the DLA joins only channels, which may be the purpose of the transpositions
            return None
    return Carried(tuple(operands), attrs, tuple(passed.values()), perm)


def _operand_before(
    graph: RewriteGraph, name: str, perm: tuple[int, ...], fed: frozenset[str], *, scalars: bool
) -> tuple[Operand, tuple[Node, ...]] | None:
    """Returns an operand before the transposition, with its transposition; None if impossible."""
    shape = graph.shape(name)
    # one element broadcasts in any order
    if scalars and all(side == 1 for side in shape) and (len(shape) < 2 or graph.constant(name)):
        return Operand(name), ()
    if len(shape) > len(perm):
        return None
    source = graph.producer(name)
    if source is not None and _transposes(graph, source, perm):
        return Operand(source.inputs[0]), (source,)
    back = tuple(sorted(range(len(perm)), key=lambda i: perm[i]))
    for reader in islice(graph.readers(name) if name in fed else (), _LOOKED_AT):
        # it is already transposed back for another reader
        if _transposes(graph, reader, back):
            return Operand(reader.outputs[0]), (reader,)
    wide = (*(1,) * (len(perm) - len(shape)), *shape)
    # a reshape, which moves no data
    if moves_ones(wide, back):
        target = tuple(wide[i] for i in back)
        return Operand(name, target if target != shape else None), ()
    if not graph.constant(name):
        return None
    # a constant is transposed by a recipe, once
    return Operand(name, wide if wide != shape else None, back), ()


def _transposes(graph: RewriteGraph, node: Node, perm: tuple[int, ...]) -> bool:
    return node.op == "Transpose" and not node.domain and permutation(graph, node) == perm


def _reduction(
    graph: RewriteGraph, node: Node, perm: tuple[int, ...], data: Operand, passed: tuple[Node, ...]
) -> Carried | None:
    axes = reduced_axes(graph, node)
    if axes is None:
        return None
    keeps = node.attrs.get("keepdims", 1)
    there = tuple(sorted(perm[axis] for axis in axes))
    after = perm if keeps else _remaining_permutation(perm, set(there))
    if reduces_by_input(node.op, graph.opset):
        return Carried((data, Operand(numbers=there)), {"keepdims": keeps}, passed, after)
    return Carried((data,), {"keepdims": keeps, "axes": list(there)}, passed, after)


def _remaining_permutation(perm: Sequence[int], gone: set[int]) -> tuple[int, ...]:
    """Returns the permutation of the remaining dimensions."""
    remaining = [i for i in perm if i not in gone]
    return tuple(sorted(remaining).index(i) for i in remaining)


@rewrite(
    "merge-transposes",
    operators=("Transpose",),
    reason="a transposition moves a whole tensor and often splits a loadable: one replaces "
    "several, and pairs that cancel are removed",
    enabling=True,
)
def merge_transposes(graph: RewriteGraph, node: Node) -> Replacement:
    """Transpose, Transpose -> Transpose.

    The second node reads the first node's input, so every application shortens a chain; the first
    stays for other readers. ``identity-removal`` removes a transposition without effect.

    At a transposition that reads a transposition.
    """
    first = graph.producer(node.inputs[0])
    if first is None or first.op != "Transpose" or first.domain:
        return
    new = yield (node, first)
    write_needed(graph, new, (first,), (node,))
    before, after = permutation(graph, first), permutation(graph, node)
    perm = [before[i] for i in after]
    new.node("Transpose", [first.inputs[0]], output=node.outputs[0], perm=perm)


@rewrite(
    "sink-transpose",
    operators=TURNED,
    reason="networks exported in N, H, W, C transpose around every convolution: moved after the "
    "operations, the transpositions cancel, except one at the network's end",
    enabling=True,
)
def sink_transpose(graph: RewriteGraph, node: Node) -> Replacement:
    """Transpose, operation -> operation, Transpose.

    The operation is element-wise, or works along axes, which are mapped; its constants are
    transposed by recipes. Several operands must all be transposed in the same way, or have only
    dimensions of size 1 to move; a graph input may be read if it is already transposed back. The
    number of paths from transpositions to operations gets smaller with every application, and no
    rewrite moves a transposition towards the inputs, so it ends. (A graph input that is read after
    its transposition adds a path; that happens when another operand loses a transposition, whose
    number before an operation is limited.) A Resize must change height and width on the other side.

    At an operation with a transposed operand.
    """
    several = node.op in BROADCASTING or node.op == "Concat"
    for name in dict.fromkeys(node.inputs if several else node.inputs[:1]):
        made = graph.producer(name)
        if made is None or made.op != "Transpose" or made.domain:
            continue
        there = without_transpose(graph, node, permutation(graph, made))
        if there is not None:
            break
    else:
        return
    passed, perm = there.passed, there.perm
    assert perm is not None
    new = yield (node, *passed)
    write_needed(graph, new, passed, (node,), there)
    # the moved axes are gone (a reduction): no transposition is left
    if perm == tuple(range(len(perm))):
        write(new, node, there, list(node.outputs))
        return
    results = write(new, node, there, [""] * len(node.outputs))
    gone = [item.name for item in passed if graph.inner(item.outputs[0], (node,))]
    for plain, old in zip(results, node.outputs, strict=True):
        # the transposition moves, so it keeps its name
        name = gone.pop() if gone else f"{node.name}:transpose"
        new.node("Transpose", [plain], output=old, name=name, perm=list(perm))


class _Product(NamedTuple):
    """Layout of a product's summed elements in its weights.

    Attributes:
        flat: Shape in which the product reads its data; None for the transposed shape.
        depth_first: True if the weights' summed dimension precedes the outputs' dimension.
        back: Permutation that undoes the transposition.
    """

    flat: tuple[int, ...] | None
    depth_first: bool
    back: tuple[int, ...]


@rewrite(
    "transpose-into-weights",
    operators=("Gemm", "MatMul", "Conv"),
    reason="in a network exported in N, H, W, C the classifier reads a transposed tensor: its "
    "weights are transposed instead, once",
    enabling=True,
)
def transpose_into_weights(graph: RewriteGraph, node: Node) -> Replacement:
    """Transpose, Flatten, Gemm (MatMul, 1x1 Conv) -> Flatten, Gemm with its weights transposed.

    Also Transpose, Conv whose window is the whole tensor. The sum is over all elements of a sample,
    so any order is correct if the weights have the same order; a recipe transposes them. Every
    application leaves one product fewer after a transposition.

    At a product of a transposition that keeps the batch, with or without a reshape between.
    """
    weights = node.input(1)
    if graph.constant(node.inputs[0]) or not graph.constant(weights):
        return
    if node.attrs.get("transA") or node.attrs.get("group", 1) != 1:
        return
    flatten = graph.producer(node.inputs[0])
    if flatten is None or not is_reshape(graph, flatten):
        flatten = None
    made = graph.producer(flatten.inputs[0] if flatten else node.inputs[0])
    if made is None or made.op != "Transpose" or made.domain:
        return
    perm, read = permutation(graph, made), graph.shape(node.inputs[0])
    data = graph.shape(made.outputs[0])
    depth = math.prod(data[1:])
    # the sum is within a sample
    if perm[0] != 0 or read[0] != data[0]:
        return
    flat = read[1] == depth
    fits = graph.rank(weights) == len(read) == (_DLA_RANK if node.op == "Conv" else 2)
    if node.op == "Conv":
        fits = fits and _covers(graph, node)
    if not fits or not (flat or (flatten is None and node.op == "Conv")):
        return
    back = tuple(sorted(range(len(perm)), key=lambda i: perm[i]))
    depth_first = node.op != "Conv" and not node.attrs.get("transB")
    product = _Product(read if flat else None, depth_first, back)
    passed = (flatten, made) if flatten else (made,)
    new = yield (node, *passed)
    # the transposition is still needed if the reshape after it stays
    removable = (node, passed[0]) if graph.inner(passed[0].outputs[0], (node,)) else (node,)
    for item in reversed(passed):
        write_needed(graph, new, (item,), removable)
    attrs = dict(node.attrs)
    weights = _transpose_weights(graph, new, weights, graph.shape(made.outputs[0]), product)
    source = made.inputs[0]
    if product.flat is not None:
        source = reshape(new, source, product.flat)
    elif node.op == "Conv":
        attrs["kernel_shape"] = list(graph.shape(source)[2:])
        # the window is the whole tensor: these have no effect, but strides and dilations are in the
        # old order of axes
        attrs.pop("auto_pad", None)
        attrs.pop("strides", None)
        attrs.pop("dilations", None)
    new.node(
        node.op,
        [source, weights, *node.inputs[2:]],
        output=node.outputs[0],
        name=node.name,
        **attrs,
    )


def _covers(graph: RewriteGraph, node: Node) -> bool:
    """Returns True if a convolution's window is the whole tensor, without padding."""
    spatial = graph.shape(node.inputs[0])[2:]
    window = graph.shape(node.inputs[1])[2:]
    spread = zip(window, node.attrs.get("dilations", ()), strict=False)
    plain = node.attrs.get("auto_pad", "NOTSET") in {"NOTSET", "VALID"}
    plain = plain and not any(node.attrs.get("pads", ()))
    return plain and spatial == window and all(k == 1 or d == 1 for k, d in spread)


def _transpose_weights(
    graph: RewriteGraph, new: Writer, weights: str, data: tuple[int, ...], product: _Product
) -> str:
    """Writes a recipe for the weights in the order before the transposition."""
    shape, back = graph.shape(weights), product.back
    if product.depth_first:
        wide = reshape(new, weights, (*data[1:], shape[1]))
        perm = [i - 1 for i in back[1:]] + [len(data) - 1]
    else:
        direct = product.flat is None
        wide = weights if direct else reshape(new, weights, (shape[0], *data[1:]))
        perm = list(back)
    made = new.node("Transpose", [wide], perm=perm)
    return made if product.flat is None else reshape(new, made, shape)
