"""Gemm and MatMul with constant weights as convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from edgekit.dla.rules import limit
from edgekit.network.windows import KernelWindow
from edgekit.rewriting.nodes import Match, Node
from edgekit.rewriting.rules.convolution.geometry import keep, product, vector, within, write_conv

if TYPE_CHECKING:
    from edgekit.rewriting.graph import RewriteGraph, Writer


_VIEWS = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze"})
# views in a row that are looked through
_MOST_VIEWS = 4


class ProductSource(NamedTuple):
    """What a product of rows reads as an image.

    Attributes:
        tensor: The tensor; of another shape than ``shape`` when it must be reshaped first.
        shape: [rows, C, H, W], with C H W the length of a row.
        views: Reshapes between it and the product, the nearest to the product first.
        shared: How many of the last of them other nodes read, too.
    """

    tensor: str
    shape: tuple[int, ...]
    views: tuple[Node, ...] = ()
    shared: int = 0


class Dense(NamedTuple):
    """A product [rows, depth] x [depth, columns].

    Attributes:
        source: What it reads.
        weight: The matrix.
        turned: The matrix is stored [columns, depth].
        columns: Number of columns.
        bias: Constant of one element or one for each column; "" when there is none.
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


def image_of(graph: RewriteGraph, tensor: str, reader: Node) -> ProductSource:
    """Returns the image [N, C, H, W] whose flattened rows ``tensor`` [N, C H W] has.

    Looks through reshapes, which all keep the order of the elements. Without an image that the
    DLA's convolution can take in one window, the rows are taken as [N, depth, 1, 1], or with a
    column of the smallest height where they are longer than the DLA's channels.
    """
    rows, depth = graph.shape(tensor)
    current, last = tensor, reader
    views: list[Node] = []
    reused, found = 0, None
    largest = None
    for _ in range(_MOST_VIEWS):
        view = graph.producer(current)
        if view is None or view.op not in _VIEWS or view.domain or graph.constant(view.inputs[0]):
            break
        reused += bool(reused) or not graph.inner(current, [last])
        views.append(view)
        current, last = view.inputs[0], view
        shape = graph.shape(current)
        if len(shape) != 4 or shape[0] != rows:
            continue
        here = ProductSource(current, shape, tuple(views), reused)
        largest = largest or here
        if within("general.dimension", shape[1]) and within("convolution.kernel", *shape[2:]):
            found = here
    if found is not None:
        return found
    if within("general.dimension", depth):
        return ProductSource(tensor, (rows, depth, 1, 1))
    if largest is not None:
        # one window too large for the DLA, which other rewrites split
        return largest
    for height in range(2, limit("convolution.kernel")[1] + 1):
        if depth % height == 0 and within("general.dimension", depth // height):
            return ProductSource(tensor, (rows, depth // height, height, 1))
    return ProductSource(tensor, (rows, depth, 1, 1))


def write_dense(graph: RewriteGraph, new: Writer, dense: Dense, output: str, name: str) -> None:
    """Writes a product as a convolution over the whole window; ``output`` is [rows, columns]."""
    shape = dense.source.shape
    data = dense.source.tensor
    for view in reversed(dense.source.views[len(dense.source.views) - dense.source.shared :]):
        keep(new, view)
    if graph.shape(data) != shape:
        data = new.node("Reshape", [data, new.constant(list(shape))], role="image")
    weight = dense.weight
    if not dense.turned:
        weight = new.node("Transpose", [weight], perm=[1, 0])
    if dense.factor != 1.0:
        weight = new.node("Mul", [weight, new.constant(dense.factor)])
    weight = new.node("Reshape", [weight, new.constant([dense.columns, *shape[1:]])])
    bias = bias_of(graph, new, dense)
    window = KernelWindow(shape[2:], (1, 1), (0, 0, 0, 0), (1, 1))
    made = write_conv(new, [data, weight, bias], window, name=name)
    rows = new.constant([shape[0], dense.columns])
    new.node("Reshape", [made, rows], output=output, name=f"{name}:rows")


def bias_of(graph: RewriteGraph, new: Writer, dense: Dense) -> str:
    """Returns the bias of a product as [columns]; "" when there is none."""
    if not dense.bias or dense.bias_factor == 0.0:
        return ""
    bias = vector(graph, new, dense.bias, dense.columns)
    if dense.bias_factor != 1.0:
        bias = new.node("Mul", [bias, new.constant(dense.bias_factor)])
    return bias


def per_column(shape: Sequence[int], columns: int) -> bool:
    """Whether a constant has one element, or one for each column in its last dimension."""
    return product(shape) == 1 or (product(shape) == columns and shape[-1] == columns)


def pointwise(new: Writer, data: str, weight: str, bias: str, name: str) -> str:
    """Writes a convolution of 1x1."""
    window = KernelWindow((1, 1), (1, 1), (0, 0, 0, 0), (1, 1))
    return write_conv(new, [data, weight, bias], window, name=name)


class GemmToConv:
    """Gemm(flatten(x), W, b) -> Reshape(Conv(x, W as a window over all of x, b)).

    A Gemm on rows that were no image is a 1x1 convolution on [N, C, 1, 1]. A Gemm whose first
    operand is transposed stays: it would take a transposition of the batch. So does one with a
    computed matrix or a third operand that is not one vector for all rows.
    """

    name = "gemm-to-conv"
    reason = (
        "a matrix product runs on the DLA only as a convolution, and flattening its input to two "
        "dimensions does not; a convolution over the whole image needs no flattening"
    )
    operators: tuple[str, ...] = ("Gemm",)
    enabling = True

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """Gemm of an activation and a constant matrix."""
        data, weight, bias = node.inputs[0], node.inputs[1], node.input(2)
        if node.attrs.get("transA", 0) or not graph.floats(node.outputs[0]):
            return None
        if graph.constant(data) or not graph.constant(weight):
            return None
        columns = graph.shape(node.outputs[0])[1]
        if bias and not (graph.constant(bias) and per_column(graph.shape(bias), columns)):
            return None
        source = image_of(graph, data, node)
        turned = bool(node.attrs.get("transB", 0))
        factors = [float(node.attrs.get(key, 1.0)) for key in ("alpha", "beta")]
        facts = Dense(source, weight, turned, columns, bias, *factors)
        return Match((node, *source.views), facts)

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
        """A convolution over the whole window, and its result as rows."""
        gemm = match.nodes[0]
        write_dense(graph, new, match.facts, gemm.outputs[0], gemm.name)


_RANKS = (2, 3, 4)
# channels last to channels first, and back
_FIRST, _LAST = [0, 3, 1, 2], [0, 2, 3, 1]
_SWAPPED = [0, 2, 1, 3]


class _MatMulFacts(NamedTuple):
    dense: Dense
    matrix_first: bool
    output: str


class MatMulToConv:
    """MatMul(x, W) -> a 1x1 convolution over x's last axis, with the Add after it as its bias.

    Rows [N, C] become images as Gemm's do; [N, L, C] and [N, H, W, C] are transposed to channels
    first and back. MatMul(W, x) works along x's last axis but one: no transposition is needed
    for [N, C, L]. A matrix for each batch stays, there is no convolution with several weights.
    """

    name = "matmul-to-conv"
    reason = (
        "the DLA has no matrix product; one with a constant matrix is a 1x1 convolution over "
        "the channels"
    )
    operators: tuple[str, ...] = ("MatMul",)
    enabling = True

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """MatMul of an activation of 2 to 4 dimensions and one constant matrix."""
        fixed = [graph.constant(name) for name in node.inputs]
        if sum(fixed) != 1 or not graph.floats(node.outputs[0]):
            return None
        data, weight = node.inputs if fixed[1] else reversed(node.inputs)
        rank, matrix = graph.rank(data), graph.shape(weight)
        several = product(matrix[:-2]) != 1 or len(matrix) > rank
        if rank not in _RANKS or len(matrix) < 2 or several:
            return None
        columns = matrix[-2] if fixed[0] else matrix[-1]
        nodes, bias, output = [node], "", node.outputs[0]
        add = None if fixed[0] else graph.only_reader(output)
        found = _bias(graph, add, output, columns)
        if add is not None and found:
            nodes, bias, output = [node, add], found, add.outputs[0]
        source = ProductSource(data, graph.shape(data))
        if rank == 2 and fixed[1]:
            source = image_of(graph, data, node)
            nodes += source.views
        dense = Dense(source, weight, fixed[0], columns, bias)
        return Match(tuple(nodes), _MatMulFacts(dense, fixed[0], output))

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
        """The convolution between what brings the channels to their place."""
        facts: _MatMulFacts = match.facts
        dense, name = facts.dense, match.nodes[0].name
        weight, matrix = dense.weight, graph.shape(dense.weight)[-2:]
        if graph.rank(weight) > 2:
            weight = new.node("Reshape", [weight, new.constant(list(matrix))])
            dense = dense._replace(weight=weight)
        if graph.rank(match.nodes[0].inputs[0]) == 2 and not facts.matrix_first:
            write_dense(graph, new, dense, facts.output, name)
            return
        if not facts.matrix_first:
            weight = new.node("Transpose", [weight], perm=[1, 0])
        depth = matrix[1 if facts.matrix_first else 0]
        weight = new.node("Reshape", [weight, new.constant([dense.columns, depth, 1, 1])])
        bias = bias_of(graph, new, dense)
        if facts.matrix_first:
            _columns(graph, new, facts, weight, name)
        else:
            _rows(graph, new, facts, weight, bias, name)


def _bias(graph: RewriteGraph, add: Node | None, tensor: str, columns: int) -> str:
    """The constant that an Add after the product adds for each column; "" when there is none."""
    if add is None or add.op != "Add" or add.domain:
        return ""
    other = next((name for name in add.inputs if name != tensor), "")
    if not other or not graph.constant(other) or not per_column(graph.shape(other), columns):
        return ""
    return other if graph.rank(other) <= graph.rank(tensor) else ""


def _rows(
    graph: RewriteGraph, new: Writer, facts: _MatMulFacts, weight: str, bias: str, name: str
) -> None:
    """[N, L, C] or [N, H, W, C]."""
    data, shape = facts.dense.source.tensor, facts.dense.source.shape
    flat = len(shape) == 3
    if flat:
        wide = new.constant([shape[0], shape[1], 1, shape[2]])
        data = new.node("Reshape", [data, wide], name=f"{name}:image")
    data = new.node("Transpose", [data], name=f"{name}:first", perm=_FIRST)
    made = pointwise(new, data, weight, bias, name)
    last = "" if flat else facts.output
    made = new.node("Transpose", [made], output=last, name=f"{name}:last", perm=_LAST)
    if flat:
        rows = new.constant([*shape[:-1], facts.dense.columns])
        new.node("Reshape", [made, rows], output=facts.output, name=f"{name}:rows")


def _columns(graph: RewriteGraph, new: Writer, facts: _MatMulFacts, weight: str, name: str) -> None:
    """The matrix on the left: [C, L], [N, C, L] or [N, B, C, L]."""
    data, shape = facts.dense.source.tensor, facts.dense.source.shape
    if len(shape) == 4:
        data = new.node("Transpose", [data], name=f"{name}:first", perm=_SWAPPED)
        made = pointwise(new, data, weight, "", name)
        new.node("Transpose", [made], output=facts.output, name=f"{name}:last", perm=_SWAPPED)
        return
    batch = shape[0] if len(shape) == 3 else 1
    image = new.constant([batch, *shape[-2:], 1])
    data = new.node("Reshape", [data, image], name=f"{name}:image")
    made = pointwise(new, data, weight, "", name)
    rows = new.constant(list(graph.shape(facts.output)))
    new.node("Reshape", [made, rows], output=facts.output, name=f"{name}:rows")
