"""Convolutions whose taps are far apart as sums of convolutions of one tap."""

from __future__ import annotations

from edgekit.rewrite.convolution._common import Conv
from edgekit.rewrite.convolution._over_limits import OverLimit, too_far, too_large

__all__ = ["LargeDilation"]


class LargeDilation(OverLimit):
    """Conv with a dilation over the limit -> a Conv for each tap along that axis, added.

    Each reads a Slice of the input; where there is padding, layers of zeros provide it before.
    """

    name = "large-dilation"
    reason = (
        "the DLA's dilation is limited; convolutions with one tap each have none, and their sum "
        "is the same"
    )

    def beyond(self, conv: Conv) -> bool:
        """A dilation is over the limit."""
        return too_far(conv) and not too_large(conv)
