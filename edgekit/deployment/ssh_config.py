"""Resolves a board's connection: from the board's own fields, then from OpenSSH's configuration,
read by OpenSSH itself (``ssh -G``) or, without its client, by paramiko (``~/.ssh/config``).
"""

from __future__ import annotations

import os
import pwd
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from edgekit import timeouts
from edgekit.deployment.board import Board
from edgekit.errors import ConfigError, Problem
from edgekit_device.account import account_name

_SYSTEM = Path("/etc/ssh/ssh_config")
_USER = ("known_hosts", "known_hosts2")
_GLOBAL = ("/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2")
_SHELL = frozenset("'`\"$\\;&<>|(){}, \t\r\n")


@dataclass(frozen=True, slots=True)
class SshOptions:
    """The options of a host, each a list of its lines' values."""

    values: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def first(self, name: str) -> str:
        """Returns the option's first value, "" if not set."""
        return (self.values.get(name) or [""])[0]

    def keys(self) -> tuple[Path, ...]:
        """Returns the IdentityFile paths; OpenSSH's defaults only if they exist."""
        # ``ssh -G`` lists the default identity files even if they do not exist
        found = [Path(os.path.expanduser(text)) for text in self.values.get("identityfile", ())]
        home = Path("~/.ssh").expanduser()
        return tuple(
            path
            for path in found
            if path.name != "none"
            and (path.is_file() or path.parent != home or not path.name.startswith("id_"))
        )

    def known_hosts(self) -> tuple[Path, ...] | None:
        """Returns the known_hosts files; None for the default files."""
        users, system = self.first("userknownhostsfile"), self.first("globalknownhostsfile")
        # ``ssh -G`` also prints defaults: these count as not set
        usual = {" ".join(f"{home}/.ssh/{name}" for name in _USER) for home in ("~", _home())}
        if (not users or users in usual) and (not system or system == " ".join(_GLOBAL)):
            return None
        mine = " ".join(f"~/.ssh/{name}" for name in _USER)
        user_files = _split_files(mine if not users or users in usual else users)
        return (*user_files, *_split_files(system or " ".join(_GLOBAL)))


def look_up(host: str, *, user: str | None = None, port: int | None = None) -> SshOptions:
    """Returns the options of ``host`` in ``~/.ssh/config`` and the system's file.

    Args:
        host: Name or alias.
        user: Account if given elsewhere (for "Match user").
        port: Port if given elsewhere.

    Raises:
        ConfigError: "board.ssh-config".
    """
    own = Path("~/.ssh/config").expanduser()
    if not own.is_file() and not _SYSTEM.is_file():
        return SshOptions()
    program = shutil.which("ssh")
    if program is None:
        return _read_without_ssh(own, host)
    words = [program, "-G"]
    if str(Path("~").expanduser()) != _home():
        # OpenSSH uses the home directory of the account's passwd entry, never $HOME
        words += ["-F", str(own) if own.is_file() else os.devnull]
    words += [f"-l{user}"] if user else []
    words += [f"-p{port}"] if port else []
    try:
        done = subprocess.run(
            [*words, "--", host],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeouts.SSH_CONFIG_S,
            check=False,
        )
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise ssh_config_error(f"ssh -G failed: {error}") from error
    if done.returncode:
        raise ssh_config_error(_last_line(done.stderr))
    values: dict[str, list[str]] = {}
    for line in done.stdout.decode("utf-8", "surrogateescape").splitlines():
        name, _, value = line.partition(" ")
        values.setdefault(name.lower(), []).append(value)
    return SshOptions(values)


def ssh_config_error(reason: str) -> ConfigError:
    """Returns the error about OpenSSH's configuration."""
    path = str(Path("~/.ssh/config").expanduser())
    hint = "correct the file, or give host, port, user and key in the edgekit config"
    return ConfigError([Problem(f"cannot be used: {reason}", path, hint)], code="board.ssh-config")


def _read_without_ssh(path: Path, host: str) -> SshOptions:
    if not path.is_file():
        return SshOptions()
    import paramiko

    try:
        text = path.read_text(encoding="utf-8")
        found = paramiko.SSHConfig.from_text(text).lookup(host)
    except (OSError, ValueError, paramiko.SSHException) as error:
        raise ssh_config_error(str(error)) from error
    # paramiko has no Include and would ignore the included file
    if any(line.split()[:1] and line.split()[0].lower() == "include" for line in text.splitlines()):
        raise ssh_config_error(
            "Include needs the OpenSSH client (openssh-client), which is not installed"
        )
    return SshOptions({name: [v] if isinstance(v, str) else list(v) for name, v in found.items()})


def _home() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return ""


def _split_files(text: str) -> tuple[Path, ...]:
    """Splits a list of files; ``ssh -G`` prints names with spaces in them without quotes."""
    try:
        words = shlex.split(text)
    except ValueError:
        words = text.split()
    found: list[Path] = []
    while words:
        # the longest run of words that is a file, else a single word
        sizes = range(len(words), 0, -1)
        size = next((n for n in sizes if _joined_path(words[:n]).is_file()), 1)
        found.append(_joined_path(words[:size]))
        words = words[size:]
    return tuple(path for path in found if path.name != "none")


def _joined_path(words: list[str]) -> Path:
    return Path(os.path.expanduser(" ".join(words)))


def _last_line(stderr: bytes) -> str:
    lines = [line for line in stderr.decode("utf-8", "replace").splitlines() if line.strip()]
    # the last line, "terminating, 1 bad configuration options", has no reason
    reasons = [line for line in lines if "terminating" not in line and "terminal" not in line]
    return (reasons or lines or ["ssh -G failed"])[-1].strip()[:300]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A resolved connection.

    Attributes:
        host: Address or name to connect to.
        port: TCP port.
        user: Account.
        keys: Private key files to try, in order.
        only_keys: True if only ``keys`` may be used (also through the agent, but no
            ``~/.ssh/id_*``).
        agent: Socket of the SSH agent (IdentityAgent); "" for no agent, None for SSH_AUTH_SOCK's.
        proxy_command: OpenSSH's ProxyCommand with its tokens replaced; empty if not set.
        jumps: OpenSSH's ProxyJump, first hop first.
        name: The host's name in known_hosts files: HostKeyAlias, "HOST" or "[HOST]:PORT".
        known_hosts: Files of known hosts (UserKnownHostsFile, GlobalKnownHostsFile); None for
            OpenSSH's defaults.
        revoked: RevokedHostKeys, a list of keys or a KRL.
    """

    host: str
    port: int
    user: str
    keys: tuple[Path, ...] = ()
    only_keys: bool = False
    agent: str | None = None
    proxy_command: str = ""
    jumps: tuple[str, ...] = ()
    name: str = ""
    known_hosts: tuple[Path, ...] | None = None
    revoked: Path | None = None


def resolve(board: Board) -> Endpoint:
    """Returns the endpoint of ``board``; ConfigError if OpenSSH's files cannot be read.

    The embedded board does not depend on the user's account and ignores the files.
    """
    if board.kind == "sshd":
        user, port = board.user or account_name(), board.port or 22
        keys = (board.key,) if board.key else ()
        return Endpoint(
            board.host,
            port,
            user,
            keys,
            True,
            "",
            name=_known_hosts_name(board.host, port),
            known_hosts=(),
        )
    found = look_up(board.host, user=board.user, port=board.port)
    host = found.first("hostname") or board.host
    user = board.user or found.first("user") or account_name()
    port = board.port or int(found.first("port") or 22)
    alias = found.first("hostkeyalias")
    jumps = found.first("proxyjump")
    proxy = found.first("proxycommand")
    revoked = found.first("revokedhostkeys")
    return Endpoint(
        host=host,
        port=port,
        user=user,
        keys=(_expanded_path(str(board.key)),) if board.key else found.keys(),
        only_keys=found.first("identitiesonly") == "yes",
        agent=_agent(found.first("identityagent")),
        proxy_command=""
        if proxy.lower() in ("", "none")
        else _command(
            proxy, {"h": host, "p": str(port), "r": user, "n": board.host, "k": alias or host}
        ),
        jumps=() if jumps.lower() in ("", "none") else tuple(jumps.replace(" ", "").split(",")),
        name=alias.lower() or _known_hosts_name(host, port),
        known_hosts=found.known_hosts(),
        revoked=_expanded_path(revoked) if revoked and revoked.lower() != "none" else None,
    )


def _known_hosts_name(host: str, port: int) -> str:
    # the form in which OpenSSH looks it up and writes it
    return host.lower() if port == 22 else f"[{host.lower()}]:{port}"


def _expanded_path(text: str) -> Path:
    return Path(os.path.expanduser(text))


def _agent(text: str) -> str | None:
    """Resolves IdentityAgent: a socket, "none", "SSH_AUTH_SOCK", or a variable's name after a
    dollar.
    """
    if text in ("", "SSH_AUTH_SOCK"):
        return None
    if text.lower() == "none":
        return ""
    if text.startswith("$"):
        return os.environ.get(text.strip("${}"), "")
    return str(_expanded_path(text))


def _command(text: str, values: dict[str, str]) -> str:
    """Replaces OpenSSH's tokens; refuses a value that a shell would split or interpret.

    Raises:
        ConfigError: An unknown token, or such a value.
    """
    made, rest = "", text
    while "%" in rest:
        before, _, rest = rest.partition("%")
        token, rest = rest[:1], rest[1:]
        if token != "%" and token not in values:
            raise ssh_config_error(
                f"ProxyCommand uses the token %{token}, which edgekit does not support"
            )
        value = "%" if token == "%" else values[token]
        # the text of the configuration is the user's own, a host or account may come from elsewhere
        if token != "%" and (value.startswith("-") or set(value) & _SHELL):
            raise ssh_config_error(
                f"{value!r} is not allowed in a ProxyCommand: a shell would interpret it"
            )
        made += before + value
    return made + rest
