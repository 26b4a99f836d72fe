"""The rewrites of this subject in the order in which they are tried at a node.

Left out, and why: deconvolutions of more channels than the limit (their tensors are too large for
a DLA themselves), over three axes (it has two), with weights computed while running; ``antialias``
where an axis shrinks (runtimes differ at the borders); regions of interest (tf_crop_and_resize);
and linear or cubic resizing of long axes by factors that are no power of 2: runtimes compute its
coordinates in FP32, and what comes of that is no exact result to be equal to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewriting.rules.deconvolution.deconvolutions import (
    DeconvDilation,
    DeconvGroups,
    DeconvLargeKernel,
    DeconvLargeStride,
    DeconvOneDimension,
    DeconvPadding,
)
from edgekit.rewriting.rules.deconvolution.growth import (
    ResizeCoordinates,
    ResizeLinearInSteps,
    ResizeLinearToPool,
    ResizeNearestLarge,
)
from edgekit.rewriting.rules.deconvolution.resampling import ResizeDownscale, ResizeToConvolution
from edgekit.rewriting.rules.deconvolution.resizing import (
    ResizeChannelsLast,
    ResizeOneDimension,
    ResizeSizes,
)

if TYPE_CHECKING:
    from edgekit.rewriting.graph import Rewrite


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
