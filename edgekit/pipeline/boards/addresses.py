"""Boards by the names that a user gives: USER@HOST:PORT, an alias of ~/.ssh/config, or a
configuration; and the words that name a board in a hint.
"""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.errors import EdgekitError, UsageError
from edgekit.files import named_path
from edgekit.network.source import is_config_file

if TYPE_CHECKING:
    from edgekit.config.loader import Config
    from edgekit.deployment.board import Board
    from edgekit.deployment.client import BoardClient


_ROOT, _PYTHON = "~/.edgekit", "python3"
# in a board's own hints, the board's name is replaced by the user's name for it
_OF_JOB = re.compile(r"(edgekit jobs \w+ \S+) BOARD\b")
_PLACE = re.compile(r"\bBOARD\b")
_CONFIG = re.compile(r"(edgekit deploy) CONFIG\b")
_HOST = re.compile(
    r"(?:(?P<user>[^@\s]+)@)?(?P<host>\[[0-9A-Fa-f:.%\w]+\]|[^@:\s]+)(?::(?P<port>\d+))?"
)


def config_boards(config: Config) -> list[Board]:
    """Returns the boards that a configuration names, with their containers."""
    from edgekit.deployment.board import Board, Container

    return [
        Board(
            name=b.name,
            host=b.host,
            port=b.port,
            user=b.user,
            key=named_path(config.folder, b.key) if b.key else None,
            host_key=b.host_key,
            root=b.root,
            python=b.python,
            container=Container(b.container.image, b.container.runtime, tuple(b.container.options))
            if b.container
            else None,
        )
        for b in config.file.deploy.boards
    ]


def boards_or_embedded(config: Config) -> list[Board]:
    """Returns a configuration's boards; edgekit's own (kind "sshd") if it names none."""
    from edgekit.deployment.board import EMBEDDED, Board

    return config_boards(config) or [Board(EMBEDDED, kind="sshd")]


def host_board(text: str, *, root: str = _ROOT, python: str = _PYTHON) -> Board:
    """Returns the board at ``[USER@]HOST[:PORT]``; HOST may be an alias of ~/.ssh/config.

    Raises:
        UsageError: The text has another form.
    """
    from edgekit.deployment.board import Board

    found = _HOST.fullmatch(text)
    if found is None:
        raise UsageError(
            f"{text!r} is not a board",
            hint="USER@HOST:PORT, an alias of ~/.ssh/config or a YAML file",
        )
    # an IPv6 address is in brackets, so that its colons are not the port's
    host, port = found["host"].strip("[]"), found["port"]
    return Board(text, host, int(port) if port else None, found["user"], root=root, python=python)


def is_config(text: str) -> bool:
    """Returns True if ``text`` names a configuration, not a host."""
    return is_config_file(text) or Path(text).is_file()


def resolve_boards(where: str, config: Config | None = None, **options: str) -> list[Board]:
    """Returns the boards that a user names.

    Args:
        where: A configuration's file, the name of a board of ``config``, or a host. A
            configuration without a board means edgekit's own (kind "sshd").
        config: A configuration, if it is given, too.
        options: ``root`` and ``python`` of a host.

    Raises:
        UsageError: ``where`` is none of these.
    """
    if is_config(where):
        from edgekit.config.loader import open_config

        return boards_or_embedded(open_config(where))
    # a configuration's name for a board wins over an alias of ~/.ssh/config
    named = [b for b in config_boards(config) if b.name == where] if config else []
    return named or [host_board(where, **options)]


def job_command(action: str, id: str, config: Config, board: str) -> str:
    """Returns the command line for a job on a configuration's board, for a user to copy."""
    words = ["edgekit", "jobs", action, id, config.path]
    if len(config.file.deploy.boards) > 1:
        words += ["--board", board]
    return shlex.join(words)


def command_words(where: str, board: Board, several: bool = False) -> str:
    """Returns the arguments that select a board in a command.

    Args:
        where: A configuration, or a host.
        board: The board.
        several: True if ``where`` names other boards, too, and the command takes ``--board``.
    """
    words = [where, *(["--board", board.name] if several else [])]
    if not is_config(where):
        words += ["--root", board.root] if board.root != _ROOT else []
        words += ["--python", board.python] if board.python != _PYTHON else []
    return shlex.join(words)


def fill_hint(error: EdgekitError, where: str, board: Board, several: bool = False) -> None:
    """Puts the user's name for the board into a hint; see ``words_for``."""
    # of the commands in hints only `edgekit jobs` takes --board
    job, plain = command_words(where, board, several), command_words(where, board)
    hint = _OF_JOB.sub(lambda found: f"{found[1]} {job}", error.hint)
    hint = _CONFIG.sub(lambda found: f"{found[1]} {plain}" if is_config(where) else found[0], hint)
    error.hint = _PLACE.sub(lambda _: plain, hint)


@contextlib.contextmanager
def open_client(board: Board, *, accept_host_key: bool = False) -> Iterator[BoardClient]:
    """Connects to a board, with edgekit's own known_hosts and the user's."""
    from edgekit.deployment.connection import open_board
    from edgekit.pipeline.cache import Cache

    wanted = None if board.kind == "sshd" else board
    with open_board(wanted, state_folder=Cache().folder, accept_host_key=accept_host_key) as client:
        yield client
