"""Inputs on their way to an engine: kernels are used once they agree with NumPy."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from edgekit_device.arrays.formats import convert, pack
from edgekit_device.cuda.driver import open_cuda
from edgekit_device.cuda.memory import DeviceTensor, Feeder
from edgekit_device.errors import DeviceError
from edgekit_device.protocol.manifest import IoEntry
from tests.edgekit_device.tensorrt.here import Here
from tests.edgekit_device.tensorrt.toys import SHAPE, random_input

IO = IoEntry("x", "int8", SHAPE, "CHW32", (2048, 2048, 256, 32), 0.01)


class Kernels:
    """Plays the GPU's packer; ``off`` is added to every byte that it writes."""

    def __init__(self, off: int = 0, error: str = "") -> None:
        self.off, self.error, self.calls = off, error, 0

    def convert(self, src: int, source: DeviceTensor, dst: int, io: Any, stream: int) -> None:
        self.calls += 1
        if self.error:
            raise DeviceError("no", code=self.error)
        source.owner.cuda.synchronize(stream)
        array = convert(source.numpy(), io.dtype, source.scale, io.scale)
        stored = pack(array, io.format, io.strides).reshape(-1) + np.int8(self.off)
        ctypes.memmove(dst, stored.ctypes.data, stored.nbytes)


def fed(feeder: Feeder, x: np.ndarray) -> np.ndarray:
    """What lies at the input's address."""
    keep: list[Any] = []
    stream = feeder._cuda.stream()
    address = feeder.put(IO, x, stream, keep)
    feeder._cuda.synchronize(stream)
    feeder._cuda.destroy_stream(stream)
    memory = ctypes.string_at(address, 2048)
    return np.frombuffer(memory, np.int8)


def wanted(x: np.ndarray) -> np.ndarray:
    return pack(convert(x, "int8", None, 0.01), "CHW32", IO.strides).reshape(-1)


@pytest.fixture
def feeder(here: Here) -> Feeder:
    here.has("10.3.0")
    return Feeder(open_cuda())


def test_a_kernel_that_agrees_is_used_again(feeder: Feeder) -> None:
    feeder._packer = kernels = Kernels()
    for seed in range(3):
        np.testing.assert_array_equal(fed(feeder, random_input(seed)), wanted(random_input(seed)))
    assert kernels.calls == 3


@pytest.mark.parametrize(
    "kernels", [Kernels(off=1), Kernels(error="nvrtc.missing"), Kernels(error="cuda.failed")]
)
def test_one_that_does_not_is_queried_once(feeder: Feeder, kernels: Kernels) -> None:
    feeder._packer = kernels
    for seed in range(3):
        np.testing.assert_array_equal(fed(feeder, random_input(seed)), wanted(random_input(seed)))
    assert kernels.calls == 1


def test_a_device_that_fails_later_is_reported(feeder: Feeder) -> None:
    feeder._packer = kernels = Kernels()
    fed(feeder, random_input())
    kernels.error = "cuda.failed"
    with pytest.raises(DeviceError) as caught:
        fed(feeder, random_input())
    assert caught.value.code == "cuda.failed"


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e30, 0.005, 0.015, -0.005])
def test_steps_round_half_to_even_and_saturate(value: float) -> None:
    array = np.array([value], np.float32)
    exact = np.float32(value) / np.float32(0.01)
    rounded = 0.0 if np.isnan(exact) else np.clip(np.rint(exact), -128, 127)
    assert convert(array, "int8", None, 0.01).tolist() == [int(rounded)]


def test_steps_become_values_and_other_types() -> None:
    steps = np.array([-128, 0, 127], np.int8)
    assert convert(steps, "float32", 0.5, None).tolist() == [-64.0, 0.0, 63.5]
    assert convert(steps, "int8", 0.5, 0.25).tolist() == [-128, 0, 127]
    assert convert(steps, "int8", 0.5, None) is steps
    assert convert(np.array([1e6], np.float32), "float16", None, None).tolist() == [np.inf]


def test_an_index_that_int32_lacks_is_held_at_its_end() -> None:
    values = np.array([-(1 << 40), -7, (1 << 31) - 1, 1 << 40])
    found = convert(values, "int32", None, None)
    assert found.tolist() == [-(1 << 31), -7, (1 << 31) - 1, (1 << 31) - 1]


def test_steps_of_another_size_are_counted_anew() -> None:
    steps = np.int8([-100, -3, 0, 10, 100])
    assert convert(steps, "int8", 0.5, 0.5).tolist() == steps.tolist()
    assert convert(steps, "int8", 0.5, 0.25).tolist() == [-128, -6, 0, 20, 127]
    assert convert(steps, "int8", 0.5, 2.0).tolist() == [-25, -1, 0, 2, 25]
