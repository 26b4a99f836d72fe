"""Plans through the loader on TensorRT's double, release by release."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit_device import DeviceError, _cuda, _trt_pick, _trt_start
from edgekit_device._model import open_model
from edgekit_device._root import Root
from tests.edgekit_device.device_trt_toys import (
    checked,
    entry,
    network,
    plan,
    random_input,
    reference,
    weights_of,
)
from tests.trt_double._memory import MEMORY
from tests.trt_double.board import install

VERSIONS = ("8.6.1", "10.3.0", "10.7.0", "10.16.1", "11.4.0")
STRIPPING = VERSIONS[1:]


class Here:
    """A board: chooses what is installed, and looks for offences at the end."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.monkeypatch = monkeypatch
        self.modules: dict[str, Any] = {}

    def has(self, version: str, flavours: Sequence[str] = ("full",)) -> None:
        self.modules.update(install(self.monkeypatch, version, flavours))

    def offences(self) -> list[str]:
        return [text for made in self.modules.values() for text in made._double.violations]


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Here]:
    monkeypatch.setattr(_cuda, "_OPEN", {})
    monkeypatch.setattr(_trt_start, "_KNOWN", {})
    # a child process would not find the double, which lives in this one
    monkeypatch.setattr(_trt_start, "_try", lambda _name: None)
    monkeypatch.setattr(_trt_pick, "_ldconfig", lambda: "")
    monkeypatch.setenv("EDGEKIT_ROOT", str(tmp_path / "root"))
    gc.collect()  # engines of the test before give their memory back
    MEMORY.reset()
    board = Here(monkeypatch)
    yield board
    assert board.offences() == []
    assert MEMORY.offences == []


@pytest.mark.parametrize("version", VERSIONS)
def test_a_plan_runs_on_the_release_that_built_it(here: Here, version: str) -> None:
    here.has(version)
    model = open_model(checked(plan(version), entry(version)))
    x = random_input()
    np.testing.assert_allclose(model({"x": x})["y"], reference(network(), x), rtol=1e-5)


@pytest.mark.parametrize("version", STRIPPING)
def test_a_stripped_plan_is_refitted_from_the_bundles_weights(here: Here, version: str) -> None:
    here.has(version)
    about = entry(version, stripped=True, refit="identical")
    bundle = checked(plan(version, ["STRIP_PLAN"]), about, weights=weights_of(network()))
    x = random_input()
    np.testing.assert_allclose(
        open_model(bundle)({"x": x})["y"], reference(network(), x), rtol=1e-5
    )


@pytest.mark.parametrize("version", ["10.3.0", "10.16.1"])
def test_the_full_plan_is_kept_in_the_release(
    here: Here, version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.has(version)
    release = tmp_path / "release"
    release.mkdir()
    about = entry(version, stripped=True, refit="identical")
    bundle = checked(
        plan(version, ["STRIP_PLAN"]), about,
        weights=weights_of(network()), root=Root(tmp_path), release=release,
    )  # fmt: skip
    x = random_input()
    first = open_model(bundle)({"x": x})["y"]
    plans = list((release / "refitted").glob("*.plan"))
    assert len(plans) == 1
    monkeypatch.setattr("edgekit_device._trt_refit.refit", None)  # not needed any more
    assert np.array_equal(open_model(bundle)({"x": x})["y"], first)


def test_a_kept_plan_that_rotted_is_made_again(here: Here, tmp_path: Path) -> None:
    here.has("10.3.0")
    about = entry("10.3.0", stripped=True, refit="identical")
    bundle = checked(
        plan("10.3.0", ["STRIP_PLAN"]), about,
        weights=weights_of(network()), root=Root(tmp_path), release=tmp_path,
    )  # fmt: skip
    open_model(bundle)
    (kept,) = (tmp_path / "refitted").glob("*.plan")
    whole = kept.read_bytes()
    kept.write_bytes(whole[:-1])
    open_model(bundle)
    assert kept.read_bytes() == whole


def test_every_weight_that_does_not_fit_is_named(here: Here) -> None:
    here.has("10.3.0")
    weights = weights_of(network())
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
    weights = {**weights_of(network()), "stray": np.zeros(3, np.float32)}
    about = entry("10.3.0", stripped=True, refit="any")
    bundle = checked(plan("10.3.0", ["STRIP_PLAN", "REFIT"]), about, weights=weights)
    with pytest.raises(DeviceError, match="stray") as caught:
        open_model(bundle)
    assert caught.value.code == "refit.mismatch"


@pytest.mark.parametrize("version", VERSIONS)
def test_the_lean_runtime_alone_runs_a_version_compatible_plan(here: Here, version: str) -> None:
    here.has(version, ["lean"])
    data = plan(version, ["VERSION_COMPATIBLE", "EXCLUDE_LEAN_RUNTIME"])
    model = open_model(checked(data, entry(version, version_compatible=True)))
    x = random_input()
    np.testing.assert_allclose(model({"x": x})["y"], reference(network(), x), rtol=1e-5)


@pytest.mark.parametrize("version", STRIPPING)
def test_the_lean_runtime_refits_by_name(here: Here, version: str) -> None:
    here.has(version, ["lean"])
    data = plan(version, ["VERSION_COMPATIBLE", "EXCLUDE_LEAN_RUNTIME", "STRIP_PLAN"])
    about = entry(version, version_compatible=True, stripped=True, refit="identical")
    model = open_model(checked(data, about, weights=weights_of(network())))
    x = random_input()
    np.testing.assert_allclose(model({"x": x})["y"], reference(network(), x), rtol=1e-5)


@pytest.mark.parametrize("flavour", ["full", "lean", "dispatch"])
def test_a_later_release_runs_the_runtime_that_the_plan_carries(here: Here, flavour: str) -> None:
    here.has("10.16.1", [flavour])
    data = plan("10.3.0", ["VERSION_COMPATIBLE"])
    about = entry("10.3.0", version_compatible=True, lean_embedded=True)
    x = random_input()
    found = open_model(checked(data, about))({"x": x})["y"]
    np.testing.assert_allclose(found, reference(network(), x), rtol=1e-5)


def test_an_unsigned_bundle_never_runs_code_of_its_own(here: Here) -> None:
    here.has("10.16.1", ["full", "lean", "dispatch"])
    data = plan("10.3.0", ["VERSION_COMPATIBLE"])
    about = entry("10.3.0", version_compatible=True, lean_embedded=True)
    with pytest.raises(DeviceError) as caught:
        open_model(checked(data, about, signer=None))
    assert caught.value.code == "engine.host-code"


def test_an_unsigned_bundle_of_this_release_is_not_trusted_either(here: Here) -> None:
    here.has("10.3.0")
    data = plan("10.3.0", ["VERSION_COMPATIBLE"])
    about = entry("10.3.0", version_compatible=True, lean_embedded=True)
    with pytest.raises(DeviceError) as caught:
        open_model(checked(data, about, signer=None))
    assert caught.value.code == "engine.host-code"
    assert "setEngineHostCodeAllowed" in caught.value.message  # TensorRT's own words


@pytest.mark.parametrize("flavour", ["full", "lean", "dispatch"])
def test_a_later_release_loads_the_lean_library_of_the_plans_own(
    here: Here, flavour: str, tmp_path: Path
) -> None:
    library = tmp_path / "root" / "lib" / "libnvinfer_lean.so.10.3.0"
    library.parent.mkdir(parents=True)
    library.touch()
    here.has("10.16.1", [flavour])
    data = plan("10.3.0", ["VERSION_COMPATIBLE", "EXCLUDE_LEAN_RUNTIME"])
    model = open_model(checked(data, entry("10.3.0", version_compatible=True)))
    x = random_input()
    np.testing.assert_allclose(model({"x": x})["y"], reference(network(), x), rtol=1e-5)


def test_a_missing_lean_library_is_named(here: Here) -> None:
    here.has("10.16.1", ["full", "lean"])
    data = plan("10.3.0", ["VERSION_COMPATIBLE", "EXCLUDE_LEAN_RUNTIME"])
    with pytest.raises(DeviceError) as caught:
        open_model(checked(data, entry("10.3.0", version_compatible=True)))
    assert caught.value.code == "engine.version"
    assert "libnvinfer_lean.so.10.3.0" in caught.value.hint
    assert "full 10.16.1" in caught.value.hint
    assert "lean 10.16.1" in caught.value.hint


@pytest.mark.parametrize(("built", "here_is"), [("10.3.0", "10.7.0"), ("10.7.0", "10.3.0")])
def test_a_plan_of_another_release_is_refused_with_both_versions(
    here: Here, built: str, here_is: str
) -> None:
    here.has(here_is, ["full", "lean"])
    with pytest.raises(DeviceError) as caught:
        open_model(checked(plan(built), entry(built)))
    assert caught.value.code == "engine.version"
    assert built in caught.value.message
    assert here_is in caught.value.hint


def test_a_plan_that_is_not_version_compatible_needs_the_full_runtime(here: Here) -> None:
    here.has("10.3.0", ["lean", "dispatch"])
    with pytest.raises(DeviceError) as caught:
        open_model(checked(plan("10.3.0"), entry("10.3.0")))
    assert caught.value.code == "engine.version"
    assert "full TensorRT 10.3.0" in caught.value.hint


def test_what_tensorrt_says_is_kept_when_a_manifest_lies(here: Here) -> None:
    here.has("10.3.0", ["lean"])
    with pytest.raises(DeviceError) as caught:
        open_model(checked(plan("10.3.0"), entry("10.3.0", version_compatible=True)))
    assert caught.value.code == "engine.not-version-compatible"
    assert "stub loadRunner" in caught.value.message


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
    assert caught.value.code == "engine.invalid"
    assert "does not match archive size" in caught.value.message


@pytest.mark.parametrize("version", ["8.6.1", "10.3.0", "10.7.0"])
def test_a_dla_core_is_set_before_the_plan_is_read(here: Here, version: str) -> None:
    here.has(version)
    data = plan(version, dla=True)
    model = open_model(checked(data, entry(version, dla_core=1)))
    x = random_input()
    np.testing.assert_allclose(model({"x": x})["y"], reference(network(), x), rtol=1e-5)


def test_a_board_without_that_dla_core_is_told(here: Here) -> None:
    here.has("10.3.0")
    here.modules["full"]._double.settings.dla_cores = 1
    with pytest.raises(DeviceError, match="DLA core 1, and TensorRT finds 1") as caught:
        open_model(checked(plan("10.3.0", dla=True), entry("10.3.0", dla_core=1)))
    assert caught.value.code == "engine.dla"
