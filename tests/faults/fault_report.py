"""Counts faults that were injected and survived, and prints them when the session ends.

Counts travel in the reports of tests, so that they come together from several workers too.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

__all__ = ["Faults", "pytest_terminal_summary"]

_INJECTED, _SURVIVED = "faults injected", "faults survived"


class Faults:
    """Counts of one test; a fault is survived when nothing asserted after it failed."""

    def __init__(self, properties: list[tuple[str, object]]) -> None:
        self._properties = properties

    def injected(self, kind: str, count: int = 1) -> None:
        """Something was broken on purpose."""
        self._properties.append((_INJECTED, [kind, count]))

    def survived(self, kind: str, count: int = 1) -> None:
        """The board and the next command got over it."""
        self._properties.append((_SURVIVED, [kind, count]))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Prints a line for each kind of fault."""
    injected: Counter[str] = Counter()
    survived: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport) and report.when == "call":
                for name, value in report.user_properties:
                    if name in (_INJECTED, _SURVIVED):
                        chosen = injected if name == _INJECTED else survived
                        chosen[value[0]] += value[1]
    if not injected:
        return
    terminalreporter.section("faults injected and survived")
    width = max(len(kind) for kind in injected)
    for kind in sorted(injected):
        terminalreporter.line(f"{kind:<{width}}  {injected[kind]:6}  {survived[kind]:6}")
    total, good = sum(injected.values()), sum(survived.values())
    terminalreporter.line(f"{'all':<{width}}  {total:6}  {good:6}")
