"""Brings missing blobs into the store: several at once, from whichever source has them right,
resumed where a connection broke, and bounded by their declared size. Start with ``fetch_from``.
"""

from __future__ import annotations

import http.client
import os
import re
import threading
from contextlib import suppress
from typing import Callable, Dict, Iterator, List, Optional, Sequence, Tuple, Union

from edgekit_device.errors import DeviceError, map_os_errors
from edgekit_device.files import durable_folder
from edgekit_device.protocol.manifest import Manifest
from edgekit_device.release.mirrors import (
    TRIES,
    Trouble,
    bad_answer,
    error_text,
    pause,
    unreachable,
)
from edgekit_device.release.sources import (
    Fetched,
    LocalSource,
    Mirror,
    Source,
    Sources,
)
from edgekit_device.store.partial import BlobWriter, Partial, hash_start, received_bytes
from edgekit_device.store.root import Root, sha256

PIECE = 1 << 20

# a link that brings this much between two breaks is slow, not dead
_ENOUGH = 64 << 10
_RANGE = re.compile(r"bytes (\d+)-(\d+)/(?:\d+|\*)\Z")
# blobs up to here are held in memory and made durable together
_SMALL = 1 << 20

# such a source will not do better with the next blob; others are tried first
_GONE = ("source.unreachable", "source.refused", "source.certificate", "source.redirect")

Piece = Union[bytes, memoryview]

_THREADS = 4
OnProgress = Callable[[int, int], None]
Blob = Tuple[str, int]


def stream(
    source: Source, digest: str, start: int, size: int, check: Callable[[], None]
) -> Iterator[Union[bytes, memoryview]]:
    """Yields the blob's bytes from ``start`` to ``size``, and not one more.

    Args:
        source: Where from.
        digest: The blob.
        start: First byte.
        size: The blob's bytes, as the signed manifest has them.
        check: Called before each piece and each try; raises to end it.

    Raises:
        DeviceError: "source.*" or "blob.missing"; what was yielded before stands.
    """
    if isinstance(source, LocalSource):
        yield from _mapped(source, digest, start, size, check)
        return
    failures, at, since = 0, start, start
    while at < size:
        check()
        try:
            reply = source.open(digest, at)
            for piece in _body(source, reply, digest, at, size):
                check()
                yield piece
                at += len(piece)
        except Trouble as error:
            failures = 1 if at - since >= _ENOUGH else failures + 1
            since = at
            if failures >= TRIES:
                raise unreachable(source.where, error) from error
            pause(failures)


def _mapped(
    source: LocalSource, digest: str, start: int, size: int, check: Callable[[], None]
) -> Iterator[memoryview]:
    data = source.blob(digest)
    if len(data) != size:
        raise wrong(source, digest)
    for at in range(start, size, PIECE):
        check()
        yield data[at : at + PIECE]


def _body(
    source: Mirror, reply: http.client.HTTPResponse, digest: str, at: int, size: int
) -> Iterator[bytes]:
    """The pieces of one answer, from byte ``at`` on; Trouble where it ends early."""
    skip = at if reply.status == 200 else 0
    length = reply.getheader("Content-Length")
    if reply.status == 206:
        found = _RANGE.match(reply.getheader("Content-Range") or "")
        if found is None or int(found.group(1)) != at:
            raise bad_answer(source.blob_url(digest), "the source sent another part than requested")
    if length is not None and length.isdigit() and int(length) != size - at + skip:
        # not read: a page that says "not found" with status 200, or another blob
        reply.close()
        source.web().close()
        raise wrong(source, digest)
    left = size - at
    try:
        while skip:
            data = reply.read(min(PIECE, skip))
            if not data:
                raise Trouble("the connection ended early")
            skip -= len(data)
        while left:
            data = reply.read(min(PIECE, left))
            if not data:
                raise Trouble("the connection ended early")
            left -= len(data)
            yield data
        if length is None and reply.read(1):
            raise wrong(source, digest)
        # the end of a chunked answer is read, so that the connection serves again
        if not reply.isclosed():
            reply.read()
    except (OSError, http.client.HTTPException) as error:
        raise Trouble(error_text(error)) from error
    finally:
        if left or not reply.isclosed():
            reply.close()
            source.web().close()


def wrong(source: Source, digest: str) -> DeviceError:
    """The error of a source that gives other bytes than requested."""
    return DeviceError(
        "the source sent wrong bytes for {}".format(digest),
        code="source.wrong-bytes",
        where=source.where,
        hint="they are damaged or not to be trusted: push the bundle there again",
    )


class _WrongBytes(Exception):
    """A blob's bytes were not its own.

    Attributes:
        givers: The sources that they came from.
        retained: Bytes among them that an earlier transfer had left; they were removed.
    """

    def __init__(self, givers: Sequence[Source], retained: int) -> None:
        super().__init__()
        self.givers = list(givers)
        self.retained = retained


class _OtherThreadFailed(Exception):
    """Another thread failed."""


class _Download:
    """Takes missing blobs from the sources, several at once.

    Args:
        sources: Where from.
        missing: The blobs' digests and sizes.
        root: Where the store is; its lock is held.
        keeper: Gives blobs their names.
        progress: See ``fetch_from``.
    """

    def __init__(
        self,
        sources: Sources,
        missing: Sequence[Blob],
        root: Root,
        keeper: BlobWriter,
        progress: OnProgress,
    ) -> None:
        self._sources, self._root, self._keeper = sources, root, keeper
        self._progress = progress
        # taken from the end, the largest first: then the last is not one long blob alone
        self._left = sorted(missing, key=lambda blob: blob[1])
        self._total = sum(size for _, size in missing)
        self._done = 0
        self._mutex = threading.Lock()
        self._down: List[Source] = []
        self._stop = threading.Event()
        self._failed: Optional[BaseException] = None
        self._notes: Dict[str, int] = {}
        self.fetched = Fetched(blobs=len(missing))

    def run(self) -> None:
        """Does all of it.

        Raises:
            DeviceError: The first failure of a thread.
        """
        many = any(isinstance(source, Mirror) for source in self._sources.all)
        count = min(_THREADS if many else 1, len(self._left))
        threads = [threading.Thread(target=self._worker, daemon=True) for _ in range(count)]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                while thread.is_alive() and not self._stop.is_set():
                    thread.join(0.2)
        finally:
            # an interrupt comes here too: open connections end at once, and the threads with them
            self._stop.set()
            if any(thread.is_alive() for thread in threads):
                for source in self._sources.all:
                    with suppress(OSError):
                        source.close()
            for thread in threads:
                thread.join(5.0)
        self.fetched.notes = self._sources.notes + [
            "{} ({} blobs)".format(note, count) if count > 1 else note
            for note, count in self._notes.items()
        ]
        if self._failed is not None:
            if isinstance(self._failed, DeviceError) and len(self.fetched.notes) > 1:
                self._failed.hint = "; ".join([*self.fetched.notes, self._failed.hint])
            raise self._failed

    def _worker(self) -> None:
        try:
            while True:
                with self._mutex:
                    if not self._left or self._stop.is_set():
                        return
                    digest, size = self._left.pop()
                self._bring(digest, size)
        except _OtherThreadFailed:
            pass
        except BaseException as error:
            with self._mutex:
                if not self._stop.is_set():
                    self._failed = error
                self._stop.set()

    def _bring(self, digest: str, size: int) -> None:
        """Takes one blob from the sources; one that gave wrong bytes is not tried for it again."""
        sources = list(self._sources.all)
        alone = False
        while True:
            try:
                self._take(digest, size, sources[:1] if alone else sources)
                return
            except _WrongBytes as error:
                if error.retained:
                    continue  # what was kept was wrong; it is removed, so this ends
                if len(error.givers) > 1:
                    alone = True  # one source's part was wrong: each has to give it whole
                    continue
                giver = error.givers[0] if error.givers else sources[0]
                failure = wrong(giver, digest)
                self._note_failure(giver, failure, digest)
                sources.remove(giver)
            except DeviceError as error:
                if not alone or not error.code.startswith(("source.", "blob.")):
                    raise
                failure = error
                del sources[0]
            if not sources:
                raise failure

    def _take(self, digest: str, size: int, sources: Sequence[Source]) -> None:
        """Brings one blob into the store.

        Raises:
            _WrongBytes: Nothing was stored.
            DeviceError: The last source's, when none had the blob.
        """
        if size <= _SMALL and not received_bytes(self._root.folder, digest):
            buffer = bytearray()
            givers = self._pour(digest, 0, size, sources, lambda piece, at: buffer.extend(piece))
            data = bytes(buffer)
            if sha256(data) != digest:
                self._account(-len(data), False)
                raise _WrongBytes(givers, 0)
            self._keeper.add(digest, data)
            return
        partial = Partial.open(self._root.folder, digest)
        try:
            if self._root.store.size(digest) == size:
                partial.drop()  # another process has stored it meanwhile
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
        hasher = hash_start(partial.handle, start)
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
            raise _WrongBytes(givers, start)

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
                if not (lacks or error.code.startswith("source.")):
                    raise
                failure = error
                self._note_failure(source, error, digest)
                with self._mutex:
                    if error.code in _GONE and source not in self._down:
                        self._down.append(source)
        if failure is not None:
            raise failure
        return givers

    def _check(self) -> None:
        if self._stop.is_set():
            raise _OtherThreadFailed

    def _note_failure(self, source: Source, error: DeviceError, digest: str) -> None:
        note = "{}: {}".format(source.where, error.message.replace(digest, "a blob"))
        with self._mutex:
            self._notes[note] = self._notes.get(note, 0) + 1

    def _account(self, count: int, retained: bool) -> None:
        with self._mutex:
            self._done += count
            if not retained:
                self.fetched.bytes += count
            self._progress(self._done, self._total)


def _check_space(root: Root, missing: Sequence[Blob]) -> None:
    needed = sum(max(0, size - received_bytes(root.folder, digest)) for digest, size in missing)
    facts = os.statvfs(str(root.folder))
    free = facts.f_bavail * facts.f_frsize
    if needed > free:
        raise DeviceError(
            "the bundle needs {} more bytes, but only {} are free".format(needed, free),
            code="board.disk-full",
            where=str(root.folder),
            hint="free space on the board, or remove old releases with gc --keep 1",
        )


def fetch_from(
    sources: Sources,
    manifest: Manifest,
    root: Root,
    progress: OnProgress = lambda done, total: None,
) -> Fetched:
    """Brings what the store lacks of a checked manifest's blobs into it, resuming what was begun.

    Args:
        sources: Where from.
        manifest: Its signature is checked already; it bounds every blob's size.
        root: Where to; its lock is held shared for the time.
        progress: Called with the bytes so far and in all, from one thread at a time.

    Raises:
        DeviceError: "source.*", "board.disk-full", "blob.missing".
    """
    with root.lock(shared=True), map_os_errors(str(root.folder)):
        missing = [
            (digest, size)
            for digest, size in manifest.sizes().items()
            if root.store.size(digest) != size
        ]
        for digest in set(manifest.sizes()) - {digest for digest, _ in missing}:
            root.store.renew(digest)
        if not missing:
            return Fetched(notes=sources.notes)
        durable_folder(root.store.folder)
        _check_space(root, missing)
        with BlobWriter(root) as keeper:
            work = _Download(sources, missing, root, keeper, progress)
            work.run()
        return work.fetched
