"""The example of docs/plugins.md runs as it stands."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
import yaml
from onnx import helper

import edgekit
from edgekit.cli.main import app
from edgekit.config.loader import open_config, parse_config
from edgekit.errors import EdgekitError
from edgekit.network.session import session
from edgekit.pipeline.pipeline import Pipeline
from edgekit.pipeline.steps.load import user_model
from tests.network.onnx_making import make

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
    weights = {"v": values, "w": more}
    model = make(nodes, {"x": [1, 3, 32, 32]}, ["y"], weights, domains=["acme"])
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
        'formats: ["int8:chw32", "fp16:chw"]', f"outputs: {outputs['outputs']!r}"
    )
    (section,) = parse_config(text, "app.yaml", Path()).file.model.plugins
    assert section.outputs[0].type == "float16"


@pytest.mark.whole
def test_a_custom_operator_of_pytorch_finds_its_plugin(folder: Path) -> None:
    pytest.importorskip("torch")
    more = "\nimport numpy as np\nx = torch.randn(1, 3, 32, 32)\nnp.savez('x.npz', x=x.numpy())\n"
    more += "np.save('y.npy', net(x).detach().numpy())\n"
    # in a process of its own: an operator's name is taken once it is registered
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", BLOCKS["python"][1] + more],
        check=True,
        timeout=600,
        capture_output=True,
        text=True,
    )
    opened = open_config(folder / "app.yaml")
    with Pipeline(opened) as pipeline:
        model = user_model(pipeline.context)
    (name,) = model.graph.inputs
    assert model.graph.shape(model.graph.outputs[0]) == (1, 8, 16, 16)
    (found,) = session(model).run(None, {name: np.load("x.npz")["x"]})
    assert np.allclose(found, np.load("y.npy"), rtol=1e-4, atol=1e-5)


@pytest.mark.whole
def test_a_custom_operator_in_a_module_of_its_own_says_what_to_do(folder: Path) -> None:
    pytest.importorskip("torch")
    head = BLOCKS["python"][1].partition("torch.onnx.export")[0]
    (folder / "my_net.py").write_text(
        head + "\n\ndef make():\n    return net, (torch.randn(1, 3, 32, 32),)\n"
    )
    text = BLOCKS["yaml"][0].replace("onnx: model.onnx", "python: my_net:make")
    (folder / "app.yaml").write_text(text)
    with pytest.raises(EdgekitError) as caught:
        edgekit.check(folder / "app.yaml")
    assert caught.value.code == "model.runtime"
    assert "model.plugins" in caught.value.hint
