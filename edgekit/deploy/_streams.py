"""The byte streams of the loader's protocol: JSON lines, counted pieces, frames of blobs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping

from edgekit.deploy._types import Progress
from edgekit.errors import BoardError

__all__ = ["Buffer", "counted", "frames", "json_line", "pieces", "read_frames"]

Buffer = bytes | memoryview

_PIECE = 256 * 1024


def json_line(value: object) -> bytes:
    """Returns one JSON document and its line's end."""
    return json.dumps(value).encode("ascii") + b"\n"


def pieces(data: Buffer) -> Iterator[bytes]:
    """Yields ``data`` in pieces that a channel takes at once."""
    view = memoryview(data)
    for start in range(0, len(view), _PIECE):
        yield bytes(view[start : start + _PIECE])


def counted(data: bytes, phase: str, progress: Progress | None) -> Iterator[bytes]:
    """Yields ``data`` in pieces and says how much is on its way."""
    done = 0
    for piece in pieces(data):
        yield piece
        done += len(piece)
        if progress:
            progress(phase, done, len(data))


def frames(
    blobs: Mapping[str, Buffer],
    progress: Progress | None,
    kept: Mapping[str, int] | None = None,
) -> Iterator[bytes]:
    """Yields the stream of ``receive``; a piece counts when the next one is asked for.

    Of a blob in ``kept`` the first bytes, as many as are told there, are left out.
    """
    kept = kept or {}
    total = sum(len(data) for data in blobs.values())
    done = sum(kept.get(digest, 0) for digest in blobs)
    for digest, data in blobs.items():
        start = kept.get(digest, 0)
        frame: dict[str, object] = {"digest": digest, "bytes": len(data)}
        yield json_line({**frame, "from": start} if start else frame)
        for piece in pieces(memoryview(data)[start:]):
            yield piece
            done += len(piece)
            if progress:
                progress("send", done, total)
    yield b"\n"


def read_frames(data: bytes, where: str) -> dict[str, bytes]:
    """Reads the stream of ``fetch``; every blob's bytes are hashed.

    Raises:
        BoardError: "board.protocol" or "board.transfer".
    """
    found: dict[str, bytes] = {}
    position = max(data.find(b'{"digest":'), 0)  # after whatever the board's shell may print
    while data[position : position + 1] != b"\n":
        end = data.find(b"\n", position)
        try:
            frame = json.loads(data[position:end]) if end > 0 else None
            digest, size = str(frame["digest"]), int(frame["bytes"])  # type: ignore[index]
        except (ValueError, TypeError, KeyError) as error:
            raise BoardError(
                "the stream of blobs ended early", code="board.protocol", where=where
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
    return found
