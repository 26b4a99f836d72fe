"""Real sshd boards for tests; import what you need from here into a test module or conftest.

from tests.boards.fixtures import boards, home  # noqa: F401
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from edgekit.deployment.board import Board
from edgekit.deployment.embedded_sshd import Sshd, find_sshd, sshd

__all__ = ["StartBoard", "boards", "cut", "hard_kill", "home", "need_sshd", "remote"]

StartBoard = Callable[..., Sshd]


def need_sshd() -> None:
    """Fails where there is no sshd, so that no machine leaves these tests out unnoticed."""
    if find_sshd() is not None:
        return
    if os.environ.get("EDGEKIT_NO_SSHD") == "1":
        pytest.skip("EDGEKIT_NO_SSHD=1")
    pytest.fail("no sshd: install openssh-server, or set EDGEKIT_NO_SSHD=1 to leave this out")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home folder on the host's side: no known_hosts, no keys, no agent."""
    folder = tmp_path / "home"
    (folder / ".ssh").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    return folder


@pytest.fixture
def boards(tmp_path: Path, home: Path) -> Iterator[StartBoard]:
    """A function that starts boards: ``boards(root=None, **options of sshd) -> Sshd``."""
    need_sshd()
    with contextlib.ExitStack() as stack:

        def start(
            root: Path | None = None, port: int | None = None, host_keys: Sequence[Path] = ()
        ) -> Sshd:
            folder = root or tmp_path / "board"
            return stack.enter_context(sshd(folder, port=port, host_keys=host_keys))

        yield start


def remote(server: Sshd, **changes: object) -> Board:
    """The server's board as a config would describe it; ``changes`` are fields of ``Board``."""
    fields: dict[str, object] = {"name": "lab", "kind": "remote", **changes}
    return replace(server.board, **fields)  # type: ignore[arg-type]


def cut(server: Sshd) -> None:
    """Cuts the server's connections; new ones can be made."""
    for pid in _descendants(server.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def hard_kill(server: Sshd) -> None:
    """Kills the server and all that it runs for connections at once, as a power cut would."""
    for pid in (server.pid, *_descendants(server.pid)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _descendants(parent: int) -> list[int]:
    """Returns children before their own; a connection is a session, not in the server's group."""
    try:
        text = Path(f"/proc/{parent}/task/{parent}/children").read_text(encoding="ascii")
    except FileNotFoundError:
        return []
    children = [int(word) for word in text.split()]
    return [pid for child in children for pid in (child, *_descendants(child))]
