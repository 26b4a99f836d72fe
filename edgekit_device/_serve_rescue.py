"""Takes a release back that crashes as soon as it serves; runs the loader's commands beside."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Callable, Dict, List

from ._deploy_lock import is_claimed
from ._errors import DeviceError
from ._release import earlier
from ._root import App
from ._serve_crew import Crew, environment
from ._serve_health import Health, Record

__all__ = ["Rescue", "loader_argv"]

_CRASHES = 3


class Rescue:
    """Starts ``rollback`` after the third crash of a new release within a minute.

    Args:
        app: Whose releases.
        health: Is told of it.
        record: Which releases are proven, and which were given up.
        log: Takes one line.
        loader: The program that commands are given to.
    """

    def __init__(
        self,
        app: App,
        health: Health,
        record: Record,
        log: Callable[[str], None],
        loader: List[str],
    ) -> None:
        self.app, self.health, self.record, self.log = app, health, record, log
        self._loader = loader
        self._commands: Dict[str, subprocess.Popen[bytes]] = {}

    def consider(self, crew: Crew, now: float) -> None:
        """Goes back where a crew has crashed too often, and the release is the one to blame."""
        if crew.recent(now) < _CRASHES or "rollback" in self._commands:
            return
        release = self.app.link("current")
        known = self.record.proven + self.record.given_up
        if release != crew.release or release in known or is_claimed(self.app):
            return  # a deployment that is under way judges its release itself
        previous = earlier(self.app)
        if previous is None or previous in self.record.given_up:
            return
        self.record.given_up.append(crew.release)
        self.record.write()
        told = DeviceError(
            "it crashed {} times within a minute, so the server goes back to {}".format(
                _CRASHES, previous
            ),
            code="serve.rolled-back",
            where="{}/{}".format(self.app.name, crew.release),
        )
        self.health.rolled_back = self.health.note(told.to_json()["error"])
        self.log("{}: {}".format(told.where, told.message))
        self.command("rollback", "--reason", told.message)

    def command(self, name: str, *options: str) -> None:
        """Starts a command of the loader beside the server."""
        argv = [*self._loader, name, "--root", str(self.app.root.folder), "--app", self.app.name]
        argv += options
        self._commands[name] = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            start_new_session=True,
            env=environment(),
        )

    def heard(self) -> bool:
        """Whether a command has ended since; one that failed is logged."""
        ended = False
        for name, process in list(self._commands.items()):
            if process.poll() is None:
                continue
            del self._commands[name]
            assert process.stdout is not None
            with process.stdout:
                said = process.stdout.read(1 << 16).decode("utf-8", "replace").strip()
            if process.returncode:
                self.log("{} failed: {}".format(name, _message(said)))
                if name == "rollback":
                    self.health.rolled_back = None
                    told = DeviceError(_message(said), code="serve.rollback-failed", where=name)
                    self.health.note(told.to_json()["error"])
            ended = True
        return ended


def loader_argv() -> List[str]:
    """How this loader's commands are run."""
    from ._hello import loader_file

    file = loader_file()
    return [sys.executable, *(["-m", "edgekit_device"] if file is None else [str(file)])]


def _message(said: str) -> str:
    try:
        return str(json.loads(said)["error"]["message"])
    except (ValueError, LookupError, TypeError):
        return said[-200:]
