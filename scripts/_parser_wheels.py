"""NVIDIA's own ONNX parser and builder: TensorRT for RTX, which parses and builds without a GPU.

The wheels are NVIDIA's, under NVIDIA's licence: they are fetched into a folder of the job, and no
file from them is kept, shipped or committed.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

__all__ = ["MODULE", "RELEASE", "Unavailable", "fetch", "import_module_from"]

RELEASE = "1.7.1.116"
MODULE = "tensorrt_rtx_bindings"
_PACKAGES = ("tensorrt-rtx-cu12-bindings", "tensorrt-rtx-cu12-libs")
_SECONDS = 180


class Unavailable(Exception):
    """The wheels cannot be had here."""


def fetch(folder: Path) -> None:
    """Installs the wheels of :data:`RELEASE` into a folder, without their dependencies.

    Raises:
        Unavailable: pip cannot get them.
    """
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile"]
    command += ["--disable-pip-version-check", "--no-input", "--retries", "1", "--timeout", "20"]
    command += ["--only-binary", ":all:", "--target", str(folder)]
    command += [f"{name}=={RELEASE}" for name in _PACKAGES]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_SECONDS
        )
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"pip took more than {_SECONDS} s") from error
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        raise Unavailable(lines[-1] if lines else "pip install failed")


def import_module_from(folder: Path) -> Any:
    """Imports NVIDIA's module from the folder that :func:`fetch` filled."""
    sys.path.insert(0, str(folder))
    return importlib.import_module(MODULE)
