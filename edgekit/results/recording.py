"""Stores a measurement with its commit, bundle, board and settings, and later adds its energy or
verdict, for example from a power log.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from edgekit import timeouts
from edgekit.benchmark.document import Bench
from edgekit.errors import DataError
from edgekit.results.store import (
    Git,
    Result,
    ResultStore,
    StoredResult,
    history_path,
    pack_document,
    pack_samples,
)
from edgekit_device.board.identity import Hello
from edgekit_device.protocol.codec import write

# a repository's configuration names programs that git would start; none is needed to query
_SAFE = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")
# of a board's hello and of a measurement's environment
_FINGERPRINT = (
    "module",
    "board_id",
    "l4t",
    "tensorrt",
    "machine",
    "python",
    "numpy",
    "onnxruntime",
)
# keys that enter a result's digest together with its samples
# without energy and verdict, which `amend` may change
_MEASURED = ("clock", "latency_ms", "throughput_qps", "segments", "pipelined", "settings", "board")


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
    """Returns the commit of a branch, tag or abbreviation in a folder; None if it is unknown."""
    # git would take it for an option
    if name.startswith("-"):
        return None
    # an annotated tag is an object of its own: ^{commit} is what it points to (gitrevisions(7))
    return _git(folder, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}") or None


def _git(folder: Path, *arguments: str) -> str:
    """Returns git's output, or "" if git fails or is not installed."""
    # `git status` must not refresh the index of a repository in which another git may run; and no
    # password is asked for
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"}
    try:
        done = subprocess.run(
            ["git", *_SAFE, *arguments],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=timeouts.GIT_S,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except (OSError, subprocess.SubprocessError, ValueError):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


class Project(Protocol):
    """The attributes of a configuration that recording reads."""

    @property
    def folder(self) -> Path:
        """The folder of its file."""


class MeasuredRelease(Protocol):
    """The attributes of a measured release that recording reads."""

    @property
    def digest(self) -> str | None:
        """The bundle's digest."""

    @property
    def release(self) -> str | None:
        """Its id on the board."""

    @property
    def hello(self) -> Hello | None:
        """The board's own description."""


def record(
    document: Bench,
    *,
    config: Project | None = None,
    release: MeasuredRelease | None = None,
    path: Path | None = None,
) -> int:
    """Keeps a measurement in the history.

    Args:
        document: A measurement; its "samples_ms" are stored, too.
        config: The project, whose folder's git commit is stored.
        release: The measured release, if known.
        path: The history's file; by default $EDGEKIT_HISTORY or the file in the cache folder.

    Returns:
        The result's id. A measurement that is already recorded keeps its id.

    Raises:
        DataError: The document has no measurement.
        EnvironmentLack: The history cannot be written. Callers warn and continue: the measurement
            matters more than its entry.
    """
    if not document.latency_ms:
        raise DataError("there is no measurement to record", code="history.nothing-measured")
    result = _describe_result(document, config, release)
    git = result.git
    with ResultStore(path, write=True) as store:
        return store.add(
            StoredResult(
                digest=digest_of_run(result, result.bundle),
                at=time.time(),
                name=document.name,
                clock=document.clock,
                verdict=result.verdict,
                board=result.board,
                host=result.host,
                target=document.target,
                power_mode=result.power_mode,
                precision=document.precision,
                backend=document.backend,
                bundle=result.bundle,
                release=result.release,
                fingerprint=_json(result.fingerprint),
                git_commit=git.commit if git else None,
                git_dirty=git.dirty if git else None,
                settings=_json(write(result.settings)),
                runtime=_json(write(result.runtime)),
                iterations=document.iterations or len(result.samples),
                median_ms=result.latency_ms("median"),
                p99_ms=result.latency_ms("p99"),
                throughput_qps=document.throughput_qps,
                energy_uj=result.energy_uj,
                document=pack_document(result.document),
                samples=pack_samples(result.samples),
            )
        )


def _describe_result(
    document: Bench, config: Project | None, release: MeasuredRelease | None
) -> Result:
    environment, hello = document.environment or {}, release.hello if release else None
    known = {key: getattr(hello, key, None) or environment.get(key) for key in _FINGERPRINT}
    # this machine's name if its own processor ran it: every machine has a "local"
    remote = document.board is not None and document.board.kind == "remote"
    host = "" if remote else platform.node()
    return replace(
        result_of_document(document),
        git=git_state(config.folder) if config is not None else None,
        bundle=release.digest if release else None,
        release=release.release if release else None,
        host=host,
        fingerprint={key: value for key, value in known.items() if value},
    )


def result_of_document(document: Bench, label: str = "") -> Result:
    """Returns a measurement as a result, with the samples moved out of its document."""
    board = document.board
    return Result(
        document=document.model_copy(update={"samples_ms": None}),
        samples=tuple(document.samples_ms or ()),
        label=label,
        board=f"{board.kind or ''}:{board.name or ''}" if board else "",
        release=str((document.environment or {}).get("release") or "") or None,
    )


def digest_of_run(result: Result, bundle: str | None) -> str:
    """Returns the digest that identifies a measurement, over its values and its bundle."""
    document = result.document.to_json()
    parts = [{key: document.get(key) for key in _MEASURED}, result.samples, bundle]
    return hashlib.sha256(_json(parts).encode()).hexdigest()


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def amend(document: Bench, *, path: Path | None = None) -> int | None:
    """Updates a recorded measurement with the document's energy, monitor and verdict.

    Args:
        document: The measurement, with the same times as the recorded result.
        path: The history's file; by default $EDGEKIT_HISTORY or the file in the cache folder.

    Returns:
        The result's id; None if the history lacks the measurement.

    Raises:
        EnvironmentLack: The history cannot be written.
    """
    if not (path or history_path()).exists():
        return None
    result = _describe_result(document, None, None)
    with ResultStore(path, write=True) as store:
        for bundle in store.bundles(result.name):
            # the document does not name its bundle
            found = store.amend(
                digest_of_run(result, bundle),
                verdict=result.verdict,
                energy_uj=result.energy_uj,
                document=pack_document(result.document),
            )
            if found is not None:
                return found
    return None
