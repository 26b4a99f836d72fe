"""An upgraded ONNX Runtime: the release is refused by name until it is deployed again."""

from __future__ import annotations

import json
from pathlib import Path

import onnxruntime as ort
import pytest

from edgekit_device.deployment.health import examine
from edgekit_device.errors import DeviceError
from edgekit_device.protocol.codec import write
from edgekit_device.release import changed
from edgekit_device.release.changed import (
    compare_fingerprints,
    find_change,
    fingerprint_now,
    read_health,
)
from edgekit_device.release.releases import switch
from edgekit_device.runtime.model import load
from edgekit_device.store.root import Root
from tests.edgekit_device.deployment.health_board import put
from tests.edgekit_device.deployment.test_health import POLICY, bundle_with


def examined(root: Root, key: Path) -> Path:
    folder = put(root, bundle_with(key, least=0.9))
    switch(root.app("toy"), folder.name)
    examine(root, root.app("toy"), folder, POLICY)
    return folder


def test_without_a_change_nothing_is_said(root: Root, signing_key: Path) -> None:
    folder = examined(root, signing_key)
    load(folder)
    assert find_change(root, root.app("toy")) is None
    assert find_change(root, root.app("other")) is None


def test_another_runtime_is_refused_by_both_versions(
    root: Root, signing_key: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = examined(root, signing_key)
    was = ort.__version__
    monkeypatch.setattr(ort, "__version__", "9.9.9")
    with pytest.raises(DeviceError) as caught:
        load(folder)
    assert caught.value.code == "board.changed"
    assert f"runtime_version {was} -> 9.9.9" in caught.value.message
    assert "edgekit deploy CONFIG" in caught.value.hint
    assert write(find_change(root, root.app("toy"))) == {
        "release": folder.name,
        "changes": [{"what": "runtime_version", "from": was, "to": "9.9.9"}],
    }
    # a deployment tests it anew, and from then on it is what it was tested on
    examine(root, root.app("toy"), folder, POLICY)
    load(folder)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": "other"}', '{"schema": null}'])
def test_a_damaged_health_record_is_none(root: Root, signing_key: Path, text: str) -> None:
    folder = examined(root, signing_key)
    (folder / "health.json").write_text(text)
    load(folder)
    assert find_change(root, root.app("toy")) is None


def test_a_record_without_the_figures_of_later_versions_is_read(
    root: Root, signing_key: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = examined(root, signing_key)
    path = folder / "health.json"
    record = json.loads(path.read_text())
    del record["latency_ms"]["rounds"]
    for name in ("cosine_min", "exact", "max_abs", "top1_agreement", "collapsed"):
        del record["accuracy"][name]
    path.write_text(json.dumps(record))
    health = read_health(folder)
    assert health is not None
    assert write(health) == record
    monkeypatch.setattr(ort, "__version__", "9.9.9")
    with pytest.raises(DeviceError, match="this board has changed"):
        load(folder)


def test_only_what_both_sides_know_counts() -> None:
    tested = {"tensorrt": "10.3.0", "l4t": "36.4.3", "module": "", "cuda": "12.6"}
    now = {"tensorrt": "10.3.0.30", "l4t": "", "module": "Orin", "cuda": "12.8"}
    assert compare_fingerprints("tensorrt", tested, now) == []
    assert write(
        compare_fingerprints("tensorrt", tested, {**now, "tensorrt": "10.3.1.1", "l4t": "36.5.0"})
    ) == [
        {"what": "l4t", "from": "36.4.3", "to": "36.5.0"},
        {"what": "tensorrt", "from": "10.3.0", "to": "10.3.1.1"},
    ]


def test_a_board_is_queried_once_for_each_boot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requested: list[int] = []
    facts = {"backend": "tensorrt", "tensorrt": "10.3.0.30", "l4t": "36.4.3"}
    monkeypatch.setattr(changed, "fingerprint", lambda folder: requested.append(1) or dict(facts))
    monkeypatch.setattr(changed.inventory, "boot_id", lambda system: "first")
    for _ in range(3):
        assert fingerprint_now(tmp_path, "tensorrt") == facts
    assert len(requested) == 1
    monkeypatch.setattr(changed.inventory, "boot_id", lambda system: "second")
    fingerprint_now(tmp_path, "tensorrt")
    assert len(requested) == 2
    retained = tmp_path / "fingerprint.json"
    # what others could have written, and what says something else than a fingerprint
    retained.chmod(0o666)
    fingerprint_now(tmp_path, "tensorrt")
    assert len(requested) == 3
    reported = json.loads(retained.read_text())
    retained.write_text(json.dumps({**reported, "fingerprint": {"tensorrt": 7}}))
    assert fingerprint_now(tmp_path, "tensorrt") == facts
    assert len(requested) == 4
    # where nothing can be kept it is asked each time
    assert fingerprint_now(tmp_path / "absent", "tensorrt") == facts
    assert not (tmp_path / "absent").exists()
