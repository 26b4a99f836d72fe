"""``edgekit fleet deploy --driver ansible``: runs the exported playbook and reports its outcome."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from edgekit import timeouts
from edgekit.config.loader import open_config
from edgekit.errors import EnvironmentLack, UsageError
from edgekit.files import write_json
from edgekit.fleet.ansible.export import Exported, export
from edgekit.fleet.hints import ansible_folder, playbook_command, rollout_name, state_folder
from edgekit.fleet.inventory import find_program
from edgekit.fleet.status import AnsibleHead, iso_time
from edgekit.fleet.waves import DEFAULT_WAVES
from edgekit.interrupts import handle_interrupts
from edgekit.pipeline.progress import Progress
from edgekit.removed import FormerDict
from edgekit.text import counted
from edgekit_device.errors import DeviceError
from edgekit_device.files import is_locked, take_lock
from edgekit_device.protocol import fields
from edgekit_device.protocol.codec import (
    array,
    choice,
    document,
    fail,
    flag,
    integer,
    mapping,
    member,
    nullable,
    read,
    record,
    records,
    take,
    text,
    write,
)
from edgekit_device.protocol.failure import Failure

_SAVED, _LOCK = "run.json", ".running"
_PLUGINS, _PLUGIN = Path(__file__).with_name("callback"), "edgekit_recap"


@document(frozen=True)
class AnsibleBoard:
    """A board after Ansible's run; ``changed`` is True if it was changed, None if unknown.

    Attributes:
        wave: The board's wave, counted from 1.
    """

    board: str = member(text())
    wave: int = member(integer(1, 1 << 31))
    state: str = member(choice("ok", "failed", "unreachable", "unknown", "not-begun"))
    changed: bool | None = member(nullable(flag))
    error: Failure | None = member(nullable(record(Failure)))


@document(frozen=True)
class AnsibleRun(FormerDict):
    """``edgekit.fleet.ansible-run/1``: a rollout by Ansible.

    Attributes:
        state: "done", "failed" or "interrupted".
        folder: The export's folder.
        bundles: App and digest of each bundle.
        exit_status: Exit status of ansible-playbook.
        counts: Number of boards by state.
        failure: Why it failed.
        notes: Notes for people.
    """

    rollout: str = member(text())
    app: str = member(text())
    state: str = member(choice("done", "failed", "interrupted"))
    folder: str = member(text())
    bundles: tuple[tuple[str, str], ...] = member(array(array(text(), 2, 2)))
    exit_status: int = member(integer(-(1 << 31), 1 << 31))
    counts: Mapping[str, int] = member(mapping(fields.count))
    boards: tuple[AnsibleBoard, ...] = member(records(AnsibleBoard))
    failure: Failure | None = member(nullable(record(Failure)))
    notes: tuple[str, ...] = member(array(text(most=1 << 18)))
    schema: str = member(
        choice("edgekit.fleet.ansible-run/1"), default="edgekit.fleet.ansible-run/1"
    )

    @property
    def goes_on(self) -> str:
        """Commands that run the export again, for its folder."""
        return playbook_command(Path(self.folder))


def _parse_error(value: Any) -> Mapping[str, object] | str | None:
    """Reads an error's object, a text, or null."""
    if value is not None and not isinstance(value, (dict, str)):
        fail("", "expected an error, a text or null")
    return value


@document(frozen=True)
class _Recap:
    """A board's entry in ``edgekit_recap``: tasks by outcome, and the failure.

    Attributes:
        why: The board's error, else Ansible's message; None without either.
    """

    unreachable: int = member(fields.count)
    failures: int = member(fields.count)
    changed: int = member(fields.count)
    why: Mapping[str, object] | str | None = member(_parse_error)


@dataclass(slots=True)
class _PlaybookOutcome:
    """Ansible's outcome: exit status, recap by board, and the last error that names no board."""

    code: int = 0
    recap: Mapping[str, _Recap] | None = None
    error: str = ""
    interrupted: bool = False


def deploy_by_ansible(
    config: str | Path,
    inventory: Path,
    *,
    state: Path | None = None,
    name: str | None = None,
    selector: str | None = None,
    canary: int = 0,
    waves: str = DEFAULT_WAVES,
    budget: str = "0",
    parallel: int = 8,
    bundle: Path | None = None,
    trust_key: bool = False,
    again: bool = False,
    progress: Progress | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> AnsibleRun:
    """Writes the export and runs its ``deploy.yml``.

    Ctrl-C stops Ansible; boards complete deployments that they have started.

    Args:
        config: The configuration of the application.
        inventory: The boards.
        state: The state folder; the export is in its ``ansible/NAME``.
        name: The rollout's name; an existing rollout is updated and run again.
        selector: Selects boards; None for all.
        canary: Number of boards of an extra first wave.
        waves: As for ``make_waves``.
        budget: Percentage of a wave's boards that may fail, "5%".
        parallel: Number of boards at a time (Ansible's forks).
        bundle: A finished bundle to use instead of a build.
        trust_key: Make boards trust the configuration's signing key.
        again: Deploy a bundle even if a board took it back.
        progress: Called with a build's progress.
        say: Called with each line of Ansible's output.

    Raises:
        EnvironmentLack: "fleet.no-ansible".
        EdgekitError: An error of ``export``, before any board is changed.
    """
    program = find_program("ansible-playbook")
    if program is None:
        raise EnvironmentLack(
            "ansible-playbook is not installed",
            code="fleet.no-ansible",
            hint="pip install 'edgekit[ansible]', or use --driver ssh",
        )
    app, state = str(open_config(config).file.name), state or state_folder()
    name = rollout_name(name, app, lambda new: ansible_folder(state, new).exists())
    folder = ansible_folder(state, name).resolve()
    made = export(
        folder,
        config,
        inventory=inventory,
        selector=selector,
        bundle=bundle,
        canary=canary,
        waves=waves,
        budget=budget,
        trust_key=trust_key,
        again=again,
        private=True,
        progress=progress,
    )
    say(f"{name}: Ansible runs deploy.yml in {folder}")
    command = [program, "-i", "inventory.yml", "--forks", str(parallel), "deploy.yml"]
    with (folder / _LOCK).open("wb") as lock:
        # ansible_heads also takes the lock briefly
        if not take_lock(lock.fileno(), timeouts.ROLLOUT_LOCK_S):
            raise UsageError(
                f"{name} is already run by another process",
                code="fleet.driven",
                where=str(folder),
                hint="wait until it ends, or give another --name",
            )
        # the record if this process is killed
        _save(_document(name, app, made, _PlaybookOutcome(interrupted=True)))
        document = _document(name, app, made, _run(command, folder, say))
        _save(document)
    return document


def saved_run(folder: Path) -> AnsibleRun | None:
    """Returns the record of the last run in an export's folder; None if there is none."""
    try:
        return read(AnsibleRun, json.loads((folder / _SAVED).read_bytes()))
    except (OSError, ValueError, DeviceError):
        return None


def saved_runs(state: Path) -> list[tuple[float, AnsibleRun]]:
    """Returns the records of runs in the state folder, newest first, each with its time in seconds
    since 1970.
    """
    found = []
    for path in ansible_folder(state, "*").parent.glob(f"*/{_SAVED}"):
        run = saved_run(path.parent)
        if run is not None:
            found.append((path.stat().st_mtime, replace(run, folder=str(path.parent))))
    return sorted(found, key=lambda pair: pair[0], reverse=True)


def ansible_heads(state: Path) -> list[AnsibleHead]:
    """Returns the rollouts by Ansible in the state folder, newest first."""
    found = []
    for at, run in saved_runs(state):
        now = "running" if is_locked(Path(run.folder) / _LOCK) else run.state
        head = AnsibleHead(
            run.rollout, run.app, now, run.folder, iso_time(at), run.counts, run.failure
        )
        found.append(head)
    return found


def _save(document: AnsibleRun) -> None:
    write_json(Path(document.folder) / _SAVED, write(document))


def _run(command: list[str], folder: Path, say: Callable[[str], None]) -> _PlaybookOutcome:
    recap = folder / "recap.json"
    recap.unlink(missing_ok=True)
    # ansible-playbook starts other Ansible programs from its own folder
    own = {
        "PATH": (str(Path(command[0]).parent), os.pathsep),
        "ANSIBLE_CALLBACK_PLUGINS": (str(_PLUGINS), os.pathsep),
        "ANSIBLE_CALLBACKS_ENABLED": (_PLUGIN, ","),
    }
    env = {
        **os.environ,
        **{
            key: between.join(filter(None, (value, os.environ.get(key))))
            for key, (value, between) in own.items()
        },
        "EDGEKIT_RECAP": str(recap),
    }
    ended = _PlaybookOutcome()
    with (
        _held_signals() as deliver,
        # an own session, so that Ctrl-C reaches Ansible once, through this process
        subprocess.Popen(
            command,
            cwd=folder,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        ) as process,
    ):
        try:
            _follow(process, ended, deliver, say)
        except BaseException:
            process.terminate()
            raise
    if recap.is_file():
        ended.recap = take(mapping(record(_Recap)), json.loads(recap.read_text(encoding="utf-8")))
    return ended


@contextlib.contextmanager
def _held_signals() -> Iterator[Callable[[], None]]:
    """Holds signals back until the yielded function, or else the block's end, delivers them.

    An interrupt inside Popen would leave ansible-playbook running.
    """
    received: list[int] = []

    def deliver() -> None:
        # a handler may raise KeyboardInterrupt: the rest is delivered by the next call
        restore()
        while received:
            signal.raise_signal(received.pop())

    with handle_interrupts(lambda number, frame: received.append(number)) as restore:
        try:
            yield deliver
        finally:
            deliver()


def _follow(
    process: subprocess.Popen[str],
    ended: _PlaybookOutcome,
    deliver: Callable[[], None],
    say: Callable[[str], None],
) -> None:
    """Passes on Ansible's lines until it ends; raises KeyboardInterrupt at the second Ctrl-C."""
    assert process.stdout
    while True:
        try:
            deliver()
            for line in process.stdout:
                say(line.rstrip("\n"))
                if line.startswith(("ERROR", "[ERROR]")):
                    ended.error = line.strip()
            ended.code = process.wait()
            return
        except KeyboardInterrupt:
            if ended.interrupted:
                raise
            ended.interrupted = True
            process.send_signal(signal.SIGINT)
            say("Ansible is stopped; boards that have started finish on their own")


def _document(name: str, app: str, made: Exported, ended: _PlaybookOutcome) -> AnsibleRun:
    numbers = [number for number, size in enumerate(made.waves, 1) for _ in range(size)]
    boards = tuple(
        _board(board, wave, ended.recap) for board, wave in zip(made.order, numbers, strict=True)
    )
    counts = dict(sorted(Counter(row.state for row in boards).items()))
    hint = playbook_command(Path(made.folder))
    failure = None
    if ended.recap and set(counts) != {"ok"}:
        words = ", ".join(f"{count} {state}" for state, count in counts.items())
        message = f"not all of {counted(len(boards), 'board')} have the release: {words}"
        failure = Failure("fleet.failures", message, name, hint)
    elif not ended.interrupted and (ended.recap is None or ended.code):
        why = f": {ended.error}" if ended.error else ""
        message = f"ansible-playbook failed with exit status {ended.code}{why}"
        failure = Failure("fleet.ansible", message, name, hint)
    return AnsibleRun(
        rollout=name,
        app=app,
        state="interrupted" if ended.interrupted else "failed" if failure else "done",
        folder=made.folder,
        bundles=made.bundles,
        exit_status=ended.code,
        counts=counts,
        boards=boards,
        failure=failure,
        notes=made.notes,
    )


def _board(name: str, wave: int, recap: Mapping[str, _Recap] | None) -> AnsibleBoard:
    """Returns a board's outcome from Ansible's recap."""
    found = (recap or {}).get(name)
    if found is None:
        # the recap lacks boards of waves that did not start
        return AnsibleBoard(name, wave, "unknown" if recap is None else "not-begun", None, None)
    state = "unreachable" if found.unreachable else "failed" if found.failures else "ok"
    error = None
    if state != "ok":
        why = found.why if isinstance(found.why, dict) else {"message": found.why}
        code = "board.unreachable" if state == "unreachable" else "board.failed"
        error = Failure(
            str(why.get("code") or code),
            " ".join(str(why.get("message") or "Ansible gave no reason").split()),
            name,
            str(why.get("hint") or ""),
        )
    return AnsibleBoard(name, wave, state, found.changed > 0, error)
