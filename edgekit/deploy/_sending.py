"""What a connected board is sent: bundles are offered, blobs follow."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from edgekit.deploy._channel import LONG_S, SHORT_S
from edgekit.deploy._container import SHORT
from edgekit.deploy._deliver import begin, deliver
from edgekit.deploy._deployments import DeploymentClient
from edgekit.deploy._lanes import Heap
from edgekit.deploy._offering import offer
from edgekit.deploy._streams import json_line
from edgekit.deploy._transport import Buffer
from edgekit.deploy._types import Progress

if TYPE_CHECKING:
    from edgekit.deploy._openssh import Begun

__all__ = ["SendingClient"]


class SendingClient(DeploymentClient):
    """Sends bundles and blobs to one board."""

    _begun: Begun | None = None

    def missing(self, digests: Iterable[str], *, verify: bool = False) -> tuple[str, ...]:
        """Returns which blobs the board lacks; ``verify`` reads those that it has again."""
        options = ["--verify"] if verify else []
        timeout = LONG_S if verify else SHORT_S
        answer = self._ask("missing", *options, stdin=[json_line(list(digests))], timeout=timeout)
        return tuple(answer["missing"])

    def offer(self, manifest: bytes, signature: bytes | None, app: str) -> dict[str, Any]:
        """Announces a bundle: first by its digest, and where it is new with its manifest.

        Returns:
            "digest", "app", "signer", "missing" (a list of [digest, bytes of it that are kept]),
            "serving" (the release that serves this very bundle, whole, or None), "deployment" (how
            that came to serve, or None) and "hello", as the command.
        """
        return offer(self._offer, manifest, signature, app)

    def _offer(self, document: Mapping[str, Any]) -> dict[str, Any]:
        return self._ask("offer", "--hello", stdin=[json_line(document)])

    @contextlib.contextmanager
    def ahead(self, digest: str, most: int) -> Iterator[None]:
        """Begins what ``receive`` needs for much while the bundle is still being offered.

        A connection of its own takes as long as an offer. Nothing is begun for a bundle of which
        the board has a release: as a rule nothing of it lacks.

        Args:
            digest: The bundle's.
            most: Bytes that there may be to send.
        """
        self.ensure_loader()
        if self.board.container is None and digest[:SHORT] not in self._staged:
            self._begun = begin(self._argv("receive"), self._transport, most)
        try:
            yield
            self._staged.add(digest[:SHORT])
        finally:
            begun, self._begun = self._begun, None
            if begun is not None:
                begun.end()

    def receive(
        self,
        blobs: Mapping[str, Buffer],
        progress: Progress | None = None,
        *,
        kept: Mapping[str, int] | None = None,
    ) -> int:
        """Sends blobs by digest and returns the bytes sent; what arrives stays, also in part.

        Args:
            blobs: Bytes by digest.
            progress: Called in this thread with phase "send" and bytes.
            kept: Bytes of blobs that the board has already, by digest, as ``offer`` told them.
        """
        if not blobs:
            return 0
        heap = Heap(blobs, kept or {}, progress)
        argv = self._argv("receive")
        begun, self._begun = self._begun, None
        if begun is not None and not begun.waits:
            begun.end()  # the board had waited too long for bytes
            begun = None
        began, starts = time.monotonic(), 1
        try:
            starts = deliver(
                heap, argv, self._transport, self.name, self.board.python, begun, self._carried
            )
        finally:
            seconds = time.monotonic() - began
            self.on_command(f"receive, {heap.to_send:,} bytes", seconds, starts)
        return heap.to_send

    def _carried(self, count: int) -> None:
        self._apart += count

    def wire_bytes(self) -> int | None:
        """Returns the bytes that went over the wire so far, both ways; None where nobody counts.

        What OpenSSH's client carried on connections of its own counts as the client tells it, the
        handshake included; only one that nothing was sent on counts for nothing.
        """
        count = getattr(self._transport, "wire_bytes", None)
        carried = None if count is None else count()
        return None if carried is None else int(carried) + self._apart
