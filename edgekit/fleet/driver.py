"""What a rollout does on a board and how that is done over SSH, and the bounded pool of threads
that does one thing on each of many boards, trying again those that are away.
"""

from __future__ import annotations

import contextlib
import heapq
import queue
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from edgekit import timeouts
from edgekit.bundles.files import build_board_loader
from edgekit.bundles.manifest import Bundle
from edgekit.deployment.client import BoardClient
from edgekit.deployment.connection import open_board
from edgekit.deployment.install import install
from edgekit.errors import UNREACHABLE_CODES, BoardError, EdgekitError
from edgekit.fleet.store import Row, Terms
from edgekit.fleet.waves import FleetBoard, RolloutSettings
from edgekit_device.deployment.status import ShownDeployment
from edgekit_device.release.journal import ENDED
from edgekit_device.release.policy import Policy

#: Errors after which a board is tried again later; every other one is its answer.
RETRIED_CODES = (*UNREACHABLE_CODES, "deploy.busy", "deploy.unfinished")

Found = Callable[[str, str], None]
"""Called as ``found(before, digest)`` before a board is changed: what serves ('' for nothing) and
what it gets. When it returns, both are on record."""

BundleFor = Callable[["BoardClient", "FleetBoard"], "Bundle"]
TermsOf = Callable[["FleetBoard"], Terms]


@dataclass(frozen=True, slots=True)
class Deployed:
    """What became of one board.

    Attributes:
        release: The release that serves.
        digest: Its bundle.
        bytes_sent: Payload bytes sent.
        changed: False where the bundle served already.
        seconds: How long it took.
    """

    release: str
    digest: str
    bytes_sent: int = 0
    changed: bool = True
    seconds: float = 0.0


class Driver(Protocol):
    """Boards as a rollout sees them; every method may be called from several threads."""

    def deploy(self, member: FleetBoard, found: Found) -> Deployed:
        """Brings a board to its bundle; called again it does only what is left to do."""

    def serving(self, member: FleetBoard) -> str:
        """Returns the digest of what serves, '' for nothing."""

    def back(
        self, member: FleetBoard, digest: str, before: str, *, others_failed: bool = False
    ) -> bool:
        """Takes a board that serves ``digest`` back to ``before``; False if it serves another.

        With ``others_failed`` a later rollout may bring the bundle again.
        """


class SshDriver:
    """Boards over SSH.

    Args:
        app: The application.
        bundle_for: Returns a board's bundle.
        state_folder: Where known_hosts and the loader lie.
        terms_of: Returns a board's terms.
        put_back: Whether boards put back what was taken back on them.
        reason: For boards' histories, when they are taken back.
        accept_host_key: Accept unknown host keys this once.
        trust: Public key that boards are to trust from now on, or None.
    """

    def __init__(
        self,
        app: str,
        bundle_for: BundleFor,
        *,
        state_folder: Path,
        terms_of: TermsOf = lambda member: Terms(3, Policy()),
        put_back: bool = False,
        reason: str | None = None,
        accept_host_key: bool = False,
        trust: str | None = None,
    ) -> None:
        self._app = app
        self._bundle_for = bundle_for
        self._folder = state_folder
        self._loader = build_board_loader(state_folder / "loader")
        self._terms_of = terms_of
        self._put_back = put_back
        self._reason = reason
        self._accept = accept_host_key
        self._trust = trust

    def deploy(self, member: FleetBoard, found: Found) -> Deployed:
        """See ``Driver.deploy``."""
        began = time.monotonic()
        with self.client(member, trusting=True) as client:
            sent = client.ensure_loader()
            bundle = self._bundle_for(client, member)
            _, serving = _serving(client, self._app)
            found(serving, bundle.digest)
            # what serves already, whole and by these terms, is only looked up
            terms = self._terms_of(member)
            release = install(
                bundle, client, signature=bundle.signature, keep=terms.keep, policy=terms.policy,
                again=False, put_back=self._put_back,
            )  # fmt: skip
        seconds = time.monotonic() - began
        sent += release.bytes_sent
        return Deployed(release.id, release.digest, sent, not release.reused, seconds)

    def serving(self, member: FleetBoard) -> str:
        """See ``Driver.serving``."""
        with self.client(member) as client:
            return _serving(client, self._app)[1]

    def back(
        self, member: FleetBoard, digest: str, before: str, *, others_failed: bool = False
    ) -> bool:
        """See ``Driver.back``. Where nothing served before, the application is removed again."""
        with self.client(member) as client:
            state = client.status(self._app).apps.get(self._app)
            if state is None:
                return False
            self._no_deployment(client, state.deployment, digest, member.name)
            digests = {row.id: row.digest for row in state.releases}
            # called twice it would go further back
            if state.current is None or digests.get(state.current) != digest:
                return False
            older = [id for id, found in digests.items() if found == before]
            if not before:
                reason = self._reason or "its rollout was rolled back"
                client.remove(self._app, reason=None if others_failed else reason)
            elif older:
                client.rollback(self._app, self._reason, older[-1], others_failed=others_failed)
            else:
                raise BoardError(
                    f"the previous bundle ({before[:12]}) is no longer on the board",
                    code="release.no-previous",
                    where=member.name,
                    hint="deploy an earlier bundle instead: edgekit fleet deploy --bundle FILE",
                )
        return True

    def _no_deployment(
        self, client: BoardClient, deployment: ShownDeployment | None, digest: str, where: str
    ) -> None:
        """Waits for a deployment that the board goes on with by itself: it may yet switch."""
        if deployment is None or deployment.state in ENDED or deployment.digest != digest:
            return
        client.resume(self._app)  # should its process have died
        raise BoardError(
            f"it is already {deployment.state} this release on its own",
            code="deploy.busy",
            where=where,
            hint="wait until it ends, then roll the rollout back again",
        )

    @contextlib.contextmanager
    def client(self, member: FleetBoard, *, trusting: bool = False) -> Iterator[BoardClient]:
        """Connects to a board.

        Raises:
            EdgekitError: The board cannot be reached or trusted.
        """
        with open_board(
            member.board,
            state_folder=self._folder,
            signer_public_key=self._trust if trusting else None,
            trust_key=trusting and self._trust is not None,
            accept_host_key=self._accept,
            loader=self._loader,
        ) as client:
            yield client


def _serving(client: BoardClient, app: str) -> tuple[str, str]:
    """Returns id and digest of the release that serves, '' for none."""
    found = client.releases_of(app).current_release
    return ("", "") if found is None else (found.id, found.digest)


class BoardPool:
    """Runs an act on boards.

    Args:
        settings: How many at a time, how often and how long those that are away are tried.
        stop: Called several times a second; once True no further board is begun, and those that
            are under way are waited for.
        clock: Seconds; of no day, so that a changed clock ends no deadline.
    """

    def __init__(
        self,
        settings: RolloutSettings,
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
                row, attempt, answer = answers.get(timeout=timeouts.TICK_S)
            except queue.Empty:
                continue
            running -= 1
            if not isinstance(answer, EdgekitError):
                done(row, answer)
                continue
            now = self._clock()
            at = now + self._wait(attempt)
            since = away.setdefault(id(row), now)
            again = answer.code in RETRIED_CODES and at < since + self._settings.deadline_s
            failed(row, answer, again)
            if again:
                number += 1
                heapq.heappush(ready, (at, number, attempt + 1, row))

    def _wait(self, attempt: int) -> float:
        wait = self._settings.retry_s * 2.0 ** min(attempt - 1, 20)
        # boards of one site come back together and are not all contacted at once
        return float(min(wait, self._settings.most_s) * random.uniform(0.8, 1.2))


def _fault(error: BaseException) -> EdgekitError:
    return EdgekitError(
        f"internal error: {type(error).__name__}: {error}",
        code="internal",
        hint="this is a bug in edgekit; run `edgekit deploy --debug` for this board alone",
    )
