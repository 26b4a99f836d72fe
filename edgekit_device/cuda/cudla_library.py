"""Finds libcudla and calls it: its C types for ctypes, and its error numbers as DeviceErrors.

Source: cudla.h 1.2.1 of CUDA 11.4 and cuda-python's declarations of CUDA 13
(cuda/bindings/cycudla.pxd), which agree in every type used here; documentation:
https://docs.nvidia.com/cuda/cudla-api/.
"""

from __future__ import annotations

import ctypes
import glob
import os
import threading
from dataclasses import replace
from typing import Any, Callable, Dict, List, Optional, Tuple

from edgekit_device.errors import DeviceError
from edgekit_device.protocol import fields
from edgekit_device.protocol.codec import (
    array,
    document,
    long_text,
    member,
    nullable,
    text,
)

HYBRID = 0  # CUDLA_CUDA_DLA: tasks are put on CUDA streams
NUM_INPUTS, NUM_OUTPUTS, INPUT_DESCRIPTORS, OUTPUT_DESCRIPTORS = 0, 1, 2, 3
NAME_LENGTH = 80  # CUDLA_RUNTIME_TENSOR_DESC_NAME_MAX_LEN, without the zero byte
_NUM_STRIDES = 8  # CUDLA_LOADABLE_TENSOR_DESC_NUM_STRIDES

#: cudlaStatus without its prefix.
ERRORS: Dict[int, str] = {
    1: "InvalidParam",
    2: "OutOfResources",
    3: "CreationFailed",
    4: "InvalidAddress",
    5: "Os",
    6: "Cuda",
    7: "Umd",
    8: "InvalidDevice",
    9: "InvalidAttribute",
    10: "IncompatibleDlaSWVersion",
    11: "MemoryRegistered",
    12: "InvalidModule",
    13: "UnsupportedOperation",
    14: "NvSci",
    0x40000001: "DlaErrInvalidInput",
    0x40000002: "DlaErrInvalidPreAction",
    0x40000003: "DlaErrNoMem",
    0x40000004: "DlaErrProcessorBusy",
    0x40000005: "DlaErrTaskStatusMismatch",
    0x40000006: "DlaErrEngineTimeout",
    0x40000007: "DlaErrDataMismatch",
    0x7FFFFFFF: "Unknown",
}
UMD = 7
HARDWARE_ERRORS = range(0x40000001, 0x40000008)

#: CUDLA_DATA_FORMAT_* and CUDLA_DATA_TYPE_* without their prefixes.
DATA_FORMATS = {0: "UNKNOWN", 1: "NCHW", 2: "NHWC", 3: "NCxHWx"}
DATA_TYPES = {
    0: "unknown",
    1: "float32",
    2: "float16",
    3: "int16",
    4: "int8",
    5: "uint8",
    6: "uint16",
}
_P, _U32, _U64, _SIZE = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_size_t

# packages libcudla-11-4, libcudla-12-6 and libcudla-13-2 all bring libcudla.so.1
_NAMES = ("libcudla.so.1", "libcudla.so")
_FOLDERS = (
    "/usr/local/cuda/lib64",
    "/usr/local/cuda/targets/*/lib",
    "/usr/local/cuda-*/targets/*/lib",
    "/usr/lib/aarch64-linux-gnu/tegra",
    "/usr/lib/aarch64-linux-gnu/nvidia",
)
_ENV = "EDGEKIT_CUDLA"
_HINTS = {
    "Umd": "the DLA runtime's log (dmesg) may show the cause",
    "InvalidAddress": "the memory must be CUDA memory and registered only once",
    "IncompatibleDlaSWVersion": "use the libcudla of the board's own JetPack",
    "OutOfResources": "a core has a limited number of loadables: unload others",
    "UnsupportedOperation": "the current GPU must be the board's integrated one",
}

_OPEN: List[Library] = []
_LOCK = threading.Lock()


class CudlaError(DeviceError):
    """A function of cuDLA failed with ``status``, a cudlaStatus."""

    status = 0


class TensorDescriptor(ctypes.Structure):
    """cudlaModuleTensorDescriptor."""

    _fields_ = [
        ("name", ctypes.c_char * (NAME_LENGTH + 1)),
        ("size", ctypes.c_uint64),
        ("n", ctypes.c_uint64),
        ("c", ctypes.c_uint64),
        ("h", ctypes.c_uint64),
        ("w", ctypes.c_uint64),
        ("data_format", ctypes.c_uint8),
        ("data_type", ctypes.c_uint8),
        ("data_category", ctypes.c_uint8),
        ("pixel_format", ctypes.c_uint8),
        ("pixel_mapping", ctypes.c_uint8),
        ("stride", ctypes.c_uint32 * _NUM_STRIDES),
    ]


class ModuleAttribute(ctypes.Union):
    """cudlaModuleAttribute: counts are written into it, descriptors where it points."""

    _fields_ = [
        ("count", ctypes.c_uint32),
        ("descriptors", ctypes.POINTER(TensorDescriptor)),
    ]


class DeviceAttribute(ctypes.Union):
    """cudlaDevAttribute."""

    _fields_ = [("unified_addressing", ctypes.c_uint8), ("device_version", ctypes.c_uint32)]


class Task(ctypes.Structure):
    """cudlaTask; in hybrid mode the events must be null."""

    _fields_ = [
        ("module", ctypes.c_void_p),
        ("outputs", ctypes.POINTER(ctypes.c_void_p)),
        ("num_outputs", ctypes.c_uint32),
        ("num_inputs", ctypes.c_uint32),
        ("inputs", ctypes.POINTER(ctypes.c_void_p)),
        ("wait_events", ctypes.c_void_p),
        ("signal_events", ctypes.c_void_p),
    ]


#: Argument types by function; every function returns a cudlaStatus.
FUNCTIONS = {
    "cudlaGetVersion": [ctypes.POINTER(_U64)],
    "cudlaDeviceGetCount": [ctypes.POINTER(_U64)],
    "cudlaCreateDevice": [_U64, ctypes.POINTER(_P), _U32],
    "cudlaMemRegister": [_P, _P, _SIZE, ctypes.POINTER(_P), _U32],
    "cudlaModuleLoadFromMemory": [_P, ctypes.c_char_p, _SIZE, ctypes.POINTER(_P), _U32],
    "cudlaModuleGetAttributes": [_P, ctypes.c_int, ctypes.POINTER(ModuleAttribute)],
    "cudlaModuleUnload": [_P, _U32],
    "cudlaSubmitTask": [_P, ctypes.POINTER(Task), _U32, _P, _U32],
    "cudlaDeviceGetAttribute": [_P, ctypes.c_int, ctypes.POINTER(DeviceAttribute)],
    "cudlaMemUnregister": [_P, _P],
    "cudlaGetLastError": [_P],
    "cudlaDestroyDevice": [_P],
}


class Library:
    """libcudla; a process has a single instance.

    Attributes:
        path: The file's path or name.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        handle = ctypes.CDLL(path)
        self._functions: Dict[str, Callable[..., int]] = {}
        for name, kinds in FUNCTIONS.items():
            function = getattr(handle, name, None)
            if function is None:
                raise DeviceError(
                    "{} lacks {}".format(path, name),
                    code="cudla.library",
                    hint="install the libcudla of the board's JetPack",
                )
            # without types ctypes would pass 64-bit handles as 32-bit integers
            function.argtypes = kinds
            function.restype = ctypes.c_int
            self._functions[name] = function

    def call(self, name: str, *arguments: Any, where: str = "") -> None:
        """Calls a function.

        Raises:
            CudlaError: "cudla.hardware" for an error of the DLA itself, else "cudla.failed".
        """
        status = int(self._functions[name](*arguments))
        if status:
            raise self.error(name, status, where)

    @staticmethod
    def error(name: str, status: int, where: str = "") -> CudlaError:
        """Returns the error for a function's status."""
        text = ERRORS.get(status, "")
        known = "cudlaError" + text if text else "unknown status"
        error = CudlaError(
            # the numbers as cudla.h writes them: hexadecimal for errors of the DLA
            "{} failed: {} ({})".format(name, known, hex(status) if status > 255 else status),
            code="cudla.hardware" if status in HARDWARE_ERRORS else "cudla.failed",
            where=where,
            hint=_HINTS.get(text, ""),
        )
        error.status = status
        return error


def find_library() -> Optional[str]:
    """Returns the path or name under which libcudla can be loaded; None if it is missing.

    ``$EDGEKIT_CUDLA`` selects another file.
    """
    # a chosen file is used alone: another one would hide a mistake in the setting
    names = [os.environ[_ENV]] if os.environ.get(_ENV) else list(_NAMES)
    if not os.environ.get(_ENV):
        for folder in _FOLDERS:
            for name in _NAMES:
                # of one pattern, the newest CUDA first
                names += sorted(glob.glob(os.path.join(folder, name)), reverse=True)
    for name in names:
        try:
            ctypes.CDLL(name)
        except OSError:
            continue
        return name
    return None


def open_library() -> Library:
    """Loads libcudla.

    Raises:
        DeviceError: "cudla.missing" or "cudla.library".
    """
    with _LOCK:
        if not _OPEN:
            path = find_library()
            if path is None:
                raise DeviceError(
                    "libcudla.so.1 is needed to run DLA loadables and is missing",
                    code="cudla.missing",
                    hint="on the board: apt-get install libcudla-X-Y for its CUDA version X.Y",
                )
            _OPEN.append(Library(path))
        return _OPEN[0]


@document(frozen=True)
class CudlaFacts:
    """The installed library, for a probe; unknown values are None.

    Attributes:
        version: Its version, such as "1.2.1".
        devices: Number of DLAs that it reports.
        notes: Reasons for unknown values.
    """

    path: Optional[str] = member(nullable(text()), default=None)
    version: Optional[str] = member(nullable(text()), default=None)
    devices: Optional[int] = member(nullable(fields.count), default=None)
    notes: Tuple[str, ...] = member(array(long_text), default=())


def cudla_facts() -> CudlaFacts:
    """Returns the facts about the installed cuDLA."""
    facts = CudlaFacts()
    try:
        library = open_library()
        facts = replace(facts, path=library.path)
        number = ctypes.c_uint64()
        library.call("cudlaGetVersion", ctypes.byref(number))
        whole = number.value  # 1000000 * major + 1000 * minor + patch
        version = "{}.{}.{}".format(whole // 1000000, whole // 1000 % 1000, whole % 1000)
        facts = replace(facts, version=version)
        library.call("cudlaDeviceGetCount", ctypes.byref(number))
        return replace(facts, devices=number.value)
    except DeviceError as error:
        return replace(facts, notes=(error.message,))
