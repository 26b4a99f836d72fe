"""Products with a constant matrix as convolutions: Gemm and MatMul share this."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgekit.dla import limit
from edgekit.network._window import Window
from edgekit.rewrite.convolution._common import keep, product, vector, within, write_conv

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node
    from edgekit.rewrite._writer import Writer

__all__ = ["Dense", "Source", "bias_of", "image_of", "per_column", "pointwise", "write_dense"]

_VIEWS = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze"})
# views in a row that are looked through
_MOST_VIEWS = 4


@dataclass(frozen=True, slots=True)
class Source:
    """What a product of rows reads as an image.

    Attributes:
        tensor: The tensor; of another shape than ``shape`` when it must be reshaped first.
        shape: [rows, C, H, W], with C H W the length of a row.
        views: Reshapes between it and the product, the nearest to the product first.
        kept: How many of the last of them others need, too.
    """

    tensor: str
    shape: tuple[int, ...]
    views: tuple[Node, ...] = ()
    kept: int = 0


@dataclass(frozen=True, slots=True)
class Dense:
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

    source: Source
    weight: str
    turned: bool
    columns: int
    bias: str = ""
    factor: float = 1.0
    bias_factor: float = 1.0


def image_of(graph: Graph, tensor: str, reader: Node) -> Source:
    """Returns the image [N, C, H, W] whose flattened rows ``tensor`` [N, C H W] has.

    Looks through reshapes, which all keep the order of the elements. Without an image that the
    DLA's convolution can take in one window, the rows are taken as [N, depth, 1, 1], or with a
    column of the smallest height where they are longer than the DLA's channels.
    """
    rows, depth = graph.shape(tensor)
    current, last = tensor, reader
    views: list[Node] = []
    kept, found = 0, None
    largest = None
    for _ in range(_MOST_VIEWS):
        view = graph.producer(current)
        if view is None or view.op not in _VIEWS or view.domain or graph.constant(view.inputs[0]):
            break
        kept += bool(kept) or not graph.inner(current, [last])
        views.append(view)
        current, last = view.inputs[0], view
        shape = graph.shape(current)
        if len(shape) != 4 or shape[0] != rows:
            continue
        here = Source(current, shape, tuple(views), kept)
        largest = largest or here
        if within("general.dimension", shape[1]) and within("convolution.kernel", *shape[2:]):
            found = here
    if found is not None:
        return found
    if within("general.dimension", depth):
        return Source(tensor, (rows, depth, 1, 1))
    if largest is not None:
        # one window too large for the DLA, which other rewrites split
        return largest
    for height in range(2, limit("convolution.kernel")[1] + 1):
        if depth % height == 0 and within("general.dimension", depth // height):
            return Source(tensor, (rows, depth // height, height, 1))
    return Source(tensor, (rows, depth, 1, 1))


def write_dense(graph: Graph, new: Writer, dense: Dense, output: str, name: str) -> None:
    """Writes a product as a convolution over the whole window; ``output`` is [rows, columns]."""
    shape = dense.source.shape
    data = dense.source.tensor
    for view in reversed(dense.source.views[len(dense.source.views) - dense.source.kept :]):
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
    window = Window(shape[2:], (1, 1), (0, 0, 0, 0), (1, 1))
    made = write_conv(new, [data, weight, bias], window, name=name)
    rows = new.constant([shape[0], dense.columns])
    new.node("Reshape", [made, rows], output=output, name=f"{name}:rows")


def bias_of(graph: Graph, new: Writer, dense: Dense) -> str:
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
    window = Window((1, 1), (1, 1), (0, 0, 0, 0), (1, 1))
    return write_conv(new, [data, weight, bias], window, name=name)
