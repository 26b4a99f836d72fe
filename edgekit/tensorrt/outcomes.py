"""Outcomes of builds on boards, kept by the host: attempts that are known to fail on a kind of
board are not tried again there.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.files import write_atomically
from edgekit.tensorrt.options import BuildAttempt, Decision
from edgekit.text import counted

if TYPE_CHECKING:
    from edgekit_device.build.request import AttemptResult

SCHEMA = "edgekit.trt-outcomes/2"

#: The board's code for a builder that refused. Crashes, lack of memory and plans that cannot be
#: refitted may have any cause.
_REFUSED = "build.attempt"

#: Flags whose success depends on the network's inputs and outputs, not on the board.
_OF_THE_NETWORK = "DIRECT_IO"

_OK = ""
_LIKE = ("module", "l4t", "tensorrt", "dla_compiler")


def outcomes_file(folder: Path) -> Path:
    """Returns the file of outcomes in a cache folder."""
    return folder / "trt-outcomes.json"


def record_outcome(
    file: Path, fingerprint: Mapping[str, str], kind: str, attempts: Sequence[AttemptResult]
) -> None:
    """Records the outcomes of one engine's attempts, by flags, for boards like this board.

    A set of flags that worked once counts as working, whatever fails with it later. A failed set is
    kept only if the builder refused it and another attempt at the same engine succeeded.

    Args:
        file: See :func:`outcomes_file`.
        fingerprint: The board's; boards with equal module, L4T, TensorRT and DLA compiler are
            alike. If one of these is unknown, no outcome is kept.
        kind: Kind of engine, such as "plan" or "plan DLA".
        attempts: The attempts' results.

    Raises:
        EnvironmentLack: The file cannot be written.
    """
    board = _board(fingerprint)
    if not board:
        return
    found = _read(file)
    rows, some = found.setdefault(board, {}), any(attempt.ok for attempt in attempts)
    for attempt in attempts:
        key = _key(kind, attempt.flags)
        # conclusive: the failure is due to the flags, whatever the network
        conclusive = attempt.code == _REFUSED and _OF_THE_NETWORK not in attempt.flags
        if attempt.ok:
            rows[key] = _OK
        elif some and conclusive and rows.get(key) != _OK:
            rows[key] = str(attempt.error)
    with write_atomically(file) as temporary:
        document = {"schema": SCHEMA, "boards": found}
        temporary.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n", "utf-8")


def known_outcome(
    file: Path, fingerprint: Mapping[str, str], kind: str, flags: tuple[str, ...]
) -> bool | None:
    """Returns True if a set of flags is known to work on such boards, False if it fails.

    None if unknown. A file that is damaged or of another schema is ignored.
    """
    found = _read(file).get(_board(fingerprint), {}).get(_key(kind, flags))
    return None if found is None else found == _OK


def without_known_failures(
    decision: Decision, file: Path, fingerprint: Mapping[str, str], *, dla: bool
) -> Decision:
    """Returns a decision without the attempts that are known to fail on such a board.

    Required features are tried each time.

    Args:
        decision: The attempts to choose from.
        file: See :func:`outcomes_file`.
        fingerprint: The board's.
        dla: True if the plans use a DLA: such plans have separate outcomes ("plan DLA").
    """

    def without_known(kind: str, attempts: tuple[BuildAttempt, ...]) -> tuple[BuildAttempt, ...]:
        remaining = [
            x for x in attempts if known_outcome(file, fingerprint, kind, x.flags) is not False
        ]
        # all attempts with the required features failed once: the board may have changed since
        return tuple(remaining) if remaining and not remaining[0].breaks else attempts

    plans = without_known("plan DLA" if dla else "plan", decision.plans)
    loadables = without_known("loadable", decision.loadables)
    fewer = len(decision.plans) - len(plans) + len(decision.loadables) - len(loadables)
    if not fewer:
        return decision
    first = (plans or loadables)[0]
    note = (
        f"{counted(fewer, 'combination')} of features failed on this kind of board "
        f"before and {'are' if fewer > 1 else 'is'} skipped (build --force tries all)"
    )
    if first.gives_up:
        note += f": the engine is built {first.gives_up}"
    return replace(decision, plans=plans, loadables=loadables, notes=(*decision.notes, note))


def _board(fingerprint: Mapping[str, str]) -> str:
    parts = [fingerprint.get(name, "") for name in _LIKE]
    if not all(parts[:3]):
        return ""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def _key(kind: str, flags: Iterable[str]) -> str:
    return f"{kind}: {' '.join(sorted(flags))}".strip()


def _read(file: Path) -> dict[str, dict[str, str]]:
    """Returns, by board and flags, why they failed; an empty text if they worked."""
    try:
        document = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    boards = document.get("boards") if isinstance(document, dict) else None
    if not isinstance(boards, dict) or document.get("schema") != SCHEMA:
        return {}
    return {
        str(board): {str(k): v for k, v in rows.items() if isinstance(v, str)}
        for board, rows in boards.items()
        if isinstance(rows, dict)
    }
