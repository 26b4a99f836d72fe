"""The guard: a process of its own that changes power mode and clocks, waits, and takes it back.

It holds the reading end of a pipe whose other end the measuring process has. That ends when the
measuring process ends, whatever ends it, and so does the holding. The guard has its own session, so
that what ends the measuring one (Ctrl-C, a cut connection) does not reach it; what ends the guard
leaves the journal, which the next command finds.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any, Dict, Optional

from ._errors import DeviceError
from ._files import locked
from ._power_hold import LOCK, hold, undo
from ._power_tools import Tools

__all__ = ["main"]


class _Ended(Exception):
    """SIGTERM: the board shuts down, or somebody ends the guard."""


def main() -> None:
    """Reads the request from the command line, answers on stdout, one JSON document a line."""
    request = json.loads(sys.argv[1])
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    os.chdir("/")
    folder, system = Path(request["root"]), Path(request["system"])
    tools = Tools(request["clocks_file"])
    try:
        with locked(folder / LOCK, wait_s=float(request["wait_s"])):
            _guard(folder, tools, system, request)
    except DeviceError as error:
        _say(_explained(error, folder))


def _guard(folder: Path, tools: Tools, system: Path, request: Dict[str, Any]) -> None:
    left = undo(folder, tools, system)  # of one that died
    error: Optional[DeviceError] = None
    signal.signal(signal.SIGTERM, _end)
    try:
        held = hold(folder, tools, request["mode"], request["lock"], system)
        _say({"held": dict(held, notes=left)})
        sys.stdin.buffer.read()  # until the measuring process lets go, or is no more
    except _Ended:
        pass
    except DeviceError as raised:
        error = raised
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    notes = undo(folder, tools, system)
    if error is not None:
        raise error
    _say({"undone": {"mode": tools.mode(), "clocks": tools.clocks(), "notes": notes}})


def _end(number: int, frame: Any) -> None:
    raise _Ended


def _explained(error: DeviceError, folder: Path) -> Dict[str, Any]:
    if error.code != "board.busy":
        return error.to_json()
    return DeviceError(
        "another benchmark holds the power mode or the clocks of this board",
        code="power.busy",
        where=str(folder / LOCK),
        hint="wait for it to end, or measure without --lock-clocks and --power-mode",
    ).to_json()


def _say(document: Dict[str, Any]) -> None:
    try:
        sys.stdout.write(json.dumps(document) + "\n")
        sys.stdout.flush()
    except OSError:
        # nobody listens any more; the work goes on, and nothing is flushed at the end again
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
