"""The commands ``receive`` and ``fetch``: blobs in frames from the host into the store and back.
Threads hash and sync received bytes while more are read.

A large blob continues in its part (``store.partial``) from the byte where it was interrupted; a
small blob is sent again in full. Meanwhile ``BlobWriter`` gives both their names in the store.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import json
import os
import queue
import select
import threading
import time
from typing import Any, BinaryIO, Dict, Iterator, Optional, Tuple, Union

from edgekit_device.errors import DeviceError, map_os_errors
from edgekit_device.files import Buffer
from edgekit_device.protocol import codec
from edgekit_device.protocol.codec import (
    document,
    fail,
    integer,
    member,
    parse_json,
    read,
    read_digests,
)
from edgekit_device.store.partial import BlobWriter, Partial, hash_start
from edgekit_device.store.root import Root, sha256

_MAX_BYTES = 1 << 62
_SMALL = 1 << 20
_MAX_LINE = 4096
_BLOCK = 512 << 10

# sshd writes packets of 32 KiB into a pipe of 64 KiB: each would wake this process. The largest
# pipe that Linux grants an account, and a short wait for more bytes, avoid most wake-ups
_PIPE = 1 << 20
_SET_PIPE = 1031  # F_SETPIPE_SZ of linux/fcntl.h; Python knows it since 3.10
_LITTLE = 256 << 10
_MOMENT_S = 0.0005

# a host that disconnected without closing (a pulled cable) must not lock a blob's part for ever
_SILENCE_S = 30.0

_BLOCKS = 6
_SYNC_EVERY = 32 << 20

# a block and its byte count; a file and the bytes to read from it first; the end of a blob (text);
# the end of all (None)
_ThreadedWork = Union[Tuple[bytearray, int], Tuple[int, int], str, None]

_MAX_LIST = 16 << 20
_PIECE = 1 << 20


def do_receive(root: Root, arguments: argparse.Namespace, stdin: BinaryIO) -> ReceivedBlobs:
    """Reads blobs in frames; if a later blob fails, complete blobs stay, and large blobs in part.

    Raises:
        DeviceError: "transfer.truncated", "transfer.stalled", "transfer.offset",
            "blob.digest-mismatch", "board.disk-full", "board.busy" or "protocol.invalid".
    """
    source = FrameInput(stdin)
    received = total = 0
    # shared: a collection must not remove the blobs before their release names them
    with root.lock(shared=True), BlobWriter(root) as keeper, Hashing() as hashing:
        while True:
            line = source.line()
            if line == b"\n":
                break
            document = parse_json(line, "frame", "protocol.invalid")
            frame = read(BlobFrame, document, "frame", code="protocol.invalid")
            digest, size, start = frame.digest, frame.size, frame.start
            # a small blob is hashed at once: a thread and a partial file would cost more
            if size <= _SMALL and start == 0:
                data = source.take(size, digest)
                if sha256(data) != digest:
                    raise _mismatch_error(digest, "")
                keeper.add(digest, data)
            else:
                _receive_large(root, digest, size, start, source, hashing, keeper)
            received, total = received + 1, total + size - start
    return ReceivedBlobs(received, total)


def _receive_large(
    root: Root,
    digest: str,
    size: int,
    start: int,
    source: FrameInput,
    hashing: Hashing,
    keeper: BlobWriter,
) -> None:
    # locked first: another transfer of the same blob may end during the wait
    partial = Partial.open(root.folder, digest)
    try:
        if root.store.size(digest) == size and root.store.is_whole(digest):
            source.skip(size - start, digest)  # another process has stored it meanwhile
            partial.drop()
            partial.close()
            return
        with map_os_errors(str(partial.path)):
            if start > partial.size:
                raise DeviceError(
                    "{} bytes of the blob are already here, not {}".format(partial.size, start),
                    code="transfer.offset",
                    where=digest,
                    hint="deploy again: edgekit asks first how much is already here",
                )
            _check_space(partial, size)
            _write(partial, digest, size, start, source, hashing)
    except BaseException:
        partial.close()
        raise
    keeper.finish(digest, partial, size)


def _write(
    partial: Partial, digest: str, size: int, start: int, source: FrameInput, hashing: Hashing
) -> None:
    """Writes and hashes the blob; after an interruption the received bytes are durable."""
    handle = partial.handle
    try:
        # bytes that are here already are hashed in the thread, while new ones arrive
        hashing.begin(handle, start)
        with Syncing(handle) as syncing:
            offset = start
            while offset < size:
                buffer = hashing.buffer()
                view = source.fill(memoryview(buffer)[: min(len(buffer), size - offset)])
                hashing.add(buffer, len(view))
                while view:
                    written = os.pwrite(handle, view, offset)
                    view, offset = view[written:], offset + written
                syncing.note_written(offset)
                source.check(digest, size - offset)
            found = hashing.digest()
    except BaseException:
        with contextlib.suppress(OSError):
            # even after an error: the next transfer continues after bytes that are on the disk
            os.fsync(handle)
        raise
    if found != digest:
        partial.drop()
        raise _mismatch_error(digest, found if start == 0 else "")


def _check_space(partial: Partial, size: int) -> None:
    facts = os.fstatvfs(partial.handle)
    # counted by disk blocks: an interrupted file may have holes
    free = facts.f_bavail * facts.f_frsize + os.fstat(partial.handle).st_blocks * 512
    if size > free:
        raise DeviceError(
            "the blob needs {} bytes, but only {} are free".format(size, free),
            code="board.disk-full",
            where=str(partial.path.parent),
            hint="free space on the board, or remove old releases with gc --keep 1",
        )


@document(frozen=True)
class ReceivedBlobs:
    """The answer of ``receive``: the number of blobs, and their received bytes."""

    received: int = member(integer(0, _MAX_BYTES))
    bytes: int = member(integer(0, _MAX_BYTES))


@document(frozen=True)
class BlobFrame:
    """The line before bytes: their blob, its size, and their offset."""

    digest: str = member(codec.digest)
    size: int = member(integer(0, _MAX_BYTES), key="bytes")
    start: int = member(integer(0, _MAX_BYTES), key="from", absent=0)

    def check(self) -> None:
        if self.start > self.size:
            fail("from", "{} is after the end".format(self.start))


def _mismatch_error(digest: str, found: str) -> DeviceError:
    message = "the received bytes do not match their SHA-256"
    if found:
        message += ": {}".format(found)
    else:
        message += "; the kept part of the blob is discarded"
    return DeviceError(
        message,
        code="blob.digest-mismatch",
        where=digest,
        hint="the bundle or the transfer is damaged; send it again",
    )


class FrameInput:
    """The stream of frames.

    Args:
        stdin: The stream, from its start.
        silence_s: Seconds without bytes after which the host counts as disconnected.
    """

    def __init__(self, stdin: BinaryIO, silence_s: float = _SILENCE_S) -> None:
        self._stdin = stdin
        self._silence_s = silence_s
        self._ahead = memoryview(b"")
        self._ended = False
        try:
            self._handle = stdin.fileno()
        except OSError:
            self._handle = -1
            return
        with contextlib.suppress(OSError):
            fcntl.fcntl(self._handle, _SET_PIPE, _PIPE)

    def line(self) -> bytes:
        """Returns the next line, including its end.

        Raises:
            DeviceError: "transfer.truncated" or "protocol.invalid".
        """
        while True:
            # bytes read beyond the line begin the blob: ``fill`` takes them first
            found = bytes(self._ahead).find(b"\n", 0, _MAX_LINE)
            if found >= 0:
                line, self._ahead = bytes(self._ahead[: found + 1]), self._ahead[found + 1 :]
                return line
            if len(self._ahead) >= _MAX_LINE:
                raise DeviceError("a line is too long", code="protocol.invalid", where="stdin")
            block = bytearray(_MAX_LINE)
            count = self._read(memoryview(block))
            if not count:
                raise _truncated_error("the stream ended before its end mark", "")
            self._ahead = memoryview(bytes(self._ahead) + bytes(block[:count]))

    def fill(self, view: memoryview) -> memoryview:
        """Fills ``view`` and returns the part that was filled: all, unless the stream ended."""
        filled = min(len(view), len(self._ahead))
        view[:filled] = self._ahead[:filled]
        self._ahead = self._ahead[filled:]
        while filled < len(view):
            count = self._read(view[filled:])
            filled += count
            self._ended = not count
            if self._ended:
                break
            # a short read means that the sender is slower: more bytes come with one wake-up
            if count < _LITTLE < len(view) - filled:
                time.sleep(_MOMENT_S)
        return view[:filled]

    def check(self, digest: str, left: int) -> None:
        """Raises "transfer.truncated" if the stream has ended and ``left`` bytes are missing."""
        if self._ended and left:
            raise _truncated_error("the stream ended {} bytes early".format(left), digest)

    def take(self, size: int, digest: str) -> bytes:
        """Returns the next ``size`` bytes."""
        data = bytearray(size)
        got = len(self.fill(memoryview(data)))
        self.check(digest, size - got)
        return bytes(data)

    def skip(self, size: int, digest: str) -> None:
        """Reads ``size`` bytes and discards them."""
        block = memoryview(bytearray(_BLOCK))
        while size:
            size -= len(self.fill(block[: min(len(block), size)]))
            self.check(digest, size)

    def _read(self, view: memoryview) -> int:
        if self._handle < 0:
            return int(self._stdin.readinto(view))  # type: ignore[attr-defined]
        # sshd keeps the pipe open after a lost connection, so a read alone could block for ever
        if not select.select([self._handle], [], [], self._silence_s)[0]:
            raise DeviceError(
                "no data for {:g} s".format(self._silence_s),
                code="transfer.stalled",
                where="stdin",
                hint="the connection is lost or too slow; deploy again, received data is kept",
            )
        return os.readv(self._handle, [view])


def _truncated_error(message: str, digest: str) -> DeviceError:
    return DeviceError(
        message,
        code="transfer.truncated",
        where=digest,
        hint="the connection broke; deploy again, received data is kept",
    )


class Hashing:
    """Hashes blobs (SHA-256) in a thread, while another thread reads and writes them.

    For each blob call ``begin``, then ``buffer`` and ``add`` for each block, then ``digest``. A
    block may be read until the next ``buffer``; it is used again once it is hashed.
    """

    def __init__(self) -> None:
        self._free: "queue.SimpleQueue[bytearray]" = queue.SimpleQueue()
        self._full: "queue.SimpleQueue[_ThreadedWork]" = queue.SimpleQueue()
        self._done: "queue.SimpleQueue[Union[str, OSError]]" = queue.SimpleQueue()
        self._made = 0
        self._thread: Optional[threading.Thread] = None

    def __enter__(self) -> "Hashing":
        return self

    def __exit__(self, *exc: Any) -> None:
        if self._thread is not None:
            self._full.put(None)
            self._thread.join()

    def begin(self, handle: int, start: int) -> None:
        """Begins a blob, whose first ``start`` bytes are read from the file ``handle``."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()
        self._full.put((handle, start))

    def buffer(self) -> bytearray:
        """Returns a free block."""
        if self._made < _BLOCKS:
            self._made += 1
            return bytearray(_BLOCK)
        return self._free.get()

    def add(self, block: bytearray, count: int) -> None:
        """Hashes the block's first ``count`` bytes."""
        self._full.put((block, count))

    def digest(self) -> str:
        """The blob's hash in hex."""
        self._full.put("end")
        found = self._done.get()
        if isinstance(found, OSError):
            raise found
        return found

    def _run(self) -> None:
        found = hashlib.sha256()
        error: Optional[OSError] = None
        while True:
            item = self._full.get()
            if item is None:
                return
            if isinstance(item, str):
                self._done.put(error or found.hexdigest())
                continue
            what, count = item
            if isinstance(what, bytearray):
                found.update(memoryview(what)[:count])
                self._free.put(what)
                continue
            error = None
            try:
                found = hash_start(what, count)
            except OSError as caught:
                error = caught


class Syncing:
    """Syncs a file in a thread while it is written, so that the last sync is short."""

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self._last = 0
        self._wake = threading.Semaphore(0)
        self._over = False
        self._thread: Optional[threading.Thread] = None

    def __enter__(self) -> "Syncing":
        return self

    def __exit__(self, *exc: Any) -> None:
        self._over = True
        if self._thread is not None:
            self._wake.release()
            self._thread.join()

    def note_written(self, offset: int) -> None:
        """Reports that the file is written up to ``offset``."""
        if offset - self._last < _SYNC_EVERY:
            return
        self._last = offset
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()
        self._wake.release()

    def _run(self) -> None:
        while True:
            self._wake.acquire()
            if self._over:
                return
            try:
                os.fdatasync(self._handle)
            except OSError:
                return  # the fsync at the end raises it


def do_fetch(root: Root, arguments: argparse.Namespace, stdin: BinaryIO) -> Iterator[Buffer]:
    """Answers the blobs whose digests are on stdin; first checks that all of these exist.

    Raises:
        DeviceError: "blob.missing", "protocol.invalid".
    """
    digests = read_digests(stdin, _MAX_LIST)
    with root.lock(shared=True):
        # mapped files outlive a collection
        blobs = {digest: root.store.read(digest) for digest in dict.fromkeys(digests)}
    return _frames(blobs)


def _frames(blobs: Dict[str, memoryview]) -> Iterator[Buffer]:
    for digest, data in blobs.items():
        yield json.dumps({"digest": digest, "bytes": len(data)}).encode("ascii") + b"\n"
        for start in range(0, len(data), _PIECE):
            yield data[start : start + _PIECE]
    yield b"\n"
