"""What this board is now, asked cheaply: no child process while its files stay as they are.

ROOT/fingerprint.json  {"schema", "key", "fingerprint"}

The key is of the running system (its boot), of the files that JetPack, TensorRT and CUDA come as,
and of the TensorRT that this process has. A file that was changed since, or by somebody else, is
not believed; then the board is asked again.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import json
import os
import platform
import sys
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional

from ._errors import DeviceError
from ._files import write_durably
from ._owned import owners_of, read_owned

__all__ = ["COMPARED", "fingerprint_now"]

#: What makes a board another one for a release that was tested on it. CUDA is not among them: an
#: engine's CUDA is TensorRT's, and a toolkit beside it changes nothing of it.
COMPARED = {
    "reference": ("runtime_version", "machine"),
    "tensorrt": ("machine", "module", "l4t", "tensorrt", "compute_capability", "dla_compiler"),
}

_FILE = "fingerprint.json"
_SCHEMA = "edgekit.fingerprint/1"
# JetPack's releases, Debian's packages, device trees, CUDA: what an upgrade changes
_FILES = (
    "etc/nv_tegra_release", "var/lib/dpkg/status", "proc/device-tree/model",
    "usr/local/cuda/version.json", "usr/local/cuda",
)  # fmt: skip
_LIBRARIES = ("full", "dla_compiler", "cudart")


def fingerprint_now(folder: Path, backend: str, *, loads: bool = False) -> Dict[str, str]:
    """What a release of ``backend`` depends on here; "" where something is not known.

    Args:
        folder: ROOT.
        backend: The manifest's.
        loads: Whether the caller loads the runtime anyway: then it is asked itself.
    """
    if backend == "reference":
        return {
            "backend": backend,
            "runtime": "onnxruntime",
            "runtime_version": _onnxruntime(loads),
            "machine": platform.machine(),
        }
    version = _tensorrt(loads)
    key = _key(folder, version)
    known = _kept(folder, key)
    if known is not None:
        return known
    from ._fingerprint import fingerprint

    found = fingerprint(folder)
    if version and not _alike(version, found["tensorrt"]):
        found["tensorrt"] = version  # what runs counts, not what a package list says
    # where it cannot be kept, it is asked again
    with contextlib.suppress(OSError, DeviceError):
        if folder.is_dir():
            told = {"schema": _SCHEMA, "key": key, "fingerprint": found}
            write_durably(folder / _FILE, json.dumps(told).encode("utf-8"))
            (folder / _FILE).chmod(0o600)
    return found


def _onnxruntime(loads: bool) -> str:
    if loads:
        try:
            importlib.import_module("onnxruntime")
        except ImportError:
            return ""
    module = sys.modules.get("onnxruntime")
    if module is not None:
        return str(getattr(module, "__version__", ""))
    from ._hello import onnxruntime_version

    said = onnxruntime_version() or ""
    return said if said[:1].isdigit() else ""


def _tensorrt(loads: bool) -> str:
    if loads:
        from ._trt_modules import find

        module = find("full")
    else:
        module = sys.modules.get("tensorrt")
    return str(getattr(module, "__version__", ""))


def _alike(a: str, b: str) -> bool:
    first, second = a.split("."), b.split(".")
    known = min(len(first), len(second))
    return known > 0 and first[:known] == second[:known]


def _key(folder: Path, version: str) -> str:
    from . import _probe_files as files

    system = Path("/")
    paths = [system / name for name in _FILES]
    there = files.libraries(system)
    paths += [Path(there[kind]["path"]) for kind in _LIBRARIES if kind in there]
    facts: List[Any] = [_boot(system), version, sys.executable]
    facts += [_stamp(path) for path in (*paths, folder / "board.json")]
    return hashlib.sha256(json.dumps(facts).encode("utf-8")).hexdigest()


def _boot(system: Path) -> str:
    from ._probe_files import text_of

    return text_of(system / "proc/sys/kernel/random/boot_id").strip()


def _stamp(path: Path) -> Optional[List[Any]]:
    try:
        facts = path.stat()
    except OSError:
        return None
    if str(path).startswith("/proc/"):
        return [str(path)]  # its time is when somebody looked first
    return [str(path), os.path.realpath(str(path)), facts.st_mtime_ns, facts.st_size, facts.st_ino]


def _kept(folder: Path, key: str) -> Optional[Dict[str, str]]:
    try:
        data = read_owned(folder / _FILE, owners_of(folder))
        told = None if data is None else json.loads(bytes(data).decode("utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(told, Mapping) or (told.get("schema"), told.get("key")) != (_SCHEMA, key):
        return None
    found = told.get("fingerprint")
    if not isinstance(found, dict) or not all(isinstance(v, str) for v in found.values()):
        return None
    return found
