"""A loader whose "build" is a toy that a test steers step by step; everything around it is real."""

from __future__ import annotations

import json
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from edgekit.bundles.files import build_zipapp

__all__ = ["gone", "request", "toy_loader", "until"]

TOY = """
import os, signal, subprocess, sys, time
from edgekit_device.errors import DeviceError


def run(context):
    made = []
    for step in context.request["steps"]:
        word, rest = step[0], step[1:]
        if word == "progress":
            context.progress(*rest)
        elif word == "log":
            context.log(rest[0])
        elif word == "print":
            print(rest[0])
        elif word == "store":
            made.append(context.store(rest[0].encode() * rest[1]))
        elif word == "read":
            made.append(context.blob(rest[0]).decode())
        elif word == "fail":
            raise DeviceError("it failed", code=rest[0], where="layer", hint="do better")
        elif word == "crash":
            os.kill(os.getpid(), getattr(signal, rest[0]))
        elif word == "trouble":
            raise RuntimeError("what nobody expected")
        elif word == "open":
            open(rest[0]).close()
        elif word == "wait":
            while not os.path.exists(rest[0]):
                context.check_cancelled()
                time.sleep(0.01)
        elif word == "deaf":
            context.progress("deaf", 0, 0)
            while True:
                time.sleep(0.01)
        elif word == "child":
            child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
            context.log("child %d" % child.pid)
        elif word == "fill":
            with open(os.path.join(str(context.work), "big"), "wb") as file:
                while True:
                    file.write(b"x" * 65536)
                    file.flush()
    return {"schema": "toy", "made": made}
"""


def toy_loader(path: Path) -> Path:
    """Writes the real loader with the toy in the place of its build."""
    build_zipapp(path)
    with zipfile.ZipFile(path) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    files["edgekit_device/build/job.py"] = TOY.encode()
    with path.open("wb") as file:
        file.write(b"#!/usr/bin/env python3\n")
        with zipfile.ZipFile(file, "a") as archive:
            for name, data in sorted(files.items()):
                archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), data)
    path.chmod(0o755)
    return path


def request(*steps: list[Any], name: str = "net") -> dict[str, Any]:
    """A request for the toy."""
    json.dumps(steps)
    return {"name": name, "steps": list(steps)}


def until(true: Callable[[], Any], seconds: float = 300.0) -> Any:
    """Asks again until the answer is true; the time is only a limit."""
    deadline = time.monotonic() + seconds
    while not (answer := true()):
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.01)
    return answer


def gone(pid: int) -> bool:
    """True if a process is not there, or a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
