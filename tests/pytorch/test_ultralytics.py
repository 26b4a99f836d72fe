"""Ultralytics' own .pt files: exported as its exporter does, with what it writes into the file."""

from __future__ import annotations

import hashlib
import sys
import types
from pathlib import Path
from typing import Any

import onnx
import pytest

import edgekit
from edgekit.errors import EnvironmentLack

ORIN = "jetson-agx-orin-64gb"


@pytest.mark.slow
def test_a_trusted_checkpoint_becomes_a_detector_with_its_names(tmp_path: Path) -> None:
    ultralytics = pytest.importorskip("ultralytics", reason="needs edgekit[detectors]")
    file = tmp_path / "yolo.pt"
    network = ultralytics.YOLO("yolov8n.yaml")
    network.model.args = {"imgsz": 96, "task": "detect"}
    network.model.names = {number: f"thing {number}" for number in range(80)}
    network.save(str(file))
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    made = edgekit.export(file, target=ORIN, trust=digest)
    assert [one.shape for one in made.inputs] == [[1, 3, 96, 96]]
    assert [one.shape for one in made.outputs] == [[1, 84, 189]]
    metadata = {one.key: one.value for one in onnx.load(made.file).metadata_props}
    assert metadata["imgsz"] == "[96, 96]"
    assert metadata["stride"] == "32"
    assert metadata["task"] == "detect"
    assert "79: 'thing 79'" in metadata["names"]
    found = edgekit.check(file, target=ORIN, model={"trust": digest, "head": "auto"})
    (note,) = [one for one in found.warnings if one.startswith("head: ")]
    assert note.startswith("head: YOLOv8")
    assert ", 80 classes," in note


def test_a_checkpoint_without_its_package_says_what_to_install(
    nets: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # a class of a module that no version of the package has
    module = types.ModuleType("ultralytics.no_such_module")
    network = type("DetectionModel", (), {"__module__": module.__name__})
    module.DetectionModel = network  # type: ignore[attr-defined]
    file = tmp_path / "yolo.pt"
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "ultralytics", types.ModuleType("ultralytics"))
        patch.setitem(sys.modules, module.__name__, module)
        nets.torch.save({"model": network()}, file)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    with pytest.raises(EnvironmentLack) as refused:
        edgekit.check(file, target=ORIN, model={"trust": digest, "head": "auto"})
    assert refused.value.code == "torch.missing"
    assert "ultralytics is not installed" in refused.value.message
    assert "pip install ultralytics" in refused.value.hint
    assert "yolo export model=yolo.pt format=onnx" in refused.value.hint
