"""A stand-in for TensorRT's engine on a real GPU: y = 2 x, in a given time by the GPU's clock."""

from __future__ import annotations

import ctypes
import hashlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from edgekit_device.cuda.driver import Cuda
from edgekit_device.cuda.kernels import open_compiler
from edgekit_device.protocol.manifest import (
    BlobEntry,
    EngineEntry,
    IoEntry,
    Lane,
    Manifest,
    SegmentEntry,
    TensorEntry,
)
from edgekit_device.runtime.model import Model
from edgekit_device.store.root import BlobStore
from edgekit_device.tensorrt.engine import TensorRTEngine
from edgekit_device.trust.bundle import BundleFiles, Checked

__all__ = ["Kernel", "stand_in"]

_SHAPE, _STRIDES = (1, 3, 512, 512), (3145728, 1048576, 2048, 4)
_COUNT = 3 * 512 * 512
_SOURCE = """
__device__ unsigned long long now() {
    unsigned long long t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    return t;
}
extern "C" __global__ void work(unsigned long long ns, unsigned long long *count, const float *x,
                                float *y, unsigned int n) {
    unsigned long long begin = now();
    for (unsigned int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        y[i] = 2 * x[i];
    while (now() - begin < ns) {}
    if (blockIdx.x == 0 && threadIdx.x == 0) *count += 1;
}
"""


class Kernel:
    """Takes the given time, and counts its runs."""

    def __init__(self, cuda: Cuda) -> None:
        self._cuda = cuda
        image = open_compiler().compile(_SOURCE, cuda.compute_capability(), "work.cu")
        self._function = cuda.function(cuda.load_module(image), "work")
        self._count = cuda.malloc(8)
        zero = ctypes.c_uint64(0)
        cuda.copy(self._count, ctypes.addressof(zero), 8, "h2d")
        cuda.synchronize()

    def launch(self, stream: int, ms: float, x: int = 0, y: int = 0, n: int = 0) -> None:
        """Puts a run on the stream; not marked, as TensorRT's kernels are not."""
        values = [
            ctypes.c_uint64(int(ms * 1e6)),
            ctypes.c_uint64(self._count),
            ctypes.c_uint64(x),
            ctypes.c_uint64(y),
            ctypes.c_uint32(n),
        ]
        places = (ctypes.c_void_p * len(values))(*[ctypes.addressof(value) for value in values])
        grid = (32 if n else 1, 1, 1, 256 if n else 1, 1, 1)
        self._cuda.call(
            "cuLaunchKernel", self._function, *grid, 0, stream, ctypes.addressof(places), 0
        )

    def count(self) -> int:
        """How often it has run."""
        found = ctypes.c_uint64()
        self._cuda.copy(ctypes.addressof(found), self._count, 8, "d2h")
        self._cuda.synchronize()
        return found.value


class _Context:
    error_recorder = None

    def __init__(self, kernel: Kernel, ms: float) -> None:
        self._kernel, self._ms = kernel, ms
        self._at: dict[str, int] = {}

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        return _SHAPE

    def get_tensor_strides(self, name: str) -> tuple[int, ...]:
        return tuple(step // 4 for step in _STRIDES)

    def set_tensor_address(self, name: str, memory: int) -> bool:
        self._at[name] = memory
        return True

    def execute_async_v3(self, stream_handle: int) -> bool:
        self._kernel.launch(stream_handle, self._ms, self._at["x"], self._at["y"], _COUNT)
        return True


class _Engine:
    num_optimization_profiles = 1

    def __init__(self, kernel: Kernel, ms: float) -> None:
        self._made = kernel, ms

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        return _SHAPE

    def get_tensor_components_per_element(self, name: str) -> int:
        return -1

    def get_tensor_location(self, name: str) -> Any:
        return SimpleNamespace(name="DEVICE")

    def is_shape_inference_io(self, name: str) -> bool:
        return False

    def create_execution_context(self) -> _Context:
        return _Context(*self._made)


def stand_in(cuda: Cuda, ms: float) -> Model:
    """A model of one segment on the GPU whose engine is the kernel."""
    digest = hashlib.sha256(b"stand-in").hexdigest()
    x, y = (IoEntry(name, "float32", _SHAPE, "LINEAR", _STRIDES, None) for name in "xy")
    reported = {
        "runtime": "stand-in",
        "version": "",
        "library": None,
        "host_code": False,
        "dla_core": None,
        "threads": 0,
    }
    listener: Any = SimpleNamespace(recorder=None, forget=lambda: None, error=RuntimeError)
    loaded: Any = SimpleNamespace(
        engine=_Engine(Kernel(cuda), ms), listener=listener, facts=reported
    )
    engine = TensorRTEngine(loaded, cuda, [x], [y])
    segment = SegmentEntry(0, "GPU", digest, ("x",), ("y",), ())
    tensors = [TensorEntry(io.name, io.dtype, _SHAPE, "LINEAR", _STRIDES) for io in (x, y)]
    about = EngineEntry(
        kind="plan",
        tensorrt="",
        stripped=False,
        version_compatible=False,
        lean_embedded=False,
        refit="none",
        dla_core=None,
        inputs=(x,),
        outputs=(y,),
    )
    manifest = Manifest(
        digest="0" * 64,
        name="stand-in",
        backend="tensorrt",
        inputs=(tensors[0],),
        outputs=(tensors[1],),
        lanes=(Lane(1.0, (segment,)),),
        weights={},
        blobs={digest: BlobEntry(0, "engine")},
        engines={digest: about},
    )
    files = BundleFiles("", b"", None, BlobStore(Path("blobs")))
    return Model(Checked(files, manifest, None), {(digest, "GPU"): engine})
