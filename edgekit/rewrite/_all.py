"""The rewrites that there are."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgekit.rewrite._types import Rewrite

__all__ = ["APPROXIMATE", "rewrites"]

APPROXIMATE = "approx-"
_GROUPS = ("layout", "pointwise", "pooling", "convolution", "deconvolution", "sequence")


@cache
def rewrites() -> tuple[Rewrite, ...]:
    """Returns every rewrite, in the order in which they are tried at a node."""
    groups = [import_module(f"edgekit.rewrite.{name}") for name in _GROUPS]
    return tuple(item for group in groups for item in group.REWRITES)
