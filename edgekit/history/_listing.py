"""What the history lists of a measurement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from edgekit.history._trial_names import is_trial

if TYPE_CHECKING:
    from edgekit.history._types import Result

__all__ = ["history_document", "row_of"]


def history_document(results: Sequence[Result]) -> dict[str, Any]:
    """Returns an ``edgekit.history/1`` of results, in their order."""
    from edgekit.history._store import history_path

    return {
        "schema": "edgekit.history/1", "file": str(history_path()),
        "results": [row_of(result) for result in results],
    }  # fmt: skip


def row_of(result: Result) -> dict[str, Any]:
    """Returns a result's facts without its samples and its document."""
    return {
        "id": result.id, "at": result.at, "name": result.name, "clock": result.clock,
        "verdict": result.verdict, "board": result.board, "host": result.host,
        "target": result.document.get("target"), "power_mode": result.power_mode,
        "precision": result.document.get("precision"), "backend": result.document.get("backend"),
        "bundle": result.bundle, "release": result.release,
        "fingerprint": dict(result.fingerprint),
        "commit": result.git.commit if result.git else None,
        "dirty": result.git.dirty if result.git else None,
        "settings": result.settings, "runtime": result.runtime,
        "iterations": result.document.get("iterations"), "samples": len(result.samples),
        "latency_ms": result.document.get("latency_ms"),
        "throughput_qps": result.throughput_qps, "energy_uj": result.energy_uj,
        "marks": list(result.marks), "trial": is_trial(result.name),
    }  # fmt: skip
