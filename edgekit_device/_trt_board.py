"""Is this the kind of board that the engines were built on? Asked before TensorRT sees a byte."""

from __future__ import annotations

from typing import Mapping, Optional

from ._errors import DeviceError
from ._plan import parse_version
from ._trt_pick import same_version

__all__ = ["check_board"]


def check_board(
    bundle: Mapping[str, str],
    board: Mapping[str, Optional[str]],
    *,
    portable: bool,
    where: str = "",
) -> None:
    """Compares the bundle's fingerprint with this board: module, L4T and TensorRT.

    What either side does not know is not compared; TensorRT has its own checks after that.

    Args:
        bundle: The manifest's fingerprint.
        board: "module", "l4t" and "tensorrt" of this board.
        portable: Whether every engine is version-compatible and for the GPU alone: then L4T and
            TensorRT may differ.
        where: For messages.

    Raises:
        DeviceError: "engine.other-board", saying both.
    """
    differ = []
    for name in ("module",) if portable else ("module", "l4t", "tensorrt"):
        built, here = bundle.get(name) or "", board.get(name) or ""
        if not built or not here or built == here:
            continue
        if name == "tensorrt" and same_version(parse_version(built), parse_version(here)):
            continue
        differ.append("{}: built on {!r}, here {!r}".format(name, built[:80], here[:80]))
    if differ:
        raise DeviceError(
            "the engines were built on another kind of board ({})".format("; ".join(differ)),
            code="engine.other-board",
            where=where,
            hint="engines run on the kind of board that they were built on: "
            "edgekit deploy CONFIG builds for this one",
        )
