"""The commands serve, serve-status and serve-stop."""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, BinaryIO, Dict, Iterator, List, Optional

from ._deployment import last_taken_back
from ._errors import DeviceError, map_os_errors
from ._files import fsync_folder, locked, replace_link
from ._root import App, Root
from ._serving import SOCKET, ask, read_record, reload, serving

__all__ = ["LOADER", "do_serve", "do_serve_status", "do_serve_stop", "keep_loader"]

#: The loader that a server runs from: hosts replace those in ROOT/bin.
LOADER = "serve.pyz"
_LOG = "serve.log"
_STOP_S = 60.0
_POLL_S = 0.05
_EXECUTED = "EDGEKIT_SERVE_LOADER"


def do_serve(root: Root, arguments: argparse.Namespace, stdin: BinaryIO) -> Dict[str, Any]:
    """Serves until it is told to end; with --background, starts a server that does."""
    app = _app(root, arguments.app)
    if arguments.background:
        return _background(app, arguments)
    _run_from_kept(app)
    from ._serve import Server
    from ._serve_door import Door
    from ._serve_line import Options
    from ._serve_log import Log
    from ._serve_rescue import loader_argv

    options = Options(
        workers=max(1, arguments.workers),
        queue=max(1, arguments.queue),
        timeout_s=arguments.timeout_s,
        threads=arguments.threads,
    )
    with _only(app):
        _sweep(app)
        door = Door(arguments.socket or app.folder / SOCKET)
        door.open()
        server = Server(app, door, options, Log(app.name), loader_argv())
        try:
            server.run()
        finally:
            door.close()
    return {"app": app.name, "served": server.health.requests, "errors": server.health.errors}


def do_serve_status(root: Root, arguments: argparse.Namespace, stdin: BinaryIO) -> Dict[str, Any]:
    """Says what serves; with --reload, has it take the current release first."""
    app = root.app(arguments.app)
    return _answer(app, reload(app) if arguments.reload else serving(app))


def do_serve_stop(root: Root, arguments: argparse.Namespace, stdin: BinaryIO) -> Dict[str, Any]:
    """Has a server answer what it has taken, and end; waits for that."""
    app = root.app(arguments.app)
    answer = ask(app, {"op": "stop"}, _STOP_S)
    if answer is not None:
        # its lock is free when its process has ended
        with locked(app.folder / "serve.lock", wait_s=_STOP_S):
            pass
    return {"app": app.name, "stopped": answer is not None}


def keep_loader(app: App) -> Optional[Path]:
    """Keeps this loader beside the app, under its digest; returns the link to it.

    None when this is no zipapp.
    """
    import shutil

    from ._hello import loader_digest, loader_file

    file = loader_file()
    if file is None:
        return None
    kept = app.folder / "serve-{}.pyz".format(str(loader_digest())[:12])
    with map_os_errors(str(kept)):
        if not kept.exists():
            beside = kept.with_name(".{}.{}".format(kept.name, os.getpid()))
            try:
                os.link(str(file), str(beside))
            except OSError:
                shutil.copyfile(str(file), str(beside))
            os.replace(str(beside), str(kept))
            fsync_folder(app.folder)
        replace_link(app.folder / LOADER, kept.name)
    return app.folder / LOADER


def _answer(app: App, found: Optional[Dict[str, Any]]) -> Dict[str, Any]:
    """What serves; where another release was taken back for it, that one and why."""
    back = last_taken_back(app)
    return {"app": app.name, "serving": found, **({"taken_back": back} if back else {})}


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


def _run_from_kept(app: App) -> None:
    """Becomes the kept loader, so that nothing is missed when this one's file goes."""
    if os.environ.pop(_EXECUTED, "") == str(os.getpid()):
        return
    kept = keep_loader(app)
    if kept is not None:
        os.environ[_EXECUTED] = str(os.getpid())
        # the file itself: the link may point elsewhere one day
        os.execv(sys.executable, [sys.executable, str(kept.resolve()), *sys.argv[1:]])


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
            "another server serves it (process {})".format(read_record(app.folder).get("pid")),
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
    from ._serve_rescue import loader_argv

    argv: List[str] = [*loader_argv(), "serve", "--root", str(app.root.folder), "--app", app.name]
    for name in ("workers", "queue", "timeout_s", "threads"):
        argv += ["--" + name.replace("_", "-"), str(getattr(arguments, name))]
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
                if found is not None and found["pid"] == process.pid:
                    # answers when the release serves, or has failed: the status says with what
                    with contextlib.suppress(DeviceError):
                        reload(app)
                    return _answer(app, serving(app))
                time.sleep(_POLL_S)
        finally:
            if process.returncode is None:
                process.returncode = 0  # nobody waits for it: it outlives this command
        file.seek(before)
        said = file.read(1 << 16).strip().splitlines()
    return _ended(said[-1] if said else b"", process.returncode, log)


def _ended(said: bytes, status: int, log: Path) -> Dict[str, Any]:
    import json

    error: Dict[str, Any] = {}
    with contextlib.suppress(ValueError, LookupError):
        error = dict(json.loads(said.decode("utf-8", "replace"))["error"])
    raise DeviceError(
        str(error.get("message", "the server ended with status {}".format(status))),
        code=str(error.get("code", "serve.not-started")),
        where=str(error.get("where") or log),
        hint=str(error.get("hint", "look at its log")),
    )
