"""Finds libcudla and calls it; its error numbers become DeviceErrors with cuDLA's own names."""

from __future__ import annotations

import ctypes
import glob
import os
import threading
from typing import Any, Dict, List, Optional

from ._cudla_types import ERRORS, FUNCTIONS, HARDWARE_ERRORS
from ._errors import DeviceError

__all__ = ["Library", "cudla_facts", "find_library", "open_library"]

# packages libcudla-11-4, libcudla-12-6 and libcudla-13-2 all bring libcudla.so.1
_NAMES = ("libcudla.so.1", "libcudla.so")
_FOLDERS = (
    "/usr/local/cuda/lib64", "/usr/local/cuda/targets/*/lib", "/usr/local/cuda-*/targets/*/lib",
    "/usr/lib/aarch64-linux-gnu/tegra", "/usr/lib/aarch64-linux-gnu/nvidia",
)  # fmt: skip
_NVSCI = ("libnvscibuf.so.1", "libnvscisync.so.1")
_ENV = "EDGEKIT_CUDLA"
_HINTS = {
    "Umd": "the DLA runtime's own log (dmesg) says more",
    "InvalidAddress": "memory must be CUDA memory that is registered once",
    "IncompatibleDlaSWVersion": "libcudla and the board's L4T must be of one JetPack",
    "OutOfResources": "a core holds a limited number of loadables: unload others",
    "UnsupportedOperation": "the current GPU must be the board's integrated one",
}


class Library:
    """libcudla, one for the process.

    Attributes:
        path: The file's path or name.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        handle = ctypes.CDLL(path)
        self._functions: Dict[str, Any] = {}
        for name, kinds in FUNCTIONS.items():
            function = getattr(handle, name, None)
            if function is None:
                raise DeviceError(
                    "{} lacks {}".format(path, name),
                    code="cudla.library",
                    hint="install the libcudla of the board's JetPack",
                )
            function.argtypes = kinds
            function.restype = ctypes.c_int
            self._functions[name] = function

    def call(self, name: str, *arguments: Any, where: str = "") -> None:
        """Calls a function.

        Raises:
            DeviceError: "cudla.hardware" for an error of the DLA itself, else "cudla.failed".
        """
        status = int(self._functions[name](*arguments))
        if status:
            raise self.error(name, status, where)

    @staticmethod
    def error(name: str, status: int, where: str = "") -> DeviceError:
        """What a status of a function means."""
        text = ERRORS.get(status, "")
        known = "cudlaError" + text if text else "unknown status"
        return DeviceError(
            "{} failed: {} ({})".format(name, known, hex(status) if status > 255 else status),
            code="cudla.hardware" if status in HARDWARE_ERRORS else "cudla.failed",
            where=where,
            hint=_HINTS.get(text, ""),
        )


_OPEN: List[Library] = []
_LOCK = threading.Lock()


def find_library() -> Optional[str]:
    """The path or name under which libcudla can be loaded; None where it is not there.

    ``$EDGEKIT_CUDLA`` names another file.
    """
    names = [os.environ[_ENV]] if os.environ.get(_ENV) else list(_NAMES)
    if not os.environ.get(_ENV):
        for folder in _FOLDERS:
            for name in _NAMES:
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
                    "libcudla.so.1, which runs DLA loadables, is not here",
                    code="cudla.missing",
                    hint="on the board: apt-get install libcudla-X-Y for its CUDA X.Y",
                )
            _OPEN.append(Library(path))
        return _OPEN[0]


def cudla_facts() -> Dict[str, Any]:
    """What is there, for a probe.

    Returns:
        ``{"path", "version" ("1.2.1"), "devices", "nvsci", "notes"}``; None where unknown. Engines
        run in hybrid mode only: of standalone mode, whether its NvSci libraries are there.
    """
    facts: Dict[str, Any] = {
        "path": None, "version": None, "devices": None, "nvsci": False, "notes": []
    }  # fmt: skip
    try:
        library = open_library()
        facts["path"] = library.path
        number = ctypes.c_uint64()
        library.call("cudlaGetVersion", ctypes.byref(number))
        whole = number.value  # 1000000 * major + 1000 * minor + patch
        facts["version"] = "{}.{}.{}".format(whole // 1000000, whole // 1000 % 1000, whole % 1000)
        library.call("cudlaDeviceGetCount", ctypes.byref(number))
        facts["devices"] = number.value
    except DeviceError as error:
        facts["notes"].append(error.message)
    facts["nvsci"] = all(_loads(name) for name in _NVSCI)
    return facts


def _loads(name: str) -> bool:
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True
