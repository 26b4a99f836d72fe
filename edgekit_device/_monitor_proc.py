"""Load and memory as the kernel counts them: /proc/stat, /proc/meminfo, /proc/PID/stat.

Any Linux has them, a PC too. A load is the share of the time since the sample before that a core
was not idle (proc(5): all of a line but idle and iowait). Memory in use is what is not available
(MemTotal - MemAvailable), which is a little more than tegrastats's.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

from ._monitor_files import Watched, watched

__all__ = ["Memory", "Process", "Processors"]

_CORE = re.compile(r"^cpu(\d{1,4}) ([\d ]{1,400})$", re.MULTILINE)
_SIZE = re.compile(r"^(MemTotal|MemAvailable|SwapTotal|SwapFree):\s+(\d{1,15}) kB", re.MULTILINE)
_STAT, _MEMINFO = 1 << 15, 4096


class Processors:
    """Each core's load since the last sample, and its clock."""

    def __init__(self, system: Path) -> None:
        self._stat = watched(system / "proc/stat")
        self._last: Dict[int, Tuple[int, int]] = {}
        self._clocks: Dict[int, Optional[Watched]] = {}
        self._system = system
        self.add({})

    def add(self, sample: Dict[str, Any]) -> None:
        """Puts "cpu" into a sample: None for a core that is off."""
        text = self._stat.text(_STAT) if self._stat else None
        cores: List[Optional[Dict[str, Any]]] = []
        for name, counts in _CORE.findall(text or ""):
            number, ticks = int(name), [int(count) for count in counts.split()[:8]]
            if len(ticks) < 5:
                continue
            total, idle = sum(ticks), ticks[3] + ticks[4]
            before = self._last.get(number, (total, idle))
            self._last[number] = (total, idle)
            passed = total - before[0]
            busy = passed - (idle - before[1])
            # ticks are 10 ms: a core may count none between two samples
            percent = round(max(0.0, min(1.0, busy / passed)) * 100, 1) if passed > 0 else None
            cores.extend([None] * (number - len(cores)))
            cores.append({"percent": percent, "mhz": self._mhz(number)})
        if cores:
            sample["cpu"] = cores

    def _mhz(self, number: int) -> Optional[int]:
        if number not in self._clocks:
            place = "sys/devices/system/cpu/cpu{}/cpufreq/scaling_cur_freq".format(number)
            self._clocks[number] = watched(self._system / place)
        clock = self._clocks[number]
        hertz = clock.number() if clock else None
        return None if hertz is None else hertz // 1000


class Memory:
    """Memory and swap in use."""

    def __init__(self, system: Path) -> None:
        self._file = watched(system / "proc/meminfo")

    def add(self, sample: Dict[str, Any]) -> None:
        """Puts "ram" and "swap" into a sample."""
        text = self._file.text(_MEMINFO) if self._file else None
        size = {name: int(value) * 1024 for name, value in _SIZE.findall(text or "")}
        for group, total, free in (
            ("ram", "MemTotal", "MemAvailable"),
            ("swap", "SwapTotal", "SwapFree"),
        ):
            if total in size and free in size:
                used = max(size[total] - size[free], 0)
                sample[group] = {"used_bytes": used, "total_bytes": size[total]}


class Process:
    """How much of a core one process uses: what is above it in "cpu" is other load."""

    def __init__(self, number: int, system: Path) -> None:
        self._stat = watched(system / "proc/{}/stat".format(number))
        self._ticks = os.sysconf("SC_CLK_TCK")
        self._last: Optional[Tuple[float, int]] = None

    def add(self, sample: Dict[str, Any], now: float) -> None:
        """Puts "process_percent" (100 is one core) into a sample's "other"."""
        text = self._stat.text(1024) if self._stat else None
        # the second word is the program's name in brackets, and may hold anything
        words = (text or "").rpartition(")")[2].split()
        if len(words) < 13 or not (words[11].isdigit() and words[12].isdigit()):
            return
        spent = int(words[11]) + int(words[12])
        if self._last is not None and now > self._last[0]:
            share = (spent - self._last[1]) / self._ticks / (now - self._last[0])
            sample.setdefault("other", {})["process_percent"] = round(share * 100, 1)
        self._last = (now, spent)
