"""Types, scales and strides at an engine's border: what cannot be right is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edgekit_device
from edgekit_device.errors import DeviceError
from edgekit_device.protocol.manifest import IoEntry
from edgekit_device.runtime.model import open_model
from tests.edgekit_device.tensorrt.here import Here
from tests.edgekit_device.tensorrt.toys import (
    SHAPE,
    checked,
    entry,
    network,
    plan,
    random_input,
    reference,
)

STEP = 0.0078125  # a power of two: quantising by hand and by the double cannot differ by rounding


@pytest.mark.parametrize("format", ["LINEAR", "CHW32"])
def test_values_for_int8_steps_without_a_scale_are_refused(
    here: Here, format: str, tmp_path: Path
) -> None:
    here.has("10.3.0")
    (tmp_path / "a.plan").write_bytes(plan("10.3.0", formats={"x": ("INT8", format, STEP)}))
    steps = np.clip(np.rint(random_input() / STEP), -128, 127).astype(np.int8)
    model = edgekit_device.load_plan(tmp_path / "a.plan")
    for values in (random_input(), np.full(SHAPE, 200, np.uint8)):
        with pytest.raises(DeviceError, match="scale") as caught:
            model({"x": values})
        assert (caught.value.code, caught.value.where) == ("input.dtype", "x")
    expected = reference(network(), steps * np.float32(STEP))
    np.testing.assert_allclose(model({"x": steps})["y"], expected, rtol=1e-5)
    scaled = edgekit_device.load_plan(tmp_path / "a.plan", scales={"x": STEP})
    np.testing.assert_allclose(scaled({"x": random_input()})["y"], expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("kind", "format", "dtype", "strides", "wrong"),
    [
        ("FLOAT", "LINEAR", "float32", (768, 256, 32, 4), (1024, 256, 32, 4)),
        ("HALF", "HWC8", "float16", (1024, 2, 128, 16), (2048, 2, 256, 16)),
        ("INT8", "CHW32", "int8", (2048, 2048, 256, 32), None),
    ],
)
def test_strides_are_those_of_the_context(
    here: Here, tmp_path: Path, kind: str, format: str, dtype: str, strides: Any, wrong: Any
) -> None:
    here.has("10.3.0")
    step = STEP if kind == "INT8" else None
    batch = 2  # an axis of one element has no stride that counts
    shape = (batch, *SHAPE[1:])
    data = plan("10.3.0", model=network(batch), formats={"x": (kind, format, step)})
    (tmp_path / "a.plan").write_bytes(data)
    (reported,) = edgekit_device.load_plan(tmp_path / "a.plan").inputs
    assert reported.strides == strides
    y = IoEntry("y", "float32", (batch, 5), "LINEAR", (20, 4), None)

    def about(steps: Any) -> Any:
        x = IoEntry("x", dtype, shape, format, steps, step)
        return checked(data, entry("10.3.0", inputs=(x,), outputs=(y,)))

    open_model(about(strides))
    if wrong is None:
        return
    with pytest.raises(DeviceError, match="another memory layout") as caught:
        open_model(about(wrong))
    assert caught.value.code == "engine.io"
    assert str(list(strides)) in caught.value.message
