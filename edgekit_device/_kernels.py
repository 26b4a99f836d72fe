"""Packs tensors into the DLA's formats and back on the GPU, with kernels compiled when needed.

Each pair of layouts has its own kernel, made of one text (``_kernels_source``) and compiled by
NVRTC. The results are the NumPy packer's and converter's (``_packing``, ``_convert``) bit for bit,
but for the payload of a NaN; UINT8 is written rounded half to even and saturated.
"""

from __future__ import annotations

import ctypes
import hashlib
import threading
from pathlib import Path
from typing import Any, Dict, Optional, Tuple

from ._errors import DeviceError, map_os_errors
from ._files import write_durably
from ._kernels_body import BODY
from ._kernels_layout import DLA, Layout
from ._kernels_plan import THREADS, Launch, plan
from ._kernels_prelude import CUDA_PRELUDE
from ._kernels_runs import RUNS
from ._kernels_source import TEMPLATE
from ._kernels_square import SQUARE
from ._kernels_stage import SHIFTED, STAGE
from ._kernels_window import WINDOW
from ._nvrtc import Compiler, open_compiler

__all__ = ["Layout", "Packer", "source"]

_ALIGNED = 16  # bytes that one access moves; cudaMalloc aligns to 256
_NAME = "convert"


def source(launch: Launch, prelude: str = CUDA_PRELUDE) -> str:
    """The text of a planned kernel."""
    defines = "".join("#define {} {}\n".format(*one) for one in launch.defines)
    return defines + prelude + SHIFTED + TEMPLATE + RUNS + SQUARE + STAGE + WINDOW + BODY


class Packer:
    """Compiles and launches the kernels of one device; every method may be called from any thread.

    A call only puts work on the stream: whoever needs the result waits for it.

    Args:
        cuda: The :class:`edgekit_device._cuda.Cuda` to work with.
        folder: Where compiled kernels are kept (a root's ``kernels``); None keeps them in memory.
        compiler: NVRTC; by default found when a kernel is not in the folder.
    """

    def __init__(
        self, cuda: Any, folder: Optional[Path] = None, compiler: Optional[Compiler] = None
    ) -> None:
        self._cuda = cuda
        self._folder = folder
        self._compiler = compiler
        self._functions: Dict[Tuple[Tuple[str, int], ...], int] = {}
        self._lock = threading.Lock()
        major, _, minor = cuda.facts()["compute_capability"].partition(".")
        self._capability = (int(major), int(minor))

    def pack(self, src_ptr: int, src: Any, dst_ptr: int, dst: Any, stream: int = 0) -> None:
        """Writes a tensor of planes ("LINEAR") or channels last ("HWC") in one of DLA's formats.

        Args:
            src_ptr: Device address of the tensor, a multiple of 16.
            src: Its layout: a ``Layout``, ``IoEntry`` or ``DeviceTensor``.
            dst_ptr: Device address to write at, a multiple of 16; padding is set to zero.
            dst: The layout wanted.
            stream: CUDA stream.

        Raises:
            DeviceError: "kernels.*", "format.*", "nvrtc.*" or "cuda.*".
        """
        if dst.format not in DLA:
            raise _unsupported(src, dst)
        self._launch(plan(src, dst), src_ptr, dst_ptr, stream)

    def unpack(self, src_ptr: int, src: Any, dst_ptr: int, dst: Any, stream: int = 0) -> None:
        """Writes a tensor in one of DLA's formats as "LINEAR" or "HWC"; as :meth:`pack`."""
        if src.format not in DLA or dst.format in DLA:
            raise _unsupported(src, dst)
        self._launch(plan(src, dst), src_ptr, dst_ptr, stream)

    def _launch(self, launch: Launch, src_ptr: int, dst_ptr: int, stream: int) -> None:
        for pointer in (src_ptr, dst_ptr):
            if pointer % _ALIGNED:
                raise DeviceError(
                    "the address {:#x} is no multiple of {}".format(pointer, _ALIGNED),
                    code="kernels.alignment",
                    hint="give tensors memory of their own",
                )
        if 0 in launch.grid:
            return  # a tensor without elements
        arguments = [ctypes.c_uint64(src_ptr), ctypes.c_uint64(dst_ptr), launch.numbers]
        function = self._function(launch)
        self._cuda.launch(function, launch.grid, (THREADS, 1, 1), arguments, stream)

    def _function(self, launch: Launch) -> int:
        with self._lock:
            if launch.defines not in self._functions:
                module = self._cuda.load_module(self._image(source(launch)))
                self._functions[launch.defines] = self._cuda.function(module, _NAME)
            return self._functions[launch.defines]

    def _image(self, text: str) -> bytes:
        """The compiled kernel: the folder's, or compiled now and kept there."""
        digest = hashlib.sha256(text.encode("ascii")).hexdigest()
        name = "{}-sm_{}{}.bin".format(digest[:32], *self._capability)
        if self._folder is not None:
            kept = self._folder / name
            if kept.is_file():
                with map_os_errors(str(kept)):
                    return kept.read_bytes()
        if self._compiler is None:
            self._compiler = open_compiler()
        image = self._compiler.compile(text, self._capability)
        if self._folder is not None:
            with map_os_errors(str(self._folder)):
                self._folder.mkdir(parents=True, exist_ok=True)
                write_durably(self._folder / name, image)
        return image


def _unsupported(src: Any, dst: Any) -> DeviceError:
    return DeviceError(
        "no kernel writes {} as {}".format(src.format, dst.format),
        code="kernels.unsupported",
        hint="one side is {}, the other LINEAR or HWC".format(", ".join(DLA)),
    )
