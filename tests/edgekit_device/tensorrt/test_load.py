"""Plans through the loader on TensorRT's double, release by release."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit_device.errors import DeviceError
from edgekit_device.runtime.model import open_model
from edgekit_device.store.root import Root
from edgekit_device.tensorrt.runtimes import deserialize
from tests.edgekit_device.tensorrt.here import Here
from tests.edgekit_device.tensorrt.toys import (
    agrees,
    checked,
    entry,
    network,
    plan,
    random_input,
    reference,
    weights_of,
    with_cpu_segment,
)
from tests.trt_double._plan_format import read

VERSIONS = ("8.6.1", "10.3.0", "10.7.0", "10.16.1", "11.4.0")
STRIPPING = VERSIONS[1:]


@pytest.mark.parametrize("version", ["8.6.1", "10.3.0"])
def test_a_segment_on_the_cpu_takes_what_the_engine_left_on_the_gpu(
    here: Here, version: str
) -> None:
    here.has(version)
    model = open_model(with_cpu_segment(checked(plan(version), entry(version))))
    x = random_input()
    wanted = reference(network(), x) + 1
    np.testing.assert_allclose(model({"x": x})["z"], wanted, rtol=1e-5)
    for found in model.stream([{"x": x}] * 3):
        np.testing.assert_allclose(found["z"], wanted, rtol=1e-5)
    np.testing.assert_allclose(model.on_gpu({"x": x})["z"].numpy(), wanted, rtol=1e-5)
    assert model.devices == ["CPU", "GPU"]


@pytest.mark.parametrize("version", STRIPPING)
def test_a_stripped_plan_is_refitted_from_the_bundles_weights(here: Here, version: str) -> None:
    here.has(version)
    about = entry(version, stripped=True, refit="identical")
    bundle = checked(plan(version, ["STRIP_PLAN"]), about, weights=weights_of(network(), version))
    agrees(open_model(bundle))


@pytest.mark.parametrize("version", ["10.3.0", "10.16.1"])
def test_the_full_plan_is_retained_in_the_release(
    here: Here, version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.has(version)
    release = tmp_path / "release"
    release.mkdir()
    about = entry(version, stripped=True, refit="identical")
    bundle = checked(
        plan(version, ["STRIP_PLAN"]),
        about,
        weights=weights_of(network(), version),
        root=Root(tmp_path),
        release=release,
    )
    x = random_input()
    first = open_model(bundle)({"x": x})["y"]
    plans = list((release / "refitted").glob("*.plan"))
    assert len(plans) == 1
    monkeypatch.setattr("edgekit_device.tensorrt.backend.refit", None)  # not needed any more
    assert np.array_equal(open_model(bundle)({"x": x})["y"], first)


@pytest.mark.parametrize("flags", [[], ["EXCLUDE_LEAN_RUNTIME"]], ids=["carried", "outside"])
def test_a_retained_plan_carries_no_runtime_whatever_the_first_one_did(
    here: Here, flags: list[str], tmp_path: Path
) -> None:
    here.has("10.3.0")
    about = entry(
        "10.3.0", version_compatible=True, lean_embedded=not flags, stripped=True, refit="identical"
    )
    bundle = checked(
        plan("10.3.0", ["VERSION_COMPATIBLE", "STRIP_PLAN", *flags]),
        about,
        weights=weights_of(network(), "10.3.0"),
        root=Root(tmp_path),
        release=tmp_path,
    )
    open_model(bundle)
    (retained,) = (tmp_path / "refitted").glob("*.plan")
    assert read(retained.read_bytes())[1]["lean_embedded"] is False
    agrees(open_model(bundle))


def test_an_engine_with_its_weights_takes_others_of_the_bundle(here: Here) -> None:
    here.has("10.3.0")
    data, x = plan("10.3.0", ["REFIT"]), random_input()
    about = entry("10.3.0", refit="any")
    own = open_model(checked(data, about))({"x": x})["y"]
    np.testing.assert_allclose(own, reference(network(), x), rtol=1e-5)
    other = network(seed=4)
    found = open_model(checked(data, about, weights=weights_of(other, "10.3.0")))({"x": x})["y"]
    np.testing.assert_allclose(found, reference(other, x), rtol=1e-5)
    assert not np.allclose(found, own)


def test_a_retained_plan_that_rotted_is_made_again(here: Here, tmp_path: Path) -> None:
    here.has("10.3.0")
    about = entry("10.3.0", stripped=True, refit="identical")
    bundle = checked(
        plan("10.3.0", ["STRIP_PLAN"]),
        about,
        weights=weights_of(network(), "10.3.0"),
        root=Root(tmp_path),
        release=tmp_path,
    )
    open_model(bundle)
    (retained,) = (tmp_path / "refitted").glob("*.plan")
    whole = retained.read_bytes()
    retained.write_bytes(whole[:-1])
    open_model(bundle)
    assert retained.read_bytes() == whole


def test_one_plan_for_two_cores_is_opened_on_each(here: Here) -> None:
    here.has("10.3.0")
    bundle = checked(plan("10.3.0", dla=True), entry("10.3.0", dla_core=0))
    (lane,) = bundle.manifest.lanes
    lanes = tuple(
        replace(lane, share=0.5, segments=(replace(lane.segments[0], device=device),))
        for device in ("DLA0", "DLA1")
    )
    cores: list[int | None] = []

    def spy(*arguments: Any, **options: Any) -> Any:
        cores.append(options["dla_core"])
        return deserialize(*arguments, **options)

    here.monkeypatch.setattr("edgekit_device.tensorrt.runtimes.deserialize", spy)
    model = open_model(replace(bundle, manifest=replace(bundle.manifest, lanes=lanes)))
    assert cores == [0, 1]
    assert len({id(engine) for engine in model.engines.values()}) == 2
    x = random_input()
    for result in model.stream([{"x": x}] * 4):
        np.testing.assert_allclose(result["y"], reference(network(), x), rtol=1e-2, atol=1e-2)


def test_every_weight_that_does_not_fit_is_named(here: Here) -> None:
    here.has("10.3.0")
    weights = weights_of(network(), "10.3.0")
    del weights["conv_w"]
    weights["fc_b"] = weights["fc_b"][:3].copy()
    weights["fc_w"] = weights["fc_w"].astype(np.float16)
    about = entry("10.3.0", stripped=True, refit="any")
    bundle = checked(plan("10.3.0", ["STRIP_PLAN", "REFIT"]), about, weights=weights)
    with pytest.raises(DeviceError) as caught:
        open_model(bundle)
    assert caught.value.code == "refit.mismatch"
    for name in ("conv_w", "fc_b", "fc_w"):
        assert name in caught.value.message


def test_a_weight_of_no_engine_is_named(here: Here) -> None:
    here.has("10.3.0")
    weights = {**weights_of(network(), "10.3.0"), "stray": np.zeros(3, np.float32)}
    about = entry("10.3.0", stripped=True, refit="any")
    bundle = checked(plan("10.3.0", ["STRIP_PLAN", "REFIT"]), about, weights=weights)
    with pytest.raises(DeviceError, match="stray") as caught:
        open_model(bundle)
    assert caught.value.code == "refit.mismatch"


def test_another_kind_of_board_is_refused_before_tensorrt_sees_anything(here: Here) -> None:
    here.has("10.3.0")
    print_ = {"module": "", "l4t": "", "tensorrt": "8.6.1.6"}
    with pytest.raises(DeviceError) as caught:
        open_model(checked(b"ftrt", entry("10.3.0"), fingerprint=print_))
    assert caught.value.code == "engine.other-board"
    assert "8.6.1.6" in caught.value.message
    assert "10.3.0" in caught.value.message


def test_without_tensorrt_the_package_is_named(here: Here) -> None:
    here.has("10.3.0", [])
    with pytest.raises(DeviceError) as caught:
        open_model(checked(plan("10.3.0"), entry("10.3.0")))
    assert caught.value.code == "board.no-tensorrt"
    assert "python3-libnvinfer" in caught.value.hint


def test_a_header_and_a_manifest_that_disagree_are_refused(here: Here) -> None:
    here.has("10.3.0")
    with pytest.raises(DeviceError, match="its manifest says") as caught:
        open_model(checked(plan("10.7.0"), entry("10.3.0")))
    assert caught.value.code == "engine.invalid"


def test_a_cut_plan_is_refused_in_tensorrts_words(here: Here) -> None:
    here.has("10.3.0")
    with pytest.raises(DeviceError) as caught:
        open_model(checked(plan("10.3.0")[:-7], entry("10.3.0")))
    assert caught.value.code == "engine.truncated"
    assert "does not match archive size" in caught.value.message


def test_a_board_without_that_dla_core_is_reported(here: Here) -> None:
    here.has("10.3.0")
    here.modules["full"]._double.settings.dla_cores = 1
    with pytest.raises(DeviceError, match="DLA core 1, but TensorRT finds 1") as caught:
        open_model(checked(plan("10.3.0", dla=True), entry("10.3.0", dla_core=1)))
    assert caught.value.code == "engine.dla"
