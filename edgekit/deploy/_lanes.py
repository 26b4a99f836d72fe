"""Several channels at once take blobs from one heap, each blob by one channel."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping

from edgekit.deploy._ssh import NO_CHANNEL
from edgekit.deploy._streams import json_line, pieces
from edgekit.deploy._transport import Buffer
from edgekit.deploy._types import Progress
from edgekit.errors import BoardError

__all__ = ["Heap", "send_lanes"]

_JOIN_S = 2.0
_POLL_S = 0.1

Ask = Callable[[Iterator[Buffer]], object]
"""Runs one ``receive`` with the stream of frames; raises what the board or the connection says."""


class _Stopped(Exception):
    """Another channel failed."""


class Heap:
    """What is to be sent, and how much of it is.

    Args:
        blobs: Bytes by digest.
        kept: Bytes of blobs that the board has already, by digest.
        progress: Called with phase "send" and bytes, by the first channel's thread alone.
    """

    def __init__(
        self, blobs: Mapping[str, Buffer], kept: Mapping[str, int], progress: Progress | None
    ) -> None:
        # the largest first, so that the channels end together
        self._order = sorted(blobs, key=lambda digest: kept.get(digest, 0) - len(blobs[digest]))
        self._waiting = deque(self._order)
        self._blobs = blobs
        self._kept = {digest: kept.get(digest, 0) for digest in blobs}
        self._progress = progress
        self._lock = threading.Lock()
        self._total = sum(len(data) for data in blobs.values())
        self._done = sum(self._kept.values())
        self.stopped = False
        self.started = self._done
        """Bytes that were there before the first."""

    @property
    def done(self) -> int:
        """Bytes of the blobs that are on their way or there."""
        return self._done

    @property
    def to_send(self) -> int:
        """Bytes that are to be sent in all."""
        return self._total - self.started

    def __len__(self) -> int:
        return len(self._order)

    def rewind(self) -> None:
        """Begins anew: nothing of what was sent has arrived."""
        self._waiting = deque(self._order)
        self._done = self.started

    def frames(self, tell: bool) -> Iterator[Buffer]:
        """Yields one channel's stream until the heap is empty; with ``tell`` calls progress."""
        while True:
            with self._lock:
                digest = self._waiting.popleft() if self._waiting else None
            if digest is None:
                break
            data, start = self._blobs[digest], self._kept[digest]
            frame: dict[str, object] = {"digest": digest, "bytes": len(data)}
            yield json_line({**frame, "from": start} if start else frame)
            for piece in pieces(memoryview(data)[start:]):
                yield piece
                if self.stopped:
                    raise _Stopped
                with self._lock:
                    self._done += len(piece)
                if tell:
                    self.tell()
        yield b"\n"

    def tell(self) -> None:
        """Calls progress."""
        if self._progress:
            self._progress("send", self._done, self._total)


def send_lanes(heap: Heap, ask: Ask, lanes: int) -> None:
    """Sends the heap through ``lanes`` channels and returns when all of them have ended.

    The first channel is served by this thread, so that a Ctrl-C or what progress raises comes out
    here; the others stop then. Channels that the board does not open are done without, unless it
    opens none.

    Raises:
        Exception: What the channel that failed first has raised.
    """
    failed: list[BaseException] = []
    refused: list[BoardError] = []

    def serve(tell: bool) -> None:
        try:
            ask(heap.frames(tell))
        except BoardError as error:
            if error.code != NO_CHANNEL:
                raise
            refused.append(error)  # before any of the heap was taken

    def helper() -> None:
        try:
            serve(tell=False)
        except _Stopped:
            pass
        except BaseException as error:
            failed.append(error)
            heap.stopped = True

    threads = [threading.Thread(target=helper, daemon=True) for _ in range(lanes - 1)]
    for thread in threads:
        thread.start()
    try:
        serve(tell=True)
        for thread in threads:
            while thread.is_alive():
                thread.join(_POLL_S)
                heap.tell()
        if len(refused) == lanes:
            raise refused[0]
        if not failed:
            heap.tell()  # the helpers may have left nothing to tell for the first
    except _Stopped:
        pass
    finally:
        heap.stopped = True
        for thread in threads:
            thread.join(_JOIN_S)
    if failed:
        raise failed[0]
