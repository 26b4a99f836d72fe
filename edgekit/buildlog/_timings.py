"""The times in a verbose build log: format combinations, reformats, and trtexec's own tables.

Four generations print them, all alike: "Autotuning format combination", then a runner for each
kind of kernel, each with its fastest tactic. Where the builder knows the answer from a layer of the
same shape, it prints the combination alone, or with the time from its cache.
"""

from __future__ import annotations

import math
import re

from edgekit.buildlog._engine import EngineReader
from edgekit.buildlog._lines import strip
from edgekit.buildlog._sources import SourceReader
from edgekit.buildlog._tables import TableReader
from edgekit.buildlog._timing_types import Combination, ReformatTiming, Timings, UnitTiming

__all__ = ["TimingParser"]

# a line with none of these tells nothing of times
_KEYS = ("Autotuning", "Timing Runner", "Fastest Tactic", "Computing costs for", "puts: [",
         "network input", "as output", "reformat layer", "Layer(", "Engine Layer", "tactics sel",
         "&&&& RUNNING", "Time(ms)", "Time (ms)", " ms", "format:", "SMs: ")  # fmt: skip
_COMBINATION, _REFORMAT = "Autotuning format combination:", "Autotuning Reformat:"
_RUNNER = re.compile(r"-+ Timing Runner: (.*) \(([A-Za-z_0-9]+)(?:\[0x[0-9a-fA-F]+\])?\)$")
# from 10 on the cache tells the time; a unit that it knows whole is not timed again
_CACHED = re.compile(
    r"^(.+) \[([^\[\]]+ -> [^\[\]]+)\] got cached result: ([A-Za-z_0-9]+)\S*, tactic \S+, (\S+) ms$"
)
_FASTEST = re.compile(r"Fastest Tactic: \S+ Time: (\S+)$")
_COSTS = "=============== Computing costs for"
_OPTIMISER = "Optimizer Reformat("
_FORMAT = re.compile(r"[A-Za-z]\w*(?:\([^()]*\))?")
_MOST = 1e12  # microseconds; what the builder prints for "no tactic" is far above


class TimingParser:
    """Takes a log line by line, in memory that grows with what it measured only."""

    def __init__(self) -> None:
        self._before: Timings | None = None
        self._start()

    def _start(self) -> None:
        self._sources, self._engine, self._table = SourceReader(), EngineReader(), TableReader()
        self._units: list[_Unit] = []
        self._reformats: dict[tuple[str, bool, str, str], float] = {}
        self._pair: tuple[str, str] | None = None
        self._tensor: tuple[str, bool] = ("", False)
        self._named = self._finished = False

    def feed(self, line: str) -> None:
        """Takes one line."""
        reading = self._table.open or self._engine.open
        if not reading and not any(key in line for key in _KEYS):
            return
        _, text, _ = strip(line)
        if text.startswith("&&&& RUNNING"):
            if self._units:
                self._before = self.result()
            self._start()
        elif self._timing(text) or self._engine.feed(text) or self._sources.feed(text):
            return
        else:
            self._table.feed(text)

    def result(self) -> Timings:
        """Returns what was read so far; of several builds the last with timings."""
        if self._before is not None and not self._units:
            return self._before
        return Timings(
            units=_finished(self._units if self._named else _merged(self._units)),
            reformats=tuple(ReformatTiming(*key, us) for key, us in self._reformats.items()),
            chosen=self._engine.chosen(),
            engine=self._engine.layers(),
            finished=self._finished,
            **self._sources.facts(),
            **self._table.facts(),
        )

    def _timing(self, text: str) -> bool:
        if text.startswith("***"):
            return self._pair_of(text)
        if text.startswith(_COSTS):
            self._named, self._pair = True, None
            self._units.append(_Unit(text[len(_COSTS) :].strip()))
            return True
        if "Timing Runner: " in text and (match := _RUNNER.match(text)):
            self._runner(match[1], match[2])
            return True
        if "Fastest Tactic: " in text and (match := _FASTEST.search(text)):
            self._fastest(match[1])
            return True
        if " got cached result: " in text and (match := _CACHED.match(text)):
            self._cached(*match.groups())
            return True
        if text.startswith("Formats and tactics selection completed"):
            self._finished = True
            return True
        return False

    def _pair_of(self, text: str) -> bool:
        """Takes the line that names what is timed next."""
        # a line without its closing stars is cut
        inner = text.strip("* ") if text.endswith("***") else ""
        if inner.startswith(_COMBINATION):
            reads, arrow, writes = inner[len(_COMBINATION) :].partition("->")
            if arrow:
                if not self._named or not self._units:
                    self._units.append(_Unit(""))
                self._pair = None
                self._units[-1].begin(_formats(reads), _formats(writes))
                return True
        if inner.startswith(_REFORMAT):
            source, arrow, goal = inner[len(_REFORMAT) :].partition(" -> ")
            if arrow:
                self._pair = (source.strip(), goal.strip())
                self._tensor = ("", False)
                return True
        return False

    def _runner(self, name: str, kind: str) -> None:
        if self._pair is not None:
            self._tensor = _tensor(name)
            return
        if not self._units:
            return
        unit = self._units[-1]
        unit.name = unit.name or name
        unit.runners[kind] = None

    def _cached(self, name: str, formats: str, kind: str, number: str) -> None:
        reads, _, writes = formats.partition(" -> ")
        us = _us(number)
        if name.startswith(_OPTIMISER) or kind == "Reformat":
            if us is not None:
                self._reformatted((*_tensor(name), reads.strip(), writes.strip()), us)
            return
        if not self._units or self._units[-1].name not in ("", name):
            self._units.append(_Unit(name))
        unit = self._units[-1]
        unit.name = name
        unit.runners[kind] = None
        unit.begin(_formats(reads), _formats(writes))
        if us is not None:
            unit.took(us)

    def _fastest(self, number: str) -> None:
        us = _us(number)
        if us is None:
            return
        if self._pair is not None:
            self._reformatted((*self._tensor, *self._pair), us)
        elif self._units:
            self._units[-1].took(us)

    def _reformatted(self, key: tuple[str, bool, str, str], us: float) -> None:
        self._reformats[key] = min(us, self._reformats.get(key, us))


class _Unit:
    def __init__(self, name: str) -> None:
        self.name = name
        self.runners: dict[str, None] = {}
        self.combinations: list[tuple[tuple[str, ...], tuple[str, ...], float | None]] = []

    def begin(self, reads: tuple[str, ...], writes: tuple[str, ...]) -> None:
        # another kind of kernel for the same formats, one of them from the cache
        if not self.combinations or self.combinations[-1][:2] != (reads, writes):
            self.combinations.append((reads, writes, None))

    def took(self, us: float) -> None:
        if self.combinations:
            reads, writes, before = self.combinations[-1]
            self.combinations[-1] = (reads, writes, us if before is None else min(us, before))


def _finished(units: list[_Unit]) -> tuple[UnitTiming, ...]:
    """Returns the units; a later timing of one counts, and what was cached is looked up."""
    known: dict[tuple[object, ...], float] = {}
    found: dict[str, UnitTiming] = {}
    for unit in units:
        if not unit.combinations:  # a constant: nothing to time
            continue
        every = tuple((reads, writes) for reads, writes, _ in unit.combinations)
        combinations = []
        for reads, writes, own in unit.combinations:
            key = (every, reads, writes)
            if own is not None:
                known[key] = own
            combinations.append(Combination(reads, writes, known.get(key)))
        name = unit.name or f"unit {len(found)}"
        found[name] = UnitTiming(name, tuple(unit.runners), tuple(combinations))
    return tuple(found.values())


def _merged(units: list[_Unit]) -> list[_Unit]:
    """Puts together what old builders print apart: one combination after the other, no heading."""
    merged: list[_Unit] = []
    for unit in units:
        if merged and unit.name in ("", merged[-1].name):
            merged[-1].combinations += unit.combinations
            merged[-1].runners |= unit.runners
        else:
            merged.append(unit)
    return merged


def _us(number: str) -> float | None:
    """Returns microseconds; None for what is no time (what the builder prints for no tactic)."""
    try:
        us = round(float(number) * 1e3, 6)
    except ValueError:
        return None
    return us if math.isfinite(us) and 0 <= us < _MOST else None


def _formats(text: str) -> tuple[str, ...]:
    return tuple(_FORMAT.findall(text))


def _tensor(name: str) -> tuple[str, bool]:
    if not name.startswith(_OPTIMISER):
        return "", False
    inner = name[len(_OPTIMISER) :].removesuffix(")")
    if inner.startswith("<in> -> "):
        return inner[len("<in> -> ") :], True
    return inner.removesuffix(" -> <out>"), False
