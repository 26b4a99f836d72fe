"""nvpmodel and jetson_clocks, called as root: directly, or as ``sudo -n`` where setup allows it.

Stored clocks lie in /run: only root can write there (``jetson_clocks --restore`` writes whatever
the file says into whatever files it names), and it is empty after a start, as the clocks are then
nvpmodel's again. nvpmodel is never told to restart the board: its question gets the end of input,
which it takes for no.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, Dict, List, Optional

from ._errors import DeviceError
from ._probe_power import parse_clocks, parse_power_mode

__all__ = ["CLOCKS_FILE", "Tools"]

CLOCKS_FILE = "/run/edgekit.clocks"
_TIMEOUT_S = 60.0
_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
_SETUP = "run `edgekit doctor --setup` (again), which lets the account do it, or do it as root"


class Tools:
    """The board's two programs.

    Args:
        clocks_file: Where clocks are stored while they are held.
    """

    def __init__(self, clocks_file: str = CLOCKS_FILE) -> None:
        self.clocks_file = Path(clocks_file)
        # a path as the sudoers file names it: not every account's PATH has /usr/sbin
        path = "{}:{}".format(os.environ.get("PATH", ""), _PATH)
        self._programs = {
            name: shutil.which(name, path=path) for name in ("nvpmodel", "jetson_clocks")
        }
        self._sudo = shutil.which("sudo", path=path) if os.geteuid() else None
        self._rm = shutil.which("rm", path=path) or "/bin/rm"

    def has(self, name: str) -> bool:
        """Whether the program is there."""
        return self._programs.get(name) is not None

    def mode(self) -> Optional[Dict[str, Any]]:
        """The present mode's "name" and "id" (None where nvpmodel does not tell it), or None."""
        if not self.has("nvpmodel"):
            return None
        said = self._shown("nvpmodel", "-q", shows="Power Mode")
        name, number = parse_power_mode(said)
        return None if name is None else {"name": name, "id": number}

    def clocks(self) -> Optional[Dict[str, Dict[str, Any]]]:
        """What ``jetson_clocks --show`` says, parsed; None where it says nothing."""
        if not self.has("jetson_clocks"):
            return None
        return parse_clocks(self._shown("jetson_clocks", "--show", shows="MaxFreq")) or None

    def set_mode(self, number: int) -> None:
        """``nvpmodel -m``.

        Raises:
            DeviceError: "power.restart" where it asks to restart the board (nothing is changed
                then), "power.not-allowed", "power.missing" or "power.failed".
        """
        done = self._run("nvpmodel", "-m", str(number))
        said = _text(done)
        if "reboot" in said.lower():
            raise DeviceError(
                "nvpmodel changes to mode {} only with a restart of the board".format(number),
                code="power.restart",
                where="nvpmodel -m {}".format(number),
                hint="run `sudo nvpmodel -m {}` there and let it restart, then measure".format(
                    number
                ),
            )
        self._need(done, "nvpmodel", "-m", str(number))

    def store(self) -> None:
        """``jetson_clocks --store``: the present clocks, for ``restore``."""
        self._checked("jetson_clocks", "--store", str(self.clocks_file))
        if not self.clocks_file.exists():
            raise DeviceError(
                "jetson_clocks stored no clocks",
                code="power.failed",
                where=str(self.clocks_file),
                hint="measure without --lock-clocks and --power-mode",
            )

    def lock(self) -> None:
        """``jetson_clocks``: every clock at its highest of the present mode."""
        self._checked("jetson_clocks")

    def restore(self) -> None:
        """``jetson_clocks --restore`` of what was stored."""
        self._checked("jetson_clocks", "--restore", str(self.clocks_file))

    def forget(self) -> None:
        """Removes what was stored."""
        if not self.clocks_file.exists():
            return
        done = self._run_argv([self._rm, "-f", str(self.clocks_file)])
        self._need(done, "rm", "-f", str(self.clocks_file))

    def _shown(self, name: str, *arguments: str, shows: str) -> str:
        """What a program prints for this user, otherwise for root; "" where neither has it."""
        program = self._programs[name]
        ways = [[str(program)]]
        if self._sudo:
            ways.append([self._sudo, "-n", str(program)])
        for way in ways:
            try:
                said = _text(_call([*way, *arguments]))
            except (OSError, subprocess.TimeoutExpired):
                continue
            if shows in said:
                return said
        return ""

    def _checked(self, name: str, *arguments: str) -> None:
        self._need(self._run(name, *arguments), name, *arguments)

    def _run(self, name: str, *arguments: str) -> "subprocess.CompletedProcess[bytes]":
        program = self._programs[name]
        if program is None:
            raise DeviceError(
                "there is no {} on this board".format(name),
                code="power.missing",
                where=name,
                hint="it comes with Jetson Linux; in a container, measure on the board itself",
            )
        return self._run_argv([program, *arguments])

    def _run_argv(self, argv: List[str]) -> "subprocess.CompletedProcess[bytes]":
        way = [self._sudo, "-n"] if self._sudo else []
        try:
            return _call([*way, *argv])
        except (OSError, subprocess.TimeoutExpired) as error:
            raise DeviceError(
                "{} cannot be run: {}".format(argv[0], error), code="power.failed", where=argv[0]
            ) from error

    def _need(self, done: "subprocess.CompletedProcess[bytes]", *words: str) -> None:
        if done.returncode == 0:
            return
        said = _text(done).strip().splitlines()
        last = said[-1] if said else "status {}".format(done.returncode)
        refused = last.startswith("sudo:") or (os.geteuid() != 0 and self._sudo is None)
        raise DeviceError(
            "{} failed: {}".format(words[0], last[:300]),
            code="power.not-allowed" if refused else "power.failed",
            where=" ".join(words),
            hint=_SETUP if refused else "run it by hand on the board to see why",
        )


def _call(argv: List[str]) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=_TIMEOUT_S,
        check=False,
    )


def _text(done: "subprocess.CompletedProcess[bytes]") -> str:
    return done.stdout.decode("utf-8", "replace")
