"""Rows, columns and channels repeated between reshapes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from edgekit.rewrite._select import factors, pick_channels
from edgekit.rewrite._types import Match, Node
from edgekit.rewrite.layout._dimensions import cut_dimensions, dimensions_of
from edgekit.rewrite.layout._enlarge import enlarge, scale_limit

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._writer import Writer

__all__ = ["RepeatElements"]


_RESHAPES = frozenset({"Reshape", "Unsqueeze", "Flatten", "Squeeze"})


class RepeatElements:
    """Reshape, Expand, Reshape that repeats each row, column or channel (repeat_interleave).

    [N, C, H, 1, W, 1] expanded to [N, C, H, s, W, t] and joined is a nearest resize; what repeats
    channels, one by one or all of them, is a 1x1 convolution.
    """

    name = "repeat-elements"
    reason = (
        "The DLA has no tensors of five dimensions to repeat in; "
        "a nearest resize repeats rows and columns, a 1x1 convolution channels"
    )
    operators: tuple[str, ...] = ("Expand", "Tile")
    enabling = False

    def match(self, graph: Graph, node: Node) -> Match | None:
        """Returns an Expand between reshapes of a 4-D tensor to a 4-D tensor."""
        first, last = graph.producer(node.inputs[0]), graph.only_reader(node.outputs[0])
        if first is None or last is None or not {first.op, last.op} <= _RESHAPES:
            return None
        source, output = first.inputs[0], last.outputs[0]
        if graph.only_reader(first.outputs[0]) is not node or graph.constant(source):
            return None
        if graph.rank(source) != 4 or graph.rank(output) != 4 or not graph.floats(source):
            return None
        before, behind = graph.shape(node.inputs[0]), graph.shape(node.outputs[0])
        found = _repeats(graph.shape(source), before, behind, graph.shape(output))
        return None if found is None else Match((node, first, last), found)

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes the convolution and the resizes."""
        _, first, last = match.nodes
        picks, scales = match.facts
        source, output = first.inputs[0], last.outputs[0]
        channels = graph.shape(source)[1]
        if picks != list(range(channels)):
            end = "" if max(scales) > 1 else output
            source = pick_channels(new, source, channels, picks, output=end)
        if max(scales) > 1:
            enlarge(new, source, scales, output)


def _repeats(
    source: Sequence[int], before: Sequence[int], behind: Sequence[int], result: Sequence[int]
) -> tuple[list[int], list[int]] | None:
    """Channels picked and scales of H and W; None when the three nodes do anything else."""
    import numpy as np

    parts = cut_dimensions(before, source)
    if parts is None or len(before) != len(behind):
        return None
    # in the order of `behind`: atoms of the source, and -1 for what repeats
    sizes: list[int] = []
    repeats: list[bool] = []
    for inner, size, times in zip(parts, before, behind, strict=True):
        again = [times // size] if times != size else []
        if again and size != 1:
            return None
        sizes += [*inner, *again]
        repeats += [False] * len(inner) + [True] * len(again)
    cuts = cut_dimensions(sizes, result)
    if cuts is None or any(len(part) != 1 for part in cuts) or not any(repeats):
        return None
    kept = dimensions_of([s for s, again in zip(sizes, repeats, strict=True) if not again], source)
    target = dimensions_of(sizes, result)
    origins = iter(kept)
    origin = [-1 if again else next(origins) for again in repeats]
    pairs = list(zip(target, origin, strict=True))
    if any(at not in {dim, -1} for dim, at in pairs):
        return None
    # no repeated batch; each row and column repeated, not all of them
    for dim in (0, 2, 3):
        inside = [again for at, again in pairs if at == dim]
        if inside != sorted(inside, reverse=True) or (dim == 0 and -1 in inside):
            return None
    scales = [
        math.prod(s for s, pair in zip(sizes, pairs, strict=True) if pair == (dim, -1))
        for dim in (2, 3)
    ]
    if any(factors(scale, scale_limit()) is None for scale in scales):
        return None
    channels = [(s, again) for s, (at, again) in zip(sizes, pairs, strict=True) if at == 1]
    picks = np.arange(source[1]).reshape([1 if again < 0 else s for s, again in channels])
    return [int(c) for c in np.broadcast_to(picks, [s for s, _ in channels]).ravel()], scales
