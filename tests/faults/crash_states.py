"""What a disk may hold after the power went: rebuilt from the log of ``durable_ops``.

The model is POSIX's and stricter than any one file system: a file's bytes are safe as of its last
fsync, a folder's entries as of the folder's last fsync; what came later may be there or not. A
rename is one step also where two folders are part of it. Four disks for each moment:

- "killed": all of it, as a SIGKILL leaves it;
- "strict": nothing that was not synced;
- "loose": all entries, but bytes only as synced (files of none: what delayed allocation leaves);
- "torn": by a seed, some of the last entries in their order, and bytes cut or zero.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["DISKS", "History", "Moment", "State", "materialise", "state_key"]

DISKS = ("killed", "strict", "loose", "torn")

State = dict[str, tuple[str, str | bytes, int, float]]
"""Path below the root -> kind, digest in the pool (str) or bytes or link's target, mode, mtime."""


@dataclass(eq=False)
class _Thing:
    """A file, folder or link, whatever its number was used for before."""

    kind: str = "file"
    what: str = ""
    synced: str | None = None
    mode: int = 0o600
    mtime: float = 0.0


@dataclass
class _Change:
    """Entries that came and went in one step."""

    steps: list[tuple[_Thing, str, _Thing | None]]
    durable: bool = False


@dataclass
class Moment:
    """The moment before one operation: what a program sees, and what is safe."""

    number: int
    operation: str
    path: str
    tree: dict[str, list[Any]]
    things: dict[int, _Thing]
    base: dict[_Thing, dict[str, _Thing]]
    changes: list[_Change]
    top: _Thing
    synced: dict[_Thing, str] = field(default_factory=dict)

    def disk(self, kind: str, pool: Path, seed: int = 0) -> State:
        """What the disk may hold."""
        if kind == "killed":
            return {path: (what[0], what[2], what[3], what[4]) for path, what in self.tree.items()}
        rng = random.Random(f"{self.number}/{seed}")
        pending = [change for change in self.changes if not change.durable]
        happened = {"strict": 0, "loose": len(pending)}.get(kind, rng.randint(0, len(pending)))
        done = {id(change) for change in pending[:happened]}
        entries = {folder: dict(names) for folder, names in self.base.items()}
        for change in self.changes:
            if change.durable or id(change) in done:
                for folder, name, thing in change.steps:
                    names = entries.setdefault(folder, {})
                    if thing is None:
                        names.pop(name, None)
                    else:
                        names[name] = thing
        now = {self.things[what[1]]: what for what in self.tree.values() if what[1] in self.things}
        found: State = {}
        self._walk("", self.top, entries, now, found, rng if kind == "torn" else None, pool)
        return found

    def _walk(
        self,
        path: str,
        folder: _Thing,
        entries: dict[_Thing, dict[str, _Thing]],
        now: dict[_Thing, list[Any]],
        found: State,
        rng: random.Random | None,
        pool: Path,
    ) -> None:
        for name, thing in entries.get(folder, {}).items():
            where = f"{path}{name}"
            facts = now.get(thing)
            mode, mtime = (facts[3], facts[4]) if facts else (thing.mode, thing.mtime)
            if thing.kind == "folder":
                found[where] = ("folder", "", mode, mtime)
                self._walk(where + "/", thing, entries, now, found, rng, pool)
            elif thing.kind == "link":
                found[where] = ("link", thing.what, mode, mtime)
            else:
                what = self._bytes(thing, facts, rng, pool)
                found[where] = ("file", what, mode, mtime)

    def _bytes(
        self, thing: _Thing, facts: list[Any] | None, rng: random.Random | None, pool: Path
    ) -> str | bytes:
        safe = self.synced.get(thing)
        if rng is None or facts is None or facts[2] == safe:
            return safe if safe is not None else b""
        seen = (pool / facts[2]).read_bytes()
        cut = rng.randint(0, len(seen))
        return rng.choice([seen, seen[:cut], seen[:cut] + bytes(len(seen) - cut)])


class History:
    """The moments of a log that was written with ``trees``."""

    def __init__(self, log: Path) -> None:
        self.pool = log / "pool"
        text = (log / "log").read_text(encoding="ascii")
        self._lines = [json.loads(line) for line in text.splitlines()]

    def moments(self) -> Iterator[Moment]:
        """Each moment before an operation, in order; what it holds is good until the next."""
        things: dict[int, _Thing] = {}
        base: dict[_Thing, dict[str, _Thing]] = {}
        changes: list[_Change] = []
        synced: dict[_Thing, str] = {}
        tree: dict[str, list[Any]] = {}
        number = -1
        for kind, *rest in self._lines:
            if kind == "tree":
                tree = rest[0]
                if not base:
                    self._begin(tree, things, base, synced)
                self._know(tree, things)
            elif kind == "op":
                number += 1
                top = things[tree["."][1]]
                yield Moment(
                    number, rest[0], rest[1], tree, dict(things), base, changes, top, synced
                )
            elif kind == "link":
                folder, name, inode = rest
                # a number that was free before is another thing's now, unless it got one more name
                linked = any(what[1] == inode for what in tree.values())
                if not linked or inode not in things:
                    things[inode] = _Thing(kind="")
                changes.append(_Change([(things[folder], name, things[inode])]))
            elif kind == "rename":
                folder, name, target, new, inode = rest
                steps = [(things[folder], name, None), (things[target], new, things[inode])]
                changes.append(_Change(steps))
            elif kind == "unlink":
                changes.append(_Change([(things[rest[0]], rest[1], None)]))
            elif kind == "file":
                synced[things[rest[0]]] = rest[1]
            elif kind == "folder":
                folder = things[rest[0]]
                for change in changes:
                    if any(step[0] is folder for step in change.steps):
                        change.durable = True

    @staticmethod
    def _begin(
        tree: dict[str, list[Any]],
        things: dict[int, _Thing],
        base: dict[_Thing, dict[str, _Thing]],
        synced: dict[_Thing, str],
    ) -> None:
        """What was there at the start is safe."""
        for path, (kind, inode, what, mode, mtime) in tree.items():
            thing = things.setdefault(inode, _Thing(kind, what, None, mode, mtime))
            if kind == "file":
                synced[thing] = what
            if path == ".":
                base.setdefault(thing, {})
        for path, what in tree.items():
            if path != ".":
                folder, name = os.path.split(path)
                base.setdefault(things[tree[folder or "."][1]], {})[name] = things[what[1]]

    @staticmethod
    def _know(tree: dict[str, list[Any]], things: dict[int, _Thing]) -> None:
        """A new thing's kind is known as soon as it is seen."""
        for kind, inode, what, mode, mtime in tree.values():
            thing = things.get(inode)
            if thing is not None:
                thing.kind, thing.mode, thing.mtime = kind, mode, mtime
                if kind == "link":
                    thing.what = what


def state_key(state: State) -> str:
    """Equal for states that differ in nothing but times."""
    facts = sorted(
        (path, kind, what if isinstance(what, str) else hashlib.sha256(what).hexdigest())
        for path, (kind, what, _, _) in state.items()
        if path != "."
    )
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def materialise(state: State, pool: Path, root: Path) -> None:
    """Makes a folder of that state."""
    root.mkdir(parents=True, exist_ok=True)
    for path, (kind, what, mode, mtime) in sorted(state.items()):
        target = root / path
        if path == ".":
            continue
        if kind == "folder":
            target.mkdir()
        elif kind == "link":
            assert isinstance(what, str)
            target.symlink_to(what)
        else:
            data = what if isinstance(what, bytes) else (pool / what).read_bytes()
            target.write_bytes(data)
            target.chmod(mode)
            if mtime:
                os.utime(target, (mtime, mtime))
