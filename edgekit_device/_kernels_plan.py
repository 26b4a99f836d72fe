"""Chooses a pack kernel for two layouts: its definitions, its numbers and how it is launched.

How a thread's block is cut follows from the sides (``_kernels_source`` names them): along pixels
where both sides are planes, along channels where both have them next to each other, and a square
that is turned in registers where they differ, wide enough that both sides move whole sectors.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, replace
from typing import Any, Dict, Optional, Tuple

from ._errors import DeviceError
from ._kernels_blocks import BLOCKS, FEW
from ._kernels_exact import divides, quick_bytes
from ._kernels_layout import LAST, PLANES, SIZES, VECTORS, Side, side
from ._kernels_loose import divide_by, loosen, stored_bytes, windowed
from ._packing import four

__all__ = ["THREADS", "Launch", "Numbers", "cut", "launch", "mode", "plan", "set_scale"]

THREADS = 256
_MOST_ROWS = 65535  # of a grid's y (CUDA C++ Programming Guide, "Compute Capabilities")
_SMALL = 4  # channels that one thread takes together
_ANY = (4, 1, 6)
# scales in whose range the kernel's division is exact (its remainders do not underflow)
_LEAST_SCALE, _MOST_SCALE = 1e-30, 1e30


class Numbers(ctypes.Structure):
    """The kernel's third parameter, as ``_kernels_source`` declares it."""

    _fields_ = [
        *[(name, ctypes.c_int) for name in (
            "batch", "channels", "height", "width", "src_line", "dst_line", "src_held", "dst_held",
            "groups", "columns", "pitch", "chroma_pitch",
        )],
        *[(name, ctypes.c_float) for name in (
            "src_scale", "dst_scale", "inverse", "low", "high",
        )],
        *[(name, ctypes.c_float * 3) for name in ("mean", "factor", "colour")],
        *[(name, ctypes.c_float) for name in ("luma", "red_v", "green_u", "green_v", "blue_u")],
        *[(name, ctypes.c_float * 3) for name in ("slope", "start")],
        *[(name, ctypes.c_float) for name in ("span", "base")],
        *[(name, ctypes.c_int64) for name in ("chroma", "src_bytes")],
        *[(name, ctypes.c_int) for name in ("rolled", "gap")],
        ("magic", ctypes.c_uint32 * 2), ("moves", ctypes.c_int * 2),
    ]  # fmt: skip


@dataclass(frozen=True)
class Launch:
    """A kernel's definitions (its source is made of them), its numbers and its grid."""

    defines: Tuple[Tuple[str, int], ...]
    numbers: Numbers
    grid: Tuple[int, int, int]


def plan(src: Any, dst: Any) -> Launch:
    """Plans the kernel that writes ``src``'s tensor as ``dst`` wants it.

    Raises:
        DeviceError: "kernels.shape", "kernels.scale", or as :func:`side`.
    """
    shape = four(src.shape)
    if shape != four(dst.shape):
        raise DeviceError(
            "{} cannot be written as {}".format(list(src.shape), list(dst.shape)),
            code="kernels.shape",
        )
    batch, channels, height, width = shape
    a, b = side(src), side(dst)
    if b.kind == LAST and b.held != channels and dst.format == "HWC":
        raise DeviceError("HWC is written without padding only", code="kernels.unsupported")
    numbers, raw = _scales(src, dst)
    quick = {} if raw else quick_bytes(src, dst, numbers)
    defines = cut(a, b, channels)
    lines = (width, a.line - width)
    if a.kind == b.kind == PLANES:
        # every line for itself, whatever it belongs to
        batch, channels, height = 1, 1, batch * channels * height
    flat = a.line == b.line == width
    if flat:
        height, width = 1, height * width
        a, b = replace(a, line=width), replace(b, line=width)
    defines.update(
        CHANNELS=channels if defines["SRC_HOLD"] or defines["DST_HOLD"] else 0,
        NANS=int(src.dtype.startswith("float")), DIVIDE=int(divides(src.dtype, numbers)),
        SRC_T=a.type, DST_T=b.type, SRC_SIDE=a.kind, DST_SIDE=b.kind, RAW=int(raw),
        SCALED=int(src.scale is not None and src.dtype == "int8"), FLAT=int(flat),
        VECTOR=a.vector or b.vector or 1, THREADS=THREADS, CAMERA=0, SWAP=0,
    )  # fmt: skip
    defines.update({"QUICK": 0, "LOWER": 0, "UPPER": 0, **quick})
    places = (batch, channels, height, width)
    _modes(a, b, places, defines)
    if defines["DST_MODE" if a.dla else "SRC_MODE"] != 1 and not defines["CHANNELS"]:
        if a.dla and (a.kind == VECTORS or b.kind == LAST):
            ready = windowed(a, b, places, defines, numbers)
            if ready is not None:
                made = launch(ready[0], numbers, places, a, b)
                numbers.columns = ready[2]
                return replace(made, grid=ready[1])
            found = None
        else:
            found = loosen(a, b, places, defines, lines)
        if found is not None:
            places, a, b, defines = found
            numbers.rolled, numbers.gap = lines
            numbers.src_bytes = stored_bytes(a, places)
            made = launch(defines, numbers, places, a, b)
            divide_by(numbers, lines[0], numbers.columns)
            return made
    single = 1 in {defines["CW"], defines["PX"]} and not defines["CHANNELS"]
    words = raw and bool(defines["SRC_MODE"] and defines["DST_MODE"])
    square = a.size == 1 and a.kind != b.kind and PLANES in {a.kind, b.kind}
    square = square and not (defines["SRC_HOLD"] or defines["DST_HOLD"])
    square = square and not (defines["CW"] % 4 or defines["PX"] % 4)
    defines["STRAIGHT"] = 1 if words and single else 2 if words and square else 0
    return launch(defines, numbers, (batch, channels, height, width), a, b)


def launch(
    defines: Dict[str, int], numbers: Numbers, shape: Tuple[int, int, int, int], a: Side, b: Side
) -> Launch:
    """Fills in the numbers that place the blocks, and the grid that covers them."""
    batch, channels, height, width = shape
    groups = 1
    # pixels lie in one thread; a frame's do, too, where they become vectors
    held = defines["DST_HOLD"] or (defines["SRC_HOLD"] and not defines["CAMERA"])
    if not held:
        covered = -(-channels // b.vector) * b.vector if b.vector else channels
        groups = -(-covered // (defines["CW"] * defines["LANES"]))
    across = b.line if b.kind != VECTORS else width
    columns = -(-across // defines["PX"])
    whole = across == width and width % defines["PX"] == 0
    if not (held or defines["CAMERA"]):
        whole = whole and channels % (defines["CW"] * defines["LANES"]) == 0
    defines["WHOLE"] = int(whole)
    numbers.batch, numbers.channels, numbers.height, numbers.width = shape
    numbers.src_line, numbers.dst_line = a.line, b.line
    numbers.src_held, numbers.dst_held = a.held, b.held
    numbers.groups, numbers.columns = groups, columns
    items = THREADS // defines["LANES"] * defines["UNROLL"]
    grid = (-(-columns * height // items) * groups, min(batch, _MOST_ROWS), 1)
    return Launch(tuple(sorted(defines.items())), numbers, grid)


def cut(a: Side, b: Side, channels: int) -> Dict[str, int]:
    """Chooses the block of a thread: CW, PX, LANES, UNROLL and the runs that cross pixels."""
    held = [one.held for one in (a, b) if one.kind == LAST]
    key = (a.kind, b.kind, a.size, b.size)
    if VECTORS not in {a.kind, b.kind} and held and max(held) <= _SMALL:
        # few channels: a pixel's lie in one thread, and runs cross pixels
        pixels, unroll, blocks = FEW.get(key, _ANY)
        return {
            "CW": b.held if b.kind == LAST else channels, "PX": pixels, "LANES": 1,
            "UNROLL": unroll, "BLOCKS": blocks,
            "SRC_HOLD": a.held if a.kind == LAST else 0,
            "DST_HOLD": b.held if b.kind == LAST else 0,
        }  # fmt: skip
    if a.kind == b.kind == LAST:
        raise DeviceError("both sides have their channels last", code="kernels.unsupported")
    block = dict(zip(("CW", "PX", "LANES", "UNROLL", "BLOCKS"), BLOCKS[key]))  # noqa: B905
    return {"SRC_HOLD": 0, "DST_HOLD": 0, **block}


def mode(one: Side, lines: int, run: int, hold: int, loads: bool) -> int:
    """How runs of elements move: 1 where each begins at a multiple of its words, else 2 or 0.

    Args:
        one: The side.
        lines: Lines of pixels that the tensor has there.
        run: Elements of a run.
        hold: Channels of a pixel where runs cross pixels, otherwise 0.
        loads: Whether words may be put together of two.
    """
    nbytes = run * one.size
    if nbytes % 4:
        return 0
    word = next(step for step in (16, 8, 4) if nbytes % step == 0)
    if one.kind == VECTORS:
        return 1
    if one.kind == LAST and not hold:
        fits = one.held * one.size % word == 0
    else:
        fits = lines == 1 or one.line * (hold or 1) * one.size % word == 0
    return 1 if fits else 2 if loads and one.size < SIZES["float32"] else 0


def _modes(a: Side, b: Side, shape: Tuple[int, int, int, int], block: Dict[str, int]) -> None:
    batch, channels, height, _ = shape
    for name, one in (("SRC", a), ("DST", b)):
        hold = block[name + "_HOLD"]
        run = block["PX"] * (hold or 1) if hold or one.kind == PLANES else block["CW"]
        lines = batch * height * (channels if one.kind == PLANES else 1)
        block[name + "_MODE"] = mode(one, lines, run, hold, name == "SRC")


def _scales(src: Any, dst: Any) -> Tuple[Numbers, bool]:
    """The numbers of the conversion, and whether bits are only moved (as ``_convert`` does)."""
    numbers = Numbers()
    same = src.dtype == dst.dtype
    if same and (src.dtype != "int8" or None in (src.scale, dst.scale) or src.scale == dst.scale):
        return numbers, True
    if src.dtype == "int8":
        numbers.src_scale = 1.0 if src.scale is None else src.scale
    if dst.dtype == "int8":
        set_scale(numbers, dst.scale)
    return numbers, False


def set_scale(numbers: Numbers, scale: Optional[float]) -> None:
    """Sets the scale that values are divided by.

    Raises:
        DeviceError: "kernels.scale".
    """
    if scale is None or not _LEAST_SCALE <= scale <= _MOST_SCALE:
        raise DeviceError(
            "INT8 steps need a scale between {} and {}, not {}".format(
                _LEAST_SCALE, _MOST_SCALE, scale
            ),
            code="kernels.scale",
        )
    numbers.dst_scale = scale
    rounded = numbers.dst_scale  # as float32
    # the quotient of two float32 in double precision, rounded once more, is the rounded quotient
    # (S. Figueroa, "When is double rounding innocuous?", 1995: 53 >= 2 * 24 + 2)
    numbers.inverse = 1.0 / rounded
    numbers.low, numbers.high = -128.0 * rounded, 127.0 * rounded
