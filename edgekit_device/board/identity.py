"""The board's identity: the command ``hello``, and the fingerprint that built engines are bound to.
Queries that load a driver or TensorRT run in child processes, which may crash.
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
from edgekit_device.processes import ChildDied, ChildTooSlow, Report, Turn, run_in_child
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


# distributions that contain the package, the most likely on a Jetson first
_ONNXRUNTIME = ("onnxruntime", "onnxruntime-gpu", "onnxruntime_gpu")
#: Name of the zipapp in folders that keep a single one.
LOADER = "loader.pyz"
#: File below ROOT with the board's own facts, which a container on it cannot read.
BOARD_FACTS = "board.json"

_TIMEOUT_S = 90.0
# called with facts, each of which counts although the next step may crash
_Answer = Callable[[Dict[str, Any]], None]

#: The facts that a release's test depends on. CUDA is not among them: an engine uses TensorRT's
#: CUDA, which an installed toolkit does not change.
COMPARED = {
    "reference": ("runtime_version", "machine"),
    "tensorrt": ("machine", "module", "l4t", "tensorrt", "compute_capability", "dla_compiler"),
}

_TEXT = nullable(text())


@document(frozen=True)
class RememberedBoard:
    """board.json: the facts from the board's own files."""

    module: Optional[str] = member(nullable(text()), default=None)
    board_id: Optional[str] = member(nullable(text()), default=None)
    l4t: Optional[str] = member(nullable(text()), default=None)


@document(frozen=True)
class DeviceSoftware:
    """The software of a board; missing and unknown facts are None.

    Attributes:
        version: Version of edgekit_device.
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
    """The answer of ``hello``; ``memory_bytes`` is the available memory."""

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
    """Describes the board; creates no files."""
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
        # facts that a bundle may require, as far as files have them
        module=facts["module"],
        board_id=facts["board_id"],
        l4t=facts["l4t"],
        tensorrt=tensorrt_versions(system, {})["full"],
        memory_bytes=memory(system)["available"],
    )


class HelloThread(threading.Thread):
    """Runs ``hello`` in a thread, for callers that wait for other programs meanwhile."""

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
        """Returns the facts, or raises the thread's error; None while it runs."""
        if self._error is not None:
            raise self._error
        return self._facts


def loader_file() -> Optional[Path]:
    """Returns the zipapp of this code, links resolved; None if it is an installed package."""
    archive = getattr(globals().get("__loader__"), "archive", None)
    if archive is not None:
        return Path(os.path.realpath(archive))
    unpacked = unpacked_loader()
    return None if unpacked is None else unpacked / LOADER


def unpacked_loader() -> Optional[Path]:
    """Returns the unpacked folder that an agent's code runs from; None for other code.

    The folder links to its zipapp and exists until the board restarts.
    """
    folder = Path(__file__).resolve().parents[2]
    return folder if (folder / LOADER).is_file() else None


def loader_digest() -> Optional[str]:
    """Returns the SHA-256 of the zipapp that this code runs from."""
    file = loader_file()
    return None if file is None else hashlib.sha256(file.read_bytes()).hexdigest()


def onnxruntime_version() -> Optional[str]:
    """Returns ONNX Runtime's version from its package's record; "unknown" without a record, None
    if ONNX Runtime is not installed.
    """
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
    """Returns OpenSSH's version if it can sign and verify; ssh-keygen has no version option."""
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
    # ROOT may not exist yet: its nearest folder is on the same disk
    facts = os.statvfs(str(folder))
    # without the blocks that only root may use
    return facts.f_bavail * facts.f_frsize


def board_facts(folder: Path, system: Path = Path("/")) -> Dict[str, Optional[str]]:
    """Returns module, part number and L4T; in a container, as the board recorded them.

    Args:
        folder: ROOT.
        system: The root of the file system.
    """
    seen = {
        "module": inventory.module(system),
        "board_id": inventory.board_id(system),
        "l4t": inventory.l4t(system),
    }
    # a container cannot read some of these files
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
    """Returns the fingerprint that engines built here are bound to; unknown values are "".

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
        recorded = tensorrt_versions(system, installed)["full"]
        tensorrt = full_version(recorded, system)
    # kits may have different modules: the part number distinguishes them, if known
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
    """Returns TensorRT's version from files and packages, else from its Python module.

    Args:
        known: A version from ``tensorrt_versions``.
        system: The root of the file system; the module is imported only for the running system.
    """
    if known or system != Path("/"):
        return known
    return query_tensorrt(MODULES["full"])[0].version or None


def dla_compiler_version(system: Path, installed: Dict[str, str]) -> Optional[str]:
    """Returns the version of the package that contains libnvdla_compiler.so.

    From JetPack 6 the library has its own package; on JetPack 5 it is in nvidia-l4t-core (package
    lists of jetpack-nixos, r35.6 and r36.5).
    """
    if "dla_compiler" not in inventory.libraries(system):
        return None
    return installed.get("nvidia-l4t-dla-compiler") or installed.get("nvidia-l4t-core")


# TensorRT's Builder aborts the process on a machine without a driver, and a broken installation may
# abort at import. The child's answers are therefore facts, and its exit is only a note.
class TensorrtAnswer(NamedTuple):
    """The answers of a Python module of TensorRT; None for queries that it did not reach.

    Attributes:
        dla_cores: ``Builder.num_DLA_cores`` of the full runtime.
    """

    version: Optional[str] = None
    dla_cores: Optional[int] = None


class CudaAnswer(NamedTuple):
    """The answers of the CUDA driver; None for queries that it did not reach.

    Attributes:
        driver: The CUDA release that it supports.
    """

    driver: Optional[str] = None
    compute_capability: Optional[str] = None


def query_tensorrt(module: str) -> Tuple[TensorrtAnswer, str]:
    """Imports ``module`` ("tensorrt", "tensorrt_lean", ...) and queries it.

    Returns:
        The answers, and the reason if some are missing, else "".
    """

    def question(answer: _Answer) -> None:
        trt = importlib.import_module(module)
        # at once: the builder below may end the process
        answer({"version": str(trt.__version__)})
        # lean and dispatch have no builder
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
    """Returns the name under which libcudla can be loaded; None if it cannot be loaded."""
    from edgekit_device.cuda.cudla_library import find_library

    found = _query(lambda answer: answer({"path": find_library()}))[0].get("path")
    return None if found is None else str(found)


def query_cudla_facts() -> Tuple[CudlaFacts, str]:
    """Returns the facts of ``cudla_facts`` up to a crash; see :func:`query_tensorrt`."""
    from edgekit_device.cuda.cudla_library import CudlaFacts, cudla_facts

    found, problem = _query(lambda answer: answer(write(cudla_facts())))
    return read(CudlaFacts, found), problem


def _query(question: Callable[[_Answer], None]) -> Tuple[Dict[str, Any], str]:
    found: Dict[str, Any] = {}

    def work(turn: Turn, report: Report) -> None:
        # libraries print to stdout, which has this command's answer
        nowhere = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(nowhere, number)
        sys.path[:] = [entry for entry in sys.path if entry]  # not the working folder
        question(report)

    try:
        run_in_child(work, on_report=found.update, limit_s=_TIMEOUT_S)
    except DeviceError as error:
        return found, error.message
    except ChildTooSlow:
        return found, "no answer in {:g} s".format(_TIMEOUT_S)
    except ChildDied as error:
        return found, "stopped by {}".format(error.cause)
    return found, ""


def loader_argv() -> List[str]:
    """Returns the start of a command line that runs this loader."""
    file = loader_file()
    return [sys.executable, *(["-m", "edgekit_device"] if file is None else [str(file)])]
