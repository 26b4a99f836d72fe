"""Boards in memory for the rollout's logic: what they serve, what goes wrong on them."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from edgekit.errors import BoardError, EnvironmentLack
from edgekit.fleet.driver import Deployed, Found
from edgekit.fleet.waves import FleetBoard

__all__ = ["NEW", "OLD", "Boards", "write_inventory"]

OLD, NEW = "0" * 64, "1" * 64


class Boards:
    """A driver whose boards are a dict; every deployment is counted."""

    def __init__(self) -> None:
        self.serves: dict[str, str] = {}
        self.away: Counter[str] = Counter()  # times that a board will not answer
        self.bad: set[str] = set()  # whose self-test fails
        self.cut: set[str] = set()  # that switch, and whose answer is lost, each time
        self.deployed: Counter[str] = Counter()
        self.went_back: list[str] = []
        self.taken_back: set[str] = set()  # that refuse the bundle from now on
        self.again = False
        self.most = 0
        self.each: Callable[[str], None] = lambda name: None
        self._now = 0
        self._lock = threading.Lock()

    def deploy(self, member: FleetBoard, found: Found) -> Deployed:
        name = member.name
        self._reach(name)
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)
        try:
            before = self.serves.get(name, OLD)
            found(before, NEW)
            self.each(name)
            if before == NEW:
                return Deployed("000002-1", NEW, changed=False)
            if name in self.taken_back and not self.again:
                raise BoardError("it was rolled back", code="install.taken-back", where=name)
            if name in self.bad:
                raise BoardError("y is off", code="selftest.failed", where=name)
            self.deployed[name] += 1
            self.serves[name] = NEW
            if name in self.cut:
                raise BoardError("the connection was cut", code="board.connection-lost")
            return Deployed("000002-1", NEW, 1000)
        finally:
            with self._lock:
                self._now -= 1

    def serving(self, member: FleetBoard) -> str:
        self._reach(member.name)
        return self.serves.get(member.name, OLD)

    def back(
        self, member: FleetBoard, digest: str, before: str, *, others_failed: bool = False
    ) -> bool:
        self._reach(member.name)
        if self.serves.get(member.name, OLD) != digest:
            return False
        self.serves[member.name] = before
        self.went_back.append(member.name)
        if not others_failed:
            self.taken_back.add(member.name)
        return True

    def _reach(self, name: str) -> None:
        if self.away[name] > 0:
            self.away[name] -= 1
            raise EnvironmentLack("cannot reach it", code="board.unreachable", where=name)


def write_inventory(path: Path, count: int = 10, extra: str = "") -> Path:
    """Writes boards b01, b02 ...; every second one is of the kind xavier."""
    rows = [
        f"  - {{name: b{n:02}, host: 10.0.0.{n}, labels: {{kind: {('orin', 'xavier')[n % 2]}}}}}"
        for n in range(1, count + 1)
    ]
    path.write_text("version: 1\nboards:\n" + "\n".join(rows) + "\n" + extra)
    return path
