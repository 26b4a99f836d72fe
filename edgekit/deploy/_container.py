"""The loader in a container on the board: what ``docker run`` is given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edgekit.deploy._types import Container

__all__ = ["SHORT", "Place", "container_argv"]

#: How many digits of a digest a release's name ends with.
SHORT = 12


@dataclass(frozen=True, slots=True)
class Place:
    """Where the loader lies on a board, and for whom.

    Attributes:
        root: ROOT, absolute.
        loader: The loader's file.
        user: "UID:GID" of the account.
        groups: Numbers of the account's groups.
        releases: The starts (``SHORT`` digits) of the digests whose releases are there.
    """

    root: str
    loader: str
    user: str = ""
    groups: tuple[str, ...] = ()
    releases: tuple[str, ...] = ()

    @classmethod
    def read(cls, answer: Mapping[str, Any]) -> Place:
        """Returns what the placing program answered."""
        groups = tuple(str(number) for number in answer.get("groups", ()))
        releases = tuple(answer.get("releases", ()))
        return cls(answer["root"], answer["path"], str(answer.get("user", "")), groups, releases)


def container_argv(
    container: Container, place: Place, argv: list[str], *, detached: str = ""
) -> list[str]:
    """Returns the command line that runs ``argv`` in a container.

    ROOT has the same path inside, so every path in a request or an answer holds on both sides.
    The container runs as the board's account: what it writes below ROOT belongs to that.

    Args:
        container: Of the board.
        place: Where the loader is.
        argv: A command of the loader's.
        detached: Name of a container that goes on without the caller; "" for one whose input
            and output are the caller's.
    """
    # --init: a job's processes need somebody who waits for them
    how = ["--detach", "--name", detached] if detached else ["--interactive"]
    words = ["docker", "run", "--rm", "--init", *how]
    if container.runtime:
        words += ["--runtime", container.runtime]
    words += ["--volume", f"{place.root}:{place.root}", "--env", f"HOME={place.root}"]
    if place.user:
        words += ["--user", place.user]
    # the devices' groups: names differ between board and image, numbers do not
    for number in place.groups:
        words += ["--group-add", number]
    return [*words, "--entrypoint", argv[0], *container.options, container.image, *argv[1:]]
