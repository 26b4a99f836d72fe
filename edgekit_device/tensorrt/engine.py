"""A TensorRT engine at run time: its inputs and outputs according to TensorRT and the manifest,
contexts with their streams and buffers (one for each concurrent run), optimisation profiles, sizes
of outputs, and times by layer.
"""

from __future__ import annotations

import re
import threading
import time
from contextlib import contextmanager, suppress
from typing import (
    Any,
    Callable,
    Dict,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Set,
    Tuple,
)

from edgekit_device.arrays.formats import as_nchw, stored_shape
from edgekit_device.cuda.driver import Cuda
from edgekit_device.cuda.memory import (
    DeviceTensor,
    Feeder,
    Tensor,
    at_shape,
    io_bytes,
)
from edgekit_device.errors import DeviceError
from edgekit_device.protocol.manifest import DTYPES, IoEntry, SegmentEntry
from edgekit_device.tensorrt.memory import EngineMemory
from edgekit_device.tensorrt.runtimes import LoadedPlan
from edgekit_device.tensorrt.sizes import (
    Profiles,
    SizedOutput,
    final_shape,
    host_values,
    is_on_host,
)

#: NumPy's names by DataType's; NumPy has no name for other types.
NUMPY_TYPES = {
    "FLOAT": "float32",
    "HALF": "float16",
    "INT8": "int8",
    "INT32": "int32",
    "INT64": "int64",
    "BOOL": "bool",
    "UINT8": "uint8",
}

# get_tensor_format_desc: the name in brackets if there is one, else the start of the text
_NAMED = re.compile(r"\(k([A-Z0-9_]+)\)")
_BEGINNINGS = {
    "Row major linear": "LINEAR",
    "Two wide channel": "CHW2",
    "Four wide channel": "CHW4",
    "Sixteen wide channel": "CHW16",
    "Thirty-two wide channel": "CHW32",
}

# formats whose channels are contiguous
_INNERMOST = ("HWC", "HWC8", "HWC16", "DLA_HWC4")
_FAILED = "a segment failed"


def io_names(engine: Any) -> Tuple[List[str], List[str]]:
    """Returns the names of inputs and of outputs, in the engine's order."""
    inputs: List[str] = []
    outputs: List[str] = []
    for index in range(int(engine.num_io_tensors)):
        name = str(engine.get_tensor_name(index))
        (inputs if engine.get_tensor_mode(name).name == "INPUT" else outputs).append(name)
    return inputs, outputs


def describe_io(engine: Any, context: Any, name: str, scale: Optional[float] = None) -> IoEntry:
    """Describes an input or output of an engine without a manifest.

    Raises:
        DeviceError: "engine.io" for a type or format that this loader cannot handle.
    """
    kind = engine.get_tensor_dtype(name).name
    if kind not in NUMPY_TYPES:
        raise DeviceError(
            "{!r} has TensorRT type {}, which NumPy does not support".format(name[:80], kind),
            code="engine.io",
            where=name[:80],
            hint="build the engine with float32 inputs and outputs",
        )
    dtype = NUMPY_TYPES[kind]
    format = _format(engine, name) or "LINEAR"
    shape = tuple(int(size) for size in engine.get_tensor_shape(name))
    if format == "LINEAR" or -1 in shape:
        return IoEntry(name, dtype, shape, format, _dense_strides(dtype, shape), scale)
    # only the context knows the padding of a DLA's formats
    strides = _strides(engine, context, name, dtype, format)
    return IoEntry(name, dtype, shape, format, strides, scale)


def check_io(engine: Any, wanted: Sequence[IoEntry], where: str) -> None:
    """Compares the manifest's inputs and outputs with the engine's.

    Raises:
        DeviceError: "engine.io", naming every difference.
    """
    inputs, outputs = io_names(engine)
    faults = []
    manifest_names = {io.name for io in wanted}
    for name in inputs + outputs:
        if name not in manifest_names:
            faults.append("the manifest has no {!r}".format(name[:80]))
    for io in wanted:
        if io.name not in inputs + outputs:
            faults.append("the engine has no {!r}".format(io.name[:80]))
            continue
        kind = engine.get_tensor_dtype(io.name).name
        shape = tuple(int(size) for size in engine.get_tensor_shape(io.name))
        declared = io.shape
        if -1 in shape and len(shape) == len(declared):
            # a dynamic axis takes the manifest's size, within the profile
            declared = tuple(-1 if s == -1 else w for s, w in zip(shape, declared))  # noqa: B905
        # an unknown format cannot be compared; ``check_strides`` still finds another layout
        format = _format(engine, io.name) or io.format
        for what, found, said in (
            ("type", NUMPY_TYPES.get(kind, kind), io.dtype),
            ("shape", shape, declared),
            ("format", format, io.format),
        ):
            if found != said:
                faults.append(
                    "{!r} has the {} {}, but the manifest has {}".format(
                        io.name[:80], what, found, said
                    )
                )
    if faults:
        raise DeviceError(
            "the engine's inputs or outputs differ from the manifest's: {}".format(
                "; ".join(faults)
            ),
            code="engine.io",
            where=where,
            hint="build the bundle again",
        )


def check_strides(engine: Any, context: Any, wanted: Sequence[IoEntry]) -> None:
    """Compares the strides of inputs and outputs with the context's.

    The manifest's strides come from formulas: with wrong strides the engine would read or write at
    wrong addresses. Strides of axes with one element are ignored; unset shapes have no strides.

    Raises:
        DeviceError: "engine.io", naming every difference.
    """
    faults = []
    for io in wanted:
        if -1 in tuple(engine.get_tensor_shape(io.name)):
            continue
        # number of steps along each axis: the stride of an axis with one step is never used
        sizes = list(io.shape)
        if io.format != "LINEAR":
            sizes = list(as_nchw(io.shape))
            stored = stored_shape(io.shape, DTYPES[io.dtype], io.format, io.strides)
            sizes[1] = 1 if io.format in _INNERMOST else stored[1]
        found = _strides(engine, context, io.name, io.dtype, io.format)
        pairs = zip(sizes, io.strides, found)  # noqa: B905
        if len(found) != len(io.strides) or any(n > 1 and a != b for n, a, b in pairs):
            faults.append(
                "{!r} has the strides {} as {}, but the manifest has {}".format(
                    io.name[:80], list(found), io.format, list(io.strides)
                )
            )
    if faults:
        raise DeviceError(
            "the engine's inputs or outputs have another memory layout: {}".format(
                "; ".join(faults)
            ),
            code="engine.io",
            hint="build with LINEAR inputs and outputs, and report this: the board uses "
            "another layout for this format than documented",
        )


def _strides(engine: Any, context: Any, name: str, dtype: str, format: str) -> Tuple[int, ...]:
    """Returns a context's strides in bytes, as in manifests.

    TensorRT counts vectors "for a vectorized format": "for TensorFormat::kHWC8, a stride of one
    spans 8 scalars" (getTensorStrides, NvInferRuntime.h); the result's stride along C counts
    channels if they are contiguous.
    """
    size = DTYPES[dtype]
    parts = int(engine.get_tensor_components_per_element(name))
    step = size * parts if parts > 0 and format != "LINEAR" else size
    strides = [int(each) for each in context.get_tensor_strides(name)]
    if format == "DLA_HWC4" and strides[-1] != 1:
        step = size  # undocumented if this format counts as vectorized: assumed not
    found = [each * step for each in strides]
    if format == "LINEAR":
        return tuple(found)
    # leading axes that the tensor lacks have one element: any stride is valid
    found = [0] * (4 - len(found)) + found[-4:]
    if format in _INNERMOST:
        # TensorRT's stride along C counts vectors, the manifest's counts channels
        found[1] = size
    return tuple(found)


def _format(engine: Any, name: str) -> Optional[str]:
    """Returns TensorRT's name of a format; None if this runtime does not report it."""
    try:
        return str(engine.get_tensor_format(name).name)
    except TypeError:
        pass  # the lean runtime's module lacks the enum's type
    text = str(engine.get_tensor_format_desc(name))
    match = _NAMED.search(text)
    if match:
        return match.group(1)
    for beginning, format in _BEGINNINGS.items():
        if text.startswith(beginning):
            return format
    return None


def _dense_strides(dtype: str, shape: Sequence[int]) -> Tuple[int, ...]:
    found: List[int] = []
    step = DTYPES[dtype]
    for size in reversed(shape):
        found.insert(0, step)
        step *= max(size, 1)
    return tuple(found)


class LayerTimes:
    """Milliseconds of each layer's runs, in the order in which layers were first reported."""

    def __init__(self) -> None:
        self._times: Dict[str, List[float]] = {}
        self._lock = threading.Lock()

    def add(self, name: str, milliseconds: float) -> None:
        """Records a report."""
        with self._lock:
            self._times.setdefault(name, []).append(milliseconds)

    def warm(self) -> List[Tuple[str, str, List[float]]]:
        """Returns (name, "", microseconds), without each layer's first run if it has others."""
        with self._lock:
            return [
                (name, "", [1e3 * ms for ms in times[1:] or times])
                for name, times in self._times.items()
            ]


def make_profiler(trt: Any) -> Tuple[Any, LayerTimes]:
    """Makes a profiler for ``context.profiler``; returns it with its times. Keep both alive."""
    times = LayerTimes()

    class Profiler(trt.IProfiler):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.IProfiler.__init__(self)

        def report_layer_time(self, layer_name: str, ms: float) -> None:
            times.add(str(layer_name), float(ms))

    return Profiler(), times


class HeldContext(NamedTuple):
    """A context for the caller alone, with all addresses set.

    Attributes:
        context: TensorRT's context.
        outputs: The tensors of its outputs on the device.
        error: Returns the error of a failed run.
    """

    context: Any
    outputs: Dict[str, Tensor]
    error: Callable[[], DeviceError]

    def enqueue(self, stream: int) -> None:
        """Enqueues the context on a stream.

        Raises:
            DeviceError: "engine.failed".
        """
        if not self.context.execute_async_v3(stream):
            raise self.error()


class _ContextSlot:
    """A context, its stream and events; used by one run at a time."""

    def __init__(self, cuda: Cuda, context: Any) -> None:
        self.context = context
        self.stream = cuda.stream()
        self.begin, self.end = cuda.event(), cuda.event()
        self.profile = 0
        #: Bytes of each tensor with open sizes, at the profile's largest sizes.
        self.most: Dict[str, int] = {}
        self.sized: Dict[str, SizedOutput] = {}


class TensorRTEngine:
    """An engine with its inputs and outputs; safe to run from several threads.

    A run copies host arrays through pinned memory, packs them into the input's format, enqueues
    on the context's stream and waits for it: its results are complete. Between segments tensors
    stay on the device. Times are CUDA events around the enqueued work, without the copies.

    Attributes:
        inputs: Its inputs; axes of -1 take the size of the given tensor.
        outputs: Its outputs.
        notes: Sentences about possible problems on this board.
        cuda: The device.
        facts: Its runtime and settings.
        unsized: Names of outputs whose size depends on input values.
    """

    def __init__(
        self,
        loaded: LoadedPlan,
        cuda: Cuda,
        inputs: Sequence[IoEntry],
        outputs: Sequence[IoEntry],
        *,
        profile: bool = False,
        notes: Sequence[str] = (),
        memory: Optional[EngineMemory] = None,
    ) -> None:
        self.notes = tuple(notes)
        self._memory = EngineMemory(loaded) if memory is None else memory
        self.facts = self._memory.facts(loaded.facts)
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        self._loaded = loaded
        self.cuda = cuda
        self._feeder = Feeder(cuda)
        engine = loaded.engine
        self._profiles = Profiles(engine, self.inputs)
        self._host = {io.name for io in (*inputs, *outputs) if is_on_host(engine, io.name)}
        self._slots: List[_ContextSlot] = []
        # guards idle slots and the counts of contexts; notified when a slot becomes idle
        self._lock = threading.Condition()
        #: Number of contexts of each profile, and the profiles limited to a single context.
        self._made: Dict[int, int] = {}
        self._alone: Set[int] = set()
        # a caller asks for its own run's time while other threads run, too
        self._times = threading.local()
        self._profiler: Any = None
        self._layers: Optional[LayerTimes] = None
        if profile:
            self._profiler, self._layers = make_profiler(loaded.trt)
        # the first context now: an engine that cannot run fails when it is opened
        first = self._make(0)
        self._give(first)
        self.unsized: Tuple[str, ...] = ()
        if not self._host:
            # with every input's shape set, a remaining -1 depends on values
            self._largest(first.context, 0)
            self.unsized = tuple(
                io.name for io in outputs if -1 in tuple(first.context.get_tensor_shape(io.name))
            )
        check_strides(engine, first.context, [*inputs, *outputs])

    def run(self, segment: SegmentEntry, feeds: Mapping[str, Tensor]) -> Dict[str, Tensor]:
        """Runs the segment.

        Args:
            segment: The segment, which determines the wanted outputs.
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
        """Runs once and returns every output: tensors on the device, or arrays for outputs that
        TensorRT writes on the host.
        """
        profile, shapes = self._profiles.of(feeds)
        # host copies and leases that the device still reads; released after the stream has finished
        keep: List[Any] = []
        marks = self.cuda.marks
        with self._slot(profile) as slot:
            # a trace reads its events after many runs, so each run of a trace has its own pair
            begin, end = (slot.begin, slot.end) if marks is None else marks.pair("compute")
            try:
                results = self._bind(slot, feeds, shapes, keep, where)
                self.cuda.record(begin, slot.stream)
                called = time.perf_counter()
                if not slot.context.execute_async_v3(slot.stream):
                    # the allocator's own error is the cause; TensorRT reports only the failed run
                    allocation_errors = [
                        output.error for output in slot.sized.values() if output.error is not None
                    ]
                    raise (
                        allocation_errors[0]
                        if allocation_errors
                        else self._loaded.listener.error(_FAILED, "engine.failed", where)
                    )
                if marks is not None:
                    marks.add_enqueue(time.perf_counter() - called)
                self.cuda.record(end, slot.stream)
                self.cuda.synchronize(slot.stream)
                self._times.ms = self.cuda.elapsed_ms(begin, end)
                # outputs whose shape TensorRT reported during the run
                for io in self.outputs:
                    if io.name not in results:
                        results[io.name] = slot.sized[io.name].tensor(io)
            except BaseException:
                # copies may be in progress: another frame must not use their memory yet
                with suppress(DeviceError):
                    self.cuda.synchronize(slot.stream)
                raise
        del keep
        return results

    @contextmanager
    def hold_context(self, feeds: Mapping[str, Tensor], where: str = "") -> Iterator[HeldContext]:
        """Yields a context for the block alone, with ``feeds`` as inputs at fixed addresses.

        Raises:
            DeviceError: As for a run; "engine.io" for an engine with ``unsized`` outputs.
        """
        if self.unsized:
            raise DeviceError(
                "the size of {!r} depends on values".format(self.unsized[0][:80]),
                code="engine.io",
                where=where,
            )
        profile, shapes = self._profiles.of(feeds)
        keep: List[Any] = []
        # a caller holds several engines' contexts at once: waiting for a block that it holds itself
        # would never end
        with self._slot(profile, wait=False) as slot:
            results = self._bind(slot, feeds, shapes, keep, where)
            self.cuda.synchronize(slot.stream)
            yield HeldContext(
                slot.context,
                results,
                lambda: self._loaded.listener.error(_FAILED, "engine.failed", where),
            )

    def _bind(
        self,
        slot: _ContextSlot,
        feeds: Mapping[str, Tensor],
        shapes: Mapping[str, Tuple[int, ...]],
        keep: List[Any],
        where: str,
    ) -> Dict[str, Tensor]:
        # shapes and host values first: the shapes of outputs follow from these
        for io in self.inputs:
            if io.name in self._profiles.dynamic:
                self._shape(slot, io.name, shapes[io.name], where)
            now, value = at_shape(io, shapes[io.name]), feeds[io.name]
            if io.name in self._host:
                address = host_values(io, value, keep).ctypes.data
            else:
                place = 0
                # memory of the largest size, which frames of all shapes reuse
                if io.name in slot.most and not isinstance(value, DeviceTensor):
                    lease = self._feeder.device.take(io_bytes(now), slot.most[io.name])
                    keep.append(lease)
                    place = lease.ptr
                address = self._feeder.put(now, value, slot.stream, keep, place)
            self._set(slot, io.name, address, where)
        results: Dict[str, Tensor] = {}
        for io in self.outputs:
            shape = tuple(int(size) for size in slot.context.get_tensor_shape(io.name))
            # a shape of another rank is an error, which ``final_shape`` raises below
            if -1 in shape and len(shape) == len(io.shape):
                self._allocate_later(slot, io.name, where)
                continue
            tensor = results[io.name] = self._output(slot, io, final_shape(io, shape))
            address = tensor.ptr if isinstance(tensor, DeviceTensor) else tensor.ctypes.data
            self._set(slot, io.name, address, where)
        return results

    def _allocate_later(self, slot: _ContextSlot, name: str, where: str) -> None:
        # a context keeps its allocator: set once, then cleared for every run
        sized = slot.sized.get(name)
        if sized is None:
            sized = slot.sized[name] = SizedOutput(self._loaded.trt, self._feeder.device)
            if not slot.context.set_output_allocator(name, sized.allocator):
                raise self._loaded.listener.error(
                    "TensorRT rejects the allocator of {!r}".format(name[:80]),
                    "engine.failed",
                    where,
                )
        sized.begin()

    def gpu_ms(self) -> Optional[float]:
        """Milliseconds of this thread's last run by CUDA's events; None before."""
        return getattr(self._times, "ms", None)

    def node_times(self) -> List[Tuple[str, str, List[float]]]:
        """Returns (name, "", microseconds of each run) by layer; empty unless opened for profiling.

        The first (cold) run is left out. A loadable's own time is part of the layer that waits for
        it, not of its ForeignNode.
        """
        return [] if self._layers is None else self._layers.warm()

    def _output(self, slot: _ContextSlot, io: IoEntry, shape: Tuple[int, ...]) -> Tensor:
        if io.name in self._host:
            import numpy as np

            return np.zeros(shape, io.dtype)
        nbytes = io_bytes(at_shape(io, shape))
        lease = self._feeder.device.take(nbytes, slot.most.get(io.name, 0))
        return DeviceTensor(
            lease.ptr, lease.nbytes, io.dtype, shape, io.format, io.strides, io.scale, lease
        )

    def _set(self, slot: _ContextSlot, name: str, address: int, where: str) -> None:
        if not slot.context.set_tensor_address(name, address):
            raise self._loaded.listener.error(
                "TensorRT rejects the buffer for {!r}".format(name[:80]), "engine.failed", where
            )

    def _shape(self, slot: _ContextSlot, name: str, shape: Tuple[int, ...], where: str) -> None:
        if not slot.context.set_input_shape(name, shape):
            raise self._loaded.listener.error(
                "TensorRT rejects {} with shape {}".format(name[:80], list(shape)),
                "input.shape",
                where,
            )

    @contextmanager
    def _slot(self, profile: int, wait: bool = True) -> Iterator[_ContextSlot]:
        """Yields a context with its memory for exclusive use in the block."""
        # the memory first: a thread that waits for it does not need its own context yet
        with self._memory.block(wait) as block:
            slot = self._take(profile, waits=wait)
            try:
                self._memory.lend(slot.context, block)
                yield slot
            finally:
                self._give(slot)

    def _take(self, profile: int, *, waits: bool = True) -> _ContextSlot:
        with self._lock:
            while True:
                for slot in self._slots:
                    if slot.profile == profile:
                        self._slots.remove(slot)
                        return slot
                # a profile limited to one context is waited for; others get a new context
                if profile not in self._alone or not waits:
                    break
                self._lock.wait()
        # without the lock: making a context takes long and must not stop other threads
        try:
            return self._make(profile)
        except DeviceError:
            # a plan from before 10.0 without PROFILE_SHARING_0806 allows one context per profile
            if not (waits and self._profiles.dynamic and self._made.get(profile)):
                raise
            self._alone.add(profile)
        return self._take(profile)

    def _give(self, slot: _ContextSlot) -> None:
        with self._lock:
            self._slots.append(slot)
            self._lock.notify_all()

    def _make(self, profile: int) -> _ContextSlot:
        listener = self._loaded.listener
        self.cuda.bind()
        listener.forget()
        context = self._memory.context()
        if context is None:
            raise listener.error("TensorRT created no execution context", "tensorrt.no-memory")
        slot = _ContextSlot(self.cuda, context)
        context.error_recorder = listener.recorder
        # the first context has profile 0 by default; the switch goes to the stream of later runs,
        # as the guide asks (10.7, section 9.4)
        if profile or (self._made and self._profiles.dynamic):
            if not context.set_optimization_profile_async(profile, slot.stream):
                self._end(slot)
                raise listener.error(
                    "the engine has no profile {} for one more context".format(profile),
                    "engine.failed",
                )
            self.cuda.synchronize(slot.stream)
            slot.profile = profile
        if self._profiler is not None:
            context.profiler = self._profiler
        if self._profiles.dynamic and not self._host:
            slot.most = self._largest(context, profile)
        with self._lock:
            self._made[profile] = self._made.get(profile, 0) + 1
        return slot

    def _largest(self, context: Any, profile: int) -> Dict[str, int]:
        """Sets a profile's largest sizes in the context; returns the bytes of tensors with open
        sizes.

        Frames of other shapes then use the same buffers, without further allocations.
        """
        engine = self._loaded.engine
        for name in self._profiles.dynamic:
            # (min, opt, max)
            most = engine.get_tensor_profile_shape(name, profile)[2]
            context.set_input_shape(name, tuple(int(size) for size in most))
        found = {}
        for io in (*self.inputs, *self.outputs):
            if -1 in tuple(engine.get_tensor_shape(io.name)):
                shape = tuple(int(size) for size in context.get_tensor_shape(io.name))
                # without outputs whose size depends on values: these have no largest size here
                if -1 not in shape:
                    found[io.name] = io_bytes(at_shape(io, shape))
        return found

    def _end(self, slot: _ContextSlot) -> None:
        self.cuda.destroy_event(slot.begin)
        self.cuda.destroy_event(slot.end)
        self.cuda.destroy_stream(slot.stream)

    def __del__(self) -> None:
        # __init__ may have failed before it made the list
        for slot in getattr(self, "_slots", []):
            try:
                self._end(slot)
            except Exception:  # at the process's end the context may no longer exist
                return
