"""The public surface, name by name, and that floors which share a command's name can be called."""

import subprocess
import sys
from importlib import import_module

import pytest

import edgekit
from tests.pipeline.nets import small_net

FLOORS = ("errors", "network", "targets", "dla", "buildlog", "rewrite", "quantize", "solver",
          "placement", "build", "trt", "sensitivity", "bundle", "deploy", "bench", "history",
          "report", "config", "pipeline", "fleet")  # fmt: skip


@pytest.mark.parametrize("floor", FLOORS)
def test_every_public_name_is_there(floor):
    module = import_module(f"edgekit.{floor}")
    assert module.__all__
    for name in module.__all__:
        assert getattr(module, name) is not None


def test_functions_of_the_commands():
    names = {"check", "rewrite", "calibrate", "plan", "build", "bundle", "deploy", "rollback",
             "refit", "infer", "bench", "run", "why", "what_if", "pareto", "plan_table", "solve",
             "plan_of_log", "plan_networks", "tune", "trace", "compare", "history",
             "top"}  # fmt: skip
    assert all(callable(getattr(edgekit, name)) for name in names)
    with pytest.raises(AttributeError):
        _ = edgekit.nothing


def test_import_order_does_not_matter():
    code = (
        "import edgekit.build, edgekit\n"
        "from edgekit import bench\n"
        "print(callable(edgekit.build), callable(bench), edgekit.build.__name__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split() == ["True", "True", "edgekit.build"]


def test_check_plan_and_build_as_functions(tmp_path):
    small_net(tmp_path / "small.onnx")
    model, target = tmp_path / "small.onnx", "jetson-agx-orin-64gb"
    document = edgekit.check(model, target=target, precision="fp16")
    assert document["schema"] == "edgekit.check/1"
    plan = edgekit.plan(model, target=target, placement={"objective": "gpu_time"})
    assert plan.objective == "gpu_time"
    built = edgekit.build(model, target=target, calibration={"count": 2})
    assert built["backend"] == "reference"


def test_the_history_and_two_of_its_measurements_as_functions(tmp_path, monkeypatch):
    monkeypatch.setenv("EDGEKIT_HISTORY", str(tmp_path / "history.sqlite"))
    assert edgekit.history()["results"] == []
    with pytest.raises(edgekit.errors.DataError):
        edgekit.compare("last~1", "last")
    with pytest.raises(edgekit.errors.UsageError):
        edgekit.trace(edgekit.pipeline.TraceFiles(), tmp_path / "trace.json")


def test_imports_point_downwards():
    """A floor imports only floors below it; edgekit_device imports nothing of edgekit."""
    import ast
    from pathlib import Path

    order = [
        "errors",
        "_data",
        "_callable",
        "_sets",
        "_listed",
        "_plain",
        *FLOORS[1:],
        "_api_measuring",
        "_api",
        "cli",
    ]
    allowed_up = {("_callable", "_api")}  # resolved when called, not when imported
    root = Path(edgekit.__file__).parent
    faults = []
    for file in [*root.rglob("*.py"), *(root.parent / "edgekit_device").rglob("*.py")]:
        own = file.relative_to(root.parent).parts
        floor = own[1].removesuffix(".py") if own[0] == "edgekit" else "edgekit_device"
        for node in ast.walk(ast.parse(file.read_text())):
            module = node.module if isinstance(node, ast.ImportFrom) and not node.level else None
            if not module or module.split(".")[0] != "edgekit":
                continue
            if floor == "edgekit_device":
                faults.append(f"{file}: {module}")
                continue
            names = module.split(".")[1:2] or [alias.name for alias in node.names]
            for name in names:
                known = floor in order and name in order and (floor, name) not in allowed_up
                if known and order.index(name) > order.index(floor):
                    faults.append(f"{floor} imports {name} in {file.name}")
    assert faults == []
