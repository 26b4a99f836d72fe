"""Recurrences, sums along an axis, gathering and scattering."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite.sequence._cumsum import CumSum
from edgekit.rewrite.sequence._gather import Gather
from edgekit.rewrite.sequence._gather_elements import GatherElements
from edgekit.rewrite.sequence._gather_nd import GatherNd
from edgekit.rewrite.sequence._gather_shaped import GatherShaped
from edgekit.rewrite.sequence._gru import Gru
from edgekit.rewrite.sequence._lstm import Lstm
from edgekit.rewrite.sequence._rnn import Rnn
from edgekit.rewrite.sequence._scatter_elements import ScatterElements
from edgekit.rewrite.sequence._scatter_nd import ScatterNd

if TYPE_CHECKING:
    from edgekit.rewrite._types import Rewrite

__all__ = ["REWRITES"]

# in the order in which they are tried at a node
REWRITES: tuple[Rewrite, ...] = (
    Gather(),
    GatherShaped(),
    GatherElements(),
    GatherNd(),
    ScatterElements(),
    ScatterNd(),
    CumSum(),
    Gru(),
    Lstm(),
    Rnn(),
)
