"""A lane's plans at fixed addresses, as a CUDA graph or a run without transfers requires.

Like trtexec: inputs are in pinned memory, packed in the engine's format. A frame consists of their
copies, the engines one after the other on one stream, and the outputs' copies to pinned memory.
The host converts no data meanwhile.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Sequence, Tuple

from edgekit_device.arrays.formats import convert, pack, unpack
from edgekit_device.cuda.driver import Cuda, CudaGraph
from edgekit_device.cuda.memory import BufferPool, DeviceTensor, MemoryLease, at_shape, io_bytes
from edgekit_device.errors import DeviceError
from edgekit_device.protocol.manifest import IoEntry
from edgekit_device.runtime.pipeline import LaneRun, SegmentEvent
from edgekit_device.tensorrt.engine import HeldContext

if TYPE_CHECKING:
    import numpy as np

    from edgekit_device.runtime.model import Model


def find_obstacle(model: Model, *, graph: bool) -> str:
    """Returns why the model cannot run at fixed addresses, or as a CUDA graph; "" if it can."""
    segments = [segment for lane in model.lanes for segment in lane.segments]
    if graph:
        on_dla = sorted({segment.device for segment in segments if segment.core is not None})
        if on_dla:
            # trtexec: "CUDA graphs and DLA offloading are not simultaneously supported"
            return "a CUDA graph cannot contain layers on {}".format(" and ".join(on_dla))
    for segment in segments:
        engine = model.engines[segment.engine, segment.device]
        if not hasattr(engine, "hold_context"):
            return "segment {} on {} is not a TensorRT plan".format(segment.index, segment.device)
        # its outputs are allocated while it runs, so no address is fixed
        if engine.unsized:
            return "the size of {!r} depends on values".format(engine.unsized[0][:80])
    return ""


class FixedLane:
    """A lane with its own stream, contexts and buffers, for a single thread.

    Args:
        model: Its model; ``find_obstacle`` returns "" for it.
        lane: The lane.
        frames: Checked inputs; they are cycled.
        cuda: The device.
        graph: True to launch the engines' work as a CUDA graph.
        transfers: True to copy each frame to the device and back.

    Raises:
        DeviceError: "bench.graph" if it cannot be captured, "bench.fixed" if a segment would have
            to convert another segment's output; "engine.*", "cuda.*".
    """

    def __init__(
        self,
        model: Model,
        lane: LaneRun,
        frames: Sequence[Dict[str, np.ndarray]],
        cuda: Cuda,
        *,
        graph: bool,
        transfers: bool,
    ) -> None:
        self._cuda = cuda
        self._lane = lane
        self._transfers = transfers
        self._pinned = BufferPool(cuda, pinned=True)
        self._device = BufferPool(cuda, staging=self._pinned)
        self._inputs: List[Tuple[int, List[MemoryLease]]] = []
        # an input that several engines read in the same format is copied once
        self._known: Dict[IoEntry, DeviceTensor] = {}
        self._graph: Optional[CudaGraph] = None
        self._open = ExitStack()
        self._stream = cuda.stream()
        self._open.callback(cuda.destroy_stream, self._stream)
        try:
            self._contexts = self._open_contexts(model, lane, frames)
            self._outputs_back = [
                (name, self._tensors[name], self._pinned.take(self._tensors[name].nbytes))
                for name in lane.outputs
            ]
            # the first enqueue of a context initialises it and must not be captured
            self._upload(0)
            self._execute()
            cuda.synchronize(self._stream)
            if graph:
                self._graph = self._capture()
        except BaseException:
            self.close()
            raise

    def _open_contexts(
        self, model: Model, lane: LaneRun, frames: Sequence[Dict[str, np.ndarray]]
    ) -> List[HeldContext]:
        contexts: List[HeldContext] = []
        self._tensors: Dict[str, Any] = {}
        for segment in lane.segments:
            engine = model.engines[segment.engine, segment.device]
            where = "segment {} on {}".format(segment.index, segment.device)
            feeds = {}
            for io in engine.inputs:
                made = self._tensors.get(io.name)
                if made is None:
                    made = self._place_input(io, frames)
                # both engines use the same memory, so their formats must match exactly
                elif (made.dtype, made.format, made.scale) != (io.dtype, io.format, io.scale) or (
                    io.format != "LINEAR" and made.strides != tuple(io.strides)
                ):
                    raise DeviceError(
                        "{!r} is written as {} {} and read as {} {}".format(
                            io.name[:80], made.dtype, made.format, io.dtype, io.format
                        ),
                        code="bench.fixed",
                        where=where,
                        hint="measure without a CUDA graph and with transfers",
                    )
                feeds[io.name] = made
            contexts.append(self._open.enter_context(engine.hold_context(feeds, where)))
            for name in segment.outputs:
                self._tensors[name] = contexts[-1].outputs[name]
        return contexts

    def _place_input(self, io: IoEntry, frames: Sequence[Dict[str, np.ndarray]]) -> DeviceTensor:
        """Returns device memory for an input of the network; puts each frame's bytes in pinned
        memory.
        """
        import numpy as np

        io = at_shape(io, frames[0][io.name].shape)
        known = self._known.get(io)
        if known is not None:
            return known
        place = self._device.take(io_bytes(io))
        pinned = []
        for frame in frames:
            stored = pack(
                convert(frame[io.name], io.dtype, None, io.scale, io.name), io.format, io.strides
            )
            pinned.append(self._pinned.take(stored.nbytes))
            # packed before the measurement, as trtexec fills its input buffers
            pinned[-1].array()[:] = np.ascontiguousarray(stored).reshape(-1).view(np.uint8)
        self._inputs.append((place.ptr, pinned))
        made = self._known[io] = DeviceTensor(
            place.ptr, place.nbytes, io.dtype, io.shape, io.format, io.strides, io.scale, place
        )
        return made

    def _capture(self) -> CudaGraph:
        try:
            return CudaGraph(self._cuda, self._stream, self._execute)
        except DeviceError as error:
            raise DeviceError(
                "the engine cannot be captured as a CUDA graph: {}".format(error.message),
                code="bench.graph",
                where=error.where,
                hint="measure without --graph",
            ) from error

    def frame(
        self, index: int, number: int = 0, record: Optional[Callable[[SegmentEvent], None]] = None
    ) -> None:
        """Runs a frame and waits for it.

        Args:
            index: Index among the frames.
            number: Its number for ``record``.
            record: Called with each segment's run, if each has its own event pair.
        """
        if self._transfers:
            self._upload(index)
        start = time.perf_counter()
        pairs = self._execute()
        if self._transfers:
            for _, tensor, pinned in self._outputs_back:
                self._cuda.copy(pinned.ptr, tensor.ptr, tensor.nbytes, "d2h", self._stream)
        self._cuda.synchronize(self._stream)
        # with a graph or without events there is no pair for each segment
        if record is not None and len(pairs) == len(self._lane.segments):
            self._record_segments(number, start, pairs, record)

    def results(self) -> Dict[str, np.ndarray]:
        """Returns the last frame's outputs, if they were copied."""
        found = {}
        for name, tensor, pinned in self._outputs_back:
            array = unpack(
                pinned.array(), tensor.shape, tensor.dtype, tensor.format, tensor.strides
            )
            wanted = self._lane.dtypes.get(name, tensor.dtype)
            found[name] = convert(array, wanted, tensor.scale, None)
        return found

    def _upload(self, index: int) -> None:
        for ptr, pinned in self._inputs:
            staged = pinned[index]
            self._cuda.copy(ptr, staged.ptr, staged.nbytes, "h2d", self._stream)

    def _execute(self) -> List[Tuple[int, int]]:
        """Enqueues the engines; returns the events around each engine, or around the graph."""
        marks = self._cuda.marks
        if self._graph:
            # a graph is launched as a whole: single engines have no events of their own
            works: List[Callable[[], None]] = [self._graph.launch]
        else:
            works = [partial(context.enqueue, self._stream) for context in self._contexts]
        if marks is None:
            for work in works:
                work()
            return []
        pairs = []
        for work in works:
            first, last = marks.pair("compute")
            self._cuda.record(first, self._stream)
            called = time.perf_counter()
            work()
            marks.add_enqueue(time.perf_counter() - called)
            self._cuda.record(last, self._stream)
            pairs.append((first, last))
        return pairs

    def _record_segments(
        self,
        number: int,
        start: float,
        pairs: List[Tuple[int, int]],
        record: Callable[[SegmentEvent], None],
    ) -> None:
        lane = self._lane
        for segment, (first, last) in zip(lane.segments, pairs):  # noqa: B905 (Python 3.8)
            # the host's time of the first launch is the zero of the device's clock here
            began = start + self._cuda.elapsed_ms(pairs[0][0], first) / 1e3
            spent = self._cuda.elapsed_ms(first, last)
            ended = began + spent / 1e3
            record(
                SegmentEvent(
                    number, lane.number, segment.index, segment.device, began, ended, spent
                )
            )

    def close(self) -> None:
        """Releases contexts and memory."""
        self._graph = None
        self._open.close()
