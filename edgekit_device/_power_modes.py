"""nvpmodel's configuration file: its modes, and which of them part the GPU in another way."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Dict, List, Optional

from ._errors import DeviceError
from ._probe_files import text_of
from ._probe_power import read_modes

__all__ = ["CONF", "find_mode", "gates"]

CONF = "etc/nvpmodel.conf"
_HEAD = re.compile(r"<\s*POWER_MODEL:?\s+ID=(\d+)\s+NAME=(\S+)")
# a line of a mode, "TPC_POWER_GATING TPC_PG_MASK 240": the parts of the GPU that it switches off
_GATE = re.compile(r"^\s*((?:FBP|TPC|GPC)_POWER_GATING)\s+\S+\s+(\S+)")


def find_mode(wanted: str, system: Path = Path("/")) -> Dict[str, Any]:
    """The mode called ``wanted``, by NVIDIA's name (``MODE_`` and case do not matter) or by id.

    Raises:
        DeviceError: "power.no-modes" or "power.mode".
    """
    modes = read_modes(system)
    if not modes:
        raise DeviceError(
            "this board tells no power modes",
            code="power.no-modes",
            where="/" + CONF,
            hint="leave --power-mode out: only a Jetson has them",
        )
    plain = _plain(wanted)
    for mode in modes:
        if plain in (_plain(mode["name"]), str(mode["id"])):
            return mode
    names = ", ".join("{} ({})".format(mode["name"], mode["id"]) for mode in modes)
    raise DeviceError(
        "there is no power mode {!r}".format(wanted[:80]),
        code="power.mode",
        where="/" + CONF,
        hint="this board's modes are " + names,
    )


def gates(number: Optional[int], system: Path = Path("/")) -> Optional[Dict[str, str]]:
    """What a mode power-gates of the GPU, by nvpmodel's names; None where there is no such mode.

    The GPU is parted anew only before it is first used after a start; from then on nvpmodel asks
    for a restart ("Golden image context is already created").
    """
    found: Optional[Dict[str, str]] = None
    for line in _lines(system):
        head = _HEAD.search(line)
        if head:
            if found is not None:
                return found
            if number is not None and int(head.group(1)) == number:
                found = {}
        elif found is not None and line.lstrip().startswith("<"):
            return found
        gate = _GATE.match(line)
        if gate and found is not None:
            found[gate.group(1)] = gate.group(2)
    return found


def _lines(system: Path) -> List[str]:
    return text_of(system / CONF, 1 << 20).splitlines()


def _plain(name: str) -> str:
    plain = name.strip().upper().replace(" ", "_")
    return plain[5:] if plain.startswith("MODE_") else plain
