"""Plans kernels for dense tensors whose lines begin at any byte (``_kernels_source``: LOOSE)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Dict, Optional, Tuple

from ._kernels_blocks import LOOSE, MOVED, WINDOWS, Block
from ._kernels_layout import LAST, PLANES, VECTORS, Side

__all__ = ["divide_by", "loosen", "stored_bytes", "windowed"]

_THREADS = 256
_LEAST_RUN = 4  # elements that a thread writes together
_MOST_ROWS = 65535  # of a grid's y
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
    block = _named(_block(a, b, defines))
    more = {
        "LOOSE": 1,
        "ROLLED": 0,
        "STAGED": 0,
        "WINDOW": 0,
        "STRAIGHT": 0,
        "SRC_MODE": 3,
        "DST_MODE": 1,
    }
    if a.dla:
        more["LOOSE"] = 2
        more["ROLLED"] = int(lines[1] > 0)
        if not defines["FLAT"]:
            if lines[0] < block["PX"]:
                return None
            # planes as one line each, with gaps that the kernel steps over
            a, b = replace(a, line=height * a.line), replace(b, line=height * b.line)
            height, width = 1, height * width
            more["FLAT"] = 1
    elif b.kind != VECTORS and b.line % block["PX"]:
        return None
    if defines["RAW"] or a.size == b.size == 1:
        more["STRAIGHT"] = _straight(a, b, block)
    return (batch, channels, height, width), a, b, {**defines, **block, **more}


def _block(a: Side, b: Side, defines: Dict[str, int]) -> Block:
    key = (a.kind, b.kind, a.size, b.size)
    return MOVED[key] if defines["RAW"] and key in MOVED else LOOSE[key]


def _named(block: Block) -> Dict[str, int]:
    return dict(zip(("CW", "PX", "LANES", "UNROLL", "BLOCKS"), block))  # noqa: B905


def _straight(a: Side, b: Side, block: Dict[str, int]) -> int:
    """How bits that are only moved are: 1 as words, 2 as squares of bytes, 0 one by one."""
    if a.kind == b.kind or (1 in {block["CW"], block["PX"]} and PLANES not in {a.kind, b.kind}):
        return int(b.kind != LAST)
    fits = a.size == 1 and PLANES in {a.kind, b.kind} and b.kind != LAST
    return 2 if fits and not (block["CW"] % 4 or block["PX"] % 4) else 0


def windowed(
    a: Side, b: Side, shape: _Shape, defines: Dict[str, int], numbers: Any
) -> Optional[Tuple[Dict[str, int], Tuple[int, int, int], int]]:
    """The plan for what a block of threads turns, or pixels that begin at any byte; None for none.

    Arguments as :func:`loosen`'s; sets the numbers that the kernel divides by. Returns the
    definitions, the grid and how many blocks lie across a line.
    """
    batch, channels, height, width = shape
    if b.kind == PLANES:
        return _turned(a, b, shape, defines)
    given = WINDOWS[a.kind, a.size, b.size]
    block = _named(given)
    while block["CW"] > channels:
        block["CW"] //= 2
    more = {"LOOSE": 2, "ROLLED": 0, "SRC_MODE": 1, "DST_MODE": 1}
    if block["CW"] < _LEAST_RUN:
        return None
    columns = 1
    if a.kind == VECTORS:
        runs = -(-batch * height * width * channels // block["CW"])
        grid = (-(-runs // (_THREADS * block["UNROLL"])), 1, 1)
        more.update(STAGED=0, WINDOW=1)
    else:
        block["LANES"] = 1 << (-(-channels // block["CW"]) - 1).bit_length()
        pixels = _THREADS // max(1, block["LANES"]) * block["PX"]
        room = (
            pixels * block["LANES"] * block["CW"] * min(a.size, b.size) + pixels // block["PX"] * 16
        )
        if block["LANES"] > _THREADS or room + 32 > _MOST_SHARED:
            return None
        columns = -(-width // pixels)
        grid = (columns * height, min(batch, _MOST_ROWS), 1)
        more.update(STAGED=1, WINDOW=2)
    divide_by(numbers, channels, columns if a.kind == PLANES else height * width)
    more["STRAIGHT"] = defines["RAW"]
    return {**defines, **block, **more}, grid, columns


def divide_by(numbers: Any, *divisors: int) -> None:
    """Sets the numbers that the kernel divides by.

    n * ceil(2**(31 + k) / by) >> 31 + k is n // by for n < 2**31 and by <= 2**k.
    """
    for i, by in enumerate(max(1, one) for one in divisors):
        k = (by - 1).bit_length()
        numbers.magic[i], numbers.moves[i] = -(-(1 << 31 + k) // by), 31 + k


def _turned(
    a: Side, b: Side, shape: _Shape, defines: Dict[str, int]
) -> Optional[Tuple[Dict[str, int], Tuple[int, int, int], int]]:
    batch, channels, height, width = shape
    block = _named(_block(a, b, defines))
    loaded = _THREADS // block["LANES"] * block["PX"]
    run = 16 // b.size
    rows = block["CW"] * block["LANES"]
    room = rows * (loaded * a.size + 16) + block["LANES"] * 32 + 32
    if height != 1 or room > _MOST_SHARED or loaded <= run:
        return None
    columns = -(-width // (loaded - run))
    grid = (columns * -(-channels // rows), min(batch, _MOST_ROWS), 1)
    more = {"LOOSE": 2, "ROLLED": 0, "SRC_MODE": 1, "DST_MODE": 1, "STAGED": 1, "WINDOW": 0}
    return {**defines, **block, **more, "STRAIGHT": 0}, grid, columns
