"""The systemd unit of a server: its text, and its place."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, BinaryIO, Dict, List

from ._errors import DeviceError, map_os_errors
from ._files import write_durably
from ._root import App, Root
from ._serve_commands import keep_loader

__all__ = ["do_serve_unit", "quoted", "unit_name", "unit_text"]

_SYSTEM = Path("/etc/systemd/system")
_PLAIN = re.compile(r"[A-Za-z0-9_@%+=:,./-]+\Z")


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
    answer: Dict[str, Any] = {"app": app.name, "unit": name, "file": str(file), "notes": []}
    if arguments.remove:
        if file.exists():
            answer["notes"] += _take_away(file, control)
        return dict(answer, installed=False)
    if not app.folder.is_dir():
        raise DeviceError(
            "there is no such app here", code="release.none", where=app.name, hint="deploy first"
        )
    options: List[str] = []
    for option in ("workers", "queue", "timeout_s", "threads"):
        options += ["--" + option.replace("_", "-"), str(getattr(arguments, option))]
    if not arguments.install:
        text = unit_text(app, _program(app, keep=False), options, arguments.system)
        return dict(answer, installed=file.exists(), text=text)
    text = unit_text(app, _program(app, keep=True), options, arguments.system)
    with map_os_errors(str(file)):
        before = file.read_bytes() if file.exists() else None
        folder.mkdir(parents=True, exist_ok=True)
    try:
        _put(file, text.encode("utf-8"))
        _control([*control, "daemon-reload"])
        _control([*control, "enable", "--now", name])
    except DeviceError:
        if before is None:
            _take_away(file, control)
        else:
            _put(file, before)
        raise
    if not arguments.system:
        answer["notes"].append(
            "a user's services end with the user's last login, unless it lingers: "
            "sudo loginctl enable-linger {}".format(_account())
        )
    return dict(answer, installed=True, text=text)


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
        # what a power cut left of a deployment is carried on beside the server, which starts it
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
    from ._hello import loader_file
    from ._serve_commands import LOADER

    if loader_file() is None:
        return [sys.executable, "-m", "edgekit_device"]
    kept = keep_loader(app) if keep else app.folder / LOADER
    return [sys.executable, str(kept)]


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
