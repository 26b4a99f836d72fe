"""The process below the server that holds a loaded release and answers one request at a time."""

from __future__ import annotations

import contextlib
import mmap
import os
import queue
import signal
import socket
import struct
import sys
import threading
import time
import traceback
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Dict, List, Optional, Sequence, Tuple, Union

from edgekit_device.errors import DeviceError
from edgekit_device.processes import end_with_parent
from edgekit_device.protocol.failure import Failure
from edgekit_device.protocol.manifest import TensorEntry, nbytes
from edgekit_device.protocol.server import (
    MAX_HEAD,
    Closed,
    MessageReader,
    frame_message,
    pack,
    parse_head,
    read_request,
)
from edgekit_device.protocol.serving import (
    FailedAnswer,
    PlacedTensor,
    Ready,
    RunAnswer,
    RunRequest,
    ServedTensor,
    ServedVariant,
)
from edgekit_device.release.releases import check_release, need_ready
from edgekit_device.serve.memory import (
    ALIGN,
    align,
    input_array,
    map_sealed,
    outside_error,
    tensor_view,
)
from edgekit_device.store.root import Root

if TYPE_CHECKING:
    from edgekit_device.runtime.model import Model


#: The code of a worker's process.
CODE = "from edgekit_device.serve.worker import main\nmain(sys.argv[1:])\n"

# precedes each head on its way to a worker: the client that owns the memory
_CLIENT = struct.Struct(">Q")
_MOST_TEXT = 2000


def frame(client: int, head: bytes) -> bytes:
    """Returns a client's request in the form that a worker reads; an empty head means that the
    client has disconnected.
    """
    return frame_message(_CLIENT.pack(client) + head)


def main(argv: List[str]) -> None:
    """Loads a release, reports success or the error, and answers until the server closes the
    socket.

    Args:
        argv: Descriptor of the socket, root, app, release, threads.
    """
    number, root, app, release, threads = argv
    end_with_parent()()
    # Ctrl-C and a reload are for the server, which closes the socket if it wants an end
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with socket.socket(fileno=int(number)) as peer:
        peer.setblocking(True)
        # a runtime's output belongs in the log
        os.dup2(2, 1)
        try:
            model = _load(Root(Path(root)), app, release, int(threads))
        except BaseException as error:
            peer.sendall(pack(_failed_answer(error)))
            return
        variants = tuple(
            ServedVariant(
                _served_tensors(variant.inputs), _served_tensors(variant.outputs), variant.profiles
            )
            for variant in (() if model.is_static else model.variants)
        )
        inputs, outputs = _served_tensors(model.inputs), _served_tensors(model.outputs)
        peer.sendall(pack(Ready(model.digest, inputs, outputs, variants)))
        with contextlib.suppress(Closed, OSError):
            _Answers(model, release).serve(peer)


def _load(root: Root, app: str, release: str, threads: int) -> Model:
    from edgekit_device.runtime.golden import self_test
    from edgekit_device.runtime.model import open_model

    folder = root.app(app).release(release)
    checked = check_release(root, folder)
    where = "{}/{}".format(app, release)
    need_ready(app, folder)
    model = open_model(checked, threads)
    # a single vector shows that it answers; deployments run all vectors
    if not self_test(model, checked, quick=True).ok:
        raise DeviceError(
            "outputs differ from the golden ones",
            code="selftest.failed",
            where=where,
            hint="run selftest; build the release again for this board",
        )
    return model


def _served_tensors(entries: Sequence[TensorEntry]) -> Tuple[ServedTensor, ...]:
    return tuple(ServedTensor(entry.name, entry.dtype, entry.shape) for entry in entries)


class _Answers:
    """Runs requests; keeps each client's memory mapped between them.

    A separate thread reads the socket, so that a disconnected client's memory is freed while the
    engine still runs, and the socket never fills up.
    """

    def __init__(self, model: Model, release: str) -> None:
        self.model = model
        self.release = release
        #: Bytes of the outputs; 0 if their size depends on the inputs.
        self._fixed = 0
        if model.is_static:
            self._fixed = sum(align(nbytes(t.dtype, t.shape)) for t in model.outputs)
        self.known: Dict[int, Tuple[Tuple[int, int], mmap.mmap]] = {}
        # a request's client, head and memory; no head: the client has left; None: the server ended
        self._incoming: "queue.SimpleQueue[Optional[Tuple[int, bytes, Optional[int]]]]" = (
            queue.SimpleQueue()
        )

    def serve(self, peer: socket.socket) -> None:
        """Answers until the server closes the socket."""
        threading.Thread(target=self._read, args=(peer,), daemon=True).start()
        while True:
            received = self._incoming.get()
            if received is None:
                return
            client, head, memory = received
            if not head:
                # again: the request that ran meanwhile has mapped its memory anew
                self.known.pop(client, None)
                continue
            answer: Union[RunAnswer, FailedAnswer]
            try:
                answer = self._answer(client, head, memory)
            except BaseException as error:
                answer = replace(_failed_answer(error), release=self.release)
            finally:
                if memory is not None:
                    os.close(memory)
            peer.sendall(pack(answer))

    def _read(self, peer: socket.socket) -> None:
        reader = MessageReader(_CLIENT.size + MAX_HEAD)
        with contextlib.suppress(Closed, OSError):
            while True:
                message = reader.wait(peer)
                (client,) = _CLIENT.unpack_from(message)
                head = message[_CLIENT.size :]
                if not head:
                    # at once: the engine may run for another client, and this memory is large
                    self.known.pop(client, None)
                self._incoming.put((client, head, reader.claim() if head else None))
        self._incoming.put(None)

    def _answer(self, client: int, data: bytes, descriptor: Optional[int]) -> RunAnswer:
        request = read_request(RunRequest, parse_head(data))
        start, end = request.space.offset, request.space.offset + request.space.bytes
        if descriptor is None:
            raise DeviceError("the request came without memory", code="serve.memory")
        memory = self._map(client, descriptor)
        # numbers from a client: checked against its own memory before any view is made
        if end > len(memory) or start % ALIGN:
            raise outside_error("room")
        inputs = {tensor.name: input_array(memory, tensor) for tensor in request.inputs}
        # known sizes are checked before the engine runs, others after
        if self._fixed:
            _check_space(start, end, self._fixed)
        began = time.perf_counter()
        results = self.model(inputs)
        spent = time.perf_counter() - began
        if not self._fixed:
            _check_space(start, end, sum(align(array.nbytes) for array in results.values()))
        outputs = []
        for tensor in self.model.outputs:
            array = results[tensor.name]
            placed = PlacedTensor(tensor.name, tensor.dtype, array.shape, start)
            tensor_view(memory, placed)[...] = array
            start += align(array.nbytes)
            outputs.append(placed)
        return RunAnswer(self.release, tuple(outputs), round(spent * 1e3, 4))

    def _map(self, client: int, descriptor: int) -> mmap.mmap:
        facts = os.fstat(descriptor)
        # while it is mapped, the file's inode number is not reused
        key = (facts.st_dev, facts.st_ino)
        known = self.known.get(client)
        if known is None or known[0] != key:
            known = self.known[client] = (key, map_sealed(descriptor))
        return known[1]


def _check_space(start: int, end: int, need: int) -> None:
    if start + need > end:
        raise _OutputsTooLarge(need)


class _OutputsTooLarge(DeviceError):
    """The error that the outputs do not fit in the given space."""

    def __init__(self, need: int) -> None:
        super().__init__(
            "the outputs need {} bytes of memory".format(need),
            code="serve.room",
            hint="send the request again with that much memory",
        )
        self.need = need


def _failed_answer(error: BaseException) -> FailedAnswer:
    """Returns an error's answer; cuts long messages of engines, since a head is bounded."""
    if isinstance(error, MemoryError):
        error = DeviceError("out of memory", code="board.no-memory")
    elif not isinstance(error, DeviceError):
        traceback.print_exc(file=sys.stderr)
        error = DeviceError(
            "the engine failed: {}: {}".format(type(error).__name__, error), code="engine.failed"
        )
    fields = (error.code, error.message, error.where, error.hint)
    need = error.need if isinstance(error, _OutputsTooLarge) else None
    return FailedAnswer(Failure(*(field[:_MOST_TEXT] for field in fields)), need)
