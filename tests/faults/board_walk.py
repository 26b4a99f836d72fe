"""Walks a deployment operation by operation: every disk that an end may leave, and the way on."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from edgekit.bundles.manifest import Bundle
from tests.faults.board_check import leftovers
from tests.faults.crash_states import History, State, materialise, state_key
from tests.faults.forked_board import (
    APP,
    Answer,
    Zygote,
    collected,
    copy_of,
    deployment,
    new_log,
)

__all__ = ["Disk", "Walk"]


@dataclass
class Disk:
    """A disk that ends at some moments may leave.

    Attributes:
        number: The first of these moments.
        operation: Before which that is; ``path`` likewise.
        kind: Of ``DISKS``.
        state: What is on it.
        moments: How many there are.
        last: Whether one of them is after the command's answer.
    """

    number: int
    operation: str
    path: str
    kind: str
    state: State
    moments: int = 0
    last: bool = False

    def __str__(self) -> str:
        return f"{self.kind} disk before operation {self.number}, {self.operation} {self.path}"


@dataclass
class Walk:
    """One deployment over one board's folder.

    Attributes:
        zygote: Runs the commands.
        start: The board's folder before it; stays as it is.
        old: Digest of what serves then, None for nothing.
        new: The bundle that is deployed.
        scratch: A folder of this walk's own.
    """

    zygote: Zygote
    start: Path
    old: str | None
    new: Bundle
    scratch: Path

    def record(self) -> History:
        """Runs it once undisturbed; returns its log."""
        root = copy_of(self.start, self.scratch / "recorded")
        log = new_log(self.scratch / "log")
        watch = {"root": str(root), "log": str(log), "trees": True}
        done = self.zygote.run(
            deployment(root, self.new), watch=watch, check=self._wanted(root, self.new)
        )
        self._good(done, "undisturbed")
        return History(log)

    def disks(self, history: History, kind: str, seeds: int = 1) -> list[Disk]:
        """The different disks of that kind, in the order of their first moments."""
        found: dict[str, Disk] = {}
        for moment in history.moments():
            for seed in range(seeds):
                state = moment.disk(kind, history.pool, seed)
                key = state_key(state)
                if key not in found:
                    found[key] = Disk(moment.number, moment.operation, moment.path, kind, state)
                found[key].moments += 1
                # once the command has answered there is no way back
                found[key].last |= moment.operation == "end"
        return list(found.values())

    def survive(self, found: Disk, pool: Path, *, boots: bool) -> None:
        """Puts the board into that state, looks at it and deploys again; first as a boot does."""
        root = self.scratch / "after"
        shutil.rmtree(root, ignore_errors=True)
        materialise(found.state, pool, root)
        self.go_on(root, str(found), boots, only=self.new if found.last else None)

    def killed(self, number: int) -> bool:
        """Really kills it before that operation; whether there was one so late."""
        root = copy_of(self.start, self.scratch / "after")
        log = new_log(self.scratch / "kill")
        watch = {"root": str(root), "log": str(log), "kill_at": number}
        done = self.zygote.run(deployment(root, self.new), watch=watch)
        if done.status == 0:
            return False
        assert os.WIFSIGNALED(done.status), done
        self.go_on(root, f"killed before operation {number}", number % 2 == 0)
        return True

    def killed_then_cut(self, number: int) -> Disk | None:
        """Kills it, deploys again, and takes what is safe then; None when there is no such one."""
        root = copy_of(self.start, self.scratch / "after")
        log = new_log(self.scratch / "kill")
        watch = {"root": str(root), "log": str(log), "trees": True}
        done = self.zygote.run(deployment(root, self.new), watch={**watch, "kill_at": number})
        if done.status == 0:
            return None
        done = self.zygote.run(
            deployment(root, self.new), watch=watch, check=self._wanted(root, self.new)
        )
        self._good(done, f"killed before operation {number}")
        history = History(log)
        for last in history.moments():
            moment = last
        state = moment.disk("strict", history.pool)
        return Disk(moment.number, moment.operation, moment.path, "strict", state, 1, True)

    def go_on(self, root: Path, what: str, boots: bool, only: Bundle | None = None) -> None:
        """Old or new is whole; the same again ends in the new one serving and nothing over."""
        steps = [*deployment(root, self.new, resume=boots), collected(root)]
        done = self.zygote.run(
            steps, before=self._wanted(root, only), check=self._wanted(root, self.new)
        )
        assert done.before is not None, (what, done)
        assert done.before["problems"] == [], (what, done.before)
        self._good(done, what)
        left = leftovers(root)
        assert left == [], (what, left)

    def _wanted(self, root: Path, only: Bundle | None) -> dict[str, object]:
        allowed = [only.digest] if only else [self.old, self.new.digest]
        return {"root": str(root), "app": APP, "allowed": allowed}

    @staticmethod
    def _good(done: Answer, what: str) -> None:
        assert done.status == 0, (what, done)
        assert done.error == "", (what, done.answers[-1] if done.answers else None)
        assert done.check is not None
        assert done.check["problems"] == [], (what, done.check)
