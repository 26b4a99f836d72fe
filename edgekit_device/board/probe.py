"""The command ``probe``: the facts about a board that a build or a deployment needs, in one JSON
document.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import platform
import shutil
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, Dict, List, Mapping, Optional, Tuple

from edgekit_device.board import inventory
from edgekit_device.board.identity import (
    BOARD_FACTS,
    CudaAnswer,
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
    account_groups,
    command_output,
    find_trtexec,
    module_version,
    packages,
    tensorrt_versions,
)
from edgekit_device.board.power import restore_interrupted
from edgekit_device.board.power_tools import ClockEntry, NvpmodelMode, PowerTools, read_modes
from edgekit_device.errors import map_os_errors
from edgekit_device.files import write_durably
from edgekit_device.protocol import fields
from edgekit_device.protocol.codec import (
    array,
    choice,
    document,
    dump,
    flag,
    mapping,
    member,
    nullable,
    record,
    records,
    text,
)
from edgekit_device.store.root import Root

_TEXT = nullable(text())


@document(frozen=True)
class Flavours:
    """Versions of TensorRT by flavour."""

    full: Optional[str] = member(_TEXT)
    lean: Optional[str] = member(_TEXT)
    dispatch: Optional[str] = member(_TEXT)


@document(frozen=True)
class InstalledLibrary:
    """A library's file and its version."""

    path: str = member(text())
    version: str = member(text())


@document(frozen=True)
class ProbedCudla:
    """cuDLA's library and its own version ("1.2.1"); None if unknown.

    Attributes:
        devices: Number of DLAs that cuDLA counts.
    """

    path: Optional[str] = member(_TEXT, absent=None, always=True)
    version: Optional[str] = member(_TEXT, absent=None, always=True)
    devices: Optional[int] = member(nullable(fields.count), absent=None, always=True)


@document(frozen=True)
class ProbedTensorrt(Flavours):
    """TensorRT's libraries, and its Python modules' versions."""

    python: Flavours = member(record(Flavours))
    libraries: Mapping[str, InstalledLibrary] = member(mapping(record(InstalledLibrary)))


@document(frozen=True)
class InstalledProgram:
    """A program and its version; None if unknown."""

    path: str = member(text())
    version: Optional[str] = member(_TEXT)


@document(frozen=True)
class Docker(InstalledProgram):
    """Docker; ``version`` and ``runtimes`` are None if it refuses this account."""

    runtimes: Optional[Tuple[str, ...]] = member(nullable(array(text())))


@document(frozen=True)
class ProbedDla:
    """The DLA: its folders below /sys, and its compiler's library.

    Attributes:
        cores: Number of cores that TensorRT counts.
    """

    cores: Optional[int] = member(nullable(fields.count))
    devices: Tuple[str, ...] = member(array(text()))
    compiler: Optional[str] = member(_TEXT)
    compiler_version: Optional[str] = member(_TEXT)


@document(frozen=True)
class ProbedPower:
    """The present power mode, all power modes, and clocks by name.

    Attributes:
        id: nvpmodel's number of the present mode.
    """

    mode: Optional[str] = member(_TEXT, default=None)
    id: Optional[int] = member(nullable(fields.count), default=None)
    modes: Optional[Tuple[NvpmodelMode, ...]] = member(
        nullable(records(NvpmodelMode)), default=None
    )
    clocks: Optional[Mapping[str, ClockEntry]] = member(
        nullable(mapping(record(ClockEntry))), default=None
    )


@document(frozen=True)
class Memory:
    """Bytes of memory.

    Attributes:
        total: Bytes of the board's memory.
        available: Bytes that programs can still allocate.
    """

    total: Optional[int] = member(nullable(fields.count))
    available: Optional[int] = member(nullable(fields.count))


@document(frozen=True)
class User:
    """The account.

    Attributes:
        uid: The account's number.
    """

    uid: int = member(fields.count)
    root: bool = member(flag)


@document(frozen=True)
class Probe:
    """``edgekit.probe/1`` (docs/board-protocol.md); unknown facts are None, with a note.

    Attributes:
        disk_free: Free bytes of ROOT's disk.
    """

    module: Optional[str] = member(_TEXT)
    board_id: Optional[str] = member(_TEXT)
    l4t: Optional[str] = member(_TEXT)
    jetpack: Optional[str] = member(_TEXT)
    cuda: Optional[str] = member(_TEXT)
    cuda_driver: Optional[str] = member(_TEXT)
    compute_capability: Optional[str] = member(_TEXT)
    machine: str = member(text())
    python: str = member(text())
    numpy: Optional[str] = member(_TEXT)
    onnxruntime: Optional[str] = member(_TEXT)
    tensorrt: ProbedTensorrt = member(record(ProbedTensorrt))
    trtexec: Optional[InstalledProgram] = member(nullable(record(InstalledProgram)))
    dla: ProbedDla = member(record(ProbedDla))
    cudla: Optional[str] = member(_TEXT)
    cudla_facts: Optional[ProbedCudla] = member(nullable(record(ProbedCudla)))
    nvrtc: Optional[str] = member(_TEXT)
    nsys: Optional[str] = member(_TEXT)
    power: ProbedPower = member(record(ProbedPower))
    disk_free: int = member(fields.count)
    memory: Memory = member(record(Memory))
    user: User = member(record(User))
    groups: Tuple[str, ...] = member(array(text()))
    docker: Optional[Docker] = member(nullable(record(Docker)))
    ssh_keygen: Optional[str] = member(_TEXT)
    root: str = member(text())
    notes: Tuple[str, ...] = member(array(text(most=1 << 18)))
    fingerprint: Mapping[str, str] = member(mapping(text()))
    schema: str = member(choice("edgekit.probe/1"), default="edgekit.probe/1")


def do_probe(root: Root, arguments: argparse.Namespace, stdin: BinaryIO) -> Probe:
    """Describes the board; with --remember stores facts that containers on it cannot see."""
    restored = restore_interrupted(root.folder)
    found = probe(root.folder)
    if restored:
        found = replace(found, notes=(*found.notes, restored))
    if arguments.remember:
        remembered = RememberedBoard(found.module, found.board_id, found.l4t)
        with map_os_errors(str(root.folder)):
            root.folder.mkdir(parents=True, exist_ok=True)
            write_durably(root.folder / BOARD_FACTS, dump(remembered))
    return found


def probe(folder: Path, system: Path = Path("/")) -> Probe:
    """Returns the document ``edgekit.probe/1``.

    Args:
        folder: ROOT.
        system: The root of the file system; no program is run for a root other than "/".
    """
    notes: List[str] = []
    real = system == Path("/")
    device = hello(folder)
    libraries = inventory.libraries(system)
    installed = packages(system)
    cuda, dla_cores, python = _query_tensorrt_and_cuda(real, notes)
    versions = tensorrt_versions(system, installed)
    # as in `full_version`; the module was already imported
    versions["full"] = versions["full"] or python["full"]
    trtexec = find_trtexec(system)
    facts = board_facts(folder, system)
    if facts["module"] is None:
        notes.append("no model in the device tree: not a Jetson, or a container on one")
    return Probe(
        module=facts["module"],
        board_id=facts["board_id"],
        l4t=facts["l4t"],
        jetpack=None,  # the host knows which JetPack has this L4T
        cuda=inventory.cuda_version(system),
        cuda_driver=cuda.driver,
        compute_capability=cuda.compute_capability,
        machine=platform.machine(),
        python=device.python,
        numpy=device.numpy,
        onnxruntime=device.onnxruntime,
        tensorrt=ProbedTensorrt(
            **versions,
            python=Flavours(**python),
            libraries={
                kind: InstalledLibrary(**libraries[kind]) for kind in MODULES if kind in libraries
            },
        ),
        # it has no switch for its version alone and comes with the libraries that it uses
        trtexec=None if trtexec is None else InstalledProgram(str(trtexec), versions["full"]),
        dla=ProbedDla(
            cores=dla_cores,
            devices=tuple(inventory.dla_devices(system)),
            compiler=libraries.get("dla_compiler", {}).get("path"),
            compiler_version=dla_compiler_version(system, installed),
        ),
        cudla=libraries.get("cudla", {}).get("path") or (query_cudla() if real else None),
        cudla_facts=_cudla(notes) if real else None,
        nvrtc=libraries.get("nvrtc", {}).get("path"),
        nsys=shutil.which("nsys") if real else None,
        power=_power(notes) if real else ProbedPower(),
        disk_free=device.free_bytes,
        memory=Memory(**inventory.memory(system)),
        user=User(uid=os.getuid(), root=os.geteuid() == 0),
        groups=tuple(account_groups()),
        docker=_docker() if real else None,
        ssh_keygen=device.ssh_keygen,
        root=device.root,
        notes=tuple(notes),
        fingerprint=fingerprint(
            folder,
            system,
            # "" is an answer: None would ask driver and TensorRT again
            capability=cuda.compute_capability or "",
            tensorrt=versions["full"] or "",
        ),
    )


def _query_tensorrt_and_cuda(
    real: bool, notes: List[str]
) -> Tuple[CudaAnswer, Optional[int], Dict[str, Optional[str]]]:
    """Returns the driver's facts, the number of DLA cores, and the modules' versions by flavour."""
    python: Dict[str, Optional[str]] = dict.fromkeys(MODULES)
    if not real:
        return CudaAnswer(), None, python
    cuda, problem = query_cuda()
    if problem:
        notes.append("the CUDA driver: " + problem)
    cores = None
    for flavour, name in MODULES.items():
        python[flavour] = module_version(name)
        if python[flavour] is None and not _has_module(name):
            continue
        # only the full module counts DLA cores; others are imported only if no file has their
        # version
        if python[flavour] and flavour != "full":
            continue
        answer, problem = query_tensorrt(name)
        python[flavour] = answer.version or python[flavour]
        cores = cores if answer.dla_cores is None else answer.dla_cores
        if problem:
            notes.append("{}: {}".format(name, problem))
    return cuda, cores, python


def _cudla(notes: List[str]) -> Optional[ProbedCudla]:
    """Returns cuDLA's version and devices; None without libcudla."""
    found, problem = query_cudla_facts()
    if problem:
        notes.append("cuDLA: " + problem)
    if not found.path:
        return None
    notes.extend("cuDLA: {}".format(note) for note in found.notes)
    return ProbedCudla(found.path, found.version, found.devices)


def _has_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def _docker() -> Optional[Docker]:
    """Returns Docker's path, version and runtimes; None without Docker."""
    path = shutil.which("docker")
    if path is None:
        return None
    form = "{{.ServerVersion}} {{range $k, $v := .Runtimes}}{{$k}} {{end}}"
    # an account outside of the group docker gets an error and no words
    words = (command_output([path, "info", "--format", form]) or "").split()
    return Docker(path, words[0], tuple(words[1:])) if words else Docker(path, None, None)


def _power(notes: List[str]) -> ProbedPower:
    tools = PowerTools()
    mode, clocks = tools.mode(), tools.clocks()
    for name, option, said in (("nvpmodel", "-q", mode), ("jetson_clocks", "--show", clocks)):
        if said is None and tools.has(name):
            notes.append(
                "`{} {}` needs root: give access with edgekit doctor --setup".format(name, option)
            )
    return ProbedPower(
        None if mode is None else mode.name,
        None if mode is None else mode.id,
        tuple(read_modes()) or None,
        clocks,
    )
