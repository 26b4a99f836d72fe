"""A board as it is now, again and again, through interruptions of the connection
(`edgekit top`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from edgekit.benchmark.monitor import check_sample, rails_of, with_release_warning
from edgekit.deployment import timeouts
from edgekit.errors import BoardError, EnvironmentLack, UsageError
from edgekit.pipeline.boards import addresses
from edgekit.targets.board import Target
from edgekit.targets.loader import get, names
from edgekit_device.protocol.codec import write

if TYPE_CHECKING:
    from edgekit.deployment.board import Board
    from edgekit.deployment.client import BoardClient


SCHEMA = "edgekit.top/1"
_CUT = (
    "board.connection-lost", "board.silent", "board.timeout", "board.unreachable", "board.killed"
)  # fmt: skip
_ONCE_MS = 500
_SOON_MS = 2000
_RETAINED = ("facts", "power_mode", "warnings", "unknown", "sources")
OnDocument = Callable[[dict[str, Any]], bool]


def board_of(where: str, name: str | None = None, **options: str) -> Board:
    """Returns the one board that a user means.

    Args:
        where: A host, or a configuration.
        name: Which one of a configuration's.
        options: ``root`` and ``python`` of a host.

    Raises:
        UsageError: There is none of that name, or several and no name.
    """
    boards = addresses.boards_of(where, None, **options)
    named = [board for board in boards if name in (None, board.name)]
    if len(named) == 1:
        return named[0]
    raise UsageError(
        f"no board {name!r} in {where}" if name else f"{where} names several boards",
        where=where,
        hint=f"choose one with --board: {', '.join(board.name for board in boards)}",
    )


def look(board: Board, where: str, *, accept_host_key: bool = False) -> dict[str, Any]:
    """Returns one ``edgekit.top/1``; see docs/monitoring.md.

    Raises:
        EnvironmentLack: The board cannot be reached.
        BoardError: It failed.
    """
    found: list[dict[str, Any]] = []
    view = _BoardView(board.name)
    try:
        with addresses.open_client(board, accept_host_key=accept_host_key) as client:
            view.query_apps(client)

            def one(sample: dict[str, Any]) -> bool:
                found.append(view.shown(sample))
                return False

            client.sample(one, interval_ms=_ONCE_MS, count=1)
    except (BoardError, EnvironmentLack) as error:
        addresses.fill_hint(error, where, board)
        raise
    if not found:
        raise BoardError(
            "the board reported nothing about itself", code="board.protocol", where=board.name
        )
    return found[0]


def watch_board(
    board: Board,
    where: str,
    on_document: OnDocument,
    *,
    interval_ms: int = 1000,
    accept_host_key: bool = False,
    pause: Callable[[float], object] = time.sleep,
) -> None:
    """Calls ``on_document`` with one ``edgekit.top/1`` after the other until it returns False.

    A connection that is cut is made again for as long as it takes; meanwhile the last document is
    passed with "connection" saying why. A board that was never reached is an error.

    Raises:
        EnvironmentLack: The board cannot be reached at all.
        BoardError: It failed.
    """
    view = _BoardView(board.name)
    while True:
        try:
            with addresses.open_client(board, accept_host_key=accept_host_key) as client:
                if _watch(client, view, on_document, interval_ms):
                    return
        except (BoardError, EnvironmentLack) as error:
            if error.code not in _CUT or view.last is None:
                addresses.fill_hint(error, where, board)
                raise
            if not on_document({**view.last, "connection": error.message}):
                return
        pause(timeouts.WATCH_AGAIN_S)


def _watch(
    client: BoardClient, view: _BoardView, on_document: OnDocument, interval_ms: int
) -> bool:
    """Whether ``on_document`` has seen enough, rather than the board ended by itself."""
    queried = -timeouts.APPS_EVERY_S
    enough = False

    def one(sample: dict[str, Any]) -> bool:
        nonlocal queried, enough
        now = time.monotonic()
        if now - queried >= timeouts.APPS_EVERY_S:
            queried = now
            view.query_apps(client)
        enough = not on_document(view.shown(sample))
        return not enough

    if view.last is None and interval_ms > _SOON_MS:  # who looks each minute looks now, too
        client.sample(one, interval_ms=_ONCE_MS, count=1)
    if not enough:
        client.sample(one, interval_ms=interval_ms)
    return enough


class _BoardView:
    """What is known of a board; samples say some things only once."""

    def __init__(self, name: str) -> None:
        self.last: dict[str, Any] | None = None
        self._name = name
        self._latest: dict[str, Any] = {"warnings": [], "unknown": {}, "sources": [], "facts": {}}
        self._apps: dict[str, Any] = {}
        self._target: Target | None = None

    def query_apps(self, client: BoardClient) -> None:
        """Requests what the board serves; a board that cannot say is sampled all the same."""
        self._name = client.name
        try:
            found = client.status().apps
        except BoardError as error:
            if error.code in _CUT:
                raise
            return
        self._apps = {
            name: {
                "current": facts.current,
                "deployment": None if facts.deployment is None else facts.deployment.state,
                "serving": write(facts.serving),
            }
            for name, facts in found.items()
        }

    def shown(self, sample: dict[str, Any]) -> dict[str, Any]:
        """Returns the document of now; raises as ``check_sample``."""
        check_sample(sample, self._name)
        for name in _RETAINED:
            if name in sample:
                self._latest[name] = sample.pop(name)
        if self._target is None:
            self._target = _target_of(self._latest["facts"])
        target = self._target
        shown = {
            "schema": SCHEMA,
            "board": self._name,
            "target": target.name if target else None,
            "connection": None,
            "power_mode": None,
            **self._latest,
            "total_mw": _total(sample, target),
            "sample": sample,
            "apps": self._apps,
        }
        self.last = with_release_warning(shown)
        return self.last


def _target_of(facts: object) -> Target | None:
    own = facts.get("board_id") if isinstance(facts, Mapping) else None
    if not isinstance(own, str) or not own:
        return None
    for name in names():
        target = get(name)
        module = target.facts.get("module")
        numbers = module.get("numbers", ()) if isinstance(module, Mapping) else ()
        if any(own.startswith(str(number)) for number in numbers):
            return target
    return None


def _total(sample: Mapping[str, Any], target: Target | None) -> float | None:
    """The sum of the rails that are the board's draw, where all of them were read."""
    rails = rails_of(sample)
    wanted = target.rails.total if target and target.rails else ()
    return sum(rails[name] for name in wanted) if wanted and set(wanted) <= set(rails) else None
