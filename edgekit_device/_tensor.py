"""A tensor in the device's memory, as engines hand it to each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Optional, Tuple

if TYPE_CHECKING:
    import numpy as np

__all__ = ["DeviceBuffer", "DeviceTensor"]


class DeviceBuffer:
    """Device memory that is freed with its last user.

    Attributes:
        cuda: The :class:`edgekit_device._cuda.Cuda` it belongs to.
        ptr: Its address.
        nbytes: Its size.
    """

    def __init__(self, cuda: Any, nbytes: int) -> None:
        self.ptr = 0
        self.cuda = cuda
        self.nbytes = nbytes
        self.ptr = cuda.malloc(nbytes)

    def fetch(self) -> np.ndarray:
        """Its bytes on the host.

        Raises:
            DeviceError: "cuda.*".
        """
        import numpy as np

        memory = np.empty(self.nbytes, np.uint8)
        self.cuda.copy(memory.ctypes.data, self.ptr, self.nbytes, "d2h")
        self.cuda.synchronize()
        return memory

    def __del__(self) -> None:
        if self.ptr:
            self.cuda.free(self.ptr)
            self.ptr = 0


@dataclass(frozen=True)
class DeviceTensor:
    """A tensor whose values are there already: whoever wrote it has waited for its stream.

    Attributes:
        ptr: Device address.
        nbytes: Bytes with padding.
        dtype: NumPy type name of the elements.
        shape: The tensor's own shape.
        format: TensorRT's name of the format ("LINEAR", "DLA_HWC4", ...).
        strides: Bytes along N, C (or vectors of C), H and W; along each axis for LINEAR.
        scale: Value of one step of an INT8 tensor; None for types that hold the values themselves.
        owner: Keeps the memory; has ``cuda`` and ``fetch()`` (a :class:`DeviceBuffer`, or a
            lease of ``_cuda_memory``).
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
        from ._convert import convert
        from ._packing import unpack

        # a view of pinned memory perhaps: unpacking copies out of it
        memory = self.owner.fetch()
        array = unpack(memory, self.shape, self.dtype, self.format, self.strides)
        return convert(array, dtype or self.dtype, self.scale, None)
