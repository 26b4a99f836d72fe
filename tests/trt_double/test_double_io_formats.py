"""The double refuses types and formats at an engine's border as NVIDIA's table has them."""

from __future__ import annotations

import pytest

from tests.trt_double.double_toys import setup


@pytest.mark.parametrize(
    ("kind", "form", "builds"),
    [
        ("HALF", "CHW16", False),
        ("HALF", "HWC8", True),
        ("INT8", "CHW32", True),
        ("INT8", "DLA_LINEAR", False),
        ("HALF", "LINEAR", True),
    ],
)
def test_the_gpu_lacks_the_formats_that_are_only_for_the_dla(
    kind: str, form: str, builds: bool
) -> None:
    on = setup("10.3.0", "FP16" if kind == "HALF" else "INT8")
    for tensor in (on.network.get_input(0), on.network.get_output(0)):
        tensor.set_dynamic_range(-1.0, 1.0)
    tensor = on.network.get_input(0)
    tensor.dtype = on.trt.DataType.__members__[kind]
    tensor.allowed_formats = 1 << int(on.trt.TensorFormat.__members__[form])
    assert (on.plan() is not None) is builds
