"""A stand-in for cuda-python, in its new layout (cuda.bindings) and its old one (cuda.cudart).

Device memory is host memory; every call gives the tuple that cuda-python gives, the error first.
Offences (unknown pointers, copies past a block's end, unknown streams) are in `MEMORY.offences`.
"""

import ctypes
import time
from collections.abc import Callable
from typing import Any

from ._cuda_enums import CUresult, cudaDeviceAttr, cudaError_t, cudaMemcpyKind
from ._memory import MEMORY

__all__ = ["CUresult", "cudaDeviceAttr"]

RUNTIME_VERSION = 12060


class _Handle(int):
    """A handle object: cuda-python's convert to int."""

    def getPtr(self) -> int:
        """Address of the handle, as cuda-python names it."""
        return int(self)


OK = cudaError_t.cudaSuccess
BAD = cudaError_t.cudaErrorInvalidValue
_EVENTS: dict[int, list[Any]] = {}
# kernels by name: called with the launch's (grid, block, arguments) when the stream runs
KERNELS: dict[str, Callable[..., None]] = {}
# what was launched: (kernel, grid, block)
LAUNCHES: list[tuple[str, tuple[int, ...], tuple[int, ...]]] = []


def cudaMalloc(size: int) -> tuple[Any, ...]:
    return OK, MEMORY.allocate(size)


def cudaFree(address: int) -> tuple[Any, ...]:
    return (OK if MEMORY.free(int(address)) else BAD,)


def cudaHostAlloc(size: int, flags: int) -> tuple[Any, ...]:
    return OK, MEMORY.allocate(size, host=True)


def cudaMallocHost(size: int) -> tuple[Any, ...]:
    return OK, MEMORY.allocate(size, host=True)


def cudaFreeHost(address: int) -> tuple[Any, ...]:
    return (OK if MEMORY.free(int(address), host=True) else BAD,)


def _copy(target: int, source: int, count: int, kind: Any) -> bool:
    if not isinstance(kind, cudaMemcpyKind):
        raise TypeError(f"Argument 'kind' has incorrect type: {kind!r} is no cudaMemcpyKind")
    sides = {
        "cudaMemcpyHostToDevice": (True, False),
        "cudaMemcpyDeviceToHost": (False, True),
        "cudaMemcpyDeviceToDevice": (True, True),
    }.get(kind.name, (False, False))
    fine = True
    for on_device, address in zip(sides, (target, source), strict=True):
        if on_device or MEMORY.space(address) is not None:
            fine = MEMORY.covers(address, count, kind.name) and fine
    return fine


def cudaMemcpy(dst: int, src: int, count: int, kind: Any) -> tuple[Any, ...]:
    MEMORY.flush_all()
    if not _copy(int(dst), int(src), count, kind):
        return (BAD,)
    ctypes.memmove(int(dst), int(src), count)
    return (OK,)


def cudaMemcpyAsync(dst: int, src: int, count: int, kind: Any, stream: Any) -> tuple[Any, ...]:
    if not _copy(int(dst), int(src), count, kind):
        return (BAD,)
    MEMORY.enqueue(int(stream), lambda: ctypes.memmove(int(dst), int(src), count) and None)
    return (OK,)


def cudaMemset(address: int, value: int, count: int) -> tuple[Any, ...]:
    if not MEMORY.covers(int(address), count, "cudaMemset"):
        return (BAD,)
    ctypes.memset(int(address), value, count)
    return (OK,)


def cudaStreamCreate() -> tuple[Any, ...]:
    return OK, _Handle(MEMORY.stream())


def cudaStreamCreateWithFlags(flags: int) -> tuple[Any, ...]:
    return OK, _Handle(MEMORY.stream())


def cudaStreamDestroy(stream: Any) -> tuple[Any, ...]:
    if int(stream) not in MEMORY.queues:
        MEMORY.offend(f"cudaStreamDestroy of {int(stream):#x}, which is no stream")
        return (cudaError_t.cudaErrorInvalidResourceHandle,)
    MEMORY.flush(int(stream))
    del MEMORY.queues[int(stream)]
    return (OK,)


def cudaStreamSynchronize(stream: Any) -> tuple[Any, ...]:
    if int(stream) and int(stream) not in MEMORY.queues:
        return (cudaError_t.cudaErrorInvalidResourceHandle,)
    MEMORY.flush(int(stream)) if int(stream) else MEMORY.flush_all()
    return (OK,)


def cudaDeviceSynchronize() -> tuple[Any, ...]:
    MEMORY.flush_all()
    return (OK,)


def cudaEventCreate() -> tuple[Any, ...]:
    made = MEMORY.handle()
    _EVENTS[made] = [0, 0.0]
    return OK, _Handle(made)


def cudaEventCreateWithFlags(flags: int) -> tuple[Any, ...]:
    return cudaEventCreate()


def cudaEventDestroy(event: Any) -> tuple[Any, ...]:
    return (OK if _EVENTS.pop(int(event), None) else BAD,)


def cudaEventRecord(event: Any, stream: Any) -> tuple[Any, ...]:
    slot = _EVENTS[int(event)]
    slot[:] = [int(stream), 0.0]

    def happen() -> None:
        slot[1] = time.perf_counter()

    MEMORY.enqueue(int(stream), happen)
    return (OK,)


def cudaEventSynchronize(event: Any) -> tuple[Any, ...]:
    return cudaStreamSynchronize(_EVENTS[int(event)][0])


def cudaEventElapsedTime(start: Any, end: Any) -> tuple[Any, ...]:
    first, last = _EVENTS[int(start)][1], _EVENTS[int(end)][1]
    if not first or not last:
        MEMORY.offend("cudaEventElapsedTime before both events had happened")
        return cudaError_t.cudaErrorInvalidResourceHandle, 0.0
    return OK, (last - first) * 1000


def cudaStreamWaitEvent(stream: Any, event: Any, flags: int) -> tuple[Any, ...]:
    other = _EVENTS[int(event)][0]
    MEMORY.enqueue(int(stream), lambda: MEMORY.flush(other))
    return (OK,)


def cudaMemGetInfo() -> tuple[Any, ...]:
    return OK, 16 << 30, 32 << 30


def cudaGetLastError() -> tuple[Any, ...]:
    return (OK,)
