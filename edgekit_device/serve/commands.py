"""The commands serve, serve-status, serve-stop and serve-unit, which prints or installs the
systemd unit of a server.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Dict, Iterator, List, Optional, Tuple

from edgekit_device.errors import DeviceError, map_os_errors
from edgekit_device.files import locked, replace_link, write_durably
from edgekit_device.protocol.codec import (
    app_name,
    array,
    flag,
    member,
    nullable,
    parse_json,
    read,
    record,
    text,
    write,
)
from edgekit_device.protocol.failure import Failed
from edgekit_device.release.journal import TakenBack, last_taken_back
from edgekit_device.serve.documents import ServingStatus, StopAnswer
from edgekit_device.serve.messages import SOCKET, read_record, reload, send_request, serving
from edgekit_device.store.root import App, Root

#: The loader that a server runs from: hosts replace those in ROOT/bin.
LOADER = "serve.pyz"
_LOG = "serve.log"
_STOP_S = 60.0
_POLL_S = 0.05
_EXECUTED = "EDGEKIT_SERVE_LOADER"
_SYSTEM = Path("/etc/systemd/system")
_PLAIN = re.compile(r"[A-Za-z0-9_@%+=:,./-]+\Z")


@dataclass(frozen=True)
class ServeAnswer:
    """The answer of ``serve --background`` and ``serve-status``.

    Attributes:
        serving: None where no server runs.
        taken_back: The release that was taken back for what serves, where one was.
    """

    app: str = member(app_name)
    serving: Optional[ServingStatus] = member(nullable(record(ServingStatus)))
    taken_back: Optional[TakenBack] = member(record(TakenBack), absent=None)


@dataclass(frozen=True)
class ServerStopped:
    """The answer of ``serve-stop``; not ``stopped``: none ran."""

    app: str = member(app_name)
    stopped: bool = member(flag)


@dataclass(frozen=True)
class ServeUnit:
    """The answer of ``serve-unit``.

    Attributes:
        installed: Whether it is in place now.
        text: The unit; not where it was removed.
        notes: For people.
    """

    app: str = member(app_name)
    unit: str = member(text())
    file: str = member(text())
    notes: Tuple[str, ...] = member(array(text(most=1 << 16)))
    installed: bool = member(flag)
    text: Optional[str] = member(text(most=1 << 16), absent=None)


def do_serve(root: Root, arguments: argparse.Namespace, stdin: BinaryIO) -> Dict[str, Any]:
    """Serves until it is stopped; with --background, starts a server that does."""
    app = _app(root, arguments.app)
    if arguments.background:
        return _background(app, arguments)
    _run_cached_loader(app)
    from edgekit_device.board.identity import loader_argv
    from edgekit_device.serve.pool import ServeOptions
    from edgekit_device.serve.server import ListeningSocket, Server, ServerLog

    options = ServeOptions(
        workers=max(1, arguments.workers),
        queue=max(1, arguments.queue),
        timeout_s=arguments.timeout_s,
        threads=arguments.threads,
    )
    with _only(app):
        _sweep(app)
        listener = ListeningSocket(arguments.socket or app.folder / SOCKET)
        listener.open()
        server = Server(app, listener, options, ServerLog(app.name), loader_argv())
        try:
            server.run()
        finally:
            listener.close()
    return {"app": app.name, "served": server.health.requests, "errors": server.health.errors}


def do_serve_status(root: Root, arguments: argparse.Namespace, stdin: BinaryIO) -> Dict[str, Any]:
    """Says what serves; with --reload, has it take the current release first."""
    app = root.app(arguments.app)
    return _answer(app, reload(app) if arguments.reload else serving(app))


def do_serve_stop(root: Root, arguments: argparse.Namespace, stdin: BinaryIO) -> Dict[str, Any]:
    """Has a server answer what it has taken, and end; waits for that."""
    app = root.app(arguments.app)
    answer = send_request(StopAnswer, app, "stop", _STOP_S)
    if answer is not None:
        # its lock is free when its process has ended
        with locked(app.folder / "serve.lock", wait_s=_STOP_S):
            pass
    return dict(write(ServerStopped(app.name, answer is not None)))


def keep_loader(app: App) -> Optional[Path]:
    """Copies this loader into the app's folder, under its digest; returns the link to it.

    None when this is no zipapp.
    """
    from edgekit_device.board.identity import loader_digest, loader_file

    file = loader_file()
    if file is None:
        return None
    cached = app.folder / "serve-{}.pyz".format(str(loader_digest())[:12])
    with map_os_errors(str(cached)):
        if not cached.exists():
            write_durably(cached, file.read_bytes())
        replace_link(app.folder / LOADER, cached.name)
    return app.folder / LOADER


def _answer(app: App, found: Optional[ServingStatus]) -> Dict[str, Any]:
    """What serves; where another release was taken back for it, that one and why."""
    return dict(write(ServeAnswer(app.name, found, last_taken_back(app))))


def _app(root: Root, name: str) -> App:
    app = root.app(name)
    if not app.folder.is_dir():
        raise DeviceError(
            "there is no such app here",
            code="release.none",
            where=name,
            hint="deploy a bundle first",
        )
    return app


def _run_cached_loader(app: App) -> None:
    """Executes the app's copy of the loader, so that this one's file may be removed."""
    if os.environ.pop(_EXECUTED, "") == str(os.getpid()):
        return
    cached = keep_loader(app)
    if cached is not None:
        os.environ[_EXECUTED] = str(os.getpid())
        # the file itself: the link may point elsewhere one day
        os.execv(sys.executable, [sys.executable, str(cached.resolve()), *sys.argv[1:]])


def _sweep(app: App) -> None:
    in_use = os.path.realpath(str(app.folder / LOADER))
    for file in app.folder.glob("serve-*.pyz"):
        if str(file.resolve()) != in_use:
            with contextlib.suppress(OSError):
                file.unlink()


@contextlib.contextmanager
def _only(app: App) -> Iterator[None]:
    try:
        lock = locked(app.folder / "serve.lock", wait_s=0.0)
        lock.__enter__()
    except DeviceError as error:
        if error.code != "board.busy":
            raise
        raise DeviceError(
            "another server serves it (process {})".format(read_record(app.folder).pid),
            code="serve.running",
            where=app.name,
            hint="serve-status says how it is, serve-stop ends it",
        ) from error
    try:
        yield
    finally:
        lock.__exit__(None, None, None)


def _background(app: App, arguments: argparse.Namespace) -> Dict[str, Any]:
    """Starts a server in a session of its own and waits until a release serves or has failed."""
    from edgekit_device.board.identity import loader_argv

    argv: List[str] = [*loader_argv(), "serve", "--root", str(app.root.folder), "--app", app.name]
    argv += _options(arguments)
    if arguments.socket is not None:
        argv += ["--socket", str(arguments.socket.resolve())]
    log = app.folder / _LOG
    with map_os_errors(str(log)):
        number = os.open(str(log), os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    with open(number, "rb", buffering=0) as file:
        before = os.fstat(number).st_size
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True
        )
        try:
            while process.poll() is None:
                found = serving(app)
                if found is not None and found.pid == process.pid:
                    # answers when the release serves, or has failed: the status says with what
                    with contextlib.suppress(DeviceError):
                        reload(app)
                    return _answer(app, serving(app))
                time.sleep(_POLL_S)
        finally:
            if process.returncode is None:
                process.returncode = 0  # it is not waited for: it outlives this command
        file.seek(before)
        said = file.read(1 << 16).strip().splitlines()
    return _ended(said[-1] if said else b"", process.returncode, log)


def _options(arguments: argparse.Namespace) -> List[str]:
    """The options that a server is started with."""
    found: List[str] = []
    for name in ("workers", "queue", "timeout_s", "threads"):
        found += ["--" + name.replace("_", "-"), str(getattr(arguments, name))]
    return found


def _ended(said: bytes, status: int, log: Path) -> Dict[str, Any]:
    try:
        raise read(Failed, parse_json(said, "the answer", "serve.not-started")).error.error()
    except DeviceError as error:
        if error.code not in ("serve.not-started", "manifest.invalid"):
            raise
    raise DeviceError(
        "the server ended with status {}".format(status),
        code="serve.not-started",
        where=str(log),
        hint="look at its log",
    )


def do_serve_unit(root: Root, arguments: argparse.Namespace, stdin: BinaryIO) -> Dict[str, Any]:
    """Prints a unit; with --install or --remove, puts it in place and starts it, or takes it away.

    A unit that systemd does not take is taken back; one is removed whatever systemd says, whose
    words are then in the notes.

    Raises:
        DeviceError: "release.none", "serve.no-systemd", "serve.unit", "board.permission".
    """
    app = root.app(arguments.app)
    name = unit_name(app)
    folder = _SYSTEM if arguments.system else _user_folder()
    file = folder / name
    control = ["systemctl"] if arguments.system else ["systemctl", "--user"]
    if arguments.remove:
        left = _take_away(file, control) if file.exists() else []
        return dict(write(ServeUnit(app.name, name, str(file), tuple(left), installed=False)))
    _app(root, arguments.app)
    options = _options(arguments)
    if not arguments.install:
        shown = unit_text(app, _program(app, keep=False), options, arguments.system)
        return dict(write(ServeUnit(app.name, name, str(file), (), file.exists(), shown)))
    made = unit_text(app, _program(app, keep=True), options, arguments.system)
    with map_os_errors(str(file)):
        before = file.read_bytes() if file.exists() else None
        folder.mkdir(parents=True, exist_ok=True)
    try:
        _put(file, made.encode("utf-8"))
        _control([*control, "daemon-reload"])
        _control([*control, "enable", "--now", name])
    except DeviceError:
        if before is None:
            _take_away(file, control)
        else:
            _put(file, before)
        raise
    notes: Tuple[str, ...] = ()
    if not arguments.system:
        notes = (
            "a user's services end with the user's last login, unless it lingers: "
            "sudo loginctl enable-linger {}".format(_account()),
        )
    return dict(write(ServeUnit(app.name, name, str(file), notes, True, made)))


def _put(file: Path, data: bytes) -> None:
    with map_os_errors(str(file)):
        write_durably(file, data)
        file.chmod(0o644)


def _take_away(file: Path, control: List[str]) -> List[str]:
    """Removes a unit and what enables it; returns what systemd, if it is there, had against it."""
    notes = []
    for number, argv in enumerate((["disable", "--now", file.name], ["daemon-reload"])):
        try:
            _control([*control, *argv])
        except DeviceError as error:
            notes.append(error.message)
        if number == 0:
            with map_os_errors(str(file)):
                for path in [file, *file.parent.glob("*.wants/" + file.name)]:
                    if os.path.lexists(str(path)):
                        path.unlink()
    if notes:
        notes.append("what was started may still serve: serve-stop ends it")
    return notes


def unit_name(app: App) -> str:
    """The unit's name; app names are letters, digits, '.', '_' and '-'."""
    return "edgekit-{}.service".format(app.name)


def unit_text(app: App, program: List[str], options: List[str], system: bool) -> str:
    """The unit's text.

    The options of systemd.exec(5) leave devices alone: an engine needs those of the GPU and DLA
    (/dev/nvhost-*, /dev/nvmap, /dev/nvidia*), so there is no PrivateDevices. JITs of CUDA and
    runtimes write code, so there is no MemoryDenyWriteExecute. ``ProtectHome`` stays off, since a
    root folder is in a home as a rule; all but it is read-only.
    """
    root = str(app.root.folder)
    argv = [*program, "serve", "--root", root, "--app", app.name, *options]
    lines = [
        "# written by edgekit_device serve-unit",
        "[Unit]",
        "Description=edgekit serves {}".format(app.name),
        "After=" + ("network.target" if system else "default.target"),
        "StartLimitIntervalSec=0",
        "",
        "[Service]",
        "Type=notify",
        "NotifyAccess=main",
        # the server starts what carries on a deployment that a power cut interrupted
        "ExecStart=" + " ".join(quoted(word) for word in argv),
        "ExecReload=/bin/kill -HUP $MAINPID",
        "Restart=always",
        "RestartSec=2",
        "TimeoutStartSec=15min",
        "TimeoutStopSec=60",
        "WatchdogSec=30",
        "KillMode=mixed",
        "UMask=0077",
        "NoNewPrivileges=yes",
        "ProtectSystem=strict",
        "ReadWritePaths=" + _path(root),
        "PrivateTmp=yes",
        "RestrictRealtime=no",
        "LockPersonality=yes",
        "RestrictSUIDSGID=yes",
    ]
    if system:
        lines += ["User=" + _account(), "ProtectKernelTunables=yes", "ProtectControlGroups=yes"]
    lines += ["", "[Install]", "WantedBy=" + ("multi-user.target" if system else "default.target")]
    return "\n".join(lines) + "\n"


def quoted(word: str) -> str:
    """A word of ExecStart= as systemd takes it back (systemd.service(5), "Command lines").

    ``%`` begins a specifier and ``$`` a variable; both stand for themselves when doubled.
    """
    _check(word)
    text = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return text if _PLAIN.match(text) else '"{}"'.format(text)


def _path(path: str) -> str:
    """A path of ReadWritePaths=: words with C escapes and specifiers, no variables."""
    _check(path)
    text = path.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return text if _PLAIN.match(text) else '"{}"'.format(text)


def _check(text: str) -> None:
    if any(ord(character) < 32 or ord(character) == 127 for character in text):
        raise DeviceError(
            "a unit cannot name a path with control characters",
            code="serve.unit",
            where=repr(text)[:200],
        )


def _program(app: App, keep: bool) -> List[str]:
    from edgekit_device.board.identity import loader_file

    if loader_file() is None:
        return [sys.executable, "-m", "edgekit_device"]
    cached = keep_loader(app) if keep else app.folder / LOADER
    return [sys.executable, str(cached)]


def _user_folder() -> Path:
    base = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(base).expanduser() / "systemd" / "user"


def _account() -> str:
    import pwd

    return pwd.getpwuid(os.geteuid()).pw_name


def _control(argv: List[str]) -> None:
    if shutil.which(argv[0]) is None:
        raise DeviceError(
            "this board has no systemctl",
            code="serve.no-systemd",
            hint="start it with serve --background",
        )
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise DeviceError(
            "{} failed: {}".format(" ".join(argv), said[-1] if said else done.returncode),
            code="serve.unit",
            hint="for --user, log in as the account itself, or enable-linger it first",
        )
