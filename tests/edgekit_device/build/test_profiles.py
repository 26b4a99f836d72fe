"""Builds with optimisation profiles: what the builder is told, and golden cases of other sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit_device.build.builder import build_attempt
from edgekit_device.build.request import Attempt
from edgekit_device.errors import DeviceError
from edgekit_device.protocol.manifest import TensorEntry
from edgekit_device.runtime.golden import golden_inputs
from tests.edgekit_device.build import toys
from tests.edgekit_device.build.bench import ALL, WEAK, Bench
from tests.edgekit_device.tensorrt.test_sizes import non_zero, reshaped
from tests.edgekit_device.tensorrt.toys import SHAPE, network, reference

RELEASES = ["8.6.1", "10.3.0", "10.7.0", "11.4.0"]
REST = list(SHAPE[1:])
OPEN = network("n").SerializeToString()
PROFILES = [
    {"x": {"min": [1, *REST], "opt": [2, *REST], "max": [4, *REST]}},
    {"x": {"min": [5, *REST], "opt": [8, *REST], "max": [8, *REST]}},
]
RANGES = {"x": {"low": -1.0, "high": 1.0}}


def document(version: str, **more: Any) -> dict[str, Any]:
    """One engine on the GPU of the network with an open batch, in FP32."""
    strong = version.startswith("11")
    given: dict[str, Any] = {
        "model": toys.sha(OPEN),
        "device": "GPU",
        "gpu_fallback": False,
        "layers": [],
        "precisions": [],
        "typing": "strong" if strong else "weak",
        "calibration": None,
        "constraints": "none",
        "pools": {},
        "inputs": [toys.io("x", [-1, *REST])],
        "outputs": [toys.io("y", [-1, 5])],
        "profiles": PROFILES,
        **more,
    }
    return toys.engine(**given)


def attempt(on: Bench, given: dict[str, Any], data: bytes, cache: bytes | None = None) -> Any:
    """Builds it; the double's configuration."""
    model = on.folder / "open.onnx"
    model.write_bytes(data)
    configs = []
    real = on.trt.Builder.create_builder_config

    def watched(this: Any) -> Any:
        configs.append(real(this))
        return configs[-1]

    on.trt.Builder.create_builder_config = watched
    try:
        build_attempt(
            on.trt,
            on.log,
            toys.spec(given),
            Attempt((), ""),
            model=model,
            cache=cache,
            timing=None,
            on_progress=lambda *step: None,
            cancelled=lambda: False,
        )
    finally:
        on.trt.Builder.create_builder_config = real
    return configs[0]._s


@pytest.mark.parametrize("version", ALL)
def test_every_profile_is_added_and_shared(version: str, tmp_path: Path) -> None:
    on = Bench(version, tmp_path)
    state = attempt(on, document(version), OPEN)
    assert [one._s.shapes["x"][2][0] for one in state.profiles] == [4, 8]
    # on by default in 10.x, and no feature of 11
    assert ("PROFILE_SHARING_0806" in state.preview) == (not version.startswith("11"))
    assert state.calibration_profile is None
    assert on.double.violations == []


@pytest.mark.parametrize("version", WEAK)
def test_int8_is_calibrated_at_the_first_optimum(version: str, tmp_path: Path) -> None:
    on = Bench(version, tmp_path)
    cache = toys.cache_text(names=("x", "c", "n", "r", "p", "f", "y"))
    given = document(version, precisions=["int8"], calibration=toys.sha(cache))
    state = attempt(on, given, OPEN, cache)
    assert state.calibration_profile._s.shapes == {"x": [[2, *REST]] * 3}


@pytest.mark.parametrize("version", RELEASES)
def test_a_profile_out_of_order_is_refused_with_its_input(version: str, tmp_path: Path) -> None:
    on = Bench(version, tmp_path)
    wrong = {"x": {"min": [4, *REST], "opt": [2, *REST], "max": [8, *REST]}}
    with pytest.raises(DeviceError, match=r"profile 1: 'x' has min \[4, 3, 8, 8\]") as caught:
        attempt(on, document(version, profiles=[PROFILES[0], wrong]), OPEN)
    assert caught.value.code == "build.profile"
    assert on.double.builds == []


@pytest.mark.parametrize("version", RELEASES)
def test_values_of_an_input_that_makes_a_shape_are_in_the_profile(
    version: str, tmp_path: Path
) -> None:
    data = reshaped().SerializeToString()
    kind = "int32" if version == "8.6.1" else "int64"
    given = document(
        version,
        model=toys.sha(data),
        outputs=[toys.io("y", [-1, -1])],
        inputs=[toys.io("x", list(SHAPE)), toys.io("s", [2], kind)],
        profiles=[{"x": {which: list(SHAPE) for which in ("min", "opt", "max")}}],
        values=[{"s": {"min": [1, 1], "opt": [4, 48], "max": [192, 192]}}],
    )
    on = Bench(version, tmp_path)
    state = attempt(on, given, data)
    assert state.profiles[0]._s.values == {"s": [[1, 1], [4, 48], [192, 192]]}
    with pytest.raises(DeviceError, match="no optimization profile has been defined"):
        attempt(Bench(version, tmp_path), {**given, "values": []}, data)


@pytest.mark.few(2)
@pytest.mark.parametrize("version", RELEASES)
def test_golden_cases_run_at_every_size(version: str, make: Any) -> None:
    on = make(version)
    batches = (1, 2, 4, 8)
    golden = [
        {"seed": 3, "inputs": RANGES, "lane": None, "shapes": {"x": [batch, *REST]}}
        for batch in batches
    ]
    tensors = toys.ends([2, *REST], [2, 5])
    result = on.run(toys.request(document(version), golden=golden, network=tensors), OPEN)
    (entry,) = result["engines"]
    assert [(one["name"], one["shape"], one["strides"]) for one in entry["io"]] == [
        ("x", [-1, *REST], []),
        ("y", [-1, 5], []),
    ]
    assert [run["shapes"]["x"][0] for run in result["golden"]] == list(batches)
    tensor = TensorEntry("x", "float32", (2, *SHAPE[1:]), "LINEAR", ())
    for batch, run in zip(batches, result["golden"], strict=True):
        sizes = {"x": (batch, *SHAPE[1:])}
        x = golden_inputs([tensor], 3, {"x": (-1.0, 1.0)}, sizes)["x"]
        found = np.frombuffer(on.blob(run["outputs"]["y"]["digest"]), np.float32)
        expected = reference(network("n"), x)
        assert run["outputs"]["y"]["shape"] == [batch, 5]
        np.testing.assert_allclose(found.reshape(batch, 5), expected, rtol=1e-5)
    assert on.offences() == []


def test_a_golden_case_outside_every_profile_fails_the_build(make: Any) -> None:
    on = make("10.3.0")
    golden = [{"seed": 3, "inputs": RANGES, "lane": None, "shapes": {"x": [9, *REST]}}]
    tensors = toys.ends([2, *REST], [2, 5])
    with pytest.raises(DeviceError, match="no profile of the engine supports it") as caught:
        on.run(toys.request(document("10.3.0"), golden=golden, network=tensors), OPEN)
    assert caught.value.code == "build.golden"


@pytest.mark.parametrize("version", ["8.6.1", "10.3.0", "11.4.0"])
def test_golden_outputs_have_the_size_that_their_values_say(version: str, make: Any) -> None:
    data = non_zero().SerializeToString()
    given = document(
        version,
        model=toys.sha(data),
        inputs=[toys.io("x", list(SHAPE))],
        outputs=[toys.io("y", [4, -1])],
        profiles=[],
    )
    on = make(version)
    tensors = toys.ends(SHAPE, [4, -1])
    golden = [{"seed": 3, "inputs": RANGES, "lane": None}]
    result = on.run(toys.request(given, golden=golden, network=tensors), data)
    (run,) = result["golden"]
    assert run["outputs"]["y"]["shape"] == [4, int(np.prod(SHAPE))]
    assert on.offences() == []
