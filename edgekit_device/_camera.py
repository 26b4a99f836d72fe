"""Camera frames as the pack kernels read them: UINT8 pixels or NV12, with mean and scale folded in.

The network's value of channel c is ``(x[c] - mean[c]) * factor[c]`` in float32, each step rounded;
x is the frame's byte, or a byte of red, green or blue made of an NV12 frame (half to even, clamped
to 0..255): what a frame that was turned into RGB8 beforehand would give. Chroma is that of the
nearest sample to the left and above. Sources: ITU-R BT.601-7 and BT.709-6
(luma coefficients; section 3 of each: limited range is 16..235 and 16..240), NV12: the Linux
kernel's V4L2_PIX_FMT_NV12 (a plane of luma, then one of Cb and Cr in turn at half resolution).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any, Dict, Tuple

from ._errors import DeviceError
from ._kernels_blocks import FRAMES
from ._kernels_exact import frame_bytes
from ._kernels_layout import LAST, PLANES, TYPES, VECTORS, Layout, Side, side
from ._kernels_plan import THREADS, Launch, Numbers, launch, mode, set_scale
from ._packing import four

__all__ = ["CameraFrame", "colour_matrix", "frame_bytes_needed", "pitches", "plan_camera"]

_COLOURS = 3
_KINDS = ("RGB8", "BGR8", "NV12")
_LUMA = {"bt601": (0.299, 0.114), "bt709": (0.2126, 0.0722)}  # of red and of blue
_LANES = 8
_ANY = (4, 1, 6)
_SHARES = 1 << 22


@dataclass(frozen=True)
class CameraFrame:
    """One frame in the device's memory.

    Attributes:
        kind: "RGB8" or "BGR8" (three bytes a pixel), or "NV12".
        width: Pixels of a line.
        height: Lines.
        pitch: Bytes from line to line; 0 for lines without padding.
        chroma: NV12: bytes from the first line to the plane of Cb and Cr; 0 where it follows.
        chroma_pitch: NV12: bytes from line to line there; 0 for ``pitch``.
        matrix: NV12: "bt601" or "bt709".
        limited: NV12: whether luma lies in 16..235; False for the full range.
        order: What the network's channels are, "RGB" or "BGR".
        mean: Taken from each channel of the network, in its order.
        factor: The difference is multiplied by it: 1 / (255 * std) for the usual networks.
    """

    kind: str
    width: int
    height: int
    pitch: int = 0
    chroma: int = 0
    chroma_pitch: int = 0
    matrix: str = "bt709"
    limited: bool = True
    order: str = "RGB"
    mean: Tuple[float, float, float] = (0.0, 0.0, 0.0)
    factor: Tuple[float, float, float] = (1.0, 1.0, 1.0)


def colour_matrix(matrix: str, limited: bool) -> Dict[str, int]:
    """Whole numbers that turn Y, Cb and Cr into red, green and blue, in 2**-22 of 255.

    With Kr and Kb the luma coefficients and Kg = 1 - Kr - Kb: red = y + 2 (1 - Kr) v, blue =
    y + 2 (1 - Kb) u, green = y - 2 Kb (1 - Kb) / Kg u - 2 Kr (1 - Kr) / Kg v, where y is Y without
    its offset over its range, u and v are Cb and Cr less 128 over theirs. No sum of such products
    needs more than 24 bits, so floats hold each exactly; a byte is wrong by less than 0.02.

    Returns:
        "luma", "red_v", "green_u", "green_v", "blue_u"; and "red", "green", "blue", what the
        offsets add.

    Raises:
        DeviceError: "camera.matrix".
    """
    if matrix not in _LUMA:
        raise DeviceError(
            "unknown colour matrix {!r}".format(matrix[:40]),
            code="camera.matrix",
            hint="there are {}".format(" and ".join(_LUMA)),
        )
    red, blue = _LUMA[matrix]
    green = 1 - red - blue
    luma, chroma = (219, 224) if limited else (255, 255)
    real = {
        "luma": 1 / luma,
        "red_v": 2 * (1 - red) / chroma,
        "green_u": -2 * blue * (1 - blue) / green / chroma,
        "green_v": -2 * red * (1 - red) / green / chroma,
        "blue_u": 2 * (1 - blue) / chroma,
    }
    found = {name: round(value * _SHARES) for name, value in real.items()}
    dark = -found["luma"] * (16 if limited else 0)
    found["red"] = dark - 128 * found["red_v"]
    found["green"] = dark - 128 * (found["green_u"] + found["green_v"])
    found["blue"] = dark - 128 * found["blue_u"]
    return found


def _set_colours(numbers: Numbers, frame: CameraFrame) -> None:
    given = {
        name: value / _SHARES for name, value in colour_matrix(frame.matrix, frame.limited).items()
    }
    numbers.colour[:] = [given.pop(name) for name in ("red", "green", "blue")]
    for name, value in given.items():
        setattr(numbers, name, value)


def plan_camera(frame: CameraFrame, dst: Any) -> Launch:
    """As :func:`_plan`, which is kept: what a byte's step is takes a while to prove."""
    layout = Layout(dst.dtype, tuple(dst.shape), dst.format, tuple(dst.strides), dst.scale)
    mean, factor = frame.mean, frame.factor
    hashable = replace(
        frame, mean=(mean[0], mean[1], mean[2]), factor=(factor[0], factor[1], factor[2])
    )
    return _plan(hashable, layout)


@functools.lru_cache(maxsize=64)
def _plan(frame: CameraFrame, dst: Layout) -> Launch:
    """Plans the kernel that writes a frame as a network's input.

    Args:
        frame: The frame; its size is the input's.
        dst: Layout of the input: (1, 3, height, width) in a DLA format or LINEAR.

    Raises:
        DeviceError: "camera.*", or as ``_kernels_plan.plan``.
    """
    shape = four(dst.shape)
    if shape != (1, _COLOURS, frame.height, frame.width):
        raise DeviceError(
            "a frame of {} x {} pixels cannot be {}".format(
                frame.width, frame.height, list(dst.shape)
            ),
            code="camera.size",
            hint="the input is (1, 3, height, width) of the frame: scale frames beforehand",
        )
    if frame.kind not in _KINDS or frame.order not in {"RGB", "BGR"}:
        raise _unknown(frame)
    b = side(dst)
    if b.kind == LAST and b.held > _COLOURS + 1:
        raise DeviceError("no kernel writes such pixels", code="kernels.unsupported")
    planar = frame.kind == "NV12"
    steps = pitches(frame)
    numbers = Numbers(pitch=steps[0], chroma_pitch=steps[1], chroma=steps[2])
    numbers.mean[:], numbers.factor[:] = frame.mean, frame.factor
    if planar:
        _set_colours(numbers, frame)
    if dst.dtype == "int8":
        set_scale(numbers, dst.scale)
    defines = _cut(b, planar)
    defines.update(
        SRC_T=TYPES["uint8"], DST_T=b.type, SRC_SIDE=PLANES if planar else LAST, DST_SIDE=b.kind,
        SRC_HOLD=0 if planar else _COLOURS, RAW=0, SCALED=0, FLAT=0, NANS=0,
        CHANNELS=0 if b.kind == VECTORS else _COLOURS, STRAIGHT=0, LOWER=0, UPPER=0,
        VECTOR=b.vector or 1, **frame_bytes(dst, numbers),
        THREADS=THREADS, CAMERA=2 if planar else 1, SWAP=int(frame.kind != _given(frame)),
    )  # fmt: skip
    run = defines["PX"] * (1 if planar else _COLOURS)
    defines["SRC_MODE"] = _source_mode(run, steps if planar else steps[:1])
    hold = defines["DST_HOLD"]
    length = defines["PX"] * (hold or 1) if hold or b.kind == PLANES else defines["CW"]
    lines = frame.height * (_COLOURS if b.kind == PLANES else 1)
    defines["DST_MODE"] = mode(b, lines, length, hold, loads=False)
    flat = not planar and steps[0] == _COLOURS * frame.width and b.line == frame.width
    if flat and b.kind != VECTORS:
        shape = (1, _COLOURS, 1, frame.height * frame.width)
        b = replace(b, line=shape[3])
        defines["FLAT"] = 1
    a = Side(LAST, TYPES["uint8"], 1, frame.width, _COLOURS, 0, False)
    return launch(defines, numbers, shape, a, b)


def _given(frame: CameraFrame) -> str:
    """The kind of frame that needs no turning of its channels."""
    if frame.kind == "NV12":
        return "NV12" if frame.order == "RGB" else ""
    return frame.order + "8"


def _cut(b: Side, planar: bool) -> Dict[str, int]:
    if b.kind == VECTORS:
        block = {"CW": 4 // b.size, "PX": _LANES, "LANES": _LANES, "UNROLL": 1, "BLOCKS": 4}
        return {"DST_HOLD": 0, **block}
    pixels, unroll, blocks = FRAMES.get((planar, b.kind, b.size), _ANY)
    hold = b.held if b.kind == LAST else 0
    block = {"CW": hold or _COLOURS, "PX": pixels, "LANES": 1, "UNROLL": unroll, "BLOCKS": blocks}
    return {"DST_HOLD": hold, **block}


def frame_bytes_needed(frame: CameraFrame) -> int:
    """Bytes from a frame's first to its last; whether its numbers fit each other is checked.

    Raises:
        DeviceError: "camera.pitch" or "camera.kind".
    """
    if frame.kind not in _KINDS or frame.order not in {"RGB", "BGR"}:
        raise _unknown(frame)
    pitch, chroma_pitch, chroma = pitches(frame)
    if frame.kind == "NV12":
        half = -(-frame.height // 2)
        return chroma + chroma_pitch * (half - 1) + -(-frame.width // 2) * 2
    return pitch * (frame.height - 1) + _COLOURS * frame.width


def _unknown(frame: CameraFrame) -> DeviceError:
    return DeviceError(
        "unknown frame {!r} for {!r}".format(frame.kind[:40], frame.order[:40]),
        code="camera.kind",
        hint="frames are {}; networks take RGB or BGR".format(", ".join(_KINDS)),
    )


def _source_mode(run: int, steps: Tuple[int, ...]) -> int:
    if run % 4:
        return 0
    word = next(step for step in (16, 8, 4) if run % step == 0)
    return 2 if any(step % word for step in steps) else 1


def pitches(frame: CameraFrame) -> Tuple[int, int, int]:
    """Bytes from line to line, the same of chroma, and where chroma begins.

    Raises:
        DeviceError: "camera.pitch".
    """
    planar = frame.kind == "NV12"
    least = frame.width * (1 if planar else _COLOURS)
    pitch = frame.pitch or least
    even = -(-frame.width // 2) * 2
    chroma_pitch = frame.chroma_pitch or (pitch if frame.pitch else even) if planar else 0
    chroma = frame.chroma or pitch * frame.height if planar else 0
    if pitch < least or (planar and (chroma_pitch < even or chroma < pitch * frame.height)):
        raise DeviceError(
            "lines of {} bytes cannot hold {} pixels of {}".format(pitch, frame.width, frame.kind),
            code="camera.pitch",
        )
    return pitch, chroma_pitch, chroma
