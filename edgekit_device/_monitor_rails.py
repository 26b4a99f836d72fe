"""Power rails that sysfs shows: the INA3221 in both layouts, and the INA238 of Thor.

JetPack 4 (driver ina3221x): ``/sys/bus/i2c/drivers/ina3221x/1-0040/iio:device0/`` with
``rail_name_N`` and ``in_powerN_input`` in mW. From JetPack 5 (the kernel's ina3221):
``/sys/bus/i2c/drivers/ina3221/1-0040/hwmon/hwmonN/`` with ``inN_label``, ``inN_input`` in mV and
``currN_input`` in mA, the same files below /sys/class/hwmon; channels 1 to 3, for 4 to 7 are shunt
voltages and their sum (kernel.org, Documentation/hwmon/ina3221.rst; NVIDIA, Jetson Linux Developer
Guide, "Software-Based Power Consumption Modeling"). An INA238 says ``power1_input`` in microwatts
(Documentation/hwmon/ina238.rst). A channel called NC is not connected.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Set, Tuple

from ._monitor_files import Watched, watched, word_of

__all__ = ["Rails"]

_IIO = "sys/bus/i2c/drivers/ina3221*/*/iio:device*"
_HWMON = ("sys/bus/i2c/drivers/ina*/*/hwmon/hwmon*", "sys/class/hwmon/hwmon*")
_CHANNELS = range(1, 4)
_LABEL_OF_INA238 = "VIN"  # the whole board's input is what Thor measures with it
_UNUSED = ("", "NC")


class Rails:
    """The rails of a board; ``names`` is empty where none can be read."""

    def __init__(self, system: Path) -> None:
        self._rails: Dict[str, Tuple[Watched, Optional[Watched], float]] = {}
        seen: Set[str] = set()
        for name, first, second, factor in (*_iio(system, seen), *_hwmon(system, seen)):
            power = watched(first)
            current = watched(second) if second else None
            if name in self._rails or power is None or (second and current is None):
                continue
            self._rails[name] = (power, current, factor)

    @property
    def names(self) -> List[str]:
        """The rails' names as the board's device tree has them."""
        return list(self._rails)

    def add(self, sample: Dict[str, Any]) -> None:
        """Puts "rails_mw" into a sample; average and peak are not known here."""
        found = {}
        for name, (power, current, factor) in self._rails.items():
            value = power.number()
            times = current.number() if current else 1
            if value is not None and times is not None:
                found[name] = {"now": value * times * factor, "average": None, "peak": None}
        if found:
            sample["rails_mw"] = found


def _iio(system: Path, seen: Set[str]) -> Iterator[Tuple[str, Path, Optional[Path], float]]:
    for folder in _folders(system, (_IIO,), seen):
        for channel in range(3):
            name = word_of(folder / "rail_name_{}".format(channel))
            if name not in _UNUSED:
                yield name, folder / "in_power{}_input".format(channel), None, 1.0


def _hwmon(system: Path, seen: Set[str]) -> Iterator[Tuple[str, Path, Optional[Path], float]]:
    for folder in _folders(system, _HWMON, seen):
        chip = word_of(folder / "name")
        if chip.startswith("ina3221"):
            for channel in _CHANNELS:
                name = word_of(folder / "in{}_label".format(channel))
                if name not in _UNUSED:
                    volts = folder / "in{}_input".format(channel)
                    # mV times mA is microwatts
                    yield name, volts, folder / "curr{}_input".format(channel), 1e-3
        elif chip.startswith("ina2") and (folder / "power1_input").exists():
            name = word_of(folder / "power1_label") or word_of(folder / "in1_label")
            yield name or _LABEL_OF_INA238, folder / "power1_input", None, 1e-3


def _folders(system: Path, patterns: Tuple[str, ...], seen: Set[str]) -> Iterator[Path]:
    """Folders of chips, each once: the driver's links and the class's lead to the same."""
    for pattern in patterns:
        for folder in sorted(system.glob(pattern)):
            try:
                place = str(folder.resolve())
            except (OSError, RuntimeError):
                continue
            if place not in seen:
                seen.add(place)
                yield folder
