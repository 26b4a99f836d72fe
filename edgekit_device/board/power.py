"""The power mode and clocks of a measurement: set before it, always taken back after it.
A guard in a process of its own (``run_guard``) changes them, waits for its caller to end, however
it does, and takes them back, through a journal that is durable before anything changes. What a
killed guard or a power cut leaves, ``mend`` takes back when the next command runs.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Iterator, List, Mapping, Optional, Sequence, Tuple

from edgekit_device.board.inventory import default_system
from edgekit_device.board.power_tools import (
    CLOCKS_FILE,
    ClockEntry,
    NvpmodelMode,
    PowerTools,
    PresentMode,
    find_mode,
    gates,
)
from edgekit_device.errors import DeviceError, map_os_errors
from edgekit_device.files import durable_folder, fsync_folder, locked, write_durably
from edgekit_device.processes import child_argv
from edgekit_device.protocol.codec import (
    array,
    choice,
    document,
    dump,
    flag,
    load,
    mapping,
    member,
    nullable,
    number,
    parse_json,
    read,
    record,
    text,
    write,
)
from edgekit_device.protocol.failure import Failure

# ROOT/power.json says what to go back to from before the first change until after the last: whoever
# finds it without a holder of ROOT/power.lock takes the change back. The order is: journal, clocks
# stored, mode, clocks held; and back: mode, stored clocks (they belong to the old mode), their
# file, journal. Each step back may be done twice.


SCHEMA = "edgekit.power/1"
JOURNAL = "power.json"
LOCK = "power.lock"
_WAIT_S = 30.0
_END_S = 300.0
_GUARD = "from edgekit_device.board.power import run_guard\nrun_guard()\n"


_MODE = nullable(record(NvpmodelMode))
_PRESENT = nullable(record(PresentMode))
_CLOCKS = nullable(mapping(record(ClockEntry)))
_NOTES = array(text(most=1 << 18))


@document(frozen=True)
class PowerJournal:
    """power.json: what to go back to.

    Attributes:
        before: The mode of before; None where it is not changed.
        wanted: The mode that is set.
        stored: The file in which jetson_clocks keeps the clocks of before.
        state: "storing" before clocks are stored, then "set".
        error: Why it could not be taken back.
    """

    before: Optional[NvpmodelMode] = member(_MODE)
    wanted: Optional[NvpmodelMode] = member(_MODE)
    stored: Optional[str] = member(nullable(text()))
    state: str = member(choice("storing", "set"))
    error: Optional[Failure] = member(nullable(record(Failure)), default=None)
    schema: str = member(choice(SCHEMA), default=SCHEMA)


@document(frozen=True)
class HoldRequest:
    """What the guard is to hold; see ``held_power``."""

    root: str = member(text())
    mode: Optional[str] = member(nullable(text()))
    lock: bool = member(flag)
    system: str = member(text())
    clocks_file: str = member(text())
    wait_s: float = member(number(0.0, 1e9))


@document(frozen=True)
class PowerLook:
    """The power mode and the clocks by name at one time; None where no program shows them."""

    mode: Optional[PresentMode] = member(_PRESENT)
    clocks: Optional[Mapping[str, ClockEntry]] = member(_CLOCKS)

    @classmethod
    def of(cls, tools: PowerTools) -> "PowerLook":
        """What the board's programs show now."""
        return cls(tools.mode(), tools.clocks())


@document(frozen=True)
class HeldPower:
    """What is held: the board before, and now; ``locked``: every clock is at its highest."""

    before: PowerLook = member(record(PowerLook))
    during: PowerLook = member(record(PowerLook))
    locked: bool = member(flag)


@document(frozen=True)
class _Undone:
    """The board after all was taken back, and sentences about what is not as it was."""

    after: PowerLook = member(record(PowerLook))
    notes: Tuple[str, ...] = member(_NOTES)
    failed: bool = member(flag, absent=False)


@document(frozen=True)
class _GuardAnswer:
    """A line of the guard: what it holds, then what was after it was taken back; or an error.

    ``notes`` are about what a dead benchmark had left.
    """

    held: Optional[HeldPower] = member(record(HeldPower), absent=None)
    notes: Tuple[str, ...] = member(_NOTES, absent=())
    undone: Optional[_Undone] = member(record(_Undone), absent=None)
    error: Optional[Failure] = member(record(Failure), absent=None)


@document(frozen=True)
class ModeChange:
    """The power mode before, during and after a measurement; None where it is not known."""

    before: Optional[PresentMode] = member(_PRESENT, absent=None, as_given=True)
    during: Optional[PresentMode] = member(_PRESENT, absent=None, as_given=True)
    after: Optional[PresentMode] = member(_PRESENT, absent=None, as_given=True)


@document(frozen=True)
class ClockChange:
    """The clocks by name before, during and after a measurement; None where they are not known."""

    before: Optional[Mapping[str, ClockEntry]] = member(_CLOCKS, absent=None, as_given=True)
    during: Optional[Mapping[str, ClockEntry]] = member(_CLOCKS, absent=None, as_given=True)
    after: Optional[Mapping[str, ClockEntry]] = member(_CLOCKS, absent=None, as_given=True)


@document(frozen=True)
class PowerReport:
    """ "power" of ``edgekit.device.bench/1``.

    Attributes:
        mode: The power mode.
        clocks: The clocks.
        locked: Whether the clocks could not move during the measurement.
        changed: Whether the measurement changed mode or clocks.
        restored: Whether they were taken back.
        notes: Sentences about what is not as it was.
    """

    mode: ModeChange = member(record(ModeChange), absent=ModeChange(), as_given=True)
    clocks: ClockChange = member(record(ClockChange), absent=ClockChange(), as_given=True)
    locked: bool = member(flag, absent=False, as_given=True)
    changed: Optional[bool] = member(nullable(flag), absent=None, as_given=True)
    restored: Optional[bool] = member(nullable(flag), absent=None, as_given=True)
    notes: Tuple[str, ...] = member(_NOTES, absent=(), as_given=True)

    @classmethod
    def of(
        cls,
        looks: Tuple[PowerLook, PowerLook, PowerLook],
        *,
        locked: bool,
        changed: bool,
        restored: bool,
        notes: Sequence[str],
    ) -> "PowerReport":
        """The report of what the board showed before, during and after a measurement."""
        modes = ModeChange(*(look.mode for look in looks))
        clocks = ClockChange(*(look.clocks for look in looks))
        return cls(modes, clocks, locked, changed, restored, tuple(notes))

    def mode_name(self, when: str) -> Optional[str]:
        """The mode's name "before", "during" or "after"; None where it is not known."""
        mode: Optional[PresentMode] = getattr(self.mode, when)
        return None if mode is None else mode.name


def hold(
    folder: Path, tools: PowerTools, mode: Optional[str], lock: bool, system: Path = Path("/")
) -> HeldPower:
    """Sets the mode and holds the clocks; ROOT/power.lock is held and no journal is there.

    Args:
        folder: ROOT.
        tools: The board's programs.
        mode: A power mode's name or id; None leaves it.
        lock: Whether to hold every clock at its highest.
        system: The root of the file system.

    Raises:
        DeviceError: "power...."; what was changed until then is taken back by ``undo``.
    """
    look = PowerLook.of(tools)
    before = wanted = None
    if mode is not None:
        wanted = find_mode(mode, system)
        before = _way_back(look.mode, wanted, system)
    if lock and not tools.has("jetson_clocks"):
        tools.lock()  # says what is missing
    change = wanted is not None and before is not None and wanted.id != before.id
    stores = tools.has("jetson_clocks") and (lock or change)
    if stores and tools.clocks_file.exists():
        raise DeviceError(
            "a benchmark of another account holds this board's clocks",
            code="power.busy",
            where=str(tools.clocks_file),
            hint="wait until it ends; if none is running: `sudo jetson_clocks --restore {0} && "
            "sudo rm {0}`".format(tools.clocks_file),
        )
    if change or lock:
        journal = PowerJournal(
            before=before if change else None,
            wanted=wanted if change else None,
            stored=str(tools.clocks_file) if stores else None,
            state="storing" if stores else "set",
        )
        _write(folder, journal)
        if stores:
            tools.store()
            _write(folder, replace(journal, state="set"))
        if change and wanted is not None:
            tools.set_mode(wanted.id)
            _need_mode(tools, wanted)
        if lock:
            tools.lock()
    return HeldPower(look, PowerLook.of(tools), lock)


def undo(folder: Path, tools: PowerTools, system: Path = Path("/")) -> List[str]:
    """Takes back what the journal records; the caller holds ROOT/power.lock.

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
        if journal.state == "set":
            notes += _mode_back(tools, journal)
            # after a start the clocks are nvpmodel's, and the file is gone
            if journal.stored and tools.clocks_file.exists() and not notes:
                tools.restore()
        if journal.stored:
            tools.forget()
    except DeviceError as error:
        _write(folder, replace(journal, error=Failure.of(error)))
        raise
    with map_os_errors(str(folder / JOURNAL)):
        (folder / JOURNAL).unlink()
        fsync_folder(folder)
    return notes


def read_journal(folder: Path) -> Optional[PowerJournal]:
    """Returns what is to be taken back; None if there is no journal or it is damaged."""
    return load(PowerJournal, folder / JOURNAL)


def _mode_back(tools: PowerTools, journal: PowerJournal) -> List[str]:
    before, wanted = journal.before, journal.wanted
    if before is None or wanted is None:
        return []
    now = tools.mode()
    if now is not None and now.id not in (before.id, wanted.id):
        # another mode was chosen meanwhile: that one stays
        return [
            "the power mode was changed to {} in the meantime, so it is not restored".format(
                now.name
            )
        ]
    try:
        # also where it says that it is there already: setting it may have been cut off halfway
        tools.set_mode(before.id)
    except DeviceError as error:
        # it can require a restart even for the mode that is set
        if error.code != "power.restart" or now is None or now.id != before.id:
            raise
    _need_mode(tools, before)
    return []


def _way_back(before: Optional[PresentMode], wanted: NvpmodelMode, system: Path) -> NvpmodelMode:
    """The mode to go back to after ``wanted``."""
    if before is None or before.id is None:
        raise DeviceError(
            "nvpmodel does not report the current power mode, so it could not be restored "
            "afterwards",
            code="power.no-modes",
            where="nvpmodel -q",
            hint="run `sudo nvpmodel -q` on the board, or `edgekit doctor --setup`",
        )
    here, there = gates(before.id, system), gates(wanted.id, system)
    if before.id != wanted.id and here is not None and here != there:
        raise DeviceError(
            "power mode {} enables other parts of the GPU than {}: changing to it and back "
            "needs a restart of the board".format(wanted.name, before.name),
            code="power.restart",
            where="nvpmodel -m {}".format(wanted.id),
            hint="run `sudo nvpmodel -m {}` on the board and let it restart, then measure "
            "without --power-mode".format(wanted.id),
        )
    return NvpmodelMode(before.id, before.name)


def _need_mode(tools: PowerTools, wanted: NvpmodelMode) -> None:
    now = tools.mode()
    if now is not None and now.id not in (wanted.id, None):
        raise DeviceError(
            "power mode is still {} after nvpmodel was asked for {}".format(now.name, wanted.name),
            code="power.failed",
            where="nvpmodel -m {}".format(wanted.id),
            hint="run it by hand on the board to see why",
        )


def _write(folder: Path, journal: PowerJournal) -> None:
    with map_os_errors(str(folder / JOURNAL)):
        durable_folder(folder)
        write_durably(folder / JOURNAL, dump(journal))
        os.chmod(str(folder / JOURNAL), 0o600)


class PowerRecord:
    """What the power mode and clocks were before, during and after a measurement.

    Attributes:
        report: After the block has ended; None where the board has no such programs.
    """

    def __init__(self) -> None:
        self.report: Optional[PowerReport] = None


@contextmanager
def held_power(
    folder: Path,
    mode: Optional[str] = None,
    lock: bool = False,
    *,
    system: Optional[Path] = None,
    clocks_file: str = "",
    wait_s: float = _WAIT_S,
) -> Iterator[PowerRecord]:
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
    power = PowerRecord()
    system, clocks_file = _places(system, clocks_file)
    if mode is None and not lock:
        tools = PowerTools(clocks_file)
        left = mend(folder, system=system, clocks_file=clocks_file)
        before = PowerLook.of(tools)
        try:
            yield power
        finally:
            power.report = _looked(tools, before, [left] if left else [])
        return
    guard = _Guard(HoldRequest(str(folder), mode, lock, str(system), clocks_file, wait_s))
    try:
        yield power
    finally:
        power.report = _whole(guard, guard.let_go())


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
            notes = undo(folder, PowerTools(clocks_file), system)
    except DeviceError as error:
        if error.code == "board.busy":
            return None  # one that lives
        return "an interrupted benchmark left the power mode or clocks changed: {}{}".format(
            error.message, " ({})".format(error.hint) if error.hint else ""
        )
    more = ": " + "; ".join(notes) if notes else ""
    return "restoring power mode and clocks after an interrupted benchmark" + more


def _places(system: Optional[Path], clocks_file: str) -> Tuple[Path, str]:
    system = default_system() if system is None else system
    return system, clocks_file or str(system / CLOCKS_FILE.lstrip("/"))


class _Guard:
    def __init__(self, request: HoldRequest) -> None:
        try:
            self._process = subprocess.Popen(
                child_argv(_GUARD, json.dumps(write(request))),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                # not this process's: the host would wait for the guard to close it
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            raise DeviceError(
                "cannot start a process: {}".format(error), code="power.failed"
            ) from error
        try:
            answer = self._read_answer()
            assert answer.held is not None
            self.held, self.notes = answer.held, answer.notes
        except BaseException:
            self._close()
            raise

    def let_go(self) -> _Undone:
        """Ends the holding; what the guard says then, or why it says nothing."""
        try:
            self._end_input()
            undone = self._read_answer().undone
            assert undone is not None
            return undone
        except DeviceError as error:
            text = "not restored: {}{}".format(
                error.message, "; " + error.hint if error.hint else ""
            )
            return _Undone(PowerLook(None, None), (text,), failed=True)
        finally:
            self._close()

    def _read_answer(self) -> _GuardAnswer:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        try:
            said = read(_GuardAnswer, parse_json(line, "the guard's answer"))
        except DeviceError:
            raise DeviceError(
                "the process that holds power mode and clocks has died",
                code="power.failed",
                hint="restore them with `edgekit status`",
            ) from None
        if said.error is not None:
            raise said.error.error()
        return said

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


def _whole(guard: _Guard, undone: _Undone) -> PowerReport:
    held = guard.held
    return PowerReport.of(
        (held.before, held.during, undone.after),
        locked=held.locked,
        changed=True,
        restored=not undone.failed,
        notes=(*guard.notes, *undone.notes),
    )


def _looked(tools: PowerTools, before: PowerLook, notes: List[str]) -> Optional[PowerReport]:
    after = PowerLook.of(tools)
    if before == PowerLook(None, None) == after:
        return None
    clocks = before.clocks
    held = clocks is not None and all(
        one.locked for name, one in clocks.items() if name == "gpu" or name.startswith("cpu")
    )
    return PowerReport.of(
        (before, before, after), locked=held, changed=False, restored=True, notes=notes
    )


# The guard is a process of its own, which reads a pipe whose other end the measuring process has:
# that ends when the measuring process ends, however it does, and so does the holding. The guard has
# its own session, so that what ends the measuring one (Ctrl-C, a cut connection) does not reach it.
# What ends the guard leaves the journal, which the next command finds.


class _CallerEnded(Exception):
    """SIGTERM: the board shuts down, or the guard is ended."""


def run_guard() -> None:
    """Reads the request from the command line, answers on stdout, one JSON document a line."""
    request = read(HoldRequest, json.loads(sys.argv[1]))
    for one in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
        signal.signal(one, signal.SIG_IGN)
    os.chdir("/")
    folder, system = Path(request.root), Path(request.system)
    tools = PowerTools(request.clocks_file)
    try:
        with locked(folder / LOCK, wait_s=request.wait_s):
            _wait_and_undo(folder, tools, system, request)
    except DeviceError as error:
        _say(_GuardAnswer(error=Failure.of(_explained(error, folder))))


def _wait_and_undo(folder: Path, tools: PowerTools, system: Path, request: HoldRequest) -> None:
    left = undo(folder, tools, system)  # of one that died
    error: Optional[DeviceError] = None
    signal.signal(signal.SIGTERM, _end)
    try:
        held = hold(folder, tools, request.mode, request.lock, system)
        _say(_GuardAnswer(held=held, notes=tuple(left)))
        sys.stdin.buffer.read()  # until the measuring process closes the pipe, or ends
    except _CallerEnded:
        pass
    except DeviceError as raised:
        error = raised
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    notes = undo(folder, tools, system)
    if error is not None:
        raise error
    _say(_GuardAnswer(undone=_Undone(PowerLook.of(tools), tuple(notes))))


def _end(number: int, frame: Any) -> None:
    raise _CallerEnded


def _explained(error: DeviceError, folder: Path) -> DeviceError:
    if error.code != "board.busy":
        return error
    return DeviceError(
        "another benchmark holds this board's power mode or clocks",
        code="power.busy",
        where=str(folder / LOCK),
        hint="wait until it ends, or measure without --lock-clocks and --power-mode",
    )


def _say(answer: _GuardAnswer) -> None:
    try:
        sys.stdout.buffer.write(dump(answer))
        sys.stdout.flush()
    except OSError:
        # the reader has ended; the work continues, and nothing is flushed at the end again
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
