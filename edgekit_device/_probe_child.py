"""Questions that load a driver or TensorRT: each in a process of its own, which may crash.

TensorRT's Builder ends the process on a machine without a driver, and a broken installation can
do so at import. So what these answer is a fact, and how they end is a note.
"""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

from ._child import child_argv

__all__ = ["ask_cuda", "ask_cudla", "ask_cudla_facts", "ask_tensorrt"]

_TIMEOUT_S = 90.0

# each line printed is kept although the next step may crash
_TENSORRT = """
import importlib, json, sys
name = sys.argv[1]
trt = importlib.import_module(name)
print(json.dumps({"version": str(trt.__version__)}), flush=True)
if name == "tensorrt":
    builder = trt.Builder(trt.Logger(trt.Logger.ERROR))
    print(json.dumps({"dla_cores": int(builder.num_DLA_cores)}), flush=True)
"""
# cuDeviceGetAttribute: CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR is 75, _MINOR is 76,
# CU_DEVICE_ATTRIBUTE_INTEGRATED is 18 (cuda.h)
_CUDA = """
import ctypes, json
cuda = ctypes.CDLL("libcuda.so.1")
def ask(function, *arguments):
    status = function(*arguments)
    if status:
        raise SystemExit("libcuda: error %d" % status)
value = ctypes.c_int()
ask(cuda.cuInit, 0)
ask(cuda.cuDriverGetVersion, ctypes.byref(value))
print(json.dumps({"driver": "%d.%d" % (value.value // 1000, value.value % 1000 // 10)}), flush=True)
device = ctypes.c_int()
ask(cuda.cuDeviceGet, ctypes.byref(device), 0)
found = []
for number in (75, 76, 18):
    ask(cuda.cuDeviceGetAttribute, ctypes.byref(value), number, device)
    found.append(value.value)
print(json.dumps({"compute_capability": "%d.%d" % tuple(found[:2]), "integrated": bool(found[2])}))
"""


# where the loader looks beyond the usual folders: a file by name, or what the linker finds
_CUDLA = """
import ctypes, json, os
own = os.environ.get("EDGEKIT_CUDLA")
for name in [own] if own else ["libcudla.so.1", "libcudla.so"]:
    try:
        ctypes.CDLL(name)
    except OSError:
        continue
    print(json.dumps({"path": name}), flush=True)
    break
"""

# the folder or archive that holds this module comes first; the rest is cuDLA's own answer
_CUDLA_FACTS = """
import json, sys
sys.path.insert(0, sys.argv[1])
from edgekit_device._cudla_library import cudla_facts
print(json.dumps(cudla_facts()))
"""


def ask_tensorrt(module: str) -> Tuple[Dict[str, Any], str]:
    """Imports ``module`` ("tensorrt", "tensorrt_lean", ...) and asks its version.

    Returns:
        "version" and, of the full one, "dla_cores" (``Builder.num_DLA_cores``), as far as it
        came; and why it came no further, "" when it did.
    """
    return _ask(_TENSORRT, [module])


def ask_cuda() -> Tuple[Dict[str, Any], str]:
    """Asks the driver: "driver" (the CUDA it supports), "compute_capability", "integrated"."""
    return _ask(_CUDA, [])


def ask_cudla() -> Optional[str]:
    """The name under which libcudla can be loaded, None where it cannot."""
    found = _ask(_CUDLA, [])[0].get("path")
    return None if found is None else str(found)


def ask_cudla_facts() -> Tuple[Dict[str, Any], str]:
    """What ``cudla_facts`` says: "path", "version", "devices", "nvsci", "notes"."""
    return _ask(_CUDLA_FACTS, [str(Path(__file__).absolute().parent.parent)])


def _ask(code: str, arguments: List[str]) -> Tuple[Dict[str, Any], str]:
    try:
        done = subprocess.run(
            child_argv(code, *arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=_TIMEOUT_S,
            check=False,
        )
        out, err, status = done.stdout, done.stderr, done.returncode
    except subprocess.TimeoutExpired as error:
        out, err, status = error.stdout or b"", b"no answer in 90 s", 1
    except OSError as error:
        return {}, str(error)
    found: Dict[str, Any] = {}
    for line in out.splitlines():
        try:
            one = json.loads(line.decode("utf-8"))
        except ValueError:
            continue
        if isinstance(one, dict):
            found.update(one)
    if status == 0:
        return found, ""
    if status < 0:
        return found, "it was ended by {}".format(signal.Signals(-status).name)
    lines = err.decode("utf-8", "replace").strip().splitlines()
    return found, lines[-1][:300] if lines else "it ended with status {}".format(status)
