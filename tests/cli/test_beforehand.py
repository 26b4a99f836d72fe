"""What ``run``, ``deploy`` and ``refit`` refuse before they work; over a real sshd."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import onnx
import pytest

from edgekit.cli.main import app
from edgekit.errors import EdgekitError
from tests.boards.fixtures import StartBoard, boards, home
from tests.pipeline.nets import small_config, small_net

__all__ = ["boards", "home"]

pytestmark = [pytest.mark.boards, pytest.mark.usefixtures("warm_boards")]

BOARD = (
    "  boards:\n    - {{name: lab, host: {b.host}, port: {b.port}, user: {b.user}, "
    'key: {b.key}, host_key: "{b.host_key}", root: {root}, python: {python}}}\n'
)
#: A fault of a configuration, by the section that gets it, and the code of its error.
FAULTS = {
    "data": ("calibration: {data: nowhere}", "data.path"),
    "module": ("calibration: {data: 'python:nowhere:inputs'}", "data.python"),
    "cache": ("calibration: {cache: nowhere.cache}", "cache.unreadable"),
    "cores": ("placement: {dla_cores: [5]}", "plan.core"),
    "profile": ("placement: {profile: nowhere.json}", "profile.missing"),
    "labels": ("deploy:\n  health: {samples: 1, labels: nowhere.txt}", "data.labels"),
    "model": ("model: {onnx: nowhere.onnx}", "model.missing"),
}


class Desk:
    """A configuration, its board, and the command line."""

    def __init__(self, board: Any, folder: Path) -> None:
        self._board, self._folder = board, folder
        self.root = folder / "lab"

    def config(self, fault: str = "", python: str | None = None) -> Path:
        """Writes the configuration, with a section of its own in the place of the usual one."""
        name = fault.partition(":")[0]
        path = small_config(self._folder / "config")
        lines = [
            line
            for line in path.read_text().splitlines()
            if not name or line.partition(":")[0] != name
        ]
        boards = BOARD.format(b=self._board, root=self.root, python=python or self._board.python)
        deploy = fault if name == "deploy" else f"{fault}\ndeploy:"
        path.write_text("\n".join([*lines, f"{deploy}\n{boards}"]))
        return path

    def ask(self, command: str, path: Path, *words: str, trust: bool = True) -> None:
        words = (*words, "--trust-key") if trust else words
        assert app([command, str(path), "-q", *words, "--out", str(self._folder / "out")]) == 0

    def refused(self, command: str, path: Path, *words: str, trust: bool = True) -> EdgekitError:
        with pytest.raises(EdgekitError) as caught:
            self.ask(command, path, *words, trust=trust)
        return caught.value


@pytest.fixture
def desk(boards: StartBoard, tmp_path: Path) -> Desk:
    return Desk(boards().board, tmp_path)


def begun(error: EdgekitError) -> set[str]:
    return {step["name"] for step in error.extra["steps"]}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("command", ["run", "deploy", "refit"])
def test_a_fault_of_the_configuration_is_said_before_any_step(
    desk: Desk, tmp_path: Path, command: str, fault: str
) -> None:
    text, code = FAULTS[fault]
    small_net(tmp_path / "other.onnx", seed=1)
    words = ["--weights", str(tmp_path / "other.onnx")] if command == "refit" else []
    error = desk.refused(command, desk.config(text), *words)
    assert (error.code, begun(error)) == (code, set())


@pytest.mark.parametrize("command", ["run", "deploy", "refit"])
def test_a_board_on_which_nothing_can_run_is_said_before_any_step(
    desk: Desk, tmp_path: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    bare.chmod(0o755)
    small_net(tmp_path / "other.onnx", seed=1)
    words = ["--weights", str(tmp_path / "other.onnx")] if command == "refit" else []
    path = desk.config(python=str(bare))
    error = desk.refused(command, path, *words, trust=False)  # which would not help
    assert (error.code, error.where, begun(error)) == ("board.nothing-runs", "lab", set())
    assert error.exit_code == 3
    with pytest.raises(EdgekitError) as caught:
        app(["doctor", str(path), "--json"])
    document = json.loads(capsys.readouterr().out)
    (line,) = (check for check in document["checks"] if check["id"] == "runtime")
    said = f"{line['found']}: {line['fix']}"
    assert said == error.message
    assert (caught.value.code, caught.value.exit_code) == ("board.nothing-runs", 3)


def test_weights_that_do_not_fit_are_said_before_rewriting(desk: Desk, tmp_path: Path) -> None:
    other, path = tmp_path / "other.onnx", desk.config()
    small_net(other, classes=7)
    error = desk.refused("refit", path, "--weights", str(other))
    assert (error.code, begun(error)) == ("refit.mismatch", {"check"})
    small_net(other, seed=1)
    onnx.save(onnx.load(other), other, save_as_external_data=True, location="w", size_threshold=0)
    (tmp_path / "w").unlink()
    error = desk.refused("refit", path, "--weights", str(other))
    assert (error.code, begun(error)) == ("model.external_missing", set())


def test_a_release_that_was_rolled_back_is_said_before_rewriting(
    desk: Desk, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other, path = tmp_path / "other.onnx", desk.config()
    weights = ["--weights", str(other)]
    desk.ask("deploy", path)
    small_net(other, scale=1.01)
    desk.ask("refit", path, *weights)
    assert app(["rollback", str(path)]) == 0
    error = desk.refused("refit", path, *weights)
    assert (error.code, begun(error)) == ("install.taken-back", {"check"})
    assert f"edgekit refit {path} --weights {other} --again" in error.hint
    desk.ask("deploy", path)  # what serves is no such release
    desk.ask("refit", path, *weights, "--again")
    desk.ask("deploy", path)
    assert app(["rollback", str(path)]) == 0
    for command in ("deploy", "run"):
        error = desk.refused(command, path)
        assert (error.code, begun(error)) == ("install.taken-back", {"check"})
    desk.ask("infer", path)  # goes on with what serves
