"""Windows of convolutions and poolings: attributes with their defaults, padding resolved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx
from onnx import helper

from edgekit.network.graph import Attributes
from edgekit_device.protocol.codec import document

#: Operators whose sizes :func:`pool_output_sizes` knows.
POOLS = frozenset({"AveragePool", "LpPool", "MaxPool"})
# the smallest total of SAME_* padding for which all runtimes agree
_CROPS = -2


@document(frozen=True)
class KernelWindow:
    """Kernel, stride and dilation per spatial axis; pads of all begins, then of all ends."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    pads: tuple[int, ...]
    dilation: tuple[int, ...]

    def params(self) -> Attributes:
        """Returns the entries of ``Layer.params``; a 1-D window becomes the first of two axes."""
        wide = len(self.kernel) == 1
        pads = (self.pads[0], 0, self.pads[1], 0) if wide else self.pads
        unit = (1,) if wide else ()
        return {
            "kernel": (*self.kernel, *unit),
            "stride": (*self.stride, *unit),
            "pads": pads,
            "dilation": (*self.dilation, *unit),
        }


def attributes(node: onnx.NodeProto) -> dict[str, Any]:
    """Returns a node's attributes as plain values, strings decoded."""
    found = {}
    for item in node.attribute:
        value = helper.get_attribute_value(item)
        found[item.name] = value.decode(errors="replace") if isinstance(value, bytes) else value
    return found


def window(
    given: Attributes, kernel: Sequence[int], source: Sequence[int], target: Sequence[int]
) -> KernelWindow:
    """Resolves strides, dilations and padding (auto_pad as ONNX's Conv and pools define it).

    Args:
        given: The node's attributes.
        kernel: Window size per spatial axis.
        source: Spatial input sizes.
        target: Spatial output sizes.
    """
    rank = len(kernel)
    stride = tuple(given.get("strides") or (1,) * rank)
    dilation = tuple(given.get("dilations") or (1,) * rank)
    auto = given.get("auto_pad", "NOTSET")
    if auto in {"SAME_UPPER", "SAME_LOWER"}:
        totals = [
            max((o - 1) * s + (k - 1) * d + 1 - i, 0)
            for o, s, k, d, i in zip(target, stride, kernel, dilation, source, strict=True)
        ]
        pads = split_padding(totals, lower=auto == "SAME_LOWER")
    elif auto == "VALID":
        pads = (0,) * (2 * rank)
    else:
        pads = tuple(given.get("pads") or (0,) * (2 * rank))
    return KernelWindow(tuple(kernel), stride, pads, dilation)


def split_padding(totals: Sequence[int], *, lower: bool) -> tuple[int, ...]:
    """Returns halved padding per axis; ``lower`` adds an odd element at the begin."""
    small = [total // 2 for total in totals]
    large = [total - half for total, half in zip(totals, small, strict=True)]
    return (*large, *small) if lower else (*small, *large)


def cropped_by_same(
    given: Attributes, kernel: Sequence[int], source: Sequence[int], target: Sequence[int]
) -> bool:
    """Returns True if SAME_* requires negative padding, for a stride far above the kernel's size.

    ONNX Runtime then crops the input (for a total of -3 and below its windows have other
    positions; measured); other runtimes use no padding.
    """
    if given.get("auto_pad", "NOTSET") not in {"SAME_UPPER", "SAME_LOWER"}:
        return False
    rank = len(kernel)
    stride, dilation = (given.get(key) or (1,) * rank for key in ("strides", "dilations"))
    totals = (
        (o - 1) * s + (k - 1) * d + 1 - i
        for o, s, k, d, i in zip(target, stride, kernel, dilation, source, strict=True)
    )
    return any(total < _CROPS for total in totals)


def pool_output_sizes(
    given: Attributes, source: Sequence[int], target: Sequence[int]
) -> tuple[int, ...]:
    """Returns a pool's spatial output sizes without windows that start after the input.

    With ``ceil_mode``, PyTorch and ONNX Runtime drop a last window that is entirely in the padding
    after the end; onnx's shape inference counts it.

    Args:
        given: The pool's attributes.
        source: Spatial input sizes.
        target: Spatial output sizes by onnx's inference.
    """
    if not given.get("ceil_mode"):
        return tuple(target)
    stride = given.get("strides") or (1,) * len(source)
    plain = given.get("auto_pad", "NOTSET") == "NOTSET"
    pads = (given.get("pads") if plain else None) or (0,) * len(source)
    # the last of `o` windows starts at (o - 1) * s, counted from the begin of the padding
    return tuple(
        o - 1 if o > 1 and (o - 1) * s >= i + b else o
        for o, s, i, b in zip(target, stride, source, pads, strict=False)
    )


def without_ceil_mode(
    given: Attributes, source: Sequence[int], target: Sequence[int]
) -> Attributes | None:
    """Returns attributes of the same pool without ``ceil_mode``; None if impossible.

    All windows before a dropped window are inside the padded input, so rounding down gives the same
    windows. On other axes padding after the end extends the last window; this is not possible for
    an average that counts padding.

    Args:
        given: The pool's attributes, with ``ceil_mode`` and no SAME_* padding.
        source: Spatial input sizes.
        target: Spatial output sizes, by :func:`pool_output_sizes`.
    """
    size = window(given, given["kernel_shape"], source, target)
    rank = len(target)
    pads = list(size.pads)
    for axis, (count, length) in enumerate(zip(target, source, strict=True)):
        span = (size.kernel[axis] - 1) * size.dilation[axis] + 1
        last = (count - 1) * size.stride[axis] + span - length - pads[axis]
        if last > pads[axis + rank]:
            if last >= size.kernel[axis] or given.get("count_include_pad"):
                return None
            pads[axis + rank] = last
    changed: dict[str, Any] = {"ceil_mode": 0}
    return changed if tuple(pads) == size.pads else {**changed, "auto_pad": "NOTSET", "pads": pads}
