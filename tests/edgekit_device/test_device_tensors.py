"""Tensors that other libraries and a model pass each other on the GPU without a copy."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from edgekit_device.cuda.driver import open_cuda
from edgekit_device.cuda.memory import DeviceTensor, Feeder
from edgekit_device.errors import DeviceError
from edgekit_device.protocol.manifest import IoEntry
from edgekit_device.runtime.model import Model, open_model
from tests.edgekit_device.device_trt_here import Here, here_fixture
from tests.edgekit_device.device_trt_toys import (
    SHAPE,
    checked,
    entry,
    network,
    plan,
    random_input,
    reference,
)

pytestmark = pytest.mark.usefixtures("quick_collections")

here = pytest.fixture(here_fixture)


class TorchTensor:
    """A tensor of another library: the interface, and memory that it keeps."""

    def __init__(self, cuda: Any, array: np.ndarray, **facts: Any) -> None:
        self.ptr = cuda.malloc(array.nbytes)
        cuda.copy(self.ptr, np.ascontiguousarray(array).ctypes.data, array.nbytes, "h2d")
        cuda.synchronize()
        self.facts = {
            "shape": array.shape,
            "typestr": array.dtype.str,
            "data": (self.ptr, False),
            "version": 2,
            **facts,
        }

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return self.facts


def read(tensor: DeviceTensor) -> np.ndarray:
    """Reads a tensor as another library does: by its interface alone."""
    about = tensor.__cuda_array_interface__
    kind = np.dtype(about["typestr"])
    nbytes = int(np.prod(about["shape"])) * kind.itemsize
    found = np.frombuffer(ctypes.string_at(about["data"][0], nbytes), kind)
    assert about["strides"] is None
    return found.reshape(about["shape"])


def toy(here: Here) -> Model:
    here.has("10.3.0")
    return open_model(checked(plan("10.3.0"), entry("10.3.0")))


def test_an_input_on_the_gpu_is_read_where_it_lies(here: Here) -> None:
    model, x = toy(here), random_input()
    tensor = TorchTensor(open_cuda(), x)
    np.testing.assert_array_equal(model({"x": tensor})["y"], model({"x": x})["y"])
    assert model.check({"x": tensor})["x"].ptr == tensor.ptr


def test_results_stay_on_the_gpu_and_keep_their_memory(here: Here) -> None:
    model = toy(here)
    found = model.on_gpu({"x": random_input(1)})["y"]
    model({"x": random_input(2)})
    np.testing.assert_allclose(read(found), reference(network(), random_input(1)), rtol=1e-5)


def test_steps_in_a_dlas_format_become_values_in_planes(here: Here) -> None:
    here.has("10.3.0")
    feeder = Feeder(open_cuda())
    io = IoEntry("y", "int8", SHAPE, "CHW32", (2048, 2048, 256, 32), 0.5)
    steps = np.arange(np.prod(SHAPE), dtype=np.int64).reshape(SHAPE) % 200 - 100
    keep: list[Any] = []
    stream = feeder._cuda.stream()
    address = feeder.put(io, (steps / 2).astype(np.float32), stream, keep)
    feeder._cuda.synchronize(stream)
    feeder._cuda.destroy_stream(stream)
    stored = DeviceTensor(address, 2048, "int8", SHAPE, "CHW32", io.strides, 0.5, keep[-1])
    with pytest.raises(AttributeError):
        _ = stored.__cuda_array_interface__
    np.testing.assert_array_equal(read(feeder.as_linear(stored, "float32")), steps / 2)


@pytest.mark.parametrize(
    ("facts", "code"),
    [
        ({"strides": (4, 8, 16, 32)}, "input.strides"),
        ({"shape": (1, 3, 8, 9)}, "input.shape"),
        ({"typestr": "<i4"}, "input.dtype"),
    ],
)
def test_what_the_engine_cannot_read_is_refused(
    here: Here, facts: dict[str, Any], code: str
) -> None:
    model = toy(here)
    with pytest.raises(DeviceError) as caught:
        model({"x": TorchTensor(open_cuda(), random_input(), **facts)})
    assert caught.value.code == code
