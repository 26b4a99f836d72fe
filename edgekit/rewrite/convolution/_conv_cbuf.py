"""Convolutions that the convolution buffer cannot hold."""

from __future__ import annotations

from edgekit.rewrite.convolution._common import Conv
from edgekit.rewrite.convolution._over_limits import (
    OverLimit,
    too_far,
    too_full,
    too_large,
    too_padded,
)

__all__ = ["ConvCbuf"]


class ConvCbuf(OverLimit):
    """Conv over the convolution buffer -> Convs over parts of its input channels, added.

    Where fewer channels do not help (long rows), over parts of the kernel's height. Judged in
    FP16; in INT8 it takes half as much, and where it then fits nothing is gained. The channels of
    grouped convolutions are not split.
    """

    name = "conv-cbuf"
    reason = (
        "the DLA's convolution buffer holds one kernel and the rows it reads; convolutions over "
        "parts of the input channels take less, and their sum is the same"
    )

    def beyond(self, conv: Conv) -> bool:
        """The buffer is full or too small, and no other limit of the window is broken."""
        return too_full(conv) and not (too_large(conv) or too_far(conv) or too_padded(conv))
