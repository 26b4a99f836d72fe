"""Reads a board's state from /sys and /proc: load and clocks of GPU and DLA, temperatures,
throttling, power rails, processors and memory. Files are opened once and read again from the start.

The GPU is a devfreq device (``/sys/class/devfreq``: ``17000000.ga10b``, ``17000000.gpu``,
``gpu-gpc-0``) with ``cur_freq`` in Hz; ``device/load`` is its load in thousandths. A DLA core's
``power/runtime_status`` ("active", "suspended") is in its platform device, whose place differs by
release of L4T; its clocks are in debugfs, which only root can read.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Dict, Iterator, List, Mapping, Optional, Set, Tuple

from edgekit_device.board.inventory import dla_devices, read_text
from edgekit_device.board.samples import CpuCore, EngineLoad, MemoryUse, RailPower

_MOST = 1 << 16
_MOST_DIGITS = 18
_GPU = re.compile(r"gpu|gv11b|ga10b|gp10b|gb10b|gm20b")
_CLOCKS = (
    ("sys/kernel/debug/clk/dla[01]_*/clk_rate", re.compile(r"/(dla\d_\w+)/clk_rate$")),
    (
        "sys/kernel/debug/bpmp/debug/clk/nafll_dla[01]_core/rate",
        re.compile(r"/nafll_(dla\d_core)/rate$"),
    ),
    ("sys/kernel/debug/bpmp/debug/clk/emc/rate", re.compile(r"/(emc)/rate$")),
)

_CORE = re.compile(r"^cpu(\d{1,4}) ([\d ]{1,400})$", re.MULTILINE)
_SIZE = re.compile(r"^(MemTotal|MemAvailable|SwapTotal|SwapFree):\s+(\d{1,15}) kB", re.MULTILINE)
_STAT, _MEMINFO = 1 << 15, 4096

_HWMON = ("sys/bus/i2c/drivers/ina*/*/hwmon/hwmon*", "sys/class/hwmon/hwmon*")
_CHANNELS = range(1, 4)
_LABEL_OF_INA238 = "VIN"  # on Thor: the input of the whole board
_UNUSED = ("", "NC")

_SUFFIX = re.compile(r"[-_]therm(?:al)?$")
_NO_POWER = -200000
_FANS = ("pwm-fan", "pwm_fan", "fan")


class OpenFile:
    """An open file of a driver or of the kernel; an unreadable value is None, never an error.

    A sensor of a part without power answers EAGAIN or EIO and reads again later.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def text(self, most: int = 256) -> Optional[str]:
        """Returns its present text; None if it cannot be read."""
        try:
            return os.pread(self._descriptor, most, 0).decode("ascii", "replace").strip()
        except OSError:
            return None

    def number(self) -> Optional[int]:
        """Returns its present integer; None if it has none."""
        return parse_integer(self.text())


def open_file(path: Path) -> Optional[OpenFile]:
    """Opens a file; returns None if it is missing or this account may not read it."""
    try:
        # never closed: the sampling process ends soon
        return OpenFile(os.open(str(path), os.O_RDONLY | os.O_CLOEXEC))
    except OSError:
        return None


def read_word(path: Path) -> str:
    """Returns the word in a file; "" if it cannot be read."""
    return read_text(path, _MOST).strip().strip("\0")


def parse_integer(text: Optional[str]) -> Optional[int]:
    """Returns a text's integer; None if it is not an integer."""
    # bounded: int() of a very long text takes quadratic time
    if not text or len(text) > _MOST_DIGITS or not text.lstrip("-").isdigit():
        return None
    try:
        return int(text)
    except ValueError:
        return None  # "--1", or digits of another script


class GpuReader:
    """The integrated GPU as a devfreq device; "mhz" has an entry for each cluster."""

    def __init__(self, system: Path) -> None:
        self._clocks: List[OpenFile] = []
        self._load = None
        for folder in sorted(system.glob("sys/class/devfreq/*")):
            if not _GPU.search(folder.name):
                continue
            clock = open_file(folder / "cur_freq")
            if clock is not None:
                self._clocks.append(clock)
            self._load = self._load or open_file(folder / "device/load")
        for place in ("sys/devices/gpu.0/load", "sys/devices/platform/gpu.0/load"):
            self._load = self._load or open_file(system / place)

    def load(self) -> Optional[EngineLoad]:
        """Returns the load of "GR3D"; None if none of its files can be read."""
        mhz = [hertz // 1000000 for hertz in (clock.number() for clock in self._clocks) if hertz]
        load = self._load.number() if self._load else None
        if not mhz and load is None:
            return None
        # the file has thousandths
        percent = None if load is None else min(load / 10, 100.0)
        return EngineLoad(on=True if any(mhz) else None, percent=percent, mhz=tuple(mhz))


class DlaCores:
    """The DLA cores: their power states, and their clocks if this account may read these."""

    def __init__(self, system: Path) -> None:
        self._states: List[Tuple[str, OpenFile]] = []
        for place in dla_devices(system):
            state = open_file(system / place.lstrip("/") / "power/runtime_status")
            if state is not None:
                self._states.append(("dla" + place.rpartition("nvdla")[2], state))
        self._clocks: Dict[str, OpenFile] = {}
        for pattern, name in _CLOCKS:
            for path in sorted(system.glob(pattern)):
                found, clock = name.search(str(path)), open_file(path)
                if found and clock is not None:
                    # the first path that can be read: releases have the same clock in different
                    # places
                    self._clocks.setdefault(found.group(1), clock)

    def states(self) -> Dict[str, str]:
        """Returns each core's runtime status."""
        states = ((name, state.text(32)) for name, state in self._states)
        return {name: state for name, state in states if state}

    def clocks_hz(self) -> Dict[str, int]:
        """Returns their clocks in Hz, and the memory's ("emc")."""
        clocks = ((name, clock.number()) for name, clock in self._clocks.items())
        return {name: rate for name, rate in clocks if rate is not None}


def clock_caps(system: Path) -> Dict[str, int]:
    """Returns the DLA's highest clocks in Hz in this power mode, by name ("dla0_core").

    From ``clk_cap/`` of each core's platform device, which every account may read (JetPack 6).
    """
    caps = {}
    for place in dla_devices(system):
        for path in sorted((system / place.lstrip("/")).glob("clk_cap/*")):
            value = parse_integer(read_word(path))
            if value is not None:
                caps[path.name[:40]] = value
    return caps


class ProcessorLoad:
    """Each core's load since the last sample, and its clock.

    Every Linux has these files. A load is the share of the time since the previous sample in which
    a core was not idle (proc(5): all counts of a line but idle and iowait).
    """

    def __init__(self, system: Path) -> None:
        self._stat = open_file(system / "proc/stat")
        self._last: Dict[int, Tuple[int, int]] = {}
        self._clocks: Dict[int, Optional[OpenFile]] = {}
        self._system = system
        # starts the first interval: a load needs two readings
        self.cores()

    def cores(self) -> Tuple[Optional[CpuCore], ...]:
        """Returns the cores by number; None for a core that is off."""
        text = self._stat.text(_STAT) if self._stat else None
        cores: List[Optional[CpuCore]] = []
        for name, counts in _CORE.findall(text or ""):
            # without guest time, which user time already contains (proc(5))
            number, ticks = int(name), [int(count) for count in counts.split()[:8]]
            if len(ticks) < 5:
                continue
            total, idle = sum(ticks), ticks[3] + ticks[4]
            before = self._last.get(number, (total, idle))
            self._last[number] = (total, idle)
            passed = total - before[0]
            busy = passed - (idle - before[1])
            # a tick has 10 ms: a core may count no tick between two samples
            percent = round(max(0.0, min(1.0, busy / passed)) * 100, 1) if passed > 0 else None
            # a core that is off has no line
            cores.extend([None] * (number - len(cores)))
            cores.append(CpuCore(percent, self._mhz(number)))
        return tuple(cores)

    def _mhz(self, number: int) -> Optional[int]:
        # None is kept as well: a core without the file is not looked up for every sample
        if number not in self._clocks:
            place = "sys/devices/system/cpu/cpu{}/cpufreq/scaling_cur_freq".format(number)
            self._clocks[number] = open_file(self._system / place)
        clock = self._clocks[number]
        hertz = clock.number() if clock else None
        return None if hertz is None else hertz // 1000


class SystemMemory:
    """Memory and swap in use: MemTotal - MemAvailable, a little more than tegrastats prints."""

    def __init__(self, system: Path) -> None:
        self._file = open_file(system / "proc/meminfo")

    def use(self) -> Tuple[Optional[MemoryUse], Optional[MemoryUse]]:
        """Returns memory and swap; None if the kernel does not report it."""
        text = self._file.text(_MEMINFO) if self._file else None
        size = {name: int(value) * 1024 for name, value in _SIZE.findall(text or "")}
        return _memory_use(size, "MemTotal", "MemAvailable"), _memory_use(
            size, "SwapTotal", "SwapFree"
        )


def _memory_use(size: Mapping[str, int], total: str, free: str) -> Optional[MemoryUse]:
    if total not in size or free not in size:
        return None
    return MemoryUse(max(size[total] - size[free], 0), size[total])


class ProcessLoad:
    """The load of a single process, to separate it from other load in "cpu"."""

    def __init__(self, number: int, system: Path) -> None:
        self._stat = open_file(system / "proc/{}/stat".format(number))
        self._ticks = os.sysconf("SC_CLK_TCK")
        self._last: Optional[Tuple[float, int]] = None

    def percent(self, now: float) -> Optional[float]:
        """Returns the load since the last call; 100 is a whole core."""
        text = self._stat.text(1024) if self._stat else None
        # the second word is the program's name in brackets, which may contain spaces and brackets
        words = (text or "").rpartition(")")[2].split()
        if len(words) < 13 or not (words[11].isdigit() and words[12].isdigit()):
            return None
        # utime and stime, fields 14 and 15 of proc(5), in clock ticks
        spent = int(words[11]) + int(words[12])
        last, self._last = self._last, (now, spent)
        if last is None or now <= last[0]:
            return None
        return round((spent - last[1]) / self._ticks / (now - last[0]) * 100, 1)


class RailReader:
    """The rails of a board.

    From JetPack 5 on (the kernel's ina3221):
    ``/sys/bus/i2c/drivers/ina3221/1-0040/hwmon/hwmonN/`` with ``inN_label``, ``inN_input`` in
    mV and ``currN_input`` in mA, the same files below /sys/class/hwmon; channels 1 to 3, for 4
    to 7 are shunt voltages and their sum (kernel.org, Documentation/hwmon/ina3221.rst; NVIDIA,
    Jetson Linux Developer Guide, "Software-Based Power Consumption Modeling"). An INA238 has
    ``power1_input`` in microwatts (Documentation/hwmon/ina238.rst). A channel called NC is not
    connected.
    """

    def __init__(self, system: Path) -> None:
        self._rails: Dict[str, Tuple[OpenFile, Optional[OpenFile], float]] = {}
        for name, first, second, factor in _find_rails(system):
            power = open_file(first)
            current = open_file(second) if second else None
            # the same rail by the driver's and by the class's folder, or a value without its factor
            if name in self._rails or power is None or (second and current is None):
                continue
            self._rails[name] = (power, current, factor)

    def power(self) -> Dict[str, RailPower]:
        """Returns their present power; sysfs has no average and no peak."""
        found = {}
        for name, (power, current, factor) in self._rails.items():
            value = power.number()
            times = current.number() if current else 1
            if value is not None and times is not None:
                found[name] = RailPower(value * times * factor)
        return found


def _find_rails(system: Path) -> Iterator[Tuple[str, Path, Optional[Path], float]]:
    for folder in _hwmon_folders(system):
        chip = read_word(folder / "name")
        if chip.startswith("ina3221"):
            for channel in _CHANNELS:
                name = read_word(folder / "in{}_label".format(channel))
                if name not in _UNUSED:
                    volts = folder / "in{}_input".format(channel)
                    # mV times mA is microwatts
                    yield name, volts, folder / "curr{}_input".format(channel), 1e-3
        elif chip.startswith("ina2") and (folder / "power1_input").exists():
            name = read_word(folder / "power1_label") or read_word(folder / "in1_label")
            yield name or _LABEL_OF_INA238, folder / "power1_input", None, 1e-3


def _hwmon_folders(system: Path) -> Iterator[Path]:
    """Yields each chip's folder once: links of the driver and of the class lead to the same one."""
    seen: Set[str] = set()
    for pattern in _HWMON:
        for folder in sorted(system.glob(pattern)):
            try:
                place = str(folder.resolve())
            except (OSError, RuntimeError):
                continue
            if place not in seen:
                seen.add(place)
                yield folder


class Temperatures:
    """The thermal zones, by the names that tegrastats gives them ("cpu-thermal" is "cpu").

    ``/sys/class/thermal/thermal_zone*/{type,temp}`` in thousandths of a degree and
    ``cooling_device*/{type,cur_state}``: kernel.org,
    Documentation/driver-api/thermal/sysfs-api.rst. A cooling device called ``*-throttle-alert``
    is not 0 while the SoC slows down for its heat, and
    ``/sys/class/hwmon/hwmon*/oc*_event_cnt`` counts how often it did so for too much current
    (NVIDIA, Jetson Linux Developer Guide, "Orin Series: Software-Based Throttling",
    "Over-Current Throttling").
    """

    def __init__(self, system: Path) -> None:
        self._zones: List[Tuple[str, OpenFile]] = []
        for folder in sorted(system.glob("sys/class/thermal/thermal_zone*")):
            name = _SUFFIX.sub("", read_word(folder / "type"))
            value = open_file(folder / "temp")
            if name and value is not None:
                self._zones.append((name[:40], value))

    def celsius(self) -> Dict[str, float]:
        """Returns degrees Celsius by zone; a zone without power has no value or -256."""
        found = {}
        for name, zone in self._zones:
            value = zone.number()
            if value is not None and value > _NO_POWER:
                found[name] = value / 1000
        return found


class Cooling:
    """The SoC's throttling: active alerts, and counts of over-current events."""

    def __init__(self, system: Path) -> None:
        self._devices: List[Tuple[str, OpenFile]] = []
        for folder in sorted(system.glob("sys/class/thermal/cooling_device*")):
            name = read_word(folder / "type")
            value = open_file(folder / "cur_state")
            # a fan that turns is no throttling
            if name and value is not None and not name.startswith(_FANS):
                self._devices.append((name[:40], value))
        self._events: List[Tuple[str, OpenFile]] = []
        for path in sorted(system.glob("sys/class/hwmon/hwmon*/oc*_event_cnt")):
            count = open_file(path)
            if count is not None:
                self._events.append((path.name[: -len("_event_cnt")], count))

    def states(self) -> Optional[Dict[str, int]]:
        """Returns states other than 0 by device; None if the board reports none."""
        if not self._devices and not self._events:
            return None
        states = ((name, device.number()) for name, device in self._devices)
        return {name: state for name, state in states if state}

    def events(self) -> Optional[Dict[str, int]]:
        """Returns counts of over-current events; None if the board has no counters."""
        if not self._events:
            return None
        counts = ((name, count.number()) for name, count in self._events)
        return {name: n for name, n in counts if n is not None}
