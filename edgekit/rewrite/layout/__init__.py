"""Shapes, transpositions, and what moves elements."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite.layout._channel_shuffle import ChannelShuffle
from edgekit.rewrite.layout._channel_shuffle_dense import ChannelShuffleDense
from edgekit.rewrite.layout._channel_shuffle_fold import ChannelShuffleFold
from edgekit.rewrite.layout._channel_shuffle_parts import ChannelShuffleParts
from edgekit.rewrite.layout._concat_axis import ConcatAxis
from edgekit.rewrite.layout._concat_constant import ConcatConstant
from edgekit.rewrite.layout._concat_sum import ConcatSum
from edgekit.rewrite.layout._depth_to_space import DepthToSpace
from edgekit.rewrite.layout._drop_expand import DropExpand
from edgekit.rewrite.layout._focus import Focus
from edgekit.rewrite.layout._hoist_reshape import HoistReshape
from edgekit.rewrite.layout._identity_removal import IdentityRemoval
from edgekit.rewrite.layout._merge_reshapes import MergeReshapes
from edgekit.rewrite.layout._merge_transposes import MergeTransposes
from edgekit.rewrite.layout._repeat import Repeat
from edgekit.rewrite.layout._repeat_elements import RepeatElements
from edgekit.rewrite.layout._share_layout import ShareLayout
from edgekit.rewrite.layout._sink_reshape import SinkReshape
from edgekit.rewrite.layout._sink_transpose import SinkTranspose
from edgekit.rewrite.layout._slice_4d import Slice4d
from edgekit.rewrite.layout._slice_backward import SliceBackward
from edgekit.rewrite.layout._slice_channels import SliceChannels
from edgekit.rewrite.layout._softmax_4d import Softmax4d
from edgekit.rewrite.layout._space_to_depth import SpaceToDepth
from edgekit.rewrite.layout._split_4d import Split4d
from edgekit.rewrite.layout._strided_slice import StridedSlice
from edgekit.rewrite.layout._transpose_into_weights import TransposeIntoWeights

if TYPE_CHECKING:
    from edgekit.rewrite._types import Rewrite

__all__ = ["REWRITES"]

# in the order in which they are tried at a node
REWRITES: tuple[Rewrite, ...] = (
    IdentityRemoval(),
    MergeTransposes(),
    MergeReshapes(),
    ShareLayout(),
    ChannelShuffleFold(),
    ChannelShuffle(),
    ChannelShuffleParts(),
    ChannelShuffleDense(),
    SpaceToDepth(),
    DepthToSpace(),
    TransposeIntoWeights(),
    SinkReshape(),
    SinkTranspose(),
    HoistReshape(),
    Softmax4d(),
    Focus(),
    StridedSlice(),
    SliceChannels(),
    SliceBackward(),
    ConcatSum(),
    ConcatAxis(),
    Slice4d(),
    Split4d(),
    DropExpand(),
    RepeatElements(),
    Repeat(),
    ConcatConstant(),
)
