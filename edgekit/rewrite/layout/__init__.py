"""Shapes, transpositions, and what moves elements."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite.layout._channel_shuffle import ChannelShuffle, ChannelShuffleFold
from edgekit.rewrite.layout._depth_to_space import DepthToSpace
from edgekit.rewrite.layout._space_to_depth import SpaceToDepth

if TYPE_CHECKING:
    from edgekit.rewrite._types import Rewrite

__all__ = ["REWRITES"]

# in the order in which they are tried at a node
REWRITES: tuple[Rewrite, ...] = (
    ChannelShuffleFold(),
    ChannelShuffle(),
    SpaceToDepth(),
    DepthToSpace(),
)
