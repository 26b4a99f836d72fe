"""The rewrites of this subject in the order in which they are tried at a node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewriting.rules.layout.blocks import DepthToSpace, SpaceToDepth
from edgekit.rewriting.rules.layout.channel_shuffles import (
    ChannelShuffle,
    ChannelShuffleDense,
    ChannelShuffleFold,
    ChannelShuffleParts,
)
from edgekit.rewriting.rules.layout.concatenation import ConcatAxis, ConcatConstant, ConcatSum
from edgekit.rewriting.rules.layout.redundancy import IdentityRemoval, ShareLayout
from edgekit.rewriting.rules.layout.repetition import DropExpand, Repeat, RepeatElements
from edgekit.rewriting.rules.layout.reshapes import (
    HoistReshape,
    MergeReshapes,
    SinkReshape,
    Softmax4d,
)
from edgekit.rewriting.rules.layout.slices import (
    Focus,
    Slice4d,
    SliceBackward,
    SliceChannels,
    Split4d,
    StridedSlice,
)
from edgekit.rewriting.rules.layout.transposes import (
    MergeTransposes,
    SinkTranspose,
    TransposeIntoWeights,
)

if TYPE_CHECKING:
    from edgekit.rewriting.graph import Rewrite


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
