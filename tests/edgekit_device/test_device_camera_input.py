"""Frames as a model's input: by a kernel where it agrees with NumPy, by NumPy elsewhere."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from edgekit.dla import strides
from edgekit_device import CameraFrame, CameraInput, DeviceError
from edgekit_device._camera_values import frame_values
from edgekit_device._convert import convert
from edgekit_device._packing import pack
from edgekit_device._types import IoEntry
from tests.edgekit_device.cudla_host_cuda import HostCuda

SHAPE = (1, 3, 4, 6)
FRAME = CameraFrame("NV12", 6, 4, mean=(123.7, 116.3, 103.5), factor=(0.017, 0.0175, 0.0174))
IO = IoEntry("x", "int8", SHAPE, "DLA_HWC4", strides(SHAPE, "int8", "DLA_HWC4"), 0.02)
MEMORY = np.random.default_rng(3).integers(0, 256, 36, dtype=np.uint8)


class Model:
    """A model of one segment; keeps what it was fed."""

    def __init__(self, cuda: Any = None, inputs: tuple[str, ...] = ("x",)) -> None:
        self.name = "m"
        self.inputs = tuple(SimpleNamespace(name=n, dtype="float32", shape=SHAPE) for n in inputs)
        run = SimpleNamespace(engine=SimpleNamespace(inputs=(IO,), cuda=cuda))
        segment = SimpleNamespace(engine="e", inputs=inputs)
        self.lanes = [SimpleNamespace(share=1.0, segments=(segment,), runs=(run,))]
        self.fed: Any = None

    def __call__(self, inputs: dict[str, Any]) -> dict[str, Any]:
        self.fed = inputs["x"]
        return {"y": self.fed}

    def run_lane(self, lane: int, inputs: dict[str, Any]) -> dict[str, Any]:
        assert lane == 0
        return self(inputs)


class Kernels:
    """Plays the GPU's kernel over the host's memory."""

    def __init__(self, cuda: HostCuda, off: int = 0) -> None:
        self.cuda, self.off, self.calls = cuda, off, 0

    def camera(self, src: int, frame: CameraFrame, dst: int, io: Any, stream: int = 0) -> None:
        self.calls += 1
        memory = np.empty(36, np.uint8)
        self.cuda.copy(memory.ctypes.data, src, 36, "d2h")
        stored = pack(convert(frame_values(frame, memory), io.dtype, None, io.scale),
                      io.format, io.strides) + np.int8(self.off)  # fmt: skip
        self.cuda.copy(dst, stored.ctypes.data, stored.nbytes, "h2d")


def test_numpy_writes_frames_where_there_is_no_gpu() -> None:
    model = Model()
    camera = CameraInput(model, FRAME)
    np.testing.assert_array_equal(camera(MEMORY)["y"], frame_values(FRAME, MEMORY))
    assert camera.on_gpu is False
    assert model.fed.dtype == np.float32


@pytest.mark.parametrize(("off", "asked"), [(0, 3), (1, 1)])
def test_a_kernel_writes_what_the_engine_reads_if_it_agrees(off: int, asked: int) -> None:
    cuda = HostCuda()
    model = Model(cuda)
    camera = CameraInput(model, FRAME)
    camera._packer = kernels = Kernels(cuda, off)
    for _ in range(3):
        camera(MEMORY)
    assert (kernels.calls, camera.on_gpu) == (asked, not off)
    if off:
        np.testing.assert_array_equal(model.fed, frame_values(FRAME, MEMORY))
    else:
        assert (model.fed.format, model.fed.dtype, model.fed.scale) == ("DLA_HWC4", "int8", 0.02)
        wanted = convert(frame_values(FRAME, MEMORY), "int8", None, 0.02)
        np.testing.assert_array_equal(model.fed.numpy(), wanted)


def test_white_is_white_in_every_kind() -> None:
    bright = np.full(36, 128, np.uint8)
    bright[:24] = 235
    plain = CameraFrame("NV12", 6, 4)
    assert frame_values(plain, bright).tolist() == np.full(SHAPE, 255.0).tolist()
    colours = np.tile(np.array([1, 2, 3], np.uint8), 24)
    assert frame_values(CameraFrame("BGR8", 6, 4), colours)[0, :, 0, 0].tolist() == [3, 2, 1]


@pytest.mark.parametrize(
    ("inputs", "name", "frame", "code"),
    [
        (("x", "z"), "", FRAME, "input.missing"),
        (("x",), "z", FRAME, "input.unknown"),
        (("x",), "", CameraFrame("RGB8", 8, 4), "camera.size"),
        (("x",), "", CameraFrame("YUYV", 6, 4), "camera.kind"),
    ],
)
def test_what_does_not_fit_is_told(
    inputs: tuple[str, ...], name: str, frame: CameraFrame, code: str
) -> None:
    with pytest.raises(DeviceError) as caught:
        CameraInput(Model(inputs=inputs), frame, name)
    assert caught.value.code == code


def test_a_frame_that_is_too_short_is_told() -> None:
    with pytest.raises(DeviceError, match="not a frame of 36 bytes"):
        CameraInput(Model(), FRAME)(MEMORY[:30])
