#!/usr/bin/env python3
"""Builds the plugin example's network with NVIDIA's own registry, parser and builder.

scripts/check_plugin.py [--wheels FOLDER] [--library libcustom_pool.so]

Fetches TensorRT for RTX (TensorRT 11's API, without a GPU) into a temporary folder. Child processes
register CustomPool, as a Python plugin or from the C++ plugin's library, and parse and build
examples/plugin/lenet.onnx; without the plugin the board and the parser must refuse it. Where
the registry has no such wheels it prints that and exits with 0.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from _parser_wheels import Unavailable, fetch

HERE = Path(__file__).resolve().parent
# the library that the parser opens when it has made a plugin; the wheel has the library under
# another name, and without it the process ends in std::terminate
OPENED, SHIPPED = "libtensorrt_rtx.so", "tensorrt_rtx_libs/libtensorrt_rtx.so.1"
_SECONDS = 300


def main() -> int:
    """Runs the check; returns 1 if an answer is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--wheels", type=Path, help="a folder with the wheels, instead of fetching")
    parser.add_argument("--library", type=Path, help="the C++ plugin, for this machine")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        wheels = given.wheels or Path(folder)
        try:
            if given.wheels is None:
                fetch(wheels)
        except Unavailable as reason:
            print(f"check_plugin: not run, no wheels ({reason})")
            return 0
        links = Path(folder) / "links"
        links.mkdir()
        (links / OPENED).symlink_to((wheels / SHIPPED).resolve())
        asked = ["none", "python", *([str(given.library.resolve())] if given.library else [])]
        wrong = [which for which in asked if not _check_build(which, wheels, links)]
    print(f"check_plugin: {len(asked) - len(wrong)} of {len(asked)} as they must be")
    return int(bool(wrong))


def _check_build(which: str, wheels: Path, links: Path) -> bool:
    """Prints a child's answer; returns True if it is right."""
    folders = filter(None, [str(links), os.environ.get("LD_LIBRARY_PATH", "")])
    done = subprocess.run(
        [sys.executable, str(HERE / "_plugin_child.py"), str(wheels), which],
        env={**os.environ, "LD_LIBRARY_PATH": ":".join(folders)},
        capture_output=True,
        text=True,
        check=False,
        timeout=_SECONDS,
    )
    if done.returncode:
        print(f"check_plugin: {which}: exit status {done.returncode}\n{done.stderr}")
        return False
    # TensorRT's logger writes there, too
    found = json.loads(done.stdout.splitlines()[-1])
    print(f"check_plugin: {which}: {found}")
    if which == "none":
        said = (found["refused"], "Plugin not found" in found["error"])
        return not found["parsed"] and said == ("plugin.creator", True)
    made = (found["refused"], found["registered"], found["kind"], found["shape"])
    return made == ("", True, "PLUGIN_V3", [1, 16, 4, 4]) and found["plan_bytes"] > 0


if __name__ == "__main__":
    sys.exit(main())
