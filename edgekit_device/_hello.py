"""What this board is: versions, tools and space, found without importing anything heavy."""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Dict, Optional, Tuple

from ._backends import BACKENDS
from ._installed import recorded_version

if TYPE_CHECKING:
    from ._root import Root

__all__ = [
    "HelloBeside",
    "do_hello",
    "hello",
    "loader_digest",
    "loader_file",
    "onnxruntime_version",
]

# distributions that bring the package, in the order of how likely a Jetson has them
_ONNXRUNTIME = ("onnxruntime", "onnxruntime-gpu", "onnxruntime_gpu")


def do_hello(root: Root, arguments: argparse.Namespace, stdin: BinaryIO) -> Dict[str, Any]:
    """The command ``hello``."""
    return hello(root.folder)


def hello(root: Path) -> Dict[str, Any]:
    """Describes the board; creates nothing."""
    from . import __version__

    return {
        "schema": "edgekit.device/1",
        "version": __version__,
        "loader": loader_digest(),
        "python": sys.version.split()[0],
        "machine": os.uname().machine,
        "numpy": _version("numpy", ("numpy",)),
        "onnxruntime": onnxruntime_version(),
        "ssh_keygen": _ssh_version(),
        "backends": sorted(BACKENDS),
        "root": str(root),
        "free_bytes": _free_bytes(root),
        **_board(root),
    }


class HelloBeside(threading.Thread):
    """``hello`` in a thread of its own, for those who wait for other programs meanwhile."""

    def __init__(self, folder: Path) -> None:
        super().__init__(daemon=True)
        self._folder = folder
        self._facts: Dict[str, Any] = {}
        self._error: Optional[BaseException] = None
        self.start()

    def run(self) -> None:
        """Asks."""
        try:
            self._facts = hello(self._folder)
        except BaseException as error:
            self._error = error

    def facts(self) -> Dict[str, Any]:
        """Returns them, or raises what there was in the way; once it has ended."""
        if self._error is not None:
            raise self._error
        return self._facts


def loader_file() -> Optional[Path]:
    """The zipapp that this code runs from, no link to it; None when it is a package in a folder."""
    archive = getattr(globals().get("__loader__"), "archive", None)
    return None if archive is None else Path(os.path.realpath(archive))


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


def _board(root: Path) -> Dict[str, Any]:
    """The facts that a bundle may need and that files tell; None where they do not."""
    from ._fingerprint import board_facts
    from ._probe_files import memory
    from ._probe_software import tensorrt_versions

    system = Path("/")
    return {
        **board_facts(root),
        "tensorrt": tensorrt_versions(system, {})["full"],
        "memory_bytes": memory(system)["available"],
    }


def _free_bytes(root: Path) -> int:
    folder = root
    while not folder.is_dir() and folder != folder.parent:
        folder = folder.parent
    facts = os.statvfs(str(folder))
    return facts.f_bavail * facts.f_frsize
