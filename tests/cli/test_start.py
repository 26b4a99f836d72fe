"""What `check` and `explain` import: a heavy module there would be paid for at every start."""

import json
import os
import subprocess
import sys

import pytest

from tests.pipeline.nets import small_net

HEAVY = {
    "edgekit.build", "edgekit.config", "edgekit.quantize", "edgekit.pipeline._pipeline",
    "highspy", "jinja2", "onnxruntime", "paramiko", "PIL", "pydantic", "rich", "typer",
}  # fmt: skip
CODE = """
import json, os, sys
from edgekit.cli import main
stdout, sys.stdout = sys.stdout, open(os.devnull, "w")
try:
    main(sys.argv[1:])
except SystemExit as end:
    print(json.dumps([end.code, sorted(sys.modules)]), file=stdout)
"""


def modules_after(*arguments, **variables):
    """Returns the modules that a command has imported when it is done."""
    done = subprocess.run(
        [sys.executable, "-c", CODE, *arguments], capture_output=True, text=True, check=True,
        timeout=60, env={**os.environ, **variables},
    )  # fmt: skip
    status, modules = json.loads(done.stdout)
    assert status == 0, done.stderr
    return set(modules)


@pytest.fixture(scope="module")
def net(tmp_path_factory):
    path = tmp_path_factory.mktemp("net") / "small.onnx"
    small_net(path)
    return str(path)


@pytest.mark.parametrize("form", ["--json", "--by-layer"])
def test_check_of_a_model_imports_nothing_heavy(form, net, tmp_path):
    arguments = ("check", net, "--target", "jetson-agx-orin-64gb", form)
    cache = str(tmp_path / "cache")
    first = modules_after(*arguments, EDGEKIT_CACHE=cache)
    assert first & HEAVY == set()
    assert "yaml" in first
    again = modules_after(*arguments, EDGEKIT_CACHE=cache)
    assert again & {*HEAVY, "yaml"} == set()


def test_explain_imports_no_onnx(tmp_path):
    assert modules_after("explain", "general.batch") & {*HEAVY, "onnx", "numpy"} == set()
