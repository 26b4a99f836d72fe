"""nvpmodel and jetson_clocks: their configuration file, their output, and their calls as root,
directly or with ``sudo -n`` if ``setup`` allows it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Dict, List, Optional, Tuple

from edgekit_device.board.inventory import read_text
from edgekit_device.errors import DeviceError
from edgekit_device.protocol import fields
from edgekit_device.protocol.codec import document, flag, member, nullable, text

# repetitions are bounded: a damaged log may have a million blanks or digits in a row
_MODE = re.compile(r"NV Power Mode:\s{0,9}(\S{1,80}(?: \S{1,80}){0,9})\s{0,9}$")
_ID = re.compile(r"\s{0,9}(\d{1,9})\s{0,9}$", re.ASCII)
_LISTED = re.compile(r"POWER_MODEL:?\s{0,9}ID=(\d{1,9})\s{1,9}NAME=(\S{1,80})", re.ASCII)
_CLOCK = re.compile(r"(?P<name>[A-Za-z0-9_]{1,60}):?\s{1,40}(?=.{0,2000}MaxFreq=)(?P<fields>.*)$")
_FIELD = re.compile(r"(\w{1,60})=(\S{1,60})")
_HERTZ = re.compile(r"[0-9]{1,15}\Z")
_KILOHERTZ = re.compile(r"cpu\d+\Z")
CONF = "etc/nvpmodel.conf"
_HEAD = re.compile(r"<\s*POWER_MODEL:?\s+ID=(\d+)\s+NAME=(\S+)")

# a line of a mode, "TPC_POWER_GATING TPC_PG_MASK 240": the parts of the GPU that it switches off
_GATE = re.compile(r"^\s*((?:FBP|TPC|GPC)_POWER_GATING)\s+\S+\s+(\S+)")

CLOCKS_FILE = "/run/edgekit.clocks"
_TIMEOUT_S = 60.0
_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
_SETUP = "run `edgekit doctor --setup` (again) to give the account access, or run it as root"


@document(frozen=True)
class NvpmodelMode:
    """A power mode of nvpmodel.

    Attributes:
        id: nvpmodel's number.
    """

    id: int = member(fields.count)
    name: str = member(text())


@document(frozen=True)
class PresentMode:
    """The present power mode; ``id`` is None if nvpmodel does not print it.

    Attributes:
        id: nvpmodel's number.
    """

    name: str = member(text())
    id: Optional[int] = member(nullable(fields.count), absent=None, as_given=True)


@document(frozen=True)
class ClockEntry:
    """A clock in Hz; ``locked`` is True if it is fixed.

    Attributes:
        min: Hertz.
        max: Hertz.
        current: Hertz.
    """

    locked: bool = member(flag, absent=False, as_given=True)
    min: Optional[int] = member(fields.count, absent=None)
    max: Optional[int] = member(fields.count, absent=None)
    current: Optional[int] = member(fields.count, absent=None)
    online: Optional[bool] = member(flag, absent=None)


def parse_power_mode(text: str) -> Tuple[Optional[str], Optional[int]]:
    """Returns the mode's name and id from ``nvpmodel -q``, also with ``--verbose``; None if
    missing.
    """
    lines = text.splitlines()
    for number, line in enumerate(lines):
        found = _MODE.search(line)
        if found:
            after = _ID.match(lines[number + 1]) if number + 1 < len(lines) else None
            return found.group(1), int(after.group(1)) if after else None
    return None, None


def parse_modes(text: str) -> List[NvpmodelMode]:
    """Returns every mode from ``nvpmodel -p --verbose`` or from nvpmodel's configuration file."""
    found = dict(reversed(pair) for pair in _LISTED.findall(text))
    return [NvpmodelMode(int(number), name) for name, number in found.items()]


def read_modes(system: Path = Path("/")) -> List[NvpmodelMode]:
    """Returns every mode from /etc/nvpmodel.conf, which every account can read."""
    return parse_modes(read_text(system / "etc/nvpmodel.conf", 1 << 20))


def parse_clocks(text: str) -> Dict[str, ClockEntry]:
    """Returns clocks from ``jetson_clocks --show`` by lower-case name, in Hz.

    The output gives CPU clocks in kHz and the others in Hz.
    """
    clocks: Dict[str, ClockEntry] = {}
    for line in text.splitlines():
        found = _CLOCK.match(line.strip())
        if found is None:
            continue
        name = found.group("name").lower()
        fields = dict(_FIELD.findall(found.group("fields")))
        factor = 1000 if _KILOHERTZ.match(name) else 1
        least, most, current = (
            int(fields[source]) * factor if _HERTZ.match(fields.get(source, "")) else None
            for source in ("MinFreq", "MaxFreq", "CurrentFreq")
        )
        clocks[name] = ClockEntry(
            locked=fields.get("FreqOverride") == "1" or (least is not None and least == most),
            min=least,
            max=most,
            current=current,
            online=fields["Online"] == "1" if "Online" in fields else None,
        )
    return clocks


def find_mode(wanted: str, system: Path = Path("/")) -> NvpmodelMode:
    """Returns a mode by NVIDIA's name (without regard to ``MODE_`` and case) or by id.

    Raises:
        DeviceError: "power.no-modes" or "power.mode".
    """
    modes = read_modes(system)
    if not modes:
        raise DeviceError(
            "this board has no power modes",
            code="power.no-modes",
            where="/" + CONF,
            hint="remove --power-mode: only a Jetson has power modes",
        )
    # users write 15W for MODE_15W, in any case
    plain = _normalise_name(wanted)
    for mode in modes:
        if plain in (_normalise_name(mode.name), str(mode.id)):
            return mode
    names = ", ".join("{} ({})".format(mode.name, mode.id) for mode in modes)
    raise DeviceError(
        "power mode {!r} does not exist".format(wanted[:80]),
        code="power.mode",
        where="/" + CONF,
        hint="available modes: " + names,
    )


def power_gates(number: Optional[int], system: Path = Path("/")) -> Optional[Dict[str, str]]:
    """Returns the parts of the GPU that a mode power-gates, by nvpmodel's names; None for an
    unknown mode.

    The GPU can be repartitioned only before its first use after a start; later nvpmodel requires a
    restart ("Golden image context is already created").
    """
    found: Optional[Dict[str, str]] = None
    for line in read_text(system / CONF, 1 << 20).splitlines():
        head = _HEAD.search(line)
        if head:
            if found is not None:
                return found
            if number is not None and int(head.group(1)) == number:
                found = {}
        # the next section ends the mode's own
        elif found is not None and line.lstrip().startswith("<"):
            return found
        gate = _GATE.match(line)
        if gate and found is not None:
            found[gate.group(1)] = gate.group(2)
    return found


def _normalise_name(name: str) -> str:
    plain = name.strip().upper().replace(" ", "_")
    return plain[5:] if plain.startswith("MODE_") else plain


class PowerTools:
    """The board's two programs.

    Stored clocks are in /run, because only root can write there (``jetson_clocks --restore``
    writes the file's values into any files that it names), and because it is empty after a
    restart, when nvpmodel sets the clocks again. nvpmodel never restarts the board: its
    question gets end of file, which means no.

    Args:
        clocks_file: File for the previous clocks while they are locked.
    """

    def __init__(self, clocks_file: str = CLOCKS_FILE) -> None:
        self.clocks_file = Path(clocks_file)
        # the path in the sudoers file: not every account's PATH has /usr/sbin
        path = "{}:{}".format(os.environ.get("PATH", ""), _PATH)
        self._programs = {
            name: shutil.which(name, path=path) for name in ("nvpmodel", "jetson_clocks")
        }
        self._sudo = shutil.which("sudo", path=path) if os.geteuid() else None
        self._rm = shutil.which("rm", path=path) or "/bin/rm"

    def has(self, name: str) -> bool:
        """Returns True if the program is installed."""
        return self._programs.get(name) is not None

    def mode(self) -> Optional[PresentMode]:
        """Returns the present mode; None if nvpmodel does not print it."""
        if not self.has("nvpmodel"):
            return None
        output = self._read_output("nvpmodel", "-q", shows="Power Mode")
        name, number = parse_power_mode(output)
        return None if name is None else PresentMode(name, number)

    def clocks(self) -> Optional[Dict[str, ClockEntry]]:
        """Returns the clocks from ``jetson_clocks --show``; None if it prints none."""
        if not self.has("jetson_clocks"):
            return None
        return parse_clocks(self._read_output("jetson_clocks", "--show", shows="MaxFreq")) or None

    def set_mode(self, number: int) -> None:
        """``nvpmodel -m``.

        Raises:
            DeviceError: "power.restart" if it requires a restart (the mode is then unchanged),
                "power.not-allowed", "power.missing" or "power.failed".
        """
        process = self._run("nvpmodel", "-m", str(number))
        output = _text(process)
        if "reboot" in output.lower():
            raise DeviceError(
                "nvpmodel can change to mode {} only with a restart of the board".format(number),
                code="power.restart",
                where="nvpmodel -m {}".format(number),
                hint=(
                    "run `sudo nvpmodel -m {}` on the board and let it restart, then measure"
                ).format(number),
            )
        self._raise_failure(process, "nvpmodel", "-m", str(number))

    def store(self) -> None:
        """``jetson_clocks --store``: the present clocks, for ``restore``."""
        self._run_checked("jetson_clocks", "--store", str(self.clocks_file))
        if not self.clocks_file.exists():
            raise DeviceError(
                "jetson_clocks saved no clocks",
                code="power.failed",
                where=str(self.clocks_file),
                hint="measure without --lock-clocks and --power-mode",
            )

    def lock(self) -> None:
        """``jetson_clocks``: locks every clock at its maximum in the present mode."""
        self._run_checked("jetson_clocks")

    def restore(self) -> None:
        """``jetson_clocks --restore``: restores the stored clocks."""
        self._run_checked("jetson_clocks", "--restore", str(self.clocks_file))

    def forget(self) -> None:
        """Removes the stored clocks."""
        if not self.clocks_file.exists():
            return
        process = self._run_argv([self._rm, "-f", str(self.clocks_file)])
        self._raise_failure(process, "rm", "-f", str(self.clocks_file))

    def _read_output(self, name: str, *arguments: str, shows: str) -> str:
        """Returns a program's output for this account, else for root; "" if neither gives any."""
        program = self._programs[name]
        ways = [[str(program)]]
        if self._sudo:
            ways.append([self._sudo, "-n", str(program)])
        for way in ways:
            try:
                output = _text(_call([*way, *arguments]))
            except (OSError, subprocess.TimeoutExpired):
                continue
            # the expected words show an answer, whatever the exit status
            if shows in output:
                return output
        return ""

    def _run_checked(self, name: str, *arguments: str) -> None:
        self._raise_failure(self._run(name, *arguments), name, *arguments)

    def _run(self, name: str, *arguments: str) -> "subprocess.CompletedProcess[bytes]":
        program = self._programs[name]
        if program is None:
            raise DeviceError(
                "{} is not on this board".format(name),
                code="power.missing",
                where=name,
                hint="it comes with Jetson Linux; from a container, measure on the board itself",
            )
        return self._run_argv([program, *arguments])

    def _run_argv(self, argv: List[str]) -> "subprocess.CompletedProcess[bytes]":
        way = [self._sudo, "-n"] if self._sudo else []
        try:
            return _call([*way, *argv])
        except (OSError, subprocess.TimeoutExpired) as error:
            raise DeviceError(
                "cannot run {}: {}".format(argv[0], error), code="power.failed", where=argv[0]
            ) from error

    def _raise_failure(self, process: "subprocess.CompletedProcess[bytes]", *words: str) -> None:
        if process.returncode == 0:
            return
        lines = _text(process).strip().splitlines()
        last = lines[-1] if lines else "exit status {}".format(process.returncode)
        # sudo's own message, or an account without sudo
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
        # nvpmodel's question about a restart gets end of file, which means no
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=_TIMEOUT_S,
        check=False,
    )


def _text(process: "subprocess.CompletedProcess[bytes]") -> str:
    return process.stdout.decode("utf-8", "replace")
