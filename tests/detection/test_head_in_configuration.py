"""A configuration's head: recognised or given, cut at its raw maps, told in a line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import edgekit
from edgekit.cli import main
from edgekit.config.loader import load_config, rebased
from edgekit.detection import recognise as recognition
from edgekit.detection.recognised import Recognised, Unlike
from edgekit.errors import EdgekitError
from edgekit.saved_documents import read_document
from tests.detection.networks import BOARD, colour_detector


def configuration(folder: Path, model: dict[str, object], **sections: object) -> Path:
    path = folder / "colours.yaml"
    document = {
        "version": 1,
        "name": "colours",
        "target": BOARD,
        "precision": "fp16",
        "model": {"onnx": "colours.onnx", **model},
        **sections,
    }
    path.write_text(json.dumps(document))
    return path


def test_the_network_is_cut_at_the_raw_maps_of_a_head_that_is_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, head = colour_detector(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main.main(["check", str(model), "-t", BOARD, "--head", str(head), "--json"])
    assert ended.value.code == 0
    document = json.loads(capsys.readouterr().out)
    assert len(document["layers"]) == 2
    assert "head: colours, 2 classes, decoded after the network (NumPy)" in document["warnings"]
    assert any("model.outputs: [box, score]" in one for one in document["warnings"])
    plan = edgekit.plan(configuration(tmp_path, {"head": "head.json"}))
    assert "head: colours, 2 classes, decoded after the network (NumPy)" in plan.notes


def test_auto_takes_what_is_recognised_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, head = colour_detector(tmp_path)
    asked: list[dict[str, str]] = []

    def recognised(model: Any, metadata: Any) -> Recognised:
        asked.append(dict(metadata))
        assert [one.name for one in model.proto.graph.output] == ["found"]
        return Recognised(read_document(head), {})

    monkeypatch.setattr(recognition, "_RECOGNISERS", (recognised,))
    monkeypatch.setattr(recognition, "disagreement", lambda *_: "")
    config = configuration(tmp_path, {"head": "auto"}, detection={"classes": ["rot", "blau"]})
    for _ in range(2):
        assert len(edgekit.check(config).layers) == 2
    assert len(asked) == 1
    with pytest.raises(EdgekitError) as refused:
        edgekit.check(config, detection={"classes": ["rot"]})
    assert refused.value.code == "head.classes"
    assert "1 name for 2 classes" in refused.value.message


def test_an_unknown_head_is_one_error_that_tells_what_differs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    colour_detector(tmp_path)
    unlike = Unlike("YOLOv8", 2, "'join' joins 2 tensors and not 3")
    monkeypatch.setattr(recognition, "_RECOGNISERS", (lambda *_: unlike,))
    with pytest.raises(EdgekitError) as refused:
        edgekit.plan(configuration(tmp_path, {"head": "auto"}))
    assert refused.value.code == "head.unknown"
    assert "YOLOv8" in refused.value.message
    assert "'join' joins 2 tensors" in refused.value.message
    assert "model.outputs" in refused.value.hint
    assert refused.value.where.endswith("colours.yaml:1:124")


@pytest.mark.parametrize("other", [{"outputs": ["box"]}, {"cut": "auto"}])
def test_a_head_goes_with_no_other_cut(tmp_path: Path, other: dict[str, object]) -> None:
    colour_detector(tmp_path)
    with pytest.raises(EdgekitError, match="only one of 'head', 'outputs' and 'cut'"):
        edgekit.check(configuration(tmp_path, {"head": "auto", **other}))


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (None, "head.unreadable"),
        ("[", "head.invalid"),
        ('{"schema": "edgekit.head/1", "family": "x", "outputs": ["y"]}', "head.invalid"),
        ('{"schema": "edgekit.head/1", "family": "x", "outputs": []}', "head.invalid"),
    ],
)
def test_a_wrong_document_of_a_head_is_one_error(
    tmp_path: Path, text: str | None, code: str
) -> None:
    model, head = colour_detector(tmp_path)
    head.unlink()
    if text is not None:
        head.write_text(text)
    with pytest.raises(EdgekitError) as refused:
        edgekit.check(model, target=BOARD, model={"head": str(head)})
    assert refused.value.code == code
    assert str(head) in refused.value.where


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("names.txt", "rot\nblau\n\n"),
        ("data.yaml", "path: .\nnames: {1: blau, 0: rot}\n"),
        ("data.yaml", "names: [rot, blau]\n"),
    ],
)
def test_names_of_classes_come_from_a_file(tmp_path: Path, name: str, text: str) -> None:
    colour_detector(tmp_path, classes=False)
    (tmp_path / name).write_text(text)
    document = edgekit.check(
        configuration(tmp_path, {"head": "head.json"}, detection={"classes": name})
    )
    assert any(", 2 classes," in one for one in document.warnings)


@pytest.mark.parametrize("text", [None, "", "a\n\nb\n", "names: {0: a, 2: b}"])
def test_a_wrong_file_of_names_is_one_error(tmp_path: Path, text: str | None) -> None:
    colour_detector(tmp_path)
    name = "data.yaml" if text and ":" in text else "names.txt"
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(EdgekitError) as refused:
        edgekit.check(configuration(tmp_path, {"head": "head.json"}, detection={"classes": name}))
    assert refused.value.code == "head.classes"


def test_paths_of_heads_and_names_move_with_the_configuration(tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.mkdir()
    for head, moved in (("auto", "auto"), ("head.json", "../head.json")):
        path = configuration(tmp_path, {"head": head}, detection={"classes": "names.txt"})
        values: Any = rebased(load_config(path), there)
        assert values["model"]["head"] == moved
        assert values["detection"]["classes"] == "../names.txt"
    shutil.rmtree(there)


def test_devices_may_be_named_as_ultralytics_names_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    colour_detector(tmp_path)
    pins = [{"layers": "box.conv", "device": "dla:0"}, {"layers": "score.conv", "device": 0}]
    path = configuration(tmp_path, {"head": "head.json"}, placement={"pin": pins})
    plan = edgekit.plan(path)
    assert {one.name: one.device for one in plan.layers} == {
        "box.conv": "DLA0",
        "score.conv": "GPU",
    }
    assert "The device dla:0 of the pin box.conv is DLA0" in plan.notes
    assert "The device 0 of the pin score.conv is GPU" in plan.notes
    with pytest.raises(SystemExit) as ended:
        main.main(["plan", str(path), "--pin", "score.conv=DLA:0", "--json"])
    assert ended.value.code == 0
    document = json.loads(capsys.readouterr().out)
    assert {one["device"] for one in document["layers"]} == {"DLA0"}
    assert "The device DLA:0 of the pin score.conv is DLA0" in document["notes"]
    with pytest.raises(EdgekitError, match="unknown value 'dla:7'"):
        edgekit.plan(path, placement={"pin": [{"layers": "*", "device": "dla:7"}]})
