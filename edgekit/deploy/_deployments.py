"""Deployments of one board: what it serves and deploys, going on, and going back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from edgekit.deploy._channel import LONG_S
from edgekit.deploy._jobs import JobClient

__all__ = ["DeploymentClient"]

_SERVE = {
    "start": ("serve", "--background"),
    "status": ("serve-status",),
    "reload": ("serve-status", "--reload"),
    "stop": ("serve-stop",),
    "install": ("serve-unit", "--install"),
    "uninstall": ("serve-unit", "--remove"),
}


class DeploymentClient(JobClient):
    """The commands about deployments; they are jobs of the kind "deploy"."""

    def status(self, app: str | None = None) -> dict[str, Any]:
        """Returns ``edgekit.board-status/1``: releases, deployments, servers, store and space."""
        return self._ask("status", *([f"--app={app}"] if app is not None else []), timeout=LONG_S)

    def resume(self, app: str | None = None) -> list[dict[str, Any]]:
        """Carries on deployments whose process died, as a power cut leaves them.

        Returns:
            "app", "job" and "state" (where it was cut off) of each; none in most cases.
        """
        options = [f"--app={app}"] if app is not None else []
        if self.board.container is not None:
            options.append("--no-run")
        found = list(self._ask("resume", *options, timeout=LONG_S)["resumed"])
        if self.board.container is not None:
            for one in found:
                self._run_contained(one["job"])
        return found

    def rollback(
        self, app: str, reason: str | None = None, release: str | None = None
    ) -> dict[str, Any]:
        """Makes an earlier release serve again, never one that was taken back itself.

        Args:
            app: The application.
            reason: For the board's history.
            release: Which; the one before by default.

        Returns:
            "app", "current", "previous", "from" (what served before) and "taken_back" ("release",
            "at" and "reason" of what was taken back).
        """
        options = [f"--reason={reason}"] if reason is not None else []
        options += [f"--release={release}"] if release is not None else []
        return self._ask("rollback", f"--app={app}", *options, timeout=LONG_S)

    def serve(self, app: str, action: str, options: Sequence[str] = ()) -> dict[str, Any]:
        """Starts, asks or ends the board's own server of an application (docs/serving.md).

        Args:
            app: The application.
            action: "start", "status", "reload", "stop", "install" or "uninstall" (a systemd unit).
            options: For "start" and "install", such as "--workers=2".

        Returns:
            "app", and "serving", "stopped", or "installed", "unit" and "file".
        """
        command, *own = _SERVE[action]
        if action in ("start", "install"):
            own += options
        return self._ask(command, f"--app={app}", *own, timeout=LONG_S)
