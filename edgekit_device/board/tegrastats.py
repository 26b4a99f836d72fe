"""tegrastats: the child process, and the parser of its lines from JetPack 4 to 7.2 and Thor.
It needs no root, and no line raises an error; unknown fields are counted by their form.

The grammar is that of NVIDIA's Jetson Linux Developer Guide ("tegrastats Utility") and DRIVE OS's
"Reported Statistics", and of lines that boards printed:

- JetPack 4 has no date and rails without a unit (``GPU 463/463``), JetPack 7 has three values a
  rail (now, average, highest) and two a temperature (now, highest).
- An engine is ``off``, ``729`` or ``@729`` (MHz), ``36%``, ``36%@115`` or, for a GPU with several
  clusters, ``0%@[1300,1300]``; Thor prints no load: ``@[1000,1000,1000]``. ``NVENC`` is ``NVENC0``
  in JetPack 7, ``NVDLA0_FREQ @1600`` (JetPack 5, only while the DLA works) is ``NVDLA0 0%@1600``
  in JetPack 6: that load is always 0, only "on" shows that the DLA has power.
- A core that is off, or a cluster without power, is ``off``; ``-256C`` is a sensor without power.
- Rails called ``NC`` are not connected.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Callable, Dict, Iterable, List, Match, NamedTuple, Optional, Pattern, Tuple

from edgekit_device.board.samples import (
    CpuCore,
    EngineLoad,
    MemoryUse,
    OtherFacts,
    RailPower,
    Sample,
    TranslationLoad,
)
from edgekit_device.protocol.codec import document, load, member, names, text

#: The date in front of a line from JetPack 5 on, in the board's local time, whole seconds.
WALL_FORMAT = "%m-%d-%Y %H:%M:%S"

_UNITS = {"B": 1, "kB": 1 << 10, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}
_NO_POWER_C = -200.0

# digits are bounded: a damaged log must not give a number that overflows JSON or a sum
_N = r"\d{1,12}"
_P = r"-?\d{1,9}"  # Thor's VDD_GPU is below zero while the GPU sleeps
_D = r"-?\d{1,6}(?:\.\d{1,6})?"
_NAME = r"[A-Za-z][A-Za-z0-9_.+-]{0,39}"
_END = r"(?=\s|$)"

# engines whose plain number is their clock; the meaning of other plain numbers is unknown
_CORE = r"(?:\d{1,3}%(?:@\d{1,6})?|off)"
_CLUSTER = r"(?:\d{1,6}|off)"
_CLOCKED = r"(?:APE|VIC|NVENC|NVDEC|NVJPG|MSENC|OFA|SE|[A-Za-z][A-Za-z0-9_]{0,39}_FREQ)\d?"
_NO_RAILS = ("RAM", "SWAP", "IRAM", "lfb")
_ANY = re.compile(r"\S+")

_NUMBER = re.compile(r"\d+")
_MOST = 64

_ALLOWED = re.compile(r"NOPASSWD: (/\S+/tegrastats) --interval (\d{1,6})$", re.MULTILINE)
_LONGEST_LINE = 1 << 16
_GRACE_S = 1.0


class TegrastatsLine(NamedTuple):
    """A line's values.

    Attributes:
        sample: The sample; its ``t_s`` is 0, since a line has no time of the measurement.
        stamp: Unix seconds that another tool wrote in front of the line.
        date: The line's own date, in ``WALL_FORMAT``.
    """

    sample: Sample
    stamp: Optional[float]
    date: Optional[str]


class _LineFields:
    """The fields of a line; ``repeated``: two lines run together, with some fields twice."""

    def __init__(self) -> None:
        self.stamp: Optional[float] = None
        self.date: Optional[str] = None
        self.rails: Dict[str, RailPower] = {}
        self.temperatures: Dict[str, float] = {}
        self.engines: Dict[str, EngineLoad] = {}
        self.cpu: Tuple[Optional[CpuCore], ...] = ()
        self.ram: Optional[MemoryUse] = None
        self.swap: Optional[MemoryUse] = None
        self.iram: Optional[MemoryUse] = None
        self.mts: Optional[TranslationLoad] = None
        self.repeated = False

    def line(self) -> TegrastatsLine:
        """Returns the fields read so far."""
        other = OtherFacts(iram=self.iram, mts=self.mts) if self.iram or self.mts else None
        sample = Sample(
            t_s=0.0,
            rails_mw=self.rails,
            temperatures_c=self.temperatures,
            engines=self.engines,
            cpu=self.cpu,
            ram=self.ram,
            swap=self.swap,
            other=other,
        )
        return TegrastatsLine(sample, self.stamp, self.date)


_TakeField = Callable[[Match[str], _LineFields], bool]


def read_line(text: str) -> Tuple[Optional[TegrastatsLine], List[str]]:
    """Returns a line's values, None if it is not a line of tegrastats; and its unknown fields."""
    reading = _LineFields()
    unknown: List[str] = []
    separate = True  # consecutive unknown words are a single field: "NAME value value"
    position, end = 0, len(text)
    while position < end:
        if text[position].isspace():
            position += 1
            continue
        for pattern, take in _FIELDS:
            found = pattern.match(text, position)
            # a pattern may match and still refuse the field
            if found is not None and take(found, reading):
                position, separate = found.end(), True
                break
        else:
            found = _ANY.match(text, position)
            assert found is not None  # position is not at white space
            if separate:
                unknown.append(found.group()[:80])
            elif len(unknown[-1]) < 80:
                unknown[-1] += " " + found.group()[:80]
            position, separate = found.end(), False
    # every release prints memory and cores once; twice means two lines run together
    if reading.repeated or (reading.ram is None and not reading.cpu):
        return None, unknown
    return reading.line(), unknown


def _date(found: Match[str], reading: _LineFields) -> bool:
    reading.date = found.group(1)
    return True


def _stamp(found: Match[str], reading: _LineFields) -> bool:
    # jetsontools and others write the time of reading in front of a line
    reading.stamp = float(found.group(1))
    return True


def _memory(found: Match[str], reading: _LineFields) -> bool:
    name, used, total, unit = found.group(1, 2, 3, 4)
    size = MemoryUse(
        used_bytes=int(used) * _UNITS[unit],
        total_bytes=int(total) * _UNITS[unit],
        largest_free_blocks=int(found.group(5)) if found.group(5) else None,
        largest_free_block_bytes=_bytes(found.group(6), found.group(7)),
        cached_bytes=_bytes(found.group(8), found.group(9)),
    )
    if name == "IRAM":
        reading.iram = size
    elif name == "RAM":
        reading.repeated |= reading.ram is not None
        reading.ram = size
    else:
        reading.repeated |= reading.swap is not None
        reading.swap = size
    return True


def _bytes(count: Optional[str], unit: str) -> Optional[int]:
    return int(count) * _UNITS[unit] if count else None


def _cores(found: Match[str], reading: _LineFields) -> bool:
    cores: List[Optional[CpuCore]] = []
    # a clock behind the list is the clock of all cores
    shared = int(found.group(2)) if found.group(2) else None
    for word in found.group(1).split(","):
        load, _, clock = word.strip().partition("@")
        if load == "off":
            cores.append(None)
        else:
            percent = int(load.rstrip("%")) if load.rstrip("%").isdigit() else None
            mhz = int(clock) if clock.isdigit() else shared
            cores.append(CpuCore(percent, mhz))
    reading.repeated |= bool(reading.cpu)
    reading.cpu = tuple(cores)
    return True


def _engine(found: Match[str], reading: _LineFields) -> bool:
    name, off, percent, clocks, clock = found.group(1, 2, 3, 4, 5)
    mhz = [int(clock)] if clock else []
    if clocks:
        words = [word.strip() for word in clocks.split(",")]
        # a cluster of a GPU that has no power is "off" or 0
        mhz = [int(word) if word.isdigit() else 0 for word in words]
    # a load without a clock does not show if the engine has power
    on: Optional[bool] = True if any(mhz) else None
    if off or (mhz and not any(mhz)):
        on = False
    load = int(percent) if percent else None
    return _add_engine(name, EngineLoad(on, load, tuple(mhz)), reading)


def _engine_clock(found: Match[str], reading: _LineFields) -> bool:
    mhz = int(found.group(2))
    return _add_engine(found.group(1), EngineLoad(mhz > 0, None, (mhz,)), reading)


def _engine_load(found: Match[str], reading: _LineFields) -> bool:
    return _add_engine(found.group(1), EngineLoad(percent=int(found.group(2))), reading)


def _add_engine(name: str, value: EngineLoad, reading: _LineFields) -> bool:
    for suffix in ("_FREQ", "_LOAD"):
        if name.endswith(suffix):
            name = name[: -len(suffix)]
    reading.engines[name] = value
    return True


def _mts(found: Match[str], reading: _LineFields) -> bool:
    reading.mts = TranslationLoad(int(found.group(1)), int(found.group(2)))
    return True


def _temperature(found: Match[str], reading: _LineFields) -> bool:
    value = float(found.group(2))
    # -256 from a sensor without power
    if value > _NO_POWER_C:
        reading.temperatures[found.group(1)] = value
    return True


def _rail(found: Match[str], reading: _LineFields) -> bool:
    name, now, average, peak = found.group(1, 2, 3, 4)
    if name in _NO_RAILS:
        return False  # the rest of a truncated field of another kind
    if name != "NC":
        reading.rails[name] = RailPower(
            now=float(now),
            average=float(average) if average else None,
            peak=float(peak) if peak else None,
        )
    return True


# the first pattern that takes a field counts, so the more exact ones come first
_FIELDS: List[Tuple[Pattern[str], _TakeField]] = [
    (re.compile(r"(\d{2}-\d{2}-\d{4} \d{2}:\d{2}:\d{2})" + _END), _date),
    (re.compile(r"(\d{9,11}(?:\.\d{1,9})?)::"), _stamp),
    (
        re.compile(
            r"(RAM|SWAP|IRAM) ({0})/({0})([kKMG]?B)"
            r"(?: ?\((?:lfb (?:({0})x)?({0})([kKMG]?B)|cached ({0})([kKMG]?B))\))?".format(_N)
        ),
        _memory,
    ),
    (
        re.compile(
            # commas separate cores, and a core has none: a pattern that can split digits in two
            # ways takes exponential time on a damaged line
            r"(?i:cpu) \[(" + _CORE + "(?:, ?" + _CORE + r"){0,511})\](?:@(\d{1,6}))?" + _END
        ),
        _cores,
    ),
    (re.compile(r"MTS fg (\d{1,3})% bg (\d{1,3})%" + _END), _mts),
    (
        re.compile(
            r"("
            + _NAME
            + r") (?:(off)|(?:(\d{1,3})%)?@(?:\[("
            + _CLUSTER
            + "(?:, ?"
            + _CLUSTER
            + r"){0,15})\]|(\d{1,6})))"
            + _END
        ),
        _engine,
    ),
    (re.compile("(" + _CLOCKED + r") (\d{1,6})" + _END), _engine_clock),
    (re.compile("(" + _NAME + r") (\d{1,3})%" + _END), _engine_load),
    (re.compile("(" + _NAME + ")@(" + _D + ")C(?:/" + _D + "C)?" + _END), _temperature),
    (re.compile(r"({1}) ({0})mW(?:/({0})mW(?:/({0})mW)?)?".format(_P, _NAME) + _END), _rail),
    (re.compile(r"({1}) ({0})/({0})(?:/({0}))?".format(_N, _NAME) + _END), _rail),
]


class UnknownFields:
    """Counts of unknown fields; fields that differ only in their numbers count together."""

    def __init__(self) -> None:
        self._first: Dict[str, str] = {}
        self.counts: Dict[str, int] = {}

    def add(self, fields: Iterable[str]) -> None:
        """Counts each field; further forms after the first 64 count as "..."."""
        for field in fields:
            # a field whose number changes with every line counts as one form
            form = _NUMBER.sub("0", field)
            if form not in self._first and len(self._first) >= _MOST:
                form = "..."
            name = self._first.setdefault(form, field if form != "..." else form)
            self.counts[name] = self.counts.get(name, 0) + 1


@document(frozen=True)
class SetupRecord:
    """ROOT/setup.json: the sudoers file that ``setup`` wrote, and the groups that it added."""

    sudoers: str = member(text(most=1 << 18))
    groups: Tuple[str, ...] = member(names())


class TegrastatsCommand(NamedTuple):
    """A command that starts tegrastats: its words, its interval, and True if root runs it."""

    words: List[str]
    interval_ms: int
    root: bool


def find_commands(interval_ms: int, root: Path) -> List[TegrastatsCommand]:
    """Returns the commands with which this account may start tegrastats, the best first.

    Args:
        interval_ms: The requested interval; sudo allows only the intervals of the setup.
        root: ROOT; its setup.json has the permissions from ``doctor --setup``.
    """
    here = shutil.which("tegrastats")
    if here is None:
        return []
    plain = [here, "--interval", str(interval_ms)]
    if os.geteuid() == 0:
        return [TegrastatsCommand(plain, interval_ms, True)]
    found = []
    record = load(SetupRecord, root / "setup.json")
    allowed = [] if record is None else _ALLOWED.findall(record.sudoers)
    # sudo allows exact arguments only, so only the intervals in the file
    rates = {int(rate): path for path, rate in allowed}
    if rates and shutil.which("sudo"):
        # the slowest rate that is quick enough; additional lines are skipped
        rate = max((rate for rate in rates if rate <= interval_ms), default=min(rates))
        words = ["sudo", "-n", rates[rate], "--interval", str(rate)]
        found.append(TegrastatsCommand(words, rate, True))
    return [*found, TegrastatsCommand(plain, interval_ms, False)]


class Tegrastats:
    """A running tegrastats; ``descriptor`` is readable once it has printed something.

    It ends only its own process: ``tegrastats --stop``, which ends every tegrastats of the board,
    is never called. The process gets a signal. If sudo started it, it belongs to root and ignores
    the signal; then it ends at its next line, because its pipe has no reader any more (SIGPIPE).
    This also holds if the reader was killed.
    """

    def __init__(self, command: TegrastatsCommand) -> None:
        self.command = command
        self._rest = b""
        self._process = subprocess.Popen(
            command.words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert self._process.stdout is not None
        self.descriptor = self._process.stdout.fileno()

    def lines(self) -> Optional[List[str]]:
        """Returns the complete lines so far, waits for output; None once it has ended."""
        data = os.read(self.descriptor, 1 << 16)
        if not data:
            return None
        *whole, self._rest = (self._rest + data).split(b"\n")
        # output without line breaks must not fill the memory
        self._rest = self._rest[-_LONGEST_LINE:]
        return [line.decode("utf-8", "replace") for line in whole if line.strip()]

    def close(self) -> None:
        """Ends the process and waits for it, so that it leaves no zombie."""
        process = self._process
        assert process.stdout is not None
        # first: then the next line of a process that ignores the signal ends it (SIGPIPE)
        process.stdout.close()
        # a process of root ends at its next line
        patience = _GRACE_S + (self.command.interval_ms / 1e3 if self.command.root else 0.0)
        for end in (process.terminate, process.kill):
            with suppress(OSError):  # EPERM for a process of root
                end()
            try:
                process.wait(patience)
                return
            except subprocess.TimeoutExpired:
                continue
