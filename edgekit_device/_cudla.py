"""Runs DLA loadables through cuDLA, in hybrid mode: CUDA memory, tasks on a CUDA stream.

cudla.h: a device handle holds one loadable, so each engine has a handle of its own; memory is
registered before it is used, and unregistered before the module is unloaded and the handle
destroyed, with no task left on the device. Calls may come from any thread.
"""

from __future__ import annotations

import ctypes
import threading
import weakref
from typing import TYPE_CHECKING, Any, Dict, List, Sequence, Tuple, Union

from ._cuda import open_cuda
from ._cudla_check import in_order, stored_bytes
from ._cudla_library import Library, cudla_facts, open_library
from ._cudla_slots import Handle, Lease, Part, Slot
from ._cudla_types import (
    HYBRID,
    INPUT_DESCRIPTORS,
    NUM_INPUTS,
    NUM_OUTPUTS,
    OUTPUT_DESCRIPTORS,
    ModuleAttribute,
    Task,
    TensorDescriptor,
)
from ._errors import DeviceError
from ._tensor import DeviceBuffer, DeviceTensor
from ._trt_feed import Feeder

if TYPE_CHECKING:
    import numpy as np

    Feed = Union[np.ndarray, DeviceTensor]

__all__ = ["LoadableEngine", "cudla_facts", "open_loadable"]

_PLAN_TAG = b"ftrt"  # a plan's first bytes (_plan.py); a loadable is a flat buffer


def open_loadable(data: bytes, core: int, io: Any, cuda: Any = None) -> LoadableEngine:
    """Loads a standalone loadable onto a DLA core.

    Args:
        data: What the builder wrote for DLA_STANDALONE.
        core: Number of the core.
        io: What the manifest says of it (``EngineEntry``): ``inputs`` and ``outputs``.
        cuda: The GPU to work with; the board's own by default.

    Raises:
        DeviceError: "cudla.not-a-loadable" for a TensorRT plan, "cudla.core", "cudla.mismatch"
            where loadable and manifest differ, "cudla.missing", "cudla.failed" or "cuda.*".
    """
    if data[:4] in {_PLAN_TAG, _PLAN_TAG[::-1]}:
        raise _a_plan()
    library = open_library()
    return LoadableEngine(library, open_cuda() if cuda is None else cuda, data, core, io)


class LoadableEngine:
    """A loadable on its core. ``run`` may be called by several threads at once.

    Attributes:
        cuda: The GPU whose memory and streams it uses.
        inputs: The manifest's entry and the bytes of each input, in the loadable's order.
        outputs: The same of each output.
    """

    def __init__(self, library: Library, cuda: Any, data: bytes, core: int, io: Any) -> None:
        self._library = library
        self.cuda = cuda
        self._free: List[Slot] = []
        self._lock = threading.Lock()
        self._feeder = Feeder(cuda)
        self.handle = Handle(cuda.bind)
        self._device, self._module = ctypes.c_void_p(), ctypes.c_void_p()
        self.inputs: List[Tuple[Any, int]] = []
        self.outputs: List[Tuple[Any, int]] = []
        cuda.bind()
        try:
            self._load(data, core)
            self.inputs = self._tensors(NUM_INPUTS, INPUT_DESCRIPTORS, io.inputs, "input")
            self.outputs = self._tensors(NUM_OUTPUTS, OUTPUT_DESCRIPTORS, io.outputs, "output")
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
                "there is no DLA core {}".format(core),
                code="cudla.core",
                hint="cuDLA finds {} cores on this board".format(count.value),
            )
        where = "DLA core {}".format(core)
        call("cudlaCreateDevice", core, ctypes.byref(self._device), HYBRID, where=where)
        device = self._device
        self.handle.later(lambda: call("cudlaDestroyDevice", device))
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
        except DeviceError as error:
            if "cudlaErrorUmd" in error.message:  # what a plan gives, too (cuDLA-samples issue 10)
                error.hint = "is it a loadable of this board's release? " + error.hint
            raise
        module = self._module
        self.handle.later(lambda: call("cudlaModuleUnload", module, 0))

    def _tensors(
        self, count: int, which: int, ios: Sequence[Any], role: str
    ) -> List[Tuple[Any, int]]:
        attribute = ModuleAttribute()
        name = "cudlaModuleGetAttributes"
        self._library.call(name, self._module, count, ctypes.byref(attribute))
        # calloc'ed by ctypes: an implementation that writes nothing leaves empty names
        found = (TensorDescriptor * max(attribute.count, 1))()
        number = attribute.count
        attribute.descriptors = ctypes.cast(found, ctypes.POINTER(TensorDescriptor))
        self._library.call(name, self._module, which, ctypes.byref(attribute))
        descriptors = list(found)[:number]
        ordered = in_order(descriptors, ios, role)
        return [(io, int(one.size)) for io, one in zip(ordered, descriptors)]  # noqa: B905

    def register(self, buffer: DeviceBuffer) -> int:
        """Maps CUDA memory for the DLA; it is undone when the engine is closed."""
        mapped = ctypes.c_void_p()
        call = self._library.call
        call("cudlaMemRegister", self._device, buffer.ptr, buffer.nbytes, ctypes.byref(mapped), 0)
        device = self._device
        # the undoing keeps the buffer: it is freed only after it was unregistered

        def undo(kept: DeviceBuffer = buffer) -> None:
            call("cudlaMemUnregister", device, mapped)

        self.handle.later(undo)
        return mapped.value or 0

    def _slot(self) -> Slot:
        sizes = {io.name: size for io, size in self.inputs + self.outputs}
        return Slot(self.cuda, self.handle, sizes, self.register)

    def run(self, segment: Any, feeds: Dict[str, Feed]) -> Dict[str, DeviceTensor]:
        """Runs the loadable: inputs by name to outputs by name, in the device's memory.

        Arrays are converted and packed as for TensorRT's engines (``_trt_feed``). A
        ``DeviceTensor`` in the input's own format is copied within the device: memory stays
        registered until the engine is closed, and whose it is may free it before.

        Raises:
            DeviceError: "input.missing", "input.shape", "cudla.failed", "cudla.hardware" (the DLA
                itself) or "cuda.*".
        """
        self.cuda.bind()
        with self._lock:
            slot = self._free.pop() if self._free else None
        if slot is None:
            slot = self._slot()
        lease = Lease(slot, self._give_back)
        kept: List[Any] = []
        try:
            for io, _ in self.inputs:
                self._feed(slot, io, feeds, kept)
            self._submit(slot)
        finally:
            # whatever was copied must be through before its memory goes
            self.cuda.synchronize(slot.stream)
        # how a task ended is known only now (cudlaGetLastError's documentation)
        self._library.call("cudlaGetLastError", self._device)
        wanted = None if segment is None else segment.outputs
        return {
            io.name: self._result(slot, lease, io)
            for io, _ in self.outputs
            if wanted is None or io.name in wanted
        }

    def _result(self, slot: Slot, lease: Lease, io: Any) -> DeviceTensor:
        ptr, nbytes = slot.buffers[io.name].ptr, stored_bytes(io)
        owner = Part(lease, self.cuda, ptr, nbytes)
        shape, steps = tuple(io.shape), tuple(io.strides)
        return DeviceTensor(ptr, nbytes, io.dtype, shape, io.format, steps, io.scale, owner)

    def _feed(self, slot: Slot, io: Any, feeds: Dict[str, Feed], kept: List[Any]) -> None:
        """Puts an input into the slot; ``kept`` gets what must live until the stream is through."""
        if io.name not in feeds:
            raise DeviceError("an input is missing", code="input.missing", where=io.name)
        feed = feeds[io.name]
        if tuple(feed.shape) != tuple(io.shape):
            raise DeviceError(
                "{} given, {} wanted".format(list(feed.shape), list(io.shape)),
                code="input.shape",
                where=io.name,
            )
        self._feeder.put(io, feed, slot.stream, kept, slot.buffers[io.name].ptr)

    def _submit(self, slot: Slot) -> None:
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

    def _give_back(self, slot: Slot) -> None:
        with self._lock:
            self._free.append(slot)

    def close(self) -> None:
        """Unregisters the memory, unloads the module and destroys the handle.

        Raises:
            DeviceError: The first fault; the rest is undone all the same.
        """
        self._closer.detach()
        with self._lock:
            self._free.clear()
        self.handle.close()


def _a_plan() -> DeviceError:
    return DeviceError(
        "this is a TensorRT plan, not a DLA loadable",
        code="cudla.not-a-loadable",
        hint="cuDLA runs what a builder made with EngineCapability.DLA_STANDALONE",
    )
