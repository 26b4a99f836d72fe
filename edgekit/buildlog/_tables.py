"""Tables that trtexec prints after a run: times by layer, and the performance summary."""

from __future__ import annotations

import math
import re
from typing import Any

from edgekit.buildlog._timing_types import ConsoleRow

__all__ = ["TableReader"]

_NUMBER = r"(-?(?:nan|inf|\d[\d.]*(?:e[+-]?\d+)?))"
_OLD = re.compile(rf"^(.+) {_NUMBER} {_NUMBER} {_NUMBER}$")
_NEW = re.compile(rf"^{_NUMBER} {_NUMBER} {_NUMBER} {_NUMBER} (\S.*)$")
_LONGEST = 1 << 14
_HEADING_OLD = re.compile(r"^Layer\s+Time \(ms\)\s+Avg\. Time \(ms\)")
_HEADING_NEW = re.compile(r"^Time\(ms\)\s+Avg\.\(ms\)\s+Median\(ms\)")
_SUMMARY = re.compile(
    r"^(Latency|H2D Latency|GPU Compute Time|D2H Latency): .*mean = ([\d.e+-]+) ms"
)
_WHICH = {"Latency": "host", "H2D Latency": "h2d", "GPU Compute Time": "gpu", "D2H Latency": "d2h"}


class TableReader:
    """Collects rows; a table ends where a line is no row."""

    def __init__(self) -> None:
        self.open = False
        self._old = False
        self._rows: list[ConsoleRow] = []
        self._run: dict[str, float] = {}

    def feed(self, text: str) -> bool:
        """Takes a line; whether it was one of these."""
        for heading, old in ((_HEADING_OLD, True), (_HEADING_NEW, False)):
            if heading.match(text):
                self.open, self._old, self._rows = True, old, []
                return True
        if self.open:
            row = " ".join(text.split())
            match = (_OLD if self._old else _NEW).match(row) if len(row) < _LONGEST else None
            if match is None:
                self.open = False
            else:
                name, average = (match[1], match[3]) if self._old else (match[5], match[2])
                if name.lower() != "total":
                    self._rows.append(ConsoleRow(name, _us(average)))
                return True
        if match := _SUMMARY.match(text):
            self._run[_WHICH[match[1]]] = _us(match[2])
            return True
        return False

    def facts(self) -> dict[str, Any]:
        """Returns the fields of a Timings."""
        return {"table": tuple(self._rows), "run_us": tuple(self._run.items())}


def _us(ms: str) -> float:
    try:
        us = round(float(ms) * 1e3, 6)
    except ValueError:
        return 0.0
    return us if math.isfinite(us) and us >= 0 else 0.0
