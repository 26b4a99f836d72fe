"""Power mode and clocks of a measurement: set before it, and always restored after it.
A guard process (``run_guard``) writes a durable journal, changes mode and clocks, waits for its
caller to end in any way, and restores them. If the guard is killed or the power fails,
``restore_interrupted`` restores them when the next command runs.

ROOT/power.json holds the previous state from before the first change until the restoration ends: a
process that finds it while no process holds ROOT/power.lock restores the state. The changes are, in
this order: journal, store clocks, mode, lock clocks; the restoration: mode, stored clocks (they
belong to the old mode), their file, journal. Each step of the restoration may run twice.
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
    power_gates,
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
    """power.json: the state to restore.

    Attributes:
        before: The previous mode; None if it is not changed.
        wanted: The mode of the measurement.
        stored: The file in which jetson_clocks stores the previous clocks.
        state: "storing" until the clocks are stored, then "set".
        error: Why the restoration failed.
    """

    before: Optional[NvpmodelMode] = member(_MODE)
    wanted: Optional[NvpmodelMode] = member(_MODE)
    stored: Optional[str] = member(nullable(text()))
    state: str = member(choice("storing", "set"))
    error: Optional[Failure] = member(nullable(record(Failure)), default=None)
    schema: str = member(choice(SCHEMA), default=SCHEMA)


@document(frozen=True)
class HoldRequest:
    """The mode and clocks that the guard sets; see ``held_power``."""

    root: str = member(text())
    mode: Optional[str] = member(nullable(text()))
    lock: bool = member(flag)
    system: str = member(text())
    clocks_file: str = member(text())
    wait_s: float = member(number(0.0, 1e9))


@document(frozen=True)
class PowerState:
    """The power mode, and the clocks by name, at one time; None if no program shows them."""

    mode: Optional[PresentMode] = member(_PRESENT)
    clocks: Optional[Mapping[str, ClockEntry]] = member(_CLOCKS)

    @classmethod
    def of(cls, tools: PowerTools) -> "PowerState":
        """Returns the present mode and clocks."""
        return cls(tools.mode(), tools.clocks())


@document(frozen=True)
class HeldPower:
    """The board before and during the measurement; ``locked``: every clock is at its maximum."""

    before: PowerState = member(record(PowerState))
    during: PowerState = member(record(PowerState))
    locked: bool = member(flag)


@document(frozen=True)
class _Restored:
    """The board after the restoration, and sentences about values that differ from before."""

    after: PowerState = member(record(PowerState))
    notes: Tuple[str, ...] = member(_NOTES)
    failed: bool = member(flag, absent=False)


@document(frozen=True)
class _GuardAnswer:
    """A line of the guard: the held state, then the restored state; or an error.

    ``notes`` are about the state that a dead benchmark left.
    """

    held: Optional[HeldPower] = member(record(HeldPower), absent=None)
    notes: Tuple[str, ...] = member(_NOTES, absent=())
    undone: Optional[_Restored] = member(record(_Restored), absent=None)
    error: Optional[Failure] = member(record(Failure), absent=None)


@document(frozen=True)
class ModeChange:
    """The power mode before, during and after a measurement; None if unknown."""

    before: Optional[PresentMode] = member(_PRESENT, absent=None, as_given=True)
    during: Optional[PresentMode] = member(_PRESENT, absent=None, as_given=True)
    after: Optional[PresentMode] = member(_PRESENT, absent=None, as_given=True)


@document(frozen=True)
class ClockChange:
    """The clocks by name before, during and after a measurement; None if unknown."""

    before: Optional[Mapping[str, ClockEntry]] = member(_CLOCKS, absent=None, as_given=True)
    during: Optional[Mapping[str, ClockEntry]] = member(_CLOCKS, absent=None, as_given=True)
    after: Optional[Mapping[str, ClockEntry]] = member(_CLOCKS, absent=None, as_given=True)


@document(frozen=True)
class PowerReport:
    """ "power" of ``edgekit.device.bench/1``.

    Attributes:
        mode: The power mode.
        clocks: The clocks.
        locked: True if the clocks were fixed during the measurement.
        changed: True if the measurement changed mode or clocks.
        restored: True if mode and clocks were restored.
        notes: Sentences about values that differ from before.
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
        looks: Tuple[PowerState, PowerState, PowerState],
        *,
        locked: bool,
        changed: bool,
        restored: bool,
        notes: Sequence[str],
    ) -> "PowerReport":
        """Returns the report of the looks before, during and after a measurement."""
        modes = ModeChange(*(look.mode for look in looks))
        clocks = ClockChange(*(look.clocks for look in looks))
        return cls(modes, clocks, locked, changed, restored, tuple(notes))

    def mode_name(self, when: str) -> Optional[str]:
        """Returns the mode's name "before", "during" or "after"; None if unknown."""
        mode: Optional[PresentMode] = getattr(self.mode, when)
        return None if mode is None else mode.name


def hold(
    folder: Path, tools: PowerTools, mode: Optional[str], lock: bool, system: Path = Path("/")
) -> HeldPower:
    """Sets the mode and locks the clocks; the caller holds ROOT/power.lock, without a journal.

    Args:
        folder: ROOT.
        tools: The board's programs.
        mode: A power mode's name or id; None keeps the mode.
        lock: True to lock every clock at its maximum.
        system: The root of the file system.

    Raises:
        DeviceError: "power...."; the caller reverts partial changes with ``undo``.
    """
    look = PowerState.of(tools)
    before = wanted = None
    if mode is not None:
        wanted = find_mode(mode, system)
        before = _mode_to_restore(look.mode, wanted, system)
    if lock and not tools.has("jetson_clocks"):
        tools.lock()  # raises "power.missing"
    change = wanted is not None and before is not None and wanted.id != before.id
    # for a change of mode alone, too: the clocks belong to the old mode
    stores = tools.has("jetson_clocks") and (lock or change)
    # the file is in /run for all accounts, but each account has its own ROOT with its own lock
    if stores and tools.clocks_file.exists():
        raise DeviceError(
            "a benchmark of another account holds this board's clocks",
            code="power.busy",
            where=str(tools.clocks_file),
            hint="wait until it ends; if none is running: `sudo jetson_clocks --restore {0} && "
            "sudo rm {0}`".format(tools.clocks_file),
        )
    if change or lock:
        # on disk before each change, so that a dead guard's changes are always known
        journal = PowerJournal(
            before=before if change else None,
            wanted=wanted if change else None,
            stored=str(tools.clocks_file) if stores else None,
            state="storing" if stores else "set",
        )
        _write_journal(folder, journal)
        if stores:
            tools.store()
            _write_journal(folder, replace(journal, state="set"))
        if change and wanted is not None:
            tools.set_mode(wanted.id)
            _check_mode(tools, wanted)
        if lock:
            tools.lock()
    return HeldPower(look, PowerState.of(tools), lock)


def undo(folder: Path, tools: PowerTools, system: Path = Path("/")) -> List[str]:
    """Restores the state in the journal; the caller holds ROOT/power.lock.

    Returns:
        Sentences about values that differ from before.

    Raises:
        DeviceError: The state cannot be restored; the journal stays, with the reason.
    """
    journal = read_journal(folder)
    if journal is None:
        return []
    notes: List[str] = []
    try:
        # while clocks are being stored nothing was changed yet
        if journal.state == "set":
            notes += _restore_mode(tools, journal)
            # after a restart nvpmodel has set the clocks, and the file no longer exists
            if journal.stored and tools.clocks_file.exists() and not notes:
                tools.restore()
        # last: until here a second attempt can restore the clocks again
        if journal.stored:
            tools.forget()
    except DeviceError as error:
        _write_journal(folder, replace(journal, error=Failure.of(error)))
        raise
    with map_os_errors(str(folder / JOURNAL)):
        (folder / JOURNAL).unlink()
        # an unlink is durable only with its folder (fsync(2))
        fsync_folder(folder)
    return notes


def read_journal(folder: Path) -> Optional[PowerJournal]:
    """Returns the journal; None if it is missing or damaged."""
    return load(PowerJournal, folder / JOURNAL)


def _restore_mode(tools: PowerTools, journal: PowerJournal) -> List[str]:
    before, wanted = journal.before, journal.wanted
    if before is None or wanted is None:
        return []
    now = tools.mode()
    if now is not None and now.id not in (before.id, wanted.id):
        # somebody chose another mode meanwhile, which stays
        return [
            "the power mode was changed to {} in the meantime, so it is not restored".format(
                now.name
            )
        ]
    try:
        # set it even if nvpmodel reports it: an earlier attempt may be incomplete
        tools.set_mode(before.id)
    except DeviceError as error:
        # nvpmodel may require a restart even for the present mode
        if error.code != "power.restart" or now is None or now.id != before.id:
            raise
    _check_mode(tools, before)
    return []


def _mode_to_restore(
    before: Optional[PresentMode], wanted: NvpmodelMode, system: Path
) -> NvpmodelMode:
    """Returns the mode to restore after ``wanted``."""
    if before is None or before.id is None:
        raise DeviceError(
            "nvpmodel does not report the current power mode, so it could not be restored "
            "afterwards",
            code="power.no-modes",
            where="nvpmodel -q",
            hint="run `sudo nvpmodel -q` on the board, or `edgekit doctor --setup`",
        )
    gates_before, gates_wanted = power_gates(before.id, system), power_gates(wanted.id, system)
    if before.id != wanted.id and gates_before is not None and gates_before != gates_wanted:
        raise DeviceError(
            "power mode {} enables other parts of the GPU than {}: changing to it and back "
            "needs a restart of the board".format(wanted.name, before.name),
            code="power.restart",
            where="nvpmodel -m {}".format(wanted.id),
            hint="run `sudo nvpmodel -m {}` on the board and let it restart, then measure "
            "without --power-mode".format(wanted.id),
        )
    return NvpmodelMode(before.id, before.name)


def _check_mode(tools: PowerTools, wanted: NvpmodelMode) -> None:
    now = tools.mode()
    if now is not None and now.id not in (wanted.id, None):
        raise DeviceError(
            "power mode is still {} after nvpmodel was asked for {}".format(now.name, wanted.name),
            code="power.failed",
            where="nvpmodel -m {}".format(wanted.id),
            hint="run it by hand on the board to see why",
        )


def _write_journal(folder: Path, journal: PowerJournal) -> None:
    with map_os_errors(str(folder / JOURNAL)):
        durable_folder(folder)
        write_durably(folder / JOURNAL, dump(journal))
        os.chmod(str(folder / JOURNAL), 0o600)


class PowerRecord:
    """The power mode and clocks before, during and after a measurement.

    Attributes:
        report: The report, once the block has ended; None if the board lacks the programs.
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
    """Sets a power mode and locks the clocks while the block runs; without either it only reads.

    Args:
        folder: ROOT.
        mode: A power mode's name or id; None keeps the mode.
        lock: True to lock every clock at its maximum (``jetson_clocks``).
        system: The root of the file system; default: ``default_system()``.
        clocks_file: File in which jetson_clocks stores the clocks; default: ``CLOCKS_FILE``.
        wait_s: Seconds to wait for another benchmark that holds the lock.

    Raises:
        DeviceError: "power.mode", "power.no-modes", "power.restart", "power.missing",
            "power.not-allowed", "power.busy" or "power.failed"; the board is then unchanged.
    """
    power = PowerRecord()
    system, clocks_file = _default_paths(system, clocks_file)
    if mode is None and not lock:
        tools = PowerTools(clocks_file)
        restored = restore_interrupted(folder, system=system, clocks_file=clocks_file)
        before = PowerState.of(tools)
        try:
            yield power
        finally:
            power.report = _unchanged_report(tools, before, [restored] if restored else [])
        return
    guard = _Guard(HoldRequest(str(folder), mode, lock, str(system), clocks_file, wait_s))
    try:
        yield power
    finally:
        power.report = _held_report(guard, guard.release())


def restore_interrupted(
    folder: Path, *, system: Optional[Path] = None, clocks_file: str = ""
) -> Optional[str]:
    """Restores the state that a dead benchmark left; returns a sentence about it, or None.

    Never raises, because commands call it before their own work.
    """
    # every command calls this: without a journal it costs a single stat
    if not (folder / JOURNAL).exists():
        return None
    system, clocks_file = _default_paths(system, clocks_file)
    try:
        with locked(folder / LOCK, wait_s=0.0):
            # again under the lock: another command may have restored the state meanwhile
            journal = read_journal(folder)
            if journal is None:
                return None
            notes = undo(folder, PowerTools(clocks_file), system)
    except DeviceError as error:
        if error.code == "board.busy":
            return None  # a live benchmark
        return "an interrupted benchmark left the power mode or clocks changed: {}{}".format(
            error.message, " ({})".format(error.hint) if error.hint else ""
        )
    more = ": " + "; ".join(notes) if notes else ""
    return "restoring power mode and clocks after an interrupted benchmark" + more


def _default_paths(system: Optional[Path], clocks_file: str) -> Tuple[Path, str]:
    system = default_system() if system is None else system
    return system, clocks_file or str(system / CLOCKS_FILE.lstrip("/"))


class _Guard:
    def __init__(self, request: HoldRequest) -> None:
        try:
            self._process = subprocess.Popen(
                child_argv(_GUARD, json.dumps(write(request))),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                # not inherited: the host would wait until the guard closes it
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            raise DeviceError(
                "cannot start a process: {}".format(error), code="power.failed"
            ) from error
        try:
            answer = self._read_answer()
            # the guard's first answer, or ``_read_answer`` has raised its error
            assert answer.held is not None
            self.held, self.notes = answer.held, answer.notes
        except BaseException:
            self._close()
            raise

    def release(self) -> _Restored:
        """Ends the guard; returns its last answer, or the reason if it gave none."""
        try:
            self._end_input()
            undone = self._read_answer().undone
            assert undone is not None
            return undone
        except DeviceError as error:
            # a report, no exception: the measurement itself is valid
            text = "not restored: {}{}".format(
                error.message, "; " + error.hint if error.hint else ""
            )
            return _Restored(PowerState(None, None), (text,), failed=True)
        finally:
            self._close()

    def _read_answer(self) -> _GuardAnswer:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        try:
            answer = read(_GuardAnswer, parse_json(line, "the guard's answer"))
        except DeviceError:
            raise DeviceError(
                "the process that holds power mode and clocks has died",
                code="power.failed",
                hint="restore them with `edgekit status`",
            ) from None
        if answer.error is not None:
            raise answer.error.error()
        return answer

    def _end_input(self) -> None:
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()

    def _close(self) -> None:
        self._end_input()
        try:
            # after this time the guard continues to restore on its own
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            return
        finally:
            if self._process.stdout is not None:
                self._process.stdout.close()


def _held_report(guard: _Guard, undone: _Restored) -> PowerReport:
    held = guard.held
    return PowerReport.of(
        (held.before, held.during, undone.after),
        locked=held.locked,
        changed=True,
        restored=not undone.failed,
        notes=(*guard.notes, *undone.notes),
    )


def _unchanged_report(
    tools: PowerTools, before: PowerState, notes: List[str]
) -> Optional[PowerReport]:
    after = PowerState.of(tools)
    if before == PowerState(None, None) == after:
        return None
    clocks = before.clocks
    # locked by someone else, for example by hand
    held = clocks is not None and all(
        clock.locked for name, clock in clocks.items() if name == "gpu" or name.startswith("cpu")
    )
    return PowerReport.of(
        (before, before, after), locked=held, changed=False, restored=True, notes=notes
    )


class _CallerEnded(Exception):
    """SIGTERM: the board shuts down, or somebody stops the guard."""


def run_guard() -> None:
    """Runs the guard: reads the request from the command line, writes JSON lines to stdout.

    The guard reads a pipe from the measuring process. The pipe closes when that process ends in
    any way, and the guard restores the state. The guard has its own session, so that signals to
    the measuring process (Ctrl-C, a lost connection) do not reach it. If the guard is killed,
    the journal stays for the next command.
    """
    request = read(HoldRequest, json.loads(sys.argv[1]))
    for signum in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
        signal.signal(signum, signal.SIG_IGN)
    os.chdir("/")
    folder, system = Path(request.root), Path(request.system)
    tools = PowerTools(request.clocks_file)
    try:
        with locked(folder / LOCK, wait_s=request.wait_s):
            _wait_and_undo(folder, tools, system, request)
    except DeviceError as error:
        _write_answer(_GuardAnswer(error=Failure.of(_busy_error(error, folder))))


def _wait_and_undo(folder: Path, tools: PowerTools, system: Path, request: HoldRequest) -> None:
    restored_notes = undo(folder, tools, system)  # of a dead guard
    error: Optional[DeviceError] = None
    # from here on a SIGTERM ends the wait, and the state is restored
    signal.signal(signal.SIGTERM, _raise_caller_ended)
    try:
        held = hold(folder, tools, request.mode, request.lock, system)
        _write_answer(_GuardAnswer(held=held, notes=tuple(restored_notes)))
        sys.stdin.buffer.read()  # returns once the measuring process closes the pipe or ends
    except _CallerEnded:
        pass
    except DeviceError as raised:
        # a partial change is restored below before the error is reported
        error = raised
    # a second SIGTERM must not interrupt the restoration
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    notes = undo(folder, tools, system)
    if error is not None:
        raise error
    _write_answer(_GuardAnswer(undone=_Restored(PowerState.of(tools), tuple(notes))))


def _raise_caller_ended(number: int, frame: Any) -> None:
    raise _CallerEnded


def _busy_error(error: DeviceError, folder: Path) -> DeviceError:
    if error.code != "board.busy":
        return error
    return DeviceError(
        "another benchmark holds this board's power mode or clocks",
        code="power.busy",
        where=str(folder / LOCK),
        hint="wait until it ends, or measure without --lock-clocks and --power-mode",
    )


def _write_answer(answer: _GuardAnswer) -> None:
    try:
        sys.stdout.buffer.write(dump(answer))
        sys.stdout.flush()
    except OSError:
        # the reader has ended; continue without output, and without another flush at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
