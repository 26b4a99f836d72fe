"""One blob on its way into the store: from sources in turn, on top of what is kept of it."""

from __future__ import annotations

import hashlib
import os
import threading
from typing import Callable, List, Optional, Sequence, Union

from ._errors import DeviceError
from ._keeper import Keeper
from ._partial import Partial, kept_bytes
from ._root import Root
from ._source import Source
from ._source_stream import PIECE, stream
from ._store import sha256

__all__ = ["Taker", "WrongBytes"]

# blobs up to here are held in memory and made durable together
_SMALL = 1 << 20
# such a source will not do better with the next blob; others are asked first
_GONE = ("source.unreachable", "source.refused", "source.certificate", "source.redirect")

Piece = Union[bytes, memoryview]


class WrongBytes(Exception):
    """A blob's bytes were not its own.

    Attributes:
        givers: The sources that they came from.
        kept: Bytes among them that an earlier transfer had left; they are thrown away.
    """

    def __init__(self, givers: Sequence[Source], kept: int) -> None:
        super().__init__()
        self.givers = list(givers)
        self.kept = kept


class Taker:
    """Takes blobs for one ``fetch``; its methods may be called by several threads.

    Args:
        root: Where the store is; its lock is held.
        keeper: Gives blobs their names.
        check: Called often; raises to end the work.
        account: Told of bytes that came (below 0: that were for nothing), and whether they were
            kept from before.
        note: Told of a source's failure that another source may make good.
    """

    def __init__(
        self,
        root: Root,
        keeper: Keeper,
        check: Callable[[], None],
        account: Callable[[int, bool], None],
        note: Callable[[Source, DeviceError, str], None],
    ) -> None:
        self._root = root
        self._keeper = keeper
        self._mutex = threading.Lock()
        self._check = check
        self._account = account
        self._note = note
        self._down: List[Source] = []

    def take(self, digest: str, size: int, sources: Sequence[Source]) -> None:
        """Brings one blob into the store.

        Raises:
            WrongBytes: Nothing was stored.
            DeviceError: The last source's, when none had the blob.
        """
        if size <= _SMALL and not kept_bytes(self._root.folder, digest):
            buffer = bytearray()
            givers = self._pour(digest, 0, size, sources, lambda piece, at: buffer.extend(piece))
            data = bytes(buffer)
            if sha256(data) != digest:
                self._account(-len(data), False)
                raise WrongBytes(givers, 0)
            self._keeper.add(digest, data)
            return
        partial = Partial.open(self._root.folder, digest)
        try:
            if self._root.store.size(digest) == size:
                partial.drop()  # somebody else has sent it meanwhile
                partial.close()
                return
            self._take_large(partial, digest, size, sources)
        except BaseException:
            partial.close()
            raise
        self._keeper.finish(digest, partial, size)

    def _take_large(
        self, partial: Partial, digest: str, size: int, sources: Sequence[Source]
    ) -> None:
        start = partial.size if partial.size <= size else 0
        hasher = _hash_kept(partial.handle, start)
        self._account(start, True)

        def write(piece: Piece, at: int) -> None:
            hasher.update(piece)
            view = memoryview(piece)
            while view:
                written = os.pwrite(partial.handle, view, at)
                view, at = view[written:], at + written

        try:
            givers = self._pour(digest, start, size, sources, write)
        except BaseException:
            os.fsync(partial.handle)  # what came of it counts the next time
            raise
        if hasher.hexdigest() != digest:
            partial.drop()
            self._account(-start, True)
            self._account(start - size, False)
            raise WrongBytes(givers, start)

    def _pour(
        self,
        digest: str,
        start: int,
        size: int,
        sources: Sequence[Source],
        write: Callable[[Piece, int], None],
    ) -> List[Source]:
        """Writes the blob from byte ``start`` on, one source going on where another broke off."""
        at = start
        givers: List[Source] = []
        failure: Optional[DeviceError] = None
        with self._mutex:
            ordered = sorted(sources, key=lambda source: source in self._down)
        for source in ordered if size > start else ():
            try:
                for piece in stream(source, digest, at, size, self._check):
                    if source not in givers:
                        givers.append(source)
                    write(piece, at)
                    at += len(piece)
                    self._account(len(piece), False)
                return givers
            except DeviceError as error:
                lacks = error.code == "blob.missing"
                if (
                    not (lacks or error.code.startswith("source."))
                    or error.code == "source.timeout"
                ):
                    raise
                failure = error
                self._note(source, error, digest)
                with self._mutex:
                    if error.code in _GONE and source not in self._down:
                        self._down.append(source)
        if failure is not None:
            raise failure
        return givers


def _hash_kept(handle: int, size: int) -> "hashlib._Hash":
    found, at = hashlib.sha256(), 0
    while at < size:
        piece = os.pread(handle, min(PIECE, size - at), at)
        if not piece:
            break
        found.update(piece)
        at += len(piece)
    return found
