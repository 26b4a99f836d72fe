"""Convolutions with more padding than the DLA takes."""

from __future__ import annotations

from edgekit.rewrite.convolution._common import Conv
from edgekit.rewrite.convolution._over_limits import OverLimit, too_far, too_large, too_padded

__all__ = ["LargePadding"]


class LargePadding(OverLimit):
    """Conv with padding over the limit, or not smaller than the kernel -> a Conv that fits.

    The kernel gets taps of zero, so that it is larger than the padding (a 1x1 convolution with a
    padding of 1 becomes one of 3x3); what is over the limit of the padding itself is put around
    the input before, by depthwise convolutions.
    """

    name = "large-padding"
    reason = (
        "the DLA's padding is limited and must be smaller than the kernel; taps of zero make the "
        "kernel larger and change nothing"
    )

    def beyond(self, conv: Conv) -> bool:
        """A padding is over the limits, and neither kernel nor dilation is."""
        return too_padded(conv) and not too_large(conv) and not too_far(conv)
