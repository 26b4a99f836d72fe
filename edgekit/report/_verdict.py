"""The verdict that stands first: is the measurement worth quoting, and which gates held."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edgekit.report._results import compared_on

__all__ = ["NOT_MEASURED", "pool_uses", "verdict_of"]

NOT_MEASURED = "NOT MEASURED"


def verdict_of(
    bench: Mapping[str, Any] | None,
    *,
    accuracy: Mapping[str, Any] | None,
    refit: Mapping[str, Any] | None,
    pools: Sequence[Mapping[str, Any]],
    steps: Sequence[Mapping[str, Any]],
    baseline: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Joins the measurement's verdict with the gates of the run.

    Args:
        bench: The ``edgekit.bench/1`` document, if anything was measured.
        accuracy: ``RunFacts.accuracy``.
        refit: ``RunFacts.refit``.
        pools: :func:`pool_uses`.
        steps: ``RunFacts.steps``.
        baseline: The ``edgekit.compare/1`` document, if the run was compared.

    Returns:
        ``status`` ("VALID", "INVALID" or "NOT MEASURED"), ``clock``, ``reasons`` with their
        remedies, ``command`` (measures again as they ask), ``unchecked``, and ``gates``: {"gate",
        "passed" (None: not judged), "found", "limit"}, numbers as they are.
    """
    said = (bench or {}).get("verdict") or {}
    gates = [
        _accuracy(accuracy),
        {"gate": "refit", "passed": refit.get("bit_equal"), "found": None, "limit": None}
        if refit
        else None,
        _memory(pools),
        _steps(steps),
        _baseline(baseline),
    ]
    return {
        "status": said.get("status") or NOT_MEASURED,
        "clock": (bench or {}).get("clock") or "predicted",
        "reasons": [dict(reason) for reason in said.get("reasons") or ()],
        "command": str(said.get("command") or ""),
        "unchecked": list(said.get("unchecked") or ()),
        "gates": [gate for gate in gates if gate],
    }


def pool_uses(
    loadables: Sequence[Mapping[str, Any]], limits: Mapping[str, int]
) -> list[dict[str, Any]]:
    """Returns bytes and limit of every pool of every loadable; a limit of 0 is not known."""
    return [
        {"loadable": number, "pool": pool, "bytes": need, "limit": limits.get(pool) or None}
        for number, loadable in enumerate(loadables)
        for pool, need in loadable["memory"].items()
    ]


def _accuracy(accuracy: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if not accuracy or accuracy.get("min") is None:
        return None
    metric = str(accuracy.get("metric") or "cosine")
    # outputs that do not vary say nothing: the gate was not judged by them
    known = not accuracy.get("constant")
    return {"gate": "accuracy", "metric": metric,
            "passed": accuracy.get("passed") if known else None,
            "found": accuracy.get(metric) if known else None, "limit": accuracy["min"],
            "on": compared_on(accuracy)}  # fmt: skip


def _memory(pools: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    known = [use for use in pools if use["limit"]]
    if not known:
        return None
    worst = max(known, key=lambda use: float(use["bytes"]) / use["limit"])
    return {"gate": "memory", "pool": worst["pool"], "passed": worst["bytes"] <= worst["limit"],
            "found": worst["bytes"], "limit": worst["limit"]}  # fmt: skip


def _steps(steps: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    failed = sum(step.get("status") == "failed" for step in steps)
    if not steps:
        return None
    return {"gate": "steps", "passed": not failed, "found": failed, "limit": 0}


def _baseline(baseline: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Takes the comparison's own answer: a regression past its threshold fails."""
    if not baseline:
        return None
    regressed = baseline.get("regression")
    passed = None if regressed is None else not regressed
    return {"gate": "baseline", "passed": passed, "found": None, "limit": None}
