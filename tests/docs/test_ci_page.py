"""docs/ci.md: the Action's shell steps, the hook and the page's commands, as they stand."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.pipeline.nets import small_net

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "ci.md").read_text()
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
HOOKS = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.S)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A folder with two models, and edgekit where the Action's step before installs it."""
    folder = tmp_path / "repository"
    (folder / "models").mkdir(parents=True)
    small_net(folder / "models" / "a net.onnx")
    small_net(folder / "models" / "b.onnx")
    small_net(folder / "model.onnx")
    program = tmp_path / "runner" / "edgekit" / "bin" / "edgekit"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m edgekit "$@"\n')
    program.chmod(0o755)
    return folder


def run_step(repository: Path, **inputs: str) -> tuple[subprocess.CompletedProcess[str], Path]:
    """Runs the Action's last step as GitHub does: its inputs as variables, bash with -e."""
    step = ACTION["runs"]["steps"][-1]
    given = {name: str(row.get("default", "")) for name, row in ACTION["inputs"].items()}
    given |= {name.replace("_", "-"): value for name, value in inputs.items()}
    variables = {
        name: re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda found: given[found[1]], text)
        for name, text in step["env"].items()
    }
    files = repository.parent
    for name in ("summary", "output"):
        (files / name).write_text("")
    variables |= {
        "RUNNER_TEMP": str(files / "runner"),
        "GITHUB_ACTION_PATH": str(ROOT),
        "GITHUB_STEP_SUMMARY": str(files / "summary"),
        "GITHUB_OUTPUT": str(files / "output"),
    }
    script = files / "step.sh"
    script.write_text(step["run"])
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", str(script)],
        cwd=repository,
        env={**os.environ, "PYTHONPATH": str(ROOT), **variables},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done, files


def outputs(files: Path) -> dict[str, str]:
    rows = (line.partition("=") for line in (files / "output").read_text().splitlines())
    return {name: value for name, _, value in rows}


needs_bash = pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")


@needs_bash
def test_the_action_checks_models_and_writes_its_files(repository: Path) -> None:
    done, files = run_step(
        repository,
        models="models/*.onnx\nmodel.onnx\n",
        target="jetson-agx-orin-64gb",
        fail_under="90",
        options="--precision=fp16\n",
    )
    assert done.returncode == 0, done.stderr
    assert outputs(files) == {"sarif": "edgekit.sarif", "comment": "edgekit.md"}
    (run,) = json.loads((repository / "edgekit.sarif").read_text())["runs"]
    assert {result["properties"]["precision"] for result in run["results"]} == {"fp16"}
    page = (files / "summary").read_text()
    assert "3 models" in page
    for name in ("a net.onnx", "b.onnx", "model.onnx"):
        assert name in page


@needs_bash
def test_the_action_fails_below_the_limit_and_still_says_why(repository: Path) -> None:
    done, files = run_step(
        repository, models="model.onnx", target="jetson-orin-nano-8gb", fail_under="10"
    )
    assert done.returncode == 1
    assert "below the limit of 10 %" in (files / "summary").read_text()
    assert outputs(files)["sarif"] == "edgekit.sarif"


@needs_bash
def test_a_pattern_without_a_match_is_named(repository: Path) -> None:
    done, _ = run_step(
        repository, models="model.onnx\nnets/**/*.onnx", target="jetson-agx-orin-64gb"
    )
    assert done.returncode == 2
    assert "::error::edgekit check: no file matches nets/**/*.onnx" in done.stdout


def test_nothing_of_an_input_is_run(repository: Path) -> None:
    done, files = run_step(
        repository,
        models="$(touch pwned); `touch pwned` -x.onnx\n--help",
        target="x; touch pwned",
        options="--layer=$(touch pwned)",
    )
    assert done.returncode == 2
    assert not (repository / "pwned").exists()
    assert outputs(files) == {}


def test_the_action_pins_what_it_uses() -> None:
    text = (ROOT / "action.yml").read_text()
    uses = re.findall(r"uses: (\S+)(.*)", text)
    assert uses
    for name, comment in uses:
        assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", name)
        assert re.fullmatch(r" # v\d+\.\d+\.\d+", comment)
    steps: list[dict[str, Any]] = ACTION["runs"]["steps"]
    # an expression in a script is how inputs are run as code
    assert all("${{" not in step.get("run", "") for step in steps)
    assert all(step["shell"] == "bash" for step in steps if "run" in step)


def test_the_hook_checks_the_models_of_a_commit(repository: Path) -> None:
    """Its entry with its arguments and files, by pre-commit itself, which installs nothing here."""
    (hook,) = HOOKS
    local = {**hook, "language": "system", "entry": f"{sys.executable} -m {hook['entry']}"}
    config = {"repos": [{"repo": "local", "hooks": [local]}]}
    (repository / ".pre-commit-config.yaml").write_text(yaml.safe_dump(config))
    (repository / "notes.txt").write_text("no model\n")
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "PRE_COMMIT_HOME": str(repository.parent / "pre-commit"),
    }
    for line in ("git init -q", "git add ."):
        subprocess.run(shlex.split(line), cwd=repository, env=environment, check=True)

    def commit() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "pre_commit", "run", "--verbose"],
            cwd=repository,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    done = commit()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "models/a net.onnx" in done.stdout
    assert "notes.txt" not in done.stdout
    local["args"] = ["--target", "jetson-agx-orin-64gb", "--max-loadables", "1"]
    (repository / ".pre-commit-config.yaml").write_text(yaml.safe_dump(config))
    subprocess.run(["git", "add", "."], cwd=repository, env=environment, check=True)
    done = commit()
    assert done.returncode == 1
    assert "3 of 3 models miss the limits" in done.stdout


def test_the_page_s_workflow_and_hook_name_what_is_there() -> None:
    workflow, hook = (yaml.safe_load(block) for block in blocks("yaml"))
    (job,) = workflow["jobs"].values()
    (step,) = [one for one in job["steps"] if one.get("id") == "edgekit"]
    assert set(step["with"]) <= set(ACTION["inputs"])
    used = re.findall(r"steps\.edgekit\.outputs\.(\w+)", PAGE)
    assert used
    assert set(used) <= set(ACTION["outputs"])
    assert {one["id"] for repo in hook["repos"] for one in repo["hooks"]} <= {
        h["id"] for h in HOOKS
    }
