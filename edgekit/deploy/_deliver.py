"""Which way blobs go: several channels of the connection, or OpenSSH's client where it is much."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from edgekit.deploy._answers import document, has_document
from edgekit.deploy._channel import LONG_S
from edgekit.deploy._lanes import Heap, send_lanes
from edgekit.deploy._openssh import FAILED, Begun
from edgekit.deploy._ssh import SshTransport
from edgekit.deploy._transport import Buffer, Completed, Transport
from edgekit.errors import BoardError

__all__ = ["begin", "deliver"]

# from how many bytes on a connection of its own, which costs a handshake, is worth while
_BULK = 24 << 20
# and from how many on another channel is, which costs a start of the board's loader
_LANE = 4 << 20
# OpenSSH grants a channel a window of 2 MiB: several fill a line where the answer takes long
_LANES = 4
# as much may stand in pipes and windows before anything was taken
_UNDER_WAY = 8 << 20


def begin(argv: Sequence[str], transport: Transport, most: int) -> Begun | None:
    """Begins ``argv`` (the command ``receive``) on a connection apart while it is not known yet
    what is to be sent: its handshake and the loader's start are not waited for then.

    Args:
        argv: The board's command.
        transport: The connection.
        most: Bytes that there may be to send.
    """
    bulk = transport.bulk() if isinstance(transport, SshTransport) and most >= _BULK else None
    if bulk is None:
        return None
    try:
        return bulk.begin(argv)
    except OSError:
        return None  # nothing is lost but time


def deliver(
    heap: Heap,
    argv: Sequence[str],
    transport: Transport,
    where: str,
    python: str,
    begun: Begun | None = None,
    carried: Callable[[int], object] = int,
) -> int:
    """Sends the heap through as many runs of ``argv`` (the command ``receive``) as serve.

    Returns how many these were.

    Args:
        heap: What to send.
        argv: The board's command.
        transport: The connection.
        where: The board's name for errors.
        python: The board's interpreter for errors.
        begun: One that runs already, on a connection apart.
        carried: Told how many bytes a connection apart has carried, also where that was in vain.

    Raises:
        BoardError, BundleError: The board refuses a blob, fails, or the connection is cut.
    """

    def ask(stdin: Iterator[Buffer]) -> None:
        document(transport.run(argv, stdin=stdin, timeout=LONG_S), where, python)

    remote = isinstance(transport, SshTransport)
    if begun is None:
        begun = begin(argv, transport, heap.to_send)
    if begun is not None:
        try:
            done = begun.run(heap.frames(tell=True), timeout=LONG_S)
        finally:
            # one that was cut off does not say: as much went into it
            carried(heap.done - heap.started if begun.carried is None else begun.carried)
        if not _unreached(done):
            document(done, where, python)
            return 1
        if heap.done - heap.started > _UNDER_WAY:
            raise _cut(where)
        heap.rewind()
    lanes = 1 if not remote else max(1, min(_LANES, heap.to_send // _LANE, len(heap)))
    send_lanes(heap, ask, lanes)
    return lanes


def _unreached(done: Completed) -> bool:
    return done.status == FAILED and not has_document(done)


def _cut(where: str) -> BoardError:
    return BoardError(
        "the connection was cut",
        code="board.connection-lost",
        where=where,
        hint="what had arrived is kept and the current release still serves; "
        "run the same command again",
    )
