"""``connect``: a client of what serves on this board, called like a loaded model."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Mapping, Optional, Tuple, Union

from edgekit_device.errors import DeviceError
from edgekit_device.protocol.manifest import DTYPES
from edgekit_device.serve.memory import SharedMemory, aligned
from edgekit_device.serve.messages import (
    VERSION,
    AnsweredError,
    Closed,
    MessageReader,
    connect_to,
    exchange,
    socket_of,
)

if TYPE_CHECKING:
    import numpy as np


_TRIES = 2  # a server that was replaced between two calls is looked for once more
_MOST_GROWTH = 4


def connect(path: Union[str, "os.PathLike[str]"], *, timeout_s: float = 30.0) -> Client:
    """Connects to the server of an app on this board.

    Args:
        path: Its socket, or the app's folder (``~/.edgekit/apps/NAME``).
        timeout_s: Until a call gives up.

    Raises:
        DeviceError: "serve.gone" when nothing serves there, "serve.refused", "serve.not-ready"
            or "serve.silent".
    """
    return Client(Path(os.path.expanduser(path)), timeout_s)


class Client:
    """A connection to a server; call it with inputs by name. Threads take turns.

    Attributes:
        release: Release that gave the last answer.
        digest: Digest of the release that served when this connected.
        inputs: Name, dtype and shape of each input, of that release.
        outputs: The same of each output.
    """

    def __init__(self, path: Path, timeout_s: float) -> None:
        self._path = path
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._peer: Optional[socket.socket] = None
        self._reader = MessageReader()
        self._memory: Optional[SharedMemory] = None
        self._output_bytes = 0
        try:
            facts = self._request({"op": "describe"})
            with _readable():
                self.release: str = facts["release"]
                self.digest: str = facts["digest"]
                self.inputs: Tuple[Dict[str, Any], ...] = tuple(facts["inputs"])
                self.outputs: Tuple[Dict[str, Any], ...] = tuple(facts["outputs"])
                self._output_bytes = sum(aligned(_size(entry)) for entry in self.outputs)
        except BaseException:
            self._disconnect()
            raise

    def __call__(
        self, inputs: Union[Mapping[str, np.ndarray], np.ndarray]
    ) -> Dict[str, np.ndarray]:
        """Runs one frame on the server.

        Args:
            inputs: An array by input name; an array alone for a model of one input.

        Returns:
            An array by output name, the caller's own.

        Raises:
            DeviceError: What the model says of its inputs ("input.*"), what the engine failed
                with, or "serve.busy", "serve.timeout", "serve.crashed", "serve.stopping",
                "serve.gone", "serve.silent".
        """
        with self._lock:
            arrays = self._arrays(inputs)
            left = _TRIES
            for _ in range(_MOST_GROWTH):
                head, memory = self._write(arrays)
                try:
                    answer = self._exchange(head, memory)
                except Closed:
                    # inferring changes nothing, so it may be done twice
                    left -= 1
                    if not left:
                        raise self._gone() from None
                    continue
                except AnsweredError as error:
                    need = error.document.get("bytes")
                    # a release with larger outputs has come to serve
                    if error.code != "serve.room" or type(need) is not int or need < 0:
                        raise
                    self._output_bytes = need
                    continue
                with _readable():
                    self.release = answer["release"]
                    return {entry["name"]: _copy(memory, entry) for entry in answer["outputs"]}
            raise DeviceError("the server's outputs grow with every call", code="serve.room")

    def status(self) -> Dict[str, Any]:
        """The server's ``edgekit.serving/1`` (docs/serving.md)."""
        with self._lock:
            answer = self._request({"op": "status"})
            with _readable():
                found: Dict[str, Any] = answer["serving"]
                return found

    def close(self) -> None:
        """Ends the connection."""
        with self._lock:
            self._disconnect()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _arrays(self, inputs: Any) -> Dict[str, np.ndarray]:
        import numpy as np

        if not isinstance(inputs, Mapping):
            if len(self.inputs) != 1:
                raise DeviceError(
                    "the model has {} inputs, so it needs them by name".format(len(self.inputs)),
                    code="input.missing",
                    hint="pass a dict of {}".format(", ".join(e["name"] for e in self.inputs)),
                )
            inputs = {self.inputs[0]["name"]: inputs}
        found = {str(name): np.asarray(value) for name, value in inputs.items()}
        for name, value in found.items():
            if value.dtype.name not in DTYPES:
                raise DeviceError(
                    "{!r} is {}".format(name[:80], value.dtype), code="input.dtype", where=name[:80]
                )
        return found

    def _write(self, arrays: Dict[str, np.ndarray]) -> Tuple[Dict[str, Any], SharedMemory]:
        """Lays the inputs out in the memory, and leaves space for the outputs after them."""
        entries: List[Dict[str, Any]] = []
        offset = 0
        for name, value in arrays.items():
            shape = list(value.shape)
            entry = {"name": name, "dtype": value.dtype.name, "shape": shape, "offset": offset}
            entries.append(entry)
            offset += aligned(value.nbytes)
        memory = self._memory
        if memory is None or memory.nbytes < offset + self._output_bytes:
            made = SharedMemory(offset + self._output_bytes)
            if memory is not None:
                memory.close()
            memory = self._memory = made
        for position, value in enumerate(arrays.values()):
            entry = entries[position]
            if value.nbytes:
                _view(memory, entry)[...] = value
        output_space = {"offset": offset, "bytes": memory.nbytes - offset}
        return {"op": "run", "inputs": entries, "room": output_space}, memory

    def _request(self, head: Dict[str, Any]) -> Dict[str, Any]:
        """Sends a request without memory; again if the connection was closed meanwhile."""
        for _ in range(_TRIES):
            with contextlib.suppress(Closed):
                return self._exchange(head, None)
        raise self._gone()

    def _exchange(self, head: Dict[str, Any], memory: Optional[SharedMemory]) -> Dict[str, Any]:
        if self._peer is None:
            self._connect()
        assert self._peer is not None
        rights = [] if memory is None else [memory.descriptor]
        try:
            return exchange(self._peer, self._reader, dict(head, edgekit=VERSION), rights)
        except AnsweredError:
            raise
        except BaseException:
            self._disconnect()
            raise

    def _connect(self) -> None:
        path = socket_of(self._path) if self._path.is_dir() else self._path
        self._peer = connect_to(path, self._timeout_s)
        if self._peer is None:
            raise self._gone()

    def _disconnect(self) -> None:
        if self._peer is not None:
            self._peer.close()
            self._peer = None
        self._reader.close()
        self._reader = MessageReader()
        # a worker may still write there: what it writes must never be taken for a later answer
        if self._memory is not None:
            self._memory.close()
            self._memory = None

    def _gone(self) -> DeviceError:
        return DeviceError(
            "nothing serves here",
            code="serve.gone",
            where=str(self._path),
            hint="start it: edgekit_device serve --app NAME",
        )


@contextlib.contextmanager
def _readable() -> Iterator[None]:
    """What an answer lacks, or has of another kind, is the fault of who answered."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise DeviceError(
            "the server's answer is none of this protocol's: {!r}".format(error)[:200],
            code="serve.protocol", hint="is it another version's? end it and start it again",
        ) from error  # fmt: skip


def _size(entry: Mapping[str, Any]) -> int:
    count: int = DTYPES[entry["dtype"]]
    for size in entry["shape"]:
        count *= size
    return count


def _view(memory: SharedMemory, entry: Mapping[str, Any]) -> np.ndarray:
    import numpy as np

    raw = np.frombuffer(memory.view, np.uint8, _size(entry), entry["offset"])
    found: np.ndarray = raw.view(entry["dtype"]).reshape(entry["shape"])
    return found


def _copy(memory: SharedMemory, entry: Mapping[str, Any]) -> np.ndarray:
    import numpy as np

    if not _size(entry):
        return np.empty(entry["shape"], entry["dtype"])
    return _view(memory, entry).copy()
