"""Clips between any bounds."""

from __future__ import annotations

import math

from edgekit.dla.rules import rule_range
from edgekit.network.graph import Node
from edgekit.rewriting.graph import Replacement, RewriteGraph, Writer, rewrite
from edgekit.rewriting.rules.operands import (
    LARGEST_FP16,
    channels,
    is_image,
    write_scaled,
)
from edgekit.rewriting.step import in_half

# ONNX's default bounds up to opset 10 are the largest FP32 numbers, 3.4028e38
_LARGEST_FP32 = 3.4e38
# larger shifts lose values near 0 in FP16 (11 bits)
_FAR = 8.0
# bounds at a smaller relative distance cancel out
_NARROW = 1 / 32


def read_bound(graph: RewriteGraph, tensor: str, dtype: str) -> tuple[bool, float | None]:
    """Returns True if a bound is known, and the bound; None if it has no effect.

    A bound that has an effect in FP32 but not in FP16 counts as unknown: it would be wrong in one
    of the types.

    Args:
        graph: The graph.
        tensor: A scalar constant; "" for no bound.
        dtype: NumPy type of the clipped tensor; its largest number has no effect as a bound.
    """
    if not tensor:
        return True, None
    value = graph.scalar(tensor)
    if value is None or math.isnan(value):
        return False, None
    if abs(value) >= (LARGEST_FP16 if dtype == "float16" else _LARGEST_FP32):
        return True, None
    return (True, value) if abs(value) < LARGEST_FP16 else (False, None)


def is_native_clip(low: float | None, high: float | None) -> bool:
    """Returns True if the DLA supports this clip directly."""
    least, most = rule_range("activation.clip_upper")
    return low == 0 and high is not None and least <= high <= most


def can_clip(low: float | None, high: float | None) -> bool:
    """Returns True if ``write_clip`` has a numerically stable form for the bounds, also in FP16."""
    if low is None and high is None:
        return False
    # ONNX lets the upper bound win, but no form here does
    if low is not None and high is not None and low >= high:
        return False
    factors = [_scale_to_range(width)[0] for width in _widths(low, high)]
    # FP16 must hold the scales before and after the clip
    if not all(in_half(factor, 1 / factor) for factor in factors):
        return False
    if low is None or high is None:
        return True
    around_zero = low <= 0 <= high
    # the shift to zero and back cancels digits
    return around_zero or high - low >= _NARROW * max(abs(low), abs(high))


def write_clip(
    new: Writer, source: str, low: float | None, high: float | None, count: int, *, output: str
) -> str:
    """Writes ``min(max(source, low), high)`` with bounds that ``can_clip`` accepts.

    Three forms: a clip from zero, scaled if its upper bound is out of range; a shift to zero and
    back; and for far bounds on both sides of zero, the positive part less the negative part, which
    keeps the precision near zero.

    Args:
        new: The replacement.
        source: Tensor N x C x H x W.
        low: Lower bound; None if unbounded.
        high: Upper bound; None if unbounded.
        count: C.
        output: Tensor to write.
    """
    if low == 0:
        return _clip_signed(new, source, 1.0, high, count, output)
    if _has_far_bounds(low, high):
        if (
            low is not None
            and high is not None
            and low == -high
            and _scale_to_range(high)[0] != 1.0
        ):
            # one scale back for both parts, not one for each
            return _both_parts(new, source, high, count, output)
        above = _clip_signed(new, source, 1.0, high, count, "")
        below = _clip_signed(new, source, -1.0, None if low is None else -low, count, "")
        return new.node("Sub", [above, below], output=output, role="parts")
    if low is None or high is None:
        # min(x, c) = c - max(c - x, 0)
        sign, at = (1.0, low) if low is not None else (-1.0, high)
        assert at is not None
        moved = write_scaled(new, source, sign, -sign * at, count, role="to_zero")
        limited = new.node("Relu", [moved], role="relu")
        return write_scaled(new, limited, sign, at, count, output=output, role="back")
    factor, upper = _scale_to_range(high - low)
    moved = write_scaled(new, source, factor, -factor * low, count, role="to_zero")
    limited = clip_from_zero(new, moved, upper)
    return write_scaled(new, limited, 1 / factor, low, count, output=output, role="back")


def _both_parts(new: Writer, source: str, high: float, count: int, output: str) -> str:
    """Writes a clip from -high to high with one common scale of its two parts."""
    factor, upper = _scale_to_range(high)
    parts = [
        clip_from_zero(
            new, write_scaled(new, source, sign * factor, 0.0, count, role="to_range"), upper
        )
        for sign in (1.0, -1.0)
    ]
    apart = new.node("Sub", parts, role="parts")
    return write_scaled(new, apart, 1 / factor, 0.0, count, output=output, role="back")


def _has_far_bounds(low: float | None, high: float | None) -> bool:
    if (low is not None and low > 0) or (high is not None and high <= 0):
        return False
    return max(abs(low or 0.0), abs(high or 0.0)) > _FAR


def _widths(low: float | None, high: float | None) -> list[float]:
    """Returns the widths of the clips from zero that ``write_clip`` writes."""
    if low == 0 or _has_far_bounds(low, high):
        return [abs(item) for item in (low, high) if item]
    return [] if low is None or high is None else [high - low]


def _scale_to_range(width: float) -> tuple[float, float]:
    """Returns the factor, and the upper bound of the scaled clip."""
    least, most = rule_range("activation.clip_upper")
    if width < least:
        return least / width, float(least)
    if width > most:
        return most / width, float(most)
    return 1.0, width


def _clip_signed(
    new: Writer, source: str, sign: float, high: float | None, count: int, output: str
) -> str:
    """Writes ``min(max(sign * source, 0), high)``."""
    factor, upper = (1.0, None) if high is None else _scale_to_range(high)
    if sign * factor != 1.0:
        source = write_scaled(new, source, sign * factor, 0.0, count, role="to_range")
    last = output if factor == 1.0 else ""
    if upper is None:
        clipped = new.node("Relu", [source], output=last, role="relu")
    else:
        clipped = clip_from_zero(new, source, upper, last)
    return (
        clipped
        if factor == 1.0
        else write_scaled(new, clipped, 1 / factor, 0.0, count, output=output)
    )


def clip_from_zero(new: Writer, source: str, high: float, output: str = "") -> str:
    """Writes a Clip between zero and ``high`` and returns its output."""
    bounds = [new.constant(0.0, role="min"), new.constant(high, role="max")]
    return new.node("Clip", [source, *bounds], output=output, role="clip")


@rewrite(
    "clip",
    operators=("Clip",),
    reason="the DLA clips only from 0 to an upper bound within a range; scales before and after "
    "the clip allow any bounds",
)
def clip(graph: RewriteGraph, node: Node) -> Replacement:
    """Writes a Clip between other bounds; not for computed bounds or bounds that cancel out.

    At a Clip of an image with constant bounds that the DLA does not support directly.
    """
    source = node.inputs[0]
    if not is_image(graph, source):
        return
    known_low, low = read_bound(graph, node.input(1), graph.dtype(source))
    known_high, high = read_bound(graph, node.input(2), graph.dtype(source))
    if not (known_low and known_high) or is_native_clip(low, high) or not can_clip(low, high):
        return
    new = yield (node,)
    write_clip(new, source, low, high, channels(graph, source), output=node.outputs[0])
