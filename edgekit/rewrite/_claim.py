"""What a record says was rewritten and proved, read with distrust."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from edgekit.errors import DataError
from edgekit.rewrite._graph import opset_of
from edgekit.rewrite._prove import RUNS, SEED
from edgekit.rewrite._raised import RAISED
from edgekit.rewrite._record import RECORD_SCHEMA
from edgekit.rewrite._record_read import record_of

if TYPE_CHECKING:
    from edgekit.network import Model

__all__ = ["Claim", "claim_of_document", "claim_of_model"]

_DIGEST = re.compile(r"[0-9a-f]{64}\Z")
_MOST_RUNS = 100


@dataclass(frozen=True, slots=True)
class Claim:
    """A rewriting that somebody recorded.

    Attributes:
        original: Digest of the model that was rewritten.
        rewritten: Digest of what came of it.
        opset: ai.onnx after it.
        rounds: The (rewrite, anchor node) of each rewriting, in order.
        proofs: ``max_error`` and ``max_error_float64`` of raising the opset, if it was, and of
            each step in order; empty where the record has none.
        seed: Of the random inputs.
        runs: Number of random inputs for each proof.
    """

    original: str
    rewritten: str
    opset: int
    rounds: tuple[tuple[tuple[str, str], ...], ...]
    proofs: tuple[tuple[float | None, float | None], ...]
    seed: int
    runs: int


def claim_of_model(model: Model, original: Model | None = None) -> Claim:
    """Returns what a rewritten model says about itself.

    Args:
        model: The rewritten model.
        original: What was rewritten; where it is the same model, nothing was.

    Raises:
        DataError: "rewrite.no-record": it was not rewritten.
        ModelError: "rewrite.record": its record cannot be true.
    """
    record = record_of(model)
    if record is None and original is not None and original.digest == model.digest:
        return Claim(model.digest, model.digest, opset_of(model), ((),), (), SEED, RUNS)
    if record is None:
        raise DataError(
            "the model has no record of rewrites",
            code="rewrite.no-record",
            where=model.source,
            hint="give what edgekit rewrite wrote, its --record file, or a bundle",
        )
    return Claim(record.original, model.digest, record.opset[1], record.rounds, (), SEED, RUNS)


def claim_of_document(raw: Any, where: str) -> Claim:
    """Returns what an ``edgekit.rewrites/1`` document says.

    Args:
        raw: The parsed JSON; an ``edgekit.rewrite/1`` document, which contains one, is as good.
        where: What to call it in errors.

    Raises:
        DataError: "rewrite.record": it is something else.
    """
    if isinstance(raw, Mapping) and isinstance(raw.get("record"), Mapping):
        raw = raw["record"]
    if not isinstance(raw, Mapping) or raw.get("schema") != RECORD_SCHEMA:
        _refuse(f"it is no {RECORD_SCHEMA} document", where)
    digests = [raw.get("model"), raw.get("rewritten")]
    if not all(isinstance(item, str) and _DIGEST.match(item) for item in digests):
        _refuse("'model' or 'rewritten' is no digest", where)
    opset, rows = raw.get("opset"), raw.get("rewrites")
    if not isinstance(opset, list) or len(opset) != 2:
        _refuse("'opset' is not two numbers", where)
    after, seed, runs = (_count(n, where) for n in (opset[1], raw.get("seed"), raw.get("runs")))
    if not 1 <= runs <= _MOST_RUNS:
        _refuse(f"'runs' is not between 1 and {_MOST_RUNS}", where)
    if not isinstance(rows, list):
        _refuse("'rewrites' is no list", where)
    named = [(_text(row, "rewrite", where), _text(row, "anchor", where)) for row in rows]
    proofs = tuple(
        (_number(row, "max_error", where), _number(row, "max_error_float64", where)) for row in rows
    )
    # raising the opset is repeated without being asked for
    steps = tuple(item for item in named if item[0] != RAISED)
    original, rewritten = map(str, digests)
    return Claim(original, rewritten, after, (steps,), proofs, seed, runs)


def _count(value: Any, where: str) -> int:
    if type(value) is not int or not 0 <= value < 1 << 63:
        _refuse("'opset', 'seed' or 'runs' is no number", where)
    return value


def _text(row: Any, key: str, where: str) -> str:
    value = row.get(key) if isinstance(row, Mapping) else None
    if not isinstance(value, str):
        _refuse(f"a rewrite without {key!r}", where)
    return value


def _number(row: Mapping[str, Any], key: str, where: str) -> float | None:
    value = row.get(key)
    if value is None:
        return None
    if type(value) not in (int, float) or not 0 <= value <= 1e308:
        _refuse(f"{key!r} of a rewrite is no error", where)
    return float(value)


def _refuse(reason: str, where: str) -> NoReturn:
    raise DataError(
        f"this is no record of rewrites: {reason}",
        code="rewrite.record",
        where=where,
        hint="give what edgekit rewrite wrote: a --record file, a model, or a bundle",
    )
