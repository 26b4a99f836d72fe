"""Temperatures, throttling and over-current events that sysfs shows.

``/sys/class/thermal/thermal_zone*/{type,temp}`` in thousandths of a degree and
``cooling_device*/{type,cur_state}``: kernel.org, Documentation/driver-api/thermal/sysfs-api.rst.
A cooling device called ``*-throttle-alert`` is not 0 while the SoC slows down for its heat, and
``/sys/class/hwmon/hwmon*/oc*_event_cnt`` counts how often it did so for too much current (NVIDIA,
Jetson Linux Developer Guide, "Orin Series: Software-Based Throttling", "Over-Current Throttling").
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Dict, List, Tuple

from ._monitor_files import Watched, watched, word_of

__all__ = ["Cooling", "Temperatures"]

_SUFFIX = re.compile(r"[-_]therm(?:al)?$")
_NO_POWER = -200000
_FANS = ("pwm-fan", "pwm_fan", "fan")


class Temperatures:
    """The thermal zones, by the names that tegrastats gives them ("cpu-thermal" is "cpu")."""

    def __init__(self, system: Path) -> None:
        self._zones: List[Tuple[str, Watched]] = []
        for folder in sorted(system.glob("sys/class/thermal/thermal_zone*")):
            name = _SUFFIX.sub("", word_of(folder / "type"))
            value = watched(folder / "temp")
            if name and value is not None:
                self._zones.append((name[:40], value))

    def add(self, sample: Dict[str, Any]) -> None:
        """Puts "temperatures_c" into a sample; a zone without power says nothing or -256."""
        found = {}
        for name, zone in self._zones:
            value = zone.number()
            if value is not None and value > _NO_POWER:
                found[name] = value / 1000
        if found:
            sample["temperatures_c"] = found


class Cooling:
    """What slows the SoC down: alerts that are on, and counts of over-current events."""

    def __init__(self, system: Path) -> None:
        self._devices: List[Tuple[str, Watched]] = []
        for folder in sorted(system.glob("sys/class/thermal/cooling_device*")):
            name = word_of(folder / "type")
            value = watched(folder / "cur_state")
            if name and value is not None and not name.startswith(_FANS):
                self._devices.append((name[:40], value))
        self._events: List[Tuple[str, Watched]] = []
        for path in sorted(system.glob("sys/class/hwmon/hwmon*/oc*_event_cnt")):
            count = watched(path)
            if count is not None:
                self._events.append((path.name[: -len("_event_cnt")], count))

    def add(self, sample: Dict[str, Any]) -> None:
        """Puts "cooling" (state by device, those that are not 0) and "overcurrent_events"."""
        if not self._devices and not self._events:
            return
        other = sample.setdefault("other", {})
        states = ((name, device.number()) for name, device in self._devices)
        other["cooling"] = {name: state for name, state in states if state}
        if self._events:
            counts = ((name, count.number()) for name, count in self._events)
            other["overcurrent_events"] = {name: n for name, n in counts if n is not None}
