"""The board's inventory, read from files without loading a library: module, Jetson Linux, memory,
CUDA, DLA devices, TensorRT's versions, Python modules, tools and packages.

Every function takes the root of the file system, so that a copy of a board's files can be read.
Missing facts are None or empty, never an error.
"""

from __future__ import annotations

import grp
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Dict, Iterator, List, Optional, Sequence

from edgekit_device.versions import parse_version

# folders of libraries in JetPack's packages, CUDA's toolkits and containers
_FOLDERS = (
    "usr/lib/aarch64-linux-gnu",
    "usr/lib/aarch64-linux-gnu/nvidia",
    "usr/lib/aarch64-linux-gnu/tegra",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib",
    "usr/local/lib",
    "usr/local/cuda/lib64",
    "usr/local/cuda/targets/*/lib",
    "usr/local/cuda-*/lib64",
    "usr/local/cuda-*/targets/*/lib",
    "usr/local/tensorrt/lib",
    "usr/src/tensorrt/lib",
)
_LIBRARIES = {
    "full": "libnvinfer",
    "lean": "libnvinfer_lean",
    "dispatch": "libnvinfer_dispatch",
    "cudla": "libcudla",
    "nvrtc": "libnvrtc",
    "cudart": "libcudart",
    "dla_compiler": "libnvdla_compiler",
}
_STEMS = tuple(_LIBRARIES.values())
_RELEASE = re.compile(r"#\s*R(\d+) \(release\), REVISION: ([0-9.]+)")
_BOARD_ID = re.compile(r"(?:\+|\b)(p\d{4}-\d{4})")
_VERSION = re.compile(r"\d+(?:\.\d+)*")
_MOST = 64 << 10
_RECORDED_VERSION = re.compile(rb"^version:[ \t]*(\S+)[ \t]*\r?$", re.IGNORECASE | re.MULTILINE)
_SEPARATORS = re.compile(r"[-_.]+")

MODULES = {"full": "tensorrt", "lean": "tensorrt_lean", "dispatch": "tensorrt_dispatch"}
_PATTERNS = ("libnvinfer*", "python3-libnvinfer*", "nvidia-l4t-*", "libcudla*", "tensorrt*")

# names of the runtimes' packages in JetPack and in the archive; the number is TensorRT's major
_PACKAGE = {
    "full": re.compile(r"libnvinfer\d*\Z"),
    "lean": re.compile(r"libnvinfer-lean\d*\Z"),
    "dispatch": re.compile(r"libnvinfer-dispatch\d*\Z"),
}
_ASSIGNED = re.compile(r"^__version__\s*=\s*[\"']([0-9][0-9.a-z+]*)[\"']", re.MULTILINE)
_TRTEXEC = ("usr/src/tensorrt/bin/trtexec", "usr/bin/trtexec", "usr/local/tensorrt/bin/trtexec")
_TIMEOUT_S = 30.0


def default_system() -> Path:
    """Returns the root of the file system; $EDGEKIT_SYSTEM names a copy for tests."""
    return Path(os.environ.get("EDGEKIT_SYSTEM") or "/")


def read_text(path: Path, most: int = 1 << 16) -> str:
    """Returns the start of a text file; "" if it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(most).decode("utf-8", "replace")
    except OSError:
        return ""


def l4t(root: Path) -> Optional[str]:
    """Returns the version of Jetson Linux, "36.4.3", from /etc/nv_tegra_release."""
    found = _RELEASE.search(read_text(root / "etc/nv_tegra_release"))
    return "{}.{}".format(*found.groups()) if found else None


def module(root: Path) -> Optional[str]:
    """Returns the device tree's model, "NVIDIA Jetson AGX Orin Developer Kit"."""
    text = read_text(root / "proc/device-tree/model").strip("\0 \n")
    return text or None


def board_id(root: Path) -> Optional[str]:
    """Returns the module's part number, "p3701-0005", from the device tree's "compatible"."""
    text = read_text(root / "proc/device-tree/compatible")
    # "nvidia,p3737-0000+p3701-0005": the carrier board, and after "+" the module
    numbers = _BOARD_ID.findall(text)
    modules = [number for number in numbers if "+" + number in text]
    for number in [*modules, *numbers]:
        return str(number)
    return None


def boot_id(root: Path) -> str:
    """Returns the id of this boot of the system; "" if unknown."""
    return read_text(root / "proc/sys/kernel/random/boot_id").strip()


def libraries(root: Path) -> Dict[str, Dict[str, str]]:
    """Returns path and version by kind ("full", "lean", "cudla", ...), the highest version."""
    found: Dict[str, Dict[str, str]] = {}
    for folder in _library_folders(root):
        try:
            listed = os.listdir(str(folder))
        except OSError:
            continue
        # one listing for all kinds: a folder of libraries has thousands of entries
        names = sorted(name for name in listed if name.startswith(_STEMS))
        for kind, stem in _LIBRARIES.items():
            for name in names:
                # "libnvinfer" is also the start of libnvinfer_lean and libnvinfer_plugin
                if name != stem + ".so" and not name.startswith(stem + ".so."):
                    continue
                path = folder / name
                version = _file_version(path)
                # there may be several toolkits and links: the highest version is used
                if kind not in found or parse_version(version) > parse_version(
                    found[kind]["version"]
                ):
                    found[kind] = {"path": "/" + str(path.relative_to(root)), "version": version}
    return found


def cuda_version(root: Path) -> Optional[str]:
    """Returns CUDA's version from the toolkit's own file, else from the runtime library's name."""
    for path in sorted(root.glob("usr/local/cuda*/version.json"), reverse=True):
        try:
            return str(json.loads(read_text(path))["cuda"]["version"])
        except (ValueError, KeyError, TypeError):
            continue
    return libraries(root).get("cudart", {}).get("version") or None


def dla_devices(root: Path) -> List[str]:
    """Returns the DLA's folders below /sys, which differ between releases of L4T."""
    pattern = re.compile(r"[0-9a-f]+\.nvdla\d+\Z")
    places: List[str] = []
    # JetPack 5: 13e40000.host1x/..., 6: bus@0/13e00000.host1x/...
    for depth in ("*/*", "*/*/*"):
        for path in (root / "sys/devices/platform").glob(depth):
            if pattern.match(path.name):
                places.append("/" + str(path.relative_to(root)))
    return sorted(places)


def memory(root: Path) -> Dict[str, Optional[int]]:
    """Returns bytes of memory: "total" and "available"."""
    text = read_text(root / "proc/meminfo")
    found = dict(re.findall(r"^(MemTotal|MemAvailable):\s*(\d+) kB", text, re.MULTILINE))
    sizes = {name: int(value) * 1024 for name, value in found.items()}
    return {"total": sizes.get("MemTotal"), "available": sizes.get("MemAvailable")}


def _library_folders(root: Path) -> Iterator[Path]:
    for pattern in _FOLDERS:
        yield from sorted(root.glob(pattern))
    if root == Path("/"):
        for name in os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep):
            if name.startswith("/"):
                yield Path(name)


def _file_version(path: Path) -> str:
    """Returns the version after ".so." in the name of the file that a link resolves to."""
    try:
        name = path.resolve().name
    except (OSError, RuntimeError):
        name = path.name
    found = _VERSION.fullmatch(name.partition(".so.")[2])
    return found.group() if found else ""


def recorded_version(name: str) -> Optional[str]:
    """Returns the version of the distribution ``name``; None if it has no record.

    Like ``importlib.metadata``, whose import alone takes as long as a small command: a folder
    ``NAME-VERSION.dist-info`` with METADATA, or ``NAME-VERSION[-pyX.Y].egg-info``, a file or a
    folder with PKG-INFO (packaging.python.org, "Recording installed projects").
    """
    wanted = _SEPARATORS.sub("_", name).lower()
    for folder in sys.path:
        try:
            entries = os.listdir(folder or ".")
        except OSError:
            continue
        for entry in entries:
            stem, end = os.path.splitext(entry)
            if end not in (".dist-info", ".egg-info"):
                continue
            if _SEPARATORS.sub("_", stem.partition("-")[0]).lower() != wanted:
                continue
            path = os.path.join(folder, entry)
            for record in (os.path.join(path, "METADATA"), os.path.join(path, "PKG-INFO"), path):
                version = _read_record(record)
                if version is not None:
                    return version
    return None


def _read_record(path: str) -> Optional[str]:
    try:
        with open(path, "rb") as file:
            # headers end with an empty line; a description may follow
            headers = file.read(_MOST).replace(b"\r\n", b"\n").partition(b"\n\n")[0]
    except OSError:
        return None
    found = _RECORDED_VERSION.search(headers)
    return found.group(1).decode("utf-8", "replace") if found else None


def command_output(argv: Sequence[str]) -> Optional[str]:
    """Returns a command's output; None if it is missing, fails or hangs."""
    try:
        process = subprocess.run(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return process.stdout.decode("utf-8", "replace") if process.returncode == 0 else None


def packages(system: Path = Path("/")) -> Dict[str, str]:
    """Returns the versions of NVIDIA's installed Debian packages by name."""
    folder = system / "var/lib/dpkg"
    if not folder.is_dir() or shutil.which("dpkg-query") is None:
        return {}
    form = "${Package}\t${Version}\t${db:Status-Status}\n"
    argv = ["dpkg-query", "--admindir=" + str(folder), "-W", "-f", form, *_PATTERNS]
    try:
        # its exit status is 1 if any pattern has no match
        process = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return {}
    return parse_packages(process.stdout.decode("utf-8", "replace"))


def parse_packages(text: str) -> Dict[str, str]:
    """Reads ``dpkg-query``'s lines of name, version and status, without removed packages."""
    found = {}
    for line in text.splitlines():
        fields = line.split("\t")
        if len(fields) == 3 and fields[2] == "installed":
            found[fields[0]] = fields[1]
    return found


def tensorrt_versions(system: Path, installed: Dict[str, str]) -> Dict[str, Optional[str]]:
    """Returns TensorRT's versions by flavour, with four parts ("10.3.0.30") if known."""
    found: Dict[str, Optional[str]] = {}
    installed_libraries = libraries(system)
    for flavour, pattern in _PACKAGE.items():
        package_versions = [version for name, version in installed.items() if pattern.match(name)]
        # "10.3.0.30-1+cuda12.5": the part after the dash is the packaging's revision
        by_package = (
            package_versions[0].partition("-")[0]
            if package_versions and flavour in installed_libraries
            else None
        )
        by_module = module_version(MODULES[flavour]) if system == Path("/") else None
        by_file = installed_libraries.get(flavour, {}).get("version")
        versions = [version for version in (by_file, by_package, by_module) if version]
        # the most exact; of equally exact ones the file's, then the package's
        found[flavour] = max(versions, key=lambda version: version.count(".")) if versions else None
    return found


def module_version(name: str) -> Optional[str]:
    """Returns a Python package's version, read without running the package."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    if spec.origin:
        assigned = _ASSIGNED.search(read_text(Path(spec.origin), 1 << 20))
        if assigned:
            return assigned.group(1)
    base = name.replace("_", "-")
    # NVIDIA's wheels have CUDA's major version in their names
    names = (base.replace("tensorrt", "tensorrt-cu" + cuda, 1) for cuda in ("11", "12", "13"))
    for distribution in (base, *names):
        version = recorded_version(distribution)
        if version is not None:
            return version
    return None


def find_trtexec(system: Path = Path("/")) -> Optional[Path]:
    """Returns trtexec from the PATH, or from the folder of JetPack's samples; None if missing."""
    if system == Path("/"):
        program = shutil.which("trtexec")
        if program:
            return Path(program)
    for name in _TRTEXEC:
        if (system / name).is_file():
            return system / name
    return None


def account_groups() -> List[str]:
    """Returns the names of the account's groups, or the number of a group without a name."""
    names = []
    # getgroups need not contain the effective group (POSIX)
    for number in sorted({*os.getgroups(), os.getegid()}):
        try:
            names.append(grp.getgrgid(number).gr_name)
        except KeyError:
            names.append(str(number))
    return names
