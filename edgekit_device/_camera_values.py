"""A camera frame as a network's input, with NumPy: the pack kernels give the same bits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._camera import CameraFrame, colour_matrix, frame_bytes_needed, pitches
from ._errors import DeviceError

if TYPE_CHECKING:
    import numpy as np

__all__ = ["frame_values"]

_SHARES = 1 << 22  # of colour_matrix
_MIDDLE = 128


def frame_values(frame: CameraFrame, memory: np.ndarray) -> np.ndarray:
    """Returns ``(x - mean) * factor`` of every channel, as float32 (1, 3, height, width).

    Args:
        frame: How the bytes lie and what the network wants.
        memory: The frame's bytes, UINT8 of any shape.

    Raises:
        DeviceError: "camera.*".
    """
    import numpy as np

    flat = np.ascontiguousarray(memory).reshape(-1)
    needed = frame_bytes_needed(frame)
    if flat.dtype != np.uint8 or flat.size < needed:
        raise DeviceError(
            "{} values of {} are not a frame of {} bytes".format(flat.size, flat.dtype, needed),
            code="camera.size",
            hint="a frame is UINT8, with its lines' padding",
        )
    pictured = _planar(frame, flat) if frame.kind == "NV12" else _interleaved(frame, flat)
    if frame.kind[:3] != frame.order and not (frame.kind == "NV12" and frame.order == "RGB"):
        pictured = pictured[::-1]
    mean = np.array(frame.mean, np.float32).reshape(3, 1, 1)
    factor = np.array(frame.factor, np.float32).reshape(3, 1, 1)
    found: np.ndarray = ((pictured.astype(np.float32) - mean) * factor)[None]
    return found


def _interleaved(frame: CameraFrame, flat: np.ndarray) -> np.ndarray:
    from numpy.lib.stride_tricks import as_strided

    pitch, _, _ = pitches(frame)
    shape = (3, frame.height, frame.width)
    return as_strided(flat, shape, (1, pitch, 3), writeable=False)


def _planar(frame: CameraFrame, flat: np.ndarray) -> np.ndarray:
    import numpy as np
    from numpy.lib.stride_tricks import as_strided

    pitch, chroma_pitch, chroma = pitches(frame)
    height, width = frame.height, frame.width
    half = (-(-height // 2), -(-width // 2))
    luma = as_strided(flat, (height, width), (pitch, 1), writeable=False)
    pairs = as_strided(flat[chroma:], (*half, 2), (chroma_pitch, 2, 1), writeable=False)
    whole = pairs.astype(np.int32) - _MIDDLE
    whole = whole.repeat(2, axis=0)[:height].repeat(2, axis=1)[:, :width]
    u, v = whole[..., 0], whole[..., 1]
    number = colour_matrix(frame.matrix, frame.limited)
    y = (luma.astype(np.int32) - (16 if frame.limited else 0)) * number["luma"]
    red, blue = y + number["red_v"] * v, y + number["blue_u"] * u
    green = y + number["green_u"] * u + number["green_v"] * v
    shares = np.clip(np.stack([red, green, blue]) / _SHARES, 0.0, 1.0)
    colours: np.ndarray = np.rint(shares * 255).astype(np.uint8)
    return colours
