"""What starting the loader costs: a command imports its own module and no other's."""

from __future__ import annotations

import argparse
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import edgekit_device
from edgekit.bundles.files import build_zipapp
from edgekit_device import commands
from edgekit_device.board.identity import COMPARED
from edgekit_device.runtime.model import BACKENDS


def _is_function(text: str) -> bool:
    return text.startswith("do_")


def test_every_command_has_its_function() -> None:
    parser = commands.make_parser()
    (choices,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    assert {"hello", "probe", "stage", "refit", "job-start", "gc"} <= set(choices.choices)
    for name, one in choices.choices.items():
        cells = [cell.cell_contents for cell in one.get_default("call").__closure__]
        module, function = sorted((c for c in cells if isinstance(c, str)), key=_is_function)
        assert callable(getattr(import_module("edgekit_device." + module), function)), name


def test_the_package_gives_all_that_it_names() -> None:
    for name in edgekit_device.__all__:
        assert getattr(edgekit_device, name) is not None
    with pytest.raises(AttributeError, match="nonsense"):
        edgekit_device.nonsense  # noqa: B018


def test_hello_names_the_backends_that_there_are() -> None:
    assert sorted(COMPARED) == sorted(BACKENDS)


@pytest.mark.parametrize("command", ["releases", "missing"])
def test_small_questions_import_no_engine(tmp_path: Path, command: str) -> None:
    loader = tmp_path / "loader.pyz"
    build_zipapp(loader)
    argv = [sys.executable, "-X", "importtime", str(loader), command, f"--root={tmp_path}"]
    done = subprocess.run(argv, input="[]", capture_output=True, text=True, check=True)
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "edgekit_device.commands" in imported
    for module in (
        "edgekit_device.board.probe",
        "edgekit_device.cuda.kernels",
        "edgekit_device.job_runner",
        "edgekit_device.runtime.reference",
        "edgekit_device.tensorrt.backend",
    ):
        assert module not in imported
    assert "numpy" not in imported
