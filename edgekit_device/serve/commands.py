"""The commands serve, serve-status and serve-stop."""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import BinaryIO, Iterator, List, Optional

from edgekit_device.board.identity import loader_argv, loader_digest, loader_file
from edgekit_device.errors import DeviceError, map_os_errors
from edgekit_device.files import check_kept, locked, replace_link, write_durably
from edgekit_device.protocol.codec import parse_json, read
from edgekit_device.protocol.failure import Failed
from edgekit_device.protocol.server import (
    SOCKET,
    query_server,
    read_record,
    reload_server,
    send_request,
    server_folder,
)
from edgekit_device.protocol.serving import ServingStatus, StopAnswer
from edgekit_device.release.journal import find_last_taken_back
from edgekit_device.release.releases import ServeAnswer, ServerEnded, ServerStopped
from edgekit_device.store.root import App, Root

#: The server's own copy of the loader: hosts replace the loaders in ROOT/bin.
LOADER = "serve.pyz"
_LOG, _LOCK = "serve.log", "serve.lock"
_STOP_S = 60.0
_POLL_S = 0.05
_EXECUTED = "EDGEKIT_SERVE_LOADER"


def do_serve(
    root: Root, arguments: argparse.Namespace, stdin: BinaryIO
) -> "ServeAnswer | ServerEnded":
    """Serves until it is stopped; with --background, starts a server and returns."""
    app = _find_app(root, arguments.app)
    if arguments.background:
        return _start_background(app, arguments)
    folder = _server_folder(app)
    if folder == app.folder:
        _run_cached_loader(app)
    from edgekit_device.serve.pool import ServeOptions
    from edgekit_device.serve.server import ListeningSocket, Server, ServerLog

    options = ServeOptions(
        workers=max(1, arguments.workers),
        queue=max(1, arguments.queue),
        timeout_s=arguments.timeout_s,
        threads=arguments.threads,
    )
    with _lock_server(app, folder):
        if folder == app.folder:
            # removes earlier servers' loaders, under the lock: no other server of this app uses one
            in_use = os.path.realpath(str(app.folder / LOADER))
            for file in app.folder.glob("serve-*.pyz"):
                if str(file.resolve()) != in_use:
                    with contextlib.suppress(OSError):
                        file.unlink()
        listener = ListeningSocket(arguments.socket or folder / SOCKET)
        listener.open()
        server = Server(app, listener, options, ServerLog(app.name), loader_argv())
        try:
            server.run()
        finally:
            listener.close()
    return ServerEnded(app.name, server.health.requests, server.health.errors)


def do_serve_status(root: Root, arguments: argparse.Namespace, stdin: BinaryIO) -> ServeAnswer:
    """Answers the server's status; with --reload, first makes it load the current release."""
    app = root.app(arguments.app)
    return _server_answer(
        app, reload_server(app.folder) if arguments.reload else query_server(app.folder)
    )


def do_serve_stop(root: Root, arguments: argparse.Namespace, stdin: BinaryIO) -> ServerStopped:
    """Makes a server answer its pending requests and end; waits for its end."""
    app = root.app(arguments.app)
    answer = send_request(StopAnswer, app.folder, "stop", _STOP_S)
    if answer is not None:
        # its lock is free once its process has ended
        with locked(server_folder(app.folder) / _LOCK, wait_s=_STOP_S):
            pass
    return ServerStopped(app.name, answer is not None)


def keep_loader(app: App) -> Optional[Path]:
    """Copies this loader into the app's folder, under its digest; returns the link to it.

    None if this loader is not a zipapp.
    """
    file = loader_file()
    if file is None:
        return None
    cached = app.folder / "serve-{}.pyz".format(str(loader_digest())[:12])
    with map_os_errors(str(cached)):
        if not cached.exists():
            write_durably(cached, file.read_bytes())
        replace_link(app.folder / LOADER, cached.name)
    return app.folder / LOADER


def _server_answer(app: App, found: Optional[ServingStatus]) -> ServeAnswer:
    """Returns the server's status, with a release that was rolled back for it and the reason."""
    return ServeAnswer(app.name, found, find_last_taken_back(app))


def _find_app(root: Root, name: str) -> App:
    app = root.app(name)
    if not app.folder.is_dir():
        raise DeviceError(
            "the app does not exist here",
            code="release.none",
            where=name,
            hint="deploy a bundle first",
        )
    return app


def _server_folder(app: App) -> Path:
    """Returns the folder of its socket, lock and log; creates it if it is not the app's folder."""
    folder = server_folder(app.folder)
    if folder != app.folder:
        with map_os_errors(str(folder)):
            folder.mkdir(mode=0o700, exist_ok=True)
            check_kept(folder)
    return folder


def _run_cached_loader(app: App) -> None:
    """Executes the app's copy of the loader, so that this loader's file may be removed."""
    # execv keeps the process id: a child that inherits the variable has another one
    if os.environ.pop(_EXECUTED, "") == str(os.getpid()):
        return
    cached = keep_loader(app)
    if cached is not None:
        os.environ[_EXECUTED] = str(os.getpid())
        # the file itself: the link may point elsewhere one day
        os.execv(sys.executable, [sys.executable, str(cached.resolve()), *sys.argv[1:]])


@contextlib.contextmanager
def _lock_server(app: App, folder: Path) -> Iterator[None]:
    try:
        lock = locked(folder / _LOCK, wait_s=0.0)
        lock.__enter__()
    except DeviceError as error:
        if error.code != "board.busy":
            raise
        raise DeviceError(
            "another server already serves it (process {})".format(read_record(app.folder).pid),
            code="serve.running",
            where=app.name,
            hint="show its state with serve-status, stop it with serve-stop",
        ) from error
    try:
        yield
    finally:
        lock.__exit__(None, None, None)


def _start_background(app: App, arguments: argparse.Namespace) -> ServeAnswer:
    """Starts a server in its own session and waits until a release serves or has failed."""
    argv: List[str] = [*loader_argv(), "serve", "--root", str(app.root.folder), "--app", app.name]
    for name in ("workers", "queue", "timeout_s", "threads"):
        argv += ["--" + name.replace("_", "-"), str(getattr(arguments, name))]
    if arguments.socket is not None:
        argv += ["--socket", str(arguments.socket.resolve())]
    log = _server_folder(app) / _LOG
    with map_os_errors(str(log)):
        number = os.open(str(log), os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    with open(number, "rb", buffering=0) as file:
        before = os.fstat(number).st_size
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True
        )
        try:
            while process.poll() is None:
                found = query_server(app.folder)
                # another server may answer at this socket: then the new one ends
                if found is not None and found.pid == process.pid:
                    # answers once the release serves or has failed: the status has the error
                    with contextlib.suppress(DeviceError):
                        reload_server(app.folder)
                    return _server_answer(app, query_server(app.folder))
                time.sleep(_POLL_S)
        finally:
            if process.returncode is None:
                process.returncode = 0  # do not wait for it: it outlives this command
        # only what this server wrote: the log is appended to
        file.seek(before)
        lines = file.read(1 << 16).strip().splitlines()
    raise _start_error(lines[-1] if lines else b"", process.returncode, log)


def _start_error(last_line: bytes, status: int, log: Path) -> DeviceError:
    """Returns the last error that a server that did not start printed, or a general error."""
    with contextlib.suppress(DeviceError):  # not an error's JSON
        return read(Failed, parse_json(last_line, "the answer")).error.error()
    return DeviceError(
        "the server ended with exit status {}".format(status),
        code="serve.not-started",
        where=str(log),
        hint="check its log",
    )
