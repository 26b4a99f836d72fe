"""What stays of a plan once TensorRT has it."""

from __future__ import annotations

import gc
import weakref

import pytest

from edgekit_device.tensorrt.runtimes import RuntimeChoice, deserialize
from tests.edgekit_device.tensorrt.here import Here
from tests.edgekit_device.tensorrt.toys import plan


class Plan(bytearray):
    """Bytes whose end shows."""


@pytest.mark.parametrize("large", [1, 1 << 30])
def test_only_a_plan_that_is_streamed_is_retained(here: Here, large: int) -> None:
    here.has("10.3.0")
    data = Plan(plan("10.3.0"))
    left = weakref.ref(data)
    loaded = deserialize(here.modules["full"], memoryview(data), RuntimeChoice("full"), large=large)
    streamed = len(data) >= large
    del data
    gc.collect()
    assert (left() is not None) == streamed
    assert loaded.engine.num_io_tensors == 2
