"""Code, exit code, place and options of the errors of bad inputs; their words may change."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import yaml
from onnx import TensorProto, helper, numpy_helper

from tests.pipeline.nets import small_net

CASES = yaml.safe_load(Path(__file__).with_name("errors.yaml").read_text())
MODELS: dict[str, Callable[[onnx.ModelProto], object]] = {}


def bad(spoil: Callable[[onnx.ModelProto], object]) -> Callable[[onnx.ModelProto], object]:
    MODELS[spoil.__name__] = spoil
    return spoil


@bad
def truncated(model):
    return model.SerializeToString()[:-400]


@bad
def no_nodes(model):
    del model.graph.node[:]


@bad
def no_opset(model):
    del model.opset_import[:]


@bad
def old_opset(model):
    model.opset_import[0].version = 4


@bad
def unknown_operator(model):
    model.graph.node[2].op_type = "Relumax"


@bad
def unknown_domain(model):
    model.graph.node[2].domain = "com.example"


@bad
def cycle(model):
    model.graph.node[0].input[0] = "r2"


@bad
def undefined_tensor(model):
    model.graph.node[2].input[0] = "nothing"


@bad
def duplicate_tensor(model):
    model.graph.node[5].output[0] = "r1"


@bad
def weight_short(model):
    model.graph.initializer[0].raw_data = model.graph.initializer[0].raw_data[:-4]


def elsewhere(model, place):
    weight = model.graph.initializer[0]
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    entry = weight.external_data.add()
    entry.key, entry.value = "location", place


@bad
def weight_elsewhere(model):
    elsewhere(model, "none.bin")


@bad
def weight_outside(model):
    elsewhere(model, "../../etc/passwd")


@bad
def weight_not_finite(model):
    weight = numpy_helper.to_array(model.graph.initializer[0]).copy()
    weight[0, 0, 0, 0] = np.nan
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(weight, "conv1.w"))


@bad
def shapes_conflict(model):
    weight = numpy_helper.from_array(np.zeros((32, 15, 3, 3), np.float32), "conv2.w")
    model.graph.initializer[5].CopyFrom(weight)


@bad
def open_shape(model):
    value = helper.make_tensor_value_info("x", 1, ["n", 3, "h", "w"])
    model.graph.input[0].CopyFrom(value)


def test_bad_inputs(command, golden, tmp_path, monkeypatch: pytest.MonkeyPatch):
    found = {}
    for name, case in CASES.items():
        folder = tmp_path / name
        folder.mkdir()
        monkeypatch.chdir(folder)
        monkeypatch.setenv("EDGEKIT_HISTORY", str(folder / "history.sqlite"))
        small_net(folder / "model.onnx")
        for file, text in case.get("files", {}).items():
            (folder / file).write_text(text)
        if "data" in case:
            np.save(folder / case["data"], np.zeros((2, 3, 9, 9), np.float32))
        if "model" in case:
            model = onnx.load(folder / "model.onnx")
            made = MODELS[case["model"]](model)
            data = made if isinstance(made, bytes) else model.SerializeToString()
            (folder / "bad.onnx").write_bytes(data)
        words = shlex.split(case["run"].replace(" O", " --target jetson-agx-orin-64gb"))
        answer = command(*words)
        error = (answer.document or {}).get("error", {})
        where = str(error.get("where", "")).replace(str(folder), ".")
        found[name] = [error.get("code", ""), answer.exit, where]
        if error.get("code") == "usage":  # also which options it names
            named = re.findall(r"--[a-z][a-z-]*|[A-Z]+=[A-Z]+", error["message"] + error["hint"])
            found[name].append(" ".join(sorted({*named} - {"--help"})))
    assert len(found) >= 60
    golden("errors", found)


def test_every_bad_model_is_used():
    assert {case["model"] for case in CASES.values() if "model" in case} == MODELS.keys()
