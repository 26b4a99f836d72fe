"""The power mode and clocks of a measurement: set before it, always taken back after it.

The work is the guard's (``_power_guard.py``), so that it is taken back however this process ends;
what a killed guard or a power cut leaves, ``mend`` takes back when the next command runs.
"""

from __future__ import annotations

import json
import subprocess
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Tuple

from ._child import child_argv
from ._errors import DeviceError
from ._files import locked
from ._power_hold import JOURNAL, LOCK, read_journal, undo
from ._power_tools import CLOCKS_FILE, Tools
from ._probe_files import default_system

__all__ = ["Power", "held_power", "mend"]

_WAIT_S = 30.0
_END_S = 300.0
_GUARD = "from edgekit_device._power_guard import main\nmain()\n"


class Power:
    """What the power mode and clocks were before, during and after a measurement."""

    def __init__(self) -> None:
        self.facts: Optional[Dict[str, Any]] = None

    def document(self) -> Optional[Dict[str, Any]]:
        """ "power" of ``edgekit.device.bench/1``; None where the board has no such programs.

        Complete after the block has ended.
        """
        return self.facts


@contextmanager
def held_power(
    folder: Path,
    mode: Optional[str] = None,
    lock: bool = False,
    *,
    system: Optional[Path] = None,
    clocks_file: str = "",
    wait_s: float = _WAIT_S,
) -> Iterator[Power]:
    """Holds a power mode and the clocks while the block runs; without both it only looks.

    Args:
        folder: ROOT.
        mode: A power mode's name or id; None leaves it.
        lock: Whether to hold every clock at its highest (``jetson_clocks``).
        system: The root of the file system; default: ``default_system()``.
        clocks_file: Where jetson_clocks stores what it found; default: ``CLOCKS_FILE`` there.
        wait_s: How long to wait for another benchmark that holds them.

    Raises:
        DeviceError: "power.mode", "power.no-modes", "power.restart", "power.missing",
            "power.not-allowed", "power.busy" or "power.failed"; nothing is changed then.
    """
    power = Power()
    system, clocks_file = _places(system, clocks_file)
    if mode is None and not lock:
        tools = Tools(clocks_file)
        left = mend(folder, system=system, clocks_file=clocks_file)
        before = (tools.mode(), tools.clocks())
        try:
            yield power
        finally:
            power.facts = _looked(tools, before, [left] if left else [])
        return
    guard = _Guard(folder, mode, lock, system, clocks_file, wait_s)
    try:
        power.facts = dict(guard.held, restored=False)
        yield power
    finally:
        power.facts = _whole(guard.held, guard.let_go())


def mend(folder: Path, *, system: Optional[Path] = None, clocks_file: str = "") -> Optional[str]:
    """Takes back what a benchmark that died has left; says so in a sentence, or None.

    Never raises: commands that have other work to do call it.
    """
    if not (folder / JOURNAL).exists():
        return None
    system, clocks_file = _places(system, clocks_file)
    try:
        with locked(folder / LOCK, wait_s=0.0):
            journal = read_journal(folder)
            if journal is None:
                return None
            notes = undo(folder, Tools(clocks_file), system)
    except DeviceError as error:
        if error.code == "board.busy":
            return None  # one that lives
        return "a benchmark that was cut off left the power mode or clocks changed: {}{}".format(
            error.message, " ({})".format(error.hint) if error.hint else ""
        )
    more = ": " + "; ".join(notes) if notes else ""
    return "power mode and clocks that a cut off benchmark left are taken back" + more


def _places(system: Optional[Path], clocks_file: str) -> Tuple[Path, str]:
    system = default_system() if system is None else system
    return system, clocks_file or str(system / CLOCKS_FILE.lstrip("/"))


class _Guard:
    def __init__(
        self,
        folder: Path,
        mode: Optional[str],
        lock: bool,
        system: Path,
        clocks_file: str,
        wait_s: float,
    ) -> None:
        request = {
            "root": str(folder),
            "mode": mode,
            "lock": lock,
            "system": str(system),
            "clocks_file": clocks_file,
            "wait_s": wait_s,
        }
        try:
            self._process = subprocess.Popen(
                child_argv(_GUARD, json.dumps(request)),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                # not this process's: the host would wait for the guard to close it
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            raise DeviceError(
                "no process can be started: {}".format(error), code="power.failed"
            ) from error
        try:
            self.held: Dict[str, Any] = self._heard("held")
        except BaseException:
            self._close()
            raise

    def let_go(self) -> Dict[str, Any]:
        """Ends the holding; what the guard says then, or why it says nothing."""
        try:
            self._end_input()
            return self._heard("undone")
        except DeviceError as error:
            text = "not taken back: {}{}".format(
                error.message, "; " + error.hint if error.hint else ""
            )
            return {"mode": None, "clocks": None, "notes": [text], "failed": True}
        finally:
            self._close()

    def _heard(self, what: str) -> Dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        try:
            said = json.loads(line.decode("utf-8"))
        except ValueError:
            raise DeviceError(
                "the process that holds power mode and clocks has died",
                code="power.failed",
                hint="`edgekit status` takes back what it left",
            ) from None
        if "error" in said:
            error = said["error"]
            raise DeviceError(
                error["message"], code=error["code"], where=error["where"], hint=error["hint"]
            )
        found: Dict[str, Any] = said[what]
        return found

    def _end_input(self) -> None:
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()

    def _close(self) -> None:
        self._end_input()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            return
        finally:
            if self._process.stdout is not None:
                self._process.stdout.close()


def _whole(held: Dict[str, Any], undone: Dict[str, Any]) -> Dict[str, Any]:
    return {
        "mode": dict(held["mode"], after=undone["mode"]),
        "clocks": dict(held["clocks"], after=undone["clocks"]),
        "locked": held["locked"],
        "changed": True,
        "restored": not undone.get("failed"),
        "notes": [*held["notes"], *undone["notes"]],
    }


def _looked(tools: Tools, before: Any, notes: List[str]) -> Optional[Dict[str, Any]]:
    after = (tools.mode(), tools.clocks())
    if before == (None, None) == after:
        return None
    mode, clocks = before
    held = bool(clocks) and all(
        one["locked"] for name, one in clocks.items() if name == "gpu" or name.startswith("cpu")
    )
    return {
        "mode": {"before": mode, "during": mode, "after": after[0]},
        "clocks": {"before": clocks, "during": clocks, "after": after[1]},
        "locked": held,
        "changed": False,
        "restored": True,
        "notes": notes,
    }
