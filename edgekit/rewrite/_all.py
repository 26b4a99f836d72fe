"""The rewrites that there are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._global_average_pool import GlobalAveragePool
from edgekit.rewrite._reduce_mean import ReduceMean

if TYPE_CHECKING:
    from edgekit.rewrite._types import Rewrite

__all__ = ["rewrites"]

_ALL: tuple[Rewrite, ...] = (GlobalAveragePool(), ReduceMean())


def rewrites() -> tuple[Rewrite, ...]:
    """Returns every rewrite, in the order in which they are tried."""
    return _ALL
