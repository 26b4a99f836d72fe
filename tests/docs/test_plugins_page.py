"""The example of docs/plugins.md runs as it stands."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import onnx
import pytest
import yaml
from onnx import TensorProto, helper, numpy_helper

from edgekit.cli.main import app
from edgekit.config.loader import parse_config

PAGE = (Path(__file__).parents[2] / "docs" / "plugins.md").read_text("utf-8")
BLOCKS = {
    kind: re.findall(rf"```{kind}\n(.*?)```", PAGE, re.S) for kind in ("sh", "yaml", "python")
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    values = np.random.default_rng(0).standard_normal((32, 3, 3, 3)).astype(np.float32)
    more = np.random.default_rng(1).standard_normal((32, 32, 1, 1)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "v"], ["c"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node("MyOp", ["c"], ["m"], name="mine", domain="acme", stride=2),
        helper.make_node("Conv", ["m", "w"], ["y"], name="conv2"),
    ]
    form = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "net", [form("x", TensorProto.FLOAT, [1, 3, 32, 32])],
        [form("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(values, "v"), numpy_helper.from_array(more, "w")],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("acme", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    onnx.save(model, tmp_path / "model.onnx")
    (tmp_path / "app.yaml").write_text(BLOCKS["yaml"][0])
    (tmp_path / "myop.py").write_text(BLOCKS["python"][0])
    (tmp_path / "libmyop.so").write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_its_commands_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = {}
    for line in BLOCKS["sh"][0].splitlines():
        program, *arguments = shlex.split(line)
        assert program == "edgekit"
        assert app(arguments) == 0
        found = capsys.readouterr()
        shown[arguments[0]] = found.out + found.err
    assert "general.plugin" in shown["check"]
    assert "MyOp" in shown["plan"]
    assert "The run ends here" in shown["run"]


def test_its_outputs_are_read() -> None:
    (outputs,) = (yaml.safe_load(block) for block in BLOCKS["yaml"][1:])
    text = BLOCKS["yaml"][0].replace(
        'formats: ["int8:chw32", "fp16:chw16"]', f"outputs: {outputs['outputs']!r}"
    )
    (section,) = parse_config(text, "app.yaml", Path()).file.model.plugins
    assert section.outputs[0].type == "float16"


def test_every_key_is_in_its_table() -> None:
    (section,) = parse_config(BLOCKS["yaml"][0], "app.yaml", Path()).file.model.plugins
    table = re.search(r"\| Key \| What \|\n((?:\|.*\n)+)", PAGE)
    assert table is not None
    rows = re.findall(r"^\| (`.*?) \|", table[1], re.M)
    named = {key for row in rows for key in re.findall(r"`(\w+)`", row)}
    assert named == set(type(section).model_fields)
