"""Shared memory for tensors, and the views of a request's tensors in it.

If a file is truncated while another process has it mapped, SIGBUS kills that process; a memfd
sealed against shrinking cannot be truncated (memfd_create(2), fcntl(2) "File Sealing").
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
from typing import TYPE_CHECKING

from edgekit_device.errors import DeviceError, map_os_errors
from edgekit_device.files import memory_file
from edgekit_device.protocol.manifest import nbytes
from edgekit_device.protocol.serving import PlacedTensor

if TYPE_CHECKING:
    import numpy as np


#: Tensors begin at multiples of this: a cache line, and more than any type needs.
ALIGN = 64

#: Largest size in bytes of a connection's memory.
MOST = 1 << 32

# linux/fcntl.h: Pythons built on older systems lack the names
_ADD_SEALS, _GET_SEALS = 1033, 1034
_SEAL, _SHRINK, _GROW, _WRITE = 1, 2, 4, 8


def align(count: int) -> int:
    """Returns ``count`` rounded up to a multiple of ``ALIGN``."""
    return -(-count // ALIGN) * ALIGN


class SharedMemory:
    """A client's memory: its descriptor and its mapping."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = max(align(nbytes), mmap.PAGESIZE)
        if self.nbytes > MOST:
            raise DeviceError(
                "tensors of {} bytes are too large for the server".format(nbytes),
                code="serve.too-large",
                hint="its limit is {} bytes".format(MOST),
            )
        with map_os_errors("shared memory"):
            self.descriptor = memory_file()
            try:
                # missing memory raises now instead of a signal later
                os.posix_fallocate(self.descriptor, 0, self.nbytes)
                # the last seal forbids others: a later F_SEAL_WRITE would stop the worker's outputs
                fcntl.fcntl(self.descriptor, _ADD_SEALS, _SHRINK | _GROW | _SEAL)
                self.view = mmap.mmap(self.descriptor, self.nbytes)
            except BaseException:
                os.close(self.descriptor)
                raise

    def close(self) -> None:
        """Frees the memory; a view that is still in use keeps the mapping."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1
        with contextlib.suppress(BufferError):
            self.view.close()


def map_sealed(descriptor: int) -> mmap.mmap:
    """Maps a client's memory, if it is sealed against truncation.

    Raises:
        DeviceError: "serve.memory" or "serve.too-large".
    """
    try:
        seals = fcntl.fcntl(descriptor, _GET_SEALS)
        size = os.fstat(descriptor).st_size
        if seals & _SHRINK and not seals & _WRITE and 0 < size <= MOST:
            return mmap.mmap(descriptor, size)
        reason = "it is not sealed against shrinking, or it is sealed against writing"
        if not 0 < size <= MOST:
            reason = "its size is {} bytes".format(size)
    except (OSError, ValueError, OverflowError) as error:
        reason = str(error)
    raise DeviceError(
        "the descriptor is not shareable memory: {}".format(reason),
        code="serve.memory",
        hint="send a memfd with F_SEAL_SHRINK of at most {} bytes".format(MOST),
    )


def tensor_view(memory: mmap.mmap, tensor: PlacedTensor) -> np.ndarray:
    """Returns a view of a tensor in shared memory."""
    import numpy as np

    size = nbytes(tensor.dtype, tensor.shape)
    if tensor.offset % ALIGN or tensor.offset + size > len(memory):
        raise outside_error(tensor.name)
    if not size:
        return np.empty(tensor.shape, tensor.dtype)
    raw = np.frombuffer(memory, np.uint8, size, tensor.offset)
    found: np.ndarray = raw.view(tensor.dtype).reshape(tensor.shape)
    return found


def input_array(memory: mmap.mmap, tensor: PlacedTensor) -> np.ndarray:
    """Returns a client's tensor in a form that the engine may read."""
    view = tensor_view(memory, tensor)
    # a client's bytes may be neither 0 nor 1
    return view.view("uint8") != 0 if tensor.dtype == "bool" else view


def outside_error(where: str) -> DeviceError:
    """Returns the error that a request's tensor is outside its memory."""
    return DeviceError(
        "it is outside the memory sent with the request",
        code="serve.memory",
        where=where[:80],
        hint="offsets must be multiples of {}".format(ALIGN),
    )
