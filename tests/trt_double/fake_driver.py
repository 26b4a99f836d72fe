"""The driver half of the fake cuda-python, and the two layouts as modules."""

import functools
import os
import sys
import threading
from enum import IntEnum
from types import ModuleType
from typing import Any

from . import fake_cuda, fake_graphs
from ._memory import MEMORY
from .fake_cuda import KERNELS, LAUNCHES, CUresult, _Handle, cudaMemcpyKind
from .fake_graphs import CUstreamCaptureMode, cuDevicePrimaryCtxSetFlags

__all__ = ["CUstreamCaptureMode", "cuDevicePrimaryCtxSetFlags", "modules"]

_OK = CUresult.CUDA_SUCCESS
_FUNCTIONS: dict[int, str] = {}
_IMAGES: dict[int, bytes] = {}
_THREAD = threading.local()
# calls that write nothing give the status alone
_WRITES = {
    "cudaMalloc": 1,
    "cudaMallocHost": 1,
    "cudaHostAlloc": 1,
    "cudaStreamCreateWithFlags": 1,
    "cudaEventCreateWithFlags": 1,
    "cudaEventElapsedTime": 1,
    "cudaMemGetInfo": 2,
    "cuStreamEndCapture": 1,
    "cuGraphInstantiateWithFlags": 1,
    "cuCtxGetFlags": 1,
}


class CUdevice_attribute(IntEnum):
    """The attributes that the fake knows."""

    CU_DEVICE_ATTRIBUTE_INTEGRATED = 18
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76
    CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE = 108


def cuInit(flags: int) -> tuple[Any, ...]:
    # read once, when the driver starts
    lazy = os.environ.get("CUDA_MODULE_LOADING", "EAGER") == "LAZY"
    MEMORY.module_loading = MEMORY.module_loading or (2 if lazy else 1)
    return (_OK,)


def cuModuleGetLoadingMode() -> tuple[Any, ...]:
    return _OK, MEMORY.module_loading


def cuDriverGetVersion() -> tuple[Any, ...]:
    return _OK, fake_cuda.RUNTIME_VERSION


def cuDeviceGetCount() -> tuple[Any, ...]:
    return _OK, 1


def cuDeviceGet(ordinal: int) -> tuple[Any, ...]:
    return (_OK, _Handle(0)) if ordinal == 0 else (CUresult.CUDA_ERROR_INVALID_DEVICE, None)


def cuDeviceGetName(length: int, device: Any) -> tuple[Any, ...]:
    return _OK, b"Orin".ljust(length, b"\0")


def cuDeviceGetAttribute(attribute: Any, device: Any) -> tuple[Any, ...]:
    if not isinstance(attribute, CUdevice_attribute):
        raise TypeError("Argument 'attrib' has incorrect type (expected CUdevice_attribute)")
    return _OK, {18: 1, 75: 8, 76: 7, 108: MEMORY.persistent_cache}[int(attribute)]


def cuDevicePrimaryCtxRetain(device: Any) -> tuple[Any, ...]:
    return _OK, _Handle(0x100)


def cuCtxSetCurrent(context: Any) -> tuple[Any, ...]:
    _THREAD.context = int(context)
    return (_OK,)


def cuCtxGetCurrent() -> tuple[Any, ...]:
    return _OK, _Handle(getattr(_THREAD, "context", 0))


def _bound(function: Any) -> Any:
    """The call, refused in a thread without a current context, as the driver refuses it."""

    @functools.wraps(function)
    def call(*arguments: Any) -> tuple[Any, ...]:
        if not getattr(_THREAD, "context", 0):
            return CUresult.CUDA_ERROR_INVALID_CONTEXT, *[None] * _WRITES.get(function.__name__, 0)
        return _reported(function(*arguments))

    return call


def _reported(answer: tuple[Any, ...]) -> tuple[Any, ...]:
    """A runtime answer with the driver's status."""
    return (CUresult(int(answer[0])), *answer[1:])


def _copy(kind: str, stream: bool) -> Any:
    way = cudaMemcpyKind[kind]

    def copy(dst: int, src: int, count: int, *more: Any) -> tuple[Any, ...]:
        if stream:
            return fake_cuda.cudaMemcpyAsync(dst, src, count, way, *more)
        return fake_cuda.cudaMemcpy(dst, src, count, way)

    return copy


cuMemAlloc = _bound(fake_cuda.cudaMalloc)
cuMemFree = _bound(fake_cuda.cudaFree)
cuMemAllocHost = _bound(fake_cuda.cudaMallocHost)
cuMemHostAlloc = _bound(fake_cuda.cudaHostAlloc)
cuMemFreeHost = _bound(fake_cuda.cudaFreeHost)
cuMemcpyHtoD = _bound(_copy("cudaMemcpyHostToDevice", False))
cuMemcpyDtoH = _bound(_copy("cudaMemcpyDeviceToHost", False))
cuMemcpyDtoD = _bound(_copy("cudaMemcpyDeviceToDevice", False))
cuMemcpyHtoDAsync = _bound(_copy("cudaMemcpyHostToDevice", True))
cuMemcpyDtoHAsync = _bound(_copy("cudaMemcpyDeviceToHost", True))
cuMemcpyDtoDAsync = _bound(_copy("cudaMemcpyDeviceToDevice", True))
cuStreamCreate = _bound(fake_cuda.cudaStreamCreateWithFlags)
cuStreamDestroy = _bound(fake_cuda.cudaStreamDestroy)
cuStreamSynchronize = _bound(fake_cuda.cudaStreamSynchronize)
cuStreamWaitEvent = _bound(fake_cuda.cudaStreamWaitEvent)
cuCtxSynchronize = _bound(fake_cuda.cudaDeviceSynchronize)
cuEventCreate = _bound(fake_cuda.cudaEventCreateWithFlags)
cuEventDestroy = _bound(fake_cuda.cudaEventDestroy)
cuEventRecord = _bound(fake_cuda.cudaEventRecord)
cuEventSynchronize = _bound(fake_cuda.cudaEventSynchronize)
cuEventElapsedTime = _bound(fake_cuda.cudaEventElapsedTime)
cuMemGetInfo = _bound(fake_cuda.cudaMemGetInfo)
cuCtxGetFlags = _bound(fake_graphs.cuCtxGetFlags)
cuStreamBeginCapture = _bound(fake_graphs.cuStreamBeginCapture)
cuStreamEndCapture = _bound(fake_graphs.cuStreamEndCapture)
cuGraphInstantiateWithFlags = _bound(fake_graphs.cuGraphInstantiateWithFlags)
cuGraphLaunch = _bound(fake_graphs.cuGraphLaunch)
cuGraphDestroy = cuGraphExecDestroy = _bound(fake_graphs.cuGraphDestroy)


def cuModuleLoadData(image: Any) -> tuple[Any, ...]:
    if not isinstance(image, (bytes, bytearray)):
        raise TypeError("cuModuleLoadData(image: bytes)")
    made = MEMORY.handle()
    _IMAGES[made] = bytes(image)
    return _OK, _Handle(made)


def cuModuleGetFunction(module: Any, name: Any) -> tuple[Any, ...]:
    """A function of a module; its name must stand in the image, as a PTX names its entries."""
    if not isinstance(name, bytes):
        raise TypeError("cuModuleGetFunction(hmod, name: bytes)")
    if int(module) not in _IMAGES or name not in _IMAGES[int(module)]:
        return CUresult.CUDA_ERROR_NOT_FOUND, None
    made = MEMORY.handle()
    _FUNCTIONS[made] = name.decode()
    return _OK, _Handle(made)


def cuModuleUnload(module: Any) -> tuple[Any, ...]:
    known = _IMAGES.pop(int(module), None) is not None
    return (_OK if known else CUresult.CUDA_ERROR_INVALID_VALUE,)


def cuLaunchKernel(
    function: Any,
    gx: int,
    gy: int,
    gz: int,
    bx: int,
    by: int,
    bz: int,
    shared: int,
    stream: Any,
    parameters: Any,
    extra: Any,
) -> tuple[Any, ...]:
    """Queues the launch; a callable in `fake_cuda.KERNELS` of the kernel's name plays it."""
    name = _FUNCTIONS.get(int(function))
    if name is None:
        return (CUresult.CUDA_ERROR_INVALID_VALUE,)

    def launch() -> None:
        LAUNCHES.append((name, (gx, gy, gz), (bx, by, bz)))
        if name in KERNELS:
            KERNELS[name]((gx, gy, gz), (bx, by, bz), parameters)

    MEMORY.enqueue(int(stream), launch)
    return (_OK,)


def cuGetErrorName(error: Any) -> tuple[Any, ...]:
    return _OK, CUresult(error).name.encode()


def cuGetErrorString(error: Any) -> tuple[Any, ...]:
    return _OK, f"fake: {CUresult(error).name}".encode()


def modules(layout: str) -> dict[str, ModuleType]:
    """The modules of cuda-python's "new" or "old" layout by their import names.

    Raises:
        ValueError: Another layout.
    """
    names = {
        "new": ("cuda.bindings.runtime", "cuda.bindings.driver"),
        "old": ("cuda.cudart", "cuda.cuda"),
    }
    if layout not in names:
        raise ValueError(f"layout is new or old, not {layout!r}")
    runtime, driver = (ModuleType(name) for name in names[layout])
    for made, source, prefixes in (
        (runtime, fake_cuda, ("cuda",)),
        (driver, sys.modules[__name__], ("cu", "CU")),
    ):
        for key, value in vars(source).items():
            if key.startswith(prefixes) and not isinstance(value, ModuleType):
                setattr(made, key, value)
    if layout == "new":  # seen in cuda-bindings 13.5: the function has the shorter name
        vars(driver)["cuGraphInstantiate"] = vars(driver).pop("cuGraphInstantiateWithFlags")
    found = dict(zip(names[layout], (runtime, driver), strict=True))
    package = found["cuda"] = ModuleType("cuda")
    package.__path__ = []
    inner = package
    if layout == "new":
        inner = found["cuda.bindings"] = ModuleType("cuda.bindings")
        inner.__path__ = []
        inner.__dict__["__version__"] = "12.6.0"
        package.__dict__["bindings"] = inner
    for name in names[layout]:
        setattr(inner, name.rpartition(".")[2], found[name])
    return found
