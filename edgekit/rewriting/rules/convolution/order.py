"""The rewrites of this subject in the order in which they are tried at a node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewriting.rules.convolution.dimensions import Conv1d, Conv3d
from edgekit.rewriting.rules.convolution.limits import (
    ConvCbuf,
    LargeDilation,
    LargeKernel,
    LargePadding,
    ManyOutputMaps,
)
from edgekit.rewriting.rules.convolution.padding import PadConv, PadToConv
from edgekit.rewriting.rules.convolution.products import GemmToConv, MatMulToConv
from edgekit.rewriting.rules.convolution.scales import FoldBatchNorm, FoldScale, FoldScaleBefore
from edgekit.rewriting.rules.convolution.strides import LargeStride

if TYPE_CHECKING:
    from edgekit.rewriting.graph import Rewrite


# in the order in which they are tried at a node
REWRITES: tuple[Rewrite, ...] = (
    FoldBatchNorm(),
    FoldScale(),
    FoldScaleBefore(),
    PadConv(),
    GemmToConv(),
    MatMulToConv(),
    Conv1d(),
    Conv3d(),
    LargeStride(),
    LargeKernel(),
    LargeDilation(),
    LargePadding(),
    ConvCbuf(),
    ManyOutputMaps(),
    PadToConv(),
)
