"""Published TensorRT bindings: fetched as wheels, imported against empty substitute libraries.

The bindings hold no GPU code and link only to TensorRT's own libraries, so libraries with empty
functions of the needed names let every class and signature be read without a GPU.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

__all__ = ["WHEELS", "Unavailable", "fetch", "read"]

HERE = Path(__file__).resolve().parent
# (release, flavour) -> requirement; 8.5.2 was never published, lean 8.6.1 has a name of its own
WHEELS = {
    ("8.6.1", "full"): "tensorrt-bindings==8.6.1",
    ("8.6.1", "lean"): "tensorrt-lean-bindings==8.6.1",
    ("10.3.0", "full"): "tensorrt-cu12-bindings==10.3.0",
    ("10.3.0", "lean"): "tensorrt-lean-cu12-bindings==10.3.0",
    ("10.7.0", "full"): "tensorrt-cu12-bindings==10.7.0",
    ("10.7.0", "lean"): "tensorrt-lean-cu12-bindings==10.7.0",
    ("10.16.1", "full"): "tensorrt-cu12-bindings==10.16.1.11",
    ("10.16.1", "lean"): "tensorrt-lean-cu12-bindings==10.16.1.11",
    ("10.16.1", "dispatch"): "tensorrt-dispatch-cu12-bindings==10.16.1.11",
    ("11.4.0", "full"): "tensorrt-cu12-bindings==11.4.0.106",
    ("11.4.0", "lean"): "tensorrt-lean-cu12-bindings==11.4.0.106",
}
_LIBRARIES = {
    "full": ("nvinfer", "nvonnxparser", "nvinfer_plugin", "nvparsers"),
    "lean": ("nvinfer_lean",),
    "dispatch": ("nvinfer_dispatch",),
}
_MOST_SYMBOLS = 200
# functions that bindings were found to ask of the libraries
_SYMBOLS = ["createInferRuntime_INTERNAL", "createInferRefitter_INTERNAL", "getPluginRegistry"]


class Unavailable(Exception):
    """No registry, no compiler, or no wheel for this Python: no release can be checked."""


def fetch(requirement: str, cache: Path) -> Path:
    """The unpacked wheel in `cache`, downloaded when it is not there.

    Raises:
        Unavailable: pip cannot get it.
    """
    python = "".join(map(str, sys.version_info[:2]))
    folder = cache / f"{requirement.replace('==', '-')}-cp{python}"
    if folder.is_dir():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as work:
        requested = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--retries",
            "1",
        ]
        requested += ["--timeout", "20", "--disable-pip-version-check", "--only-binary", ":all:"]
        done = subprocess.run(
            [*requested, "-d", work, requirement], capture_output=True, text=True, check=False
        )
        wheels = list(Path(work).glob("*.whl"))
        if done.returncode or not wheels:
            lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
            raise Unavailable(f"{requirement}: {lines[-1] if lines else 'pip download failed'}")
        unpacked = Path(work) / "unpacked"
        with zipfile.ZipFile(wheels[0]) as archive:
            archive.extractall(unpacked)
        unpacked.rename(folder)
    return folder


def read(folder: Path, release: str, flavour: str, loader: Path) -> dict[str, Any]:
    """Returns the output of `_bindings_child.py` for the package in `folder`.

    Raises:
        Unavailable: There is no C compiler.
        RuntimeError: The import fails for another reason than a missing symbol.
    """
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise Unavailable("no C compiler for the substitute libraries")
    name = next(name for name in os.listdir(folder) if name.endswith("_bindings"))
    with tempfile.TemporaryDirectory() as work:
        while len(_SYMBOLS) < _MOST_SYMBOLS:
            _build_stand_ins(Path(work), release.partition(".")[0], flavour, compiler)
            done = subprocess.run(
                [sys.executable, str(HERE / "_bindings_child.py"), str(folder), name, str(loader)],
                capture_output=True,
                text=True,
                check=False,
                env={**os.environ, "LD_LIBRARY_PATH": work},
            )
            if done.returncode == 0:
                found: dict[str, Any] = json.loads(done.stdout)
                return found
            missing = re.search(r"undefined symbol: (\w+)", done.stderr)
            if missing is None:
                break
            _SYMBOLS.append(missing[1])
    raise RuntimeError(f"{name} {release}: {done.stderr.strip().splitlines()[-1]}")


def _build_stand_ins(folder: Path, major: str, flavour: str, compiler: str) -> None:
    source = folder / "empty.c"
    source.write_text("".join(f"void *{name}(void) {{ return 0; }}\n" for name in _SYMBOLS))
    for library in _LIBRARIES[flavour]:
        name = f"lib{library}.so.{major}"
        subprocess.run(
            [compiler, "-shared", "-fPIC", "-w", str(source), "-o", name, f"-Wl,-soname,{name}"],
            cwd=folder,
            check=True,
        )
