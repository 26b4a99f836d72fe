"""Expand, Tile and repetition between reshapes: resizes and convolutions, or nothing at all."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from edgekit.rewriting.nodes import Match, Node
from edgekit.rewriting.rules.layout.views import cut_dimensions, dimensions_of
from edgekit.rewriting.rules.selection import factors, pick, pick_channels

if TYPE_CHECKING:
    from edgekit.rewriting.graph import RewriteGraph, Writer


def scale_limit() -> int:
    """Returns the largest scale of a nearest resize."""
    from edgekit.dla.rules import limit

    return limit("resize.nearest_scale")[1]


def enlarge(new: Writer, source: str, scales: Sequence[int], output: str) -> str:
    """Writes nearest resizes of H and W by whole factors and returns the last one's output."""
    steps = [factors(scale, scale_limit()) or [] for scale in scales]
    rounds = max(len(part) for part in steps)
    for index in range(rounds):
        now = [float((part[index : index + 1] or [1])[0]) for part in steps]
        fixed = new.constant([1.0, 1.0, *now], role="scales", dtype="float32")
        source = new.node(
            "Resize",
            [source, "", fixed],
            output=output if index == rounds - 1 else "",
            mode="nearest",
            coordinate_transformation_mode="asymmetric",
            nearest_mode="floor",
        )
    return source


_BROADCASTS = frozenset({"Add", "Div", "Max", "Min", "Mul", "Sub"})


class DropExpand:
    """An Expand or Tile before an element-wise operation that broadcasts by itself."""

    name = "drop-expand"
    reason = (
        "The DLA's element-wise operations broadcast [N, C, 1, 1] themselves, without an Expand"
    )
    # at the repetition too, which would be made with layers of its own first
    operators: tuple[str, ...] = ("Expand", "Tile", *sorted(_BROADCASTS))
    enabling = False

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """Returns an operation of a whole tensor and a repeated [N, C, 1, 1] or [N, 1, 1, 1]."""
        if node.op in {"Expand", "Tile"}:
            reader = graph.only_reader(node.outputs[0])
            if reader is None or reader.op not in _BROADCASTS or reader.domain:
                return None
            node = reader
        if len(node.inputs) != 2 or not graph.floats(node.outputs[0]):
            return None
        whole = graph.shape(node.outputs[0])
        for index, name in enumerate(node.inputs):
            other = node.inputs[1 - index]
            repeat = graph.producer(name)
            if repeat is None or repeat.op not in {"Expand", "Tile"} or other == name:
                continue
            before = graph.shape(repeat.inputs[0])
            narrow = before in {(whole[0], whole[1], 1, 1), (whole[0], 1, 1, 1)} if whole else False
            if not narrow or graph.constant(repeat.inputs[0]) or graph.shape(other) != whole:
                continue
            return Match((node, repeat), index)
        return None

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
        """Writes the operation on the tensor that was repeated."""
        node, repeat = match.nodes
        inputs = list(node.inputs)
        inputs[match.facts] = repeat.inputs[0]
        new.node(node.op, inputs, output=node.outputs[0], **node.attrs)
        repeated = repeat.outputs[0]
        if not graph.inner(repeated, match.nodes):
            # others need it still
            new.node(repeat.op, repeat.inputs, output=repeated, **repeat.attrs)


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

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """Returns an Expand between reshapes of a 4-D tensor to a 4-D tensor."""
        first, last = graph.producer(node.inputs[0]), graph.only_reader(node.outputs[0])
        if first is None or last is None or not {first.op, last.op} <= _RESHAPES:
            return None
        source, output = first.inputs[0], last.outputs[0]
        if graph.only_reader(first.outputs[0]) is not node or graph.constant(source):
            return None
        if graph.rank(source) != 4 or graph.rank(output) != 4 or not graph.floats(source):
            return None
        before, after = graph.shape(node.inputs[0]), graph.shape(node.outputs[0])
        found = _repeats(graph.shape(source), before, after, graph.shape(output))
        return None if found is None else Match((node, first, last), found)

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
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
    source: Sequence[int], before: Sequence[int], after: Sequence[int], result: Sequence[int]
) -> tuple[list[int], list[int]] | None:
    """Channels picked and scales of H and W; None when the three nodes do anything else."""
    import numpy as np

    parts = cut_dimensions(before, source)
    if parts is None or len(before) != len(after):
        return None
    # in the order of `after`: atoms of the source, and -1 for what repeats
    sizes: list[int] = []
    repeats: list[bool] = []
    for inner, size, times in zip(parts, before, after, strict=True):
        again = [times // size] if times != size else []
        if again and size != 1:
            return None
        sizes += [*inner, *again]
        repeats += [False] * len(inner) + [True] * len(again)
    cuts = cut_dimensions(sizes, result)
    if cuts is None or any(len(part) != 1 for part in cuts) or not any(repeats):
        return None
    unrepeated = dimensions_of(
        [s for s, again in zip(sizes, repeats, strict=True) if not again], source
    )
    target = dimensions_of(sizes, result)
    origins = iter(unrepeated)
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


class Repeat:
    """Expand or Tile of a 4-D tensor: a convolution along C, a nearest resize along H and W.

    A side of 1 is enlarged by a nearest resize (several where the factor is beyond its limit, none
    where it has a prime factor beyond it); a larger side that Tile repeats goes through the
    channels between transpositions. The batch is not repeated.
    """

    name = "repeat"
    reason = (
        "The DLA slices with stride 1 only, which is how TensorRT repeats; "
        "a 1x1 convolution repeats channels, a nearest resize rows and columns"
    )
    operators: tuple[str, ...] = ("Expand", "Tile")
    enabling = False

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """Returns an Expand or Tile that keeps four dimensions and the batch."""
        source = node.inputs[0]
        before, after = graph.shape(source), graph.shape(node.outputs[0])
        if len(before) != 4 or len(after) != 4 or before[0] != after[0] or before == after:
            return None
        if not graph.floats(source) or graph.constant(source) or 0 in after:
            return None
        times = [b // a for a, b in zip(before, after, strict=True)]
        for axis in (2, 3):
            if before[axis] == 1 and factors(times[axis], scale_limit()) is None:
                return None
        return Match((node,), times)

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
        """Writes the convolution, the resizes and the transposed forms, as far as needed."""
        (node,), times = match.nodes, match.facts
        source, output = node.inputs[0], node.outputs[0]
        shape = list(graph.shape(source))
        tiled = [axis for axis in (1, 2, 3) if times[axis] > 1 and (axis == 1 or shape[axis] > 1)]
        grown = [axis for axis in (2, 3) if times[axis] > 1 and axis not in tiled]
        for axis in tiled:
            last = axis == tiled[-1] and not grown
            picks = list(range(shape[axis])) * times[axis]
            source = pick(new, source, shape, axis, picks, output=output if last else "")
            shape[axis] *= times[axis]
        if grown:
            scales = [times[axis] if axis in grown else 1 for axis in (2, 3)]
            enlarge(new, source, scales, output)
