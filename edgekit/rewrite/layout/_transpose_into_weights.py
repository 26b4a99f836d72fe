"""A transposition before a product of everything becomes one of the product's weights."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match
from edgekit.rewrite.layout._carried import again, reshaped
from edgekit.rewrite.layout._views import is_reshape, permutation

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node
    from edgekit.rewrite._writer import Writer

__all__ = ["TransposeIntoWeights"]

_DLA_RANK = 4


@dataclass(frozen=True, slots=True)
class _Product:
    """Where the weights have the elements that are summed.

    Attributes:
        flat: Shape in which the product reads its data; None as it is transposed.
        depth_first: The weights' summed dimension stands before that of the outputs.
        back: Permutation that undoes the transposition.
    """

    flat: tuple[int, ...] | None
    depth_first: bool
    back: tuple[int, ...]


class TransposeIntoWeights:
    """Transpose, Flatten, Gemm (MatMul, 1x1 Conv) -> Flatten, Gemm with its weights transposed.

    Also Transpose, Conv whose window is the whole tensor. The sum runs over all elements of a
    sample, so their order does not matter as long as the weights have the same one; they are
    transposed by a recipe. Every application leaves one product fewer behind a transposition.
    """

    name = "transpose-into-weights"
    reason = (
        "in a network exported in N, H, W, C the classifier reads a transposed tensor: the "
        "weights are transposed instead, once"
    )
    operators: tuple[str, ...] = ("Gemm", "MatMul", "Conv")
    enabling = True

    def match(self, graph: Graph, node: Node) -> Match | None:
        """Looks through a reshape for a transposition that keeps the batch."""
        weights = node.input(1)
        if graph.constant(node.inputs[0]) or not graph.constant(weights):
            return None
        if node.attrs.get("transA") or node.attrs.get("group", 1) != 1:
            return None
        flatten = graph.producer(node.inputs[0])
        if flatten is None or not is_reshape(graph, flatten):
            flatten = None
        made = graph.producer(flatten.inputs[0] if flatten else node.inputs[0])
        if made is None or made.op != "Transpose" or made.domain:
            return None
        perm, read = permutation(graph, made), graph.shape(node.inputs[0])
        data = graph.shape(made.outputs[0])
        depth = math.prod(data[1:])
        if perm[0] != 0 or read[0] != data[0]:
            return None
        flat = read[1] == depth
        fits = graph.rank(weights) == len(read) == (_DLA_RANK if node.op == "Conv" else 2)
        if node.op == "Conv":
            fits = fits and _covers(graph, node)
        if not fits or not (flat or (flatten is None and node.op == "Conv")):
            return None
        back = tuple(sorted(range(len(perm)), key=lambda i: perm[i]))
        depth_first = node.op != "Conv" and not node.attrs.get("transB")
        facts = _Product(read if flat else None, depth_first, back)
        return Match((node, *((flatten,) if flatten else ()), made), facts)

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes the product of what was transposed and a recipe for its weights."""
        node, *passed = match.nodes
        product: _Product = match.facts
        made = passed[-1]
        kept = (node, passed[0]) if graph.inner(passed[0].outputs[0], (node,)) else (node,)
        for item in reversed(passed):
            again(graph, new, (item,), kept)
        attrs = dict(node.attrs)
        weights = _turned(graph, new, node.inputs[1], graph.shape(made.outputs[0]), product)
        data = made.inputs[0]
        if product.flat is not None:
            data = reshaped(new, data, product.flat)
        elif node.op == "Conv":
            attrs["kernel_shape"] = list(graph.shape(data)[2:])
            attrs.pop("auto_pad", None)
            attrs.pop("strides", None)
            attrs.pop("dilations", None)
        new.node(
            node.op,
            [data, weights, *node.inputs[2:]],
            output=node.outputs[0],
            name=node.name,
            **attrs,
        )


def _covers(graph: Graph, node: Node) -> bool:
    """Whether a convolution's window is the whole tensor, without padding."""
    spatial = graph.shape(node.inputs[0])[2:]
    window = graph.shape(node.inputs[1])[2:]
    spread = zip(window, node.attrs.get("dilations", ()), strict=False)
    plain = node.attrs.get("auto_pad", "NOTSET") in {"NOTSET", "VALID"}
    plain = plain and not any(node.attrs.get("pads", ()))
    return plain and spatial == window and all(k == 1 or d == 1 for k, d in spread)


def _turned(
    graph: Graph, new: Writer, weights: str, data: tuple[int, ...], product: _Product
) -> str:
    """Recipe for the weights in the order of what was transposed."""
    shape, back = graph.shape(weights), product.back
    if product.depth_first:
        wide = reshaped(new, weights, (*data[1:], shape[1]))
        perm = [i - 1 for i in back[1:]] + [len(data) - 1]
    else:
        direct = product.flat is None
        wide = weights if direct else reshaped(new, weights, (shape[0], *data[1:]))
        perm = list(back)
    made = new.node("Transpose", [wide], perm=perm)
    return made if product.flat is None else reshaped(new, made, shape)
