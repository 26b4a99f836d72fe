"""The values of this package: a board of the configuration, its container, a release on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from edgekit.errors import Problem
from edgekit_device.protocol.codec import (
    array,
    choice,
    document,
    integer,
    member,
    nullable,
    path,
    record,
    text,
)

if TYPE_CHECKING:
    from edgekit_device.board.identity import Hello
    from edgekit_device.release.journal import DeploymentFacts

Kind = Literal["sshd", "local", "remote"]
"""How a board is reached: edgekit's own sshd, no SSH at all, or a machine of the config."""
Progress = Callable[[str, int, int], None]
"""Called as ``progress(phase, done, total)``; bytes in the phases "loader" and "send"."""
EMBEDDED = "embedded"
"""The name of the board that edgekit starts on this machine (kind "sshd")."""
_PLAIN = "no spaces, and no dash at the beginning"


@document(frozen=True)
class DescribedBoard:
    """A board's description in documents.

    Attributes:
        name: The board's name.
        kind: The kind of connection.
        note: The connection, in words.
    """

    name: str = member(text())
    kind: str = member(text())
    note: str = member(text())


@document(frozen=True)
class Container:
    """A container on the board that the loader runs in.

    Attributes:
        image: Docker's name of the image.
        runtime: Docker's runtime; None for docker's default.
        options: More options of ``docker run``, one word each.
    """

    image: str = member(text())
    runtime: str | None = member(nullable(text()), default="nvidia")
    options: tuple[str, ...] = member(array(text()), default=())


@document(frozen=True)
class Board:
    """A board's address and how to verify its identity.

    None values come from the user's ``~/.ssh/config`` or from OpenSSH's defaults.

    Attributes:
        name: The user's name of the board, used in every message about it.
        host: Address, name, or an alias of ``~/.ssh/config``.
        port: TCP port.
        user: Account on the board.
        key: Private key file; without it, the SSH agent and ``~/.ssh/id_*`` are tried.
        host_key: Pinned key, "SHA256:..." as ``ssh-keygen -lf`` prints it; overrides known_hosts.
        known_hosts: An additional known_hosts file.
        root: Folder on the board; "~" is the account's home.
        python: Interpreter on the board; "~/..." is relative to the account's home.
        kind: See ``Kind``.
        container: The container that the loader runs in, if any; ``python`` is then the
            container's, and the board also needs a ``python3``.
    """

    name: str = member(text())
    host: str = member(text(), default="")
    port: int | None = member(nullable(integer(1, 65535)), default=None)
    user: str | None = member(nullable(text()), default=None)
    key: Path | None = member(nullable(path), default=None)
    host_key: str | None = member(nullable(text()), default=None)
    known_hosts: Path | None = member(nullable(path), default=None)
    root: str = member(text(), default="~/.edgekit")
    python: str = member(text(), default="python3")
    kind: Kind = member(choice(*get_args(Kind)), default="remote")
    container: Container | None = member(nullable(record(Container)), default=None)

    def problems(self) -> tuple[Problem, ...]:
        """Returns faults of the fields, without any lookup."""
        found = []
        if self.kind != "local" and not self.host:
            found.append(Problem("the board has no host", self.name, "write `host: ADDRESS`"))
        for label, value in (("host", self.host), ("user", self.user or "")):
            # programs take an argument with a leading dash as an option
            if value.startswith("-") or any(c.isspace() or not c.isprintable() for c in value):
                found.append(Problem(f"{value!r} is not a valid {label}", self.name, _PLAIN))
        if self.port is not None and not 0 < self.port < 65536:
            found.append(Problem(f"{self.port} is not a TCP port", self.name, "use 1 to 65535"))
        if self.host_key is not None and not self.host_key.startswith("SHA256:"):
            hint = (
                "write `SHA256:...` as printed by `ssh-keygen -lf "
                "/etc/ssh/ssh_host_ed25519_key.pub`"
            )
            found.append(Problem("the host key is not a SHA256 fingerprint", self.name, hint))
        for label, value in (("root", self.root), ("python", self.python)):
            if not value or "\0" in value:
                found.append(Problem(f"{label} is empty or contains a NUL", self.name))
            elif value.startswith("-"):
                # a login shell would take the command's first word as an option
                found.append(Problem(f"{label} begins with a dash", self.name, f"./{value}"))
        return tuple(found)


@dataclass(frozen=True, slots=True)
class Release:
    """A bundle installed on a board and serving.

    Attributes:
        id: Name of the release's folder on the board.
        board: Name of the board.
        kind: How the board was reached.
        app: Name of the application (the bundle's name).
        digest: SHA-256 (hex) of the bundle's manifest.
        bytes_sent: Payload bytes sent: loader, blobs and manifest.
        bytes_reused: Bytes of blobs that the board already had.
        blobs_sent: Number of blobs sent.
        blobs_reused: Number of blobs that the board already had.
        previous: Id of the release that served before; None if there was none.
        hello: The board's answer to ``hello``.
        deployment: The deployment that made it serve.
        reused: True if it already served.
    """

    id: str
    board: str
    kind: Kind
    app: str
    digest: str
    bytes_sent: int
    bytes_reused: int
    blobs_sent: int
    blobs_reused: int
    previous: str | None
    hello: Hello
    deployment: DeploymentFacts
    reused: bool = False
