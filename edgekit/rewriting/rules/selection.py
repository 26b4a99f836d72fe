"""Parts for rewrites that move elements: layers that pick channels, rows and columns.

A DLA has no gathering, no strided slices and no shuffles of blocks. What it has instead: slices
with stride 1, pooling of window 1 with a stride, transpositions of four dimensions, and
convolutions with weights of zeros and ones, which are exact in FP16 and INT8 too (each result is
one product by 1).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgekit.rewriting.graph import Writer


# a channel of the input, and the place in the kernel that picks it; channel -1: zero
Tap = tuple[int, int, int]
# up to this many slices and a concatenation of them instead of a convolution ...
_MOST_RUNS = 4
# ... from this many channels on: below, a 1x1 convolution costs no more than moving the data
_FEW_CHANNELS = 128


def reshape(new: Writer, source: str, shape: Sequence[int], *, output: str = "") -> str:
    """Writes a Reshape to ``shape`` and returns its output."""
    return new.node("Reshape", [source, new.constant(list(shape), role="shape")], output=output)


def selection(
    new: Writer,
    source: str,
    channels: int,
    taps: Sequence[Tap],
    *,
    kernel: tuple[int, int] = (1, 1),
    strides: tuple[int, int] = (1, 1),
    output: str = "",
) -> str:
    """Writes a convolution whose output map k is what ``taps[k]`` picks, in as many groups as fit.

    Args:
        new: Where to.
        source: Tensor [N, channels, H, W].
        channels: Its channels.
        taps: For each output map.
        kernel: Height and width.
        strides: Along H and W; there is no padding.
        output: Tensor to write; a new one when empty.
    """
    import numpy as np

    groups = _groups([tap[0] for tap in taps], channels)
    depth = channels // groups
    new.check_size(len(taps), depth, *kernel)
    weight = np.zeros((len(taps), depth, *kernel))
    for index, (channel, row, column) in enumerate(taps):
        if channel >= 0:
            weight[index, channel % depth, row, column] = 1.0
    return new.node(
        "Conv",
        [
            source,
            new.constant(weight, like=source if _known(new, source) else "", role="selection"),
        ],
        output=output,
        role="select",
        kernel_shape=list(kernel),
        strides=None if strides == (1, 1) else list(strides),
        group=None if groups == 1 else groups,
    )


def _known(new: Writer, tensor: str) -> bool:
    # a tensor that this replacement writes has no type yet; the anchor's is taken then
    return all(tensor not in node.outputs for node in new.nodes)


def _groups(reads: Sequence[int], channels: int) -> int:
    """The largest number of groups in which every output map reads within its own group."""
    common = math.gcd(channels, len(reads))
    for groups in sorted((g for g in range(1, common + 1) if common % g == 0), reverse=True):
        before, after = channels // groups, len(reads) // groups
        if all(c < 0 or c // before == k // after for k, c in enumerate(reads)):
            return groups
    return 1


def runs(picks: Sequence[int]) -> list[tuple[int, int]]:
    """Returns ``picks`` as ranges (start, end) of consecutive indices."""
    found: list[tuple[int, int]] = []
    for index in picks:
        if found and found[-1][1] == index:
            found[-1] = (found[-1][0], index + 1)
        else:
            found.append((index, index + 1))
    return found


def pick_channels(
    new: Writer, source: str, channels: int, picks: Sequence[int], *, output: str = ""
) -> str:
    """Writes what makes channel k of the result the channel ``picks[k]`` of ``source``.

    One range is a slice, a few ranges of many channels are slices and a concatenation, anything
    else is a 1x1 convolution.
    """
    parts = runs(picks)
    if len(parts) == 1:
        return _cut(new, source, {1: parts[0]}, output)
    if len(parts) <= _MOST_RUNS and max(channels, len(picks)) > _FEW_CHANNELS:
        whole = (0, channels)
        cuts = [source if part == whole else _cut(new, source, {1: part}, "") for part in parts]
        return new.node("Concat", cuts, output=output, axis=1)
    return selection(new, source, channels, [(c, 0, 0) for c in picks], output=output)


def pick(
    new: Writer,
    source: str,
    shape: Sequence[int],
    axis: int,
    picks: Sequence[int],
    *,
    output: str = "",
) -> str:
    """Writes what makes element k along ``axis`` of the result element ``picks[k]`` of ``source``.

    Args:
        new: Where to.
        source: Tensor of any rank from 2 on.
        shape: Its shape.
        axis: Any but the first.
        picks: Indices, none negative.
        output: Tensor to write; a new one when empty.
    """
    wide, at = four(shape, axis)
    if list(wide) != list(shape):
        inner = pick(new, reshape(new, source, wide), wide, at, picks)
        return reshape(new, inner, [*shape[:axis], len(picks), *shape[axis + 1 :]], output=output)
    if at == 1:
        return pick_channels(new, source, shape[1], picks, output=output)
    steps = {b - a for a, b in pairwise(picks)} or {1}
    if len(steps) == 1 and min(steps) > 0 and factors(min(steps), _pooling_stride()) is not None:
        place = {at: (picks[0], len(picks), min(steps))}
        return stepped(new, source, shape, place, output=output)
    turned = to_channels(new, source, at)
    chosen = pick_channels(new, turned, shape[at], picks)
    return to_channels(new, chosen, at, output=output)


def four(shape: Sequence[int], axis: int) -> tuple[tuple[int, ...], int]:
    """Returns a shape of four dimensions that holds the same elements, and where ``axis`` is.

    Dimensions besides ``axis`` may be merged; none changes places.
    """
    if len(shape) <= 4:
        return (*shape, *(1,) * (4 - len(shape))), axis
    before, after = shape[1:axis], shape[axis + 1 :]
    if math.prod(before) == 1:
        rows = after[0] if after else 1
        return (shape[0], shape[axis], rows, math.prod(after[1:])), 1
    return (shape[0], math.prod(before), shape[axis], math.prod(after)), 2


def to_channels(new: Writer, source: str, axis: int, *, output: str = "") -> str:
    """Writes a Transpose that swaps C and ``axis`` (2 or 3) of a 4-D tensor."""
    perm = [0, 1, 2, 3]
    perm[1], perm[axis] = perm[axis], perm[1]
    return new.node("Transpose", [source], output=output, perm=perm)


def stepped(
    new: Writer,
    source: str,
    shape: Sequence[int],
    places: dict[int, tuple[int, int, int]],
    *,
    output: str = "",
) -> str:
    """Writes a slice with strides along H and W: a slice without any, and pooling of window 1.

    Args:
        new: Where to.
        source: Tensor [N, C, H, W].
        shape: Its shape.
        places: Start, count and step (positive; its factors within the pooling stride) by axis.
        output: Tensor to write; a new one when empty.
    """
    cuts, pools = {}, {}
    for axis, (start, count, step) in places.items():
        if start or -(-shape[axis] // step) != count:
            cuts[axis] = (start, start + (count - 1) * step + 1)
        pools[axis] = factors(step, _pooling_stride()) or []
    rounds = max(len(steps) for steps in pools.values())
    if not cuts and not rounds:
        # nothing goes, but something has to write the result
        cuts = {axis: (0, shape[axis]) for axis in places}
    if cuts:
        source = _cut(new, source, cuts, "" if rounds else output)
    for index in range(rounds):
        strides = [pools.get(axis, [])[index : index + 1] or [1] for axis in (2, 3)]
        source = new.node(
            "MaxPool",
            [source],
            output=output if index == rounds - 1 else "",
            role="stride",
            kernel_shape=[1, 1],
            strides=[item for part in strides for item in part],
        )
    return source


def factors(size: int, most: int) -> list[int] | None:
    """Returns factors of ``size`` of at most ``most`` each, none of 1; None without."""
    found = []
    while size > 1:
        factor = next((f for f in range(min(size, most), 1, -1) if size % f == 0), 0)
        if not factor:
            return None
        found.append(factor)
        size //= factor
    return found


def _pooling_stride() -> int:
    from edgekit.dla.rules import limit

    return limit("pooling.stride")[1]


def _cut(new: Writer, source: str, cuts: dict[int, tuple[int, int]], output: str) -> str:
    starts, ends = [cut[0] for cut in cuts.values()], [cut[1] for cut in cuts.values()]
    numbers = [new.constant(part, role="slice") for part in (starts, ends, list(cuts))]
    return new.node("Slice", [source, *numbers], output=output)
