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

    def staging(self) -> Any:
        """Pinned memory for a copy to the host; None: it has none of its own."""
        return None

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
        owner: Keeps the memory; has ``cuda`` and ``staging()`` (a :class:`DeviceBuffer`, or a
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
        import numpy as np

        from ._convert import convert
        from ._packing import unpack

        cuda = self.owner.cuda
        pinned = self.owner.staging()
        memory = np.empty(self.nbytes, np.uint8) if pinned is None else pinned.array()
        cuda.copy(memory.ctypes.data, self.ptr, self.nbytes, "d2h")
        cuda.synchronize()
        # unpacking copies, so that nothing points into the pinned memory afterwards
        array = unpack(memory, self.shape, self.dtype, self.format, self.strides)
        return convert(array, dtype or self.dtype, self.scale, None)
