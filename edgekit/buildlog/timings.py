"""The times in a verbose build log: format combinations, reformats, the finished engine, and
trtexec's own tables.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace

from edgekit.buildlog.lines import strip

_CHOSEN = re.compile(
    r"^Adding reformat layer: Reformatted (?:Input|Output) Tensor \d+ (?:to|from) (.*) "
    r"\((.*?)\) from ([A-Za-z]\w*\(?[^()]*\)?) to ([A-Za-z]\w*\(?[^()]*\)?)$"
)
_HEADING = "Engine Layer Information"
_LAYER = re.compile(r"^Layer\(([A-Za-z_0-9]+)\): (.+), Tactic: \S+, (.*)$")
# 8.6 and later: name (Int8[1,3:4,224,224]); before: name[Int8(1,3:4,224,224)]
_STYLES = (
    (")", " (", re.compile(r"^[A-Za-z]\w*\[[^\[\]()]*\]$")),
    ("]", "[", re.compile(r"^[A-Za-z]\w*\([^\[\]()]*\)$")),
)
_LONGEST = 1 << 14
_SIDE = re.compile(r"^(.*) \[([A-Za-z_0-9]+)\] (inputs|outputs): (.*)$")
_SHAPED = re.compile(r"^\(([-\d, ]*)\)\[[A-Za-z0-9_]+$")
_INPUT = re.compile(r"^Adding network input: (.+?) with dtype: \S+, dimensions: \(([-\d, ]*)\)$")
_OUTPUT = re.compile(r"^Marking (.+) as output: (.+)$")
_IO = re.compile(r"^(?:Input|Output)\(s\)s format: (.*)$")
_SMS = re.compile(r"^SMs: (\d{1,4})$")
_MOST_NODES = 100_000
_NUMBER = r"(-?(?:nan|inf|\d[\d.]*(?:e[+-]?\d+)?))"
_OLD = re.compile(rf"^(.+) {_NUMBER} {_NUMBER} {_NUMBER}$")
_NEW = re.compile(rf"^{_NUMBER} {_NUMBER} {_NUMBER} {_NUMBER} (\S.*)$")
_HEADING_OLD = re.compile(r"^Layer\s+Time \(ms\)\s+Avg\. Time \(ms\)")
_HEADING_NEW = re.compile(r"^Time\(ms\)\s+Avg\.\(ms\)\s+Median\(ms\)")
_SUMMARY = re.compile(
    r"^(Latency|H2D Latency|GPU Compute Time|D2H Latency): .*mean = ([\d.e+-]+) ms"
)
_WHICH = {"Latency": "host", "H2D Latency": "h2d", "GPU Compute Time": "gpu", "D2H Latency": "d2h"}
# a line without any of these words has no times
_KEYS = (
    "Autotuning",
    "Timing Runner",
    "Fastest Tactic",
    "Computing costs for",
    "puts: [",
    "network input",
    "as output",
    "reformat layer",
    "Layer(",
    "Engine Layer",
    "tactics sel",
    "&&&& RUNNING",
    "Time(ms)",
    "Time (ms)",
    " ms",
    "format:",
    "SMs: ",
)
_COMBINATION, _REFORMAT = "Autotuning format combination:", "Autotuning Reformat:"
_RUNNER = re.compile(r"-+ Timing Runner: (.*) \(([A-Za-z_0-9]+)(?:\[0x[0-9a-fA-F]+\])?\)$")
# from 10 on the cache has the time; a unit that is entirely cached is not timed again
_CACHED = re.compile(
    r"^(.+) \[([^\[\]]+ -> [^\[\]]+)\] got cached result: ([A-Za-z_0-9]+)\S*, tactic \S+, (\S+) ms$"
)
_FASTEST = re.compile(r"Fastest Tactic: \S+ Time: (\S+)$")
_COSTS = "=============== Computing costs for"
_OPTIMISER = "Optimizer Reformat("
_FORMAT = re.compile(r"[A-Za-z]\w*(?:\([^()]*\))?")
_MOST_US = 1e12  # microseconds; the builder's value for "no tactic" is far above


@dataclass(frozen=True, slots=True)
class Combination:
    """A timed combination of a unit's input and output formats, as printed.

    ``us`` is the time of the fastest tactic in microseconds; None if it came from the builder's
    cache or no tactic was found.
    """

    reads: tuple[str, ...]
    writes: tuple[str, ...]
    us: float | None


@dataclass(frozen=True, slots=True)
class UnitTiming:
    """A unit of the engine (a GPU layer, or a loadable) and its timings, in the builder's order.

    ``runners`` are the kinds of the timed kernels ("DLA", "CaskConvolution", ...).
    """

    name: str
    runners: tuple[str, ...]
    combinations: tuple[Combination, ...]

    @property
    def on_dla(self) -> bool:
        """True if it is a loadable; Myelin's subgraphs on the GPU have similar names."""
        if self.runners:
            return any(runner.startswith("DLA") for runner in self.runners)
        return False


@dataclass(frozen=True, slots=True)
class ReformatTiming:
    """A conversion of a tensor between two formats, in microseconds.

    ``tensor`` is empty if unknown. ``outward`` is True for a conversion to the caller's format of a
    network output.
    """

    tensor: str
    outward: bool
    source: str
    goal: str
    us: float


@dataclass(frozen=True, slots=True)
class OnnxNode:
    """A node as printed by the parser; tensors in order, without constants' values."""

    name: str
    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ChosenReformat:
    """A reformat that the builder put into the engine; ``unit`` reads or writes the tensor."""

    unit: str
    tensor: str
    source: str
    goal: str


@dataclass(frozen=True, slots=True)
class EngineTensor:
    """A tensor of the finished engine and its format, such as ``Int8[1,3:4,224,224]``."""

    name: str
    format: str


@dataclass(frozen=True, slots=True)
class EngineLayer:
    """A layer of the finished engine."""

    kind: str
    name: str
    inputs: tuple[EngineTensor, ...] = ()
    outputs: tuple[EngineTensor, ...] = ()


@dataclass(frozen=True, slots=True)
class ConsoleRow:
    """A row of the table that trtexec --dumpProfile prints; ``us`` is the average."""

    name: str
    us: float


@dataclass(frozen=True)
class Timings:
    """The times in a log.

    Attributes:
        units: The units in the builder's order, which is topological.
        reformats: Every measured pair of formats by tensor.
        nodes: The ONNX nodes that the parser printed.
        shapes: Tensor shapes that the parser printed, by name.
        inputs: Names of the network's inputs.
        outputs: Names of the network's outputs.
        chosen: Reformats that the builder inserted.
        engine: Layers of the finished engine.
        table: The table of --dumpProfile.
        run_us: Means of trtexec's performance summary: "gpu", "h2d", "d2h", "host".
        io_formats: Input and output formats as printed by trtexec, such as "fp32:CHW".
        finished: True if the builder had chosen its tactics when the log ended.
        sms: Multiprocessors of the measured GPU; 0 if unknown.
    """

    units: tuple[UnitTiming, ...] = ()
    reformats: tuple[ReformatTiming, ...] = ()
    nodes: tuple[OnnxNode, ...] = ()
    shapes: tuple[tuple[str, tuple[int, ...]], ...] = ()
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    chosen: tuple[ChosenReformat, ...] = ()
    engine: tuple[EngineLayer, ...] = ()
    table: tuple[ConsoleRow, ...] = ()
    run_us: tuple[tuple[str, float], ...] = ()
    io_formats: tuple[str, ...] = ()
    finished: bool = False
    sms: int = 0


class EngineReader:
    """Collects the engine's layers and the chosen reformats."""

    def __init__(self) -> None:
        self.open = False
        self._chosen: list[ChosenReformat] = []
        self._layers: list[EngineLayer] = []

    def feed(self, text: str) -> bool:
        """Reads a line; returns True if it was used."""
        if text.startswith("Adding reformat layer: "):
            # the pattern's open groups make a hostile long line cost quadratic time
            if len(text) < _LONGEST and (match := _CHOSEN.match(text)):
                self._chosen.append(ChosenReformat(*match.groups()))
            return True
        if text.startswith(_HEADING):
            self.open, self._layers = True, []
            return True
        if not self.open:
            return False
        match = _LAYER.match(text)
        if match is None:
            self.open = False
            return False
        inputs, _, outputs = match[3].partition(" -> ")
        if "->" in outputs:
            # a tensor's name may contain the arrow: the last arrow separates the sides
            inputs, _, outputs = match[3].rpartition(" -> ")
        self._layers.append(EngineLayer(match[1], match[2], _tensors(inputs), _tensors(outputs)))
        return True

    def chosen(self) -> tuple[ChosenReformat, ...]:
        """Returns the reformats, in the builder's order."""
        return tuple(self._chosen)

    def layers(self) -> tuple[EngineLayer, ...]:
        """Returns the engine's layers, in running order."""
        return tuple(self._layers)


def _tensors(text: str) -> tuple[EngineTensor, ...]:
    for close, opening, shape in _STYLES:
        found = []
        for item in f"{text}, ".split(f"{close}, "):
            name, _, form = item.rpartition(opening)
            if name and shape.match(form):
                found.append(EngineTensor(name.strip(), form))
        if found:
            return tuple(found)
    return ()


class SourceReader:
    """Collects nodes, at most a hundred thousand."""

    def __init__(self) -> None:
        self._nodes: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {}
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._inputs: dict[str, None] = {}
        self._outputs: dict[str, None] = {}
        self._io: list[str] = []
        self._sms = 0

    def feed(self, text: str) -> bool:
        """Reads a line; returns True if it was used."""
        if "puts: " in text and (match := _SIDE.match(text)):
            self._read_side(match[1], match[2], match[3], match[4])
            return True
        if match := _INPUT.match(text):
            self._inputs[match[1]] = None
            self._shapes[match[1]] = _shape(match[2])
            return True
        if match := _OUTPUT.match(text):
            self._outputs[match[2]] = None
            return True
        if match := _IO.match(text):
            self._io.append(match[1])
            return True
        if match := _SMS.match(text):
            self._sms = int(match[1])
            return True
        return False

    def added_to(self, timings: Timings) -> Timings:
        """Returns timings with the facts of these lines."""
        return replace(
            timings,
            nodes=tuple(OnnxNode(name, *sides) for name, sides in self._nodes.items()),
            shapes=tuple(self._shapes.items()),
            inputs=tuple(self._inputs),
            outputs=tuple(self._outputs),
            io_formats=tuple(self._io),
            sms=self._sms,
        )

    def _read_side(self, name: str, kind: str, side: str, rest: str) -> None:
        if name not in self._nodes and len(self._nodes) >= _MOST_NODES:
            return
        tensors = []
        # "[x -> (1, 3)[FLOAT]], [y -> (1)[FLOAT]], "
        for item in rest.split("]]"):
            name_, _, shape = item.rpartition(" -> ")
            if match := _SHAPED.match(shape):
                tensor = name_.lstrip(", ").removeprefix("[")
                tensors.append(tensor)
                self._shapes[tensor] = _shape(match[1])
        _, inputs, outputs = self._nodes.get(name, (kind, (), ()))
        if side == "inputs":
            inputs = tuple(tensors)
        else:
            outputs = tuple(tensors)
        self._nodes[name] = (kind, inputs, outputs)


def _shape(text: str) -> tuple[int, ...]:
    return tuple(int(part[:12]) for part in text.split(",") if part.strip())


class TableReader:
    """Collects rows; a table ends at the first line that is no row."""

    def __init__(self) -> None:
        self.open = False
        self._old = False
        self._rows: list[ConsoleRow] = []
        self._run: dict[str, float] = {}

    def feed(self, text: str) -> bool:
        """Reads a line; returns True if it was used."""
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
                    self._rows.append(ConsoleRow(name, _us_or_zero(average)))
                return True
        if match := _SUMMARY.match(text):
            self._run[_WHICH[match[1]]] = _us_or_zero(match[2])
            return True
        return False

    def added_to(self, timings: Timings) -> Timings:
        """Returns timings with the table's rows."""
        return replace(timings, table=tuple(self._rows), run_us=tuple(self._run.items()))


def _us_or_zero(ms: str) -> float:
    try:
        us = round(float(ms) * 1e3, 6)
    except ValueError:
        return 0.0
    return us if math.isfinite(us) and us >= 0 else 0.0


class TimingParser:
    """Reads a log by lines; memory grows only with the measurements.

    Four generations print them alike: "Autotuning format combination", then a runner for each kind
    of kernel, each with its fastest tactic. If the builder has cached the result of a layer of the
    same shape, it prints only the combination, or adds the cached time.
    """

    def __init__(self) -> None:
        self._before: Timings | None = None
        self._start()

    def _start(self) -> None:
        self._sources, self._engine, self._table = SourceReader(), EngineReader(), TableReader()
        self._units: list[_TimedUnit] = []
        self._reformats: dict[tuple[str, bool, str, str], float] = {}
        self._pair: tuple[str, str] | None = None
        self._tensor: tuple[str, bool] = ("", False)
        self._named = self._finished = False

    def feed(self, line: str) -> None:
        """Reads a line."""
        reading = self._table.open or self._engine.open
        if not reading and not any(key in line for key in _KEYS):
            return
        _, text, _ = strip(line)
        if text.startswith("&&&& RUNNING"):
            # a later run in the log may have no timings (trtexec --loadEngine)
            if self._units:
                self._before = self.result()
            self._start()
        elif self._read_timing(text) or self._engine.feed(text) or self._sources.feed(text):
            return
        else:
            self._table.feed(text)

    def result(self) -> Timings:
        """Returns the times read so far; of several builds, the last with timings."""
        if self._before is not None and not self._units:
            return self._before
        found = Timings(
            units=_finish_units(self._units if self._named else _merge_combinations(self._units)),
            reformats=tuple(ReformatTiming(*key, us) for key, us in self._reformats.items()),
            chosen=self._engine.chosen(),
            engine=self._engine.layers(),
            finished=self._finished,
        )
        return self._table.added_to(self._sources.added_to(found))

    def _read_timing(self, text: str) -> bool:
        if text.startswith("***"):
            return self._read_pair(text)
        if text.startswith(_COSTS):
            self._named, self._pair = True, None
            self._units.append(_TimedUnit(text[len(_COSTS) :].strip()))
            return True
        if "Timing Runner: " in text and (match := _RUNNER.match(text)):
            self._read_runner(match[1], match[2])
            return True
        if "Fastest Tactic: " in text and (match := _FASTEST.search(text)):
            self._read_fastest(match[1])
            return True
        if " got cached result: " in text and (match := _CACHED.match(text)):
            self._read_cached(*match.groups())
            return True
        if text.startswith("Formats and tactics selection completed"):
            self._finished = True
            return True
        return False

    def _read_pair(self, text: str) -> bool:
        """Reads the line that names the pair to be timed next."""
        # a line without its closing stars is truncated
        inner = text.strip("* ") if text.endswith("***") else ""
        if inner.startswith(_COMBINATION):
            reads, arrow, writes = inner[len(_COMBINATION) :].partition("->")
            if arrow:
                if not self._named or not self._units:
                    self._units.append(_TimedUnit(""))
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

    def _read_runner(self, name: str, kind: str) -> None:
        if self._pair is not None:
            # after a line with a pair of formats a runner times that reformat, not a layer
            self._tensor = _tensor(name)
            return
        if not self._units:
            return
        unit = self._units[-1]
        unit.name = unit.name or name
        unit.runners[kind] = None

    def _read_cached(self, name: str, formats: str, kind: str, number: str) -> None:
        reads, _, writes = formats.partition(" -> ")
        us = _us(number)
        if name.startswith(_OPTIMISER) or kind == "Reformat":
            if us is not None:
                self._add_reformat((*_tensor(name), reads.strip(), writes.strip()), us)
            return
        # a cached result names its unit: another name begins a new one
        if not self._units or self._units[-1].name not in ("", name):
            self._units.append(_TimedUnit(name))
        unit = self._units[-1]
        unit.name = name
        unit.runners[kind] = None
        unit.begin(_formats(reads), _formats(writes))
        if us is not None:
            unit.took(us)

    def _read_fastest(self, number: str) -> None:
        us = _us(number)
        if us is None:
            return
        if self._pair is not None:
            self._add_reformat((*self._tensor, *self._pair), us)
        elif self._units:
            self._units[-1].took(us)

    def _add_reformat(self, key: tuple[str, bool, str, str], us: float) -> None:
        self._reformats[key] = min(us, self._reformats.get(key, us))


class _TimedUnit:
    def __init__(self, name: str) -> None:
        self.name = name
        self.runners: dict[str, None] = {}
        self.combinations: list[tuple[tuple[str, ...], tuple[str, ...], float | None]] = []

    def begin(self, reads: tuple[str, ...], writes: tuple[str, ...]) -> None:
        # another kind of kernel for the same formats, either kind cached
        if not self.combinations or self.combinations[-1][:2] != (reads, writes):
            self.combinations.append((reads, writes, None))

    def took(self, us: float) -> None:
        if self.combinations:
            reads, writes, before = self.combinations[-1]
            self.combinations[-1] = (reads, writes, us if before is None else min(us, before))


def _finish_units(units: list[_TimedUnit]) -> tuple[UnitTiming, ...]:
    """Returns the units; a unit's last timing counts, and cached times are looked up."""
    known: dict[tuple[object, ...], float] = {}
    found: dict[str, UnitTiming] = {}
    for unit in units:
        if not unit.combinations:  # a constant has no timings
            continue
        every = tuple((reads, writes) for reads, writes, _ in unit.combinations)
        combinations = []
        # a cached combination takes its time from an earlier unit with the same combinations
        for reads, writes, own in unit.combinations:
            key = (every, reads, writes)
            if own is not None:
                known[key] = own
            combinations.append(Combination(reads, writes, known.get(key)))
        name = unit.name or f"unit {len(found)}"
        # a unit that is timed again replaces its earlier timing, at its first place in the order
        found[name] = UnitTiming(name, tuple(unit.runners), tuple(combinations))
    return tuple(found.values())


def _merge_combinations(units: list[_TimedUnit]) -> list[_TimedUnit]:
    """Merges the combinations of a unit that old builders print separately, without a heading."""
    merged: list[_TimedUnit] = []
    for unit in units:
        if merged and unit.name in ("", merged[-1].name):
            merged[-1].combinations += unit.combinations
            merged[-1].runners |= unit.runners
        else:
            merged.append(unit)
    return merged


def _us(number: str) -> float | None:
    """Returns microseconds; None if it is no time (the builder's value for "no tactic")."""
    try:
        us = round(float(number) * 1e3, 6)
    except ValueError:
        return None
    return us if math.isfinite(us) and 0 <= us < _MOST_US else None


def _formats(text: str) -> tuple[str, ...]:
    return tuple(_FORMAT.findall(text))


def _tensor(name: str) -> tuple[str, bool]:
    if not name.startswith(_OPTIMISER):
        return "", False
    inner = name[len(_OPTIMISER) :].removesuffix(")")
    if inner.startswith("<in> -> "):
        return inner[len("<in> -> ") :], True
    return inner.removesuffix(" -> <out>"), False
