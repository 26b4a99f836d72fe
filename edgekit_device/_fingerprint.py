"""What a built engine is bound to: module, L4T, TensorRT, CUDA, GPU and the DLA's compiler."""

from __future__ import annotations

import json
import platform
from pathlib import Path
from typing import Any, Dict, Optional

from . import _probe_files as files
from ._probe_child import ask_cuda, ask_tensorrt
from ._probe_software import MODULES, packages, tensorrt_versions

__all__ = ["BOARD_FACTS", "board_facts", "fingerprint"]

BOARD_FACTS = "board.json"
"""File below ROOT in which the board itself keeps what a container on it cannot see."""

_NAMES = ("module", "board_id", "l4t")


def board_facts(folder: Path, system: Path = Path("/")) -> Dict[str, Optional[str]]:
    """Module, its number and L4T: as seen here, or in a container as the board itself saw them.

    Args:
        folder: ROOT.
        system: The root of the file system.
    """
    seen = {
        "module": files.module(system),
        "board_id": files.board_id(system),
        "l4t": files.l4t(system),
    }
    if all(seen.values()):
        return seen
    try:
        kept = json.loads(files.text_of(folder / BOARD_FACTS))
    except ValueError:
        kept = {}
    if not isinstance(kept, dict):
        kept = {}
    return {name: seen[name] or _text(kept.get(name)) for name in _NAMES}


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
        capability: Compute capability, where it was asked already.
        tensorrt: TensorRT's version, where it was asked already.
    """
    facts = board_facts(folder, system)
    installed = packages(system)
    if capability is None:
        capability = ask_cuda()[0].get("compute_capability")
    if tensorrt is None:
        known = tensorrt_versions(system, installed)["full"]
        tensorrt = full_version(known, system)
    # boards of one kit carry different modules: the number tells them apart where it is known
    names = [name for name in (facts["module"], facts["board_id"]) if name]
    return {
        "backend": "tensorrt",
        "machine": platform.machine(),
        "module": " ".join(names),
        "l4t": facts["l4t"] or "",
        "tensorrt": tensorrt or "",
        "cuda": files.cuda_version(system) or "",
        "compute_capability": capability or "",
        "dla_compiler": dla_compiler_version(system, installed) or "",
    }


def full_version(known: Optional[str], system: Path = Path("/")) -> Optional[str]:
    """TensorRT's version as files and packages tell it, or else as its Python module does.

    Args:
        known: From ``tensorrt_versions``.
        system: The root of the file system; a module is asked of the running system's alone.
    """
    if known or system != Path("/"):
        return known
    said = ask_tensorrt(MODULES["full"])[0].get("version")
    return str(said) if said else None


def dla_compiler_version(system: Path, installed: Dict[str, str]) -> Optional[str]:
    """The version of the package that brings libnvdla_compiler.so.

    From JetPack 6 on it is one of its own, on JetPack 5 nvidia-l4t-core brings it (the package
    lists of jetpack-nixos, r35.6 and r36.5).
    """
    if "dla_compiler" not in files.libraries(system):
        return None
    return installed.get("nvidia-l4t-dla-compiler") or installed.get("nvidia-l4t-core")


def _text(value: Any) -> Optional[str]:
    return value if isinstance(value, str) and value else None
