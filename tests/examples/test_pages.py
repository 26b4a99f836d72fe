"""The pages of examples/: their commands run in order, as they stand, and do what the page says."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import onnx
import pytest
import yaml

import edgekit_device
from edgekit.bundles.files import build_zipapp
from edgekit.deployment.ssh import connect
from edgekit.fleet.inventory import load_inventory
from tests.boards.fixtures import home, need_sshd
from tests.boards.warm_python import warm_python
from tests.fleet.many_boards import farm

__all__ = ["home"]

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NAMES = sorted(path.parent.name for path in EXAMPLES.glob("*/README.md"))
#: Runs the page's next block and returns what it printed; each command must end with ``status``.
Run = Callable[..., str]


@pytest.fixture
def page(
    request: pytest.FixtureRequest, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> Run:
    """Runs the blocks of a page, one after the other, in a copy of examples/."""
    name: str = request.param
    shutil.copytree(EXAMPLES, tmp_path / "examples", ignore=shutil.ignore_patterns("out"))
    monkeypatch.chdir(tmp_path)
    environment = {**os.environ, "EDGEKIT_CACHE": str(tmp_path / "kept")}
    blocks = iter(commands(name))

    def run(status: int = 0) -> str:
        shown = ""
        for line in next(blocks):
            words = shlex.split(line)
            if words[0] == "edgekit":
                words[:1] = [sys.executable, "-m", "edgekit"]
            elif words[0] == "python":
                words[0] = sys.executable
            target = Path(words.pop()) if words[-2:-1] == [">"] else None
            if target is not None:
                words.pop()
            done = subprocess.run(
                words, env=environment, capture_output=True, text=True, timeout=300, check=False
            )
            assert done.returncode == status, f"{line}\n{done.stdout}{done.stderr}"
            if target is not None:
                target.write_text(done.stdout)
            shown += done.stdout + done.stderr
        return shown

    return run


def commands(name: str) -> list[list[str]]:
    """Returns the commands of a page, by block."""
    text = (EXAMPLES / name / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```sh\n(.*?)```", text, re.S)
    return [block.replace("\\\n", " ").splitlines() for block in blocks]


def of(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("page", [name], indirect=True, ids=[name])


def one_line(text: str) -> str:
    """Returns what was printed, in one line."""
    return re.sub(r"\s+", " ", text)


def test_the_index_has_every_example() -> None:
    index = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"\]\((\S+)/README\.md\)", index)) == NAMES


@pytest.mark.whole
@pytest.mark.slow
@pytest.mark.boards
@of("detection")
def test_the_cut_detector_runs_on_the_dla_and_keeps_its_boxes(page: Run, tmp_path: Path) -> None:
    need_sshd()
    page()
    assert "115 of 133 layers" in (whole := one_line(page()))
    assert "4 loadables (limit 16 per core); 5 transitions" in whole
    assert "108 of 108 layers" in (cut := one_line(page()))
    assert "1 loadable (limit 16 per core); 0 transitions" in cut
    shares = re.findall(r"boxes (\d\.\d+) \(", built := one_line(page()))
    assert min(map(float, shares)) >= 0.95, built
    assert len(re.findall(r"mAP50 0\.9\d\d", built)) >= 1
    boxes = re.findall(r"^  (?:circle|square|triangle)  \d\.\d\d  \S+ \S+$", page(), re.M)
    assert len(boxes) >= 3
    assert (tmp_path / "edgekit-out/detection/05000-detected.png").is_file()


@pytest.mark.whole
@pytest.mark.slow
@pytest.mark.boards
@of("segmentation")
def test_the_unet_comes_onto_the_dla_and_keeps_its_masks(page: Run) -> None:
    need_sshd()
    shown = one_line(page())
    assert "16 of 24 layers" in shown
    for row in (
        "layers on the DLA 16 of 24 30 of 30",
        "loadables 9 1",
        "transitions 16 0",
    ):
        assert row in shown
    shown = page()
    with_discs, deployed, with_fp32 = map(float, re.findall(r"IoU with .*?([\d.]+)$", shown, re.M))
    assert with_fp32 >= 0.95
    assert deployed > 0.8
    assert with_discs > 0.8


@pytest.mark.whole
@pytest.mark.slow
@of("two-networks")
def test_two_networks_keep_their_deadlines(page: Run, tmp_path: Path) -> None:
    assert "All 2 networks meet their deadlines" in one_line(page())
    plan = json.loads((tmp_path / "plan.json").read_text())
    assert {network["name"] for network in plan["networks"]} == {"detect", "classify"}


def test_the_pages_show_the_configurations() -> None:
    for name in NAMES:
        text = (EXAMPLES / name / "README.md").read_text(encoding="utf-8")
        for block in re.findall(r"```yaml\n(.*?)```", text, re.S):
            shown = yaml.safe_load(block)
            (whole,) = (
                yaml.safe_load(path.read_text()) for path in (EXAMPLES / name).glob("*.yaml")
            )
            assert shown.items() <= whole.items()


@pytest.mark.whole
@pytest.mark.slow
@pytest.mark.boards
@of("refit")
def test_only_what_changed_travels(page: Run, tmp_path: Path) -> None:
    need_sshd()
    shown = one_line(page())
    assert "2 of 10 tensors changed" in shown
    sent = re.findall(r"\(([\d,]+) bytes sent\)", shown)
    assert int(sent[-1].replace(",", "")) < 50_000
    app = tmp_path / "kept" / "board" / "apps" / "refit"
    releases = sorted(path.name for path in (app / "releases").iterdir())
    assert len(releases) == 2
    # and back again
    assert os.readlink(app / "current").rpartition("/")[2] == releases[0]
    assert edgekit_device.load(app).inputs[0].name == "image"


@pytest.mark.whole
@of("ci-gate")
def test_the_gate_fails_below_its_limit(page: Run, tmp_path: Path) -> None:
    page()
    (tmp_path / "models").mkdir()
    for name, sizes in (
        ("good", [8, 8]),
        ("bad", [8, 8, 8]),
    ):  # no DLA convolves in three dimensions
        value = onnx.helper.make_tensor_value_info
        graph = onnx.helper.make_graph(
            [onnx.helper.make_node("Conv", ["x", "w"], ["y"], name="conv")],
            name,
            [value("x", 1, [1, 4, *sizes])],
            [value("y", 1, [1, 4, *sizes])],
            [onnx.helper.make_tensor("w", 1, [4, 4, *(1 for _ in sizes)], [0.5] * 16)],
        )
        opsets = [onnx.helper.make_opsetid("", 17)]
        model = onnx.helper.make_model(graph, ir_version=8, opset_imports=opsets)
        onnx.save(model, tmp_path / "models" / f"{name}.onnx")
    (line,) = commands("ci-gate")[1]
    gate = shlex.split(line)[:3]

    def status(*models: str) -> int:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        return subprocess.run(
            [*gate, *models],
            env={**os.environ, "PATH": path},
            check=False,
            capture_output=True,
            timeout=120,
        ).returncode

    assert status("models/good.onnx") == 0
    assert status("models/bad.onnx", "models/good.onnx") == 1
    assert json.loads((tmp_path / "models" / "good.check.json").read_text())["schema"]
    assert status("models/none.onnx") == 2
    assert status() == 2  # which says how it is called


def test_the_workflow_uses_what_the_action_has() -> None:
    root = EXAMPLES.parent
    workflow = yaml.safe_load((EXAMPLES / "ci-gate" / "workflow.yml").read_text())
    *_, step = workflow["jobs"]["dla"]["steps"]
    assert step["uses"] == "./edgekit"
    action = yaml.safe_load((root / "action.yml").read_text())
    assert step["with"].keys() <= action["inputs"].keys()


@pytest.mark.whole
@pytest.mark.slow
@pytest.mark.boards
@of("fleet")
def test_a_fleet_goes_in_waves(page: Run, tmp_path: Path, home: Path) -> None:
    need_sshd()
    folder = tmp_path / "examples" / "fleet"
    names = [b["name"] for b in yaml.safe_load((folder / "boards.yaml").read_text())["boards"]]
    inventory = folder / "out" / "boards.yaml"
    inventory.parent.mkdir()
    loader = tmp_path / "loader.pyz"
    build_zipapp(loader)
    with (
        warm_python(home, loader) as python,
        farm(tmp_path / "boards", len(names), python) as boards,
    ):
        boards.inventory(inventory)
        first, second, third = boards.names
        boards.start([first, third])
        shown = one_line(page())
        assert "2 done, 1 skipped" in shown
        assert boards.serving(first, "camera") == boards.serving(third, "camera") != ""
        boards.start([second])
        page()
        before = boards.serving(second, "camera")
        assert before == boards.serving(first, "camera")

        boards.distrust(third)
        shown = one_line(page(status=1))
        assert third in shown
        assert boards.serving(second, "camera") == before
        assert boards.serving(first, "camera") != before
        page()
        assert {boards.serving(name, "camera") for name in boards.names} == {before}


@pytest.mark.boards
def test_three_boards_on_loopback_answer_until_the_script_ends(tmp_path: Path, home: Path) -> None:
    need_sshd()
    shutil.copytree(EXAMPLES / "fleet", tmp_path / "fleet", ignore=shutil.ignore_patterns("out"))
    script = [sys.executable, str(tmp_path / "fleet" / "loopback.py")]
    with subprocess.Popen(script, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert "cam-1, cam-2, cam-3" in process.stdout.readline()
            members = load_inventory(tmp_path / "fleet" / "out" / "boards.yaml")
            boards = [member.board for member in members]
            for board in boards:
                with closing(connect(board)) as transport:
                    echoed = transport.run(["echo", board.name]).out.decode()
                    assert echoed.strip() == board.name
        finally:
            process.terminate()
    assert not any(Path(board.root).exists() for board in boards)


@pytest.mark.whole
@pytest.mark.slow
@pytest.mark.boards
@of("camera")
def test_a_sample_frame_runs_through_the_deployed_network(page: Run) -> None:
    need_sshd()
    assert len(re.findall(r"^ *\d+ -?\d+\.\d{4}$", page(), re.M)) == 5


@pytest.mark.whole
@of("plugin")
def test_a_plugin_is_planned_between_the_dlas_layers(page: Run) -> None:
    shown = one_line(page())
    assert "p1: TensorRT runs this operator as a plugin" in shown
    assert "needs the plugin CustomPool, version 1 of 'edgekit'" in shown
    assert re.search(r"reformats on the GPU, .* r1, predicted .* p1, predicted", shown)
    assert "10 of 10 labels of digits.npz right as built, 10 in FP32" in shown
