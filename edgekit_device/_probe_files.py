"""What a board's files say of it: module, L4T, libraries, CUDA, DLA devices, memory.

Every function takes the root of the file system, so that a copy of a board's files can be asked;
what is not there is None or empty, never an error.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Dict, Iterator, List, Optional

__all__ = [
    "board_id",
    "cuda_version",
    "default_system",
    "dla_devices",
    "l4t",
    "libraries",
    "memory",
    "module",
    "text_of",
]

# where JetPack's packages, CUDA's toolkits and containers put libraries
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


def default_system() -> Path:
    """The root of the file system; $EDGEKIT_SYSTEM names a copy of a board's files for tests."""
    return Path(os.environ.get("EDGEKIT_SYSTEM") or "/")


def text_of(path: Path, most: int = 1 << 16) -> str:
    """The start of a text file; "" when it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(most).decode("utf-8", "replace")
    except OSError:
        return ""


def l4t(root: Path) -> Optional[str]:
    """Jetson Linux as "36.4.3", from /etc/nv_tegra_release."""
    found = _RELEASE.search(text_of(root / "etc/nv_tegra_release"))
    return "{}.{}".format(*found.groups()) if found else None


def module(root: Path) -> Optional[str]:
    """The model in the device tree: "NVIDIA Jetson AGX Orin Developer Kit"."""
    text = text_of(root / "proc/device-tree/model").strip("\0 \n")
    return text or None


def board_id(root: Path) -> Optional[str]:
    """The module's number, "p3701-0005": what follows a "+" in the device tree's "compatible"."""
    text = text_of(root / "proc/device-tree/compatible")
    numbers = _BOARD_ID.findall(text)
    modules = [number for number in numbers if "+" + number in text]
    for number in [*modules, *numbers]:
        return str(number)
    return None


def libraries(root: Path) -> Dict[str, Dict[str, str]]:
    """Path and version by kind ("full", "lean", "cudla", ...); of several, the highest version."""
    found: Dict[str, Dict[str, str]] = {}
    for folder in _folders(root):
        try:
            listed = os.listdir(str(folder))
        except OSError:
            continue
        names = sorted(name for name in listed if name.startswith(_STEMS))
        for kind, stem in _LIBRARIES.items():
            for name in names:
                if name != stem + ".so" and not name.startswith(stem + ".so."):
                    continue
                path = folder / name
                version = _file_version(path)
                if kind not in found or _numbers(version) > _numbers(found[kind]["version"]):
                    found[kind] = {"path": "/" + str(path.relative_to(root)), "version": version}
    return found


def cuda_version(root: Path) -> Optional[str]:
    """CUDA's version, from the toolkit's own file, otherwise from the runtime library's name."""
    for path in sorted(root.glob("usr/local/cuda*/version.json"), reverse=True):
        try:
            return str(json.loads(text_of(path))["cuda"]["version"])
        except (ValueError, KeyError, TypeError):
            continue
    for path in sorted(root.glob("usr/local/cuda*/version.txt"), reverse=True):
        found = _VERSION.search(text_of(path))
        if found:
            return found.group()
    return libraries(root).get("cudart", {}).get("version") or None


def dla_devices(root: Path) -> List[str]:
    """The DLA's folders below /sys, wherever this release of L4T has put them."""
    pattern = re.compile(r"[0-9a-f]+\.nvdla\d+\Z")
    places: List[str] = []
    # JetPack 4: host1x/..., 5: 13e40000.host1x/..., 6: bus@0/13e00000.host1x/...
    for depth in ("*/*", "*/*/*"):
        for path in (root / "sys/devices/platform").glob(depth):
            if pattern.match(path.name):
                places.append("/" + str(path.relative_to(root)))
    return sorted(places)


def memory(root: Path) -> Dict[str, Optional[int]]:
    """Bytes of memory: "total" and "available"."""
    text = text_of(root / "proc/meminfo")
    found = dict(re.findall(r"^(MemTotal|MemAvailable):\s*(\d+) kB", text, re.MULTILINE))
    sizes = {name: int(value) * 1024 for name, value in found.items()}
    return {"total": sizes.get("MemTotal"), "available": sizes.get("MemAvailable")}


def _folders(root: Path) -> Iterator[Path]:
    for pattern in _FOLDERS:
        yield from sorted(root.glob(pattern))
    if root == Path("/"):
        for name in os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep):
            if name.startswith("/"):
                yield Path(name)


def _file_version(path: Path) -> str:
    """What follows ".so." in the name of the file that a link leads to in the end."""
    try:
        name = path.resolve().name
    except (OSError, RuntimeError):
        name = path.name
    found = _VERSION.fullmatch(name.partition(".so.")[2])
    return found.group() if found else ""


def _numbers(version: str) -> List[int]:
    return [int(number) for number in _VERSION.findall(version.replace(".", " "))]
