"""``receive``: blobs in frames, kept as far as they came, hashed beside the writing.

A large blob is written to its part (``_partial``) from the byte where it was cut. Small ones are
gathered and made durable together: the first fsync of many carries the others along.
"""

from __future__ import annotations

import argparse
import os
from typing import Any, BinaryIO, Dict, List, Tuple

from ._checks import is_digest, parse_json
from ._errors import DeviceError, map_os_errors
from ._files import durable_folder, fsync_folder, workspace
from ._partial import Partial
from ._root import Root
from ._store import sha256
from ._store_commands import protocol_error
from ._stream import Hashing, Input, Syncing

__all__ = ["do_receive"]

_MAX_BYTES = 1 << 42
_SMALL = 1 << 20
_BATCH_BYTES = 16 << 20
_BATCH_COUNT = 512


def do_receive(root: Root, arguments: argparse.Namespace, stdin: BinaryIO) -> Dict[str, Any]:
    """Reads blobs in frames; whole ones stay although a later one fails, and large ones in part.

    Raises:
        DeviceError: "transfer.truncated", "transfer.stalled", "transfer.offset",
            "blob.digest-mismatch", "board.disk-full", "board.busy" or "protocol.invalid".
    """
    source = Input(stdin)
    received = total = 0
    with root.lock(shared=True), _Batch(root) as batch:
        while True:
            line = source.line()
            if line == b"\n":
                break
            digest, size, start = _frame(line)
            if size <= _SMALL and start == 0:
                batch.add(digest, source.take(size, digest))
            else:
                _receive_large(root, digest, size, start, source)
            received, total = received + 1, total + size - start
    return {"received": received, "bytes": total}


class _Batch:
    """Small blobs that are right and not yet durable; the block's end makes them so."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self._blobs: List[Tuple[str, bytes]] = []
        self._bytes = 0

    def __enter__(self) -> "_Batch":
        return self

    def __exit__(self, *exc: object) -> None:
        self.flush()

    def add(self, digest: str, data: bytes) -> None:
        if sha256(data) != digest:
            raise _mismatch(digest, "")
        self._blobs.append((digest, data))
        self._bytes += len(data)
        if self._bytes >= _BATCH_BYTES or len(self._blobs) >= _BATCH_COUNT:
            self.flush()

    def flush(self) -> None:
        blobs, self._blobs, self._bytes = self._blobs, [], 0
        if not blobs:
            return
        store = self._root.store
        with map_os_errors(str(store.folder)), workspace(self._root.folder) as work:
            handles = []
            try:
                for digest, data in blobs:
                    with (work / digest).open("wb") as file:
                        file.write(data)
                        file.flush()
                        handles.append(os.dup(file.fileno()))
                        # starts writing without waiting: the first fsync below then waits for all
                        os.posix_fadvise(handles[-1], 0, 0, os.POSIX_FADV_DONTNEED)
                for handle in handles:
                    os.fsync(handle)
            finally:
                for handle in handles:
                    os.close(handle)
            for digest, _ in blobs:
                durable_folder(store.path(digest).parent)
                os.replace(str(work / digest), str(store.path(digest)))
            for folder in sorted({store.path(digest).parent for digest, _ in blobs}):
                fsync_folder(folder)


def _receive_large(root: Root, digest: str, size: int, start: int, source: Input) -> None:
    store = root.store
    with Partial.open(root.folder, digest) as partial:
        if store.size(digest) == size:
            source.skip(size - start, digest)  # somebody else has sent it meanwhile
            partial.drop()
            return
        with map_os_errors(str(partial.path)):
            if start > partial.size:
                raise DeviceError(
                    "{} bytes of the blob are kept, not {}".format(partial.size, start),
                    code="transfer.offset",
                    where=digest,
                    hint="deploy again: what is kept is asked for first",
                )
            _check_space(partial, size)
            _write(partial, digest, size, start, source)
            final = store.path(digest)
            durable_folder(final.parent)
            os.replace(str(partial.path), str(final))
            fsync_folder(final.parent)


def _write(partial: Partial, digest: str, size: int, start: int, source: Input) -> None:
    """Writes and hashes the blob to its end, and makes it durable."""
    handle = partial.handle
    try:
        with Hashing(handle, start) as hashing, Syncing(handle) as syncing:
            offset = start
            while offset < size:
                buffer = hashing.buffer()
                view = source.fill(memoryview(buffer)[: min(len(buffer), size - offset)])
                hashing.add(buffer, len(view))
                while view:
                    written = os.pwrite(handle, view, offset)
                    view, offset = view[written:], offset + written
                syncing.written(offset)
                source.check(digest, size - offset)
            found = hashing.digest()
    finally:
        os.fsync(handle)
    if found != digest:
        partial.drop()
        raise _mismatch(digest, found if start == 0 else "")
    if os.fstat(handle).st_size != size:
        os.ftruncate(handle, size)
        os.fsync(handle)


def _check_space(partial: Partial, size: int) -> None:
    facts = os.fstatvfs(partial.handle)
    # counted by blocks: a file that was cut in the middle may have holes
    free = facts.f_bavail * facts.f_frsize + os.fstat(partial.handle).st_blocks * 512
    if size > free:
        raise DeviceError(
            "the blob needs {} bytes, {} are free".format(size, free),
            code="board.disk-full",
            where=str(partial.path.parent),
            hint="free space there, or remove old releases with gc --keep 1",
        )


def _frame(line: bytes) -> Tuple[str, int, int]:
    frame = parse_json(line, "frame", "protocol.invalid")
    if not isinstance(frame, dict) or not set(frame) <= {"digest", "bytes", "from"}:
        frame = {}
    digest, size, start = frame.get("digest"), frame.get("bytes"), frame.get("from", 0)
    if (
        not is_digest(digest)
        or type(size) is not int
        or type(start) is not int
        or not 0 <= start <= size <= _MAX_BYTES
    ):
        raise protocol_error('expected {"digest": SHA-256, "bytes": count, "from": offset}')
    return str(digest), size, start


def _mismatch(digest: str, found: str) -> DeviceError:
    message = "the bytes received have another SHA-256"
    if found:
        message += ": {}".format(found)
    else:
        message += "; what was kept of the blob is thrown away"
    return DeviceError(
        message,
        code="blob.digest-mismatch",
        where=digest,
        hint="the bundle or the transfer is damaged; send it again",
    )
