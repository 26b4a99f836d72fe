"""The rewrites of this subject in the order in which they are tried at a node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewriting.rules.pooling.pools import (
    AveragePoolInclusive,
    GlobalAveragePool,
    GlobalMaxPool,
    LargeAveragePool,
    LargeMaxPool,
    PadPool,
    Pool1d,
)
from edgekit.rewriting.rules.pooling.reductions import (
    Reduce1d,
    ReduceL1,
    ReduceMax,
    ReduceMean,
    ReduceMin,
    ReduceSum,
    ReduceSumSquare,
)

if TYPE_CHECKING:
    from edgekit.rewriting.graph import Rewrite


# in the order in which they are tried at a node
REWRITES: tuple[Rewrite, ...] = (
    Pool1d(),
    Reduce1d(),
    PadPool(),
    GlobalAveragePool(),
    ReduceMean(),
    ReduceSum(),
    ReduceSumSquare(),
    ReduceL1(),
    GlobalMaxPool(),
    ReduceMax(),
    ReduceMin(),
    LargeMaxPool(),
    LargeAveragePool(),
    AveragePoolInclusive(),
)
