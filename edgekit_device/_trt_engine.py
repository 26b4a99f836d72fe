"""A TensorRT engine that runs: contexts with their streams and buffers, one for each run at a time.

A run copies host arrays through pinned memory, packs them into the input's format, enqueues on the
context's stream and waits for it: what it returns is there. Between segments tensors stay on the
device. Times are CUDA events around the enqueued work, without the copies.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager, suppress
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from ._cuda import Cuda
from ._errors import DeviceError
from ._tensor import DeviceTensor
from ._trt_feed import Feeder, Tensor, at_shape
from ._trt_held import Held
from ._trt_io import check_strides, io_bytes
from ._trt_load import Loaded
from ._trt_profile import LayerTimes, profiler
from ._trt_profiles import Profiles
from ._trt_sizes import check_sizes, settled
from ._types import IoEntry, SegmentEntry

__all__ = ["Engine"]


_FAILED = "a segment failed"


class _Slot:
    """A context, its stream and events; used by one run at a time."""

    def __init__(self, cuda: Cuda, context: Any) -> None:
        self.context = context
        self.stream = cuda.stream()
        self.begin, self.end = cuda.event(), cuda.event()
        self.profile = 0


class Engine:
    """An engine with its inputs and outputs; safe to run from several threads.

    Attributes:
        inputs: Its inputs; axes of -1 take the shape of what is fed.
        outputs: Its outputs.
        notes: What is doubtful about how it runs here.
        cuda: The device.
        facts: What runs it and how (``Loaded``).
    """

    def __init__(
        self,
        loaded: Loaded,
        cuda: Cuda,
        inputs: Sequence[IoEntry],
        outputs: Sequence[IoEntry],
        *,
        profile: bool = False,
        notes: Sequence[str] = (),
    ) -> None:
        self.notes = tuple(notes)
        self.facts = dict(loaded.facts)
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        self._loaded = loaded
        self.cuda = cuda
        self._feeder = Feeder(cuda)
        engine = loaded.engine
        self._profiles = Profiles(engine, self.inputs)
        self._slots: List[_Slot] = []
        self._lock = threading.Lock()
        self._times = threading.local()
        self._profiler: Any = None
        self._layers: Optional[LayerTimes] = None
        if profile:
            self._profiler, self._layers = profiler(loaded.trt)
        # the first context now: what cannot run is told when the engine is opened
        first = self._make(0)
        self._give(first)
        check_sizes(engine, first.context, inputs, outputs)
        check_strides(engine, first.context, [*inputs, *outputs])

    def run(self, segment: SegmentEntry, feeds: Mapping[str, Tensor]) -> Dict[str, Tensor]:
        """Runs the segment.

        Args:
            segment: Which outputs are wanted.
            feeds: Inputs by name: arrays, or tensors on the device.

        Returns:
            Tensors on the device by output name.

        Raises:
            DeviceError: "engine.failed", "input.shape" or "cuda.*".
        """
        where = "segment {} on {}".format(segment.index, segment.device)
        made = self.enqueue(feeds, where)
        return {name: made[name] for name in segment.outputs}

    def enqueue(self, feeds: Mapping[str, Tensor], where: str = "") -> Dict[str, Tensor]:
        """Runs once and returns every output."""
        profile, shapes = self._profiles.of(feeds)
        slot = self._take(profile)
        keep: List[Any] = []
        marks = self.cuda.marks
        begin, end = (slot.begin, slot.end) if marks is None else marks.pair("compute")
        try:
            results = self._bind(slot, feeds, shapes, keep, where)
            self.cuda.record(begin, slot.stream)
            called = time.perf_counter()
            self._execute(slot, where)
            if marks is not None:
                marks.enqueued(time.perf_counter() - called)
            self.cuda.record(end, slot.stream)
            self.cuda.synchronize(slot.stream)
            self._times.ms = self.cuda.elapsed_ms(begin, end)
        except BaseException:
            # copies may be on their way: their memory must not be another frame's yet
            with suppress(DeviceError):
                self.cuda.synchronize(slot.stream)
            raise
        finally:
            self._give(slot)
        del keep
        return results

    @contextmanager
    def held(self, feeds: Mapping[str, Tensor], where: str = "") -> Iterator[Held]:
        """A context for the block alone, whose inputs lie where ``feeds`` are and stay there.

        Raises:
            DeviceError: As for a run.
        """
        profile, shapes = self._profiles.of(feeds)
        slot = self._take(profile)
        keep: List[Any] = []
        try:
            results = self._bind(slot, feeds, shapes, keep, where)
            self.cuda.synchronize(slot.stream)
            yield Held(
                slot.context,
                results,
                lambda: self._loaded.ears.error(_FAILED, "engine.failed", where),
            )
        finally:
            self._give(slot)

    def _bind(
        self,
        slot: _Slot,
        feeds: Mapping[str, Tensor],
        shapes: Mapping[str, Tuple[int, ...]],
        keep: List[Any],
        where: str,
    ) -> Dict[str, Tensor]:
        for io in self.inputs:
            if io.name in self._profiles.dynamic:
                self._shape(slot, io.name, shapes[io.name], where)
            now = at_shape(io, shapes[io.name])
            address = self._feeder.put(now, feeds[io.name], slot.stream, keep)
            self._set(slot, io.name, address, where)
        results: Dict[str, Tensor] = {}
        for io in self.outputs:
            tensor = self._output(io, settled(io, slot.context.get_tensor_shape(io.name)))
            self._set(slot, io.name, tensor.ptr, where)
            results[io.name] = tensor
        return results

    def gpu_ms(self) -> Optional[float]:
        """Milliseconds of this thread's last run by CUDA's events."""
        return getattr(self._times, "ms", None)

    def node_times(self) -> List[Tuple[str, str, List[float]]]:
        """Layers as (name, "", microseconds of each run); empty unless opened for profiling.

        The first run, which is cold, is left out. A loadable's own time shows in the layer that
        waits for it, not in its ForeignNode.
        """
        return [] if self._layers is None else self._layers.warm()

    def _output(self, io: IoEntry, shape: Tuple[int, ...]) -> DeviceTensor:
        lease = self._feeder.device.take(io_bytes(at_shape(io, shape)))
        return DeviceTensor(
            lease.ptr, lease.nbytes, io.dtype, shape, io.format, io.strides, io.scale, lease
        )

    def _set(self, slot: _Slot, name: str, address: int, where: str) -> None:
        if not slot.context.set_tensor_address(name, address):
            raise self._loaded.ears.error(
                "TensorRT takes no buffer for {!r}".format(name[:80]), "engine.failed", where
            )

    def _shape(self, slot: _Slot, name: str, shape: Tuple[int, ...], where: str) -> None:
        if not slot.context.set_input_shape(name, shape):
            raise self._loaded.ears.error(
                "TensorRT takes no {} of the shape {}".format(name[:80], list(shape)),
                "input.shape",
                where,
            )

    def _execute(self, slot: _Slot, where: str) -> None:
        if not slot.context.execute_async_v3(slot.stream):
            raise self._loaded.ears.error(_FAILED, "engine.failed", where)

    def _take(self, profile: int) -> _Slot:
        with self._lock:
            for slot in self._slots:
                if slot.profile == profile:
                    self._slots.remove(slot)
                    return slot
        return self._make(profile)

    def _give(self, slot: _Slot) -> None:
        with self._lock:
            self._slots.append(slot)

    def _make(self, profile: int) -> _Slot:
        ears = self._loaded.ears
        self.cuda.bind()
        ears.forget()
        context = self._loaded.engine.create_execution_context()
        if context is None:
            raise ears.error("TensorRT makes no execution context", "tensorrt.no-memory")
        slot = _Slot(self.cuda, context)
        context.error_recorder = ears.recorder
        if profile:
            if not context.set_optimization_profile_async(profile, slot.stream):
                raise ears.error("the profile {} is not there".format(profile), "engine.failed")
            self.cuda.synchronize(slot.stream)
            slot.profile = profile
        if self._profiler is not None:
            context.profiler = self._profiler
        return slot

    def __del__(self) -> None:
        for slot in getattr(self, "_slots", []):
            try:
                self.cuda.destroy_event(slot.begin)
                self.cuda.destroy_event(slot.end)
                self.cuda.destroy_stream(slot.stream)
            except Exception:  # at the process's end the context may be gone already
                return
