"""Plans that a refit left in their release: whom they are taken from, and what they may do."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit_device.runtime.model import open_model
from edgekit_device.store.root import Root
from edgekit_device.tensorrt import runtimes
from edgekit_device.tensorrt.backend import open_engines
from edgekit_device.tensorrt.refit import read_full_plan, write_full_plan
from edgekit_device.trust.bundle import Checked
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

ENGINE = "ab" * 32


def bundle_of(release: Path, *flags: str, built: str = "10.3.0", **changes: Any) -> Checked:
    about = entry(built, stripped=True, refit="identical", **changes)
    return checked(
        plan(built, ["STRIP_PLAN", *flags]),
        about,
        weights=weights_of(network(), built),
        root=Root(release),
        release=release,
    )


def put(release: Path, bundle: Checked, data: bytes, tensorrt: str = "full 10.3.0") -> None:
    """Puts a plan and its record where kept ones are, as whoever may write there can."""
    (digest,) = bundle.manifest.engines
    write_full_plan(release, digest, tensorrt, data)


def test_a_retained_plan_never_runs_code_of_its_own(here: Here, tmp_path: Path) -> None:
    here.has("10.3.0")
    bundle = bundle_of(tmp_path, "VERSION_COMPATIBLE", version_compatible=True, lean_embedded=True)
    put(tmp_path, bundle, plan("10.3.0", ["VERSION_COMPATIBLE"], model=network(seed=7)))
    x = random_input()
    # the forged one is passed over, and the signed one is refitted
    np.testing.assert_allclose(
        open_model(bundle)({"x": x})["y"], reference(network(), x), rtol=1e-5
    )
    allowed: list[tuple[bool, bool]] = []
    real = runtimes.deserialize

    def seen(trt: Any, data: Any, choice: Any, **more: Any) -> Any:
        signed = hashlib.sha256(data).hexdigest() in bundle.manifest.engines
        allowed.append((signed, choice.host_code))
        return real(trt, data, choice, **more)

    here.monkeypatch.setattr(runtimes, "deserialize", seen)
    open_model(bundle)
    assert allowed == [(False, False)]  # what was kept meanwhile needs no host code


def test_a_plan_that_only_its_own_runtime_runs_is_not_retained(here: Here, tmp_path: Path) -> None:
    here.has("10.16.1", ["dispatch"])
    bundle = bundle_of(tmp_path, "VERSION_COMPATIBLE", version_compatible=True, lean_embedded=True)
    x = random_input()
    for _ in range(2):
        np.testing.assert_allclose(
            open_model(bundle)({"x": x})["y"], reference(network(), x), rtol=1e-5
        )
    assert not (tmp_path / "refitted").exists()


def test_a_retained_plan_that_tensorrt_refuses_is_made_again(here: Here, tmp_path: Path) -> None:
    here.has("10.3.0")
    bundle = bundle_of(tmp_path)
    put(tmp_path, bundle, plan("10.7.0"))
    agrees(open_model(bundle))
    here.monkeypatch.setattr("edgekit_device.tensorrt.backend.refit", None)  # not needed any more
    open_model(bundle)


def test_a_release_that_cannot_be_written_loads_all_the_same(here: Here, tmp_path: Path) -> None:
    here.has("10.3.0")
    # a file in its place: as good as no right to write, for root too
    (tmp_path / "refitted").write_text("")
    bundle, x = bundle_of(tmp_path), random_input()
    np.testing.assert_allclose(
        open_model(bundle)({"x": x})["y"], reference(network(), x), rtol=1e-5
    )
    notes: list[str] = []
    real = runtimes.Runtimes.__init__

    def noted(self: Any, *arguments: Any) -> None:
        real(self, *arguments)
        self.notes = notes

    here.monkeypatch.setattr(runtimes.Runtimes, "__init__", noted)
    open_engines(bundle)
    assert [note for note in notes if "cannot be saved" in note]


def test_flavours_keep_their_own(tmp_path: Path) -> None:
    write_full_plan(tmp_path, ENGINE, "full 10.3.0", b"one")
    write_full_plan(tmp_path, ENGINE, "lean 10.3.0", b"two")
    assert read_full_plan(tmp_path, ENGINE, "full 10.3.0") == b"one"
    assert read_full_plan(tmp_path, ENGINE, "lean 10.3.0") == b"two"
    assert read_full_plan(tmp_path, ENGINE, "full 10.7.0") is None
    write_full_plan(tmp_path, ENGINE, "full 10.7.0", b"three")
    assert read_full_plan(tmp_path, ENGINE, "full 10.3.0") is None
    assert len(list((tmp_path / "refitted").iterdir())) == 4


def test_what_others_could_have_written_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_full_plan(tmp_path, ENGINE, "full 10.3.0", b"plan")
    folder = tmp_path / "refitted"
    for path in [folder, *folder.iterdir()]:
        mode = path.stat().st_mode & 0o777
        for more in (0o020, 0o002):
            path.chmod(mode | more)
            assert read_full_plan(tmp_path, ENGINE, "full 10.3.0") is None
        path.chmod(mode)
        assert read_full_plan(tmp_path, ENGINE, "full 10.3.0") == b"plan"
    (file,) = folder.glob("*.plan")
    file.rename(tmp_path / "elsewhere")
    os.symlink(tmp_path / "elsewhere", file)
    assert read_full_plan(tmp_path, ENGINE, "full 10.3.0") is None


def test_a_strangers_file_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_full_plan(tmp_path, ENGINE, "full 10.3.0", b"plan")
    real = os.fstat

    def foreign(handle: int) -> os.stat_result:
        facts = list(real(handle))
        facts[4] = 4242  # st_uid
        return os.stat_result(facts)

    monkeypatch.setattr("edgekit_device.tensorrt.refit.os.fstat", foreign)
    assert read_full_plan(tmp_path, ENGINE, "full 10.3.0") is None


@pytest.mark.parametrize("umask", [0o000, 0o002, 0o077])
def test_what_is_retained_is_nobody_elses_to_write(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        write_full_plan(tmp_path, ENGINE, "full 10.3.0", b"plan")
    finally:
        os.umask(before)
    assert read_full_plan(tmp_path, ENGINE, "full 10.3.0") == b"plan"


def test_what_was_hashed_is_what_is_used(tmp_path: Path) -> None:
    write_full_plan(tmp_path, ENGINE, "full 10.3.0", b"plan")
    found = read_full_plan(tmp_path, ENGINE, "full 10.3.0")
    (file,) = (tmp_path / "refitted").glob("*.plan")
    with file.open("r+b") as opened:
        opened.write(b"evil")
    assert found == b"plan"
    record = json.loads(file.with_suffix(".json").read_text())
    assert record["plan"] == hashlib.sha256(b"plan").hexdigest()
