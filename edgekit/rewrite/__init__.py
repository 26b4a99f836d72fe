"""Exact graph rewrites: one file each, applied where they help, proved when applied."""

from edgekit._callable import make_callable
from edgekit.rewrite._apply import rewrite, rewrites
from edgekit.rewrite._offer import offers
from edgekit.rewrite._types import Applied, Match, Rewrite

__all__ = ["Applied", "Match", "Rewrite", "offers", "rewrite", "rewrites"]

make_callable(__name__)
