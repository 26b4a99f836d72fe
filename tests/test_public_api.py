"""The public functions: each is there, and no submodule takes its place."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

import edgekit
import edgekit_device
from edgekit.cli import main
from edgekit.errors import DataError, UsageError
from edgekit.pipeline.exports import TraceFiles


def test_functions_of_the_commands():
    names = {"check", "rewrite", "calibrate", "plan", "build", "bundle", "deploy", "rollback",
             "refit", "infer", "bench", "run", "why", "what_if", "pareto", "plan_table",
             "plan_networks", "explain_log", "tune", "trace", "compare", "history", "doctor",
             "status", "releases", "remove", "trust", "serve", "jobs", "rollout",
             "top"}  # fmt: skip
    assert all(callable(getattr(edgekit, name)) for name in names)
    with pytest.raises(AttributeError):
        _ = edgekit.nothing


@pytest.mark.parametrize("package", [edgekit, edgekit_device], ids=lambda one: one.__name__)
def test_the_public_names_are_the_documented_ones(package):
    page = Path(__file__).parents[1] / "docs" / "api-stability.md"
    listed = re.search(rf"^`{package.__name__}`: (.*?)\n\n", page.read_text(), re.M | re.S)
    assert re.findall(r"`(\w+)`", listed[1]) == sorted(package.__all__)
    assert all(getattr(package, name) is not None for name in package.__all__)


@pytest.mark.parametrize("package", [edgekit, edgekit_device], ids=lambda one: one.__name__)
def test_dir_lists_the_public_names(package):
    assert dir(package) == sorted(package.__all__)


def public_names() -> set[str]:
    """Python's names, and the commands with their options, hidden ones too."""
    names = {
        f"{package.__name__}.{name}"
        for package in (edgekit, edgekit_device)
        for name in {*package.__all__, *package._FORMER}
    }

    def add(command: click.Command, path: str) -> None:
        names.add(path)
        names.update(
            f"{path} {flag}"
            for item in command.params
            if isinstance(item, click.Option)
            for flag in (*item.opts, *item.secondary_opts)
        )
        if isinstance(command, click.Group):
            context = click.Context(command)
            for name in command.list_commands(context):
                inner = command.get_command(context, name)
                assert inner is not None
                add(inner, f"{path} {name}")

    add(main._root, "edgekit")
    return names


def test_no_public_name_goes_without_a_release_in_which_it_warns():
    """The rule of docs/api-stability.md: a name that went works still, and warns.

    A line leaves public_names.txt one minor release after CHANGELOG.md called it deprecated.
    """
    file = Path(__file__).parent / "contracts" / "public_names.txt"
    listed, there = set(file.read_text().splitlines()), public_names()
    assert listed - there == set()
    assert there - listed == set(), "new public names: add them to the list"


@pytest.mark.parametrize(("package", "new"), [(edgekit, "check"), (edgekit_device, "load")])
def test_a_former_name_works_and_warns(package, new, monkeypatch):
    monkeypatch.setitem(package._FORMER, "former", new)
    with pytest.warns(DeprecationWarning, match=f"use {package.__name__}.{new}") as warned:
        assert package.former is getattr(package, new)
    assert warned[0].filename == __file__


# what each public function is called with beside a file that is not there
_JOB = ("0123456789abcdef", "no.yaml")
ARGUMENTS = {
    **dict.fromkeys(("cancel_job", "job_log", "remove_job", "watch_job"), _JOB),
    "rollout": ("no.yaml", "no.yaml"),
    "export_rollout": ("folder", "no.yaml"),
    "add_power": ("no.json", "no.log"),
    "compare": ("last~1", "last"),
    "export": ("no.pt2",),
    "export_history": ("results.csv", "last"),
    "mark_measurement": ("last", "x"),
    "measurements": ("last",),
    "prune_history": (),
    "check_models": (["no.yaml"],),
    "init": ("no.onnx", "no-board"),
    "diff_caches": ("no.cache", "no.cache"),
    "merge_caches": (["no.cache"], "out.cache"),
    "to_qdq": ("no.yaml", "out.onnx"),
    "refit": ("no.yaml", "no.onnx"),
    "top": ("no.yaml",),
    "verify_rewrites": ("no.onnx", "no.json"),
    "watch_board": ("no.yaml", "on_document"),
    "what_if": ("no.yaml", "conv=gpu"),
    "why": ("no.yaml", "conv"),
}
CALLS = """
import json, pkgutil, sys
import edgekit
from importlib import import_module
for found in pkgutil.walk_packages(edgekit.__path__, "edgekit."):
    if not found.name.endswith(("__main__", "edgekit_recap")):
        import_module(found.name)
from edgekit.errors import EdgekitError
from edgekit.pipeline.exports import TraceFiles
arguments, ended = {"trace": (TraceFiles(),), **json.loads(sys.argv[1])}, {}
without = {"__version__", "history", "list_rewrites", "list_targets", "rollouts"}
for name in sorted({*edgekit.__all__} - without):
    try:
        options = {"target": "jetson-agx-orin-64gb"} if name in ("compile", "export") else {}
        ended[name] = repr(getattr(edgekit, name)(*arguments.get(name, ("no.yaml",)), **options))
    except EdgekitError as error:
        ended[name] = error.code
ended["history"] = edgekit.history().results
assert edgekit.rollouts(state="fleet").rollouts == ()
print(json.dumps(ended))
"""


def test_every_function_can_be_called_after_every_submodule_was_imported(tmp_path):
    """No submodule takes the place of a function: each answers with its own error."""
    done = subprocess.run(
        [sys.executable, "-c", CALLS, json.dumps(ARGUMENTS)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        cwd=tmp_path,
        env={**os.environ, "EDGEKIT_HISTORY": str(tmp_path / "history.sqlite")},
    )
    assert done.returncode == 0, done.stderr
    ended = json.loads(done.stdout.splitlines()[-1])
    assert ended.pop("history") == []
    assert [name for name, code in ended.items() if not re.fullmatch(r"[a-z.-]+", code)] == []


def test_the_history_and_two_of_its_measurements_as_functions(tmp_path, monkeypatch):
    monkeypatch.setenv("EDGEKIT_HISTORY", str(tmp_path / "history.sqlite"))
    assert edgekit.history().results == []
    with pytest.raises(DataError):
        edgekit.compare("last~1", "last")
    with pytest.raises(UsageError):
        edgekit.trace(TraceFiles(), tmp_path / "trace.json")
