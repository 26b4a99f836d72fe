"""Deconvolutions and resizing."""

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
