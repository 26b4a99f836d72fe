"""An upgraded ONNX Runtime: refused by name, or the release is tested again, once."""

from __future__ import annotations

import json
from pathlib import Path

import onnxruntime as ort
import pytest

from edgekit_device import _fingerprint, _fingerprint_now
from edgekit_device._changed import changed_of, changes
from edgekit_device._errors import DeviceError
from edgekit_device._fingerprint_now import fingerprint_now
from edgekit_device._golden import self_test
from edgekit_device._health import examine
from edgekit_device._model import load
from edgekit_device._release import switch
from edgekit_device._root import Root
from tests.edgekit_device.health_board import put
from tests.edgekit_device.test_device_health import POLICY, bundle_with


@pytest.fixture
def root(tmp_path: Path, signer_line: str) -> Root:
    folder = tmp_path / "root"
    folder.mkdir()
    (folder / "allowed_signers").write_text(signer_line)
    return Root(folder)


def examined(root: Root, key: Path, on_change: str) -> Path:
    folder = put(root, bundle_with(key, on_change=on_change, least=0.9))
    switch(root.app("toy"), folder.name)
    examine(root, "toy", folder, POLICY)
    return folder


def test_without_a_change_nothing_is_said(root: Root, signing_key: Path) -> None:
    folder = examined(root, signing_key, "refuse")
    load(folder)
    assert changed_of(root, root.app("toy")) is None
    assert changed_of(root, root.app("other")) is None


def test_another_runtime_is_refused_by_both_versions(
    root: Root, signing_key: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = examined(root, signing_key, "refuse")
    was = ort.__version__
    monkeypatch.setattr(ort, "__version__", "9.9.9")
    with pytest.raises(DeviceError) as caught:
        load(folder)
    assert caught.value.code == "board.changed"
    assert f"runtime_version {was} -> 9.9.9" in caught.value.message
    found = changed_of(root, root.app("toy"))
    assert found is not None
    assert (found["state"], found["on_change"]) == ("refused", "refuse")
    assert found["changes"] == [{"what": "runtime_version", "from": was, "to": "9.9.9"}]
    # a deployment tests it anew, and from then on it is what it was tested on
    examine(root, "toy", folder, POLICY)
    load(folder)


def test_a_policy_of_the_deployment_wins_over_the_bundles(
    root: Root, signing_key: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = examined(root, signing_key, "rebuild")
    examine(root, "toy", folder, {**POLICY, "on_change": "refuse"})
    monkeypatch.setattr(ort, "__version__", "9.9.9")
    with pytest.raises(DeviceError) as caught:
        load(folder)
    assert caught.value.code == "board.changed"


def test_it_is_tested_again_once(
    root: Root, signing_key: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = examined(root, signing_key, "rebuild")
    tests: list[int] = []
    monkeypatch.setattr(
        "edgekit_device._golden.self_test", lambda *a: tests.append(1) or self_test(*a)
    )
    monkeypatch.setattr(ort, "__version__", "9.9.9")
    found = changed_of(root, root.app("toy"))
    assert found is not None
    assert found["state"] == "pending"
    for _ in range(3):
        load(folder)
    assert len(tests) == 1
    found = changed_of(root, root.app("toy"))
    assert found is not None
    assert found["state"] == "passed"
    # the next upgrade is another one
    monkeypatch.setattr(ort, "__version__", "10.0.0")
    load(folder)
    assert len(tests) == 2


def test_what_fails_there_is_refused_and_not_tried_at_each_load(
    root: Root, signing_key: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = examined(root, signing_key, "rebuild")
    tests: list[int] = []

    def wrong(*given: object) -> dict[str, object]:
        tests.append(1)
        facts = {"ok": False, "relative": 0.5, "tolerance": 1e-5, "bit_equal": False}
        return {"ok": False, "bit_equal": False, "cases": [{"seed": 7, "outputs": {"y": facts}}]}

    monkeypatch.setattr("edgekit_device._golden.self_test", wrong)
    monkeypatch.setattr(ort, "__version__", "9.9.9")
    for _ in range(2):
        with pytest.raises(DeviceError) as caught:
            load(folder)
        assert caught.value.code == "board.changed"
        assert "selftest.failed" in caught.value.message
    assert len(tests) == 1
    assert changed_of(root, root.app("toy"))["state"] == "failed"  # type: ignore[index]
    # nobody else's word counts: the record is not believed, and it is tested again
    (folder / "retested.json").chmod(0o666)
    with pytest.raises(DeviceError):
        load(folder)
    assert len(tests) == 2
    # nor a damaged one
    (folder / "retested.json").write_text("{")
    with pytest.raises(DeviceError):
        load(folder)
    assert len(tests) == 3


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": "other"}', '{"schema": null}'])
def test_a_damaged_health_record_is_none(root: Root, signing_key: Path, text: str) -> None:
    folder = examined(root, signing_key, "refuse")
    (folder / "health.json").write_text(text)
    load(folder)
    assert changed_of(root, root.app("toy")) is None


def test_only_what_both_sides_know_counts() -> None:
    tested = {"tensorrt": "10.3.0", "l4t": "36.4.3", "module": "", "cuda": "12.6"}
    now = {"tensorrt": "10.3.0.30", "l4t": "", "module": "Orin", "cuda": "12.8"}
    assert changes("tensorrt", tested, now) == []
    assert changes("tensorrt", tested, {**now, "tensorrt": "10.3.1.1", "l4t": "36.5.0"}) == [
        {"what": "l4t", "from": "36.4.3", "to": "36.5.0"},
        {"what": "tensorrt", "from": "10.3.0", "to": "10.3.1.1"},
    ]


def test_a_board_is_asked_once_for_each_boot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    facts = {"backend": "tensorrt", "tensorrt": "10.3.0.30", "l4t": "36.4.3"}
    monkeypatch.setattr(_fingerprint, "fingerprint", lambda folder: asked.append(1) or dict(facts))
    monkeypatch.setattr(_fingerprint_now, "_boot", lambda system: "first")
    for _ in range(3):
        assert fingerprint_now(tmp_path, "tensorrt") == facts
    assert len(asked) == 1
    monkeypatch.setattr(_fingerprint_now, "_boot", lambda system: "second")
    fingerprint_now(tmp_path, "tensorrt")
    assert len(asked) == 2
    kept = tmp_path / "fingerprint.json"
    # what others could have written, and what says something else than a fingerprint
    kept.chmod(0o666)
    fingerprint_now(tmp_path, "tensorrt")
    assert len(asked) == 3
    told = json.loads(kept.read_text())
    kept.write_text(json.dumps({**told, "fingerprint": {"tensorrt": 7}}))
    assert fingerprint_now(tmp_path, "tensorrt") == facts
    assert len(asked) == 4
    # where nothing can be kept it is asked each time
    assert fingerprint_now(tmp_path / "absent", "tensorrt") == facts
    assert not (tmp_path / "absent").exists()
