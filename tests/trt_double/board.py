"""A board's Python for tests: `tensorrt`, its lean kin and cuda-python are the double's."""

import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from . import double, fake_driver
from ._memory import MEMORY

SITE = Path(__file__).resolve().parent / "site"


def board_python(
    folder: Path,
    version: str,
    flavours: Sequence[str] = ("full", "lean", "dispatch"),
    cuda: str = "new",
    **settings: Any,
) -> Path:
    """Writes a `python3` whose processes (and their children) find the double of `version`.

    Args:
        folder: Where `python3`, its settings and the file of offences go.
        flavours: Which of `tensorrt`, `tensorrt_lean`, `tensorrt_dispatch` are installed.
        cuda: Layout of cuda-python: "new", "old" or "none".
        settings: Of `Double.settings`, as JSON; also `gpu_only`.

    Returns:
        The script's path; offences go to `violations.txt` beside it (read with `offences`).
    """
    folder.mkdir(parents=True, exist_ok=True)
    notes, facts = folder / "violations.txt", folder / "double.json"
    facts.write_text(json.dumps({**settings, "violations": str(notes)}))
    environment = {
        "PYTHONPATH": str(SITE),
        "EDGEKIT_TEST_TENSORRT": version,
        "EDGEKIT_TEST_TENSORRT_FLAVOURS": ",".join(flavours),
        "EDGEKIT_TEST_TENSORRT_SETTINGS": str(facts),
        "EDGEKIT_TEST_CUDA": cuda,
    }
    lines = [f"export {name}={shlex.quote(value)}" for name, value in environment.items()]
    script = folder / "python3"
    script.write_text("\n".join(["#!/bin/sh", *lines, f'exec {sys.executable} "$@"', ""]))
    script.chmod(0o755)
    return script


def board_trtexec(python: Path) -> Path:
    """Writes a `trtexec` beside `board_python`'s script, of the same release and settings."""
    script = python.parent / "trtexec"
    program = "from _edgekit_double import package; import sys; "
    program += "sys.argv[0] = 'trtexec'; sys.exit(package('trtexec_main').main(sys.argv[1:]))"
    script.write_text(f'#!/bin/sh\nexec {shlex.quote(str(python))} -c "{program}" "$@"\n')
    script.chmod(0o755)
    return script


def offences(script: Path) -> list[str]:
    """What the processes of `board_python`'s script did against the rules."""
    notes = script.parent / "violations.txt"
    return notes.read_text().splitlines() if notes.exists() else []


def install(
    monkeypatch: Any, version: str, flavours: Sequence[str] = ("full",), cuda: str = "new"
) -> dict[str, ModuleType]:
    """Puts the double into this process's `sys.modules` for one test; the modules by flavour."""
    MEMORY.reset()
    found = {}
    for flavour, name in double.NAMES.items():
        if flavour in flavours:
            found[flavour] = double.module(version, flavour)
            monkeypatch.setitem(sys.modules, name, found[flavour])
        else:  # None makes the import fail, whatever is installed
            monkeypatch.setitem(sys.modules, name, None)
    names: dict[str, Any] = dict.fromkeys(
        ("cuda", "cuda.bindings.driver", "cuda.bindings.runtime", "cuda.cuda", "cuda.cudart")
    )
    if cuda != "none":
        names.update(fake_driver.modules(cuda))
    for name, made in names.items():
        monkeypatch.setitem(sys.modules, name, made)
    return found
