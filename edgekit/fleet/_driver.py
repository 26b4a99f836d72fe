"""What a rollout asks of a board, and how that is done over SSH with ``edgekit deploy``'s code."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from edgekit.errors import BoardError, EdgekitError

if TYPE_CHECKING:
    from edgekit.bundle import Bundle
    from edgekit.deploy import BoardClient
    from edgekit.fleet._types import Member

__all__ = ["AWAY", "BundleFor", "Deployed", "Driver", "Found", "SshDriver"]

#: Errors after which a board is tried again later; every other one is its answer.
AWAY = ("board.unreachable", "board.connection-lost", "board.timeout", "deploy.busy",
        "deploy.unfinished")  # fmt: skip

Found = Callable[[str, str], None]
"""Called as ``found(before, digest)`` before a board is changed: what serves ('' for nothing) and
what it gets. When it returns, both are on record."""

BundleFor = Callable[["BoardClient", "Member"], "Bundle"]
TermsOf = Callable[["Member"], Mapping[str, Any]]

#: States of a board's deployment that goes on no more; see docs/architecture.md.
_ENDED = ("committed", "rolled-back", "failed")


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

    def deploy(self, member: Member, found: Found) -> Deployed:
        """Brings a board to its bundle; asked again it does only what is left to do."""

    def serving(self, member: Member) -> str:
        """Returns the digest of what serves, '' for nothing."""

    def back(self, member: Member, digest: str, before: str) -> bool:
        """Takes a board that serves ``digest`` back to ``before``; False if it serves another."""

    def close(self) -> None:
        """Ends every connection."""


class SshDriver:
    """Boards over SSH.

    Args:
        app: The application.
        bundle_for: Returns a board's bundle.
        state_folder: Where known_hosts and the loader lie.
        terms_of: Returns more arguments of ``install`` for a board: keep, policy, source.
        reason: For boards' histories, when they are taken back.
        idle: Connections that are kept open while nothing is done on them.
        accept_host_key: Accept unknown host keys this once.
        trust: Public key that boards are to trust from now on, or None.
    """

    def __init__(
        self,
        app: str,
        bundle_for: BundleFor,
        *,
        state_folder: Path,
        terms_of: TermsOf = lambda member: {},
        reason: str | None = None,
        idle: int = 16,
        accept_host_key: bool = False,
        trust: str | None = None,
    ) -> None:
        self._app = app
        self._bundle_for = bundle_for
        self._folder = state_folder
        self._terms_of = terms_of
        self._reason = reason
        self._accept = accept_host_key
        self._trust = trust
        self._idle = idle
        self._kept: OrderedDict[Any, tuple[contextlib.ExitStack, BoardClient]] = OrderedDict()
        self._lock = threading.Lock()

    def deploy(self, member: Member, found: Found) -> Deployed:
        """See ``Driver.deploy``."""
        from edgekit.deploy import install

        began = time.monotonic()
        with self.client(member, trusting=True) as client:
            sent = client.ensure_loader()
            bundle = self._bundle_for(client, member)
            _, serving = _serving(client, self._app)
            found(serving, bundle.digest)
            # what serves already, whole and by these terms, is only asked for
            terms = self._terms_of(member)
            release = install(bundle, client, signature=bundle.signature, again=False, **terms)
        seconds = time.monotonic() - began
        sent += release.bytes_sent
        return Deployed(release.id, release.digest, sent, not release.reused, seconds)

    def serving(self, member: Member) -> str:
        """See ``Driver.serving``."""
        with self.client(member) as client:
            return _serving(client, self._app)[1]

    def back(self, member: Member, digest: str, before: str) -> bool:
        """See ``Driver.back``. Where nothing served before, the application is removed again."""
        with self.client(member) as client:
            state = client.status(self._app)["apps"].get(self._app, {})
            self._no_deployment(client, state.get("deployment") or {}, digest, member.name)
            digests = {row["id"]: row["digest"] for row in state.get("releases", ())}
            # asked twice it would go further back
            if digests.get(state.get("current")) != digest:
                return False
            older = [id for id, found in digests.items() if found == before]
            if not before:
                client.remove(self._app, reason=self._reason or "its rollout was taken back")
            elif older:
                client.rollback(self._app, self._reason, older[-1])
            else:
                raise BoardError(
                    f"what served before ({before[:12]}) is no longer on the board",
                    code="release.no-previous",
                    where=member.name,
                    hint="deploy an earlier bundle instead: edgekit fleet deploy --bundle FILE",
                )
        return True

    def _no_deployment(
        self, client: BoardClient, deployment: Mapping[str, Any], digest: str, where: str
    ) -> None:
        """Waits for a deployment that the board goes on with by itself: it may yet switch."""
        state = deployment.get("state")
        if not deployment or state in _ENDED or deployment.get("digest") != digest:
            return
        client.resume(self._app)  # should its process have died
        raise BoardError(
            f"it is {state} this release by itself",
            code="deploy.busy",
            where=where,
            hint="wait for it, then take the rollout back again",
        )

    @contextlib.contextmanager
    def client(self, member: Member, *, trusting: bool = False) -> Iterator[BoardClient]:
        """Connects to a board, or takes the connection that is there.

        Raises:
            EdgekitError: The board cannot be reached or trusted.
        """
        with self._lock:
            stack, client = self._kept.pop(member.board, (None, None))
        if stack is None or client is None:
            from edgekit.deploy import open_board

            with contextlib.ExitStack() as opened:
                client = opened.enter_context(
                    open_board(
                        member.board,
                        state_folder=self._folder,
                        signer_public_key=self._trust if trusting else None,
                        trust_key=trusting and self._trust is not None,
                        accept_host_key=self._accept,
                    )
                )
                stack = opened.pop_all()
        try:
            yield client
        except BaseException:
            with contextlib.suppress(EdgekitError, OSError):
                stack.close()
            raise
        self._keep_open(member.board, stack, client)

    def _keep_open(self, key: Any, stack: contextlib.ExitStack, client: BoardClient) -> None:
        ended = []
        with self._lock:
            self._kept[key] = (stack, client)
            while len(self._kept) > self._idle:
                ended.append(self._kept.popitem(last=False)[1][0])
        for old in ended:
            with contextlib.suppress(EdgekitError, OSError):
                old.close()

    def close(self) -> None:
        """See ``Driver.close``."""
        with self._lock:
            kept = [stack for stack, _ in self._kept.values()]
            self._kept.clear()
        for stack in kept:
            with contextlib.suppress(EdgekitError, OSError):
                stack.close()


def _serving(client: BoardClient, app: str) -> tuple[str, str]:
    """Returns id and digest of the release that serves, '' for none."""
    state = client.releases(app)["apps"].get(app, {})
    for release in state.get("releases", ()):
        if release["id"] == state.get("current"):
            return str(release["id"]), str(release["digest"])
    return "", ""
