"""Convolutions with large kernels as sums of convolutions with smaller ones."""

from __future__ import annotations

from edgekit.rewrite.convolution._common import Conv
from edgekit.rewrite.convolution._over_limits import OverLimit, too_large

__all__ = ["LargeKernel"]


class LargeKernel(OverLimit):
    """Conv with a kernel side over the limit -> Convs over parts of the kernel, added.

    A part reads the input from its first tap on: by its own padding, by taps of zero, or, where
    neither will do, by a Slice. The bias goes with the first part.
    """

    name = "large-kernel"
    reason = (
        "the DLA's kernels have limited sides; the sum of convolutions over parts of a larger "
        "kernel is the same"
    )

    def beyond(self, conv: Conv) -> bool:
        """A side of the kernel is over the limit."""
        return too_large(conv)
