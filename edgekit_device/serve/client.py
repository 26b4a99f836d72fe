"""``connect``: a client of a server on this board, called like a loaded model."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    Dict,
    List,
    Mapping,
    Optional,
    Tuple,
    Type,
    TypeVar,
    Union,
)

from edgekit_device.errors import DeviceError
from edgekit_device.protocol.manifest import DTYPES, nbytes
from edgekit_device.protocol.server import (
    AnsweredError,
    Closed,
    MessageReader,
    connect_to,
    exchange,
    socket_path,
)
from edgekit_device.protocol.serving import (
    Description,
    MemoryRegion,
    PlacedTensor,
    Request,
    RunAnswer,
    RunRequest,
    ServedTensor,
    ServedVariant,
    ServingStatus,
    StatusAnswer,
)
from edgekit_device.serve.memory import SharedMemory, align, tensor_view

if TYPE_CHECKING:
    import numpy as np


_Answer = TypeVar("_Answer")

_TRIES = 2  # a server that was replaced between two calls is searched once more
_MOST_GROWTH = 4


def connect(path: Union[str, "os.PathLike[str]"], *, timeout_s: float = 30.0) -> Client:
    """Connects to the server of an app on this board.

    Args:
        path: Its socket, or the app's folder (``~/.edgekit/apps/NAME``).
        timeout_s: Seconds until a call gives up.

    Raises:
        DeviceError: "serve.gone" if no server runs there, "serve.refused", "serve.not-ready" or
            "serve.silent".
    """
    return Client(Path(os.path.expanduser(path)), timeout_s)


class Client:
    """A connection to a server; call it with inputs by name. Threads take turns.

    Attributes:
        release: Release that gave the last answer.
        digest: Digest of the release that served at the time of the connection.
        inputs: Name, dtype and shape of each input of that release.
        outputs: Name, dtype and shape of each output.
        variants: All its shapes, if it takes several.
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
            facts = self._request(Description, "describe")
            self.release: str = facts.release
            self.digest: str = facts.digest
            self.inputs: Tuple[ServedTensor, ...] = facts.inputs
            self.outputs: Tuple[ServedTensor, ...] = facts.outputs
            self.variants: Tuple[ServedVariant, ...] = facts.variants
            sides = (facts.outputs, *(variant.outputs for variant in facts.variants))
            # for the largest shape, so that a frame of another shape needs no new memory
            self._output_bytes = max(
                sum(align(nbytes(t.dtype, t.shape)) for t in outputs) for outputs in sides
            )
        except BaseException:
            self._disconnect()
            raise

    def __call__(
        self, inputs: Union[Mapping[str, np.ndarray], np.ndarray]
    ) -> Dict[str, np.ndarray]:
        """Runs one frame on the server.

        Args:
            inputs: Arrays by input name; a single array for a model with one input.

        Returns:
            Arrays by output name, owned by the caller.

        Raises:
            DeviceError: The model's error about its inputs ("input.*"), the engine's error, or
                "serve.busy", "serve.timeout", "serve.crashed", "serve.stopping", "serve.gone",
                "serve.silent".
        """
        with self._lock:
            arrays = self._check_arrays(inputs)
            left = _TRIES
            # bounds releases that are switched during the call and data-dependent sizes
            for _ in range(_MOST_GROWTH):
                request, memory = self._write(arrays)
                try:
                    # the descriptor goes along each time; a worker maps a known file once
                    answer = self._exchange(RunAnswer, request, memory)
                except Closed:
                    # inference has no side effects, so it may be repeated
                    left -= 1
                    if not left:
                        raise self._not_running_error() from None
                    continue
                except AnsweredError as error:
                    # a release with larger outputs serves now
                    if error.code != "serve.room" or error.answer.bytes is None:
                        raise
                    self._output_bytes = error.answer.bytes
                    continue
                self.release = answer.release
                return {
                    # copied: the next call writes into the same memory
                    tensor.name: tensor_view(memory.view, tensor).copy()
                    for tensor in answer.outputs
                }
            raise DeviceError("the server's outputs grow with every call", code="serve.room")

    def status(self) -> ServingStatus:
        """Returns the server's ``edgekit.serving/1`` (docs/serving.md)."""
        with self._lock:
            return self._request(StatusAnswer, "status").serving

    def close(self) -> None:
        """Closes the connection."""
        with self._lock:
            self._disconnect()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _check_arrays(self, inputs: Any) -> Dict[str, np.ndarray]:
        import numpy as np

        if not isinstance(inputs, Mapping):
            if len(self.inputs) != 1:
                raise DeviceError(
                    "the model has {} inputs, so give them by name".format(len(self.inputs)),
                    code="input.missing",
                    hint="pass a dict of {}".format(
                        ", ".join(tensor.name for tensor in self.inputs)
                    ),
                )
            inputs = {self.inputs[0].name: inputs}
        found = {str(name): np.asarray(value) for name, value in inputs.items()}
        for name, value in found.items():
            if value.dtype.name not in DTYPES:
                raise DeviceError(
                    "{!r} is {}".format(name[:80], value.dtype), code="input.dtype", where=name[:80]
                )
        return found

    def _write(self, arrays: Dict[str, np.ndarray]) -> Tuple[RunRequest, SharedMemory]:
        """Writes the inputs to the shared memory, with space for the outputs after them."""
        entries: List[PlacedTensor] = []
        offset = 0
        for name, value in arrays.items():
            entries.append(PlacedTensor(name, value.dtype.name, value.shape, offset))
            offset += align(value.nbytes)
        memory = self._memory
        if memory is None or memory.nbytes < offset + self._output_bytes:
            made = SharedMemory(offset + self._output_bytes)
            # after the new memory was made: a failure leaves the client usable
            if memory is not None:
                memory.close()
            memory = self._memory = made
        for entry, value in zip(entries, arrays.values()):  # noqa: B905 (3.8)
            tensor_view(memory.view, entry)[...] = value
        space = MemoryRegion(offset, memory.nbytes - offset)
        return RunRequest(tuple(entries), space), memory

    def _request(self, kind: Type[_Answer], op: str) -> _Answer:
        """Sends a request without memory; repeats it if the connection was closed meanwhile."""
        for _ in range(_TRIES):
            with contextlib.suppress(Closed):
                return self._exchange(kind, Request(op), None)
        raise self._not_running_error()

    def _exchange(
        self, kind: Type[_Answer], request: Any, memory: Optional[SharedMemory]
    ) -> _Answer:
        if self._peer is None:
            path = socket_path(self._path) if self._path.is_dir() else self._path
            self._peer = connect_to(path, self._timeout_s)
            if self._peer is None:
                raise self._not_running_error()
        rights = [] if memory is None else [memory.descriptor]
        try:
            return exchange(kind, self._peer, self._reader, request, rights)
        except AnsweredError:
            raise
        except BaseException:
            self._disconnect()
            raise

    def _disconnect(self) -> None:
        if self._peer is not None:
            self._peer.close()
            self._peer = None
        self._reader.close()
        self._reader = MessageReader()
        # a worker may still write there: its bytes must not be taken for a later answer
        if self._memory is not None:
            self._memory.close()
            self._memory = None

    def _not_running_error(self) -> DeviceError:
        return DeviceError(
            "no server is running here",
            code="serve.gone",
            where=str(self._path),
            hint="start one: edgekit_device serve --app NAME",
        )
