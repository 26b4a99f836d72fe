"""The transport over SSH: one connection, one exec channel a command."""

from __future__ import annotations

import contextlib
import shlex
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from edgekit.deploy._transport import MOST_OUT, STALL_S, Buffer, Completed, converse, stalled
from edgekit.deploy._wire import tcp_bytes
from edgekit.errors import BoardError

if TYPE_CHECKING:
    import paramiko

    from edgekit.deploy._openssh import OpenSsh
    from edgekit.deploy._sshconfig import Endpoint

__all__ = ["NO_CHANNEL", "SshTransport"]

#: The code of a board that opens no more channels, though the connection is there.
NO_CHANNEL = "board.no-channel"

# what one channel may have under way towards us, and the size of one read or write: SSH packets
# carry 32 KiB, so smaller pieces only cost calls
_WINDOW = 16 << 20
_PIECE = 32 * 1024
_OPEN_S = 20.0
# a board that allows few channels may still be closing the former one
_CLOSING_S = 5.0
_POLL_S = 0.05


class SshTransport:
    """Runs commands through an authenticated connection (``connect`` makes one).

    Args:
        connection: An open paramiko transport whose host key was checked.
        where: The board's name for errors.
        upstream: Connections to jump hosts, closed after this one.
        endpoint: Where the connection goes, for those that OpenSSH's client makes for bulk.
    """

    def __init__(
        self,
        connection: paramiko.Transport,
        where: str,
        upstream: Sequence[paramiko.Transport] = (),
        endpoint: Endpoint | None = None,
    ) -> None:
        self._connection = connection
        self._where = where
        self._upstream = tuple(upstream)
        self._endpoint = endpoint
        self._under_way = 0  # commands
        self._lock = threading.Lock()

    @property
    def host_key(self) -> str:
        """The host key that the board has shown, as ``ssh-keygen -lf`` prints it."""
        from edgekit.deploy._hostkeys import fingerprint

        return fingerprint(self._connection.get_remote_server_key())

    def wire_bytes(self) -> int | None:
        """Returns the bytes that TCP carried for this connection, both ways; None if not known.

        Through a jump host or a proxy command they are not this connection's alone.
        """
        return tcp_bytes(self._connection.sock)

    def bulk(self) -> OpenSsh | None:
        """Returns a quicker way for much data to the same board; None where there is none."""
        from edgekit.deploy._openssh import openssh

        if self._endpoint is None or self._upstream:
            return None
        key = self._connection.get_remote_server_key()
        return openssh(self._endpoint, (key.get_name(), key.asbytes()), self._where)

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: Iterable[Buffer] = (),
        timeout: float | None = 60.0,
        hold_input: bool = False,
        most_out: int = MOST_OUT,
        told: Callable[[bytes], None] | None = None,
    ) -> Completed:
        """See ``Transport.run``. OpenSSH hands the line to a shell, so every word is quoted."""
        with self._begun(argv) as channel:
            return converse(
                _Remote(channel, self),
                stdin,
                timeout=timeout,
                where=self._where,
                hold_input=hold_input,
                most_out=most_out,
                told=told,
            )

    @contextlib.contextmanager
    def _begun(self, argv: Sequence[str]) -> Iterator[paramiko.Channel]:
        """Starts a command on a channel, which counts as under way inside the block."""
        import paramiko

        lost = (paramiko.SSHException, EOFError, OSError)
        try:
            channel = self._open()
        except lost as error:
            raise self._lost() from error
        with self._counted():
            try:
                channel.settimeout(STALL_S)
                channel.exec_command(shlex.join(argv).encode("utf-8", "surrogateescape"))
            except lost as error:
                raise self._lost() from error
            yield channel

    def _open(self) -> paramiko.Channel:
        """Opens a channel; one that is refused is waited for unless others are under way.

        Raises:
            BoardError: "board.no-channel".
        """
        import paramiko

        until = time.monotonic() + _CLOSING_S
        while True:
            began = time.monotonic()
            try:
                return self._connection.open_session(window_size=_WINDOW, timeout=_OPEN_S)
            except paramiko.SSHException as error:
                # of two threads that are refused at once paramiko tells one ChannelException
                late = time.monotonic() - began >= _OPEN_S
                if late or not self._connection.is_active():
                    raise
                if self._under_way or time.monotonic() > until:
                    raise BoardError(
                        "the board opens no channel more on this connection",
                        code=NO_CHANNEL,
                        where=self._where,
                        hint="MaxSessions of the board's sshd_config says how many it opens: "
                        "1 is enough, 4 are quicker",
                    ) from error
            time.sleep(_POLL_S)

    @contextlib.contextmanager
    def _counted(self) -> Iterator[None]:
        with self._lock:
            self._under_way += 1
        try:
            yield
        finally:
            with self._lock:
                self._under_way -= 1

    def close(self) -> None:
        """Closes the connection and those to the jump hosts."""
        for connection in (self._connection, *reversed(self._upstream)):
            connection.close()

    def _alive(self) -> bool:
        """Returns whether the connection outlived a channel that just ended without a status.

        Its thread closes the channels a moment before it ends itself, hence the wait.
        """
        self._connection.join(1.0)
        return self._connection.is_active()

    def _lost(self) -> BoardError:
        return BoardError(
            "the connection was cut",
            code="board.connection-lost",
            where=self._where,
            hint="what had arrived whole is kept and the current release still serves; "
            "run the same command again",
        )


class _Remote:
    """An exec channel as ``converse`` wants it."""

    def __init__(self, channel: paramiko.Channel, transport: SshTransport) -> None:
        self._channel = channel
        self._transport = transport

    def send(self, data: Buffer) -> None:
        import paramiko

        try:
            view = memoryview(data)
            for start in range(0, len(view), _PIECE):
                self._channel.sendall(bytes(view[start : start + _PIECE]))
        except TimeoutError as error:
            raise stalled(self._transport._where) from error
        except (OSError, EOFError, paramiko.SSHException) as error:
            # the command has ended, or the connection has: ``wait`` tells
            raise BrokenPipeError from error

    def end_input(self) -> None:
        try:
            self._channel.shutdown_write()
        except (OSError, EOFError) as error:
            raise BrokenPipeError from error

    def read_out(self) -> bytes:
        return _patiently(self._channel.recv)

    def read_err(self) -> bytes:
        return _patiently(self._channel.recv_stderr)

    def wait(self, timeout: float | None) -> int | None:
        if not self._channel.status_event.wait(timeout):
            return None
        status = self._channel.exit_status
        if status >= 0:
            return status
        if not self._transport._alive():
            raise self._transport._lost()
        # SSH names the signal apart from the status and paramiko drops it: any signal will do
        return 128 + signal.SIGKILL

    def stop(self) -> None:
        self.kill()  # which any thread may

    def kill(self) -> None:
        # closing tells the other side, which may be gone by now: paramiko then raises EOFError
        with contextlib.suppress(OSError, EOFError):
            self._channel.close()


def _patiently(read: Callable[[int], bytes]) -> bytes:
    """Reads without the channel's time limit, which is meant for writing."""
    while True:
        try:
            return read(_PIECE)
        except TimeoutError:
            continue
