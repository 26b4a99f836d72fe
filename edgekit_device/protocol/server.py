"""Messages of the server's socket (a length, a JSON document and descriptors), and the requests
"status" and "reload" to an app's server. docs/serving.md describes the protocol.
"""

from __future__ import annotations

import array
import hashlib
import json
import os
import socket
import stat
import struct
import time
from pathlib import Path
from typing import Any, List, Optional, Sequence, Tuple, Type, TypeVar, Union

from edgekit_device.errors import DeviceError
from edgekit_device.protocol.codec import load, parse_json, read, write
from edgekit_device.protocol.serving import (
    FailedAnswer,
    Request,
    ServingRecord,
    ServingStatus,
    StatusAnswer,
)

VERSION = 1

#: Largest size of a head in bytes: tensors' names and shapes, never their values.
MAX_HEAD = 1 << 16
_LENGTH = struct.Struct(">I")

# descriptors of the request that is answered next and of a request after it
_MAX_DESCRIPTORS = 2

# sun_path holds 108 bytes with the final zero (unix(7))
_MAX_PATH = 107
SOCKET = "serve.sock"
RECORD = "serving.json"
_STATUS_S = 5.0
_RELOAD_S = 600.0
_QUEUE_POLL_S = 0.02
_Answer = TypeVar("_Answer")


class Closed(Exception):
    """The peer closed the connection or broke the protocol."""


class AnsweredError(DeviceError):
    """An error that the server answered; ``answer`` is its whole answer."""

    def __init__(self, answer: FailedAnswer) -> None:
        error = answer.error
        super().__init__(error.message, code=error.code, where=error.where, hint=error.hint)
        self.answer = answer


def pack(document: Any) -> bytes:
    """Returns the bytes of a message with this document."""
    head = {**write(document), "edgekit": VERSION}
    return frame_message(json.dumps(head, separators=(",", ":")).encode("utf-8"))


def frame_message(data: bytes) -> bytes:
    """Returns the bytes of a message, from the bytes of its document."""
    return _LENGTH.pack(len(data)) + data


def send_with(peer: socket.socket, data: bytes, descriptors: Sequence[int] = ()) -> int:
    """Sends as much as the socket takes now; descriptors are sent with the first byte.

    Returns:
        The number of bytes sent.
    """
    if not descriptors:
        return peer.send(data, socket.MSG_NOSIGNAL)
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
    return peer.sendmsg([data], rights, socket.MSG_NOSIGNAL)


class MessageReader:
    """Assembles messages from received bytes and holds the descriptors that came with them.

    A message's length is checked (at most ``most``) before it is read.
    """

    def __init__(self, most: int = MAX_HEAD) -> None:
        self.most = most
        self.descriptors: List[int] = []
        self._data = b""

    @property
    def received_bytes(self) -> int:
        """Returns the number of bytes received and not taken."""
        return len(self._data)

    def receive(self, peer: socket.socket) -> None:
        """Receives the available bytes; waits if the socket is blocking.

        Raises:
            Closed: The connection has ended, or more descriptors came than messages may have.
            BlockingIOError: No bytes are available.
        """
        # space for one descriptor too many, so that it is noticed and not cut off
        space = socket.CMSG_SPACE((_MAX_DESCRIPTORS + 1) * 4)
        try:
            data, rights, flags, _ = peer.recvmsg(65536, space, socket.MSG_CMSG_CLOEXEC)
        except (BlockingIOError, socket.timeout):
            raise
        except OSError as error:
            raise Closed(str(error)) from error
        for level, kind, value in rights:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                numbers = array.array("i")
                # a message that was cut off may end inside a number
                numbers.frombytes(value[: len(value) - len(value) % 4])
                self.descriptors += numbers
        # descriptors that the kernel dropped, or that no request may bring
        if flags & socket.MSG_CTRUNC or len(self.descriptors) > _MAX_DESCRIPTORS:
            raise Closed("too many descriptors")
        # a stream socket gives no bytes only at its end
        if not data:
            raise Closed("it closed the connection")
        self._data += data

    def take(self) -> Optional[bytes]:
        """Returns the next whole message; None if it is incomplete.

        Raises:
            Closed: The message's length is above ``most``.
        """
        if len(self._data) < 4:
            return None
        (size,) = _LENGTH.unpack_from(self._data)
        # before the memory is filled: the peer chooses the length
        if not 0 < size <= self.most:
            raise Closed("a header of {} bytes".format(size))
        if len(self._data) < 4 + size:
            return None
        head, self._data = self._data[4 : 4 + size], self._data[4 + size :]
        return head

    def wait(self, peer: socket.socket) -> bytes:
        """Waits for the next whole message and returns it; raises as ``receive`` and ``take``."""
        message = self.take()
        while message is None:
            self.receive(peer)
            message = self.take()
        return message

    def claim(self) -> Optional[int]:
        """Returns the descriptor for a message that was taken and needs it; the caller closes it.

        A single read may return messages without descriptors and the start of a message with a
        descriptor: only the messages themselves show to which it belongs.
        """
        return self.descriptors.pop(0) if self.descriptors else None

    def check(self) -> None:
        """Raises Closed if a descriptor is left that no message claimed."""
        if self.descriptors and not self._data:
            raise Closed("a descriptor that the request does not need")

    def close(self) -> None:
        """Closes descriptors that were not taken."""
        for number in self.descriptors:
            os.close(number)
        self.descriptors = []


def parse_head(data: bytes) -> Any:
    """Returns a message's JSON without its version, which must be this protocol's.

    Raises:
        DeviceError: "serve.protocol" or "serve.version".
    """
    document = parse_json(data, "the header", "serve.protocol")
    version = document.pop("edgekit", None) if isinstance(document, dict) else VERSION
    if version != VERSION:
        raise DeviceError(
            "the header has version {!r}".format(str(version)[:40]),
            code="serve.version",
            hint="this edgekit_device supports version {}".format(VERSION),
        )
    return document


def read_request(kind: Type[_Answer], document: Any) -> _Answer:
    """Reads a request; raises DeviceError "serve.protocol"."""
    return read(kind, document, "the header", code="serve.protocol")


def read_answer(kind: Type[_Answer], data: bytes) -> Union[_Answer, FailedAnswer]:
    """Reads an answer: a ``kind`` or an error.

    Raises:
        DeviceError: "serve.protocol" or "serve.version".
    """
    document = parse_head(data)
    hint = "if the server is from another version, restart it"
    if isinstance(document, dict) and "error" in document:
        return read(FailedAnswer, document, "the answer", code="serve.protocol", hint=hint)
    return read(kind, document, "the answer", code="serve.protocol", hint=hint)


def short_path(path: Path) -> Tuple[str, Optional[int]]:
    """Returns a socket's path in a form that fits ``sun_path``, and a descriptor to close later.

    A path that is too long for ``sun_path`` is addressed through its folder's descriptor.
    """
    if len(os.fsencode(str(path))) <= _MAX_PATH:
        return str(path), None
    folder = os.open(str(path.parent), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    return "/proc/self/fd/{}/{}".format(folder, path.name), folder


def connect_to(path: Path, timeout_s: float) -> Optional[socket.socket]:
    """Connects to a server's socket; returns None if no server listens there.

    Raises:
        DeviceError: "serve.refused" if it belongs to another account, "serve.silent" if its queue
            of connections stays full for ``timeout_s`` seconds.
    """
    folder = None
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    peer.settimeout(timeout_s)
    try:
        # a file with another type has no server, whatever connect would report
        if stat.S_ISSOCK(os.stat(str(path)).st_mode):
            name, folder = short_path(path)
            _connect(peer, name, timeout_s)
            return peer
    # refused: a socket that an ended server left behind
    except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError):
        pass
    except OSError as error:
        peer.close()
        # a full queue and a timeout mean a busy server; other errors mean a lack of permission
        timed_out = isinstance(error, (socket.timeout, BlockingIOError))
        raise DeviceError(
            "cannot connect to the server's socket: {}".format(error),
            code="serve.silent" if timed_out else "serve.refused",
            where=str(path),
            hint="" if timed_out else "only the server's own account may use it",
        ) from error
    finally:
        if folder is not None:
            os.close(folder)
    peer.close()
    return None


def _connect(peer: socket.socket, name: str, timeout_s: float) -> None:
    """Connects; tries again while the queue is full, which the kernel reports at once."""
    until = time.monotonic() + timeout_s
    while True:
        try:
            peer.connect(name)
            return
        except BlockingIOError:
            if time.monotonic() >= until:
                raise
            time.sleep(_QUEUE_POLL_S)


def exchange(
    kind: Type[_Answer],
    peer: socket.socket,
    reader: MessageReader,
    request: Any,
    descriptors: Sequence[int] = (),
) -> _Answer:
    """Sends a request and waits for its answer, a ``kind``.

    Raises:
        Closed: The server ended before it answered.
        DeviceError: The server's error (AnsweredError), or "serve.silent" after the socket's
            timeout.
    """
    data = pack(request)
    try:
        sent = send_with(peer, data, descriptors)
        # descriptors are sent with the first byte, never twice
        if sent < len(data):
            peer.sendall(data[sent:], socket.MSG_NOSIGNAL)
        message = reader.wait(peer)
    except socket.timeout as error:
        raise DeviceError(
            "the server did not answer within {:g} s".format(peer.gettimeout() or 0),
            code="serve.silent",
            hint="check its status and its log",
        ) from error
    except OSError as error:
        raise Closed(str(error)) from error
    answer = read_answer(kind, message)
    if isinstance(answer, FailedAnswer):
        raise AnsweredError(answer)
    return answer


def query_server(app_folder: Path) -> Optional[ServingStatus]:
    """Returns the status of an app's server; None if no server runs.

    Raises:
        DeviceError: "serve.silent" or "serve.refused" if a server does not answer.
    """
    answer = send_request(StatusAnswer, app_folder, "status", _STATUS_S)
    return None if answer is None else answer.serving


def reload_server(app_folder: Path, timeout_s: float = _RELOAD_S) -> Optional[ServingStatus]:
    """Makes the server load the current release, and waits until it answers requests.

    The current release answers every request that is sent after this has returned.

    Args:
        app_folder: The app's folder.
        timeout_s: Seconds to wait; after that the server continues on its own.

    Returns:
        As :func:`query_server`; None if no server runs.

    Raises:
        DeviceError: The release's error ("serve.crashed", "selftest.failed", "engine.*"); the
            previous release continues to serve. "serve.silent" after ``timeout_s``.
    """
    answer = send_request(StatusAnswer, app_folder, "reload", timeout_s)
    return None if answer is None else answer.serving


def send_request(
    kind: Type[_Answer], app_folder: Path, op: str, timeout_s: float
) -> Optional[_Answer]:
    """Sends an app's server a request; returns None if no server runs."""
    peer = connect_to(socket_path(app_folder), timeout_s)
    if peer is None:
        return None
    reader = MessageReader()
    try:
        return exchange(kind, peer, reader, Request(op))
    # the server ended meanwhile, as if none had run
    except Closed:
        return None
    finally:
        reader.close()
        peer.close()


def socket_path(app_folder: Path) -> Path:
    """Returns the path of the socket of an app's server; it need not exist."""
    folder = server_folder(app_folder)
    named = read_record(app_folder).socket if folder == app_folder else None
    return folder / SOCKET if named is None else Path(named)


def server_folder(app_folder: Path) -> Path:
    """Returns the folder with the socket, lock and log of an app's server: the app's folder, or a
    folder in the account's runtime folder (else /tmp) if the disk is read-only.
    """
    # client and server compute the same folder, so they find each other without a setting
    if os.access(str(app_folder), os.W_OK):
        return app_folder
    account = os.geteuid()
    runtime = Path("/run/user/{}".format(account))
    base = runtime if os.access(str(runtime), os.W_OK) else Path("/tmp")
    # short (sun_path), and different for apps of the same name in other roots
    name = hashlib.sha256(os.fsencode(str(app_folder.resolve()))).hexdigest()[:16]
    return base / "edgekit-{}-{}".format(account, name)


def read_record(app_folder: Path) -> ServingRecord:
    """Returns the server's serving.json; an empty record if it is missing."""
    return load(ServingRecord, app_folder / RECORD) or ServingRecord()
