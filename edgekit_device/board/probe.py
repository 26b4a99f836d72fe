"""The command ``probe``: all that a build or deployment needs to know of a board, in one JSON
document.
"""

from __future__ import annotations

import argparse
import grp
import importlib.util
import os
import platform
import shutil
from pathlib import Path
from typing import Any, BinaryIO, Dict, List, Optional

from edgekit_device.board import inventory
from edgekit_device.board.identity import (
    BOARD_FACTS,
    RememberedBoard,
    board_facts,
    dla_compiler_version,
    fingerprint,
    hello,
    query_cuda,
    query_cudla,
    query_cudla_facts,
    query_tensorrt,
)
from edgekit_device.board.inventory import (
    MODULES,
    facts_of_docker,
    find_trtexec,
    module_version,
    output_of,
    packages,
    tensorrt_versions,
)
from edgekit_device.board.power import mend
from edgekit_device.board.power_tools import parse_clocks, parse_power_mode, read_modes
from edgekit_device.errors import map_os_errors
from edgekit_device.files import write_durably
from edgekit_device.protocol.codec import dump
from edgekit_device.store.root import Root


def do_probe(root: Root, arguments: argparse.Namespace, stdin: BinaryIO) -> Dict[str, Any]:
    """Describes the board; with --remember also for containers on it, which see less."""
    left = mend(root.folder)
    document = probe(root.folder)
    if left:
        document["notes"].append(left)
    if arguments.remember:
        remembered = RememberedBoard(document["module"], document["board_id"], document["l4t"])
        with map_os_errors(str(root.folder)):
            root.folder.mkdir(parents=True, exist_ok=True)
            write_durably(root.folder / BOARD_FACTS, dump(remembered))
    return document


def probe(folder: Path, system: Path = Path("/")) -> Dict[str, Any]:
    """The document ``edgekit.probe/1``.

    Args:
        folder: ROOT.
        system: The root of the file system; another one than "/" is only read, nothing runs.
    """
    notes: List[str] = []
    real = system == Path("/")
    said = hello(folder)
    there = inventory.libraries(system)
    installed = packages(system)
    cuda, dla_cores, python = _query_tensorrt_and_cuda(real, notes)
    versions = tensorrt_versions(system, installed)
    # as `full_version` has it; the module was imported already
    versions["full"] = versions["full"] or python["full"]
    facts = board_facts(folder, system)
    if facts["module"] is None:
        notes.append("no model in the device tree: this is no Jetson, or a container on one")
    return {
        "schema": "edgekit.probe/1",
        **facts,
        "jetpack": None,  # the host knows which JetPack has this L4T
        "cuda": inventory.cuda_version(system),
        "cuda_driver": cuda.get("driver"),
        "compute_capability": cuda.get("compute_capability"),
        "machine": platform.machine(),
        "python": said["python"],
        "numpy": said["numpy"],
        "onnxruntime": said["onnxruntime"],
        "tensorrt": {
            **versions,
            "python": python,
            "libraries": {kind: there[kind] for kind in MODULES if kind in there},
        },
        "trtexec": _trtexec(system, versions["full"]),
        "dla": {
            "cores": dla_cores,
            "devices": inventory.dla_devices(system),
            "compiler": there.get("dla_compiler", {}).get("path"),
            "compiler_version": dla_compiler_version(system, installed),
        },
        "cudla": there.get("cudla", {}).get("path") or (query_cudla() if real else None),
        "cudla_facts": _cudla(notes) if real else None,
        "nvrtc": there.get("nvrtc", {}).get("path"),
        "nsys": shutil.which("nsys") if real else None,
        "power": _power(notes) if real else dict.fromkeys(("mode", "id", "modes", "clocks")),
        "disk_free": said["free_bytes"],
        "memory": inventory.memory(system),
        "user": {"uid": os.getuid(), "root": os.geteuid() == 0},
        "groups": _groups(),
        "docker": facts_of_docker() if real else None,
        "ssh_keygen": said["ssh_keygen"],
        "root": said["root"],
        "notes": notes,
        "fingerprint": fingerprint(
            folder,
            system,
            capability=cuda.get("compute_capability") or "",
            tensorrt=versions["full"] or "",
        ),
    }


def _query_tensorrt_and_cuda(real: bool, notes: List[str]) -> Any:
    """The driver's facts, DLA cores, and the Python modules' versions by flavour."""
    python: Dict[str, Optional[str]] = dict.fromkeys(MODULES)
    if not real:
        return {}, None, python
    cuda, problem = query_cuda()
    if problem:
        notes.append("the CUDA driver: " + problem)
    cores = None
    for flavour, name in MODULES.items():
        python[flavour] = module_version(name)
        if python[flavour] is None and not _is_there(name):
            continue
        if python[flavour] and flavour != "full":
            continue
        answer, problem = query_tensorrt(name)
        python[flavour] = answer.get("version") or python[flavour]
        cores = answer.get("dla_cores", cores)
        if problem:
            notes.append("{}: {}".format(name, problem))
    return cuda, cores, python


def _cudla(notes: List[str]) -> Optional[Dict[str, Any]]:
    """cuDLA's version, devices and whether NvSci is there; None where there is no libcudla."""
    found, problem = query_cudla_facts()
    if problem:
        notes.append("cuDLA: " + problem)
    if not found.get("path"):
        return None
    notes.extend("cuDLA: {}".format(note) for note in found.pop("notes", []))
    return found


def _is_there(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def _trtexec(system: Path, version: Optional[str]) -> Optional[Dict[str, Any]]:
    path = find_trtexec(system)
    # it has no switch for its version alone and comes with the libraries that it uses
    return None if path is None else {"path": str(path), "version": version}


def _power(notes: List[str]) -> Dict[str, Any]:
    mode, number = parse_power_mode(_as_root(["nvpmodel", "-q"], "Power Mode", notes))
    clocks = parse_clocks(_as_root(["jetson_clocks", "--show"], "MaxFreq", notes)) or None
    return {"mode": mode, "id": number, "modes": read_modes() or None, "clocks": clocks}


def _as_root(argv: List[str], shows: str, notes: List[str]) -> str:
    """What a command prints for this user, otherwise for root if sudo needs no password."""
    program = shutil.which(argv[0], path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin:/usr/bin")
    if program is None:
        return ""
    ways = [[program], ["sudo", "-n", program]] if os.geteuid() else [[program]]
    for way in ways:
        said = output_of([*way, *argv[1:]]) or ""
        if shows in said:
            return said
    notes.append("`{}` needs root: edgekit doctor --setup lets it".format(" ".join(argv)))
    return ""


def _groups() -> List[str]:
    names = []
    for number in sorted({*os.getgroups(), os.getegid()}):
        try:
            names.append(grp.getgrgid(number).gr_name)
        except KeyError:
            names.append(str(number))
    return names
