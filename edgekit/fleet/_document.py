"""A rollout as one JSON document, ``edgekit.fleet/1``."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from edgekit.fleet._lock import is_driven
from edgekit.fleet._store import Store

__all__ = ["document_of", "listing_of"]


def document_of(
    store: Store, rollout: Mapping[str, Any], *, driven: bool, notes: Sequence[str] = ()
) -> dict[str, Any]:
    """Returns a rollout with its waves and boards.

    A board's ``serves`` is the digest of what it was last known to serve, "" for nothing and None
    where that is not known.

    Args:
        store: The state.
        rollout: The rollout's row.
        driven: Whether a process drives it now.
        notes: What a person should know.
    """
    rows = store.boards(rollout["id"])
    waves = [
        [row for row in rows if row["wave"] == number]
        for number in range(1 + max((row["wave"] for row in rows), default=-1))
    ]
    return {
        "schema": "edgekit.fleet/1",
        **_head(rollout),
        "driven": driven,
        "driver": rollout["driver"],
        "counts": _counts(rows),
        "waves": [{"wave": n + 1, "boards": len(w), "counts": _counts(w)}
                  for n, w in enumerate(waves)],
        "boards": [_board(row) for row in rows],
        "failure": rollout["error"],
        "notes": list(notes),
    }  # fmt: skip


def listing_of(store: Store) -> dict[str, Any]:
    """Returns all rollouts, ``edgekit.fleets/1``."""
    rows = [
        {
            **_head(row),
            "driven": is_driven(store.folder, row["id"]),
            "counts": dict(row["counts"]),
            "failure": row["error"],
        }
        for row in store.rollouts()
    ]
    return {"schema": "edgekit.fleets/1", "rollouts": rows}


def _head(rollout: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "rollout": rollout["name"],
        "app": rollout["app"],
        "state": rollout["state"],
        "wave": rollout["wave"] + 1,
        "config": rollout["config"],
        "inventory": rollout["inventory"],
        "select": rollout["selector"],
        "settings": rollout["settings"],
        "created_at": _time(rollout["created_at"]),
        "updated_at": _time(rollout["updated_at"]),
    }


def _board(row: Mapping[str, Any]) -> dict[str, Any]:
    # of a board that failed nobody has asked what serves
    serves = {"done": row["digest"], "rolled-back": row["before"]}.get(row["state"])
    return {
        "board": row["name"],
        "host": row["entry"]["host"],
        "labels": row["labels"],
        "wave": row["wave"] + 1,
        "state": row["state"],
        # the release's name on a board that went back was not told: "serves" has its bundle
        "release": None if row["state"] == "rolled-back" else row["release"],
        "serves": serves,
        "digest": row["digest"],
        "before": row["before"] or None,
        "attempts": row["attempts"],
        "bytes_sent": row["bytes_sent"],
        "seconds": round(row["seconds"], 3),
        "error": row["error"],
    }


def _counts(rows: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    return dict(sorted(Counter(row["state"] for row in rows).items()))


def _time(seconds: float) -> str:
    at = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    return at.isoformat(timespec="seconds")
