"""Puts what is fed to an engine where the engine reads it: type, format and place.

Arrays travel through pinned memory. Formats are made on the GPU by our kernels where NVRTC is there
(``_kernels``), else by NumPy. The first result of a kernel is compared with NumPy's, bit for bit:
one that differs on this board is not used again.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Dict, List, Tuple, Union

from ._convert import convert
from ._cuda_memory import Pool
from ._errors import DeviceError
from ._packing import pack
from ._tensor import DeviceTensor
from ._trt_io import io_bytes
from ._types import IoEntry

if TYPE_CHECKING:
    import numpy as np

__all__ = ["Feeder", "Tensor", "at_shape"]

Tensor = Union["np.ndarray", DeviceTensor]
_Kind = Tuple[Any, ...]


class Feeder:
    """Feeds one engine's inputs; safe to use from several threads.

    Attributes:
        device: Device memory for inputs and outputs.
    """

    def __init__(self, cuda: Any) -> None:
        self._cuda = cuda
        self._pinned = Pool(cuda, pinned=True)
        self.device = Pool(cuda, staging=self._pinned)
        self._lock = threading.Lock()
        self._packer: Any = None
        self._proved: Dict[_Kind, bool] = {}

    def put(self, io: IoEntry, value: Tensor, stream: int, keep: List[Any], target: int = 0) -> int:
        """The address where ``value`` lies as the input wants it once the stream gets there.

        Args:
            io: The input; its shape is the value's.
            value: What is fed.
            stream: Where copies and kernels are put.
            keep: Gets what must live until the stream's work is done.
            target: Memory that must hold the input, where it cannot lie anywhere else.

        Raises:
            DeviceError: "input.dtype", "cuda.*" or "format.*".
        """
        import numpy as np

        keep.append(value)
        if isinstance(value, DeviceTensor):
            same = (value.dtype, value.format, value.scale) == (io.dtype, io.format, io.scale)
            if same and (io.format == "LINEAR" or tuple(value.strides) == tuple(io.strides)):
                if not target:
                    return value.ptr
                self._cuda.copy(target, value.ptr, io_bytes(io), "d2d", stream)
                return target
            made = self._on_gpu(value, io, stream, keep, target)
            if made:
                return made
            array = convert(value.numpy(), io.dtype, value.scale, io.scale, io.name)
            return self._upload(pack(array, io.format, io.strides), stream, keep, target)
        array = np.asarray(value)
        if io.format != "LINEAR":
            raw = self.device.take(array.nbytes)
            keep.append(raw)
            self._upload(np.ascontiguousarray(array), stream, keep, raw.ptr)
            source = DeviceTensor(
                raw.ptr, raw.nbytes, str(array.dtype), array.shape, "LINEAR", (), None, raw
            )
            made = self._on_gpu(source, io, stream, keep, target)
            if made:
                return made
        stored = pack(convert(array, io.dtype, None, io.scale, io.name), io.format, io.strides)
        return self._upload(stored, stream, keep, target)

    def _upload(self, array: np.ndarray, stream: int, keep: List[Any], target: int) -> int:
        import numpy as np

        staging = self._pinned.take(array.nbytes)
        keep.append(staging)
        if not target:
            place = self.device.take(array.nbytes)
            keep.append(place)
            target = place.ptr
        staging.array()[:] = array.reshape(-1).view(np.uint8)
        self._cuda.copy(target, staging.ptr, array.nbytes, "h2d", stream)
        return target

    def _on_gpu(
        self, source: DeviceTensor, io: IoEntry, stream: int, keep: List[Any], target: int
    ) -> int:
        """Where a kernel writes the input; 0 where none can, or none is to be trusted."""
        kind = (source.dtype, source.format, source.shape, source.strides, source.scale, io)
        with self._lock:
            known = self._proved.get(kind)
        if known is False or "LINEAR" not in (source.format, io.format):
            return 0
        if not target:
            place = self.device.take(io_bytes(io))
            keep.append(place)
            target = place.ptr
        try:
            packer = self._kernels()
            move = packer.unpack if io.format == "LINEAR" else packer.pack
            move(source.ptr, source, target, io, stream)
            if known is None:
                known = self._proves(source, io, target, stream)
        except DeviceError as error:
            if error.code.startswith("cuda.") and known:
                raise  # it worked before: the device has failed
            known = False
        with self._lock:
            self._proved[kind] = known
        return target if known else 0

    def _proves(self, source: DeviceTensor, io: IoEntry, made: int, stream: int) -> bool:
        import numpy as np

        self._cuda.synchronize(stream)  # what the kernel reads and writes is there now
        array = convert(source.numpy(), io.dtype, source.scale, io.scale)
        wanted = pack(array, io.format, io.strides).reshape(-1).view(np.uint8)
        found = np.empty(wanted.nbytes, np.uint8)
        self._cuda.copy(found.ctypes.data, made, found.nbytes, "d2h", stream)
        self._cuda.synchronize(stream)
        return bool(np.array_equal(found, wanted))

    def _kernels(self) -> Any:
        with self._lock:
            if self._packer is None:
                from ._kernels import Packer
                from ._root import default_root

                root = default_root()
                self._packer = Packer(self._cuda, root / "kernels" if root.is_dir() else None)
            return self._packer


def at_shape(io: IoEntry, shape: Tuple[int, ...]) -> IoEntry:
    """The entry with the shape that a dynamic tensor has now."""
    return replace(io, shape=shape) if -1 in io.shape else io
