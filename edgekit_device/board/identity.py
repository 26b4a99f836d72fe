"""What this board is: the command ``hello``, and the fingerprint that a built engine is bound to.
What has to load a driver or TensorRT runs in child processes, which may crash.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import importlib
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Callable, Dict, List, NamedTuple, Optional, Tuple

from edgekit_device.board import inventory
from edgekit_device.board.inventory import (
    MODULES,
    memory,
    packages,
    recorded_version,
    tensorrt_versions,
)
from edgekit_device.errors import DeviceError
from edgekit_device.processes import ChildDied, ChildTooSlow, Report, Turn, in_child
from edgekit_device.protocol import fields
from edgekit_device.protocol.codec import (
    array,
    choice,
    digest,
    document,
    load,
    member,
    nullable,
    read,
    text,
    write,
)
from edgekit_device.version import __version__

if TYPE_CHECKING:
    from edgekit_device.cuda.cudla_library import CudlaFacts
    from edgekit_device.store.root import Root


# distributions that bring the package, in the order of how likely a Jetson has them
_ONNXRUNTIME = ("onnxruntime", "onnxruntime-gpu", "onnxruntime_gpu")
LOADER = "loader.pyz"
"""What a zipapp of this package is called where its name need not say its digest."""
BOARD_FACTS = "board.json"
"""File below ROOT in which the board itself keeps what a container on it cannot see."""

_TIMEOUT_S = 90.0
_Answer = Callable[[Dict[str, Any]], None]
"""Called with facts, each of which counts although the next step may crash."""

#: What makes a board another one for a release that was tested on it. CUDA is not among them: an
#: engine's CUDA is TensorRT's; an installed toolkit changes nothing about it.
COMPARED = {
    "reference": ("runtime_version", "machine"),
    "tensorrt": ("machine", "module", "l4t", "tensorrt", "compute_capability", "dla_compiler"),
}


@document(frozen=True)
class RememberedBoard:
    """board.json: what the board's own files say of it."""

    module: Optional[str] = member(nullable(text()), default=None)
    board_id: Optional[str] = member(nullable(text()), default=None)
    l4t: Optional[str] = member(nullable(text()), default=None)


_TEXT = nullable(text())


@document(frozen=True)
class DeviceSoftware:
    """What runs on a board; what is missing or not known is None.

    Attributes:
        version: Of edgekit_device.
        loader: SHA-256 of the zipapp.
        root: ROOT, absolute.
    """

    version: Optional[str] = member(_TEXT)
    loader: Optional[str] = member(nullable(digest))
    python: str = member(text())
    machine: str = member(text())
    numpy: Optional[str] = member(_TEXT)
    onnxruntime: Optional[str] = member(_TEXT)
    backends: Tuple[str, ...] = member(array(text()))
    root: str = member(text())


@document(frozen=True)
class Hello(DeviceSoftware):
    """The answer of ``hello``; ``memory_bytes`` are those available."""

    ssh_keygen: Optional[str] = member(_TEXT)
    free_bytes: int = member(fields.count)
    module: Optional[str] = member(_TEXT)
    board_id: Optional[str] = member(_TEXT)
    l4t: Optional[str] = member(_TEXT)
    tensorrt: Optional[str] = member(_TEXT)
    memory_bytes: Optional[int] = member(nullable(fields.count))
    schema: str = member(choice("edgekit.device/1"), default="edgekit.device/1")


def do_hello(root: Root, arguments: argparse.Namespace, stdin: BinaryIO) -> Hello:
    """The command ``hello``."""
    return hello(root.folder)


def hello(root: Path) -> Hello:
    """Describes the board; creates nothing."""
    system, facts = Path("/"), board_facts(root)
    return Hello(
        version=__version__,
        loader=loader_digest(),
        python=sys.version.split()[0],
        machine=os.uname().machine,
        numpy=_version("numpy", ("numpy",)),
        onnxruntime=onnxruntime_version(),
        ssh_keygen=_ssh_version(),
        backends=tuple(sorted(COMPARED)),
        root=str(root),
        free_bytes=_free_bytes(root),
        # of the facts that a bundle may need, those that files have
        module=facts["module"],
        board_id=facts["board_id"],
        l4t=facts["l4t"],
        tensorrt=tensorrt_versions(system, {})["full"],
        memory_bytes=memory(system)["available"],
    )


class HelloThread(threading.Thread):
    """``hello`` in a thread of its own, for those who wait for other programs meanwhile."""

    def __init__(self, folder: Path) -> None:
        super().__init__(daemon=True)
        self._folder = folder
        self._facts: Optional[Hello] = None
        self._error: Optional[BaseException] = None
        self.start()

    def run(self) -> None:
        """Runs the thread: collects the facts."""
        try:
            self._facts = hello(self._folder)
        except BaseException as error:
            self._error = error

    def facts(self) -> Optional[Hello]:
        """Returns them, or raises what there was in the way; None before it has ended."""
        if self._error is not None:
            raise self._error
        return self._facts


def loader_file() -> Optional[Path]:
    """The zipapp that this code is from, no link to it; None where it is installed as a package."""
    archive = getattr(globals().get("__loader__"), "archive", None)
    if archive is not None:
        return Path(os.path.realpath(archive))
    unpacked = unpacked_loader()
    return None if unpacked is None else unpacked / LOADER


def unpacked_loader() -> Optional[Path]:
    """The folder with a link to its zipapp that this code runs from; an agent's code does.

    It stays for as long as the board runs.
    """
    folder = Path(__file__).resolve().parents[2]
    return folder if (folder / LOADER).is_file() else None


def loader_digest() -> Optional[str]:
    """SHA-256 of the zipapp that this code runs from."""
    file = loader_file()
    return None if file is None else hashlib.sha256(file.read_bytes()).hexdigest()


def onnxruntime_version() -> Optional[str]:
    """ONNX Runtime's version by its package's record; "unknown" without one, None without it."""
    return _version("onnxruntime", _ONNXRUNTIME)


def _version(module: str, distributions: Tuple[str, ...]) -> Optional[str]:
    if importlib.util.find_spec(module) is None:
        return None
    for name in distributions:
        found = recorded_version(name)
        if found is not None:
            return found
    return "unknown"


def _ssh_version() -> Optional[str]:
    """OpenSSH's version if it can sign and verify: ssh-keygen itself has no version switch."""
    if shutil.which("ssh-keygen") is None:
        return None
    program = shutil.which("ssh")
    if program is None:
        return "unknown"
    try:
        answer = subprocess.run(
            [program, "-V"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=10,
            check=False,
        ).stdout.decode("utf-8", "replace")
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    found = re.search(r"OpenSSH_([0-9.]+p?[0-9]*)", answer)
    return found.group(1) if found else "unknown"


def _free_bytes(root: Path) -> int:
    folder = root
    while not folder.is_dir() and folder != folder.parent:
        folder = folder.parent
    facts = os.statvfs(str(folder))
    return facts.f_bavail * facts.f_frsize


def board_facts(folder: Path, system: Path = Path("/")) -> Dict[str, Optional[str]]:
    """Module, its number and L4T: as seen here, or in a container as the board itself saw them.

    Args:
        folder: ROOT.
        system: The root of the file system.
    """
    seen = {
        "module": inventory.module(system),
        "board_id": inventory.board_id(system),
        "l4t": inventory.l4t(system),
    }
    if all(seen.values()):
        return seen
    remembered = load(RememberedBoard, folder / BOARD_FACTS) or RememberedBoard()
    return {name: seen[name] or getattr(remembered, name) or None for name in seen}


def fingerprint(
    folder: Path,
    system: Path = Path("/"),
    *,
    capability: Optional[str] = None,
    tensorrt: Optional[str] = None,
) -> Dict[str, str]:
    """What engines built here may run on; "" where something is not known.

    Args:
        folder: ROOT.
        system: The root of the file system.
        capability: Compute capability, if known already.
        tensorrt: TensorRT's version, if known already.
    """
    facts = board_facts(folder, system)
    installed = packages(system)
    if capability is None:
        capability = query_cuda()[0].compute_capability
    if tensorrt is None:
        known = tensorrt_versions(system, installed)["full"]
        tensorrt = full_version(known, system)
    # boards of one kit carry different modules: the number distinguishes them where it is known
    names = [name for name in (facts["module"], facts["board_id"]) if name]
    return {
        "backend": "tensorrt",
        "machine": platform.machine(),
        "module": " ".join(names),
        "l4t": facts["l4t"] or "",
        "tensorrt": tensorrt or "",
        "cuda": inventory.cuda_version(system) or "",
        "compute_capability": capability or "",
        "dla_compiler": dla_compiler_version(system, installed) or "",
    }


def full_version(known: Optional[str], system: Path = Path("/")) -> Optional[str]:
    """TensorRT's version from files and packages, or else from its Python module.

    Args:
        known: From ``tensorrt_versions``.
        system: The root of the file system; a module is imported only if that is the running one's.
    """
    if known or system != Path("/"):
        return known
    return query_tensorrt(MODULES["full"])[0].version or None


def dla_compiler_version(system: Path, installed: Dict[str, str]) -> Optional[str]:
    """The version of the package that brings libnvdla_compiler.so.

    From JetPack 6 on it is one of its own, on JetPack 5 nvidia-l4t-core brings it (the package
    lists of jetpack-nixos, r35.6 and r36.5).
    """
    if "dla_compiler" not in inventory.libraries(system):
        return None
    return installed.get("nvidia-l4t-dla-compiler") or installed.get("nvidia-l4t-core")


# TensorRT's Builder ends the process on a machine without a driver, and a broken installation can
# do so at import. So what these answer is a fact, and how they end is a note.
class TensorrtAnswer(NamedTuple):
    """What a Python module of TensorRT answers; None where it came no further.

    Attributes:
        dla_cores: ``Builder.num_DLA_cores`` of the full one.
    """

    version: Optional[str] = None
    dla_cores: Optional[int] = None


class CudaAnswer(NamedTuple):
    """What the CUDA driver answers; None where it came no further.

    Attributes:
        driver: The CUDA release that it supports.
    """

    driver: Optional[str] = None
    compute_capability: Optional[str] = None


def query_tensorrt(module: str) -> Tuple[TensorrtAnswer, str]:
    """Imports ``module`` ("tensorrt", "tensorrt_lean", ...) and asks it.

    Returns:
        The answer; and why it is not whole, "" if it is.
    """

    def question(answer: _Answer) -> None:
        trt = importlib.import_module(module)
        answer({"version": str(trt.__version__)})
        if module == MODULES["full"]:
            builder = trt.Builder(trt.Logger(trt.Logger.ERROR))
            answer({"dla_cores": int(builder.num_DLA_cores)})

    found, problem = _query(question)
    return TensorrtAnswer(**found), problem


def query_cuda() -> Tuple[CudaAnswer, str]:
    """Queries the driver; see :func:`query_tensorrt`."""

    def question(answer: _Answer) -> None:
        cuda = ctypes.CDLL("libcuda.so.1")

        def call(function: Any, *arguments: Any) -> None:
            status = function(*arguments)
            if status:
                raise DeviceError("libcuda: error {}".format(status), code="board.cuda")

        value, device = ctypes.c_int(), ctypes.c_int()
        call(cuda.cuInit, 0)
        call(cuda.cuDriverGetVersion, ctypes.byref(value))
        major, minor = value.value // 1000, value.value % 1000 // 10
        answer({"driver": "{}.{}".format(major, minor)})
        call(cuda.cuDeviceGet, ctypes.byref(device), 0)
        found = []
        # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MINOR
        for number in (75, 76):
            call(cuda.cuDeviceGetAttribute, ctypes.byref(value), number, device)
            found.append(value.value)
        answer({"compute_capability": "{}.{}".format(*found)})

    found, problem = _query(question)
    return CudaAnswer(**found), problem


def query_cudla() -> Optional[str]:
    """The name under which libcudla can be loaded, None where it cannot."""
    from edgekit_device.cuda.cudla_library import find_library

    found = _query(lambda answer: answer({"path": find_library()}))[0].get("path")
    return None if found is None else str(found)


def query_cudla_facts() -> Tuple[CudlaFacts, str]:
    """What ``cudla_facts`` says, without what crashed; see :func:`query_tensorrt`."""
    from edgekit_device.cuda.cudla_library import CudlaFacts, cudla_facts

    found, problem = _query(lambda answer: answer(write(cudla_facts())))
    return read(CudlaFacts, found), problem


def _query(question: Callable[[_Answer], None]) -> Tuple[Dict[str, Any], str]:
    found: Dict[str, Any] = {}

    def work(turn: Turn, report: Report) -> None:
        nowhere = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(nowhere, number)
        sys.path[:] = [entry for entry in sys.path if entry]  # nothing of the working folder
        question(report)

    try:
        in_child(work, on_report=found.update, limit_s=_TIMEOUT_S)
    except DeviceError as error:
        return found, error.message
    except ChildTooSlow:
        return found, "no answer in {:g} s".format(_TIMEOUT_S)
    except ChildDied as error:
        return found, "stopped by {}".format(error.cause)
    return found, ""


def loader_argv() -> List[str]:
    """How this loader's commands are run."""
    file = loader_file()
    return [sys.executable, *(["-m", "edgekit_device"] if file is None else [str(file)])]
