"""How fast the GPU packs tensors into the DLA's formats and back, against its own copy.

    python benchmarks/pack_kernels.py [--check | --measure] [--json FILE]

First every conversion is compared with the NumPy packer bit for bit over shapes of odd and even
sizes, both DLA generations and all types; then each pair of layouts is measured on tensors far
larger than any cache. A rate is (bytes read + bytes written) / time by CUDA events, the median of
several rounds, and is compared with the device's own copy (cuMemcpyDtoDAsync) of as many bytes,
read and written. Needs a GPU, NVRTC and a driver. Exit status 1 when a comparison fails or the rate
of a tensor whose lines are multiples of 16 bytes is below 80 % of the copy's. Figures:
docs/kernels.md.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from edgekit.dla.formats import nbytes, pack, strides
from edgekit_device.arrays.formats import convert
from edgekit_device.cuda.driver import Cuda, open_cuda
from edgekit_device.cuda.kernels import (
    Layout,
    PackKernels,
    kernel_source,
    open_compiler,
    plan_kernel,
)
from edgekit_device.cuda.memory import DeviceBuffer
from edgekit_device.protocol.codec import write

_FORMATS = (
    ("DLA_LINEAR", "int8"),
    ("DLA_LINEAR", "float16"),
    ("DLA_HWC4", "int8"),
    ("DLA_HWC4", "float16"),
    ("CHW16", "float16"),
    ("CHW32", "int8"),
)
_TYPES = ("float32", "float16", "uint8", "int8")
_SHAPES = (
    (1, 1, 3, 67),
    (1, 3, 5, 7),
    (1, 4, 9, 31),
    (1, 5, 7, 9),
    (1, 33, 3, 13),
    (2, 64, 8, 16),
    (1, 3, 544, 960),
    (3, 130, 5, 5),
    (2, 3, 33, 129),
    (1, 64, 55, 57),
)
_LARGE, _ODD, _IMAGES = (4, 64, 1088, 1920), (4, 63, 1087, 1913), (64, 3, 1088, 1920)
_MOST = 4 * 4 * 64 * 1088 * 1920  # bytes of a side
_ROUNDS, _CALLS = 7, 10
LEAST = 0.8
_SCALE = 0.037
# at 2 every other value of a byte is a tie, where no product replaces the division
_SCALES = ((_SCALE, _SCALE), (0.02, 0.011), (2.0, 0.11))


@dataclass(frozen=True)
class Pair:
    """One conversion."""

    src: Layout
    dst: Layout

    def __str__(self) -> str:
        return f"{self.src.dtype} {self.src.format} -> {self.dst.dtype} {self.dst.format}"


def pairs(
    shape: tuple[int, ...], generation: str = "2.0", scale: float = _SCALE, other: float = _SCALE
) -> Iterator[Pair]:
    """Every conversion of a tensor of that shape; ``other`` is the scale of the side that is not
    the DLA's, where both are INT8."""
    for form, inner in _FORMATS:
        if form == "DLA_HWC4" and shape[1] not in {1, 3, 4}:
            continue
        own = scale if inner == "int8" else None
        dla = Layout(inner, shape, form, strides(shape, inner, form, generation), own)
        for dtype in _TYPES:
            for lay in ("LINEAR", "HWC"):
                outer = Layout(dtype, shape, lay, (), other if dtype == "int8" else None)
                yield Pair(outer, dla)
                if form != "DLA_HWC4" and not (inner == "float16" and dtype == "int8"):
                    yield Pair(dla, outer)


def cases() -> list[tuple[tuple[int, ...], Pair]]:
    """Returns the conversions to measure."""
    return [
        (shape, pair)
        for shape in (_LARGE, _IMAGES, _ODD)
        for pair in pairs(shape)
        if max(layout_size(pair.src), layout_size(pair.dst)) <= _MOST
        and (shape != _IMAGES or "HWC" in str(pair))
    ]


def compared_pairs() -> Iterator[tuple[Pair, str]]:
    """Yields the conversions to compare with NumPy, and the DLA's generation."""
    for shape in _SHAPES:
        for generation in ("1.0", "2.0"):
            for pair in pairs(shape, generation):
                yield pair, generation
    for scales in _SCALES:
        for pair in pairs(_SHAPES[0], "2.0", *scales):
            yield pair, "2.0"


def has_aligned_lines(shape: tuple[int, ...]) -> bool:
    """Returns True if the shape's lines are multiples of 16 bytes in every type."""
    return shape[-1] % 16 == 0


def table_row(shape: tuple[int, ...], pair: Pair) -> str:
    """The row of docs/kernels.md that a conversion belongs to."""
    few = f", {shape[1]} channels" if shape == _IMAGES else ""
    return f"{pair.src.format} to {pair.dst.format}{few}"


def main() -> int:
    """Compares and measures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only compare")
    parser.add_argument("--measure", action="store_true", help="only measure")
    parser.add_argument("--json", type=Path, help="write the figures there")
    given = parser.parse_args()
    cuda = open_cuda()
    print(write(cuda.facts()))
    with tempfile.TemporaryDirectory() as folder:
        packer = PackKernels(cuda, Path(folder), open_compiler())
        wrong = 0 if given.measure else check_all(cuda, packer)
        rows = [] if given.check else measure(cuda, packer)
    if given.json:
        given.json.write_text(json.dumps({"device": write(cuda.facts()), "rows": rows}, indent=1))
    if rows:
        summarise(rows)
    slow = [row for row in rows if row["aligned"] and row["share"] < LEAST]
    print(f"{wrong} wrong, {len(slow)} with lines of whole 16 bytes below {LEAST:.0%}")
    return int(bool(wrong or slow))


def summarise(rows: list[dict[str, Any]]) -> None:
    """Prints the table of docs/kernels.md: shares of the copy by pair of formats."""
    print("| conversion | lines of 16 bytes: worst | median | best | any lines: worst | median |")
    print("|---|---|---|---|---|---|")
    titles = [*dict.fromkeys(row["title"] for row in rows), "all"]
    for title in titles:
        cells = []
        for whole, wanted in ((True, 3), (False, 2)):
            shares = sorted(
                row["share"]
                for row in rows
                if row["aligned"] is whole and title in {row["title"], "all"}
            )
            found = [shares[0], statistics.median(shares), shares[-1]] if shares else []
            cells += [f"{share:.0%}".replace("%", " %") for share in found[:wanted]] or [
                ""
            ] * wanted
        print(f"| {title} | " + " | ".join(cells) + " |")
    for row in rows:
        if row["aligned"] and row["share"] < LEAST:
            print(f"below: {row['title']}, {row['pair']}: {row['share']:.0%}")


def compile_all(packer: PackKernels, wanted: Iterable[Pair]) -> None:
    """Compiles the kernels of conversions into the packer's folder, several at a time."""
    launches = {
        launch.defines: launch for launch in (plan_kernel(pair.src, pair.dst) for pair in wanted)
    }
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for _ in pool.map(lambda launch: packer._image(kernel_source(launch)), launches.values()):
            pass
    print(f"{len(launches)} kernels compiled", flush=True)


def check_all(cuda: Cuda, packer: PackKernels) -> int:
    """Compares every conversion with NumPy; returns how many differ."""
    rng = np.random.default_rng(7)
    every = list(compared_pairs())
    compile_all(packer, (pair for pair, _ in every))
    wrong = 0
    for pair, generation in every:
        memory, wanted = example(pair, rng)
        found = convert_on_gpu(cuda, packer, pair, memory, wanted.nbytes)
        if not same_bits(found.view(wanted.dtype).reshape(wanted.shape), wanted):
            wrong += 1
            print("WRONG", pair, pair.src.shape, generation)
    print(f"{len(every)} conversions compared with NumPy, {wrong} differ", flush=True)
    return wrong


def example(pair: Pair, rng: np.random.Generator) -> tuple[NDArray[Any], NDArray[Any]]:
    """Returns values for a conversion as bytes in memory, and NumPy's result."""
    src, dst = pair.src, pair.dst
    values = random_values(rng, src.shape, src.dtype)
    with np.errstate(all="ignore"):
        if dst.dtype == "uint8" and src.dtype != "uint8":
            real = convert(values, "float32", src.scale, None)
            # rounded and saturated, where NumPy's own conversion would wrap around
            turned = np.clip(np.nan_to_num(np.rint(real), nan=0.0), 0, 255).astype(np.uint8)
        else:
            turned = convert(values, dst.dtype, src.scale, dst.scale)
    return store_values(values, src), store_values(turned, dst)


def store_values(values: NDArray[Any], layout: Layout) -> NDArray[Any]:
    """Returns a tensor's memory; the generation of a DLA format is found by its size."""
    if layout.format == "LINEAR":
        return np.ascontiguousarray(values)
    if layout.format == "HWC":
        return np.ascontiguousarray(values.transpose(0, 2, 3, 1))
    fits = [
        g
        for g in ("2.0", "1.0")
        if strides(layout.shape, layout.dtype, layout.format, g) == layout.strides
    ]
    return pack(values, layout.format, fits[0])


def random_values(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
    """Values with ties of rounding, infinities, NaN and both zeros among them."""
    if dtype in {"uint8", "int8"}:
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max + 1, shape).astype(dtype)
    values = rng.standard_normal(shape).astype(np.float32) * 3
    flat = values.reshape(-1)
    ties = (np.arange(flat.size) % 301 - 150 + 0.5).astype(np.float32) * np.float32(_SCALE)
    flat[::3] = ties[::3]
    special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 6e4, 1e-7], np.float32)
    flat[: special.size] = special[: flat.size]
    return values.astype(dtype)


def same_bits(found: NDArray[Any], wanted: NDArray[Any]) -> bool:
    """Returns True if the bits are equal, except for the payload of a NaN."""
    if found.dtype.kind == "f":
        word = f"u{found.itemsize}"
        return bool(
            ((found.view(word) == wanted.view(word)) | (np.isnan(found) & np.isnan(wanted))).all()
        )
    return bool((found == wanted).all())


def convert_on_gpu(
    cuda: Cuda, packer: PackKernels, pair: Pair, memory: NDArray[Any], size: int
) -> NDArray[np.uint8]:
    """Runs one conversion on the GPU."""
    return run_over(
        cuda, memory, size, lambda src, dst: packer.convert(src, pair.src, dst, pair.dst)
    )


def run_over(
    cuda: Cuda, memory: NDArray[Any], size: int, call: Callable[[int, int], None]
) -> NDArray[np.uint8]:
    """Returns a call's result for ``memory``, written over memory filled with other bytes."""
    source, target = DeviceBuffer(cuda, memory.nbytes), DeviceBuffer(cuda, size)
    found = np.full(size, 0xA5, np.uint8)
    cuda.copy(source.ptr, memory.ctypes.data, memory.nbytes, "h2d")
    cuda.copy(target.ptr, found.ctypes.data, size, "h2d")
    cuda.synchronize()
    call(source.ptr, target.ptr)
    cuda.synchronize()
    cuda.copy(found.ctypes.data, target.ptr, size, "d2h")
    cuda.synchronize()
    return found


def measure(cuda: Cuda, packer: PackKernels) -> list[dict[str, Any]]:
    """Measures each pair and prints a table."""
    rows: list[dict[str, Any]] = []
    source, target = DeviceBuffer(cuda, _MOST), DeviceBuffer(cuda, _MOST)
    noise = np.random.default_rng(1).integers(0, 256, 1 << 26).astype(np.uint8)
    for start in range(0, _MOST, noise.nbytes):
        size = min(noise.nbytes, _MOST - start)
        cuda.copy(source.ptr + start, noise.ctypes.data, size, "h2d")
    cuda.synchronize()
    print(f"{'conversion':<46}{'shape':<18}{'GB/s':>7}{'copy':>7}{'share':>7}")

    every = cases()
    compile_all(packer, (pair for _, pair in every))
    for shape, pair in every:
        moved = layout_size(pair.src) + layout_size(pair.dst)
        rate = (
            moved
            / median_seconds(
                cuda, partial(packer.convert, source.ptr, pair.src, target.ptr, pair.dst)
            )
            / 1e9
        )
        half = moved // 2 // 256 * 256
        copying = partial(cuda.copy, target.ptr, source.ptr, half, "d2d")
        copy = 2 * half / median_seconds(cuda, copying) / 1e9
        title = table_row(shape, pair)
        row = {
            "pair": str(pair),
            "title": title,
            "shape": shape,
            "aligned": has_aligned_lines(shape),
        }
        rows.append({**row, "rate": rate, "copy": copy, "share": rate / copy})
        text = "x".join(map(str, shape))
        print(f"{pair!s:<46}{text:<18}{rate:7.0f}{copy:7.0f}{rate / copy:7.0%}", flush=True)
    return rows


def layout_size(layout: Layout) -> int:
    """Bytes of a tensor in memory."""
    form = "LINEAR" if layout.format == "HWC" else layout.format
    return nbytes(layout.shape, layout.dtype, form)


def median_seconds(cuda: Cuda, call: Any) -> float:
    """The median of several rounds of calls, by events."""
    call()
    first, last = cuda.event(), cuda.event()
    times = []
    for _ in range(_ROUNDS):
        cuda.record(first)
        for _ in range(_CALLS):
            call()
        cuda.record(last)
        cuda.synchronize()
        times.append(cuda.elapsed_ms(first, last) / _CALLS / 1e3)
    cuda.destroy_event(first)
    cuda.destroy_event(last)
    return sorted(times)[_ROUNDS // 2]


if __name__ == "__main__":
    sys.exit(main())
