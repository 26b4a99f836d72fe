"""Runs the pack kernels' own text on the CPU: compiled by the system's C compiler, checked access
by access (``kernel_emulation``), and what NumPy says they must write."""

from __future__ import annotations

import ctypes
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgekit.dla.formats import pack, strides
from edgekit_device.arrays.formats import convert
from edgekit_device.cuda.kernels import Launch, Layout, kernel_source

_FOLDER = Path(__file__).parent / "kernel_emulation"
_ALIGNED = 64


def aligned(nbytes: int) -> NDArray[np.uint8]:
    """Bytes that no kernel writes, as aligned as a GPU's memory."""
    block = np.full(nbytes + _ALIGNED, 0xA5, np.uint8)
    start = -block.ctypes.data % _ALIGNED
    return block[start : start + nbytes]


@dataclass
class Emulator:
    """Compiles each kernel once."""

    folder: Path

    def __post_init__(self) -> None:
        self._built: dict[Any, ctypes.CDLL] = {}

    def run(self, launch: Launch, memory: NDArray[Any], nbytes: int) -> NDArray[np.uint8]:
        """Runs a planned kernel over ``memory``; fails where it left it or was not aligned."""
        given, found = aligned(memory.nbytes), aligned(nbytes)
        given[:] = memory.reshape(-1).view(np.uint8)
        library = self._library(launch)
        wrong = library.emulate(
            ctypes.c_void_p(given.ctypes.data),
            ctypes.c_int64(given.nbytes),
            ctypes.c_void_p(found.ctypes.data),
            ctypes.c_int64(found.nbytes),
            ctypes.byref(launch.numbers),
            *launch.grid[:2],
        )
        assert wrong == 0, f"{wrong} accesses outside (millions) or crooked (ones)"
        return found

    def _library(self, launch: Launch) -> ctypes.CDLL:
        if launch.defines not in self._built:
            text = kernel_source(launch, '#include "prelude.h"\n') + '#include "launch.h"\n'
            path = self.folder / f"kernel{len(self._built)}.c"
            path.write_text(text, encoding="ascii")
            # no fused multiply-add but where the text asks for one
            command = ["cc", "-O0", "-std=c99", "-ffp-contract=off", "-fPIC", "-shared", "-w"]
            command += ["-I", str(_FOLDER), "-o", f"{path}.so", str(path), "-lm"]
            subprocess.run(command, check=True)
            library = ctypes.CDLL(f"{path}.so")
            library.emulate.restype = ctypes.c_long
            self._built[launch.defines] = library
        return self._built[launch.defines]


def layout(
    form: str,
    dtype: str,
    shape: tuple[int, ...],
    scale: float | None = None,
    generation: str = "2.0",
) -> Layout:
    """A layout with the strides of its DLA format."""
    if form in {"LINEAR", "HWC"}:
        return Layout(dtype, shape, form, (), scale)
    return Layout(dtype, shape, form, strides(shape, dtype, form, generation), scale)


def values(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
    """Values with ties of rounding, infinities, NaN and both zeros among them."""
    if dtype in {"uint8", "int8"}:
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max + 1, shape).astype(dtype)
    found = rng.standard_normal(shape).astype(np.float32) * 3
    flat = found.reshape(-1)
    flat[::3] = ((np.arange(flat.size) % 301 - 150 + 0.5) * np.float32(0.037))[::3]
    special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 6e4, 1e-7], np.float32)
    flat[: special.size] = special[: flat.size]
    return found.astype(dtype)


def stored(tensor: NDArray[Any], lay: Layout, generation: str = "2.0") -> NDArray[Any]:
    """A tensor as it lies in memory, by the host's packer."""
    if lay.format == "HWC":
        return np.ascontiguousarray(tensor.transpose(0, 2, 3, 1))
    return pack(tensor, lay.format, generation)


def turned(tensor: NDArray[Any], src: Layout, dst: Layout) -> NDArray[Any]:
    """The tensor in the other type, by the loader's converter; UINT8 rounded and saturated."""
    with np.errstate(all="ignore"):
        if dst.dtype == "uint8" and src.dtype != "uint8":
            real = np.rint(convert(tensor, "float32", src.scale, None))
            return np.clip(np.nan_to_num(real, nan=0.0), 0, 255).astype(np.uint8)
        return convert(tensor, dst.dtype, src.scale, dst.scale)


def same(found: NDArray[np.uint8], wanted: NDArray[Any]) -> bool:
    """Bit for bit, but for the payload of a NaN."""
    array = found.view(wanted.dtype).reshape(wanted.shape)
    if array.dtype.kind == "f":
        word = f"u{array.itemsize}"
        nan = np.isnan(array) & np.isnan(wanted)
        return bool(((array.view(word) == wanted.view(word)) | nan).all())
    return bool((array == wanted).all())
