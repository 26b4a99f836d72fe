"""A camera's frame as a network's input, with NumPy: NV12 of BT.709, or RGB8, to float32 planes.

    python examples/camera/frames.py make frame.nv12
    python examples/camera/frames.py run frame.nv12 [APP] [--pitch 256] [--full] [--rgb]

"make" writes a frame of 224 x 224 pixels as a camera would: colour bars. "run" runs one raw frame
of the input's size through a deployed model, and prints the largest values of its first output.
NV12 (V4L2_PIX_FMT_NV12 of Linux) is a plane of luma, then lines of Cb and Cr in
turn, one pair for four pixels. Colours follow ITU-R BT.709-6, section 3: of red, green and blue
luma has 21.26, 71.52 and 7.22 %; limited range is 16..235 for luma and 16..240 for Cb and Cr.
"""

from __future__ import annotations

import argparse
import os

import numpy as np
from numpy.typing import NDArray

import edgekit_device

KR, KB = 0.2126, 0.0722
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of torchvision's classifiers


def nv12_to_rgb(
    memory: NDArray[np.uint8], width: int, height: int, pitch: int = 0, limited: bool = True
) -> NDArray[np.uint8]:
    """The (height, width, 3) pixels of an NV12 frame whose lines begin ``pitch`` bytes apart."""
    half, even = -(-height // 2), -(-width // 2) * 2
    pitch = pitch or even
    lines = lines_of(memory, height + half, pitch)
    luma = lines[:height, :width].astype(np.float32)
    pairs = lines[height:, :even].reshape(half, -1, 2).astype(np.float32) - 128
    u, v = pairs.repeat(2, axis=0).repeat(2, axis=1)[:height, :width].transpose(2, 0, 1)
    if limited:
        y, u, v = (luma - 16) / 219, u / 224, v / 224
    else:
        y, u, v = luma / 255, u / 255, v / 255
    red, blue = y + 2 * (1 - KR) * v, y + 2 * (1 - KB) * u
    green = (y - KR * red - KB * blue) / (1 - KR - KB)
    return np.rint(np.stack([red, green, blue], -1).clip(0, 1) * 255).astype(np.uint8)


def lines_of(memory: NDArray[np.uint8], count: int, pitch: int) -> NDArray[np.uint8]:
    """The frame's lines of ``pitch`` bytes."""
    if memory.size < count * pitch:
        raise SystemExit(f"a frame of {count} lines of {pitch} bytes has more than {memory.size}")
    return memory.reshape(-1)[: count * pitch].reshape(count, pitch)


def network_input(pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
    """RGB pixels as (1, 3, height, width), less the mean and over the deviation of each colour."""
    values = (pixels / np.float32(255) - np.float32(MEAN)) / np.float32(STD)
    return np.ascontiguousarray(values.transpose(2, 0, 1)[None])


def sample(side: int) -> NDArray[np.uint8]:
    """An NV12 frame of bars: white, yellow, red and blue at 75 %, limited range (SMPTE RP 219)."""
    colours = np.array([(180, 128, 128), (168, 44, 136), (51, 109, 212), (28, 212, 120)], np.uint8)
    bars = colours[np.arange(side) * len(colours) // side]
    luma = np.tile(bars[:, 0], (side, 1))
    pairs = np.tile(bars[::2, 1:].reshape(-1), (side // 2, 1))
    return np.concatenate([luma, pairs]).reshape(-1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("action", choices=["make", "run"])
    parser.add_argument("frame", help="file of raw bytes")
    parser.add_argument("app", nargs="?", help="folder of a deployed app on this board")
    parser.add_argument("--rgb", action="store_true", help="the frame is RGB8, not NV12")
    parser.add_argument("--pitch", type=int, default=0, help="bytes from line to line")
    parser.add_argument("--full", action="store_true", help="full range: luma is 0..255")
    given = parser.parse_args()
    if given.action == "make":
        sample(224).tofile(given.frame)
        return
    if given.app is None:  # where `run` deploys without boards
        from edgekit.knowledge import cache_folder

        given.app = str(cache_folder() / "board/apps/camera")
    model = edgekit_device.load(os.path.expanduser(given.app))
    (tensor,) = model.inputs
    _, _, height, width = tensor.shape
    memory = np.fromfile(given.frame, np.uint8)
    if given.rgb:
        lines = lines_of(memory, height, given.pitch or 3 * width)
        pixels = lines[:, : 3 * width].reshape(height, width, 3)
    else:
        pixels = nv12_to_rgb(memory, width, height, given.pitch, limited=not given.full)
    values = next(iter(model({tensor.name: network_input(pixels)}).values())).reshape(-1)
    for i in np.argsort(-values)[:5]:
        print(f"{i:6} {values[i]:.4f}")


if __name__ == "__main__":
    main()
