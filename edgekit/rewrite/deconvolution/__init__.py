"""Deconvolutions and resizing.

Left out, and why: deconvolutions of more channels than the limit (their tensors are too large for
a DLA themselves), over three axes (it has two), with weights computed while running; ``antialias``
where an axis shrinks (runtimes differ at the borders); regions of interest (tf_crop_and_resize);
and linear or cubic resizing of long axes by factors that are no power of 2: runtimes compute its
coordinates in FP32, and what comes of that is no exact result to be equal to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite.deconvolution._dilation import DeconvDilation
from edgekit.rewrite.deconvolution._groups import DeconvGroups
from edgekit.rewrite.deconvolution._large_kernel import DeconvLargeKernel
from edgekit.rewrite.deconvolution._large_stride import DeconvLargeStride
from edgekit.rewrite.deconvolution._one_dimension import DeconvOneDimension
from edgekit.rewrite.deconvolution._padding import DeconvPadding
from edgekit.rewrite.deconvolution._resize_axes import ResizeChannelsLast, ResizeOneDimension
from edgekit.rewrite.deconvolution._resize_coordinates import ResizeCoordinates
from edgekit.rewrite.deconvolution._resize_downscale import ResizeDownscale
from edgekit.rewrite.deconvolution._resize_growth import (
    ResizeLinearInSteps,
    ResizeLinearToPool,
    ResizeNearestLarge,
)
from edgekit.rewrite.deconvolution._resize_sizes import ResizeSizes
from edgekit.rewrite.deconvolution._resize_to_convolution import ResizeToConvolution

if TYPE_CHECKING:
    from edgekit.rewrite._types import Rewrite

__all__ = ["REWRITES"]

# in the order in which they are tried at a node
REWRITES: tuple[Rewrite, ...] = (
    DeconvOneDimension(),
    DeconvPadding(),
    DeconvDilation(),
    DeconvGroups(),
    DeconvLargeStride(),
    DeconvLargeKernel(),
    ResizeOneDimension(),
    ResizeChannelsLast(),
    ResizeSizes(),
    ResizeCoordinates(),
    ResizeNearestLarge(),
    ResizeLinearInSteps(),
    ResizeLinearToPool(),
    ResizeDownscale(),
    ResizeToConvolution(),
)
