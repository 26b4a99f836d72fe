"""Convolutions and matrix products."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite.convolution._conv_1d import Conv1d
from edgekit.rewrite.convolution._conv_3d import Conv3d
from edgekit.rewrite.convolution._conv_cbuf import ConvCbuf
from edgekit.rewrite.convolution._fold_after import FoldBatchNorm, FoldScale
from edgekit.rewrite.convolution._fold_before import FoldScaleBefore
from edgekit.rewrite.convolution._gemm_to_conv import GemmToConv
from edgekit.rewrite.convolution._large_dilation import LargeDilation
from edgekit.rewrite.convolution._large_kernel import LargeKernel
from edgekit.rewrite.convolution._large_padding import LargePadding
from edgekit.rewrite.convolution._large_stride import LargeStride
from edgekit.rewrite.convolution._many_output_maps import ManyOutputMaps
from edgekit.rewrite.convolution._matmul_to_conv import MatMulToConv
from edgekit.rewrite.convolution._pad_conv import PadConv
from edgekit.rewrite.convolution._pad_to_conv import PadToConv

if TYPE_CHECKING:
    from edgekit.rewrite._types import Rewrite

__all__ = ["REWRITES"]

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
