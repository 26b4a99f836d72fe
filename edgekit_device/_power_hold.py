"""Changes power mode and clocks and takes it back, through a journal that is durable first.

ROOT/power.json says what to go back to from before the first change until after the last: whoever
finds it without a holder of ROOT/power.lock takes the change back. The order is: journal, clocks
stored, mode, clocks held; and back: mode, stored clocks (they belong to the old mode), their file,
journal. Each step back may be done twice.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any, Dict, List, Optional

from ._errors import DeviceError, map_os_errors
from ._files import durable_folder, fsync_folder, write_durably
from ._power_modes import find_mode, gates
from ._power_tools import Tools
from ._probe_files import text_of

__all__ = ["JOURNAL", "LOCK", "hold", "read_journal", "undo"]

SCHEMA = "edgekit.power/1"
JOURNAL = "power.json"
LOCK = "power.lock"


def hold(
    folder: Path, tools: Tools, mode: Optional[str], lock: bool, system: Path = Path("/")
) -> Dict[str, Any]:
    """Sets the mode and holds the clocks; ROOT/power.lock is held and no journal is there.

    Args:
        folder: ROOT.
        tools: The board's programs.
        mode: A power mode's name or id; None leaves it.
        lock: Whether to hold every clock at its highest.
        system: The root of the file system.

    Returns:
        "mode" and "clocks", each with "before" and "during", and "locked".

    Raises:
        DeviceError: "power...."; what was changed until then is taken back by ``undo``.
    """
    before, wanted = tools.mode(), None
    clocks = tools.clocks()
    if mode is not None:
        wanted = find_mode(mode, system)
        _need_way_back(before, wanted, system)
    if lock and not tools.has("jetson_clocks"):
        tools.lock()  # says what is missing
    change = wanted is not None and before is not None and wanted["id"] != before["id"]
    stores = tools.has("jetson_clocks") and (lock or change)
    if stores and tools.clocks_file.exists():
        raise DeviceError(
            "another account's benchmark holds the clocks of this board",
            code="power.busy",
            where=str(tools.clocks_file),
            hint="wait for it to end; where none runs: `sudo jetson_clocks --restore {0} && "
            "sudo rm {0}`".format(tools.clocks_file),
        )
    if change or lock:
        journal = {
            "schema": SCHEMA,
            "boot": _boot(system),
            "started_at": round(time.time(), 3),
            "before": before if change else None,
            "wanted": wanted if change else None,
            "stored": str(tools.clocks_file) if stores else None,
            "state": "storing" if stores else "set",
            "error": None,
        }
        _write(folder, journal)
        if stores:
            tools.store()
            _write(folder, dict(journal, state="set"))
        if change and wanted is not None:
            tools.set_mode(wanted["id"])
            _need_mode(tools, wanted)
        if lock:
            tools.lock()
    during = tools.clocks()
    return {
        "mode": {"before": before, "during": tools.mode()},
        "clocks": {"before": clocks, "during": during},
        "locked": lock,
    }


def undo(folder: Path, tools: Tools, system: Path = Path("/")) -> List[str]:
    """Takes back what the journal tells of; ROOT/power.lock is held.

    Returns:
        Sentences about what is not as it was; empty where all is.

    Raises:
        DeviceError: It cannot be taken back; the journal stays and says why.
    """
    journal = read_journal(folder)
    if journal is None:
        return []
    notes: List[str] = []
    try:
        if journal["state"] == "set":
            notes += _mode_back(tools, journal)
            # after a start the clocks are nvpmodel's, and the file is gone
            if journal["stored"] and tools.clocks_file.exists() and not notes:
                tools.restore()
        if journal["stored"]:
            tools.forget()
    except DeviceError as error:
        _write(folder, dict(journal, error=error.to_json()["error"]))
        raise
    with map_os_errors(str(folder / JOURNAL)):
        (folder / JOURNAL).unlink()
        fsync_folder(folder)
    return notes


def read_journal(folder: Path) -> Optional[Dict[str, Any]]:
    """What is to be taken back; None where nothing is. A damaged journal asks for nothing."""
    try:
        found = json.loads((folder / JOURNAL).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    keys = ("before", "wanted", "stored", "state", "boot")
    if not isinstance(found, dict) or any(key not in found for key in keys):
        return None
    return found


def _mode_back(tools: Tools, journal: Dict[str, Any]) -> List[str]:
    before, wanted = journal["before"], journal["wanted"]
    if before is None or wanted is None:
        return []
    now = tools.mode()
    if now is not None and now["id"] not in (before["id"], wanted["id"]):
        # somebody chose another one meanwhile: that is newer than what we know
        return ["the power mode is {} now: it was left so".format(now["name"])]
    try:
        # also where it says that it is there already: setting it may have been cut off halfway
        tools.set_mode(before["id"])
    except DeviceError as error:
        # it can ask for a restart even for the mode that is set
        if error.code != "power.restart" or now is None or now["id"] != before["id"]:
            raise
    _need_mode(tools, before)
    return []


def _need_way_back(before: Optional[Dict[str, Any]], wanted: Dict[str, Any], system: Path) -> None:
    if before is None or before["id"] is None:
        raise DeviceError(
            "nvpmodel does not tell the present power mode, so there is no way back to it",
            code="power.no-modes",
            where="nvpmodel -q",
            hint="run `sudo nvpmodel -q` on the board, or `edgekit doctor --setup`",
        )
    here, there = gates(before["id"], system), gates(wanted["id"], system)
    if before["id"] != wanted["id"] and here is not None and here != there:
        raise DeviceError(
            "power mode {} has other parts of the GPU switched on than {}: that takes a restart "
            "of the board, there and back".format(wanted["name"], before["name"]),
            code="power.restart",
            where="nvpmodel -m {}".format(wanted["id"]),
            hint="run `sudo nvpmodel -m {}` there and let it restart, then measure without "
            "--power-mode".format(wanted["id"]),
        )


def _need_mode(tools: Tools, wanted: Dict[str, Any]) -> None:
    now = tools.mode()
    if now is not None and now["id"] not in (wanted["id"], None):
        raise DeviceError(
            "nvpmodel stayed in power mode {} when asked for {}".format(
                now["name"], wanted["name"]
            ),
            code="power.failed",
            where="nvpmodel -m {}".format(wanted["id"]),
            hint="run it by hand on the board to see why",
        )


def _write(folder: Path, journal: Dict[str, Any]) -> None:
    with map_os_errors(str(folder / JOURNAL)):
        durable_folder(folder)
        write_durably(folder / JOURNAL, json.dumps(journal).encode("utf-8"))
        os.chmod(str(folder / JOURNAL), 0o600)


def _boot(system: Path) -> str:
    return text_of(system / "proc/sys/kernel/random/boot_id").strip()
