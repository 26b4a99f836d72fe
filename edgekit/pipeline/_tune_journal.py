"""The journal of a tuning: one JSON line for each thing done, on disk before the next begins.

A tuning that was cut off reads it and goes on; a line that a power cut left half, or that was
changed since, is left out: each ends with a digest of itself.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from edgekit._files import regular

__all__ = ["Journal"]

SCHEMA = "edgekit.tune.journal/1"
_SUM = ',"sum":"'


class Journal:
    """Lines of one tuning, told from others by its identity.

    Args:
        path: The file.
        identity: What the measurements depend on; a journal of another one is set aside as
            ``NAME.old``.
        anew: Whether to set aside what there is in any case.
        keeps: Leave the file of another one as it is; then nothing may be added.

    Attributes:
        entries: What was done.
        damaged: How many lines are left out.
    """

    def __init__(
        self, path: Path, identity: str, *, anew: bool = False, keeps: bool = False
    ) -> None:
        self.path = path
        self.entries: list[dict[str, Any]] = []
        path.parent.mkdir(parents=True, exist_ok=True)
        self.damaged = 0
        lines = list(self._lines())
        same = lines and lines[0].get("identity") == identity and not anew
        if same:
            self.entries = lines[1:]
        elif keeps:
            return
        elif path.exists():
            os.replace(path, path.with_name(f"{path.name}.old"))
        if not self.entries:
            path.unlink(missing_ok=True)
            self._write({"schema": SCHEMA, "identity": identity})
        else:
            self._end_line()

    def add(self, entry: Mapping[str, Any]) -> None:
        """Keeps an entry, durably."""
        self.entries.append(dict(entry))
        self._write(entry)

    def of(self, kind: str) -> list[dict[str, Any]]:
        """Returns the entries of an "event"."""
        return [entry for entry in self.entries if entry.get("event") == kind]

    def _write(self, entry: Mapping[str, Any]) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            body = json.dumps(entry, separators=(",", ":"))[:-1]
            file.write(f'{body}{_SUM}{_sum(body)}"}}\n')
            file.flush()
            os.fsync(file.fileno())

    def _end_line(self) -> None:
        """What follows a half line begins a line of its own."""
        with self.path.open("rb+") as file:
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                file.write(b"\n")

    def _lines(self) -> Iterator[dict[str, Any]]:
        try:
            text = regular(self.path).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return
        for line in text.split("\n"):
            body, mark, rest = line.rpartition(_SUM)
            if mark and rest == f'{_sum(body)}"}}':
                yield json.loads(body + "}")
            elif line:
                self.damaged += 1


def _sum(body: str) -> str:
    return hashlib.sha256(body.encode("utf-8", "replace")).hexdigest()[:12]
