"""The current state of a board, repeatedly, through interruptions of the connection
(`edgekit top`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import fields, replace
from typing import TYPE_CHECKING

from edgekit import timeouts
from edgekit.benchmark.monitor import ShownApp, ShownSample, Top, with_release_warning
from edgekit.errors import UNREACHABLE_CODES, BoardError, EnvironmentLack, UsageError
from edgekit.pipeline.boards import addresses
from edgekit.targets.board import Target
from edgekit.targets.loader import find_by_board_id
from edgekit_device.board.samples import LiveSample, MonitorFacts

if TYPE_CHECKING:
    from edgekit.deployment.board import Board
    from edgekit.deployment.client import BoardClient


# errors after which the connection is tried again; a shutdown kills the board's command
_CUT = (*UNREACHABLE_CODES, "board.killed")
# milliseconds: a board sends its first sample an interval after the start
_ONCE_MS = 500
_SOON_MS = 2000
OnDocument = Callable[[Top], bool]


def select_board(where: str, name: str | None = None, **options: str) -> Board:
    """Returns the board that a user names.

    Args:
        where: A host, or a configuration.
        name: Name of a board of the configuration.
        options: ``root`` and ``python`` of a host.

    Raises:
        UsageError: There is no board of that name, or there are several and no name.
    """
    boards = addresses.resolve_boards(where, None, **options)
    named = [board for board in boards if name in (None, board.name)]
    if len(named) == 1:
        return named[0]
    raise UsageError(
        f"no board {name!r} in {where}" if name else f"{where} names several boards",
        where=where,
        hint=f"choose one with --board: {', '.join(board.name for board in boards)}",
    )


def look(board: Board, where: str, *, accept_host_key: bool = False) -> Top:
    """Returns the current state of a board; see docs/monitoring.md.

    Raises:
        EnvironmentLack: The board cannot be reached.
        BoardError: The board failed.
    """
    found: list[Top] = []
    view = _BoardView(board.name)
    try:
        with addresses.open_client(board, accept_host_key=accept_host_key) as client:
            view.query_apps(client)

            def take(sample: LiveSample) -> bool:
                found.append(view.shown(sample))
                return False

            client.sample(take, interval_ms=_ONCE_MS, count=1)
    except (BoardError, EnvironmentLack) as error:
        addresses.fill_hint(error, where, board)
        raise
    if not found:
        raise BoardError(
            "the board sent no report about itself", code="board.protocol", where=board.name
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
    """Calls ``on_document`` with successive ``edgekit.top/1`` documents until it returns False.

    A lost connection is retried without limit; meanwhile the last document is passed with the
    reason in "connection". A board that was never reached is an error.

    Raises:
        EnvironmentLack: The board cannot be reached at all.
        BoardError: The board failed.
    """
    view = _BoardView(board.name)
    while True:
        try:
            with addresses.open_client(board, accept_host_key=accept_host_key) as client:
                if _watch(client, view, on_document, interval_ms):
                    return
        except (BoardError, EnvironmentLack) as error:
            # a board that was never reached is more likely a wrong name than a lost connection
            if error.code not in _CUT or view.last is None:
                addresses.fill_hint(error, where, board)
                raise
            if not on_document(view.last.model_copy(update={"connection": error.message})):
                return
        pause(timeouts.WATCH_AGAIN_S)


def _watch(
    client: BoardClient, view: _BoardView, on_document: OnDocument, interval_ms: int
) -> bool:
    """Returns True if ``on_document`` ended the loop, False if the board did."""
    # at the first sample, whatever the monotonic clock begins with
    queried = -timeouts.APPS_EVERY_S
    enough = False

    def take(sample: LiveSample) -> bool:
        nonlocal queried, enough
        now = time.monotonic()
        if now - queried >= timeouts.APPS_EVERY_S:
            queried = now
            view.query_apps(client)
        enough = not on_document(view.shown(sample))
        return not enough

    if view.last is None and interval_ms > _SOON_MS:  # a long interval also shows the state at once
        client.sample(take, interval_ms=_ONCE_MS, count=1)
    if not enough:
        client.sample(take, interval_ms=interval_ms)
    return enough


class _BoardView:
    """The known state of a board; some values are only in some samples."""

    def __init__(self, name: str) -> None:
        self.last: Top | None = None
        self._name = name
        self._apps: dict[str, ShownApp] = {}
        self._target: Target | None = None
        self._sample: LiveSample | None = None

    def query_apps(self, client: BoardClient) -> None:
        """Requests the board's releases; a board that cannot answer is sampled all the same."""
        self._name = client.name
        try:
            found = client.status().apps
        except BoardError as error:
            if error.code in _CUT:
                raise
            return
        self._apps = {
            name: ShownApp(
                current=facts.current,
                deployment=None if facts.deployment is None else facts.deployment.state,
                serving=facts.serving,
            )
            for name, facts in found.items()
        }

    def shown(self, sample: LiveSample) -> Top:
        """Returns the current document."""
        self._sample = sample = _merge_samples(self._sample, sample)
        facts = sample.facts or MonitorFacts()
        if self._target is None:
            self._target = find_by_board_id(facts.board_id or "")
        # the sum of the rails that are the board's draw; None if a rail was not read
        rails = sample.rails()
        wanted = self._target.rails.total if self._target and self._target.rails else ()
        total_mw = (
            sum(rails[name] for name in wanted) if wanted and set(wanted) <= set(rails) else None
        )
        self.last = Top(
            schema="edgekit.top/1",
            board=self._name,
            target=self._target.name if self._target else None,
            connection=None,
            power_mode=sample.power_mode,
            warnings=list(with_release_warning(sample.warnings or (), facts.l4t)),
            unknown=dict(sample.unknown or {}),
            sources=list(sample.sources),
            facts=facts,
            total_mw=total_mw,
            sample=ShownSample(
                **{field.name: getattr(sample, field.name) for field in fields(ShownSample)}
            ),
            apps=self._apps,
        )
        return self.last


def _merge_samples(last: LiveSample | None, sample: LiveSample) -> LiveSample:
    """Returns a sample with the values that only earlier samples have."""
    if last is None:
        return sample
    return replace(
        sample,
        sources=sample.sources or last.sources,
        # sent only in the first line, or when they are news (``LiveSample``)
        facts=sample.facts or last.facts,
        power_mode=sample.power_mode or last.power_mode,
        warnings=last.warnings if sample.warnings is None else sample.warnings,
        unknown=last.unknown if sample.unknown is None else sample.unknown,
    )
