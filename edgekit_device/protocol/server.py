"""Messages of the server's socket: a length, a JSON document and descriptors; and short questions
to what serves an app: its status, and to reload. docs/serving.md has the protocol.
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

#: Bytes of a head: tensors' names and shapes, never their values.
MAX_HEAD = 1 << 16
_LENGTH = struct.Struct(">I")

# of the request that is answered next, and of one after it
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
    """The other side has ended, or did not keep to the protocol."""


class AnsweredError(DeviceError):
    """An error that the server answered; ``answer`` is all it said."""

    def __init__(self, answer: FailedAnswer) -> None:
        error = answer.error
        super().__init__(error.message, code=error.code, where=error.where, hint=error.hint)
        self.answer = answer


def pack(document: Any) -> bytes:
    """A message's bytes."""
    head = {**write(document), "edgekit": VERSION}
    return framed(json.dumps(head, separators=(",", ":")).encode("utf-8"))


def framed(data: bytes) -> bytes:
    """A message's bytes, of its document's."""
    return _LENGTH.pack(len(data)) + data


def send_with(peer: socket.socket, data: bytes, descriptors: Sequence[int] = ()) -> int:
    """Sends what the socket takes now; descriptors go with the first byte.

    Returns:
        How many bytes it took.
    """
    if not descriptors:
        return peer.send(data, socket.MSG_NOSIGNAL)
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
    return peer.sendmsg([data], rights, socket.MSG_NOSIGNAL)


class MessageReader:
    """Puts messages together from what arrives; holds the descriptors that came with them.

    Nothing is read before its length is known to be at most ``most``.
    """

    def __init__(self, most: int = MAX_HEAD) -> None:
        self.most = most
        self.descriptors: List[int] = []
        self._data = b""

    @property
    def held(self) -> int:
        """Bytes that are here."""
        return len(self._data)

    def receive(self, peer: socket.socket) -> None:
        """Takes what is there; may wait where the socket does.

        Raises:
            Closed: At the end, or when more descriptors came than messages may have.
            BlockingIOError: Nothing is there.
        """
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
                numbers.frombytes(value[: len(value) - len(value) % 4])
                self.descriptors += numbers
        if flags & socket.MSG_CTRUNC or len(self.descriptors) > _MAX_DESCRIPTORS:
            raise Closed("too many descriptors")
        if not data:
            raise Closed("it closed the connection")
        self._data += data

    def take(self) -> Optional[bytes]:
        """The next whole message.

        Raises:
            Closed: The message says that it is larger than ``most``.
        """
        if len(self._data) < 4:
            return None
        (size,) = _LENGTH.unpack_from(self._data)
        if not 0 < size <= self.most:
            raise Closed("a header of {} bytes".format(size))
        if len(self._data) < 4 + size:
            return None
        head, self._data = self._data[4 : 4 + size], self._data[4 + size :]
        return head

    def wait(self, peer: socket.socket) -> bytes:
        """The next whole message, waited for; raises as ``receive`` and ``take``."""
        message = self.take()
        while message is None:
            self.receive(peer)
            message = self.take()
        return message

    def claim(self) -> Optional[int]:
        """The descriptor of a message that was taken and needs one; the caller closes it.

        One read may bring the end of messages without descriptors and the start of one with: only
        the messages themselves say whose it is.
        """
        return self.descriptors.pop(0) if self.descriptors else None

    def check(self) -> None:
        """Raises Closed where a descriptor is left that no message claimed."""
        if self.descriptors and not self._data:
            raise Closed("a descriptor that the request does not need")

    def close(self) -> None:
        """Closes descriptors that were not taken."""
        for number in self.descriptors:
            os.close(number)
        self.descriptors = []


def parse_head(data: bytes) -> Any:
    """The JSON of a message, without the version, which is this one.

    Raises:
        DeviceError: "serve.protocol" or "serve.version".
    """
    document = parse_json(data, "the header", "serve.protocol")
    version = document.pop("edgekit", None) if isinstance(document, dict) else VERSION
    if version != VERSION:
        raise DeviceError(
            "the header says version {!r}".format(str(version)[:40]),
            code="serve.version",
            hint="this edgekit_device supports version {}".format(VERSION),
        )
    return document


def read_request(kind: Type[_Answer], document: Any) -> _Answer:
    """Reads a request; raises DeviceError "serve.protocol"."""
    return read(kind, document, "the header", code="serve.protocol")


def read_answer(kind: Type[_Answer], data: bytes) -> Union[_Answer, FailedAnswer]:
    """Reads an answer, which is a ``kind`` or an error.

    Raises:
        DeviceError: "serve.protocol" or "serve.version".
    """
    document = parse_head(data)
    hint = "if the server is from another version, restart it"
    if isinstance(document, dict) and "error" in document:
        return read(FailedAnswer, document, "the answer", code="serve.protocol", hint=hint)
    return read(kind, document, "the answer", code="serve.protocol", hint=hint)


def reach(path: Path) -> Tuple[str, Optional[int]]:
    """The name by which the kernel takes a socket's path, and a descriptor to close after it.

    A path that is too long for ``sun_path`` goes through its folder's descriptor.
    """
    if len(os.fsencode(str(path))) <= _MAX_PATH:
        return str(path), None
    folder = os.open(str(path.parent), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    return "/proc/self/fd/{}/{}".format(folder, path.name), folder


def connect_to(path: Path, timeout_s: float) -> Optional[socket.socket]:
    """Connects to a server's socket; returns None if no server listens there.

    Raises:
        DeviceError: "serve.refused" when it is not this account's, "serve.silent" when its queue
            of connections stays full for ``timeout_s``.
    """
    folder = None
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    peer.settimeout(timeout_s)
    try:
        if stat.S_ISSOCK(os.stat(str(path)).st_mode):
            name, folder = reach(path)
            _connect(peer, name, timeout_s)
            return peer
    except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError):
        pass
    except OSError as error:
        peer.close()
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
    """Connects; where the queue is full, which the kernel says at once, it tries again."""
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
        DeviceError: The error that it answered (AnsweredError), or "serve.silent" after the
            socket's timeout.
    """
    data = pack(request)
    try:
        sent = send_with(peer, data, descriptors)
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


def serving(app_folder: Path) -> Optional[ServingStatus]:
    """Returns the status of the server of an app; None when nothing serves.

    Raises:
        DeviceError: "serve.silent" or "serve.refused" when there is one that does not answer.
    """
    answer = send_request(StatusAnswer, app_folder, "status", _STATUS_S)
    return None if answer is None else answer.serving


def reload(app_folder: Path, timeout_s: float = _RELOAD_S) -> Optional[ServingStatus]:
    """Has the server take the current release, and waits until it answers requests.

    Every request that is sent after this has returned is answered by the current release.

    Args:
        app_folder: The app's folder.
        timeout_s: Until the wait is given up; the server goes on.

    Returns:
        As :func:`serving`; None when nothing serves.

    Raises:
        DeviceError: What the release failed with ("serve.crashed", "selftest.failed", "engine.*");
            the one before it serves on. "serve.silent" after ``timeout_s``.
    """
    answer = send_request(StatusAnswer, app_folder, "reload", timeout_s)
    return None if answer is None else answer.serving


def send_request(
    kind: Type[_Answer], app_folder: Path, op: str, timeout_s: float
) -> Optional[_Answer]:
    """Sends the server of an app one request; returns None if none serves."""
    peer = connect_to(socket_of(app_folder), timeout_s)
    if peer is None:
        return None
    reader = MessageReader()
    try:
        return exchange(kind, peer, reader, Request(op))
    except Closed:
        return None
    finally:
        reader.close()
        peer.close()


def socket_of(app_folder: Path) -> Path:
    """Where the server of an app listens, or would."""
    folder = folder_of(app_folder)
    named = read_record(app_folder).socket if folder == app_folder else None
    return folder / SOCKET if named is None else Path(named)


def folder_of(app_folder: Path) -> Path:
    """Where the server of an app has its socket, lock and log: in the app's folder, or in the
    account's runtime folder (else /tmp) where nothing can be written there, as on a read-only disk.
    """
    if os.access(str(app_folder), os.W_OK):
        return app_folder
    account = os.geteuid()
    runtime = Path("/run/user/{}".format(account))
    base = runtime if os.access(str(runtime), os.W_OK) else Path("/tmp")
    name = hashlib.sha256(os.fsencode(str(app_folder.resolve()))).hexdigest()[:16]
    return base / "edgekit-{}-{}".format(account, name)


def read_record(app_folder: Path) -> ServingRecord:
    """What the server has noted in serving.json; empty where there is none."""
    return load(ServingRecord, app_folder / RECORD) or ServingRecord()
