"""The rewrites of this subject in the order in which they are tried at a node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewriting.rules.sequence.cumulative_sum import CumSum
from edgekit.rewriting.rules.sequence.gathering import (
    Gather,
    GatherElements,
    GatherNd,
    GatherShaped,
    ScatterElements,
    ScatterNd,
)
from edgekit.rewriting.rules.sequence.recurrences import Gru, Lstm, Rnn

if TYPE_CHECKING:
    from edgekit.rewriting.graph import Rewrite


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
