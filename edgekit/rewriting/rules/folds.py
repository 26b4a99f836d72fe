"""Matrix products, scales and padding as convolutions.

Gemm and MatMul with constant weights become convolutions; scales around a convolution go into its
weights and bias, a Pad into the padding of the next one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from edgekit.dla.rules import rule_range
from edgekit.network.graph import Node
from edgekit.network.windows import KernelWindow
from edgekit.rewriting.graph import Replacement, RewriteGraph, Writer, rewrite
from edgekit.rewriting.rules.convolutions import (
    Conv,
    in_rule_range,
    plan_split,
    read_conv,
    too_large,
    too_padded,
    vector,
    write_again,
    write_channels,
    write_conv,
    write_plan,
    write_zeros,
)
from edgekit.rewriting.rules.pools import pad_pool
from edgekit.rewriting.rules.reshapes import RESHAPES

# most consecutive views that are followed
_MOST_VIEWS = 4
_RANKS = (2, 3, 4)
# channels last to channels first, and back
_FIRST, _LAST = [0, 3, 1, 2], [0, 2, 3, 1]
_SWAPPED = [0, 2, 1, 3]
_ARITHMETIC = frozenset({"Add", "Sub", "Mul", "Div"})
# most readers of a Pad that are checked
_MOST_READERS = 8


class ProductSource(NamedTuple):
    """The input of a product of rows, as an image.

    Attributes:
        tensor: The tensor; reshaped first if its shape differs from ``shape``.
        shape: [rows, C, H, W], with C H W the length of a row.
        views: Reshapes between it and the product, the nearest to the product first.
        shared: Number of the last ``views`` that other nodes read, too.
    """

    tensor: str
    shape: tuple[int, ...]
    views: tuple[Node, ...] = ()
    shared: int = 0


class Dense(NamedTuple):
    """A product [rows, depth] x [depth, columns].

    Attributes:
        source: Its input.
        weight: The matrix.
        turned: True if the matrix is stored [columns, depth].
        columns: Number of columns.
        bias: Constant of one element or one for each column; "" if there is none.
        factor: Factor of the matrix (Gemm's alpha).
        bias_factor: Factor of the bias (Gemm's beta).
    """

    source: ProductSource
    weight: str
    turned: bool
    columns: int
    bias: str = ""
    factor: float = 1.0
    bias_factor: float = 1.0


def find_image(graph: RewriteGraph, tensor: str, reader: Node) -> ProductSource:
    """Returns the image [N, C, H, W] whose flattened rows are ``tensor`` [N, C H W].

    Follows reshapes, which all keep the order of the elements. Without an image that fits into one
    window of a DLA convolution, the rows become [N, depth, 1, 1], or a column of the smallest
    height if they are longer than the DLA's channels.
    """
    rows, depth = graph.shape(tensor)
    current, last = tensor, reader
    views: list[Node] = []
    reused, found = 0, None
    largest = None
    for _ in range(_MOST_VIEWS):
        view = graph.producer(current)
        if view is None or view.op not in RESHAPES or view.domain or graph.constant(view.inputs[0]):
            break
        # if a view stays for other readers, all views above it stay, too
        reused += bool(reused) or not graph.inner(current, [last])
        views.append(view)
        current, last = view.inputs[0], view
        shape = graph.shape(current)
        # a view that mixes samples is no image of these rows
        if len(shape) != 4 or shape[0] != rows:
            continue
        here = ProductSource(current, shape, tuple(views), reused)
        largest = largest or here
        if in_rule_range("general.dimension", shape[1]) and in_rule_range(
            "convolution.kernel", *shape[2:]
        ):
            # no break: the furthest image leaves the fewest reshapes
            found = here
    if found is not None:
        return found
    if in_rule_range("general.dimension", depth):
        return ProductSource(tensor, (rows, depth, 1, 1))
    if largest is not None:
        # the window is too large for the DLA; other rewrites split it
        return largest
    for height in range(2, rule_range("convolution.kernel")[1] + 1):
        if depth % height == 0 and in_rule_range("general.dimension", depth // height):
            return ProductSource(tensor, (rows, depth // height, height, 1))
    return ProductSource(tensor, (rows, depth, 1, 1))


def write_dense(graph: RewriteGraph, new: Writer, dense: Dense, output: str, name: str) -> None:
    """Writes a product as a convolution over the whole window; ``output`` is [rows, columns]."""
    shape = dense.source.shape
    data = dense.source.tensor
    # the views were collected upwards
    for view in reversed(dense.source.views[len(dense.source.views) - dense.source.shared :]):
        write_again(new, view)
    if graph.shape(data) != shape:
        data = new.node("Reshape", [data, new.constant(list(shape))], role="image")
    weight = dense.weight
    if not dense.turned:
        weight = new.node("Transpose", [weight], perm=[1, 0])
    # a recipe for nothing would be part of the record and of each refit
    if dense.factor != 1.0:
        weight = new.node("Mul", [weight, new.constant(dense.factor)])
    weight = new.node("Reshape", [weight, new.constant([dense.columns, *shape[1:]])])
    bias = column_bias(graph, new, dense)
    window = KernelWindow(shape[2:], (1, 1), (0, 0, 0, 0), (1, 1))
    made = write_conv(new, [data, weight, bias], window, name=name)
    rows = new.constant([shape[0], dense.columns])
    new.node("Reshape", [made, rows], output=output, name=f"{name}:rows")


def column_bias(graph: RewriteGraph, new: Writer, dense: Dense) -> str:
    """Returns the bias of a product as [columns]; "" if there is none."""
    if not dense.bias or dense.bias_factor == 0.0:
        return ""
    bias = vector(graph, new, dense.bias, dense.columns)
    if dense.bias_factor != 1.0:
        bias = new.node("Mul", [bias, new.constant(dense.bias_factor)])
    return bias


def per_column(shape: Sequence[int], columns: int) -> bool:
    """Returns True if a constant has one element, or one for each column in its last dimension."""
    return math.prod(shape) == 1 or (math.prod(shape) == columns and shape[-1] == columns)


def pointwise(new: Writer, data: str, weight: str, bias: str, name: str) -> str:
    """Writes a 1x1 convolution."""
    window = KernelWindow((1, 1), (1, 1), (0, 0, 0, 0), (1, 1))
    return write_conv(new, [data, weight, bias], window, name=name)


@rewrite(
    "gemm-to-conv",
    operators=("Gemm",),
    reason="a matrix product runs on the DLA only as a convolution, and Flatten before it does not "
    "run there; a convolution over the whole image needs no Flatten",
    enabling=True,
)
def gemm_to_conv(graph: RewriteGraph, node: Node) -> Replacement:
    """Gemm(flatten(x), W, b) -> Reshape(Conv(x, W as a window over all of x, b)).

    A Gemm on rows without an image is a 1x1 convolution on [N, C, 1, 1]. Not supported: a
    transposed first operand (it would require a transposition of the batch), a computed matrix, and
    a third operand other than one vector for all rows.

    Gemm of an activation and a constant matrix.
    """
    data, weight, bias = node.inputs[0], node.inputs[1], node.input(2)
    if node.attrs.get("transA", 0) or not graph.floats(node.outputs[0]):
        return
    if graph.constant(data) or not graph.constant(weight):
        return
    columns = graph.shape(node.outputs[0])[1]
    if bias and not (graph.constant(bias) and per_column(graph.shape(bias), columns)):
        return
    source = find_image(graph, data, node)
    turned = bool(node.attrs.get("transB", 0))
    factors = [float(node.attrs.get(key, 1.0)) for key in ("alpha", "beta")]
    new = yield (node, *source.views)
    dense = Dense(source, weight, turned, columns, bias, *factors)
    write_dense(graph, new, dense, node.outputs[0], node.name)


@rewrite(
    "matmul-to-conv",
    operators=("MatMul",),
    reason=(
        "the DLA has no matrix product; one with a constant matrix is a 1x1 convolution over "
        "the channels"
    ),
    enabling=True,
)
def matmul_to_conv(graph: RewriteGraph, node: Node) -> Replacement:
    """MatMul(x, W) -> a 1x1 convolution over x's last axis, with the Add after it as its bias.

    Rows [N, C] become images as for Gemm; [N, L, C] and [N, H, W, C] are transposed to channels
    first and back. MatMul(W, x) works along x's second-last axis, without a transposition for
    [N, C, L]. A matrix for each batch is not supported: convolutions have one weight tensor.

    MatMul of an activation of 2 to 4 dimensions and one constant matrix.
    """
    fixed = [graph.constant(name) for name in node.inputs]
    if sum(fixed) != 1 or not graph.floats(node.outputs[0]):
        return
    data, weight = node.inputs if fixed[1] else reversed(node.inputs)
    rank, matrix = graph.rank(data), graph.shape(weight)
    # a matrix for each sample
    several = math.prod(matrix[:-2]) != 1 or len(matrix) > rank
    if rank not in _RANKS or len(matrix) < 2 or several:
        return
    columns = matrix[-2] if fixed[0] else matrix[-1]
    nodes, bias, output = [node], "", node.outputs[0]
    # a bias is by output channel, and with the matrix on the left the columns are not channels
    add = None if fixed[0] else graph.only_reader(output)
    found = _bias(graph, add, output, columns)
    if add is not None and found:
        nodes, bias, output = [node, add], found, add.outputs[0]
    source = ProductSource(data, graph.shape(data))
    if rank == 2 and fixed[1]:
        source = find_image(graph, data, node)
        nodes += source.views
    new = yield tuple(nodes)
    if len(matrix) > 2:
        matrix = matrix[-2:]
        weight = new.node("Reshape", [weight, new.constant(list(matrix))])
    dense = Dense(source, weight, fixed[0], columns, bias)
    if rank == 2 and fixed[1]:
        write_dense(graph, new, dense, output, node.name)
        return
    if fixed[1]:
        weight = new.node("Transpose", [weight], perm=[1, 0])
    weight = new.node("Reshape", [weight, new.constant([columns, matrix[int(fixed[0])], 1, 1])])
    if fixed[0]:
        _columns(graph, new, source, weight, output, node.name)
    else:
        _rows(new, dense, weight, column_bias(graph, new, dense), output, node.name)


def _bias(graph: RewriteGraph, add: Node | None, tensor: str, columns: int) -> str:
    """Returns the constant that an Add after the product adds to each column; "" if none."""
    if add is None or add.op != "Add" or add.domain:
        return ""
    other = next((name for name in add.inputs if name != tensor), "")
    if not other or not graph.constant(other) or not per_column(graph.shape(other), columns):
        return ""
    # a constant of more dimensions makes the Add's result larger
    return other if graph.rank(other) <= graph.rank(tensor) else ""


def _rows(new: Writer, dense: Dense, weight: str, bias: str, output: str, name: str) -> None:
    """Writes a product of rows, [N, L, C] or [N, H, W, C]."""
    data, shape = dense.source.tensor, dense.source.shape
    flat = len(shape) == 3
    if flat:
        wide = new.constant([shape[0], shape[1], 1, shape[2]])
        data = new.node("Reshape", [data, wide], name=f"{name}:image")
    data = new.node("Transpose", [data], name=f"{name}:first", perm=_FIRST)
    made = pointwise(new, data, weight, bias, name)
    last = "" if flat else output
    made = new.node("Transpose", [made], output=last, name=f"{name}:last", perm=_LAST)
    if flat:
        rows = new.constant([*shape[:-1], dense.columns])
        new.node("Reshape", [made, rows], output=output, name=f"{name}:rows")


def _columns(
    graph: RewriteGraph, new: Writer, source: ProductSource, weight: str, output: str, name: str
) -> None:
    """Writes a product with the matrix on the left, of [C, L], [N, C, L] or [N, B, C, L]."""
    data, shape = source.tensor, source.shape
    if len(shape) == 4:
        data = new.node("Transpose", [data], name=f"{name}:first", perm=_SWAPPED)
        made = pointwise(new, data, weight, "", name)
        new.node("Transpose", [made], output=output, name=f"{name}:last", perm=_SWAPPED)
        return
    batch = shape[0] if len(shape) == 3 else 1
    image = new.constant([batch, *shape[-2:], 1])
    data = new.node("Reshape", [data, image], name=f"{name}:image")
    made = pointwise(new, data, weight, "", name)
    rows = new.constant(list(graph.shape(output)))
    new.node("Reshape", [made, rows], output=output, name=f"{name}:rows")


class Scale(NamedTuple):
    """A node that scales or shifts each channel by constants.

    Attributes:
        node: BatchNormalization, Add, Sub, Mul or Div.
        data: The activation that it reads.
        channels: Channels of the activation.
        operand: The constant operand; "" for a BatchNormalization.
        turned: True if the constant is the left operand.
    """

    node: Node
    data: str
    channels: int
    operand: str = ""
    turned: bool = False

    @property
    def shifts(self) -> bool:
        """True if it adds a constant."""
        return self.node.op not in {"Mul", "Div"}


def read_scale(graph: RewriteGraph, node: Node | None) -> Scale | None:
    """Returns a node's scale of each channel of [N, C, H, W]; None for any other node."""
    if node is None or node.domain or not node.outputs:
        return None
    if node.op == "BatchNormalization":
        return _batch_norm(graph, node)
    if node.op not in _ARITHMETIC:
        return None
    fixed = [graph.constant(name) for name in node.inputs]
    if sum(fixed) != 1:
        return None
    data, operand = node.inputs if fixed[1] else tuple(reversed(node.inputs))
    # c / x is no linear map
    if graph.rank(data) != 4 or not graph.floats(data) or (fixed[0] and node.op == "Div"):
        return None
    channels, shape = graph.shape(data)[1], graph.shape(operand)
    per_channel = len(shape) in {3, 4} and math.prod(shape) == channels == shape[-3]
    if len(shape) > 4 or not (math.prod(shape) == 1 or per_channel):
        return None
    return Scale(node, data, channels, operand, fixed[0])


def _batch_norm(graph: RewriteGraph, node: Node) -> Scale | None:
    data = node.inputs[0]
    others = [name for name in node.outputs[1:] if name]
    if others or node.attrs.get("training_mode", 0) or not graph.floats(data):
        return None
    if graph.rank(data) != 4 or not all(graph.constant(name) for name in node.inputs[1:]):
        return None
    # statistics may have another type
    if len({graph.dtype(name) for name in node.inputs}) > 1:
        return None
    return None if graph.constant(data) else Scale(node, data, graph.shape(data)[1])


def write_scale(graph: RewriteGraph, new: Writer, scale: Scale) -> tuple[str, str]:
    """Returns factor and shift as constants of [channels]; "" if there is none."""
    node = scale.node
    if node.op == "BatchNormalization":
        gamma, beta, mean, variance = node.inputs[1:5]
        epsilon = new.constant(float(node.attrs.get("epsilon", 1e-5)))
        spread = new.node("Sqrt", [new.node("Add", [variance, epsilon])])
        factor = new.node("Div", [gamma, spread])
        return factor, new.node("Sub", [beta, new.node("Mul", [mean, factor])])
    operand = vector(graph, new, scale.operand, scale.channels)
    if node.op == "Add":
        return "", operand
    if node.op == "Mul":
        return operand, ""
    if node.op == "Div":
        return new.node("Reciprocal", [operand]), ""
    if scale.turned:
        # c - x = -1 x + c
        minus = new.node("Expand", [new.constant([-1.0]), new.constant([scale.channels])])
        return minus, operand
    return "", new.node("Neg", [operand])


def _fold_after(graph: RewriteGraph, node: Node) -> Replacement:
    """Folds a scale into the weights of a Conv whose result has no other reader."""
    scale = read_scale(graph, node)
    conv = None if scale is None else read_conv(graph, graph.producer(scale.data))
    # another reader needs the result without the scale
    if scale is None or conv is None or not graph.inner(scale.data, [node]):
        return
    new = yield (node, conv.node)
    weight, bias = conv.node.inputs[1], conv.bias
    factor, shift = write_scale(graph, new, scale)
    if factor:
        by_map = new.node("Reshape", [factor, new.constant([scale.channels, 1, 1, 1])])
        weight = new.node("Mul", [weight, by_map])
        bias = new.node("Mul", [bias, factor]) if bias else ""
    if shift:
        bias = new.node("Add", [bias, shift]) if bias else shift
    output, name = scale.node.outputs[0], conv.node.name
    inputs = [conv.node.inputs[0], weight, bias]
    write_conv(new, inputs, conv.size, groups=conv.groups, output=output, name=name)


@rewrite(
    "fold-batch-norm",
    operators=("BatchNormalization",),
    reason="the convolution's weights and bias include the factor and shift of the batch "
    "normalization after it: one layer less",
)
def fold_batch_norm(graph: RewriteGraph, node: Node) -> Replacement:
    """BatchNormalization(Conv(x)) -> Conv(x)."""
    return _fold_after(graph, node)


@rewrite(
    "fold-scale",
    operators=("Mul", "Div", "Add", "Sub"),
    reason="the convolution's weights and bias include the factor or shift of its output: one "
    "layer less, and no division or difference, which older releases lack",
)
def fold_scale(graph: RewriteGraph, node: Node) -> Replacement:
    """Conv(x) * c, / c, + c, - c or c - Conv(x) -> Conv(x), for c of 1 or C elements.

    A frozen batch normalization of several nodes is folded node by node. Not supported: division of
    a constant by the result, and constants that differ within a map.
    """
    return _fold_after(graph, node)


@rewrite(
    "fold-scale-before",
    operators=("Conv",),
    reason="the convolution's weights and bias include the factor or shift of its input: one layer "
    "less, and no division or difference, which older releases lack",
)
def fold_scale_before(graph: RewriteGraph, node: Node) -> Replacement:
    """Conv(factor x + shift) -> Conv(x) with other weights and bias.

    A shift only if the convolution does not pad: its zeros would have to be shifted too.

    At a Conv that is the only reader of a scaled activation.
    """
    conv = read_conv(graph, node)
    scale = None if conv is None else read_scale(graph, graph.producer(node.inputs[0]))
    if conv is None or scale is None or not graph.inner(node.inputs[0], [node]):
        return
    if scale.shifts and any(conv.size.pads):
        return
    new = yield (node, scale.node)
    weight, bias = conv.node.inputs[1], conv.bias
    factor, shift = write_scale(graph, new, scale)
    if shift:
        # before the factor is applied to the weights: the shift comes after it in factor x + shift
        added = _through(new, conv, _by_input(new, conv, weight, shift))
        bias = new.node("Add", [bias, added]) if bias else added
    if factor:
        scaled = _by_input(new, conv, weight, factor)
        weight = new.node("Reshape", [scaled, new.constant(list(conv.weight))])
    output, name = conv.node.outputs[0], conv.node.name
    inputs = [scale.data, weight, bias]
    write_conv(new, inputs, conv.size, groups=conv.groups, output=output, name=name)


def _by_input(new: Writer, conv: Conv, weight: str, values: str) -> str:
    """Writes weights [groups, K / groups, C / groups, taps] times a value by input channel."""
    maps, each = conv.weight[:2]
    apart = new.constant([conv.groups, maps // conv.groups, each, -1])
    weight = new.node("Reshape", [weight, apart])
    values = new.node("Reshape", [values, new.constant([conv.groups, 1, each, 1])])
    return new.node("Mul", [weight, values])


def _through(new: Writer, conv: Conv, products: str) -> str:
    """Writes a constant input's part of each map: the sum over channels and taps, as [K]."""
    axes = new.constant([2, 3])
    summed = new.node("ReduceSum", [products, axes], keepdims=0)
    return new.node("Reshape", [summed, new.constant([conv.weight[0]])])


class Zeros(NamedTuple):
    """A Pad of zeros around images: (before, after) of C, H and W."""

    node: Node
    channels: tuple[int, int]
    height: tuple[int, int]
    width: tuple[int, int]


def read_zeros(graph: RewriteGraph, node: Node | None) -> Zeros | None:
    """Returns the amounts of a Pad of zeros around [N, C, H, W]; None for any other node.

    Also None if it pads the batch or crops.
    """
    if (
        node is None
        or node.op != "Pad"
        or node.domain
        or node.attrs.get("mode", "constant") != "constant"
    ):
        return None
    data, value = node.inputs[0], node.input(2)
    if graph.rank(data) != 4 or not graph.floats(data) or graph.constant(data):
        return None
    pads = graph.ints(node.input(1))
    axes = graph.ints(node.input(3)) if node.input(3) else [0, 1, 2, 3]
    if pads is None or axes is None or (value and graph.scalar(value) != 0.0):
        return None
    around = [(0, 0)] * 4
    for place, axis in enumerate(axes):
        around[axis % 4] = (pads[place], pads[place + len(axes)])
    if around[0] != (0, 0) or min(amount for pair in around for amount in pair) < 0:
        return None
    return Zeros(node, around[1], around[2], around[3])


@rewrite(
    "pad-conv",
    operators=("Conv",),
    reason="Pad becomes a slice beyond the tensor, which boards may refuse; a convolution can pad "
    "by itself",
    enabling=True,
)
def pad_conv(graph: RewriteGraph, node: Node) -> Replacement:
    """Conv(Pad(x)) -> Conv(x) with more padding; padded channels -> weights without them.

    Only zeros, because a convolution pads with zeros. If the padding is not smaller than the
    kernel, the kernel gets taps of zero; if it is over the DLA's limit, the Pad stays for
    ``pad-to-conv``. Other readers keep the Pad.

    At a Conv with constant weights that reads a Pad of zeros.
    """
    conv = read_conv(graph, node)
    zeros = None if conv is None else read_zeros(graph, graph.producer(node.inputs[0]))
    # padded channels would shift the groups' borders
    if conv is None or zeros is None or (conv.groups != 1 and any(zeros.channels)):
        return
    top, left, bottom, right = conv.size.pads
    pads = (
        top + zeros.height[0],
        left + zeros.width[0],
        bottom + zeros.height[1],
        right + zeros.width[1],
    )
    wide = conv._replace(size=replace(conv.size, pads=pads))
    wide = wide._replace(shape=graph.shape(zeros.node.inputs[0]))
    plan = None
    # other limits have rewrites of their own; here only the padding of this step must be allowed
    if pads != conv.size.pads and not too_large(conv) and too_padded(wide):
        plan = None if any(zeros.channels) else plan_split(wide)
        # layers of zeros would be the Pad again
        if plan is None or any(map(any, plan.zeros)):
            return
    new = yield (node, zeros.node)
    data, weight = zeros.node.inputs[0], node.inputs[1]
    if not graph.inner(node.inputs[0], [node]):
        write_again(new, zeros.node)
    if plan is not None:
        write_plan(new, wide, plan, data)
        return
    if any(zeros.channels):
        first = zeros.channels[0]
        last = first + wide.shape[1]
        bounds = [new.constant([value]) for value in (first, last, 1)]
        # weights at channels of zeros have no effect
        weight = new.node("Slice", [weight, *bounds])
    inputs = [data, weight, wide.bias]
    write_conv(new, inputs, wide.size, groups=wide.groups, output=node.outputs[0], name=node.name)


_TAKE = (pad_conv, pad_pool)


@rewrite(
    "pad-to-conv",
    operators=("Pad",),
    reason="Pad becomes a slice beyond the tensor, which boards may refuse; a convolution that "
    "copies its input can pad with zeros",
)
def pad_to_conv(graph: RewriteGraph, node: Node) -> Replacement:
    """Pad of zeros -> a depthwise Conv along H and along W, a 1x1 Conv for channels.

    Each has a single 1 in every kernel. Only if no convolution or pool after it can take the
    padding (``pad-conv``, ``pad-pool``). Other values, reflection and repetition of the border are
    not supported.

    At a Pad of zeros around the channels or the image.
    """
    zeros = read_zeros(graph, node)
    if zeros is None or not any((*zeros.channels, *zeros.height, *zeros.width)):
        return
    # rewrites that take the padding without an additional layer are tried first
    for reader in graph.readers(node.outputs[0])[:_MOST_READERS]:
        if any(reader.op in item.operators and any(item.at(graph, reader)) for item in _TAKE):
            return
    new = yield (node,)
    channels, output, name = graph.shape(node.inputs[0])[1], node.outputs[0], node.name
    more = any(zeros.channels)
    end = "" if more else output
    data = write_zeros(
        new, node.inputs[0], channels, zeros.height, zeros.width, name=name, output=end
    )
    if more:
        write_channels(new, data, channels, *zeros.channels, name=name, output=output)
