"""``edgekit fleet abort``."""

from __future__ import annotations

from edgekit.cli._fleet_ask import asker

__all__ = ["command"]

command = asker("abort")
