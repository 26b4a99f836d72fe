"""Counts fields whose meaning is not known, one entry for each form of a field."""

from __future__ import annotations

import re
from typing import Dict, Iterable

__all__ = ["Unknown"]

_NUMBER = re.compile(r"\d+")
_MOST = 64


class Unknown:
    """Fields by their text; those that differ in their numbers alone count as one."""

    def __init__(self) -> None:
        self._first: Dict[str, str] = {}
        self.counts: Dict[str, int] = {}

    def add(self, fields: Iterable[str]) -> None:
        """Counts each; forms past the first 64 count as "..."."""
        for field in fields:
            form = _NUMBER.sub("0", field)
            if form not in self._first and len(self._first) >= _MOST:
                form = "..."
            name = self._first.setdefault(form, field if form != "..." else form)
            self.counts[name] = self.counts.get(name, 0) + 1
