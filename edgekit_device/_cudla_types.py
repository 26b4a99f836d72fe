"""cuDLA's C types and numbers for ctypes.

Source: cudla.h 1.2.1 of CUDA 11.4 and cuda-python's declarations of CUDA 13
(cuda/bindings/cycudla.pxd), which agree in every type used here; documentation:
https://docs.nvidia.com/cuda/cudla-api/.
"""

from __future__ import annotations

import ctypes
from typing import Dict

__all__ = [
    "DATA_FORMATS", "DATA_TYPES", "ERRORS", "FUNCTIONS", "HARDWARE_ERRORS", "HYBRID",
    "INPUT_DESCRIPTORS", "NUM_INPUTS", "NUM_OUTPUTS", "OUTPUT_DESCRIPTORS", "UNSUPPORTED",
    "DeviceAttribute", "ModuleAttribute", "Task", "TensorDescriptor",
]  # fmt: skip

HYBRID = 0  # CUDLA_CUDA_DLA: tasks are put on CUDA streams
NUM_INPUTS, NUM_OUTPUTS, INPUT_DESCRIPTORS, OUTPUT_DESCRIPTORS = 0, 1, 2, 3
_NAME_LENGTH = 80  # CUDLA_RUNTIME_TENSOR_DESC_NAME_MAX_LEN, without the zero byte
_NUM_STRIDES = 8  # CUDLA_LOADABLE_TENSOR_DESC_NUM_STRIDES
UNSUPPORTED = 13

#: cudlaStatus without its prefix.
ERRORS: Dict[int, str] = {
    1: "InvalidParam", 2: "OutOfResources", 3: "CreationFailed", 4: "InvalidAddress", 5: "Os",
    6: "Cuda", 7: "Umd", 8: "InvalidDevice", 9: "InvalidAttribute",
    10: "IncompatibleDlaSWVersion", 11: "MemoryRegistered", 12: "InvalidModule",
    13: "UnsupportedOperation", 14: "NvSci", 0x40000001: "DlaErrInvalidInput",
    0x40000002: "DlaErrInvalidPreAction", 0x40000003: "DlaErrNoMem",
    0x40000004: "DlaErrProcessorBusy", 0x40000005: "DlaErrTaskStatusMismatch",
    0x40000006: "DlaErrEngineTimeout", 0x40000007: "DlaErrDataMismatch", 0x7FFFFFFF: "Unknown",
}  # fmt: skip
HARDWARE_ERRORS = range(0x40000001, 0x40000008)
#: CUDLA_DATA_FORMAT_* and CUDLA_DATA_TYPE_* without their prefixes.
DATA_FORMATS = {0: "UNKNOWN", 1: "NCHW", 2: "NHWC", 3: "NCxHWx"}
DATA_TYPES = {
    0: "unknown", 1: "float32", 2: "float16", 3: "int16", 4: "int8", 5: "uint8", 6: "uint16"
}  # fmt: skip


class TensorDescriptor(ctypes.Structure):
    """cudlaModuleTensorDescriptor."""

    _fields_ = [
        ("name", ctypes.c_char * (_NAME_LENGTH + 1)),
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


_P, _U32, _U64, _SIZE = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_size_t
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
