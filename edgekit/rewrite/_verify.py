"""The proofs of a record once more, and the whole network before and after."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from edgekit.errors import DataError, EdgekitError, GateError, ModelError
from edgekit.rewrite._all import APPROXIMATE
from edgekit.rewrite._emit import emit
from edgekit.rewrite._entry import entry_of
from edgekit.rewrite._graph import Graph
from edgekit.rewrite._prove import Proof, prove
from edgekit.rewrite._raised import raised_entry
from edgekit.rewrite._record import with_record
from edgekit.rewrite._replay import steps_again
from edgekit.rewrite._step import MalformedError
from edgekit.rewrite._types import Applied
from edgekit.rewrite._whole import whole_network

if TYPE_CHECKING:
    from edgekit.network import Model
    from edgekit.rewrite._claim import Claim

__all__ = ["refusal", "verify"]

SCHEMA = "edgekit.verified/1"
# an approximation has no tolerance of its own: it must not be worse than what was recorded
_SLACK = 1.1
_FLOOR = 1e-6


def verify(
    model: Model, claim: Claim, *, progress: Callable[[int, int], None] | None = None
) -> dict[str, Any]:
    """Repeats a rewriting with its proofs and returns an ``edgekit.verified/1`` document.

    ``holds`` says whether each proof is within its tolerance and the rewritten network answers as
    the original does; ``same`` whether it is, bit for bit, the network of the record.

    Args:
        model: What was rewritten.
        claim: What the record says.
        progress: Called with the number of steps done, and of all.

    Raises:
        DataError: "rewrite.other-model": another model than the recorded one.
        GateError: "rewrite.not-repeated": a recorded step does not apply to it.
    """
    if model.digest != claim.original:
        raise DataError(
            "this is not the model that was rewritten",
            code="rewrite.other-model",
            where=model.source,
            hint=f"its digest is {model.digest[:12]}, the record's {claim.original[:12]}; give the "
            "same --shape and --outputs as for the rewriting",
        )
    rows: list[dict[str, Any]] = []
    total = sum(map(len, claim.rounds))
    rewritten = model
    for steps in claim.rounds:
        rewritten = _round(rewritten, claim, steps, rows, lambda: _tell(progress, rows, total))
    approximate = any(row["rewrite"].startswith(APPROXIMATE) for row in rows)
    network = whole_network(
        model, rewritten, runs=claim.runs, seed=claim.seed, exact=not approximate
    )
    return {
        "schema": SCHEMA,
        "model": model.source,
        "original": model.digest,
        "rewritten": rewritten.digest,
        "recorded": claim.rewritten,
        "same": rewritten.digest == claim.rewritten,
        "seed": claim.seed,
        "runs": claim.runs,
        "rewrites": rows,
        "largest_change": max((abs(row["change"] or 0.0) for row in rows), default=0.0),
        "network": network,
        "holds": network["holds"] and all(row["holds"] for row in rows),
    }


def refusal(document: Mapping[str, Any]) -> EdgekitError | None:
    """Returns the error that an ``edgekit.verified/1`` document ends in; None when all is well."""
    failed = [row for row in document["rewrites"] if not row["holds"]]
    report = f"please report it, with the model and seed {document['seed']}"
    if failed:
        first = failed[0]
        more = f", and {len(failed) - 1} more" if len(failed) > 1 else ""
        return GateError(
            f"the proof of {first['rewrite']} at {first['anchor']} no longer holds: it differs by "
            f"{_amount(first['max_error'])} of the maximum{more}",
            code="rewrite.proof",
            where=document["model"],
            hint=report,
        )
    network = document["network"]
    if not network["holds"]:
        return GateError(
            f"the rewritten network differs by {_amount(network['max_error'])} of the maximum, "
            f"more than {network['limit']:g}",
            code="rewrite.proof",
            where=document["model"],
            hint=report,
        )
    if not document["same"]:
        return DataError(
            "the rewrites of the record make another network of this model than the recorded one",
            code="rewrite.other-result",
            where=document["model"],
            hint="the rewritten model was changed, or another release of edgekit wrote it: "
            "rewrite the model again",
        )
    return None


def _amount(error: float | None) -> str:
    return "more than can be said" if error is None else f"{error:.1e}"


def _round(
    model: Model,
    claim: Claim,
    steps: tuple[tuple[str, str], ...],
    rows: list[dict[str, Any]],
    tell: Callable[[], None],
) -> Model:
    from edgekit.rewrite._raise_opset import raise_opset

    raised = raise_opset(model, claim.opset)
    if raised is None:
        raise _not_repeated(f"the model cannot be raised to opset {claim.opset}", model.source)
    if raised is model and not steps:
        return model
    graph = Graph(raised)
    applied: list[Applied] = []
    if raised is not model:
        entry = raised_entry(model, raised, runs=claim.runs, seed=claim.seed)
        if entry.nodes or not steps:
            proof = Proof(entry.max_error, entry.max_error_float64 or 0.0)
            rows.append(_row(entry, proof, claim, len(rows)))
    try:
        for step in steps_again(graph, steps):
            proof = prove(graph, step, runs=claim.runs, seed=claim.seed)
            applied.append(entry_of(step, proof, runs=claim.runs, seed=claim.seed))
            rows.append(_row(applied[-1], proof, claim, len(rows)))
            graph.apply(step)
            tell()
    except (ModelError, MalformedError) as error:
        raise _not_repeated(str(getattr(error, "message", error)), model.source) from error
    return with_record(emit(graph), graph, applied, original=model)


def _row(applied: Applied, proof: Proof, claim: Claim, index: int) -> dict[str, Any]:
    recorded = claim.proofs[index] if index < len(claim.proofs) else None
    before, now = recorded[0] if recorded else None, proof.float32
    holds = proof.holds()
    if applied.max_error_float64 is None and before is not None:
        holds = holds and now is not None and now <= max(before * _SLACK, _FLOOR)
    return {
        **applied.to_json(),
        "max_error": _finite(now),
        "max_error_float64": _finite(applied.max_error_float64),
        "recorded": {"max_error": before, "max_error_float64": recorded[1]} if recorded else None,
        "change": None if before is None or now is None else _finite(now - before),
        "holds": holds,
    }


def _finite(error: float | None) -> float | None:
    # JSON has no infinities
    return error if error is not None and math.isfinite(error) else None


def _tell(progress: Callable[[int, int], None] | None, rows: list[Any], total: int) -> None:
    if progress is not None:
        progress(len(rows), total)


def _not_repeated(reason: str, where: str) -> GateError:
    return GateError(
        f"the record cannot be repeated: {reason}",
        code="rewrite.not-repeated",
        where=where,
        hint="another release of edgekit made the record; rewrite the model again",
    )
