"""``receive``: blobs in frames, kept as far as they came, hashed beside the writing.

A large blob is written to its part (``_partial``) from the byte where it was cut; a small one is
sent again whole. ``_keeper`` gives both their names in the store meanwhile.
"""

from __future__ import annotations

import argparse
import contextlib
import os
from typing import Any, BinaryIO, Dict, Tuple

from ._beside import Hashing, Syncing
from ._checks import is_digest, parse_json
from ._errors import DeviceError, map_os_errors
from ._keeper import Keeper
from ._partial import Partial
from ._protocol import protocol_error
from ._root import Root
from ._store import sha256
from ._stream import Input

__all__ = ["do_receive"]

_MAX_BYTES = 1 << 62
_SMALL = 1 << 20


def do_receive(root: Root, arguments: argparse.Namespace, stdin: BinaryIO) -> Dict[str, Any]:
    """Reads blobs in frames; whole ones stay although a later one fails, and large ones in part.

    Raises:
        DeviceError: "transfer.truncated", "transfer.stalled", "transfer.offset",
            "blob.digest-mismatch", "board.disk-full", "board.busy" or "protocol.invalid".
    """
    source = Input(stdin)
    received = total = 0
    with root.lock(shared=True), Keeper(root) as keeper, Hashing() as hashing:
        while True:
            line = source.line()
            if line == b"\n":
                break
            digest, size, start = _frame(line)
            if size <= _SMALL and start == 0:
                data = source.take(size, digest)
                if sha256(data) != digest:
                    raise _mismatch(digest, "")
                keeper.add(digest, data)
            else:
                _receive_large(root, digest, size, start, source, hashing, keeper)
            received, total = received + 1, total + size - start
    return {"received": received, "bytes": total}


def _receive_large(
    root: Root,
    digest: str,
    size: int,
    start: int,
    source: Input,
    hashing: Hashing,
    keeper: Keeper,
) -> None:
    partial = Partial.open(root.folder, digest)
    try:
        if root.store.size(digest) == size:
            source.skip(size - start, digest)  # somebody else has sent it meanwhile
            partial.drop()
            partial.close()
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
            _write(partial, digest, size, start, source, hashing)
    except BaseException:
        partial.close()
        raise
    keeper.finish(digest, partial, size)


def _write(
    partial: Partial, digest: str, size: int, start: int, source: Input, hashing: Hashing
) -> None:
    """Writes and hashes the blob to its end; what came of it is durable when it is cut."""
    handle = partial.handle
    try:
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
                syncing.written(offset)
                source.check(digest, size - offset)
            found = hashing.digest()
    except BaseException:
        with contextlib.suppress(OSError):
            os.fsync(handle)
        raise
    if found != digest:
        partial.drop()
        raise _mismatch(digest, found if start == 0 else "")


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
