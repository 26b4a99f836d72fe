"""Pooling and reductions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite.pooling._average_pool_inclusive import AveragePoolInclusive
from edgekit.rewrite.pooling._global_average_pool import GlobalAveragePool
from edgekit.rewrite.pooling._global_max_pool import GlobalMaxPool
from edgekit.rewrite.pooling._large_average_pool import LargeAveragePool
from edgekit.rewrite.pooling._large_max_pool import LargeMaxPool
from edgekit.rewrite.pooling._pad_pool import PadPool
from edgekit.rewrite.pooling._pool_1d import Pool1d
from edgekit.rewrite.pooling._reduce_1d import Reduce1d
from edgekit.rewrite.pooling._reduce_l1 import ReduceL1
from edgekit.rewrite.pooling._reduce_max import ReduceMax
from edgekit.rewrite.pooling._reduce_mean import ReduceMean
from edgekit.rewrite.pooling._reduce_min import ReduceMin
from edgekit.rewrite.pooling._reduce_sum import ReduceSum
from edgekit.rewrite.pooling._reduce_sum_square import ReduceSumSquare

if TYPE_CHECKING:
    from edgekit.rewrite._types import Rewrite

__all__ = ["REWRITES"]

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
