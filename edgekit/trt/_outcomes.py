"""What builds on boards have answered: which attempts go through there, kept by the host."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from edgekit._files import write_atomically
from edgekit.trt._types import Attempt, Decision

__all__ = ["known", "outcomes_file", "remember", "settled"]

SCHEMA = "edgekit.trt-outcomes/1"
_LIKE = ("module", "l4t", "tensorrt", "dla_compiler")


def outcomes_file(folder: Path) -> Path:
    """Returns the file of outcomes in a cache folder."""
    return folder / "trt-outcomes.json"


def remember(
    file: Path, fingerprint: Mapping[str, Any], kind: str, flags: tuple[str, ...], ok: bool
) -> None:
    """Keeps what a build has shown about a set of flags on boards like this one.

    A failure says something about the flags only where another attempt of the same engine went
    through: record it then alone. A later success outweighs it.

    Args:
        file: See :func:`outcomes_file`.
        fingerprint: The board's; boards whose module, L4T, TensorRT and DLA compiler are equal
            and known are alike, and of others nothing is kept.
        kind: What was built, such as "plan" or "plan DLA".
        flags: Names of BuilderFlag.
        ok: Whether the build went through.

    Raises:
        EnvironmentLack: The file cannot be written.
    """
    board = _board(fingerprint)
    if not board:
        return
    found = _read(file)
    found.setdefault(board, {})[_key(kind, flags)] = ok
    with write_atomically(file) as temporary:
        document = {"schema": SCHEMA, "boards": found}
        temporary.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n", "utf-8")


def known(
    file: Path, fingerprint: Mapping[str, Any], kind: str, flags: tuple[str, ...]
) -> bool | None:
    """Returns what builds on boards like this one have shown of a set of flags; None: nothing.

    A file that is damaged or of another schema says nothing.
    """
    return _read(file).get(_board(fingerprint), {}).get(_key(kind, flags))


def settled(
    decision: Decision, file: Path, fingerprint: Mapping[str, Any], *, dla: bool
) -> Decision:
    """Returns a decision without the attempts that are known to fail on such a board.

    Args:
        decision: What would be tried.
        file: See :func:`outcomes_file`.
        fingerprint: The board's.
        dla: Whether the plans drive a DLA: such plans have outcomes of their own ("plan DLA").
    """

    def left(kind: str, attempts: tuple[Attempt, ...]) -> tuple[Attempt, ...]:
        kept = [x for x in attempts if known(file, fingerprint, kind, x.flags) is not False]
        return tuple(kept) or attempts  # all failed once: then the world may have changed

    plans = left("plan DLA" if dla else "plan", decision.plans)
    loadables = left("loadable", decision.loadables)
    fewer = len(decision.plans) - len(plans) + len(decision.loadables) - len(loadables)
    if not fewer:
        return decision
    first = (plans or loadables)[0]
    note = (
        f"{fewer} combination{'s' if fewer > 1 else ''} of features failed on such a board before "
        f"and {'are' if fewer > 1 else 'is'} not tried again"
    )
    if first.gives_up:
        note += f": the engine is built {first.gives_up}"
    return replace(decision, plans=plans, loadables=loadables, notes=(*decision.notes, note))


def _board(fingerprint: Mapping[str, Any]) -> str:
    parts = [str(fingerprint.get(name) or "") for name in _LIKE]
    if not all(parts[:3]):
        return ""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def _key(kind: str, flags: tuple[str, ...]) -> str:
    return f"{kind}: {' '.join(sorted(flags))}".strip()


def _read(file: Path) -> dict[str, dict[str, bool]]:
    try:
        document = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    boards = document.get("boards") if isinstance(document, dict) else None
    if not isinstance(boards, dict) or document.get("schema") != SCHEMA:
        return {}
    return {
        str(board): {str(k): v for k, v in rows.items() if isinstance(v, bool)}
        for board, rows in boards.items()
        if isinstance(rows, dict)
    }
