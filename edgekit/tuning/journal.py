"""The journal of a tuning: a JSON line for each action, on disk before the next action begins.

An interrupted tuning reads its journal and continues. Truncated and changed lines are ignored: each
line ends with its own digest.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field, TypeAdapter

from edgekit.benchmark.document import Bench
from edgekit.documents import Coded, Document, Number
from edgekit.files import read_file
from edgekit.placement.plan import Plan

SCHEMA: Final = "edgekit.tune.journal/1"
_SUM = ',"sum":"'
_LARGEST = 256 << 20  # bytes


class JournalStart(Document):
    """The first line: the conditions of the measurements."""

    schema_: Literal["edgekit.tune.journal/1"] = Field(alias="schema")
    identity: str


class _Entry(Document):
    """An action."""

    spent_s: Annotated[Number, Field(ge=0)] = Field(0.0, description="seconds of the tuning so far")


class TrialBegun(_Entry):
    """A plan's build and measurement begin."""

    event: Literal["trial"]
    number: int
    plan: Annotated[Plan, Coded()]
    key: str = Field(description="the difference from other plans")
    origin: str
    why: str
    expected: Annotated[list[Number], Field(min_length=2, max_length=2)] | None = Field(
        None, description="its cost and the deviation"
    )
    form: str | None = Field(None, description="its network's name")


class PlanMeasured(_Entry):
    """A measurement of a trial's plan."""

    event: Literal["run"]
    number: int
    key: str | None = Field(None, description="the plan's; older journals have none")
    run: Bench = Field(description="the parts that a tuning reads; few of the samples")
    at: Number = Field(description="Unix seconds")
    turn: int | None = Field(None, description="number of the turn that it is a part of")


class PlanDropped(_Entry):
    """A trial's plan could not be built or measured."""

    event: Literal["dropped"]
    number: int
    why: str


class TuningEnded(_Entry):
    """How the search and the turns ended."""

    event: Literal["end"]
    status: str
    why: str
    bound: Number | None
    notes: list[str]


JournalEntry = TrialBegun | PlanMeasured | PlanDropped | TuningEnded


@cache
def _line_reader() -> TypeAdapter[JournalStart | JournalEntry]:
    entry = Annotated[JournalEntry, Field(discriminator="event")]
    return TypeAdapter(JournalStart | entry)


class TuningJournal:
    """The lines of a tuning, which is identified by the conditions of its measurements.

    Args:
        path: The file.
        identity: The conditions of the measurements; a journal with another identity is renamed to
            ``NAME.old``.
        anew: Rename an existing journal in any case.
        keeps: Leave a file with another identity unchanged; then no entry may be added.

    Attributes:
        entries: The actions in their order.
        damaged: Number of ignored lines.
    """

    def __init__(
        self, path: Path, identity: str, *, anew: bool = False, keeps: bool = False
    ) -> None:
        self.path = path
        self.entries: list[JournalEntry] = []
        path.parent.mkdir(parents=True, exist_ok=True)
        self.damaged = 0
        start = JournalStart(schema=SCHEMA, identity=identity)
        lines = list(self._lines())
        if lines[:1] == [start] and not anew:
            self.entries = [line for line in lines if not isinstance(line, JournalStart)]
        elif keeps:
            return
        elif path.exists():
            os.replace(path, path.with_name(f"{path.name}.old"))
        # also a file of which only damaged lines are left: it begins anew
        if not self.entries:
            path.unlink(missing_ok=True)
            self._write(start)
        else:
            with path.open("rb+") as file:
                file.seek(-1, os.SEEK_END)
                # a last line that was cut off is ended, so that the next entry begins a new line
                if file.read(1) != b"\n":
                    file.write(b"\n")

    def add(self, entry: JournalEntry) -> None:
        """Appends an entry and syncs the file to disk."""
        self.entries.append(entry)
        self._write(entry)

    def _write(self, line: JournalStart | JournalEntry) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            # without its last brace: the digest is put in as the last key
            body = json.dumps(line.to_json(), separators=(",", ":"))[:-1]
            file.write(f'{body}{_SUM}{_sum(body)}"}}\n')
            file.flush()
            os.fsync(file.fileno())

    def _lines(self) -> Iterator[JournalStart | JournalEntry]:
        try:
            text = read_file(self.path, _LARGEST).decode("utf-8", "replace")
        except OSError:
            return
        for line in filter(None, text.split("\n")):
            body, mark, rest = line.rpartition(_SUM)
            try:
                if not mark or rest != f'{_sum(body)}"}}':
                    raise ValueError("its digest is another")
                yield _line_reader().validate_json(body + "}")
            except ValueError:  # also a validation error: written by another version
                self.damaged += 1


def _sum(body: str) -> str:
    return hashlib.sha256(body.encode("utf-8", "replace")).hexdigest()[:12]
