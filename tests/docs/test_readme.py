"""The commands of the README, the tour, the first page and the list of examples are run."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx.backend.test
import pytest

import edgekit
from edgekit.rewriting.rules.order import REWRITES
from tests.cli.test_help import parse
from tests.pipeline.nets import small_net

ROOT = Path(__file__).parents[2]
README, START, TOUR = ROOT / "README.md", ROOT / "docs" / "start.md", ROOT / "docs" / "index.md"
EXAMPLES = ROOT / "configs" / "README.md"


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.S)


def run_lines(shell: str, folder: Path) -> None:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for line in shell.splitlines():
        # INT8 on 16 inputs and a bench of 3 s: as a user would run it
        done = subprocess.run(
            line,
            shell=True,
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"


@pytest.mark.whole
@pytest.mark.boards
def test_first_own_model(tmp_path):
    shell = next(block for block in blocks(START, "sh") if "edgekit run" in block)
    small_net(tmp_path / "model.onnx")
    small_net(tmp_path / "finetuned.onnx", scale=0.9)
    run_lines(shell, tmp_path)
    results = {path.name for path in (tmp_path / "edgekit-out" / "model").iterdir()}
    assert {"report.html", "trace.json", "bundle.ekb", "bench.json", "plan.json"} <= results
    # what was deployed runs by the page's lines
    (code,) = blocks(START, "python")
    board = tmp_path / "cache" / "board"
    code = code.replace("~/.edgekit", str(board))
    image = np.zeros((1, 3, 16, 16), np.float32)
    names: dict[str, object] = {"image": image}
    exec(code, names)
    outputs = names["outputs"]
    assert isinstance(outputs, dict)
    assert outputs["y"].shape == (1, 10)


@pytest.mark.whole
def test_the_examples_are_planned_as_the_table_says(tmp_path, capsys, monkeypatch):
    from edgekit.cli.main import main
    from edgekit.reports import text

    figures = {
        "throughput": ("throughput_qps", text.significant),
        "latency": ("latency_us", text.microseconds),
        "energy": ("energy_uj", text.energy),
        "gpu_time": ("gpu_us", text.microseconds),
    }
    rows = re.findall(
        r"^\| `(\S+\.yaml)` \|.*\| (\S[^|]+) \| (\S[^|]+) \|$", EXAMPLES.read_text(), re.M
    )
    assert len(rows) == 4
    monkeypatch.chdir(tmp_path)
    for config, own, alone in rows:
        with pytest.raises(SystemExit) as end:
            main(["plan", str(EXAMPLES.parent / config), "--json"])
        assert not end.value.code
        plan = json.loads(capsys.readouterr().out)
        key, words = figures[plan["objective"]]
        assert own.startswith(words(plan["predicted"][key]) + " ")
        assert alone.startswith(words(plan["baselines"]["gpu_only"][key]) + " ")


@pytest.mark.whole
@pytest.mark.parametrize("name", ["shufflenet", "squeezenet", "densenet121"])
def test_the_light_models_are_rewritten_as_the_table_says(name):
    from edgekit.reports import text

    row = rf"^\| light_{name} \| (\d+) -> (\d+) \| (\d+) -> (\d+) \| (\S+ .s) -> (\S+ .s) \|$"
    (cells,) = re.findall(row, TOUR.read_text(), re.M)
    light = Path(onnx.backend.test.__file__).parent / f"data/light/light_{name}.onnx"
    done = edgekit.rewrite(light, target="jetson-agx-orin-64gb", precision="int8").to_json()
    parts = done["before"], done["after"]
    assert cells == tuple(
        str(show(part))
        for show in (
            lambda part: part["loadables"],
            lambda part: part["gpu_layers"],
            lambda part: text.microseconds(part["predicted"]["auto_us"]),
        )
        for part in parts
    )


def test_the_readme_counts_the_rewrites():
    exact = [item for item in REWRITES if not item.approximate]
    for page in (README, TOUR):
        assert f"{len(exact)} exact rewrites" in " ".join(page.read_text().split())


def test_the_commands_of_the_readme_work(tmp_path):
    own, checkout = blocks(README, "sh")
    for line in checkout.splitlines():
        assert os.access(ROOT / line.split()[0], os.X_OK)
    small_net(tmp_path / "model.onnx")
    install, *lines = own.splitlines()
    assert install.endswith("&& pip install .")
    run_lines("\n".join(lines), tmp_path)


@pytest.mark.whole
def test_the_tour_begins_with_a_command_that_works(tmp_path):
    (command,) = blocks(TOUR, "sh")
    run_lines(command, tmp_path)


def test_the_examples_begin_with_commands_that_work():
    (shell,) = blocks(EXAMPLES, "sh")
    for line in shell.splitlines():
        words = shlex.split(line, comments=True)
        assert (ROOT / words[2]).exists()
        parse(words[1:])
