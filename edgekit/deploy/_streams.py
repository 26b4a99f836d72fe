"""The byte streams of the loader's protocol: JSON lines, counted pieces, frames of blobs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator

from edgekit.deploy._transport import Buffer
from edgekit.deploy._types import Progress
from edgekit.errors import BoardError

__all__ = ["Buffer", "counted", "json_line", "pieces", "read_frames"]

_PIECE = 256 * 1024


def json_line(value: object) -> bytes:
    """Returns one JSON document and its line's end."""
    return json.dumps(value).encode("ascii") + b"\n"


def pieces(data: Buffer) -> Iterator[memoryview]:
    """Yields ``data`` in pieces that a channel takes at once; nothing is copied."""
    view = memoryview(data)
    for start in range(0, len(view), _PIECE):
        yield view[start : start + _PIECE]


def counted(data: bytes, phase: str, progress: Progress | None) -> Iterator[Buffer]:
    """Yields ``data`` in pieces and says how much is on its way."""
    done = 0
    for piece in pieces(data):
        yield piece
        done += len(piece)
        if progress:
            progress(phase, done, len(data))


def read_frames(data: bytes, where: str, wanted: Collection[str]) -> dict[str, bytes]:
    """Reads the stream of ``fetch``; every blob's bytes are hashed, and all wanted ones are there.

    Raises:
        BoardError: "board.protocol" or "board.transfer".
    """
    found: dict[str, bytes] = {}
    position = max(data.find(b'{"digest":'), 0)  # after whatever the board's shell may print
    while data[position : position + 1] != b"\n":
        end = data.find(b"\n", position)
        try:
            frame = json.loads(data[position:end]) if end > 0 else None
            digest, size = str(frame["digest"]), frame["bytes"]  # type: ignore[index]
            if type(size) is not int or not 0 <= size <= len(data) - end:
                raise ValueError(size)
            if digest not in wanted or digest in found:
                raise ValueError(digest)
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise BoardError(
                "the stream of blobs ended early or is wrong", code="board.protocol", where=where
            ) from error
        blob = data[end + 1 : end + 1 + size]
        if hashlib.sha256(blob).hexdigest() != digest:
            raise BoardError(
                f"the bytes that came have another SHA-256 than {digest}",
                code="board.transfer",
                where=where,
                hint="run the same command again; if it stays so, the board's store is damaged",
            )
        found[digest] = blob
        position = end + 1 + size
    if len(found) != len(set(wanted)):
        raise BoardError("the board sent too few blobs", code="board.protocol", where=where)
    return found
