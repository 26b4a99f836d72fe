"""Compares the kernels of examples/plugin on a GPU with its NumPy reference.

    python benchmarks/plugin_kernel.py [--seed N]

Compares FP32, FP16 and INT8 bit for bit (a NaN's payload aside) over kernels, strides, paddings,
modes and scales: first the PTX of the Python plugin, compiled by NVRTC, then, where nvcc is
installed, the C++ plugin from its creator to enqueue. Needs a GPU, a driver and cuda-python; no
TensorRT. Exit status 1 when a result differs.
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples" / "plugin"))

import custom_pool

from edgekit_device.cuda.driver import Cuda, open_cuda
from edgekit_device.cuda.memory import DeviceBuffer
from edgekit_device.protocol.codec import write

ROOT = Path(__file__).resolve().parents[1]
PLUGIN = ROOT / "examples" / "plugin"
TYPES = ("float32", "float16", "int8")
_SHAPES = ((1, 3, 8, 8), (2, 5, 13, 7), (1, 1, 1, 33))
_KERNELS = ((1, 1), (2, 2), (3, 3), (3, 1), (1, 5), (7, 7))
_STRIDES = ((1, 1), (2, 2), (3, 1))
_PADDINGS = ((0, 0), (1, 1), (0, 2), (3, 3))
_MODES = (("max", 1), ("average", 0), ("average", 1))
# equal; ties at every odd value; saturation; two of no simple ratio
_SCALES = ((0.05, 0.05), (0.5, 1.0), (0.75, 0.125), (0.037, 0.0291))
Array = NDArray[Any]


@dataclass(frozen=True)
class Case:
    """A call of the operator."""

    dtype: str
    shape: tuple[int, ...]
    attributes: dict[str, Any]

    @property
    def out(self) -> tuple[int, ...]:
        """The output's shape."""
        pairs = (self.attributes[name] for name in ("kernel", "stride", "padding"))
        return (*self.shape[:2], *custom_pool.output_size(self.shape[2:], *pairs))


@dataclass
class Row:
    """The results for a type: calls, values, how many differ, and by how much at most.

    Attributes:
        ulps: Steps of the type between the two values; for INT8 between the codes.
    """

    calls: int = 0
    values: int = 0
    different: int = 0
    ulps: int = 0
    first: list[str] = field(default_factory=list)


def cases() -> Iterator[Case]:
    """Every combination whose windows fit."""
    for shape, kernel, stride, padding, (mode, counted), dtype in itertools.product(
        _SHAPES, _KERNELS, _STRIDES, _PADDINGS, _MODES, TYPES
    ):
        if any(pad >= size for pad, size in zip(padding, kernel, strict=True)) or any(
            size > whole + 2 * pad
            for size, whole, pad in zip(kernel, shape[2:], padding, strict=True)
        ):
            continue
        for scales in _SCALES if dtype == "int8" else ((0.0, 0.0),):
            yield Case(
                dtype,
                shape,
                {
                    "kernel": kernel,
                    "stride": stride,
                    "padding": padding,
                    "mode": mode,
                    "count_include_pad": counted,
                    "input_scale": scales[0],
                    "output_scale": scales[1],
                },
            )


def values(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    """Random values, with the type's ends, both zeros, infinities and NaN among the floats."""
    if dtype == "int8":
        return rng.integers(-128, 128, shape).astype(np.int8)
    found = rng.standard_normal(shape).astype(dtype)
    flat = found.reshape(-1)
    info = np.finfo(dtype)
    special = [info.max, info.min, info.smallest_subnormal, 0.0, -0.0, np.inf, -np.inf, np.nan]
    places = rng.choice(flat.size, min(len(special), flat.size // 4), replace=False)
    flat[places] = rng.permutation(np.array(special, dtype))[: places.size]
    return found


def compare(run: Callable[[Case, Array], Array], seed: int = 0) -> dict[str, Row]:
    """Compares ``run`` with the reference over all cases; returns a row for each type."""
    rng = np.random.default_rng(seed)
    rows = {dtype: Row() for dtype in TYPES}
    for case in cases():
        x = values(rng, case.shape, case.dtype)
        wanted = custom_pool.pool(x, **case.attributes)
        steps = distance(run(case, x), wanted)
        row = rows[case.dtype]
        row.calls += 1
        row.values += steps.size
        row.different += int(np.count_nonzero(steps))
        row.ulps = max(row.ulps, int(steps.max()))
        if steps.any() and len(row.first) < 3:
            row.first.append(str(case))
    return rows


def distance(found: Array, wanted: Array) -> NDArray[np.int64]:
    """Steps between values of one type; 0 between two NaN, and 1 between the two zeros."""
    if wanted.dtype.kind == "i":
        return np.abs(found.astype(np.int64) - wanted.astype(np.int64))

    def ranked(array: Array) -> NDArray[np.int64]:
        bits = array.view(f"i{array.itemsize}").astype(np.int64)
        lowest = -(1 << (8 * array.itemsize - 1))
        return np.where(bits < 0, lowest - bits - 1, bits)

    both = np.isnan(found) & np.isnan(wanted)
    return np.where(both, 0, np.abs(ranked(found) - ranked(wanted)))


def by_ptx(cuda: Cuda) -> Callable[[Case, Array], Array]:
    """Returns a function that runs a case with the Python plugin's PTX, launched as by TensorRT."""
    module = cuda.load_module(custom_pool.compile_ptx() + b"\0")

    def launch(case: Case, x: int, y: int) -> None:
        kernel = cuda.function(module, custom_pool.kernel_of(case.dtype))
        numbers = custom_pool.launch_numbers(case.dtype, case.shape, case.out, **case.attributes)
        blocks = -(-int(np.prod(case.out)) // custom_pool.THREADS)
        arguments = [ctypes.c_uint64(x), *map(ctypes.c_int32, numbers), ctypes.c_uint64(y)]
        cuda.launch(kernel, (blocks, 1, 1), (custom_pool.THREADS, 1, 1), arguments)

    return lambda case, x: _on_gpu(cuda, case, x, launch)


def by_library(cuda: Cuda, library: ctypes.CDLL) -> Callable[[Case, Array], Array]:
    """Returns a function that runs a case with the C++ plugin."""
    return lambda case, x: _on_gpu(
        cuda, case, x, lambda case, source, target: call_library(library, case, source, target)
    )


def call_library(library: ctypes.CDLL, case: Case, x: int, y: int) -> None:
    """Calls the C++ plugin; RuntimeError with the number of the step that failed."""
    given = case.attributes
    pairs = [(ctypes.c_int * 2)(*given[name]) for name in ("kernel", "stride", "padding")]
    scales = [ctypes.c_float(given[name]) for name in ("input_scale", "output_scale")]
    # every other case has its scales from TensorRT
    as_fields = int(sum(given["kernel"]) % 2)
    status = library.poolThroughPlugin(
        TYPES.index(case.dtype),
        (ctypes.c_int * 4)(*case.shape),
        (ctypes.c_int * 4)(*case.out),
        *pairs,
        given["mode"].encode(),
        given["count_include_pad"],
        *scales,
        as_fields,
        ctypes.c_void_p(x),
        ctypes.c_void_p(y),
    )
    if status:
        raise RuntimeError(f"step {status} of the C++ plugin failed: {case}")


def _on_gpu(cuda: Cuda, case: Case, x: Array, call: Callable[[Case, int, int], None]) -> Array:
    found = np.full(case.out, 77, x.dtype)
    source, target = DeviceBuffer(cuda, x.nbytes), DeviceBuffer(cuda, found.nbytes)
    cuda.copy(source.ptr, x.ctypes.data, x.nbytes, "h2d")
    cuda.copy(target.ptr, found.ctypes.data, found.nbytes, "h2d")
    cuda.synchronize()
    call(case, source.ptr, target.ptr)
    cuda.synchronize()
    cuda.copy(found.ctypes.data, target.ptr, found.nbytes, "d2h")
    cuda.synchronize()
    return found


def build_library(nvcc: str, folder: Path) -> ctypes.CDLL:
    """Compiles kernels and plugin with nvcc for this GPU."""
    path = folder / "plugin.so"
    sources = [PLUGIN / "custom_pool.cu", ROOT / "benchmarks" / "plugin_library.cpp"]
    subprocess.run(
        [
            nvcc,
            "-std=c++17",
            "-arch=native",
            "-shared",
            "-Xcompiler",
            "-fPIC",
            "-I",
            PLUGIN,
            "-I",
            PLUGIN / "stub",
            "-o",
            path,
            *sources,
        ],
        check=True,
    )
    return ctypes.CDLL(str(path))


def main() -> int:
    """Compares; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    seed = parser.parse_args().seed
    cuda = open_cuda()
    print(write(cuda.facts()))
    wrong = show("Python plugin (NVRTC, PTX)", compare(by_ptx(cuda), seed))
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        print("nvcc is not installed: the C++ plugin was not compared")
    else:
        with tempfile.TemporaryDirectory() as folder:
            library = build_library(nvcc, Path(folder))
            wrong += show("C++ plugin (nvcc)", compare(by_library(cuda, library), seed))
    return int(wrong > 0)


def show(title: str, rows: dict[str, Row]) -> int:
    """Prints the rows; returns how many values differ."""
    for dtype, row in rows.items():
        print(
            f"{title}: {dtype:<8} {row.calls:5} calls, {row.values:8} values, "
            f"{row.different} differ, by {row.ulps} steps at most"
        )
        for text in row.first:
            print(f"  {text}")
    return sum(row.different for row in rows.values())


if __name__ == "__main__":
    sys.exit(main())
