"""Examines this machine (`edgekit doctor` without a board): Python and packages, ssh, keys, disk,
cache, extras and GPU.
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, metadata, version
from importlib.util import find_spec
from pathlib import Path

from edgekit.deployment.board import DescribedBoard
from edgekit.deployment.doctor import Doctor, DoctorCheck
from edgekit.deployment.embedded_sshd import find_sshd
from edgekit.deployment.ssh import default_keys
from edgekit.files import cache_folder
from edgekit.parsing.nvidia import MODULE
from edgekit.text import listed

_GIB = 1 << 30
_LEAST_DISK = 2 * _GIB
#: edgekit's extras: each extra's module and purpose.
_EXTRAS = {
    "parser": (MODULE, "NVIDIA's own parser (--parser)"),
    "ansible": ("ansible", "edgekit fleet --driver ansible"),
    "cuda": ("cuda", "this machine's own GPU as a board"),
    "tensorrt": ("tensorrt", "this machine's own GPU as a board"),
    "lean": ("tensorrt_lean", "this machine's own GPU as a board that only runs engines"),
}


def examine_workstation() -> Doctor:
    """Returns the checks of this machine."""
    checks = [check for part in _CHECKS for check in part()]
    board = DescribedBoard(
        platform.node() or "this machine",
        "workstation",
        f"this machine, {platform.system()} {platform.machine()}",
    )
    return Doctor(board, all(check.status != "missing" for check in checks), tuple(checks))


def _python() -> Iterator[DoctorCheck]:
    needed = metadata("edgekit")["Requires-Python"]
    where = f"{platform.python_version()} ({sys.executable}); edgekit needs {needed}"
    yield DoctorCheck("python", "Python", "ok", where)
    for name in ("onnxruntime", "onnx", "ortools"):
        try:
            yield DoctorCheck(f"python.{name}", name, "ok", version(name))
        except PackageNotFoundError:
            fix = f"pip install --upgrade edgekit, or pip install {name}"
            yield DoctorCheck(f"python.{name}", name, "missing", "not installed", fix)


def _ssh() -> Iterator[DoctorCheck]:
    keygen = shutil.which("ssh-keygen")
    if keygen:
        yield DoctorCheck("ssh.keygen", "ssh-keygen", "ok", keygen)
    else:
        yield DoctorCheck(
            "ssh.keygen",
            "ssh-keygen",
            "missing",
            "not found, so no bundle can be signed",
            "sudo apt-get install openssh-client",
        )
    sshd = find_sshd()
    yield DoctorCheck(
        "ssh.sshd",
        "sshd",
        "ok" if sshd else "warn",
        sshd or "not found: without a board edgekit runs bundles here without SSH",
        "" if sshd else "sudo apt-get install openssh-server",
    )


def _keys() -> Iterator[DoctorCheck]:
    agent = os.environ.get("SSH_AUTH_SOCK")
    found = [str(path) for path in default_keys()]
    if agent and Path(agent).exists():
        found.append("the SSH agent")
    yield DoctorCheck(
        "keys.ssh",
        "Keys for boards",
        "ok" if found else "warn",
        listed(found) if found else "none in ~/.ssh, and no SSH agent",
        "" if found else "ssh-keygen -t ed25519, then ssh-copy-id USER@HOST; or `key:` of a board",
    )
    own = cache_folder() / "keys" / "ed25519"
    yield DoctorCheck(
        "keys.signing",
        "Key for bundles",
        "ok",
        str(own) if own.is_file() else "made when the first bundle is signed (or deploy.sign_with)",
    )


def _cache() -> Iterator[DoctorCheck]:
    folder = cache_folder()
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not (there.is_dir() and os.access(there, os.W_OK | os.X_OK)):
        yield DoctorCheck(
            "cache",
            "Cache",
            "missing",
            f"{folder} cannot be written",
            "set EDGEKIT_CACHE to a folder that can be written",
        )
        return
    yield DoctorCheck("cache", "Cache", "ok", str(folder))
    free = shutil.disk_usage(there).free
    low = free < _LEAST_DISK
    yield DoctorCheck(
        "disk",
        "Free disk",
        "warn" if low else "ok",
        f"{free / _GIB:.1f} GiB for the cache",
        "free some space, or set EDGEKIT_CACHE to another disk" if low else "",
    )


def _extras() -> Iterator[DoctorCheck]:
    for extra, (module, use) in _EXTRAS.items():
        there = find_spec(module) is not None
        found = "installed" if there else f"not installed; for {use}"
        fix = "" if there else f"only if you need it: pip install 'edgekit[{extra}]'"
        yield DoctorCheck(f"extra.{extra}", f"edgekit[{extra}]", "ok", found, fix)


def _gpu() -> Iterator[DoctorCheck]:
    driver = Path("/proc/driver/nvidia/version")
    try:
        found = driver.read_text(encoding="utf-8", errors="replace").partition("\n")[0].strip()
    except OSError:
        found = "no NVIDIA driver; none is needed here: boards build and run engines"
    yield DoctorCheck("gpu", "GPU", "ok", found)


_CHECKS: tuple[Callable[[], Iterator[DoctorCheck]], ...] = (
    _python,
    _ssh,
    _keys,
    _cache,
    _extras,
    _gpu,
)
