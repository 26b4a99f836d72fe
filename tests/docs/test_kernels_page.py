"""The example of docs/kernels.md runs."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import edgekit_device
from tests.edgekit_device import test_device_camera_input as camera_input

PAGE = Path(__file__).parents[2] / "docs" / "kernels.md"


def test_frames_are_fed_as_the_page_says(monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    monkeypatch.setattr(camera_input, "SHAPE", (1, 3, 224, 224))
    monkeypatch.setattr(edgekit_device, "load", lambda _path: camera_input.Model())
    names = {"memory": np.full((224 + 112, 256), 128, np.uint8)}
    exec(compile(code, str(PAGE), "exec"), names)
    (found,) = names["outputs"].values()  # type: ignore[attr-defined]
    assert found.shape == (1, 3, 224, 224)
    # luma 128 of 16..235 is 130 of 255, without colour
    assert found[0, 0, 9, 9] == pytest.approx((130 - 123.675) * 0.01712475, abs=1e-4)
