"""``ansible-runner`` as a program: a playbook is run, and told task by task and board by board."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgekit.errors import EnvironmentLack

__all__ = ["Event", "Runner", "program"]

_TOLD = {
    "runner_on_ok": "ok",
    "runner_on_failed": "failed",
    "runner_on_unreachable": "unreachable",
    "runner_on_skipped": "skipped",
}


@dataclass(frozen=True, slots=True)
class Event:
    """What a task did on a board: "ok", "failed", "unreachable" or "skipped", and its result."""

    host: str
    task: str
    what: str
    result: dict[str, Any]


def program() -> str:
    """Returns ``ansible-runner``: this Python's own, or the one in $PATH.

    Raises:
        EnvironmentLack: "fleet.no-ansible".
    """
    own = Path(sys.executable).with_name("ansible-runner")
    found = str(own) if own.is_file() else shutil.which("ansible-runner")
    if found is None:
        raise EnvironmentLack(
            "ansible-runner is not installed",
            code="fleet.no-ansible",
            hint="pip install 'edgekit[ansible]', or take --driver ssh",
        )
    return found


class Runner:
    """Runs the playbooks of a folder, one at a time.

    Args:
        folder: As ``lay_out`` wrote it; what a run leaves there is removed again.
        forks: Boards at a time.
    """

    def __init__(self, folder: Path, forks: int) -> None:
        self._folder = folder
        self._forks = forks
        self._process: subprocess.Popen[str] | None = None
        self._closed = threading.Event()
        self.last = ""

    def events(self, playbook: str, inventory: str) -> Iterator[Event]:
        """Yields what happens, as it happens; ``last`` is then what the program said at its end."""
        artifacts = self._folder / "artifacts"
        command = [
            program(), "run", str(self._folder), "--project-dir", str(self._folder),
            "--inventory", str(self._folder / inventory), "--artifact-dir", str(artifacts),
            "--forks", str(self._forks), "--playbook", playbook, "--json",
        ]  # fmt: skip
        # ansible-playbook lies beside it, also where that folder is not in $PATH
        path = os.pathsep.join([str(Path(command[0]).parent), os.environ.get("PATH", "")])
        self.last = ""
        try:
            # a session of its own: Ctrl-C pauses a rollout, and boards under way are waited for
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, text=True, start_new_session=True,
                errors="replace", env={**os.environ, "PATH": path},
            )  # fmt: skip
            if self._closed.is_set():
                self._process.terminate()
            assert self._process.stdout
            with self._process.stdout as lines:
                for line in lines:
                    yield from self._event(line)
            self._process.wait()
        finally:
            shutil.rmtree(artifacts, ignore_errors=True)

    def _event(self, line: str) -> Iterator[Event]:
        try:
            told = json.loads(line)
            data = told.get("event_data") or {}
            what = _TOLD.get(told["event"])
        except (ValueError, KeyError, AttributeError):
            self.last = line.strip() or self.last
            return
        if what is not None and data.get("host"):
            result = data.get("res") or {}
            yield Event(str(data["host"]), str(data.get("task")), what, result)
        elif told["event"] in ("error", "verbose") and told.get("stdout"):
            self.last = str(told["stdout"]).strip()

    def close(self) -> None:
        """Ends what runs; boards under way end by themselves what they began."""
        self._closed.set()
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
