"""Camera frames through the kernels' own text on the CPU, against NumPy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from edgekit_device._camera import CameraFrame, colour_matrix, plan_camera
from edgekit_device._camera_values import frame_values
from edgekit_device._convert import convert
from edgekit_device._errors import DeviceError
from tests.edgekit_device.kernel_emulator import Emulator, layout, same, stored

_MEAN, _FACTOR = (123.7, 116.3, 103.5), (0.017, 0.0175, 0.0174)


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Emulator:
    return Emulator(tmp_path_factory.mktemp("camera"))


def _picture(frame: CameraFrame, memory: NDArray[np.uint8]) -> NDArray[np.float32]:
    """The frame's values as (3, height, width), in the network's order."""
    height, width = frame.height, frame.width
    if frame.kind != "NV12":
        lines = memory.reshape(height, frame.pitch)[:, : 3 * width]
        colours = lines.reshape(height, width, 3).transpose(2, 0, 1).astype(np.float32)
        return colours if frame.kind.startswith(frame.order) else colours[::-1]
    luma = memory[: frame.chroma].reshape(height, frame.pitch)[:, :width].astype(np.int64)
    pairs = memory[frame.chroma :].reshape(-1, frame.chroma_pitch)[:, : width + width % 2]
    whole = pairs.repeat(2, axis=0)[:height].astype(np.int64) - 128
    u, v = whole[:, ::2].repeat(2, axis=1)[:, :width], whole[:, 1::2].repeat(2, axis=1)[:, :width]
    number = colour_matrix(frame.matrix, frame.limited)
    y = (luma - (16 if frame.limited else 0)) * number["luma"]
    red, blue = y + number["red_v"] * v, y + number["blue_u"] * u
    green = y + number["green_u"] * u + number["green_v"] * v
    shares = np.clip(np.stack([red, green, blue]) / 2**22, 0, 1)
    colours = np.rint(shares * 255).astype(np.float32)
    return colours if frame.order == "RGB" else colours[::-1]


@pytest.mark.parametrize(
    ("form", "dtype"),
    [
        ("DLA_LINEAR", "int8"),
        ("DLA_LINEAR", "float16"),
        ("DLA_HWC4", "int8"),
        ("DLA_HWC4", "float16"),
        ("CHW16", "float16"),
        ("CHW32", "int8"),
        ("LINEAR", "float32"),
    ],
)
@pytest.mark.parametrize("kind", ["RGB8", "BGR8", "NV12"])
def test_frames_equal_numpy(emulator: Emulator, kind: str, form: str, dtype: str) -> None:
    rng = np.random.default_rng(9)
    scale = 0.0187 if dtype == "int8" else None
    for width, height, pitch in ((64, 4, 192), (67, 5, 201), (66, 3, 256)):
        for order in ("RGB", "BGR"):
            frame = CameraFrame(kind, width, height, pitch, order=order)
            frame = replace(frame, mean=_MEAN, factor=_FACTOR, limited=order == "RGB")
            if kind == "NV12":
                matrix = "bt601" if height == 5 else "bt709"
                pitches = {"chroma": pitch * height, "chroma_pitch": pitch + pitch % 2}
                frame = replace(frame, matrix=matrix, **pitches)
            size = frame.chroma + frame.chroma_pitch * (-(-height // 2)) or pitch * height
            memory = rng.integers(0, 256, size, dtype=np.uint8)
            mean = np.array(_MEAN, np.float32).reshape(3, 1, 1)
            factor = np.array(_FACTOR, np.float32).reshape(3, 1, 1)
            tensor = ((_picture(frame, memory) - mean) * factor)[None]
            np.testing.assert_array_equal(frame_values(frame, memory), tensor)
            dst = layout(form, dtype, tensor.shape, scale)
            wanted = stored(convert(tensor, dtype, None, scale), dst)
            found = emulator.run(plan_camera(frame, dst), memory, wanted.nbytes)
            assert same(found, wanted), (frame, dst)


def _colours(matrix: str, limited: bool, y: int, u: int, v: int) -> list[float]:
    number = colour_matrix(matrix, limited)
    luma = y * number["luma"]
    red, blue = number["red_v"] * v + number["red"], number["blue_u"] * u + number["blue"]
    green = number["green_u"] * u + number["green_v"] * v + number["green"]
    return [(luma + one) * 255 / 2**22 for one in (red, green, blue)]


def test_colours_of_known_frames() -> None:
    # white and black; 75 % bars of BT.709 as SMPTE RP 219 has them: (Y, Cb, Cr) of limited range
    assert _colours("bt709", True, 235, 128, 128) == pytest.approx([255] * 3, abs=0.02)
    assert _colours("bt709", True, 16, 128, 128) == pytest.approx([0] * 3, abs=0.02)
    assert _colours("bt709", True, 168, 44, 136) == pytest.approx([191, 191, 0], abs=1.5)
    assert _colours("bt709", True, 51, 109, 212) == pytest.approx([191, 0, 0], abs=1.5)
    # JFIF's numbers of BT.601 in full range: red = Y + 1.402 (Cr - 128), ...
    wanted = [90 + 1.402 * 70, 90 - 0.344136 * 40 - 0.714136 * 70, 90 + 1.772 * 40]
    assert _colours("bt601", False, 90, 168, 198) == pytest.approx(wanted, abs=0.02)


@pytest.mark.parametrize("matrix", ["bt601", "bt709"])
@pytest.mark.parametrize("limited", [True, False])
def test_no_sum_of_colours_needs_more_bits_than_a_float_has(matrix: str, limited: bool) -> None:
    number = colour_matrix(matrix, limited)
    parts = ("red", "red_v"), ("green", "green_u", "green_v"), ("blue", "blue_u")
    for start, *factors in parts:
        ends = [number[start]]
        for factor in [number[name] for name in (*factors, "luma")]:
            ends = [one + byte * factor for one in ends for byte in (0, 255)]
            assert max(map(abs, ends)) < 1 << 24


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"width": 65}, "camera.size"),
        ({"kind": "YUYV"}, "camera.kind"),
        ({"order": "RBG"}, "camera.kind"),
        ({"pitch": 100}, "camera.pitch"),
        ({"kind": "NV12", "matrix": "bt2020"}, "camera.matrix"),
    ],
)
def test_what_no_kernel_can_read_is_told(changes: dict[str, object], code: str) -> None:
    frame = replace(CameraFrame("RGB8", 64, 4), **changes)  # type: ignore[arg-type]
    with pytest.raises(DeviceError) as caught:
        plan_camera(frame, layout("DLA_HWC4", "int8", (1, 3, 4, 64), 0.1))
    assert caught.value.code == code
