"""Operands that several rewrites share: scales, constants, selections.

A DLA has no gathering, no strided slices and no shuffles of blocks. Instead it supports slices with
stride 1, pooling of window 1 with a stride, transpositions of four dimensions, and convolutions
with weights of zeros and ones, which are exact in FP16 and INT8 too (each result is one product
by 1).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from edgekit.dla.rules import rule_range
from edgekit.network.graph import Node
from edgekit.rewriting.graph import RewriteGraph, Writer

LARGEST_FP16 = 65504.0
_RANK = 4
# an input channel, and the place in the kernel that selects it; channel -1: zero
Tap = tuple[int, int, int]
# most slices that are concatenated instead of a convolution ...
_MOST_RUNS = 4
# ... from this many channels on: below, a 1x1 convolution costs no more than moving the data
_FEW_CHANNELS = 128


def is_image(graph: RewriteGraph, tensor: str) -> bool:
    """Returns True if a tensor is a floating-point activation N x C x H x W, as in DLA layers."""
    if not tensor or graph.constant(tensor) or not graph.floats(tensor):
        return False
    return graph.rank(tensor) == _RANK


def channels(graph: RewriteGraph, tensor: str) -> int:
    """Returns C of a tensor N x C x H x W."""
    return graph.shape(tensor)[1]


def write_scaled(
    new: Writer,
    source: str,
    factor: float | str,
    shift: float | str,
    count: int,
    *,
    output: str = "",
    role: str = "scale",
) -> str:
    """Writes ``source * factor + shift`` as one BatchNormalization and returns its output.

    TensorRT's parser makes it a SCALE layer directly; a Mul or Add becomes a SCALE layer only if
    the builder fuses its constant, which it does not if others read that constant too.

    Args:
        new: The replacement.
        source: Tensor N x C x H x W.
        factor: A number, or the name of a vector of C elements.
        shift: A number, or the name of a vector of C elements.
        count: C.
        output: Tensor to write; a new tensor if empty.
        role: The node's purpose, in a word.
    """
    given = [
        item if isinstance(item, str) else new.constant(np.full(count, item), role=f"{role}:{part}")
        for item, part in ((factor, "factor"), (shift, "shift"))
    ]
    mean = new.constant(np.zeros(count), role=f"{role}:mean")
    variance = new.constant(np.ones(count), role=f"{role}:variance")
    # no epsilon, so that the factor is exact
    return new.node(
        "BatchNormalization",
        [source, *given, mean, variance],
        output=output,
        role=role,
        epsilon=0.0,
    )


def read_number(graph: RewriteGraph, tensor: str) -> float | None:
    """Returns the value of a constant of one floating-point element; None for other tensors."""
    if not tensor or not graph.constant(tensor) or math.prod(graph.shape(tensor)) != 1:
        return None
    return graph.scalar(tensor)


def other_input(node: Node, tensor: str) -> str:
    """Returns the other input of a node that reads ``tensor`` and one more; "" for other nodes."""
    if len(node.inputs) != 2 or tensor not in node.inputs:
        return ""
    return node.inputs[1] if node.inputs[0] == tensor else node.inputs[0]


def by_constant(graph: RewriteGraph, node: Node | None, op: str) -> tuple[str, float] | None:
    """Returns (activation, number) of a node that combines an activation with a number.

    A Div, Sub or Pow must have the number on the right, other operators on either side.
    """
    if node is None or node.domain or node.op != op or len(node.inputs) != 2:
        return None
    left, right = node.inputs
    value = read_number(graph, right)
    # commutative operators only
    if value is None and op in {"Add", "Mul"}:
        left, value = right, read_number(graph, left)
    if value is None or graph.constant(left):
        return None
    return left, value


def read_factor(graph: RewriteGraph, node: Node | None, tensor: str) -> float | None:
    """Returns the number other than 0 that a Mul or Div multiplies ``tensor`` by; None if none."""
    for op in ("Mul", "Div"):
        found = by_constant(graph, node, op)
        if found is not None and found[0] == tensor and found[1] != 0:
            return found[1] if op == "Mul" else 1 / found[1]
    return None


def constant_form(part: Sequence[int], whole: Sequence[int]) -> str:
    """Returns the form of a constant of shape ``part`` for a tensor of shape ``whole`` (NCHW).

    A SCALE layer supports "uniform", "channel" and "element"; "other" can be repeated to "element";
    "" makes the result larger than the tensor.
    """
    if len(part) > len(whole):
        return ""
    # ONNX broadcasts from the last dimension
    part = (1,) * (len(whole) - len(part)) + tuple(part)
    if any(p not in {1, w} for p, w in zip(part, whole, strict=True)):
        return ""
    if all(size == 1 for size in part):
        return "uniform"
    if part == (1, whole[1], 1, 1):
        return "channel"
    return "element" if part[1:] == tuple(whole[1:]) else "other"


def write_vector(graph: RewriteGraph, new: Writer, tensor: str, count: int) -> str:
    """Returns a constant of form "uniform" or "channel" as a separate vector of C elements."""
    size = math.prod(graph.shape(tensor))
    # always a node of its own: TensorRT does not fuse a constant that others read too
    flat = new.node("Reshape", [tensor, new.constant([size])], role="vector")
    if size == count:
        return flat
    return new.node("Expand", [flat, new.constant([count])], role="per_channel")


def expand_to_shape(graph: RewriteGraph, new: Writer, tensor: str, whole: Sequence[int]) -> str:
    """Returns a constant, repeated to "element" if a SCALE layer does not support its form."""
    fits = constant_form(graph.shape(tensor), whole)
    if fits != "other":
        return tensor
    rank = len(graph.shape(tensor))
    # a constant for all samples stays one sample
    keeps_batch = rank == len(whole) and graph.shape(tensor)[0] != 1
    shape = [whole[0] if keeps_batch else 1, *whole[1:]]
    return new.node("Expand", [tensor, new.constant(shape)], role="repeated")


def reshape(
    new: Writer, source: str, shape: Sequence[int], *, output: str = "", name: str = ""
) -> str:
    """Writes a Reshape to ``shape`` and returns its output."""
    to = new.constant(np.array(shape, dtype=np.int64), role="shape")
    return new.node("Reshape", [source, to], output=output, name=name)


def select_taps(
    new: Writer,
    source: str,
    channels: int,
    taps: Sequence[Tap],
    *,
    kernel: tuple[int, int] = (1, 1),
    strides: tuple[int, int] = (1, 1),
    output: str = "",
) -> str:
    """Writes a convolution whose output map k is ``taps[k]``, in as many groups as possible.

    Args:
        new: The writer.
        source: Tensor [N, channels, H, W].
        channels: Its channels.
        taps: The tap of each output map.
        kernel: Height and width of the kernel.
        strides: Strides along H and W; there is no padding.
        output: Tensor to write; a new tensor if empty.
    """
    groups = _groups([tap[0] for tap in taps], channels)
    depth = channels // groups
    new.check_size(len(taps), depth, *kernel)
    weight = np.zeros((len(taps), depth, *kernel))
    for index, (channel, row, column) in enumerate(taps):
        if channel >= 0:
            weight[index, channel % depth, row, column] = 1.0
    # a tensor of this replacement has no type yet; the anchor's type is used
    has_type = all(source not in node.outputs for node in new.nodes)
    like = source if has_type else ""
    return new.node(
        "Conv",
        [source, new.constant(weight, like=like, role="selection")],
        output=output,
        role="select",
        kernel_shape=list(kernel),
        strides=None if strides == (1, 1) else list(strides),
        group=None if groups == 1 else groups,
    )


def _groups(reads: Sequence[int], channels: int) -> int:
    """Returns the largest number of groups for which every output map reads its own group."""
    common = math.gcd(channels, len(reads))
    # largest first: each group's products are with its own channels only
    for groups in sorted((g for g in range(1, common + 1) if common % g == 0), reverse=True):
        before, after = channels // groups, len(reads) // groups
        if all(c < 0 or c // before == k // after for k, c in enumerate(reads)):
            return groups
    return 1


def find_runs(picks: Sequence[int]) -> list[tuple[int, int]]:
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
    """Writes nodes whose output channel k is channel ``picks[k]`` of ``source``.

    One range is a slice, a few ranges of many channels are slices and a concatenation, other picks
    are a 1x1 convolution.
    """
    parts = find_runs(picks)
    if len(parts) == 1:
        return _cut(new, source, {1: parts[0]}, output)
    if len(parts) <= _MOST_RUNS and max(channels, len(picks)) > _FEW_CHANNELS:
        whole = (0, channels)
        # a slice of everything would be a layer without effect
        cuts = [source if part == whole else _cut(new, source, {1: part}, "") for part in parts]
        return new.node("Concat", cuts, output=output, axis=1)
    return select_taps(new, source, channels, [(c, 0, 0) for c in picks], output=output)


def pick(
    new: Writer,
    source: str,
    shape: Sequence[int],
    axis: int,
    picks: Sequence[int],
    *,
    output: str = "",
) -> str:
    """Writes nodes whose output element k along ``axis`` is element ``picks[k]`` of ``source``.

    Args:
        new: The writer.
        source: Tensor of rank 2 or more.
        shape: Its shape.
        axis: Any axis except the first.
        picks: Non-negative indices.
        output: Tensor to write; a new tensor if empty.
    """
    wide, at = four_dimensions(shape, axis)
    if list(wide) != list(shape):
        inner = pick(new, reshape(new, source, wide), wide, at, picks)
        return reshape(new, inner, [*shape[:axis], len(picks), *shape[axis + 1 :]], output=output)
    if at == 1:
        return pick_channels(new, source, shape[1], picks, output=output)
    steps = {b - a for a, b in pairwise(picks)} or {1}
    # equal distances are a pooling, which needs no transposition
    if len(steps) == 1 and min(steps) > 0 and factors(min(steps), _pooling_stride()) is not None:
        place = {at: (picks[0], len(picks), min(steps))}
        return write_stepped_slice(new, source, shape, place, output=output)
    turned = to_channels(new, source, at)
    chosen = pick_channels(new, turned, shape[at], picks)
    return to_channels(new, chosen, at, output=output)


def four_dimensions(shape: Sequence[int], axis: int) -> tuple[tuple[int, ...], int]:
    """Returns a shape of four dimensions with the same elements, and the position of ``axis``.

    Dimensions other than ``axis`` may be merged; their order stays.
    """
    if len(shape) <= 4:
        return (*shape, *(1,) * (4 - len(shape))), axis
    before, after = shape[1:axis], shape[axis + 1 :]
    # then the axis itself can be C, where the DLA selects with a convolution
    if math.prod(before) == 1:
        rows = after[0] if after else 1
        return (shape[0], shape[axis], rows, math.prod(after[1:])), 1
    return (shape[0], math.prod(before), shape[axis], math.prod(after)), 2


def to_channels(new: Writer, source: str, axis: int, *, output: str = "") -> str:
    """Writes a Transpose that swaps C and ``axis`` (2 or 3) of a 4-D tensor."""
    perm = [0, 1, 2, 3]
    perm[1], perm[axis] = perm[axis], perm[1]
    return new.node("Transpose", [source], output=output, perm=perm)


def write_stepped_slice(
    new: Writer,
    source: str,
    shape: Sequence[int],
    places: dict[int, tuple[int, int, int]],
    *,
    output: str = "",
) -> str:
    """Writes a slice with strides along H and W: a slice without strides, and pooling of window 1.

    Args:
        new: The writer.
        source: Tensor [N, C, H, W].
        shape: Its shape.
        places: Start, count and step (positive; its factors within the pooling stride) by axis.
        output: Tensor to write; a new tensor if empty.
    """
    cuts, pools = {}, {}
    for axis, (start, count, step) in places.items():
        # pooling from the first element to the end reads the same elements without a slice
        if start or -(-shape[axis] // step) != count:
            cuts[axis] = (start, start + (count - 1) * step + 1)
        pools[axis] = factors(step, _pooling_stride()) or []
    rounds = max(len(steps) for steps in pools.values())
    if not cuts and not rounds:
        # all elements stay, but a node must write the result
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
    """Returns factors from 2 to ``most`` with the product ``size``; None if there are none."""
    found = []
    while size > 1:
        # greedy: large factors first, for few layers
        factor = next((f for f in range(min(size, most), 1, -1) if size % f == 0), 0)
        if not factor:
            return None
        found.append(factor)
        size //= factor
    return found


def _pooling_stride() -> int:
    return rule_range("pooling.stride")[1]


def _cut(new: Writer, source: str, cuts: dict[int, tuple[int, int]], output: str) -> str:
    starts, ends = [cut[0] for cut in cuts.values()], [cut[1] for cut in cuts.values()]
    numbers = [new.constant(part, role="slice") for part in (starts, ends, list(cuts))]
    return new.node("Slice", [source, *numbers], output=output)
