"""Proposed cuts: the part runs on the DLA alone, and the best of all beginnings is proposed."""

from __future__ import annotations

import itertools
import json
from collections.abc import Collection, Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import edgekit
from edgekit.cli import main
from edgekit.dla.verdicts import LoadableCandidate
from edgekit.errors import EdgekitError
from edgekit.network.model import Network
from edgekit.placement.check import CheckResult, check_model
from edgekit.placement.forecast import make_timer
from edgekit.saved_documents import read_document
from tests import exports

BOARD = "jetson-agx-orin-64gb"


def checked(name: str, folder: Path, **more: object) -> CheckResult:
    path = folder / f"{name}.onnx"
    onnx.save(exports.load(name), path)
    return check_model(path, target=BOARD, **more)


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["yolo11n", "yolov8n", "hf_detr_resnet50", "ssd300_vgg16"])
def test_the_part_of_a_cut_runs_whole_on_the_dla(tmp_path: Path, name: str) -> None:
    whole = checked(name, tmp_path)
    cuts = whole.document.cuts
    assert cuts
    values = [cut.whole.gpu_us for cut in cuts]
    assert values == sorted(values)
    assert whole.document.predicted
    assert values[-1] < whole.document.predicted.gpu_only_us
    for cut in cuts[:2]:
        part = checked(name, tmp_path, outputs=cut.outputs).document
        assert part.summary.dla_layers == part.summary.layers == cut.layers
        assert part.loadables == cut.loadables
        assert cut.rest == len(whole.document.layers) - cut.layers
    saved = json.loads(json.dumps(whole.document.to_json()))
    assert read_document(saved).cuts == cuts


def test_the_cut_before_the_attention_of_yolo11n_is_the_one_that_its_users_found(
    tmp_path: Path,
) -> None:
    first = checked("yolo11n", tmp_path).document.cuts[0]
    assert first.layers == 129
    assert first.loadables == 1
    assert "/model.10/m/m.0/attn/qkv/conv/Conv_output_0" in first.outputs
    assert {"model.0", "model.9"} <= set(first.modules)
    assert "model.10" not in first.modules


def blocks(folder: Path, erfs: Collection[str]) -> Path:
    """Writes two branches of convolutions that join; an Erf, which no DLA runs, behind some."""
    shape = [1, 64, 128, 128]
    weights = {"w": np.ones((64, 64, 3, 3), np.float32) / 100}
    nodes, ends = [], []
    for branch in "ab":
        last = "x"
        for step in range(4):
            name = f"{branch}{step}"
            nodes.append(helper.make_node("Conv", [last, "w"], [name], name, pads=[1, 1, 1, 1]))
            last = name
            if name in erfs:
                nodes.append(helper.make_node("Erf", [last], [f"{name}.erf"], f"{name}.erf"))
                last = f"{name}.erf"
        ends.append(last)
    nodes.append(helper.make_node("Add", ends, ["s"], "sum"))
    nodes.append(helper.make_node("Conv", ["s", "w"], ["y"], "last", pads=[1, 1, 1, 1]))
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n in ("x", "y")]
    graph = helper.make_graph(
        nodes,
        "blocks",
        values[:1],
        values[1:],
        [onnx.numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    path = folder / "blocks.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


def beginnings(network: Network, able: set[str]) -> Iterator[tuple[str, ...]]:
    """Yields every set of layers that a DLA runs and that holds what it depends on."""
    names = [layer.name for layer in network.layers if layer.name in able]
    producers = network.producers()
    sources = {
        layer.name: {producers[name].name for name in layer.inputs if name in producers}
        for layer in network.layers
    }
    for count in range(1, len(names) + 1):
        for chosen in itertools.combinations(names, count):
            if all(sources[name] <= {*chosen} for name in chosen):
                yield chosen


@pytest.mark.parametrize("erfs", [("b2",), ("a1",), ("a2",), ("b3",)])
def test_no_other_beginning_takes_less_of_the_gpu(tmp_path: Path, erfs: tuple[str, ...]) -> None:
    result = check_model(blocks(tmp_path, erfs), target=BOARD, precision="fp16")
    network, judgement = result.network, result.judgement
    clock = make_timer(network, judgement, result.target)
    assert clock is not None
    able = {name for name, verdict in judgement.verdicts.items() if verdict.placeable}
    least = min(
        clock.loads_us([LoadableCandidate(names, True, "")])[0]
        for names in beginnings(network, able)
    )
    assert result.document.cuts[0].whole.gpu_us == pytest.approx(least)


def test_auto_takes_the_first_cut_and_tells_its_tensors(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = checked("yolo11n", tmp_path).document.cuts[0]
    with pytest.raises(SystemExit) as ended:
        main.main(["check", str(tmp_path / "yolo11n.onnx"), "-t", BOARD, "--cut", "auto", "--json"])
    assert ended.value.code == 0
    document = json.loads(capsys.readouterr().out)
    assert document["summary"]["dla_layers"] == len(document["layers"]) == first.layers
    (note,) = [one for one in document["warnings"] if "model.outputs" in one]
    assert ", ".join(first.outputs) in note


def test_a_cut_that_does_not_pay_is_not_taken(tmp_path: Path) -> None:
    path = tmp_path / "resnet18.onnx"
    onnx.save(exports.load("resnet18"), path)
    with pytest.raises(EdgekitError) as refused:
        edgekit.plan(path, target=BOARD, model={"cut": "auto"}, placement={"objective": "latency"})
    assert refused.value.code == "cut.none"
    assert "gpu_time" in refused.value.hint
    with pytest.raises(EdgekitError, match="not both") as refused:
        edgekit.plan(path, target=BOARD, model={"cut": "auto", "outputs": ["y"]})
    assert refused.value.code == "config.invalid"
