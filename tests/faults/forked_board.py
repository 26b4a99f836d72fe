"""A board in a folder whose commands run in forks of one prepared interpreter (``zygote``)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgekit.bundles.manifest import Bundle, blob_view
from edgekit_device.protocol.codec import write
from edgekit_device.release.policy import Policy
from tests.edgekit_device.device_board import envelope

__all__ = ["APP", "Answer", "Step", "Zygote", "collected", "copy_of", "deployment", "new_log"]

APP = "net"
# latency has no gate here, and a measurement would only take time
POLICY = Policy(measure_s=0.0, keep=2)
Step = tuple[list[str], bytes]


@dataclass(frozen=True)
class Answer:
    """How a run of commands ended: ``status`` as waitpid tells it, each command's own answer."""

    status: int
    answers: list[tuple[int, str]] | None
    before: dict[str, Any] | None
    check: dict[str, Any] | None

    @property
    def error(self) -> str:
        """The code of the last command's error; "" when it went well."""
        if not self.answers or self.answers[-1][0] == 0:
            return ""
        return str(json.loads(self.answers[-1][1])["error"]["code"])


class Zygote:
    """The prepared interpreter."""

    def __init__(self) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.zygote"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=Path(__file__).parents[2],
        )

    def run(self, steps: Iterable[Step] = (), **request: Any) -> Answer:
        """Runs commands one after the other in one process; the first failure ends it."""
        request["steps"] = [[argv, data.decode("latin-1")] for argv, data in steps]
        process = self._process
        assert process.stdin
        assert process.stdout
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        reported = json.loads(process.stdout.readline())
        answers = reported["answers"]
        answers = None if answers is None else [tuple(each) for each in answers]
        return Answer(reported["status"], answers, reported["before"], reported["check"])

    def close(self) -> None:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(300)


def deployment(root: Path, bundle: Bundle, *, resume: bool = False) -> list[Step]:
    """What a host and the board's job do for a whole deployment; first what a boot does."""
    everything = {**bundle.weights, **bundle.blobs}
    blobs = {
        digest: bytes(blob_view(data)).decode("latin-1") for digest, data in everything.items()
    }
    sent = {**json.loads(envelope(bundle)), "blobs": blobs}
    request = {
        "app": bundle.name,
        "digest": bundle.digest,
        "policy": write(POLICY),
        "operator": "tests",
    }
    where = str(root)
    first = [(["resume", where], b"")] if resume else []
    return [
        *first,
        (["send", where], json.dumps(sent).encode()),
        (["deploy", where], json.dumps(request).encode()),
    ]


def collected(root: Path) -> Step:
    """A collection of all that nobody needs now."""
    return ["gc", f"--root={root}", f"--app={APP}", "--keep=2", "--grace-s=0"], b""


def copy_of(root: Path, target: Path) -> Path:
    """A fresh copy of a board's folder."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(root, target, symlinks=True)
    return target


def new_log(folder: Path) -> Path:
    """An empty log for ``Watch``."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "pool").mkdir(parents=True)
    return folder
