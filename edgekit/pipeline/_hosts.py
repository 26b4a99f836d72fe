"""Boards by what a user names: USER@HOST:PORT, an alias of ~/.ssh/config, or a configuration."""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.errors import UsageError

if TYPE_CHECKING:
    from edgekit.config import Config
    from edgekit.deploy import Board, BoardClient

__all__ = [
    "board_of_host",
    "boards_of",
    "boards_of_config",
    "is_config",
    "job_command",
    "open_client",
]

_HOST = re.compile(
    r"(?:(?P<user>[^@\s]+)@)?(?P<host>\[[0-9A-Fa-f:.%\w]+\]|[^@:\s]+)(?::(?P<port>\d+))?"
)


def boards_of_config(config: Config) -> list[Board]:
    """Returns the boards that a configuration names, with their containers."""
    from edgekit.deploy import Board, Container

    return [
        Board(
            name=b.name,
            host=b.host,
            port=b.port,
            user=b.user,
            key=config.resolve(b.key) if b.key else None,
            host_key=b.host_key,
            root=b.root,
            python=b.python,
            container=Container(b.container.image, b.container.runtime, tuple(b.container.options))
            if b.container
            else None,
        )
        for b in config.file.deploy.boards
    ]


def board_of_host(text: str, *, root: str = "~/.edgekit", python: str = "python3") -> Board:
    """Returns the board at ``[USER@]HOST[:PORT]``; HOST may be an alias of ~/.ssh/config.

    Raises:
        UsageError: It is something else.
    """
    from edgekit.deploy import Board

    found = _HOST.fullmatch(text)
    if found is None:
        raise UsageError(
            f"{text!r} is no board", hint="USER@HOST:PORT, an alias of ~/.ssh/config or a YAML file"
        )
    host, port = found["host"].strip("[]"), found["port"]
    return Board(text, host, int(port) if port else None, found["user"], root=root, python=python)


def is_config(text: str) -> bool:
    """Whether ``text`` names a configuration rather than a host."""
    return Path(text).suffix.lower() in (".yaml", ".yml") or Path(text).is_file()


def boards_of(where: str, config: Config | None = None, **options: str) -> list[Board]:
    """Returns the boards that a user means.

    Args:
        where: A configuration's file, the name of one of ``config``'s boards, or a host.
        config: A configuration, where one is given beside it.
        options: ``root`` and ``python`` of a host.

    Raises:
        UsageError: The configuration has no board; ``where`` is nothing of these.
    """
    if is_config(where):
        from edgekit.config import open_config

        config = open_config(where)
        boards = boards_of_config(config)
        if not boards:
            raise UsageError(
                "the configuration names no board",
                where=where,
                hint="write one under deploy.boards, or give USER@HOST",
            )
        return boards
    named = [b for b in boards_of_config(config) if b.name == where] if config else []
    return named or [board_of_host(where, **options)]


def job_command(action: str, id: str, config: Config, board: str) -> str:
    """Returns the command line for a job on a configuration's board, for a user to copy."""
    words = ["edgekit", "jobs", action, id, config.path]
    if len(config.file.deploy.boards) > 1:
        words += ["--board", board]
    return shlex.join(words)


@contextlib.contextmanager
def open_client(board: Board, *, accept_host_key: bool = False) -> Iterator[BoardClient]:
    """Connects to a board, with edgekit's own known_hosts beside the user's."""
    from edgekit.deploy import open_board
    from edgekit.pipeline._cache import Cache

    with open_board(board, state_folder=Cache().folder, accept_host_key=accept_host_key) as client:
        yield client
