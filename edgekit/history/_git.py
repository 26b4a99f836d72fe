"""Which commit a project's folder is at, asked of git where there is one."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from edgekit.history._types import Git

__all__ = ["git_state", "revision"]

_WAIT_S = 10.0
# a repository's configuration names programs that git would start; none is needed to ask
_SAFE = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")


def git_state(folder: Path) -> Git | None:
    """Returns the commit of the repository that holds ``folder``; None without one or without git.

    Files that git does not track do not make it dirty: results are written among them.
    """
    commit = _git(folder, "rev-parse", "--verify", "HEAD")
    if not commit:
        return None
    changed = _git(folder, "status", "--porcelain", "--untracked-files=no", "--ignore-submodules")
    return Git(commit, dirty=bool(changed))


def revision(name: str, folder: Path) -> str | None:
    """Returns the commit that a branch, tag or abbreviation means there; None when it is none."""
    if name.startswith("-"):
        return None
    return _git(folder, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}") or None


def _git(folder: Path, *arguments: str) -> str:
    """Returns what git prints, or nothing where it fails or is not there."""
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"}
    try:
        done = subprocess.run(
            ["git", *_SAFE, *arguments], cwd=folder, env=environment, capture_output=True,
            text=True, timeout=_WAIT_S, stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError, ValueError):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
