"""Exact graph rewrites: one file each, applied where they help, proved when applied."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit._callable import make_callable
from edgekit._lazy import lazy

if TYPE_CHECKING:
    from edgekit.rewrite._all import rewrites
    from edgekit.rewrite._apply import rewrite
    from edgekit.rewrite._offer import offers
    from edgekit.rewrite._types import Applied, Match, Node, Rewrite

__all__ = ["Applied", "Match", "Node", "Rewrite", "offers", "rewrite", "rewrites"]

__getattr__ = lazy(
    __name__,
    {
        "_all": "rewrites",
        "_apply": "rewrite",
        "_offer": "offers",
        "_types": "Applied Match Node Rewrite",
    },
)
make_callable(__name__)
