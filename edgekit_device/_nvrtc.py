"""Compiles CUDA C++ at run time with NVRTC: through cuda-python, or ctypes on its library.

Nothing is written to disk and no header is needed. NVRTC compiles without a GPU, too. Functions
and options: https://docs.nvidia.com/cuda/nvrtc/ ("Supported Compile Options").
"""

from __future__ import annotations

import ctypes
import glob
import importlib
import os
import sys
from typing import Any, List, Optional, Tuple

from ._errors import DeviceError

__all__ = ["Compiler", "open_compiler"]

# what CUDA 13, 12 and 11 call it (from 11.3 on 11.2's name stays: NVRTC's "Versioning Scheme")
_LIBRARIES = ("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2", "libnvrtc.so")
_FOLDERS = ("/usr/local/cuda/lib64", "/usr/local/cuda-*/lib64", "/usr/local/cuda-*/targets/*/lib")
_PACKAGES = ("nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib")  # pip's wheels
_MOST_LOG = 2000


class Compiler:
    """NVRTC in one of its ways.

    Attributes:
        name: "cuda.bindings.nvrtc", "cuda.nvrtc" or the library's path.
        version: NVRTC's own, such as (12, 6).
    """

    def __init__(self, way: Any, name: str) -> None:
        self._way = way
        self.name = name
        self.version: Tuple[int, int] = tuple(way.version())

    def compile(self, source: str, capability: Tuple[int, int], name: str = "kernel.cu") -> bytes:
        """Compiles to a cubin for the device, or to PTX where NVRTC is older than the device.

        Args:
            source: CUDA C++ text.
            capability: The device's compute capability, such as (8, 7).
            name: What NVRTC calls the text in its messages.

        Raises:
            DeviceError: "nvrtc.failed" with NVRTC's log, "nvrtc.device" for a device that this
                NVRTC no longer knows.
        """
        wanted = 10 * capability[0] + capability[1]
        known = self._way.architectures()
        if known and wanted < min(known):
            raise DeviceError(
                "NVRTC {}.{} cannot compile for compute capability {}.{}".format(
                    *self.version, *capability
                ),
                code="nvrtc.device",
                where=self.name,
                hint="use the NVRTC of the board's own CUDA",
            )
        exact = not known or wanted in known
        arch = "sm_{}".format(wanted)
        if not exact:
            arch = "compute_{}".format(max(one for one in known if one <= wanted))
        options = ["--gpu-architecture=" + arch, "--fmad=false", "--std=c++14"]
        status, image, log = self._way.build(
            source.encode("ascii"), name.encode(), [one.encode() for one in options], exact
        )
        if status:
            raise DeviceError(
                "NVRTC could not compile a kernel (error {})".format(status),
                code="nvrtc.failed",
                where="{} for {}".format(name, arch),
                hint=log.strip()[:_MOST_LOG],
            )
        return bytes(image)


class _PythonWay:
    """cuda-python's module: each function returns its status and what it writes."""

    def __init__(self, module: Any) -> None:
        self._module = module
        status = self._call("nvrtcVersion")
        self._version = (int(status[0]), int(status[1]))

    def _call(self, name: str, *arguments: Any) -> List[Any]:
        status, *found = getattr(self._module, name)(*arguments)
        if int(status):
            raise RuntimeError("{}: error {}".format(name, int(status)))
        return list(found)

    def version(self) -> Tuple[int, int]:
        return self._version

    def architectures(self) -> List[int]:
        try:
            _, found = self._call("nvrtcGetSupportedArchs")
        except (AttributeError, ValueError, RuntimeError):
            return []
        return [int(one) for one in found]

    def build(
        self, source: bytes, name: bytes, options: List[bytes], exact: bool
    ) -> Tuple[int, bytes, str]:
        module = self._module
        program = self._call("nvrtcCreateProgram", source, name, 0, [], [])[0]
        status = int(module.nvrtcCompileProgram(program, len(options), options)[0])
        log = b" " * int(self._call("nvrtcGetProgramLogSize", program)[0])
        self._call("nvrtcGetProgramLog", program, log)
        image = b""
        if not status:
            kind = "CUBIN" if exact else "PTX"
            image = b" " * int(self._call("nvrtcGet{}Size".format(kind), program)[0])
            self._call("nvrtcGet" + kind, program, image)
        self._call("nvrtcDestroyProgram", program)
        return status, image, log.decode("utf-8", "replace").rstrip("\0")


class _LibraryWay:
    """NVRTC's library itself."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        first, second = ctypes.c_int(), ctypes.c_int()
        self._call("nvrtcVersion", ctypes.byref(first), ctypes.byref(second))
        self._version = (first.value, second.value)

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._library, name)(*arguments)
        if status:
            raise RuntimeError("{}: error {}".format(name, status))

    def version(self) -> Tuple[int, int]:
        return self._version

    def architectures(self) -> List[int]:
        count = ctypes.c_int()
        try:
            self._call("nvrtcGetNumSupportedArchs", ctypes.byref(count))
            found = (ctypes.c_int * max(count.value, 1))()
            self._call("nvrtcGetSupportedArchs", found)
        except (AttributeError, RuntimeError):
            return []
        return list(found)[: count.value]

    def _read(self, kind: str, program: ctypes.c_void_p) -> bytes:
        size = ctypes.c_size_t()
        self._call("nvrtcGet{}Size".format(kind), program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(max(size.value, 1))
        self._call("nvrtcGet" + kind, program, buffer)
        return buffer.raw[: size.value]

    def build(
        self, source: bytes, name: bytes, options: List[bytes], exact: bool
    ) -> Tuple[int, bytes, str]:
        program = ctypes.c_void_p()
        self._call("nvrtcCreateProgram", ctypes.byref(program), source, name, 0, None, None)
        try:
            given = (ctypes.c_char_p * len(options))(*options)
            status = int(self._library.nvrtcCompileProgram(program, len(options), given))
            log = self._read("ProgramLog", program).decode("utf-8", "replace").rstrip("\0")
            image = b"" if status else self._read("CUBIN" if exact else "PTX", program)
        finally:
            self._call("nvrtcDestroyProgram", ctypes.byref(program))
        return status, image, log


def open_compiler(path: Optional[str] = None) -> Compiler:
    """Finds NVRTC, cuda-python's before a library.

    Args:
        path: A library to take instead.

    Raises:
        DeviceError: "nvrtc.missing".
    """
    for module in () if path else ("cuda.bindings.nvrtc", "cuda.nvrtc"):
        try:
            return Compiler(_PythonWay(importlib.import_module(module)), module)
        except Exception:  # not installed, or its library is missing: the next way
            continue
    for name in (path,) if path else _candidates():
        try:
            return Compiler(_LibraryWay(ctypes.CDLL(name)), name)
        except (OSError, AttributeError, RuntimeError):
            continue
    raise DeviceError(
        "NVRTC, which compiles the pack kernels, is not here",
        code="nvrtc.missing",
        where=path or "",
        hint="install the board's package cuda-nvrtc-X-Y, or pip's nvidia-cuda-nvrtc-cu12",
    )


def _candidates() -> List[str]:
    found = list(_LIBRARIES)
    for folder in _FOLDERS:
        found += sorted(glob.glob(os.path.join(folder, "libnvrtc.so*")), reverse=True)
    for base in sys.path:
        for package in _PACKAGES:
            found += sorted(glob.glob(os.path.join(base or ".", package, "libnvrtc.so*")))
    return found
