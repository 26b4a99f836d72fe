"""Loadables and segments: formats at the borders, refusals before anything is built."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgekit_device.errors import DeviceError
from tests.edgekit_device.build import toys
from tests.edgekit_device.build.bench import WEAK, Bench


@pytest.mark.parametrize("version", WEAK)
def test_a_loadable_is_built_with_one_format_a_border(version: str, tmp_path: Path) -> None:
    on = Bench(version, tmp_path)
    built = on.build(toys.loadable())
    assert "DIRECT_IO" in built.flags
    assert "GPU_FALLBACK" not in built.flags
    # ranges of int8 borders, formats and order of calls: the double would have noted an offence
    assert on.double.violations == []
    assert not built.data.startswith(b"ftrt")


def test_a_loadables_int8_borders_take_the_caches_scale(tmp_path: Path) -> None:
    on = Bench("10.3.0", tmp_path)
    document = toys.loadable()
    for tensor in (*document["inputs"], *document["outputs"]):
        tensor["scale"] = None
    on.build(document)
    assert on.double.violations == []
    document["calibration"] = None
    with pytest.raises(DeviceError, match="input 'x' is int8 and has no scale; output 'r2'"):
        on.build(document)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"inputs": [toys.io("x", [1, 3, 8, 8])]}, "float32, but a loadable supports only"),
        (
            {"outputs": [toys.io("r2", [1, 8, 8, 8], "int8", formats=["CHW16"], scale=1.0)]},
            "output 'r2' .int8. needs one format of DLA_LINEAR, CHW32, not CHW16",
        ),
        (
            {"inputs": [toys.io("x", [1, 3, 8, 8], "int8", formats=[], scale=1.0)]},
            "not none",
        ),
        ({"gpu_fallback": True}, "cannot fall back"),
        ({"device": "GPU"}, "runs on a DLA"),
        ({"profiles": [{"x": {w: [1, 3, 8, 8] for w in ("min", "opt", "max")}}]}, "no optimis"),
    ],
)
def test_a_loadable_that_cannot_be_is_refused_beforehand(
    change: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    on = Bench("10.3.0", tmp_path)
    with pytest.raises(DeviceError, match=reason) as refused:
        on.build(toys.loadable(**change))
    assert refused.value.code == "build.not-on-dla"
    assert on.double.builds == []


def test_all_layers_that_a_dla_cannot_run_are_named_beforehand(tmp_path: Path) -> None:
    on = Bench("10.3.0", tmp_path)
    on.double.settings.can_run_on_dla = lambda layer: layer._s.name not in ("relu1", "conv2")
    with pytest.raises(DeviceError, match=r"'relu1'.*'conv2'") as refused:
        on.build(toys.loadable())
    assert refused.value.code == "build.not-on-dla"
    assert on.double.builds == []


def test_a_layer_of_another_kind_is_left_to_the_builder(tmp_path: Path) -> None:
    """Matrix products become convolutions later: what is said of them beforehand is no verdict."""
    on = Bench("10.3.0", tmp_path)
    document = toys.loadable()
    document["layers"][1]["kind"] = "SCALE"
    on.double.settings.can_run_on_dla = lambda layer: layer._s.name != "relu1"
    with pytest.raises(DeviceError, match="not all layers are running on DLA") as failed:
        on.build(document)
    assert failed.value.code == "build.attempt"


@pytest.mark.parametrize("version", WEAK)
def test_a_segment_of_the_gpu_takes_the_border_as_the_dla_gives_it(
    version: str, tmp_path: Path
) -> None:
    on = Bench(version, tmp_path)
    document = toys.engine(
        device="GPU",
        gpu_fallback=False,
        outputs=[toys.io("y", [1, 5], "float16", formats=["LINEAR"])],
        inputs=[toys.io("x", [1, 3, 8, 8], "int8", formats=["CHW32"], scale=0.05)],
    )
    built = on.build(document, ("DIRECT_IO",))
    assert "DIRECT_IO" in built.flags
    runtime = on.trt.Runtime(on.log.logger)
    made = runtime.deserialize_cuda_engine(built.data)
    assert made.get_tensor_format("x") == on.trt.TensorFormat.CHW32
    assert made.get_tensor_dtype("x") == on.trt.DataType.INT8
    assert made.get_tensor_dtype("y") == on.trt.DataType.HALF


def test_borders_that_are_not_the_models_are_named(tmp_path: Path) -> None:
    on = Bench("10.3.0", tmp_path)
    document = toys.engine(
        inputs=[toys.io("x", [1, 3, 9, 9])], outputs=[toys.io("z", [1, 5], formats=["NO_SUCH"])]
    )
    with pytest.raises(DeviceError) as refused:
        on.build(document)
    assert refused.value.code == "build.io"
    for part in ("instead of [1, 3, 9, 9]", "no output 'z'", "output 'y' is not in the request"):
        assert part in refused.value.message
