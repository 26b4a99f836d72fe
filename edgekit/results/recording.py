"""Stores a measurement with what it belongs to: commit, bundle, board and settings; and amends
it with what became known later, such as the power of a log.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from edgekit.benchmark.document import Bench
from edgekit.errors import DataError
from edgekit.results.store import (
    Git,
    Result,
    ResultStore,
    history_path,
    pack_document,
    pack_samples,
    row_of,
)

_WAIT_S = 10.0
# a repository's configuration names programs that git would start; none is needed to query
_SAFE = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")
# of a board's hello and of a measurement's environment
_FINGERPRINT = (
    "module", "board_id", "l4t", "tensorrt", "machine", "python", "numpy", "onnxruntime",
)  # fmt: skip
# what is the same for two measurements that are not
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


class Project(Protocol):
    """What is wanted of a configuration."""

    @property
    def folder(self) -> Path:
        """Where its file lies."""


def record(
    document: Bench,
    *,
    config: Project | None = None,
    release: Mapping[str, Any] | None = None,
    path: Path | None = None,
) -> int:
    """Keeps a measurement in the history.

    Args:
        document: With something measured; its "samples_ms" are kept, too.
        config: Its folder's git commit is noted.
        release: What was measured: "digest" of the bundle, "release", and what the board said of
            itself ("hello", "fingerprint"), as far as known.
        path: The history's file; $EDGEKIT_HISTORY or the cache folder's without it.

    Returns:
        Its id. The same measurement, recorded again, keeps its first one.

    Raises:
        DataError: Nothing was measured.
        EnvironmentLack: The history cannot be written. A caller goes on and warns: a measurement
            matters more than its entry.
    """
    if not document.latency_ms:
        raise DataError("there is no measurement to record", code="history.nothing-measured")
    result = _result(document, config, release or {})
    row = row_of(result).to_json()
    columns = (
        "name", "clock", "verdict", "board", "host", "target", "power_mode", "precision",
        "backend", "bundle", "release", "throughput_qps", "energy_uj",
    )  # fmt: skip
    with ResultStore(path, write=True) as store:
        return store.add({
            "digest": digest_of_run(result, result.bundle),
            "at": time.time(),
            **{name: row[name] for name in columns},
            **{name: _json(row[name]) for name in ("fingerprint", "settings", "runtime")},
            "git_commit": row["commit"],
            "git_dirty": row["dirty"],
            "iterations": row["iterations"] or row["samples"],
            "median_ms": result.latency_ms("median"),
            "p99_ms": result.latency_ms("p99"),
            "document": pack_document(result.document),
            "samples": pack_samples(result.samples),
        })  # fmt: skip


def _result(document: Bench, config: Project | None, release: Mapping[str, Any]) -> Result:
    environment = document.environment or {}
    known = {**environment, **(release.get("hello") or {}), **(release.get("fingerprint") or {})}
    return replace(
        result_of_document(document),
        git=git_state(config.folder) if config is not None else None,
        bundle=release.get("digest"),
        release=release.get("release"),
        host=_host(document),
        fingerprint={key: known[key] for key in _FINGERPRINT if known.get(key)},
    )


def result_of_document(document: Bench, label: str = "") -> Result:
    """Returns a measurement as its document alone has it, which holds its samples no more."""
    board = document.board
    return Result(
        document=document.model_copy(update={"samples_ms": None}),
        samples=tuple(document.samples_ms or ()),
        label=label,
        board=f"{board.kind or ''}:{board.name or ''}" if board else "",
        release=str((document.environment or {}).get("release") or "") or None,
    )


def _host(document: Bench) -> str:
    """Returns this machine's name for what its own processor ran: two machines have a "local"."""
    remote = document.board is not None and document.board.kind == "remote"
    return "" if remote else platform.node()


def digest_of_run(result: Result, bundle: str | None) -> str:
    """Returns what identifies a measurement: of what was measured, and of which bundle."""
    document = result.document.to_json()
    parts = [{key: document.get(key) for key in _MEASURED}, result.samples, bundle]
    return hashlib.sha256(_json(parts).encode()).hexdigest()


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def amend(document: Bench, *, path: Path | None = None) -> int | None:
    """Gives the result of a measurement its energy, monitor and verdict as the document has them.

    Args:
        document: Its times are those that were recorded.
        path: The history's file; $EDGEKIT_HISTORY or the cache folder's without it.

    Returns:
        The result's id; None where the history has none of this measurement.

    Raises:
        EnvironmentLack: The history cannot be written.
    """
    if not (path or history_path()).exists():
        return None
    result = _result(document, None, {})
    with ResultStore(path, write=True) as store:
        for bundle in store.bundles(result.name):
            # of which bundle it is the document does not say
            found = store.amend(digest_of_run(result, bundle), {
                "verdict": result.verdict, "energy_uj": result.energy_uj,
                "document": pack_document(result.document),
            })  # fmt: skip
            if found is not None:
                return found
    return None
