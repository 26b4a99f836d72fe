"""Repeats a record's proofs, and compares the whole network before and after."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgekit.errors import DataError, EdgekitError, GateError, ModelError
from edgekit.network.model import Model
from edgekit.network.session import session
from edgekit.removed import FormerDict
from edgekit.rewriting.engine.opset import RAISED, prove_raising, raise_opset
from edgekit.rewriting.engine.replay import make_entry, match_steps
from edgekit.rewriting.errors import MalformedError
from edgekit.rewriting.graph import Applied, RewriteGraph, emit
from edgekit.rewriting.proof.prove import RUNS, SEED, Proof, prove
from edgekit.rewriting.provenance.record import AppliedRewrites, read_record, with_record
from edgekit.rewriting.rules.order import APPROXIMATE
from edgekit_device.errors import DeviceError
from edgekit_device.protocol.codec import (
    choice,
    digest,
    document,
    flag,
    integer,
    long_text,
    member,
    nullable,
    number,
    read,
    record,
    records,
)

_MOST_RUNS = 100
#: Allowed error of the whole network, relative to an output's largest value: rounding adds up.
LIMIT = 1e-3
_LIMIT_FLOAT16 = 2e-2
# largest random integers, in the order in which they are tried
_MOST = (3, 1, 0)
SCHEMA = "edgekit.verified/1"
# an approximation has no tolerance: its error must not exceed the recorded error
_SLACK = 1.1
_LEAST_ERROR = 1e-6
_ERROR = nullable(number(0, 1e308))
_SEED = integer(0, (1 << 63) - 1)


@dataclass(frozen=True, slots=True)
class Claim:
    """A recorded rewriting.

    Attributes:
        original: Digest of the model that was rewritten.
        rewritten: Digest of the rewritten model.
        opset: ai.onnx version after it.
        rounds: The (rewrite, anchor node) of each rewriting, in order.
        proofs: ``max_error`` and ``max_error_float64`` of raising the opset (if it was raised) and
            of each step, in order; empty if the record has no proofs.
        seed: Seed of the random inputs.
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
    """Returns the claim of a rewritten model's record.

    Args:
        model: The rewritten model.
        original: The model before the rewrites; the same model means that none was applied.

    Raises:
        DataError: "rewrite.no-record": it was not rewritten.
        ModelError: "rewrite.record": its record is invalid.
    """
    made = read_record(model)
    if made is None and original is not None and original.digest == model.digest:
        return Claim(model.digest, model.digest, model.graph.opset, ((),), (), SEED, RUNS)
    if made is None:
        raise DataError(
            "the model has no record of rewrites",
            code="rewrite.no-record",
            where=model.source,
            hint="give a model from edgekit rewrite, its --record file or a bundle",
        )
    return Claim(made.original, model.digest, made.opset[1], made.rounds, (), SEED, RUNS)


def claim_of_document(raw: Any, where: str) -> Claim:
    """Returns the claim of an ``edgekit.rewrites/1`` document.

    Args:
        raw: The parsed JSON; also an ``edgekit.rewrite/1`` document, which contains it.
        where: The document's name in errors.

    Raises:
        DataError: "rewrite.record": it is another document.
    """
    if isinstance(raw, Mapping) and isinstance(raw.get("record"), Mapping):
        raw = raw["record"]
    try:
        found = read(AppliedRewrites, raw)
    except DeviceError as error:
        place = f"{error.where}: " if error.where else ""
        raise DataError(
            f"not a record of rewrites: {place}{error.message}",
            code="rewrite.record",
            where=where,
            hint="give a --record file or a model from edgekit rewrite, or a bundle",
        ) from error
    # raising the opset is repeated in any case
    steps = tuple((row.rewrite, row.anchor) for row in found.rewrites if row.rewrite != RAISED)
    proofs = tuple((row.max_error, row.max_error_float64) for row in found.rewrites)
    return Claim(
        found.model, found.rewritten, found.opset[1], (steps,), proofs, found.seed, found.runs
    )


@document(frozen=True)
class NetworkError:
    """Difference of two networks on random inputs.

    Attributes:
        max_error: Largest difference, relative to an output's largest value; None if it is not
            finite.
        limit: Allowed ``max_error``; None for an approximation.
        runs: Number of inputs.
        seed: Seed of the inputs.
        holds: True if it is within the limit.
    """

    max_error: float | None = member(_ERROR)
    limit: float | None = member(_ERROR)
    runs: int = member(integer(0, _MOST_RUNS))
    seed: int = member(_SEED)
    holds: bool = member(flag)


@document(frozen=True)
class RecordedErrors:
    """A proof's errors, from a record.

    Attributes:
        max_error: Largest error in float32, relative to the output's largest magnitude.
        max_error_float64: The same in float64.
    """

    max_error: float | None = member(_ERROR)
    max_error_float64: float | None = member(_ERROR)


@document(frozen=True, kw_only=True)
class VerifiedRewrite(Applied):
    """A rewrite whose proof was repeated.

    Attributes:
        recorded: The recorded errors; None if the record has no proofs.
        change: Growth of the error; None without a recorded error to compare.
        holds: True if the proof holds.
    """

    recorded: RecordedErrors | None = member(nullable(record(RecordedErrors)))
    change: float | None = member(nullable(number(-1e308, 1e308)))
    holds: bool = member(flag)


@document(frozen=True, kw_only=True)
class Verified(FormerDict):
    """An ``edgekit.verified/1``: a rewriting repeated with its proofs.

    Attributes:
        model: The original model.
        original: Digest of the original model.
        rewritten: Digest of the model rewritten now.
        recorded: Digest of the rewritten model in the record.
        same: True if both digests are equal: the network is the record's, bit for bit.
        seed: Seed of the random inputs.
        runs: Number of random inputs.
        rewrites: The repeated proofs.
        largest_change: Largest difference between an error and the recorded error.
        network: Comparison of the whole networks.
        holds: True if each proof and the whole network are within their limits.
        record: The record's file.
    """

    schema: str = member(choice(SCHEMA), default=SCHEMA)
    model: str = member(long_text)
    original: str = member(digest)
    rewritten: str = member(digest)
    recorded: str = member(digest)
    same: bool = member(flag)
    seed: int = member(_SEED)
    runs: int = member(integer(0, _MOST_RUNS))
    rewrites: tuple[VerifiedRewrite, ...] = member(records(VerifiedRewrite))
    largest_change: float = member(number(0, 1e308))
    network: NetworkError = member(record(NetworkError))
    holds: bool = member(flag)
    record: str = member(long_text, absent="")

    def refusal(self) -> EdgekitError | None:
        """Returns the error of a failed verification; None if it succeeded."""
        # proofs first: they name the rewrite at fault, the whole network does not
        failed = [row for row in self.rewrites if not row.holds]
        report = f"please report this with the model and seed {self.seed}"
        if failed:
            first = failed[0]
            more = f", and {len(failed) - 1} more" if len(failed) > 1 else ""
            return GateError(
                f"the proof of {first.rewrite} at {first.anchor} no longer holds: it differs by "
                f"{_amount(first.max_error)} of the maximum{more}",
                code="rewrite.proof",
                where=self.model,
                hint=report,
            )
        network = self.network
        if not network.holds:
            return GateError(
                f"the rewritten network differs by {_amount(network.max_error)} of the maximum "
                f"(limit {network.limit:g})",
                code="rewrite.proof",
                where=self.model,
                hint=report,
            )
        if not self.same:
            return DataError(
                "the recorded rewrites give a different network than the recorded one",
                code="rewrite.other-result",
                where=self.model,
                hint="rewrite the model again; the rewritten model was changed, or comes from "
                "another edgekit release",
            )
        return None


def whole_network(
    model: Model, rewritten: Model, *, runs: int, seed: int, exact: bool = True
) -> NetworkError:
    """Compares two whole networks on random inputs.

    Args:
        model: The original model.
        rewritten: The rewritten model.
        runs: Number of inputs: standard normal numbers, fair truth values, and whole numbers from
            0 to 3; from 0 to 1, or only 0, if the original refuses those (indices of a table).
        seed: Seed of the inputs.
        exact: True if there is a limit: an approximation has none.

    Raises:
        ModelError: "rewrite.inputs": the original runs with none of these inputs;
            "model.runtime": ONNX Runtime refuses a network.
    """
    graph = RewriteGraph(model)
    # one generator for all runs, so that each has other inputs
    random = np.random.default_rng(seed)
    worst = 0.0
    pair = _Pair(model, rewritten)
    for _ in range(runs):
        worst = max(worst, *_error(pair, graph, random).values())
    halves = any(graph.dtype(name) == "float16" for name in (*graph.inputs, *graph.outputs))
    limit = _LIMIT_FLOAT16 if halves else LIMIT
    return NetworkError(
        max_error=worst if math.isfinite(worst) else None,
        limit=limit if exact else None,
        runs=runs,
        seed=seed,
        holds=worst <= limit if exact else math.isfinite(worst),
    )


class _Pair:
    """Both networks, ready to run."""

    def __init__(self, original: Model, rewritten: Model) -> None:
        self._source = original.source
        self._outputs = [value.name for value in original.proto.graph.output]
        # ONNX Runtime's own fusions would be part of the difference
        self._old, self._new = (session(item, optimise=False) for item in (original, rewritten))

    def error(self, feeds: Mapping[str, np.ndarray]) -> dict[str, float]:
        """Returns ``max|a-b| / max|b|`` by output between the two in FP32 (ONNX Runtime).

        The error is infinite if the original's infinities and NaNs differ from the other's, and
        if only the other refuses the inputs.

        Raises:
            ModelError: "rewrite.inputs": the original refuses the inputs.
        """
        try:
            old = self._old.run(self._outputs, dict(feeds))
        except Exception as error:
            # ONNX Runtime's exceptions share no base class but Exception
            raise ModelError(
                f"the network cannot be run on random inputs: {' '.join(str(error).split())}",
                code="rewrite.inputs",
                where=self._source,
                hint="compare the networks on your own inputs; the proofs of the rewrites do not "
                "need random ones",
            ) from error
        try:
            new = self._new.run(self._outputs, dict(feeds))
        except Exception:
            # inputs that the original accepts and the rewritten network refuses
            return dict.fromkeys(self._outputs, math.inf)
        pairs = zip(self._outputs, old, new, strict=True)
        return {name: _distance(b, a) for name, a, b in pairs}


def _error(pair: _Pair, graph: RewriteGraph, random: np.random.Generator) -> dict[str, float]:
    """Returns the errors on random inputs that the original accepts."""
    forms = {name: (graph.shape(name), graph.dtype(name)) for name in graph.inputs}
    whole = any(dtype.startswith(("int", "uint")) for _, dtype in forms.values())
    # integers may be indices of a table of one row; without integers one try is enough
    for most in _MOST if whole else _MOST[-1:]:
        feeds = {name: _values(random, *form, most) for name, form in forms.items()}
        try:
            return pair.error(feeds)
        except ModelError:
            if most == _MOST[-1]:
                raise
    raise AssertionError("the last one returns or raises")


def _distance(a: np.ndarray, b: np.ndarray) -> float:
    if a.shape != b.shape:
        return float("inf")
    a, b = a.astype(np.float64), b.astype(np.float64)
    sane = np.isfinite(b)
    if not np.array_equal(a[~sane], b[~sane], equal_nan=True):
        return float("inf")
    a, b = a[sane], b[sane]
    worst = float(np.abs(a - b).max(initial=0.0) / (np.abs(b).max(initial=0.0) or 1.0))
    return worst if math.isfinite(worst) else float("inf")


def _values(
    random: np.random.Generator, shape: tuple[int, ...], dtype: str, most: int
) -> np.ndarray:
    if dtype == "bool":
        return random.random(shape) < 0.5
    if dtype.startswith(("int", "uint")):
        return random.integers(0, most + 1, shape).astype(dtype)
    return random.standard_normal(shape).astype(dtype)


def verify(
    model: Model, claim: Claim, *, progress: Callable[[int, int], None] | None = None
) -> Verified:
    """Repeats a rewriting with its proofs.

    Args:
        model: The original model.
        claim: The record's claim.
        progress: Called with the numbers of finished steps and of all steps.

    Raises:
        DataError: "rewrite.other-model": the model is not the recorded model.
        GateError: "rewrite.not-repeated": a recorded step does not apply to it.
    """
    if model.digest != claim.original:
        raise DataError(
            "the record belongs to another model",
            code="rewrite.other-model",
            where=model.source,
            hint="give the original model and the same --shape and --outputs as for edgekit "
            f"rewrite (digest {model.digest[:12]}, recorded {claim.original[:12]})",
        )
    rows: list[VerifiedRewrite] = []
    total = sum(map(len, claim.rounds))
    rewritten = model

    def report_step() -> None:
        if progress is not None:
            progress(len(rows), total)

    # a model that was rewritten again: each round begins with the result before
    for steps in claim.rounds:
        rewritten = _repeat_rewriting(rewritten, claim, steps, rows, report_step)
    approximate = any(row.rewrite in APPROXIMATE for row in rows)
    network = whole_network(
        model, rewritten, runs=claim.runs, seed=claim.seed, exact=not approximate
    )
    return Verified(
        model=model.source,
        original=model.digest,
        rewritten=rewritten.digest,
        recorded=claim.rewritten,
        same=rewritten.digest == claim.rewritten,
        seed=claim.seed,
        runs=claim.runs,
        rewrites=tuple(rows),
        largest_change=max((abs(row.change or 0.0) for row in rows), default=0.0),
        network=network,
        holds=network.holds and all(row.holds for row in rows),
    )


def _amount(error: float | None) -> str:
    return "an unknown amount" if error is None else f"{error:.1e}"


def _repeat_rewriting(
    model: Model,
    claim: Claim,
    steps: tuple[tuple[str, str], ...],
    rows: list[VerifiedRewrite],
    on_step: Callable[[], None],
) -> Model:
    raised = raise_opset(model, claim.opset)
    if raised is None:
        raise _not_repeated(f"the model cannot be converted to opset {claim.opset}", model.source)
    if raised is model and not steps:
        return model
    graph = RewriteGraph(raised)
    applied: list[Applied] = []
    if raised is not model:
        entry = prove_raising(model, raised, runs=claim.runs, seed=claim.seed)
        # as ``rewrite`` lists it: rows and recorded proofs are matched by position
        if entry.nodes or not steps:
            proof = Proof(entry.max_error, entry.max_error_float64 or 0.0)
            rows.append(_row(entry, proof, claim, len(rows)))
    try:
        for step in match_steps(graph, steps):
            # before the step is applied: the graph must have the old nodes
            proof = prove(graph, step, runs=claim.runs, seed=claim.seed)
            applied.append(make_entry(step, proof, runs=claim.runs, seed=claim.seed))
            rows.append(_row(applied[-1], proof, claim, len(rows)))
            graph.apply(step)
            on_step()
    except (ModelError, MalformedError) as error:
        raise _not_repeated(str(getattr(error, "message", error)), model.source) from error
    # with the record, which is part of the digest that is compared
    return with_record(emit(graph), graph, applied, original=model)


def _row(applied: Applied, proof: Proof, claim: Claim, index: int) -> VerifiedRewrite:
    recorded = claim.proofs[index] if index < len(claim.proofs) else None
    before, now = recorded[0] if recorded else None, proof.float32
    holds = proof.holds()
    if applied.max_error_float64 is None and before is not None:
        holds = holds and now is not None and now <= max(before * _SLACK, _LEAST_ERROR)
    known = {
        **vars(applied),
        "max_error": _finite(now),
        "max_error_float64": _finite(applied.max_error_float64),
    }
    return VerifiedRewrite(
        **known,
        recorded=RecordedErrors(before, recorded[1]) if recorded else None,
        change=None if before is None or now is None else _finite(now - before),
        holds=holds,
    )


def _finite(error: float | None) -> float | None:
    # JSON has no infinities
    return error if error is not None and math.isfinite(error) else None


def _not_repeated(reason: str, where: str) -> GateError:
    return GateError(
        f"the record cannot be repeated: {reason}",
        code="rewrite.not-repeated",
        where=where,
        hint="rewrite the model again; the record comes from another edgekit release",
    )
