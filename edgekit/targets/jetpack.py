"""JetPack releases: a board's TensorRT by JetPack, and the JetPack of an L4T release."""

from __future__ import annotations

from functools import lru_cache

from edgekit.errors import UsageError
from edgekit.knowledge import data_folder
from edgekit.targets.board import JetPack, Target, canonical_release
from edgekit.targets.loader import get, read_board_data
from edgekit_device.protocol.codec import array, choice, document, long_text, member, records

_PREFIX = "jetpack"


@document(frozen=True, eq=False)
class JetPackFile:
    """``targets/_jetpack.yaml``: minor TensorRT releases and JetPack releases, oldest first."""

    schema: str = member(choice("edgekit.jetpack/1"))
    tensorrt_releases: tuple[str, ...] = member(array(long_text, 1))
    tensorrt_releases_source: tuple[str, ...] = member(array(long_text, 1))
    releases: tuple[JetPack, ...] = member(records(JetPack, 1))


def jetpacks(target: Target) -> tuple[JetPack, ...]:
    """Returns the JetPack releases for a board, oldest first; empty if it runs none.

    They are listed in ``targets/_jetpack.yaml`` by SoC. A board file may name its first release
    (``software.jetpack_since``), or have its own list ``software.releases`` instead.
    """
    software = target.file.software
    if software.releases is not None:
        return tuple(release for release in software.releases if release.versions)
    packs = [pack for pack in _read_releases().releases if target.file.module.soc in pack.socs]
    since = software.jetpack_since
    first = next(i for i, pack in enumerate(packs) if since in pack.versions) if since else 0
    return tuple(packs[first:])


def tensorrt_of_jetpack(board: Target | str, jetpack: str) -> str:
    """Returns the TensorRT release that JetPack ``jetpack`` ("6.2", "6.2.0") brings to a board.

    Raises:
        UsageError: The board has no such JetPack (code ``jetpack.unknown``), or its TensorRT is
            not publicly known (code ``jetpack.tensorrt``); there is no such board.
    """
    target = get(board) if isinstance(board, str) else board
    known = jetpacks(target)
    wanted = _canonical(jetpack)
    for release in known:
        if wanted not in {_canonical(version) for version in release.versions}:
            continue
        if not release.tensorrt:
            raise UsageError(
                f"the TensorRT version of JetPack {jetpack} is unknown",
                code="jetpack.tensorrt",
                where=target.name,
                hint="read it on the board and give it with --tensorrt",
            )
        return release.tensorrt
    listed = ", ".join(version for release in known for version in release.versions)
    raise UsageError(
        f"JetPack {jetpack!r} does not exist for this board",
        code="jetpack.unknown",
        where=target.name,
        hint=f"this board's JetPacks are {listed}"
        if listed
        else "this board has no JetPack: use --tensorrt",
    )


def jetpack_of_l4t(l4t: str) -> str | None:
    """Returns the JetPack with Jetson Linux ``l4t`` ("36.4.3"): "6.0", or "6.1 to 6.2.3".

    Several JetPacks share a TensorRT and a row of ``targets/_jetpack.yaml``, which does not assign
    L4T versions to them. None if no row has it.
    """
    wanted = _canonical(l4t)
    for release in _read_releases().releases:
        if wanted in {_canonical(version) for version in release.l4t}:
            versions = release.versions
            return versions[0] if len(versions) == 1 else f"{versions[0]} to {versions[-1]}"
    return None


def tensorrt_releases() -> tuple[str, ...]:
    """Returns the minor releases of TensorRT that exist, oldest first: "8.4", ..., "11.5"."""
    return _read_releases().tensorrt_releases


def newest_jetpack() -> JetPack:
    """Returns the newest JetPack of all boards."""
    return _read_releases().releases[-1]


@lru_cache(maxsize=1)
def _read_releases() -> JetPackFile:
    return read_board_data(JetPackFile, data_folder("targets") / "_jetpack.yaml")


def _canonical(version: str) -> str:
    """Returns the version without leading "JetPack" and trailing zeros: "6.2" for "6.2.0"."""
    text = version.strip().lower().removeprefix(_PREFIX).strip()
    return canonical_release(text) if text.replace(".", "").isdecimal() else text
