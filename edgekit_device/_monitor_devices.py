"""What sysfs says of the GPU and of the DLA cores: load, clocks, whether they have power.

The GPU is a devfreq device (``/sys/class/devfreq``: ``17000000.ga10b``, ``17000000.gpu``,
``gpu-gpc-0``) with ``cur_freq`` in Hz; ``device/load`` is its load in thousandths. A DLA core's
``power/runtime_status`` ("active", "suspended") stands in its platform device, wherever the release
of L4T has put that; its clocks are in debugfs, which root alone may read.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Dict, List, Tuple

from ._monitor_files import Watched, watched, whole, word_of
from ._probe_files import dla_devices

__all__ = ["DlaCores", "Gpu", "clock_caps"]

_GPU = re.compile(r"gpu|gv11b|ga10b|gp10b|gb10b|gm20b")
_CLOCKS = (
    ("sys/kernel/debug/clk/dla[01]_*/clk_rate", re.compile(r"/(dla\d_\w+)/clk_rate$")),
    (
        "sys/kernel/debug/bpmp/debug/clk/nafll_dla[01]_core/rate",
        re.compile(r"/nafll_(dla\d_core)/rate$"),
    ),
    ("sys/kernel/debug/bpmp/debug/clk/emc/rate", re.compile(r"/(emc)/rate$")),
)


class Gpu:
    """The integrated GPU as a devfreq device; one entry of "mhz" for each of its clusters."""

    def __init__(self, system: Path) -> None:
        self._clocks: List[Watched] = []
        self._load = None
        for folder in sorted(system.glob("sys/class/devfreq/*")):
            if not _GPU.search(folder.name):
                continue
            clock = watched(folder / "cur_freq")
            if clock is not None:
                self._clocks.append(clock)
            self._load = self._load or watched(folder / "device/load")
        for place in ("sys/devices/gpu.0/load", "sys/devices/platform/gpu.0/load"):
            self._load = self._load or watched(system / place)

    def add(self, sample: Dict[str, Any]) -> None:
        """Puts the engine "GR3D" into a sample."""
        mhz = [hertz // 1000000 for hertz in (one.number() for one in self._clocks) if hertz]
        load = self._load.number() if self._load else None
        if mhz or load is not None:
            percent = None if load is None else min(load / 10, 100.0)
            on = True if any(mhz) else None
            sample.setdefault("engines", {})["GR3D"] = {"on": on, "percent": percent, "mhz": mhz}


class DlaCores:
    """The DLA cores: whether each has power, and its clocks where this account may read them."""

    def __init__(self, system: Path) -> None:
        self._states: List[Tuple[str, Watched]] = []
        for place in dla_devices(system):
            state = watched(system / place.lstrip("/") / "power/runtime_status")
            if state is not None:
                self._states.append(("dla" + place.rpartition("nvdla")[2], state))
        self._clocks: Dict[str, Watched] = {}
        for pattern, name in _CLOCKS:
            for path in sorted(system.glob(pattern)):
                found, clock = name.search(str(path)), watched(path)
                if found and clock is not None:
                    self._clocks.setdefault(found.group(1), clock)

    def add(self, sample: Dict[str, Any]) -> None:
        """Puts "runtime_status" and "clocks_hz" into a sample."""
        states = ((name, state.text(32)) for name, state in self._states)
        known = {name: state for name, state in states if state}
        if known:
            sample["runtime_status"] = known
        clocks = ((name, clock.number()) for name, clock in self._clocks.items())
        rates = {name: rate for name, rate in clocks if rate is not None}
        if rates:
            sample["clocks_hz"] = rates


def clock_caps(system: Path) -> Dict[str, int]:
    """The highest clocks in Hz that the power mode allows the DLA, by name ("dla0_core").

    From JetPack 6 on, ``clk_cap/`` of each core's platform device: anybody may read them.
    """
    caps = {}
    for place in dla_devices(system):
        for path in sorted((system / place.lstrip("/")).glob("clk_cap/*")):
            value = whole(word_of(path))
            if value is not None:
                caps[path.name[:40]] = value
    return caps
