"""After an upgrade of TensorRT a release is refused by name, or built again by the board itself."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.edgekit_device.changed_trt import examine_there, two_boards, upgradable
from tests.edgekit_device.device_board import Refused
from tests.edgekit_device.device_trt_toys import SHAPE, network, reference
from tests.trt_double.board import offences

X = np.random.default_rng(3).uniform(-1, 1, SHAPE).astype(np.float32)


def jobs(root: Path) -> list[str]:
    folder = root / "jobs"
    return sorted(p.name for p in folder.iterdir() if p.is_dir()) if folder.is_dir() else []


def test_an_upgraded_tensorrt_is_refused_by_what_changed(
    tmp_path: Path, loader: Path, signer_line: str, signing_key: Path
) -> None:
    before, after = two_boards(tmp_path, loader, signer_line)
    bundle = upgradable(signing_key, on_change="refuse")
    before.install(bundle)
    health = examine_there(before, bundle.name)
    assert (health["backend"], health["clock"]) == ("tensorrt", "board-measured")
    with pytest.raises(Refused) as caught:
        after.infer(bundle.name, x=X)
    assert caught.value.code == "board.changed"
    assert "tensorrt 10.3.0" in caught.value.message
    assert "-> 10.7.0" in caught.value.message
    assert "on_change" in caught.value.hint
    assert jobs(after.root) == []
    # back on the old TensorRT nothing is wrong with it
    np.testing.assert_allclose(before.infer(bundle.name, x=X)["y"], reference(network(), X), 1e-5)
    assert offences(before.python) + offences(after.python) == []


def test_engines_that_answer_otherwise_are_not_taken_and_not_built_twice(
    tmp_path: Path, loader: Path, signer_line: str, signing_key: Path
) -> None:
    before, after = two_boards(tmp_path, loader, signer_line)
    bundle = upgradable(signing_key, on_change="rebuild", other_weights=True)
    before.install(bundle)
    for started in (1, 0):  # the second load has no job to join, and starts none
        with pytest.raises(Refused) as caught:
            after.infer(bundle.name, x=X)
        assert caught.value.code == "board.changed"
        assert "selftest.failed" in caught.value.message
        assert len(jobs(after.root)) == started
        shutil.rmtree(after.root / "jobs", ignore_errors=True)
