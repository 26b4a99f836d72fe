"""Captured streams, graphs and the context's flags of the fake driver."""

from enum import IntEnum
from typing import Any

from ._memory import MEMORY
from .fake_cuda import CUresult, _Handle

_OK = CUresult.CUDA_SUCCESS


class CUstreamCaptureMode(IntEnum):
    """What may be called while a stream is captured."""

    CU_STREAM_CAPTURE_MODE_GLOBAL = 0
    CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1
    CU_STREAM_CAPTURE_MODE_RELAXED = 2


def cuDevicePrimaryCtxSetFlags(device: Any, flags: int) -> tuple[Any, ...]:
    if flags not in (0, 1, 2, 4):  # CU_CTX_SCHED_*, one of them
        return (CUresult.CUDA_ERROR_INVALID_VALUE,)
    MEMORY.schedule = flags
    return (_OK,)


def cuCtxGetFlags() -> tuple[Any, ...]:
    return _OK, MEMORY.schedule


def cuStreamBeginCapture(stream: Any, mode: Any) -> tuple[Any, ...]:
    if not isinstance(mode, CUstreamCaptureMode):
        raise TypeError("Argument 'mode' has incorrect type (expected CUstreamCaptureMode)")
    if int(stream) not in MEMORY.queues or int(stream) in MEMORY.captures:
        return (CUresult.CUDA_ERROR_INVALID_HANDLE,)
    MEMORY.captures[int(stream)] = []
    return (_OK,)


def cuStreamEndCapture(stream: Any) -> tuple[Any, ...]:
    work = MEMORY.captures.pop(int(stream), None)
    if work is None:
        return CUresult.CUDA_ERROR_INVALID_HANDLE, None
    made = MEMORY.handle()
    MEMORY.graphs[made] = work
    return _OK, _Handle(made)


def cuGraphInstantiateWithFlags(graph: Any, flags: int) -> tuple[Any, ...]:
    """A graph that can be launched; one that holds nothing is as good as any."""
    if int(graph) not in MEMORY.graphs:
        return CUresult.CUDA_ERROR_INVALID_VALUE, None
    made = MEMORY.handle()
    MEMORY.graphs[made] = list(MEMORY.graphs[int(graph)])
    return _OK, _Handle(made)


def cuGraphLaunch(graph: Any, stream: Any) -> tuple[Any, ...]:
    work = MEMORY.graphs.get(int(graph))
    if work is None:
        MEMORY.offend(f"cuGraphLaunch of {int(graph):#x}, which is no graph")
        return (CUresult.CUDA_ERROR_INVALID_HANDLE,)
    for each in work:
        MEMORY.enqueue(int(stream), each)
    return (_OK,)


def cuGraphDestroy(graph: Any) -> tuple[Any, ...]:
    known = MEMORY.graphs.pop(int(graph), None) is not None
    return (_OK if known else CUresult.CUDA_ERROR_INVALID_VALUE,)
