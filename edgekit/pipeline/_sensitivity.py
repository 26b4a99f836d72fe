"""What INT8 costs layer by layer, kept in the cache, and the way from a failed gate to a plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from edgekit._listed import counted, listed
from edgekit.errors import GateError
from edgekit.pipeline._translated import float_note

if TYPE_CHECKING:
    import numpy as np

    from edgekit.pipeline._work import Work
    from edgekit.sensitivity import Proposal, Sensitivity

    Feeds = Iterable[Mapping[str, np.ndarray]]

__all__ = ["fall_back", "gate_failure", "honest", "measured", "proposed"]

# plans in which more and more layers are FP16: places change with the precisions
_ROUNDS = 4
# builds that bring a run without a gate to what always holds
_BUILDS = 12
_HELD_BYTES = 1 << 28


def measured(work: Work) -> Sensitivity:
    """Returns what INT8 of each kernel of the plan costs."""
    from edgekit.sensitivity import Impact, Sensitivity, analyse

    def compute() -> dict[str, Any]:
        found = analyse(
            work.model,
            work.network,
            work.plan,
            work.plan_scales,
            work.inputs(),
            progress=lambda done, total: work.update(
                done, total, f"INT8 kernel by kernel{work.with_kept}"
            ),
        )
        return asdict(found)

    stored = work.stored("sensitivity", compute, work.build_key, work.inputs_identity)
    rows = [
        {**row, "layers": tuple(row["layers"]), "place": tuple(row["place"])}
        for row in stored["impacts"]
    ]
    return Sensitivity(tuple(Impact(**row) for row in rows), stored["floats"], stored["samples"])


def proposed(work: Work, metric: str, minimum: float | None) -> Proposal:
    """Returns the fewest layers to keep in FP16 for an accuracy, each trial built and measured.

    Trials leave every layer at its place; the caller plans with what is found. Each is kept, so a
    search that was interrupted goes on where it was, and one for another accuracy begins with what
    is known.
    """
    from edgekit.sensitivity import Proposal, propose, reaches

    def compute() -> dict[str, Any]:
        impacts = measured(work).impacts
        inputs = _held(work.inputs())
        trials = 0
        best: int | None = None

        def measure(layers: frozenset[str]) -> Mapping[str, Any]:
            nonlocal trials, best
            trials += 1
            so_far = "none yet" if best is None else f"{counted(best, 'layer')} in FP16"
            found = _trial(
                work, layers, inputs, f"trial {trials}{work.with_kept}, best so far {so_far}"
            )
            if reaches(found, metric, minimum):
                best = len(layers) if best is None else min(best, len(layers))
            return found

        # without a gate nobody asked for the fewest layers of all
        if minimum is None:
            found = propose(impacts, measure, metric=metric, minimum=minimum, most=_BUILDS)
        else:
            found = propose(impacts, measure, metric=metric, minimum=minimum)
        return asdict(found)

    key = work.build_key, work.inputs_identity, metric, minimum, work.file.accuracy.scores
    stored = work.stored("proposal", compute, *key)
    layers = stored["layers"]
    return Proposal(**{**stored, "layers": None if layers is None else tuple(layers)})


def _held(inputs: Feeds) -> Feeds:
    """Returns inputs in memory, where there is room: every trial reads them all."""
    found, size = [], 0
    for sample in inputs:
        found.append(dict(sample))
        size += sum(value.nbytes for value in sample.values())
        if size > _HELD_BYTES:
            return inputs
    return found


def _trial(work: Work, layers: frozenset[str], inputs: Feeds, tell: str) -> dict[str, Any]:
    """Returns the accuracy of the plan's build with these layers in FP16."""
    from edgekit.build import build_reference
    from edgekit.sensitivity import with_fp16

    work.update(0, 0, tell)
    if not layers:
        return work.accuracy

    def compute() -> dict[str, Any]:
        plan = with_fp16(work.plan, layers)
        built = build_reference(work.model, work.network, plan, work.scales_of(plan))
        return work.measure(work.model, built, tell=tell, inputs=inputs)

    key = work.build_key, work.inputs_identity, sorted(layers), work.file.accuracy.scores
    found: dict[str, Any] = work.stored("trial", compute, *key)
    return found


def fall_back(work: Work) -> None:
    """Keeps the fewest layers in FP16 that bring the build to the configuration's gate.

    Raises:
        GateError: No layers do, not even all of them.
    """
    from edgekit.sensitivity import reaches, shortfall

    gate = work.file.accuracy
    for _ in range(_ROUNDS):
        found = proposed(work, gate.metric, gate.min)
        if found.layers is None:
            raise gate_failure(work, shortfall(found), found.accuracy, fp16=False)
        if not found.layers or set(found.layers) <= set(work.kept):
            break  # a plan of other places had it; the gate says how far this one is
        work.keep(found.layers)
        if not found.minimal:
            work.notes.append(
                f"the search for layers to keep in FP16 ended after {found.builds} builds: not "
                "proven minimal, perhaps fewer would do"
            )
        if reaches(work.accuracy, gate.metric, gate.min):
            break


def gate_failure(
    work: Work, text: str, error: Mapping[str, Any], *, fp16: bool = True
) -> GateError:
    """Returns the error of a build that is below the gate; ``fp16`` says if FP16 may pass."""
    hint = "use precision: fp32, or lower the gate"
    if work.file.precision == "int8" and fp16:
        hint = "calibrate on more or better data, use precision: fp16, or lower the gate"
        if work.file.accuracy.fallback == "none":
            hint = f"accuracy.fallback: fp16 keeps the fewest layers in FP16; or {hint}"
    failure = GateError(
        f"{text} ({error.get('data') or work.inputs_text})",
        code="accuracy.below-gate",
        where="accuracy.min",
        hint=hint,
    )
    failure.extra["accuracy"] = dict(error)
    return failure


def honest(work: Work) -> list[str]:
    """Says what the numbers are about."""
    told = [
        f"accuracy is against the FP32 network on {work.inputs_text}, emulated on this machine; "
        "it is no accuracy on a task"
    ]
    if work.file.model.builtin is not None:
        told.append("the network's weights are random")
    if work.translated is not None:
        told.append(float_note(work.named))
    if work.kept:
        told.append(f"kept in FP16: {listed(work.kept)}")
    return told
