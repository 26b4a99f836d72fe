"""Reads what nvpmodel and jetson_clocks print."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

from ._probe_files import text_of

__all__ = [
    "parse_clocks",
    "parse_modes",
    "parse_power_mode",
    "read_modes",
]

# every run is bounded: a damaged log may hold a million blanks or digits in a row
_MODE = re.compile(r"NV Power Mode:\s{0,9}(\S{1,80}(?: \S{1,80}){0,9})\s{0,9}$")
_ID = re.compile(r"\s{0,9}(\d{1,9})\s{0,9}$", re.ASCII)
_LISTED = re.compile(r"POWER_MODEL:?\s{0,9}ID=(\d{1,9})\s{1,9}NAME=(\S{1,80})", re.ASCII)
_CLOCK = re.compile(r"(?P<name>[A-Za-z0-9_]{1,60}):?\s{1,40}(?=.{0,2000}MaxFreq=)(?P<fields>.*)$")
_FIELD = re.compile(r"(\w{1,60})=(\S{1,60})")
_HERTZ = re.compile(r"[0-9]{1,15}\Z")
_KILOHERTZ = re.compile(r"cpu\d+\Z")


def parse_power_mode(text: str) -> Tuple[Optional[str], Optional[int]]:
    """The mode's name and id from ``nvpmodel -q`` (also with ``--verbose``); None where missing."""
    lines = text.splitlines()
    for number, line in enumerate(lines):
        found = _MODE.search(line)
        if found:
            after = _ID.match(lines[number + 1]) if number + 1 < len(lines) else None
            return found.group(1), int(after.group(1)) if after else None
    return None, None


def parse_modes(text: str) -> List[Dict[str, Any]]:
    """Every mode's id and name from ``nvpmodel -p --verbose`` or nvpmodel's own conf file."""
    found = dict(reversed(pair) for pair in _LISTED.findall(text))
    return [{"id": int(number), "name": name} for name, number in found.items()]


def read_modes(system: Path = Path("/")) -> List[Dict[str, Any]]:
    """Every mode's id and name from /etc/nvpmodel.conf, which anybody may read."""
    return parse_modes(text_of(system / "etc/nvpmodel.conf", 1 << 20))


def parse_clocks(text: str) -> Dict[str, Dict[str, Any]]:
    """Clocks in Hz from ``jetson_clocks --show``, by name in lower case.

    Returns:
        "min", "max", "current" and "locked" (the clock cannot move) for each; "online" where
        it is said. A CPU's lines are in kHz there, everything else in Hz.
    """
    clocks: Dict[str, Dict[str, Any]] = {}
    for line in text.splitlines():
        found = _CLOCK.match(line.strip())
        if found is None:
            continue
        name = found.group("name").lower()
        fields = dict(_FIELD.findall(found.group("fields")))
        factor = 1000 if _KILOHERTZ.match(name) else 1
        one: Dict[str, Any] = {
            key: int(fields[source]) * factor
            for key, source in (("min", "MinFreq"), ("max", "MaxFreq"), ("current", "CurrentFreq"))
            if _HERTZ.match(fields.get(source, ""))
        }
        one["locked"] = fields.get("FreqOverride") == "1" or (
            "min" in one and one["min"] == one.get("max")
        )
        if "Online" in fields:
            one["online"] = fields["Online"] == "1"
        clocks[name] = one
    return clocks
