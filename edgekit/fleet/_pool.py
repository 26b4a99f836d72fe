"""Threads with a bound: one act on each of many boards, those that are away tried again."""

from __future__ import annotations

import heapq
import queue
import random
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from edgekit.errors import EdgekitError
from edgekit.fleet._driver import AWAY
from edgekit.fleet._types import Settings

__all__ = ["Pool"]

_TICK_S = 0.2

Row = dict[str, Any]


class Pool:
    """Runs an act on boards.

    Args:
        settings: How many at a time, how often and how long those that are away are tried.
        stop: Asked several times a second; when true no further board is begun, and those that
            are under way are waited for.
        clock: Seconds; of no day, so that a changed clock ends no deadline.
    """

    def __init__(
        self,
        settings: Settings,
        stop: Callable[[], bool],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._stop = stop
        self._clock = clock

    def each(
        self,
        rows: Iterable[Row],
        act: Callable[[Row], Any],
        *,
        begin: Callable[[Row], None],
        done: Callable[[Row, Any], None],
        failed: Callable[[Row, EdgekitError, bool], None],
    ) -> None:
        """Runs ``act`` on each row and returns when all have ended, or ``stop`` said so.

        Args:
            rows: What to act on.
            act: Called in a thread of its own; an EdgekitError is the board's answer.
            begin: Called in this thread before a row's act.
            done: Called in this thread with what the act returned.
            failed: Called in this thread with a row, its error, and whether it is tried again.
        """
        answers: queue.SimpleQueue[tuple[Row, int, Any]] = queue.SimpleQueue()
        ready = [(0.0, index, 1, row) for index, row in enumerate(rows)]
        running = 0
        # since when each board is away: the last of a large wave gets as much time as the first
        away: dict[int, float] = {}

        def work(row: Row, attempt: int) -> None:
            try:
                answers.put((row, attempt, act(row)))
            except EdgekitError as error:
                answers.put((row, attempt, error))
            except BaseException as error:
                answers.put((row, attempt, _fault(error)))

        number = len(ready)
        while True:
            stopping = self._stop()
            while not stopping and ready and running < self._settings.parallel:
                if ready[0][0] > self._clock():
                    break
                _, _, attempt, row = heapq.heappop(ready)
                begin(row)
                running += 1
                # not a pool of the library's: its threads hold the process until they end
                threading.Thread(target=work, args=(row, attempt), daemon=True).start()
                stopping = self._stop()
            if not running and (stopping or not ready):
                return
            try:
                row, attempt, answer = answers.get(timeout=_TICK_S)
            except queue.Empty:
                answer = None
                row, attempt = {}, 0
            if row:
                running -= 1
                if not isinstance(answer, EdgekitError):
                    done(row, answer)
                else:
                    now = self._clock()
                    at = now + self._wait(attempt)
                    since = away.setdefault(id(row), now)
                    again = answer.code in AWAY and at < since + self._settings.deadline_s
                    failed(row, answer, again)
                    if again:
                        number += 1
                        heapq.heappush(ready, (at, number, attempt + 1, row))

    def _wait(self, attempt: int) -> float:
        wait = self._settings.retry_s * 2.0 ** min(attempt - 1, 20)
        # boards of one site come back together and are not all asked at once
        return float(min(wait, self._settings.most_s) * random.uniform(0.8, 1.2))


def _fault(error: BaseException) -> EdgekitError:
    return EdgekitError(
        f"internal error: {type(error).__name__}: {error}",
        code="internal",
        hint="this is a fault of edgekit; run `edgekit deploy --debug` for this board alone",
    )
