"""Deconvolutions in float64: by the kernel's places or the input's, whichever are fewer."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from edgekit.rewrite._float64_call import Call, Kernel, wide

__all__ = ["KERNELS"]

# weights of more elements are widened a place at a time
_WIDENED = 1 << 23


def _index(*parts: Any) -> Any:
    # NumPy's stubs take no starred tuples
    return parts


def _conv_transpose(call: Call) -> Sequence[np.ndarray]:
    x, w, bias = call.wide(0), call.array(1), call.optional(2)
    groups = call.whole("group", 1)
    n, c, *source = x.shape
    kernel, rank = w.shape[2:], x.ndim - 2
    stride = call.wholes("strides") or (1,) * rank
    dilation = call.wholes("dilations") or (1,) * rank
    extra = call.wholes("output_padding") or (0,) * rank
    extent = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    full = [(i - 1) * s + e for i, s, e in zip(source, stride, extent, strict=True)]
    begin, out = _cropping(call, full, extra, source, stride)
    maps, deep = w.shape[1], c // groups
    room = [max(f, b + o) for f, b, o in zip(full, begin, out, strict=True)]
    y = np.zeros((n, groups, maps, *room))
    parts = x.reshape(n, groups, deep, -1)
    if math.prod(source) < math.prod(kernel) and w.size <= _WIDENED:
        _spread(y, parts, wide(w), source, stride, dilation)
    else:
        for place in itertools.product(*(range(size) for size in kernel)):
            block = wide(w[_index(slice(None), slice(None), *place)]).reshape(groups, deep, maps)
            block = block.transpose(0, 2, 1)
            made = block * parts if deep == 1 else block @ parts
            sides = zip(place, dilation, stride, source, strict=True)
            at = tuple(slice(p * d, p * d + (i - 1) * s + 1, s) for p, d, s, i in sides)
            y[_index(..., *at)] += made.reshape(n, groups, maps, *source)
    kept = tuple(slice(b, b + o) for b, o in zip(begin, out, strict=True))
    y = y[_index(..., *kept)].reshape(n, groups * maps, *out)
    return [y if bias is None else y + wide(bias).reshape(-1, *(1,) * rank)]


def _spread(
    y: np.ndarray,
    parts: np.ndarray,
    w: np.ndarray,
    source: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
) -> None:
    """Adds a whole kernel per input position: FCN's kernels have more places than their input."""
    n, groups, deep, _ = parts.shape
    kernel = w.shape[2:]
    block = w.reshape(groups, deep, -1)
    for number, position in enumerate(itertools.product(*(range(size) for size in source))):
        made = parts[..., None, :, number] @ block
        sides = zip(position, stride, dilation, kernel, strict=True)
        at = tuple(slice(q * s, q * s + (k - 1) * d + 1, d) for q, s, d, k in sides)
        y[_index(..., *at)] += made.reshape(n, groups, -1, *kernel)


def _cropping(
    call: Call,
    full: Sequence[int],
    extra: Sequence[int],
    source: Sequence[int],
    stride: Sequence[int],
) -> tuple[list[int], list[int]]:
    """How much of a deconvolution's result goes at the begin, and how much is left."""
    rank = len(full)
    shape, auto = list(call.wholes("output_shape"))[-rank:], call.text("auto_pad", "NOTSET")
    if not shape and auto in {"SAME_UPPER", "SAME_LOWER"}:
        # a stride over the kernel asks for more than there is: no runtime makes that up
        sides = zip(source, stride, full, extra, strict=True)
        shape = [min(i * s, f + x) for i, s, f, x in sides]
    if not shape:
        pads = (call.wholes("pads") if auto != "VALID" else ()) or (0,) * (2 * rank)
        sides = zip(full, extra, pads, pads[rank:], strict=False)
        return list(pads[:rank]), [f + x - b - e for f, x, b, e in sides]
    totals = [max(f + x - o, 0) for f, x, o in zip(full, extra, shape, strict=True)]
    begin = [t // 2 if auto == "SAME_UPPER" else t - t // 2 for t in totals]
    return begin, shape


KERNELS: Mapping[str, Kernel] = {"ConvTranspose": _conv_transpose}
