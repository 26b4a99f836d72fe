"""The values of this package: boards of an inventory, and the settings of a rollout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from edgekit.deploy import Board, Container

__all__ = ["ENDED", "LEFT", "STATES", "Member", "Row", "Settings", "State"]

State = Literal[
    "pending", "running", "done", "failed", "offline", "rolled-back", "skipped", "aborted"
]
"""Of one board in a rollout. "offline" is tried again until the deadline."""

STATES: tuple[State, ...] = (
    "pending",
    "running",
    "done",
    "failed",
    "offline",
    "rolled-back",
    "skipped",
    "aborted",
)

#: States of a board on which something is left to do.
LEFT = ("pending", "running", "offline")

#: A board of a rollout as the state has it.
Row = dict[str, Any]

#: States of a rollout in which nothing of it is left to do.
ENDED = ("done", "failed", "aborted", "rolled-back")


@dataclass(frozen=True, slots=True)
class Member:
    """A board of an inventory.

    Attributes:
        board: How it is reached.
        labels: What it is selected by; a group of Ansible's is a label without a value.
        config: Its own configuration, instead of the one that the command names.
        where: Where the inventory names it.
    """

    board: Board
    labels: Mapping[str, str] = field(default_factory=dict)
    config: Path | None = None
    where: str = ""

    @property
    def name(self) -> str:
        """The board's name."""
        return self.board.name

    def entry(self) -> dict[str, Any]:
        """Returns the board as JSON, for a rollout's state; holds no secret, only a key's path."""
        board = self.board
        made: dict[str, Any] = {
            "host": board.host,
            "port": board.port,
            "user": board.user,
            "key": str(board.key) if board.key else None,
            "host_key": board.host_key,
            "root": board.root,
            "python": board.python,
            "config": str(self.config) if self.config else None,
            "where": self.where,
        }
        if board.container is not None:
            made["container"] = {
                "image": board.container.image,
                "runtime": board.container.runtime,
                "options": list(board.container.options),
            }
        return made

    @staticmethod
    def of_entry(name: str, entry: Mapping[str, Any], labels: Mapping[str, str]) -> Member:
        """Returns the board of an :meth:`entry`."""
        inside = entry.get("container")
        board = Board(
            name=name,
            host=entry["host"],
            port=entry["port"],
            user=entry["user"],
            key=Path(entry["key"]) if entry["key"] else None,
            host_key=entry["host_key"],
            root=entry["root"],
            python=entry["python"],
            container=Container(inside["image"], inside["runtime"], tuple(inside["options"]))
            if inside
            else None,
        )
        config = Path(entry["config"]) if entry["config"] else None
        return Member(board, dict(labels), config, entry["where"])


@dataclass(frozen=True, slots=True)
class Settings:
    """How a rollout goes on.

    Attributes:
        parallel: Boards that are worked on at a time.
        budget: Boards of a wave that may fail: "2" or "10%" of the wave.
        soak_s: How long a wave is watched before the next one begins, seconds.
        deadline_s: How long a board that cannot be reached is tried again, seconds.
        offline: What a board is that could not be reached all along: "skip" or "fail".
        retry_s: The first wait before a board is tried again; doubled each time, up to ``most_s``.
        most_s: The longest such wait.
        again: Whether boards put back what was taken back on them.
    """

    parallel: int = 8
    budget: str = "0"
    soak_s: float = 0.0
    deadline_s: float = 600.0
    offline: Literal["skip", "fail"] = "skip"
    retry_s: float = 5.0
    most_s: float = 120.0
    again: bool = False
