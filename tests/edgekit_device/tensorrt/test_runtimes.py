"""Full, lean or dispatch: which runtime runs a plan, on TensorRT's double."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgekit_device.errors import DeviceError
from edgekit_device.runtime.model import open_model
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
)

VERSIONS = ("8.6.1", "10.3.0", "10.7.0", "10.16.1", "11.4.0")
STRIPPING = VERSIONS[1:]


@pytest.mark.few(3)
@pytest.mark.parametrize("version", VERSIONS)
def test_the_lean_runtime_alone_runs_a_version_compatible_plan(here: Here, version: str) -> None:
    here.has(version, ["lean"])
    data = plan(version, ["VERSION_COMPATIBLE", "EXCLUDE_LEAN_RUNTIME"])
    model = open_model(checked(data, entry(version, version_compatible=True)))
    agrees(model)


@pytest.mark.parametrize("version", STRIPPING)
def test_the_lean_runtime_refits_by_name(here: Here, version: str) -> None:
    here.has(version, ["lean"])
    data = plan(version, ["VERSION_COMPATIBLE", "EXCLUDE_LEAN_RUNTIME", "STRIP_PLAN"])
    about = entry(version, version_compatible=True, stripped=True, refit="identical")
    model = open_model(checked(data, about, weights=weights_of(network(), version)))
    agrees(model)


@pytest.mark.parametrize("flavour", ["full", "lean", "dispatch"])
def test_a_later_release_runs_the_runtime_that_the_plan_carries(here: Here, flavour: str) -> None:
    here.has("10.16.1", [flavour])
    data = plan("10.3.0", ["VERSION_COMPATIBLE"])
    about = entry("10.3.0", version_compatible=True, lean_embedded=True)
    x = random_input()
    found = open_model(checked(data, about))({"x": x})["y"]
    np.testing.assert_allclose(found, reference(network(), x), rtol=1e-5)


def test_a_plan_of_another_major_is_noted_on_the_model(here: Here) -> None:
    here.has("11.4.0")
    about = entry("10.7.0", version_compatible=True, lean_embedded=True)
    model = open_model(checked(plan("10.7.0", ["VERSION_COMPATIBLE"]), about))
    (note,) = model.notes
    assert "10.7.0" in note
    assert "self-test" in note
    assert open_model(checked(plan("11.4.0"), entry("11.4.0"))).notes == ()


@pytest.mark.parametrize(
    ("version", "flavours"), [("10.16.1", ["full", "lean", "dispatch"]), ("10.3.0", ["full"])]
)
def test_an_unsigned_bundle_never_runs_code_of_its_own(
    here: Here, version: str, flavours: list[str]
) -> None:
    here.has(version, flavours)
    data = plan("10.3.0", ["VERSION_COMPATIBLE"])
    about = entry("10.3.0", version_compatible=True, lean_embedded=True)
    with pytest.raises(DeviceError) as caught:
        open_model(checked(data, about, signer=None))
    assert caught.value.code == "engine.host-code"
    if version == "10.3.0":  # TensorRT's own words
        assert "setEngineHostCodeAllowed" in caught.value.message


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
    agrees(model)


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


def test_what_tensorrt_says_is_retained_when_a_manifest_lies(here: Here) -> None:
    here.has("10.3.0", ["lean"])
    with pytest.raises(DeviceError) as caught:
        open_model(checked(plan("10.3.0"), entry("10.3.0", version_compatible=True)))
    assert caught.value.code == "engine.not-version-compatible"
    assert "stub loadRunner" in caught.value.message
