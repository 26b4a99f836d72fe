"""What OpenSSH's configuration says of a host, asked of OpenSSH itself where it is installed."""

from __future__ import annotations

import os
import pwd
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from edgekit.errors import ConfigError, Problem

__all__ = ["Options", "look_up", "refusal"]

_SYSTEM = Path("/etc/ssh/ssh_config")
_TIMEOUT_S = 60.0  # "Match exec" runs commands
_USER = ("known_hosts", "known_hosts2")
_GLOBAL = ("/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2")


@dataclass(frozen=True, slots=True)
class Options:
    """Options of one host, each a list of its lines' values."""

    values: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def one(self, name: str) -> str:
        """Returns the option's value, "" without one."""
        return (self.values.get(name) or [""])[0]

    def keys(self) -> tuple[Path, ...]:
        """Returns IdentityFile; OpenSSH's own defaults count only where they exist."""
        found = [Path(os.path.expanduser(text)) for text in self.values.get("identityfile", ())]
        home = Path("~/.ssh").expanduser()
        return tuple(
            path
            for path in found
            if path.name != "none"
            and (path.is_file() or path.parent != home or not path.name.startswith("id_"))
        )

    def known_hosts(self) -> tuple[Path, ...] | None:
        """Returns the files of known hosts; None where they are the usual ones."""
        users, system = self.one("userknownhostsfile"), self.one("globalknownhostsfile")
        usual = {" ".join(f"{home}/.ssh/{name}" for name in _USER) for home in ("~", _home())}
        if (not users or users in usual) and (not system or system == " ".join(_GLOBAL)):
            return None
        mine = " ".join(f"~/.ssh/{name}" for name in _USER)
        user_files = _files(mine if not users or users in usual else users)
        return (*user_files, *_files(system or " ".join(_GLOBAL)))


def look_up(host: str, *, user: str | None = None, port: int | None = None) -> Options:
    """Returns what ``~/.ssh/config`` and the system's file say of ``host``.

    Args:
        host: Name or alias.
        user: Account, where it is given otherwise ("Match user").
        port: The same of the port.

    Raises:
        ConfigError: "board.ssh-config".
    """
    own = Path("~/.ssh/config").expanduser()
    if not own.is_file() and not _SYSTEM.is_file():
        return Options()
    program = shutil.which("ssh")
    if program is None:
        return _read_plainly(own, host)
    words = [program, "-G"]
    if str(Path("~").expanduser()) != _home():
        # OpenSSH asks the account's entry for its home and never $HOME
        words += ["-F", str(own) if own.is_file() else os.devnull]
    words += [f"-l{user}"] if user else []
    words += [f"-p{port}"] if port else []
    try:
        done = subprocess.run(
            [*words, "--", host],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise refusal(f"ssh -G does not answer: {error}") from error
    if done.returncode:
        raise refusal(_last_words(done.stderr))
    values: dict[str, list[str]] = {}
    for line in done.stdout.decode("utf-8", "surrogateescape").splitlines():
        name, _, value = line.partition(" ")
        values.setdefault(name.lower(), []).append(value)
    return Options(values)


def refusal(reason: str) -> ConfigError:
    """Returns the error about OpenSSH's configuration."""
    path = str(Path("~/.ssh/config").expanduser())
    hint = "correct the file, or give host, port, user and key in the edgekit config"
    return ConfigError([Problem(f"cannot be used: {reason}", path, hint)], code="board.ssh-config")


def _read_plainly(path: Path, host: str) -> Options:
    if not path.is_file():
        return Options()
    import paramiko

    try:
        text = path.read_text(encoding="utf-8")
        found = paramiko.SSHConfig.from_text(text).lookup(host)
    except (OSError, ValueError, paramiko.SSHException) as error:
        raise refusal(str(error)) from error
    if any(line.split()[:1] and line.split()[0].lower() == "include" for line in text.splitlines()):
        raise refusal("Include needs OpenSSH's client (openssh-client), which is not installed")
    return Options({name: [v] if isinstance(v, str) else list(v) for name, v in found.items()})


def _home() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return ""


def _files(text: str) -> tuple[Path, ...]:
    """Splits a list of files; ``ssh -G`` prints names with spaces in them without quotes."""
    try:
        words = shlex.split(text)
    except ValueError:
        words = text.split()
    found: list[Path] = []
    while words:
        # the longest run of words that is a file, else the one word
        sizes = range(len(words), 0, -1)
        size = next((n for n in sizes if _path(words[:n]).is_file()), 1)
        found.append(_path(words[:size]))
        words = words[size:]
    return tuple(path for path in found if path.name != "none")


def _path(words: list[str]) -> Path:
    return Path(os.path.expanduser(" ".join(words)))


def _last_words(stderr: bytes) -> str:
    lines = [line for line in stderr.decode("utf-8", "replace").splitlines() if line.strip()]
    told = [line for line in lines if "terminating" not in line and "terminal" not in line]
    return (told or lines or ["ssh -G failed"])[-1].strip()[:300]
