"""Pools of device and pinned host memory with leases, tensors in this memory, and ``Feeder``, which
puts inputs where an engine reads them. Formats are converted on the GPU if NVRTC is available,
otherwise by NumPy; the first result of a kernel is compared with NumPy's.

A lease returns to its pool with its last user, so that frames in flight never share a buffer, and
allocations end once the largest number of frames was in flight. If shapes change, idle memory is at
most as large as the memory ever in use at once. On an integrated GPU (Jetson) pinned memory is the
same DRAM; copies through it are still necessary for coherent caches.
"""

from __future__ import annotations

import ctypes
import math
import threading
from collections import deque
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Deque, Dict, Iterator, List, Optional, Tuple, Union

from edgekit_device.arrays.formats import convert, pack, stored_shape, unpack
from edgekit_device.cuda.kernels import PackKernels
from edgekit_device.errors import DeviceError, family
from edgekit_device.protocol.manifest import DTYPES, IoEntry
from edgekit_device.store.root import default_root

if TYPE_CHECKING:
    import numpy as np

    from edgekit_device.cuda.driver import Cuda

_LARGER = 2  # a buffer up to this many times the wanted size is used
# the legacy default stream: PyTorch's and CuPy's default
_DEFAULT_STREAM = 0
_Kind = Tuple[Any, ...]


class BufferPool:
    """Free memory by size.

    Args:
        cuda: The device.
        pinned: Host memory for copies instead of device memory.
        staging: For device memory: the pinned pool through which it is copied to the host.
    """

    def __init__(
        self, cuda: Cuda, pinned: bool = False, staging: Optional[BufferPool] = None
    ) -> None:
        self.cuda = cuda
        self.staging = staging
        self.pinned = pinned
        self._free: Dict[int, List[int]] = {}
        self._lock = threading.Lock()
        # Leases come back from __del__, which the collector may run in any thread at any place,
        # within ``take`` too: the return must never wait, so it only appends to a deque
        self._back: Deque[Tuple[int, int]] = deque()
        self._streams: Deque[int] = deque()
        self._used = self._most = 0  # bytes
        self.allocated = 0

    def take(self, nbytes: int, most: int = 0) -> MemoryLease:
        """Returns memory of ``nbytes`` with undefined contents.

        Args:
            nbytes: Size in bytes.
            most: Largest size in bytes that a later use of the same buffer may need.

        Raises:
            DeviceError: "cuda.no-memory".
        """
        # the capacity that later frames of this input need, too
        room = max(nbytes, most)
        with self._lock:
            self._most = max(self._most, self._used)
            while self._back:
                ptr, size = self._back.popleft()
                self._used -= size
                # the size used last is the last one to be given up
                self._free[size] = [*self._free.pop(size, ()), ptr]
            # the smallest that fits; one more than twice as large stays for larger tensors
            fits = [n for n, free in self._free.items() if free and room <= n <= _LARGER * room]
            capacity = min(fits, default=room)
            found = self._free[capacity].pop() if fits else None
            idle = self._remove_idle() if found is None else []
            # counted before the memory exists, so that other threads see the whole demand
            self._used += capacity
            self.allocated += found is None
        # without the lock: freeing waits for the device
        for ptr in idle:
            with suppress(DeviceError):  # it is not needed; the next call reports the error
                (self.cuda.host_free if self.pinned else self.cuda.free)(ptr)
        if found is not None:
            return MemoryLease(self, found, nbytes, capacity)
        try:
            ptr = (self.cuda.host_alloc if self.pinned else self.cuda.malloc)(room)
        except DeviceError:
            with self._lock:
                self._used -= room
            raise
        return MemoryLease(self, ptr, nbytes, room)

    def _remove_idle(self) -> List[int]:
        """Removes and returns idle memory in excess of the memory ever in use at once.

        Frames of a single shape have no excess; with changing shapes, every size would stay.
        """
        idle = sum(size * len(free) for size, free in self._free.items())
        found = []
        # from the size that was unused longest: a dict keeps the order of insertion
        for size, free in list(self._free.items()):
            while free and idle > self._most:
                found.append(free.pop())
                idle -= size
            if not free:
                del self._free[size]
        return found

    def give(self, ptr: int, nbytes: int) -> None:
        """Takes memory back; never waits."""
        self._back.append((ptr, nbytes))

    @contextmanager
    def stream(self) -> Iterator[int]:
        """Yields a stream that only this block uses."""
        try:
            stream = self._streams.pop()
        except IndexError:
            stream = self.cuda.stream()
        try:
            yield stream
        finally:
            self._streams.append(stream)

    def __del__(self) -> None:
        for stream in self._streams:
            try:
                self.cuda.destroy_stream(stream)
            except Exception:  # at the process's end the context may be gone already
                return
        release = self.cuda.host_free if self.pinned else self.cuda.free
        unused = [ptr for pointers in self._free.values() for ptr in pointers]
        for ptr in unused + [ptr for ptr, _ in self._back]:
            try:
                release(ptr)
            except Exception:  # at the process's end the context may be gone already
                return


class MemoryLease:
    """Memory in use.

    Attributes:
        ptr: Its address.
        nbytes: Its size.
    """

    def __init__(self, pool: BufferPool, ptr: int, nbytes: int, capacity: int) -> None:
        self.pool = pool
        self.ptr = ptr
        self.nbytes = nbytes
        self._capacity = capacity

    @property
    def cuda(self) -> Cuda:
        """The device."""
        return self.pool.cuda

    def array(self) -> np.ndarray:
        """Pinned memory as bytes; the lease lasts as long as the array."""
        import numpy as np

        memory = (ctypes.c_uint8 * self.nbytes).from_address(self.ptr)
        # the array keeps its buffer alive, and that keeps the lease
        memory.lease = self  # type: ignore[attr-defined]
        found: np.ndarray = np.ctypeslib.as_array(memory)
        return found

    def fetch(self) -> np.ndarray:
        """Its bytes on the host: a view of the pinned memory if the pool has any.

        Raises:
            DeviceError: "cuda.*".
        """
        import numpy as np

        staging = self.pool.staging
        pinned = None if staging is None else staging.take(self.nbytes)
        # a copy from pageable memory would not be asynchronous, but is correct
        memory = np.empty(self.nbytes, np.uint8) if pinned is None else pinned.array()
        with self.pool.stream() as stream:
            self.cuda.copy(memory.ctypes.data, self.ptr, self.nbytes, "d2h", stream)
            self.cuda.synchronize(stream)
        return memory

    def __del__(self) -> None:
        self.pool.give(self.ptr, self._capacity)


def fetch_bytes(cuda: Any, ptr: int, nbytes: int) -> np.ndarray:
    """Copies bytes from the device to the host.

    Raises:
        DeviceError: "cuda.*".
    """
    import numpy as np

    memory = np.empty(nbytes, np.uint8)
    cuda.copy(memory.ctypes.data, ptr, nbytes, "d2h")
    cuda.synchronize()
    return memory


class DeviceBuffer:
    """Device memory that is freed with its last user.

    Attributes:
        cuda: The :class:`edgekit_device.cuda.driver.Cuda` it belongs to.
        ptr: Its address.
        nbytes: Its size.
    """

    def __init__(self, cuda: Any, nbytes: int) -> None:
        self.ptr = 0  # __del__ also runs if malloc raises
        self.cuda = cuda
        self.nbytes = nbytes
        self.ptr = cuda.malloc(nbytes)

    def fetch(self) -> np.ndarray:
        """Its bytes on the host.

        Raises:
            DeviceError: "cuda.*".
        """
        return fetch_bytes(self.cuda, self.ptr, self.nbytes)

    def __del__(self) -> None:
        if self.ptr:
            self.cuda.free(self.ptr)
            self.ptr = 0


@dataclass(frozen=True)
class DeviceTensor:
    """A tensor with complete values: its writer has waited for its stream.

    Attributes:
        ptr: Device address.
        nbytes: Bytes with padding.
        dtype: NumPy type name of the elements.
        shape: The tensor's own shape.
        format: TensorRT's name of the format ("LINEAR", "DLA_HWC4", ...).
        strides: Bytes along N, C (or vectors of C), H and W; along each axis for LINEAR.
        scale: Value of one step of an INT8 tensor; None for types that hold the values themselves.
        owner: Keeps the memory; has ``cuda`` and ``fetch()`` (a :class:`DeviceBuffer`, or a
            ``MemoryLease``).
    """

    ptr: int
    nbytes: int
    dtype: str
    shape: Tuple[int, ...]
    format: str
    strides: Tuple[int, ...]
    scale: Optional[float]
    owner: Any

    def numpy(self, dtype: Optional[str] = None) -> np.ndarray:
        """Copies it to the host, unpacked.

        Args:
            dtype: Type to convert to, an INT8 tensor with its scale; by default its own.

        Raises:
            DeviceError: "cuda.*" or "format.*".
        """
        # a view of pinned memory perhaps: unpacking copies the data out
        memory = self.owner.fetch()
        array = unpack(memory, self.shape, self.dtype, self.format, self.strides)
        return convert(array, dtype or self.dtype, self.scale, None)

    @property
    def __cuda_array_interface__(self) -> Dict[str, object]:
        """The tensor for PyTorch (``torch.as_tensor(tensor, device="cuda")``), CuPy and Numba,
        without a copy: https://numba.readthedocs.io/en/stable/cuda/cuda_array_interface.html.

        Only LINEAR tensors whose elements are their values have it; ``Model`` makes such ones.
        """
        import numpy as np

        if self.format != "LINEAR" or self.scale is not None:
            raise AttributeError("{} tensors have no CUDA array interface".format(self.format))
        # no stream: the values are complete
        return {
            "shape": self.shape,
            "typestr": np.dtype(self.dtype).str,
            "data": (self.ptr, False),
            "version": 3,
            "strides": None,
            "stream": None,
        }


class _BorrowedMemory:
    """Memory of another library's tensor, which this object keeps alive."""

    def __init__(self, cuda: Any, ptr: int, nbytes: int, tensor: Any) -> None:
        self.cuda = cuda
        self._ptr, self._nbytes, self._tensor = ptr, nbytes, tensor

    def fetch(self) -> np.ndarray:
        return fetch_bytes(self.cuda, self._ptr, self._nbytes)


Tensor = Union["np.ndarray", DeviceTensor]


class Feeder:
    """Feeds one engine's inputs; safe to use from several threads.

    Arrays are copied through pinned memory. Formats are converted on the GPU by
    ``cuda.kernels`` if NVRTC is available, else by NumPy. The first result of a kernel is
    compared with NumPy's, bit for bit: a kernel that differs on this board is not used again.

    Attributes:
        device: Device memory for inputs and outputs.
    """

    def __init__(self, cuda: Any) -> None:
        self._cuda = cuda
        self._pinned = BufferPool(cuda, pinned=True)
        self.device = BufferPool(cuda, staging=self._pinned)
        self._lock = threading.Lock()
        self._packer: Any = None
        self._proved: Dict[_Kind, bool] = {}

    def put(self, io: IoEntry, value: Tensor, stream: int, keep: List[Any], target: int = 0) -> int:
        """Enqueues copies and kernels; returns the address of ``value`` in the input's format.

        Args:
            io: The input; its shape is the value's.
            value: The input's value.
            stream: The stream for copies and kernels.
            keep: Gets objects that must live until the stream's work is done.
            target: Address that must hold the input; 0 for any.

        Raises:
            DeviceError: "input.dtype", "cuda.*" or "format.*".
        """
        import numpy as np

        keep.append(value)
        if isinstance(value, DeviceTensor):
            same = (value.dtype, value.format, value.scale) == (io.dtype, io.format, io.scale)
            # dense in both cases: LINEAR strides follow from the shape
            if same and (io.format == "LINEAR" or tuple(value.strides) == tuple(io.strides)):
                if not target:
                    return value.ptr
                self._cuda.copy(target, value.ptr, io_bytes(io), "d2d", stream)
                return target
            made = self._on_gpu(value, io, stream, keep, target)
            if made:
                return made
            # no kernel for this pair of formats: over the host
            array = convert(value.numpy(), io.dtype, value.scale, io.scale, io.name)
            return self._upload(pack(array, io.format, io.strides), stream, keep, target)
        array = np.asarray(value)
        if io.format != "LINEAR":
            # the unpacked values go to the device, where a kernel packs them
            raw = self.device.take(array.nbytes)
            keep.append(raw)
            self._upload(np.ascontiguousarray(array), stream, keep, raw.ptr)
            source = DeviceTensor(
                raw.ptr, raw.nbytes, str(array.dtype), array.shape, "LINEAR", (), None, raw
            )
            made = self._on_gpu(source, io, stream, keep, target)
            if made:
                return made
        # LINEAR, or no usable kernel: NumPy packs
        stored = pack(convert(array, io.dtype, None, io.scale, io.name), io.format, io.strides)
        return self._upload(stored, stream, keep, target)

    def borrow(self, tensor: Any) -> DeviceTensor:
        """Returns a GPU tensor of PyTorch, CuPy or Numba without a copy.

        Waits for its interface's stream, or else for the default stream: the caller must wait for
        work on other streams.

        Args:
            tensor: A tensor with ``__cuda_array_interface__``.

        Raises:
            DeviceError: "input.strides" if it is not contiguous; "cuda.*".
        """
        import numpy as np

        about = tensor.__cuda_array_interface__
        kind, shape = np.dtype(about["typestr"]), tuple(about["shape"])
        steps: List[int] = []
        size = kind.itemsize
        for length in reversed(shape):
            steps.insert(0, size)
            size *= length
        given = about.get("strides")
        # __cuda_array_interface__ has None for C-contiguous
        if given is not None and tuple(given) != tuple(steps):
            raise DeviceError(
                "a tensor on the GPU is not contiguous: its strides are {}".format(list(given)),
                code="input.strides",
                hint="pass tensor.contiguous() (CuPy: cupy.ascontiguousarray(tensor))",
            )
        stream = about.get("stream", _DEFAULT_STREAM)
        if stream is not None:
            self._cuda.synchronize(stream)
        pointer = int(about["data"][0])
        owner = _BorrowedMemory(self._cuda, pointer, size, tensor)
        return DeviceTensor(pointer, size, str(kind), shape, "LINEAR", (), None, owner)

    def as_linear(self, tensor: Tensor, dtype: str) -> DeviceTensor:
        """Returns the tensor in planes ("LINEAR") of type ``dtype``: itself, or converted on the
        GPU.

        An array, for example from a segment on the CPU, is copied to the GPU.

        Raises:
            DeviceError: "cuda.*" or "format.*".
        """
        io = IoEntry("", dtype, tensor.shape, "LINEAR", (), None)
        retained: List[Any] = []
        with self.device.stream() as stream:
            address = self.put(io, tensor, stream, retained)
            self._cuda.synchronize(stream)
        if isinstance(tensor, DeviceTensor) and address == tensor.ptr:
            return tensor
        # ``put`` allocated the memory at this address
        owner = next(buffer for buffer in retained if getattr(buffer, "ptr", 0) == address)
        return DeviceTensor(address, owner.nbytes, dtype, tensor.shape, "LINEAR", (), None, owner)

    def _upload(self, array: np.ndarray, stream: int, keep: List[Any], target: int) -> int:
        import numpy as np

        staging = self._pinned.take(array.nbytes)
        keep.append(staging)
        if not target:
            place = self.device.take(array.nbytes)
            keep.append(place)
            target = place.ptr
        # the array may be changed by its owner as soon as this call returns
        staging.array()[:] = array.reshape(-1).view(np.uint8)
        self._cuda.copy(target, staging.ptr, array.nbytes, "h2d", stream)
        return target

    def _on_gpu(
        self, source: DeviceTensor, io: IoEntry, stream: int, keep: List[Any], target: int
    ) -> int:
        """Returns the address at which a kernel writes the input; 0 without a usable kernel."""
        kind = (source.dtype, source.format, source.shape, source.strides, source.scale, io)
        with self._lock:
            known = self._proved.get(kind)
        # kernels convert between planes and one other format
        if known is False or "LINEAR" not in (source.format, io.format):
            return 0
        if not target:
            place = self.device.take(io_bytes(io))
            keep.append(place)
            target = place.ptr
        try:
            with self._lock:
                # only now: NVRTC is not loaded if no input needs a kernel
                if self._packer is None:
                    root = default_root()
                    cache = root / "kernels" if root.is_dir() else None
                    self._packer = PackKernels(self._cuda, cache)
            self._packer.convert(source.ptr, source, target, io, stream)
            if known is None:
                known = self._matches_numpy(source, io, target, stream)
        except DeviceError as error:
            if family(error.code) == "cuda" and known:
                raise  # it worked before: the device has failed
            # no NVRTC, an unsupported type or a kernel that differs: NumPy from now on
            known = False
        with self._lock:
            self._proved[kind] = known
        return target if known else 0

    def _matches_numpy(self, source: DeviceTensor, io: IoEntry, made: int, stream: int) -> bool:
        import numpy as np

        self._cuda.synchronize(stream)  # the kernel's input and output are complete now
        array = convert(source.numpy(), io.dtype, source.scale, io.scale)
        wanted = pack(array, io.format, io.strides).reshape(-1).view(np.uint8)
        found = np.empty(wanted.nbytes, np.uint8)
        self._cuda.copy(found.ctypes.data, made, found.nbytes, "d2h", stream)
        self._cuda.synchronize(stream)
        return bool(np.array_equal(found, wanted))


def at_shape(io: IoEntry, shape: Tuple[int, ...]) -> IoEntry:
    """Returns the entry with a dynamic tensor's current shape."""
    return replace(io, shape=shape) if -1 in io.shape else io


def io_bytes(io: IoEntry) -> int:
    """Returns the bytes of a tensor in its format, including padding.

    Raises:
        DeviceError: "format.*".
    """
    size = DTYPES[io.dtype]
    return math.prod(stored_shape(io.shape, size, io.format, io.strides)) * size
