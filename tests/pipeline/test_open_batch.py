"""Models whose file leaves only the batch open: the commonest export there is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import numpy as np
import onnx
import pytest
from onnx import helper

import edgekit
from edgekit.cli import main
from edgekit.cli.main import Commands
from edgekit.errors import EdgekitError
from edgekit.network.loading.load import load
from tests.network.onnx_making import make

ORIN = "jetson-agx-orin-64gb"


def exported(path: Path, *sizes: int | str, second: tuple[int | str, ...] = ()) -> Path:
    """A convolution and a ReLU on ``sizes``, and an Abs on ``second``."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["y"], name="relu"),
    ]
    inputs = {"x": sizes}
    if second:
        nodes.append(helper.make_node("Abs", ["s"], ["t"], name="abs"))
        inputs["s"] = second
    weights = {"w": np.ones((4, 3, 3, 3), np.float32)}
    onnx.save(make(nodes, inputs, ["y", "t"][: len(inputs)], weights), path)
    return path


def sizes(path: Path, **options: Any) -> dict[str, list[int]]:
    graph = load(path, **options).proto.graph
    return {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in graph.input}


def conv_macs(document: dict[str, Any]) -> int:
    return next(row["macs"] for row in document["layers"] if row["name"] == "conv")


def command(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, Any]:
    with pytest.raises(SystemExit) as caught:
        main.main([*words, "--json"])
    return int(caught.value.code or 0), json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("open_size", ["N", "batch_size", -1])
def test_check_takes_one_and_says_so(tmp_path: Path, open_size: int | str) -> None:
    path = exported(tmp_path / "m.onnx", open_size, 3, 8, 8)
    document = edgekit.check(path, target=ORIN).to_json()
    (note,) = [text for text in document["warnings"] if "batch" in text]
    assert "--shape x:1x3x8x8" in note
    assert "--batch" in note
    four = edgekit.check(path, target=ORIN, model={"batch": 4}).to_json()
    assert conv_macs(four) == 4 * conv_macs(document)
    assert not any("batch" in text for text in four["warnings"])


def test_every_command_with_a_model_takes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    exported(tmp_path / "m.onnx", "N", 3, 8, 8)
    board = ("m.onnx", "-t", ORIN)
    for words in (("plan", *board), ("calibrate", *board), ("rewrite", *board)):
        status, document = command(capsys, *words, "-q")
        assert status == 0
        assert any("--shape x:1x3x8x8" in note for note in document["notes"]), words
    status, document = command(capsys, "check", *board, "--batch", "2")
    assert status == 0
    assert conv_macs(document) == 2 * 8 * 8 * 4 * 27
    for words in (("plan", *board), ("calibrate", *board), ("rewrite", *board)):
        status, document = command(capsys, *words, "-q", "--batch", "2")
        assert status == 0
        assert not any("--batch" in note for note in document["notes"])
    assert command(capsys, "init", "m.onnx", "--batch", "3", "-q")[0] == 0
    assert "batch: 3" in (tmp_path / "m.yaml").read_text()
    # a shape in the file would not let --batch give another
    status, document = command(capsys, "plan", "m.yaml", "--batch", "2", "-q")
    assert status == 0
    assert not any("--batch" in note for note in document["notes"])


def test_a_batch_may_stand_anywhere_and_is_one_number(tmp_path: Path) -> None:
    path = exported(tmp_path / "m.onnx", "N", 3, 8, 8, second=(2, "batch", 6))
    assert sizes(path) == {"x": [1, 3, 8, 8], "s": [2, 1, 6]}
    assert sizes(path, batch=3) == {"x": [3, 3, 8, 8], "s": [2, 3, 6]}
    path = exported(tmp_path / "m.onnx", "N", 3, 8, 8, second=("N", 6))
    assert sizes(path, shapes={"x": [7, 3, 8, 8]}) == {"x": [7, 3, 8, 8], "s": [7, 6]}


def test_what_cannot_be_the_batch_is_refused(tmp_path: Path) -> None:
    fixed = exported(tmp_path / "fixed.onnx", 2, 3, 8, 8)
    assert edgekit.check(fixed, target=ORIN, model={"batch": 2}).to_json()["layers"]
    with pytest.raises(EdgekitError) as caught:
        edgekit.check(fixed, target=ORIN, model={"batch": 4})
    assert caught.value.code == "model.batch"
    assert caught.value.hint
    wide = exported(tmp_path / "wide.onnx", "N", 3, "h", 8)
    with pytest.raises(EdgekitError) as caught:
        edgekit.check(wide, target=ORIN)
    assert caught.value.code == "model.dynamic_shape"
    with pytest.raises(EdgekitError) as caught:
        edgekit.check("builtin:light_squeezenet", target=ORIN, model={"batch": 2})
    assert caught.value.code == "model.batch"


def test_every_command_that_reads_a_model_has_the_same_option() -> None:
    """What takes a model or a configuration of one; "explain" and board commands read none."""
    texts = {}
    names = [
        "bench",
        "build",
        "bundle",
        "calibrate",
        "check",
        "deploy",
        "infer",
        "init",
        "plan",
        "refit",
        "report",
        "rewrite",
        "run",
        "trace",
        "tune",
    ]
    for name in names:
        found = Commands("edgekit").get_command(click.Context(main._root), name)
        texts[name] = [
            item.help
            for item in found.params
            if isinstance(item, click.Option) and "--batch" in item.opts
        ]
    assert all(len(text) == 1 for text in texts.values()), texts
    assert len({text[0] for text in texts.values()}) == 1


@pytest.mark.whole
def test_run_takes_the_batch_of_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    exported(tmp_path / "m.onnx", "N", 3, 8, 8)
    config = tmp_path / "c.yaml"
    config.write_text(
        f"version: 1\nname: m\ntarget: {ORIN}\nmodel: {{onnx: m.onnx, batch: 5}}\n"
        "calibration: {count: 1}\n"
    )
    status, document = command(capsys, "build", "c.yaml", "--batch", "3", "-q")
    assert status == 0
    status, document = command(capsys, "infer", "c.yaml", "--batch", "3", "-q")
    assert status == 0
    assert [row["shape"] for row in document["outputs"]] == [[3, 4, 8, 8]]
    status, document = command(capsys, "run", "c.yaml", "--batch", "3", "-q")
    assert status == 0
    done = {step["name"]: step["status"] for step in document["steps"]}
    assert done["build"] == done["deploy"] == "reused"


def test_a_shape_that_was_given_is_what_to_change(tmp_path: Path) -> None:
    path = exported(tmp_path / "m.onnx", "N", 3, 8, 8)
    model = {"batch": 4, "shapes": {"x": [1, 3, 8, 8]}}
    with pytest.raises(EdgekitError) as caught:
        edgekit.check(path, target=ORIN, model=model)
    assert caught.value.code == "model.batch"
    assert "shape" in (caught.value.hint or "")
