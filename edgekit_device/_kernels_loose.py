"""Plans kernels for dense tensors whose lines begin at any byte (``_kernels_source``: LOOSE)."""

from __future__ import annotations

from dataclasses import replace
from typing import Dict, Optional, Tuple

from ._kernels_blocks import LOOSE
from ._kernels_layout import LAST, PLANES, VECTORS, Side

__all__ = ["loosen", "stored_bytes"]

_THREADS = 256
_MOST_SHARED = 48 << 10  # bytes of shared memory that every GPU gives a block
_Shape = Tuple[int, int, int, int]


def stored_bytes(one: Side, shape: _Shape) -> int:
    """Bytes of a tensor in memory."""
    batch, channels, height, _ = shape
    if one.kind == LAST:
        channels = one.held
    elif one.kind == VECTORS:
        channels = -(-channels // one.vector) * one.vector
    return batch * channels * height * one.line * one.size


def loosen(
    a: Side, b: Side, shape: _Shape, defines: Dict[str, int], lines: Tuple[int, int]
) -> Optional[Tuple[_Shape, Side, Side, Dict[str, int]]]:
    """The plan for a dense side whose lines begin at any byte; None where there is none.

    Args:
        a: The side to read.
        b: The side to write.
        shape: (N, C, H, W) as it is planned so far.
        defines: The definitions so far.
        lines: Pixels of a line of the source, and of the gap behind it.
    """
    batch, channels, height, width = shape
    key = (a.kind, b.kind, a.size, b.size)
    if key not in LOOSE:
        return None
    block = dict(zip(("CW", "PX", "LANES", "UNROLL", "BLOCKS"), LOOSE[key]))  # noqa: B905
    more = {"LOOSE": 1, "ROLLED": 0, "STAGED": 0, "STRAIGHT": 0, "SRC_MODE": 3, "DST_MODE": 1}
    if a.dla:
        more["LOOSE"] = 2
        more["ROLLED"] = int(a.kind == PLANES and lines[1] > 0)
        if a.kind == VECTORS:
            more["SRC_MODE"] = 1
        if not defines["FLAT"]:
            if a.kind != PLANES or lines[0] < block["PX"]:
                return None
            # planes as one line each, with gaps that the kernel steps over
            a, b = replace(a, line=height * a.line), replace(b, line=height * b.line)
            height, width = 1, height * width
            more["FLAT"] = 1
        if b.kind == LAST:
            # a block of threads writes whole pixels
            block["LANES"] = 1 << max(0, (-(-channels // block["CW"]) - 1).bit_length())
            more["STAGED"], more["DST_MODE"] = 2, 0
        elif a.kind == VECTORS:
            more["STAGED"] = 1
        cells = _THREADS * block["CW"] * block["PX"] * block["UNROLL"] * b.size
        rows = block["CW"] * block["LANES"] if more["STAGED"] == 1 else 1
        if block["LANES"] > _THREADS or cells + 16 * rows + 16 > _MOST_SHARED:
            return None
    elif b.kind != VECTORS and b.line % block["PX"]:
        return None
    return (batch, channels, height, width), a, b, {**defines, **block, **more}
