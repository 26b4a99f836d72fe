"""Checks that this board has what a bundle needs, before anything is sent, refitted or opened."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List, Mapping, NoReturn

from edgekit_device.board import inventory
from edgekit_device.board.identity import hello, query_cudla, query_tensorrt
from edgekit_device.board.inventory import MODULES
from edgekit_device.errors import DeviceError
from edgekit_device.protocol.codec import write
from edgekit_device.protocol.manifest import Manifest, Requires
from edgekit_device.store.root import Root
from edgekit_device.tensorrt.runtimes import check_board
from edgekit_device.versions import at_least, parse_version


def check_requires(root: Root, manifest: Manifest) -> None:
    """Compares what a bundle requires with this board.

    Args:
        root: The installation; what it has of the bundle already needs no more space.
        manifest: The bundle's checked manifest; one without "requires" needs nothing.

    Raises:
        DeviceError: "requires.loader", "requires.backend", "requires.runtime", "requires.board",
            "requires.dla", "requires.cudla", "requires.disk" or "requires.memory".
    """
    requires = manifest.requires
    if requires is None:
        return
    system = Path("/")
    facts: Dict[str, Any] = write(hello(root.folder))
    if requires.cudla or requires.dla_cores:
        facts["dla_cores"] = len(inventory.dla_devices(system)) or None
        if facts["dla_cores"] is None:
            facts["dla_cores"] = query_tensorrt(MODULES["full"])[0].get("dla_cores")
    if requires.cudla:
        facts["cudla"] = bool("cudla" in inventory.libraries(system) or query_cudla())
    sizes = manifest.sizes()
    there = sum(size for digest, size in sizes.items() if root.store.size(digest) == size)
    check_facts(requires, facts, where=manifest.name, there=there)


def check_facts(
    requires: Requires, facts: Mapping[str, Any], *, where: str = "", there: int = 0
) -> None:
    """Compares; what is not known of the board is not compared.

    Args:
        requires: The bundle's.
        facts: "schema", "backends", "free_bytes", "memory_bytes", "module", "board_id", "l4t",
            "tensorrt", "dla_cores", "cudla", and versions by runtime's name.
        where: For messages.
        there: Bytes of the bundle that the board has already.

    Raises:
        DeviceError: See ``check_requires``.
    """
    if "schema" in facts and facts["schema"] != requires.loader:
        _fail("loader", "an edgekit_device for {}, but the board's is for {}".format(
            requires.loader, facts["schema"]), where,
            "replace edgekit_device on the board")  # fmt: skip
    if "backends" in facts and requires.backend not in facts["backends"]:
        _fail("backend", "the {} backend, but the board has {}".format(
            requires.backend, ", ".join(facts["backends"]) or "none"), where,
            "build for a backend that the board has")  # fmt: skip
    _runtime(requires, facts, where)
    _boards(requires, facts, where)
    cores = facts.get("dla_cores")
    if isinstance(cores, int) and any(core >= cores for core in requires.dla_cores):
        _fail("dla", "DLA core {}, but the board has {}".format(
            max(requires.dla_cores), cores), where,
            "build for the cores that the board has")  # fmt: skip
    if requires.cudla and facts.get("cudla") is False:
        _fail("cudla", "cuDLA, which is missing on the board", where,
              "install libcudla, or build with build.mode: hybrid")  # fmt: skip
    for what, needed in (
        ("disk", max(requires.disk_bytes - there, 0)),
        ("memory", requires.memory_bytes),
    ):
        free = facts.get({"disk": "free_bytes", "memory": "memory_bytes"}[what])
        if isinstance(free, int) and needed > free:
            _fail(what, "{:,} bytes of {}, only {:,} are free".format(needed, what, free), where,
                  "free some there, or build a smaller one")  # fmt: skip


def _runtime(requires: Requires, facts: Mapping[str, Any], where: str) -> None:
    needed = requires.runtime
    if needed is None or needed.name not in facts:
        return
    name, oldest, below = needed.name, needed.oldest, needed.below
    version = facts[name]
    wanted = name + (" from {}".format(oldest) if oldest else "")
    wanted += " and before {}".format(below) if below else ""
    if version is None:
        _fail("runtime", "{}, which is missing on the board".format(wanted), where,
              "python3 -m pip install {}".format(name))  # fmt: skip
    here = parse_version(str(version))
    if not here:
        return  # it is there, of unknown version
    old = oldest and not at_least(here, parse_version(oldest))
    if old or (below and at_least(here, parse_version(below))):
        _fail("runtime", "{}, but the board has {}".format(wanted, version), where,
              "install such a version there, or build for the board's version")  # fmt: skip


def _boards(requires: Requires, facts: Mapping[str, Any], where: str) -> None:
    if not requires.boards or "module" not in facts:
        return
    here = {
        "module": " ".join(n for n in (facts["module"], facts.get("board_id")) if n),
        "l4t": facts.get("l4t"),
        "tensorrt": facts.get("tensorrt"),
    }
    refused: List[DeviceError] = []
    for kind in requires.boards:
        try:
            check_board(kind, here, portable=requires.portable, where=where)
        except DeviceError as error:
            refused.append(error)
    if len(refused) == len(requires.boards):
        raise DeviceError(refused[0].message, code="requires.board", where=where,
                          hint=refused[0].hint)  # fmt: skip


def _fail(what: str, message: str, where: str, hint: str) -> NoReturn:
    raise DeviceError(
        "the bundle needs {}".format(message), code="requires." + what, where=where, hint=hint
    )
