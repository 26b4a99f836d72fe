"""Checks that this board meets a bundle's requirements, before a transfer, a refit or a load."""

from __future__ import annotations

from pathlib import Path
from typing import List, NoReturn, Optional

from edgekit_device.board import inventory
from edgekit_device.board.identity import Hello, hello, query_cudla, query_tensorrt
from edgekit_device.board.inventory import MODULES
from edgekit_device.errors import DeviceError
from edgekit_device.protocol.manifest import Manifest, RequiredRuntime, Requires
from edgekit_device.store.root import Root
from edgekit_device.tensorrt.runtimes import check_board
from edgekit_device.versions import at_least, parse_version

#: The backend that runs segments on the CPU.
_ON_CPU = RequiredRuntime("onnxruntime", "", "")


def check_requires(root: Root, manifest: Manifest) -> None:
    """Compares the requirements of a bundle with this board.

    Args:
        root: The installation; blobs that it already has need no more space.
        manifest: The bundle's checked manifest; without "requires" every board passes.

    Raises:
        DeviceError: "requires.loader", "requires.backend", "requires.runtime", "requires.board",
            "requires.dla", "requires.cudla", "requires.disk" or "requires.memory".
    """
    requires = manifest.requires
    if requires is None:
        return
    system, cores = Path("/"), None
    if requires.cudla or requires.dla_cores:
        cores = len(inventory.dla_devices(system)) or None
        if cores is None:
            # TensorRT is asked in a child process, so only if there are no device nodes
            cores = query_tensorrt(MODULES["full"])[0].dla_cores
    cudla = (
        bool("cudla" in inventory.libraries(system) or query_cudla()) if requires.cudla else None
    )
    sizes = manifest.sizes()
    stored = sum(size for digest, size in sizes.items() if root.store.size(digest) == size)
    board = hello(root.folder)
    check_facts(requires, board, dla_cores=cores, cudla=cudla, where=manifest.name, stored=stored)


def check_facts(
    requires: Requires,
    board: Hello,
    *,
    dla_cores: Optional[int] = None,
    cudla: Optional[bool] = None,
    where: str = "",
    stored: Optional[int] = None,
) -> None:
    """Compares requirements with a board; unknown facts (None) are not compared.

    Args:
        requires: The bundle's requirements.
        board: The board's answer to ``hello``.
        dla_cores: Number of DLA cores.
        cudla: True if the board has cuDLA.
        where: Place for messages.
        stored: Bytes of the bundle that the board already has; None to skip disk space.

    Raises:
        DeviceError: See ``check_requires``.
    """
    if board.schema != requires.loader:
        _fail(
            "loader",
            "an edgekit_device for {}, but the board's is for {}".format(
                requires.loader, board.schema
            ),
            where,
            "replace edgekit_device on the board",
        )
    if requires.backend not in board.backends:
        _fail(
            "backend",
            "the {} backend, but the board has {}".format(
                requires.backend, ", ".join(board.backends) or "none"
            ),
            where,
            "build for a backend that the board has",
        )
    _check_runtime(requires.runtime, board, where)
    if requires.cpu:
        _check_runtime(_ON_CPU, board, where)
    _check_board(requires, board, where)
    if dla_cores is not None and any(core >= dla_cores for core in requires.dla_cores):
        _fail(
            "dla",
            "DLA core {}, but the board has {}".format(max(requires.dla_cores), dla_cores),
            where,
            "build for the cores that the board has",
        )
    if requires.cudla and cudla is False:
        _fail(
            "cudla",
            "cuDLA, which is missing on the board",
            where,
            "install libcudla, or build with build.mode: hybrid",
        )
    disk = None if stored is None else board.free_bytes
    for what, needed, free in (
        # present blobs already use their space
        ("disk", requires.disk_bytes - (stored or 0), disk),
        ("memory", requires.memory_bytes, board.memory_bytes),
    ):
        if free is not None and needed > free:
            _fail(
                what,
                "{:,} bytes of {}, only {:,} are free".format(needed, what, free),
                where,
                "free some there, or build a smaller one",
            )


def _check_runtime(needed: Optional[RequiredRuntime], board: Hello, where: str) -> None:
    if needed is None:
        return
    name, oldest, below = needed.name, needed.oldest, needed.below
    version = getattr(board, name, "")
    wanted = name + (" from {}".format(oldest) if oldest else "")
    wanted += " and before {}".format(below) if below else ""
    if version is None:
        _fail(
            "runtime",
            "{}, which is missing on the board".format(wanted),
            where,
            "python3 -m pip install {}".format(name),
        )
    here = parse_version(str(version))
    if not here:
        return  # it is installed, with an unknown version
    old = oldest and not at_least(here, parse_version(oldest))
    if old or (below and at_least(here, parse_version(below))):
        _fail(
            "runtime",
            "{}, but the board has {}".format(wanted, version),
            where,
            "install such a version there, or build for the board's version",
        )


def _check_board(requires: Requires, board: Hello, where: str) -> None:
    if not requires.boards:
        return
    here = {
        "module": " ".join(n for n in (board.module, board.board_id) if n),
        "l4t": board.l4t,
        "tensorrt": board.tensorrt,
    }
    refused: List[DeviceError] = []
    for kind in requires.boards:
        try:
            check_board(kind, here, portable=requires.portable, where=where)
        except DeviceError as error:
            refused.append(error)
    # a bundle for several boards needs one of them
    if len(refused) == len(requires.boards):
        raise DeviceError(
            refused[0].message, code="requires.board", where=where, hint=refused[0].hint
        )


def _fail(what: str, message: str, where: str, hint: str) -> NoReturn:
    raise DeviceError(
        "the bundle needs {}".format(message), code="requires." + what, where=where, hint=hint
    )
