"""Whether TensorRT can start here, found out in a way that cannot take the caller down.

Without a usable driver ``Runtime(logger)`` logs an error and still returns an object, whose use
ends the process (seen with tensorrt_lean 10.16.1 and 11.4.0). So the driver is asked first, then a
child process makes the first Runtime and uses it.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Dict, Optional

from ._child import child_argv
from ._cuda import Cuda, open_cuda
from ._errors import DeviceError
from ._files import write_durably

__all__ = ["start"]

_TIMEOUT_S = 180.0
_RECORD = "tensorrt-starts.json"
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_CHILD = """
import importlib, json, sys
trt = importlib.import_module(sys.argv[1])
said = []
class Log(trt.ILogger):
    def __init__(self):
        trt.ILogger.__init__(self)
    def log(self, severity, msg):
        if "ERROR" in severity.name:
            said.append(str(msg))
log = Log()
runtime = trt.Runtime(log)
if said:
    print(json.dumps({"error": said[0]}))
else:
    print(json.dumps({"dla_cores": int(runtime.num_DLA_cores)}))
"""

_KNOWN: Dict[str, int] = {}
_LOCK = threading.Lock()


def start(module: Any, folder: Optional[Path] = None) -> Cuda:
    """Looks for a GPU and starts ``module``'s runtime in a child, once for a process and boot.

    Args:
        module: tensorrt, tensorrt_lean or tensorrt_dispatch.
        folder: Where a start that went well is kept for the next process; None keeps nothing.

    Returns:
        The device.

    Raises:
        DeviceError: "board.no-gpu", "tensorrt.crashed" or "tensorrt.failed".
    """
    try:
        cuda = open_cuda()
    except DeviceError as error:
        if error.code not in ("cuda.no-driver", "cuda.no-device"):
            raise
        raise DeviceError(error.message, code="board.no-gpu", hint=error.hint) from error
    with _LOCK:
        if module.__name__ not in _KNOWN:
            key = _key(module)
            known = _read(folder)
            if known.get(module.__name__) != key:
                _try(module.__name__)
                _keep(folder, dict(known, **{module.__name__: key}))
            _KNOWN[module.__name__] = 1
    return cuda


def _try(name: str) -> None:
    if not sys.executable:
        return
    try:
        done = subprocess.run(
            child_argv(_CHILD, name),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise DeviceError(
            "{} does not start within {:.0f} s".format(name, _TIMEOUT_S),
            code="tensorrt.crashed",
            where=name,
            hint="see dmesg; a GPU or DLA that hangs needs a restart of the board",
        ) from error
    except OSError as error:
        raise DeviceError(
            "no child process can be started: {}".format(error), code="board.io", where=name
        ) from error
    if done.returncode < 0:
        raise DeviceError(
            "{} ends its process with {} when it starts".format(name, _signal(-done.returncode)),
            code="tensorrt.crashed",
            where=name,
            hint="its version may not fit the driver: see edgekit doctor",
        )
    lines = done.stdout.decode("utf-8", "replace").strip().splitlines()
    try:
        answer = json.loads(lines[-1])
    except (IndexError, ValueError):
        told = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["no reason given"]
        raise DeviceError(
            "{} does not start: {}".format(name, told[-1][:300]),
            code="tensorrt.failed",
            where=name,
            hint="its version may not fit the driver: see edgekit doctor",
        ) from None
    if "error" in answer:
        from ._trt_errors import explain

        raise explain(
            "{} does not start".format(name),
            "tensorrt.failed",
            lines=[("ERROR", str(answer["error"]))],
            where=name,
        )


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "signal {}".format(number)


def _key(module: Any) -> str:
    """Changes with the boot (the driver's state) and with the module's file."""
    try:
        boot = _BOOT.read_text(encoding="ascii").strip()
        stamp = Path(str(module.__file__)).stat().st_mtime_ns
    except (OSError, AttributeError, ValueError):
        return ""
    return "{} {} {}".format(boot, getattr(module, "__version__", ""), stamp)


def _read(folder: Optional[Path]) -> Dict[str, str]:
    try:
        found = json.loads((folder / _RECORD).read_text(encoding="utf-8")) if folder else {}
    except (OSError, ValueError):
        return {}
    return {k: v for k, v in found.items() if v} if isinstance(found, dict) else {}


def _keep(folder: Optional[Path], known: Dict[str, str]) -> None:
    if folder is None or not folder.is_dir():
        return
    try:
        write_durably(folder / _RECORD, json.dumps(known).encode("utf-8"))
    except OSError:
        return  # then the next process tries again
