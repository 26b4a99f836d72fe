"""Which TensorRT, Python modules, tools and packages a board has, without loading any of them."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence

from ._installed import recorded_version
from ._probe_files import libraries, text_of

__all__ = [
    "MODULES",
    "facts_of_docker",
    "find_trtexec",
    "module_version",
    "output_of",
    "packages",
    "parse_packages",
    "tensorrt_versions",
]

MODULES = {"full": "tensorrt", "lean": "tensorrt_lean", "dispatch": "tensorrt_dispatch"}

_PATTERNS = ("libnvinfer*", "python3-libnvinfer*", "nvidia-l4t-*", "libcudla*", "tensorrt*")
# JetPack's and the archive's names of the runtimes' packages; the number is TensorRT's major
_PACKAGE = {
    "full": re.compile(r"libnvinfer\d*\Z"),
    "lean": re.compile(r"libnvinfer-lean\d*\Z"),
    "dispatch": re.compile(r"libnvinfer-dispatch\d*\Z"),
}
_ASSIGNED = re.compile(r"^__version__\s*=\s*[\"']([0-9][0-9.a-z+]*)[\"']", re.MULTILINE)
_TRTEXEC = ("usr/src/tensorrt/bin/trtexec", "usr/bin/trtexec", "usr/local/tensorrt/bin/trtexec")
_TIMEOUT_S = 30.0


def output_of(argv: Sequence[str], timeout_s: float = _TIMEOUT_S) -> Optional[str]:
    """What a command prints; None when it is not there, fails or hangs."""
    try:
        done = subprocess.run(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=timeout_s,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else None


def packages(system: Path = Path("/")) -> Dict[str, str]:
    """Versions of NVIDIA's installed Debian packages by name."""
    folder = system / "var/lib/dpkg"
    if not folder.is_dir() or shutil.which("dpkg-query") is None:
        return {}
    form = "${Package}\t${Version}\t${db:Status-Status}\n"
    argv = ["dpkg-query", "--admindir=" + str(folder), "-W", "-f", form, *_PATTERNS]
    try:
        # its status is 1 as soon as one pattern matches nothing
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return {}
    return parse_packages(done.stdout.decode("utf-8", "replace"))


def parse_packages(text: str) -> Dict[str, str]:
    """Reads ``dpkg-query``'s lines of name, version and status; what is not installed is left."""
    found = {}
    for line in text.splitlines():
        fields = line.split("\t")
        if len(fields) == 3 and fields[2] == "installed":
            found[fields[0]] = fields[1]
    return found


def tensorrt_versions(system: Path, installed: Dict[str, str]) -> Dict[str, Optional[str]]:
    """TensorRT's versions by flavour, "10.3.0.30" where a package or module says four parts."""
    found: Dict[str, Optional[str]] = {}
    there = libraries(system)
    for flavour, pattern in _PACKAGE.items():
        own = [version for name, version in installed.items() if pattern.match(name)]
        # "10.3.0.30-1+cuda12.5": what follows the dash counts the packaging
        by_package = own[0].partition("-")[0] if own and flavour in there else None
        by_module = module_version(MODULES[flavour]) if system == Path("/") else None
        by_file = there.get(flavour, {}).get("version")
        known = [version for version in (by_file, by_package, by_module) if version]
        found[flavour] = max(known, key=lambda version: version.count(".")) if known else None
    return found


def module_version(name: str) -> Optional[str]:
    """A Python package's version, read and not run."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    if spec.origin:
        said = _ASSIGNED.search(text_of(Path(spec.origin), 1 << 20))
        if said:
            return said.group(1)
    for distribution in _distributions(name):
        version = recorded_version(distribution)
        if version is not None:
            return version
    return None


def find_trtexec(system: Path = Path("/")) -> Optional[Path]:
    """Where trtexec lies: on the PATH, or where JetPack's samples package puts it."""
    if system == Path("/"):
        known = shutil.which("trtexec")
        if known:
            return Path(known)
    for name in _TRTEXEC:
        if (system / name).is_file():
            return system / name
    return None


def _distributions(name: str) -> List[str]:
    base = name.replace("_", "-")
    return [base, *(base.replace("tensorrt", "tensorrt-cu" + n, 1) for n in ("11", "12", "13"))]


def facts_of_docker() -> Optional[Dict[str, Any]]:
    """Docker's path, version and runtimes; None without it, None fields where it refuses us."""
    path = shutil.which("docker")
    if path is None:
        return None
    version = output_of([path, "version", "--format", "{{.Server.Version}}"])
    listed = output_of([path, "info", "--format", "{{range $k, $v := .Runtimes}}{{$k}} {{end}}"])
    return {
        "path": path,
        "version": version.strip() if version else None,
        "runtimes": listed.split() if listed is not None else None,
    }
