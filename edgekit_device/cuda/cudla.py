"""Runs DLA loadables through cuDLA in hybrid mode: CUDA memory, tasks on a CUDA stream.
cudla.h: a device handle holds a single loadable, so each engine has its own handle; memory is
registered before its use, and unregistered before the module is unloaded and the handle destroyed,
with no task left on the device. Calls may come from any thread.
"""

from __future__ import annotations

import ctypes
import threading
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Sequence, Tuple, Union

from edgekit_device.arrays.formats import VECTORS, as_nchw, stored_shape
from edgekit_device.cuda.cudla_library import (
    DATA_FORMATS,
    DATA_TYPES,
    HYBRID,
    INPUT_DESCRIPTORS,
    NAME_LENGTH,
    NUM_INPUTS,
    NUM_OUTPUTS,
    OUTPUT_DESCRIPTORS,
    UMD,
    CudlaError,
    Library,
    ModuleAttribute,
    Task,
    TensorDescriptor,
    open_library,
)
from edgekit_device.cuda.driver import open_cuda
from edgekit_device.cuda.memory import DeviceBuffer, DeviceTensor, Feeder, fetch_bytes, io_bytes
from edgekit_device.errors import DeviceError
from edgekit_device.protocol.manifest import DTYPES

if TYPE_CHECKING:
    import numpy as np

    Feed = Union[np.ndarray, DeviceTensor]


_PLAN_TAG = b"ftrt"  # a plan's first bytes (tensorrt/plan.py); a loadable is a flat buffer
_FORMATS = {
    "DLA_LINEAR": ("NCHW",),
    "DLA_HWC4": ("NHWC",),
    "CHW16": ("NCxHWx",),
    "CHW32": ("NCxHWx",),
}
_DTYPES = ("int8", "uint8", "float16")
_PAGE = 4096  # harmless excess of memory beyond the tensor


def open_loadable(data: bytes, core: int, io: Any, cuda: Any = None) -> LoadableEngine:
    """Loads a standalone loadable onto a DLA core.

    Args:
        data: The builder's output for DLA_STANDALONE.
        core: Number of the core.
        io: The manifest's entry (``EngineEntry``) with ``inputs`` and ``outputs``.
        cuda: The GPU to work with; the board's own by default.

    Raises:
        DeviceError: "cudla.not-a-loadable" for a TensorRT plan, "cudla.core", "cudla.mismatch" if
            loadable and manifest differ, "cudla.missing", "cudla.failed" or "cuda.*".
    """
    # cuDLA itself answers a plan with an error of its runtime (Umd) that does not name the cause
    if data[:4] in {_PLAN_TAG, _PLAN_TAG[::-1]}:
        raise DeviceError(
            "this is a TensorRT plan, not a DLA loadable",
            code="cudla.not-a-loadable",
            hint="cuDLA needs a loadable that was built with EngineCapability.DLA_STANDALONE",
        )
    library = open_library()
    return LoadableEngine(library, open_cuda() if cuda is None else cuda, data, core, io)


class LoadableEngine:
    """A loadable on its core. ``run`` may be called by several threads at once.

    Attributes:
        cuda: The GPU whose memory and streams it uses.
        inputs: The manifest's entry and the bytes of each input, in the loadable's order.
        outputs: The same for each output.
    """

    def __init__(self, library: Library, cuda: Any, data: bytes, core: int, io: Any) -> None:
        self._library = library
        self.cuda = cuda
        self._free: List[CudlaSlot] = []
        self._lock = threading.Lock()
        self._feeder = Feeder(cuda)
        self.handle = CudlaHandle(cuda.bind)
        self._device, self._module = ctypes.c_void_p(), ctypes.c_void_p()
        self.inputs: List[Tuple[Any, int]] = []
        self.outputs: List[Tuple[Any, int]] = []
        cuda.bind()
        try:
            self._load(data, core)
            self.inputs = self._tensors(NUM_INPUTS, INPUT_DESCRIPTORS, io.inputs, "input")
            self.outputs = self._tensors(NUM_OUTPUTS, OUTPUT_DESCRIPTORS, io.outputs, "output")
            # the first slot now: a lack of memory shows when the engine is opened
            self._free.append(self._slot())
        except BaseException:
            self.handle.close_quietly()
            raise
        self._closer = weakref.finalize(self, self.handle.close_quietly)

    def _load(self, data: bytes, core: int) -> None:
        call = self._library.call
        count = ctypes.c_uint64()
        call("cudlaDeviceGetCount", ctypes.byref(count))
        if not 0 <= core < count.value:
            raise DeviceError(
                "DLA core {} does not exist".format(core),
                code="cudla.core",
                hint="cuDLA finds {} cores on this board".format(count.value),
            )
        where = "DLA core {}".format(core)
        # a handle of its own: it holds a single loadable
        call("cudlaCreateDevice", core, ctypes.byref(self._device), HYBRID, where=where)
        device = self._device
        self.handle.on_close(lambda: call("cudlaDestroyDevice", device))
        try:
            call(
                "cudlaModuleLoadFromMemory",
                device,
                data,
                len(data),
                ctypes.byref(self._module),
                0,
                where=where,
            )
        except CudlaError as error:
            if error.status == UMD:  # also the status for a plan (cuDLA-samples issue 10)
                error.hint = (
                    "check that the loadable was built for this board's release; " + error.hint
                )
            raise
        module = self._module
        # last in, first out: unloaded before the device is destroyed
        self.handle.on_close(lambda: call("cudlaModuleUnload", module, 0))

    def _tensors(
        self, count: int, which: int, ios: Sequence[Any], role: str
    ) -> List[Tuple[Any, int]]:
        attribute = ModuleAttribute()
        name = "cudlaModuleGetAttributes"
        self._library.call(name, self._module, count, ctypes.byref(attribute))
        # zeroed by ctypes: an implementation that writes no names leaves empty names
        found = (TensorDescriptor * max(attribute.count, 1))()
        number = attribute.count
        # a union: this overwrites the count
        attribute.descriptors = ctypes.cast(found, ctypes.POINTER(TensorDescriptor))
        self._library.call(name, self._module, which, ctypes.byref(attribute))
        descriptors = list(found)[:number]
        ordered = order_entries(descriptors, ios, role)
        return [(io, int(descriptor.size)) for io, descriptor in zip(ordered, descriptors)]  # noqa: B905

    def register(self, buffer: DeviceBuffer) -> int:
        """Registers CUDA memory with the DLA, until the engine is closed."""
        mapped = ctypes.c_void_p()
        call = self._library.call
        call("cudlaMemRegister", self._device, buffer.ptr, buffer.nbytes, ctypes.byref(mapped), 0)
        device = self._device
        # the undo action keeps the buffer alive: it is freed only after it was unregistered

        def undo(freed: DeviceBuffer = buffer) -> None:
            call("cudlaMemUnregister", device, mapped)

        self.handle.on_close(undo)
        return mapped.value or 0

    def _slot(self) -> CudlaSlot:
        sizes = {io.name: size for io, size in self.inputs + self.outputs}
        return CudlaSlot(self.cuda, self.handle, sizes, self.register)

    def run(self, segment: Any, feeds: Dict[str, Feed]) -> Dict[str, DeviceTensor]:
        """Runs the loadable: inputs by name to outputs by name, in the device's memory.

        Arrays are converted and packed as for TensorRT's engines (``cuda.memory``). A
        ``DeviceTensor`` in the input's own format is copied within the device: memory stays
        registered until the engine is closed, and its owner might free it before.

        Raises:
            DeviceError: "input.missing", "input.shape", "cudla.failed", "cudla.hardware" (the DLA
                itself) or "cuda.*".
        """
        self.cuda.bind()
        with self._lock:
            # as many slots as runs were ever in progress or results alive at once
            slot = self._free.pop() if self._free else None
        if slot is None:
            slot = self._slot()
        # returns the slot also if this run fails
        lease = CudlaLease(slot, self._give_back)
        retained: List[Any] = []
        try:
            for io, _ in self.inputs:
                self._feed(slot, io, feeds, retained)
            self._submit(slot)
        finally:
            # copies must be complete before their memory is freed
            self.cuda.synchronize(slot.stream)
        # a task's status is known only now (cudlaGetLastError's documentation)
        self._library.call("cudlaGetLastError", self._device)
        wanted = None if segment is None else segment.outputs
        results = {}
        for io, _ in self.outputs:
            if wanted is None or io.name in wanted:
                ptr, nbytes = slot.buffers[io.name].ptr, io_bytes(io)
                # every result holds the lease: the slot is free when the last result is
                owner = CudlaBufferPart(lease, self.cuda, ptr, nbytes)
                shape, steps = tuple(io.shape), tuple(io.strides)
                results[io.name] = DeviceTensor(
                    ptr, nbytes, io.dtype, shape, io.format, steps, io.scale, owner
                )
        return results

    def _feed(self, slot: CudlaSlot, io: Any, feeds: Dict[str, Feed], retained: List[Any]) -> None:
        """Copies an input into the slot; ``retained`` gets objects that the stream still needs."""
        if io.name not in feeds:
            raise DeviceError("an input is missing", code="input.missing", where=io.name)
        feed = feeds[io.name]
        if tuple(feed.shape) != tuple(io.shape):
            raise DeviceError(
                "{} given instead of {}".format(list(feed.shape), list(io.shape)),
                code="input.shape",
                where=io.name,
            )
        self._feeder.put(io, feed, slot.stream, retained, slot.buffers[io.name].ptr)

    def _submit(self, slot: CudlaSlot) -> None:
        def pointers(tensors: Sequence[Tuple[Any, int]]) -> Any:
            found = [slot.registered[io.name] for io, _ in tensors]
            return (ctypes.c_void_p * max(len(found), 1))(*found)

        task = Task(
            self._module.value,
            pointers(self.outputs),
            len(self.outputs),
            len(self.inputs),
            pointers(self.inputs),
            None,
            None,
        )
        self._library.call("cudlaSubmitTask", self._device, ctypes.byref(task), 1, slot.stream, 0)

    def _give_back(self, slot: CudlaSlot) -> None:
        with self._lock:
            self._free.append(slot)

    def close(self) -> None:
        """Unregisters the memory, unloads the module and destroys the handle.

        Raises:
            DeviceError: The first error; the remaining steps run nevertheless.
        """
        # else the finalizer would close a second time
        self._closer.detach()
        with self._lock:
            self._free.clear()
        self.handle.close()


def order_entries(
    descriptors: Sequence[TensorDescriptor], ios: Sequence[Any], role: str
) -> List[Any]:
    """Returns the manifest's entries in the order of the loadable's tensors.

    Seen on an Orin (github.com/NVIDIA/cuda-samples issue 192): names end with an apostrophe; an
    INT8 input of (1, 3, 512, 960) in DLA_HWC4 is NHWC with c = 4 and the strides (1, 3840, 0,
    0); an INT8 output of (1, 64, 32, 60) in DLA_LINEAR is NCHW with the strides (1, 64, 2048,
    2048). So the second stride is a line, the third a plane (or a plane of vectors), and zero
    means unknown.

    Args:
        descriptors: The loadable's inputs or outputs.
        ios: The manifest's entries (``IoEntry``), in any order.
        role: "input" or "output", for messages.

    Raises:
        DeviceError: "cudla.mismatch", with both sides of the difference.
    """
    names = [_descriptor_name(descriptor) for descriptor in descriptors]
    if len(descriptors) != len(ios):
        wanted = ", ".join(io.name for io in ios)
        raise _mismatch_error(
            "{} {}s ({})".format(len(names), role, ", ".join(names)),
            "{} ({})".format(len(ios), wanted),
            role,
        )
    found = []
    remaining = list(ios)
    for descriptor, name in zip(descriptors, names):  # noqa: B905
        fits = [io for io in remaining if _same_name(name, io.name)]
        if not fits:
            raise _mismatch_error(
                "the {} {!r}".format(role, name.rstrip("'")),
                "only {}".format(", ".join(repr(io.name) for io in remaining)),
                name,
            )
        # the longest, in case a name is the prefix of another
        io = max(fits, key=lambda candidate: len(candidate.name))
        remaining.remove(io)
        _compare_strides(descriptor, io, role)
        found.append(io)
    return found


def _descriptor_name(descriptor: TensorDescriptor) -> str:
    return bytes(descriptor.name).decode("utf-8", "replace")


def _same_name(given: str, name: str) -> bool:
    # a name of the full length may have been cut off
    plain = given.rstrip("'")
    return name in {given, plain} or (len(given) >= NAME_LENGTH and name.startswith(plain))


def _compare_strides(descriptor: TensorDescriptor, io: Any, role: str) -> None:
    if io.format not in _FORMATS or io.dtype not in _DTYPES:
        raise DeviceError(
            "a loadable cannot have {} {} as its {}".format(io.dtype, io.format, role),
            code="cudla.mismatch",
            where=io.name,
        )
    pairs: List[Tuple[str, Any, Any, bool]] = []
    form = DATA_FORMATS.get(descriptor.data_format, str(descriptor.data_format))
    kind = DATA_TYPES.get(descriptor.data_type, str(descriptor.data_type))
    batch, channels, height, width = as_nchw(io.shape)
    # a picture of one channel is the same memory in either order
    formats = _FORMATS[io.format] + (("NCHW", "NHWC") if channels == 1 else ())
    pairs.append(("format", form, io.format, form in formats or form == "UNKNOWN"))
    pairs.append(("type", kind, io.dtype, kind in {io.dtype, "unknown"}))
    stored = stored_shape(io.shape, DTYPES[io.dtype], io.format, io.strides)
    # some descriptors count stored channels (4 for a picture of 3)
    held = stored[3] if io.format == "DLA_HWC4" else channels
    shape = (descriptor.n, descriptor.c, descriptor.h, descriptor.w)
    same = shape[0] == batch and shape[2:] == (height, width) and shape[1] in {channels, held}
    pairs.append(("shape", list(shape), [batch, channels, height, width], same))
    nbytes = io_bytes(io)
    pairs.append(("size", descriptor.size, nbytes, 0 <= descriptor.size - nbytes < _PAGE))
    vector = VECTORS.get(io.format, 1)
    for position, axis, name, says in (
        # (position in the descriptor, in the manifest, name, True if the stride is ever used)
        (1, 2, "line stride", height > 1),
        (2, 1, "plane stride", io.format != "DLA_HWC4" and channels > vector),
    ):
        given = int(descriptor.stride[position])
        wanted = io.strides[axis]
        pairs.append((name, given, wanted, not says or not given or given == wanted))
    for what, given, wanted, equal in pairs:
        if not equal:
            raise _mismatch_error(
                "the {} {}".format(what, given),
                "{} {}".format(what, wanted),
                _descriptor_name(descriptor),
            )


def _mismatch_error(loadable: str, manifest: str, where: str) -> DeviceError:
    return DeviceError(
        "the loadable has {}, but the manifest has {}".format(loadable, manifest),
        code="cudla.mismatch",
        where=where,
        hint="build the bundle again for this board",
    )


class CudlaHandle:
    """Undoes steps in reverse order; raises the first error."""

    def __init__(self, bind: Callable[[], None]) -> None:
        self._bind = bind
        self._undo: List[Callable[[], None]] = []
        self._lock = threading.Lock()

    def on_close(self, undo: Callable[[], None]) -> None:
        with self._lock:
            self._undo.append(undo)

    def close(self) -> None:
        with self._lock:
            # taken out under the lock: a second call undoes nothing twice
            undo_steps, self._undo = self._undo, []
        faults = []
        if undo_steps:
            self._bind()
        for undo in reversed(undo_steps):
            try:
                undo()
            except DeviceError as error:  # the rest must still be undone
                faults.append(error)
        if faults:
            raise faults[0]

    def close_quietly(self) -> None:
        """Closes without raising: there is no caller, or another error is being raised."""
        with suppress(DeviceError):
            self.close()


class CudlaSlot:
    """Memory and a stream for a frame: every tensor is allocated and registered once."""

    def __init__(
        self,
        cuda: Any,
        handle: CudlaHandle,
        sizes: Dict[str, int],
        register: Callable[[DeviceBuffer], int],
    ) -> None:
        self.cuda = cuda
        self.stream = stream = cuda.stream()
        handle.on_close(lambda: cuda.destroy_stream(stream))
        self.buffers: Dict[str, DeviceBuffer] = {}
        self.registered: Dict[str, int] = {}
        for name, size in sizes.items():
            self.buffers[name] = DeviceBuffer(cuda, size)
            self.registered[name] = register(self.buffers[name])


class CudlaLease:
    """Prevents reuse of a slot while its tensors are alive."""

    def __init__(self, slot: CudlaSlot, give_back: Callable[[CudlaSlot], None]) -> None:
        self._end = weakref.finalize(self, give_back, slot)


class CudlaBufferPart:
    """A tensor's part of a lease: the owner of a ``DeviceTensor``."""

    def __init__(self, lease: CudlaLease, cuda: Any, ptr: int, nbytes: int) -> None:
        self.cuda = cuda
        self._lease = lease
        self._ptr = ptr
        self._nbytes = nbytes

    def fetch(self) -> np.ndarray:
        """Returns its bytes on the host.

        Raises:
            DeviceError: "cuda.*".
        """
        return fetch_bytes(self.cuda, self._ptr, self._nbytes)
