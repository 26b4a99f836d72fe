"""A rollout's actions on a board, their implementation over SSH, and a bounded pool of threads that
runs an action on many boards and retries unreachable boards.
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

#: Errors after which a board is retried; every other error is final.
RETRIED_CODES = (*UNREACHABLE_CODES, "deploy.busy", "deploy.unfinished")

Found = Callable[[str, str], None]
"""Called as ``found(before, digest)`` before a board is changed, with the digests of the served
bundle ('' without one) and of the new bundle. When it returns, both are on record."""

BundleFor = Callable[["BoardClient", "FleetBoard"], "Bundle"]
TermsOf = Callable[["FleetBoard"], Terms]


@dataclass(frozen=True, slots=True)
class Deployed:
    """The outcome of a deployment to a board.

    Attributes:
        release: The release that serves.
        digest: Digest of its bundle.
        bytes_sent: Payload bytes sent.
        changed: False if the bundle already served.
        seconds: Duration in seconds.
    """

    release: str
    digest: str
    bytes_sent: int = 0
    changed: bool = True
    seconds: float = 0.0


class Driver(Protocol):
    """A rollout's actions on boards; methods may be called from several threads."""

    def deploy(self, member: FleetBoard, found: Found) -> Deployed:
        """Deploys a board's bundle; a repeated call continues an incomplete deployment."""

    def serving(self, member: FleetBoard) -> str:
        """Returns the digest of the served bundle; "" if no release serves."""

    def back(
        self, member: FleetBoard, digest: str, before: str, *, others_failed: bool = False
    ) -> bool:
        """Rolls a board that serves ``digest`` back to ``before``; returns False if it serves
        another bundle.

        With ``others_failed`` a later rollout may deploy the bundle again.
        """


class SshDriver:
    """Boards over SSH.

    Args:
        app: The application.
        bundle_for: Returns a board's bundle.
        state_folder: Folder with known_hosts and the loader.
        terms_of: Returns a board's terms.
        put_back: Deploy a bundle even if the board took it back.
        reason: Reason of a rollback, for the boards' histories.
        accept_host_key: Accept unknown host keys this once.
        trust: Public key that boards shall trust, or None.
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
            # a release that already serves, complete and with these terms, is not deployed again
            terms = self._terms_of(member)
            release = install(
                bundle,
                client,
                signature=bundle.signature,
                keep=terms.keep,
                policy=terms.policy,
                again=False,
                put_back=self._put_back,
            )
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
        """See ``Driver.back``. If no release served before, the application is removed."""
        with self.client(member) as client:
            state = client.status(self._app).apps.get(self._app)
            if state is None:
                return False
            self._no_deployment(client, state.deployment, digest, member.name)
            digests = {row.id: row.digest for row in state.releases}
            # a second call would roll back further
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
        """Waits for a deployment that the board continues by itself: it may still switch."""
        if deployment is None or deployment.state in ENDED or deployment.digest != digest:
            return
        client.resume(self._app)  # in case its process died
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
    """Returns id and digest of the served release; "" if no release serves."""
    found = client.app_releases(app).current_release
    return ("", "") if found is None else (found.id, found.digest)


class BoardPool:
    """Runs an action on many boards.

    Args:
        settings: Number of boards at a time, and number and duration of retries.
        stop: Called several times a second; once it returns True, no further board is started,
            and running boards are waited for.
        clock: Monotonic time source, in seconds.
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
        """Runs ``act`` on each row; returns when all have ended, or after ``stop``.

        Args:
            rows: The boards' rows.
            act: The action, called in a thread; an EdgekitError is the board's answer.
            begin: Called in this thread before a row's action.
            done: Called in this thread with a row and the action's result.
            failed: Called in this thread with a row, its error, and True if it is retried.
        """
        answers: queue.SimpleQueue[tuple[Row, int, Any]] = queue.SimpleQueue()
        # a heap by time; at equal times the index decides, so that rows are never compared
        ready = [(0.0, index, 1, row) for index, row in enumerate(rows)]
        running = 0
        # start of each board's absence: the last board of a wave gets as much time as the first
        away: dict[int, float] = {}

        def work(row: Row, attempt: int) -> None:
            try:
                answers.put((row, attempt, act(row)))
            except EdgekitError as error:
                answers.put((row, attempt, error))
            except BaseException as error:
                answers.put((row, attempt, _internal_error(error)))

        number = len(ready)
        while True:
            stopping = self._stop()
            while not stopping and ready and running < self._settings.parallel:
                if ready[0][0] > self._clock():
                    break
                _, _, attempt, row = heapq.heappop(ready)
                begin(row)
                running += 1
                # not concurrent.futures: its threads keep the process alive until they end
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
            # limited, because 2.0 ** 1024 overflows
            wait = self._settings.retry_s * 2.0 ** min(attempt - 1, 20)
            # boards of one site return together: spread their retries
            at = now + float(min(wait, self._settings.most_s) * random.uniform(0.8, 1.2))
            since = away.setdefault(id(row), now)
            again = answer.code in RETRIED_CODES and at < since + self._settings.deadline_s
            failed(row, answer, again)
            if again:
                number += 1
                heapq.heappush(ready, (at, number, attempt + 1, row))


def _internal_error(error: BaseException) -> EdgekitError:
    return EdgekitError(
        f"internal error: {type(error).__name__}: {error}",
        code="internal",
        hint="this is a bug in edgekit; run `edgekit deploy --debug` for this board alone",
    )
