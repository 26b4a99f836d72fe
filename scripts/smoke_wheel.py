#!/usr/bin/env python3
"""Builds the wheel and the sdist, installs each into an empty environment and runs it there.

    python scripts/smoke_wheel.py                     # with the Python that runs this
    python scripts/smoke_wheel.py --python python3.12 --python python3.13
    python scripts/smoke_wheel.py --output dist       # and keeps both files

It needs hatchling (of `edgekit[dev]`) and a package index. The installed package runs in a folder
outside the checkout: a check, a plan, a rule, the boards, and the loader that a board gets.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TARGET = "jetson-agx-orin-64gb"
# run by the installed Python: no file of the checkout may be imported
_NETWORK = """
import sys
from onnx import TensorProto, helper, numpy_helper, save
import numpy as np

weights = np.random.default_rng(0).standard_normal((8, 3, 3, 3)).astype("float32")
graph = helper.make_graph(
    [
        helper.make_node("Conv", ["x", "w"], ["c"], "conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["y"], "relu"),
    ],
    "smoke",
    [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 32, 32])],
    [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 8, 32, 32])],
    [numpy_helper.from_array(weights, "w")],
)
opset = [helper.make_opsetid("", 17)]
save(helper.make_model(graph, opset_imports=opset, ir_version=8), sys.argv[1])
"""
_LOADER = """
import sys
from edgekit.bundles.files import build_zipapp

build_zipapp(sys.argv[1])
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--python", action="append", metavar="PYTHON", help="may be repeated")
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="where to keep both files")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="edgekit-smoke-") as work:
        built = build((asked.output or Path(work, "dist")).resolve())
        for number, python in enumerate(asked.python or [sys.executable]):
            folder = Path(work, str(number))
            for path in built:
                try:
                    check_installed(install(path, folder / "venv", python), folder / path.name)
                except Failed as error:
                    print(f"{path.name} with {python}: {error}", file=sys.stderr)
                    return 1
                print(f"{path.name}: installs and runs with {printed_version(python)}", flush=True)
    return 0


class Failed(Exception):
    """A step failed."""


def build(folder: Path) -> list[Path]:
    """The wheel and the sdist, built with the installed hatchling."""
    environment = {**os.environ, "SOURCE_DATE_EPOCH": "1580601600"}
    call(sys.executable, "-m", "hatchling", "build", "-d", folder, cwd=ROOT, env=environment)
    return sorted(folder.glob("*.whl")) + sorted(folder.glob("*.tar.gz"))


def install(path: Path, venv: Path, python: str) -> Path:
    """Installs the file on top of the environment's packages; returns its Python."""
    inside = venv / "bin" / "python"
    if not inside.exists():
        call(python, "-m", "venv", venv)
        call(inside, "-m", "pip", "install", path)
    else:
        call(inside, "-m", "pip", "install", "--force-reinstall", "--no-deps", path)
    return inside


def check_installed(python: Path, folder: Path) -> None:
    """Runs the installed commands.

    Raises:
        Failed: Something did not end as it must.
    """
    folder.mkdir(parents=True)
    where = call(python, "-c", "import edgekit; print(edgekit.__file__)", cwd=folder).strip()
    if ROOT in Path(where).parents:
        raise Failed(f"the checkout was imported: {where}")
    own = {**os.environ, "EDGEKIT_CACHE": str(folder / "cache"), "HOME": str(folder)}
    own.pop("PYTHONPATH", None)

    def edgekit(*words: str) -> str:
        return call(python.parent / "edgekit", *words, cwd=folder, env=own)

    call(python, "-c", _NETWORK, "smoke.onnx", cwd=folder)
    version = call(python, "-c", "import edgekit; print(edgekit.__version__)", cwd=folder).strip()
    expect("--version", version in edgekit("--version"))
    expect("targets", TARGET in edgekit("targets"))
    expect("explain", "convolution" in edgekit("explain", "convolution.cbuf"))
    checked = json.loads(edgekit("check", "smoke.onnx", "--target", TARGET, "--json"))
    expect("check", checked["schema"] == "edgekit.check/1")
    expect("plan", bool(json.loads(edgekit("plan", "smoke.onnx", "--target", TARGET, "--json"))))
    edgekit("check", "builtin:light_resnet50", "--target", TARGET)
    edgekit("init", "smoke.onnx", "--target", TARGET, "--output", "smoke.yaml")
    edgekit("report", "smoke.yaml", "--out", "out")
    expect("page", "</html>" in (folder / "out" / "report.html").read_text())
    call(python, "-c", _LOADER, "edgekit_device.pyz", cwd=folder, env=own)
    expect("loader", version in call(python, "edgekit_device.pyz", "hello", cwd=folder, env=own))


def expect(step: str, holds: bool) -> None:
    if not holds:
        raise Failed(f"{step} does not answer as it must")


def printed_version(python: str) -> str:
    return call(python, "--version").strip()


def call(*words: str | Path, cwd: Path | None = None, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        [*map(str, words)], cwd=cwd, env=env, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise Failed(
            f"{' '.join(map(str, words))[:200]} ended with {done.returncode}:\n"
            f"{done.stdout[-2000:]}{done.stderr[-2000:]}"
        )
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
