"""``edgekit jobs list``: the same as ``edgekit jobs``."""

from __future__ import annotations

from edgekit.cli._jobs import listing

__all__ = ["list"]

list = listing
