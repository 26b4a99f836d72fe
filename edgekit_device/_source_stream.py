"""One blob's bytes from one source: resumed where a connection broke, bounded by their size."""

from __future__ import annotations

import http.client
import re
from typing import TYPE_CHECKING, Callable, Iterator, Union

from ._errors import DeviceError
from ._source_local import LocalSource
from ._source_rules import TRIES, Trouble, bad_answer, pause, said
from ._source_web import Mirror

if TYPE_CHECKING:
    from ._source import Source

__all__ = ["PIECE", "stream", "wrong"]

PIECE = 1 << 20
# a link that brings this much between two breaks is slow, not dead
_ENOUGH = 64 << 10
_RANGE = re.compile(r"bytes (\d+)-(\d+)/(?:\d+|\*)\Z")


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
                raise DeviceError(
                    "no answer after {} tries: {}".format(TRIES, error),
                    code="source.unreachable",
                    where=source.where,
                    hint="check the address and the board's network, or name another mirror",
                ) from error
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
            raise bad_answer(source.blob_url(digest), "another part than was asked for")
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
        raise Trouble(said(error)) from error
    finally:
        if left or not reply.isclosed():
            reply.close()
            source.web().close()


def wrong(source: Source, digest: str) -> DeviceError:
    """The error of a source that gives other bytes than asked for."""
    return DeviceError(
        "the source gave other bytes than those of {}".format(digest),
        code="source.wrong-bytes",
        where=source.where,
        hint="it is damaged or not to be trusted: push the bundle there again",
    )
