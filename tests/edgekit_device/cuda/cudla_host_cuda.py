"""A Cuda whose device memory is the host's, and loadables for the stub of libcudla."""

from __future__ import annotations

import ctypes
import struct
import subprocess
import threading
from pathlib import Path
from types import SimpleNamespace

from edgekit_device.cuda.cudla_library import TensorDescriptor
from edgekit_device.errors import DeviceError
from edgekit_device.protocol.manifest import IoEntry

STUB = Path(__file__).parent / "cudla_stub" / "cudla_stub.c"
_ALIGNED = 256


def build_stub(folder: Path) -> Path:
    """Compiles the stub with the system's C compiler."""
    target = folder / "libcudla.so.1"
    command = ["cc", "-std=c11", "-Wall", "-Werror", "-shared", "-fPIC", "-o", target, STUB]
    subprocess.run([*map(str, command), "-lpthread"], check=True, capture_output=True)
    return target


class HostCuda:
    """What of ``edgekit_device.cuda.driver.Cuda`` an engine uses; counts what is not given back."""

    def __init__(self) -> None:
        self.blocks: dict[int, ctypes.Array[ctypes.c_char]] = {}
        self.streams: set[int] = set()
        self._lock = threading.Lock()
        self._next = 1

    def bind(self) -> None:
        pass

    def malloc(self, size: int) -> int:
        block = ctypes.create_string_buffer(size + _ALIGNED)
        pointer = -(-ctypes.addressof(block) // _ALIGNED) * _ALIGNED
        with self._lock:
            self.blocks[pointer] = block
        return pointer

    def free(self, pointer: int) -> None:
        del self.blocks[pointer]

    def host_alloc(self, size: int) -> int:
        return self.malloc(size)

    def host_free(self, pointer: int) -> None:
        self.free(pointer)

    def compute_capability(self) -> tuple[int, int]:
        return 8, 7

    def load_module(self, image: bytes) -> int:
        raise DeviceError("no GPU is here", code="cuda.failed")

    def copy(self, dst: int, src: int, size: int, kind: str, stream: int = 0) -> None:
        ctypes.memmove(dst, src, size)

    def stream(self) -> int:
        with self._lock:
            self._next += 1
            self.streams.add(self._next)
            return self._next

    def destroy_stream(self, stream: int) -> None:
        self.streams.remove(stream)

    def synchronize(self, stream: int = 0) -> None:
        assert stream == 0 or stream in self.streams


def entry(*ios: IoEntry, outputs: int = 1) -> SimpleNamespace:
    """What the manifest says: the last ``outputs`` entries are outputs."""
    return SimpleNamespace(inputs=ios[:-outputs], outputs=ios[-outputs:])


def descriptor(
    name: str,
    size: int,
    shape: tuple[int, int, int, int],
    numbers: tuple[int, int],
    stride: tuple[int, ...],
) -> TensorDescriptor:
    """A descriptor; ``numbers`` are data format and data type."""
    found = TensorDescriptor(name.encode(), size, *shape, *numbers)
    found.stride[: len(stride)] = stride
    return found


def loadable(inputs: list[TensorDescriptor], outputs: list[TensorDescriptor]) -> bytes:
    """A loadable of the stub."""
    parts = [bytes(one) for one in (*inputs, *outputs)]
    return b"STUBDLA1" + struct.pack("<II", len(inputs), len(outputs)) + b"".join(parts)
