"""Messages of the server's socket: a length, a JSON head and descriptors; and short questions to
what serves an app: its status, and to reload.
"""

from __future__ import annotations

import array
import json
import os
import socket
import stat
import struct
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from edgekit_device.errors import DeviceError
from edgekit_device.protocol.codec import parse_json
from edgekit_device.store.root import App

# Messages of the server's socket: a length, a JSON head, and descriptors with it.
#
# docs/serving.md has the protocol. Nothing is read before its length is known to be bounded.


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
_MAX_RECORD = 1 << 20


class Closed(Exception):
    """The other side has gone, or did not keep to the protocol."""


def pack(head: Mapping[str, Any]) -> bytes:
    """A message's bytes."""
    data = json.dumps(head, separators=(",", ":")).encode("utf-8")
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
    """Puts messages together from what arrives; holds the descriptors that came with them."""

    def __init__(self, most: int = MAX_HEAD) -> None:
        self.most = most
        self.descriptors: List[int] = []
        self._data = b""

    @property
    def begun(self) -> bool:
        """Whether a part of a message is here."""
        return bool(self._data)

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
            raise Closed("it ended")
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
            raise Closed("a head of {} bytes".format(size))
        if len(self._data) < 4 + size:
            return None
        head, self._data = self._data[4 : 4 + size], self._data[4 + size :]
        return head

    def claim(self) -> Optional[int]:
        """The descriptor of a message that was taken and needs one; the caller closes it.

        One read may bring the end of messages without descriptors and the start of one with: only
        the messages themselves say whose it is.
        """
        return self.descriptors.pop(0) if self.descriptors else None

    def check(self) -> None:
        """Raises Closed where a descriptor is left that no message claimed."""
        if self.descriptors and not self._data:
            raise Closed("a descriptor that no request needs")

    def close(self) -> None:
        """Closes descriptors that were not taken."""
        for number in self.descriptors:
            os.close(number)
        self.descriptors = []


def read_head(data: bytes) -> Dict[str, Any]:
    """Reads a head of this version.

    Raises:
        DeviceError: "serve.protocol" or "serve.version".
    """
    head = parse_json(data, "the head", "serve.protocol")
    if not isinstance(head, dict):
        raise DeviceError("the head is no JSON object", code="serve.protocol")
    if head.get("edgekit") != VERSION:
        raise DeviceError(
            "the head says version {!r}".format(str(head.get("edgekit"))[:40]),
            code="serve.version",
            hint="this loader speaks version {}".format(VERSION),
        )
    return head


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
            of connections is full.
    """
    folder = None
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    peer.settimeout(timeout_s)
    try:
        if not stat.S_ISSOCK(os.stat(str(path)).st_mode):
            peer.close()
            return None
        name, folder = reach(path)
        peer.connect(name)
        return peer
    except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError):
        peer.close()
        return None
    except OSError as error:
        peer.close()
        timed_out = isinstance(error, (socket.timeout, BlockingIOError))
        raise DeviceError(
            "the server's socket takes no connection: {}".format(error),
            code="serve.silent" if timed_out else "serve.refused",
            where=str(path),
            hint="" if timed_out else "only the server's own account may use it",
        ) from error
    finally:
        if folder is not None:
            os.close(folder)


def exchange(
    peer: socket.socket,
    reader: MessageReader,
    head: Mapping[str, Any],
    descriptors: Sequence[int] = (),
) -> Dict[str, Any]:
    """Sends a head and waits for its answer.

    Raises:
        Closed: The server went away before it answered.
        DeviceError: The error that it answered, or "serve.silent" after the socket's timeout.
    """
    data = pack(head)
    try:
        sent = send_with(peer, data, descriptors)
        if sent < len(data):
            peer.sendall(data[sent:], socket.MSG_NOSIGNAL)
        message = reader.take()
        while message is None:
            reader.receive(peer)
            message = reader.take()
    except socket.timeout as error:
        raise DeviceError(
            "the server did not answer in {:g} s".format(peer.gettimeout() or 0),
            code="serve.silent",
            hint="look at its status and its log",
        ) from error
    except OSError as error:
        raise Closed(str(error)) from error
    document = read_head(message)
    if (failure := document.get("error")) is not None:
        raise AnsweredError(failure if isinstance(failure, dict) else {}, document)
    return document


class AnsweredError(DeviceError):
    """An error that the server answered; ``document`` is all it said."""

    def __init__(self, fields: Mapping[str, Any], document: Mapping[str, Any]) -> None:
        super().__init__(
            str(fields.get("message") or "the server does not say what is wrong"),
            code=str(fields.get("code") or "serve.protocol"),
            where=str(fields.get("where", "")),
            hint=str(fields.get("hint", "")),
        )
        self.document = document


def serving(app: App) -> Optional[Dict[str, Any]]:
    """Returns the status of the server of ``app``.

    Returns:
        An ``edgekit.serving/1`` (docs/serving.md): "release" that answers now (None before the
        first is loaded), "digest", "pid", "uptime_s", "requests", "errors" (the server's or its
        engines' fault), "refused" (the client's fault or a full queue), "restarts" (workers that
        crashed), "queue", "latency_ms", "loading" (a release or None), "last_error",
        "rolled_back" (the error for which the server went back itself, or None); None when
        nothing serves.

    Raises:
        DeviceError: "serve.silent" or "serve.refused" when there is one that does not answer.
    """
    answer = send_request(app, {"op": "status"}, _STATUS_S)
    return None if answer is None else answer["serving"]


def reload(app: App, timeout_s: float = _RELOAD_S) -> Optional[Dict[str, Any]]:
    """Has the server take the current release, and waits until it answers requests.

    Every request that is sent after this has returned is answered by the current release.

    Args:
        app: The app.
        timeout_s: Until the wait is given up; the server goes on.

    Returns:
        As :func:`serving`; None when nothing serves.

    Raises:
        DeviceError: What the release failed with ("serve.crashed", "selftest.failed", "engine.*");
            the one before it serves on. "serve.silent" after ``timeout_s``.
    """
    answer = send_request(app, {"op": "reload"}, timeout_s)
    return None if answer is None else answer["serving"]


def send_request(app: App, head: Dict[str, Any], timeout_s: float) -> Optional[Dict[str, Any]]:
    """Sends the server of ``app`` one request; returns None if none serves."""
    peer = connect_to(socket_of(app.folder), timeout_s)
    if peer is None:
        return None
    reader = MessageReader()
    try:
        return exchange(peer, reader, dict(head, edgekit=VERSION))
    except Closed:
        return None
    finally:
        reader.close()
        peer.close()


def socket_of(folder: Path) -> Path:
    """Where the server of the app in ``folder`` listens, or would."""
    named = read_record(folder).get("socket")
    return Path(named) if isinstance(named, str) else folder / SOCKET


def read_record(folder: Path) -> Dict[str, Any]:
    """What the server has noted in serving.json; empty where there is none."""
    try:
        with (folder / RECORD).open("rb") as file:
            found = json.loads(file.read(_MAX_RECORD).decode("utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
