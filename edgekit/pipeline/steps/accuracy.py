"""`Work`, the host side of a configuration up to the reference build, and its accuracy: the error
against FP32, what INT8 costs layer by layer, the accuracy gate, and the layers that go back to
FP16 where INT8 misses it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sized
from dataclasses import asdict
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.errors import GateError
from edgekit.network.model import Model
from edgekit.pipeline.cache import load_artefacts, store_artefacts
from edgekit.pipeline.steps.plan import PlannedWork
from edgekit.pipeline.steps.translation import float_note
from edgekit.text import counted, listed

if TYPE_CHECKING:
    from edgekit.reference.artefacts import Artefacts
    from edgekit.reference.sensitivity import Proposal, Sensitivity

    Feeds = Iterable[Mapping[str, np.ndarray]]


# plans in which more and more layers are FP16: places change with the precisions
_ROUNDS = 4
# builds that bring a run without a gate to what always holds
_BUILDS = 12
_HELD_BYTES = 1 << 28


def measured_sensitivity(work: Work) -> Sensitivity:
    """Returns what INT8 of each kernel of the plan costs."""
    from edgekit.reference.sensitivity import Impact, Sensitivity, analyse

    def compute() -> dict[str, Any]:
        found = analyse(
            work.segments,
            work.plan_scales,
            work.inputs(),
            progress=lambda done, total: work.update(
                done, total, f"INT8 kernel by kernel{work.fp16_suffix}"
            ),
        )
        return asdict(found)

    stored = work.stored("sensitivity", compute, work.build_key, work.inputs_identity)
    rows = [
        {**row, "layers": tuple(row["layers"]), "place": tuple(row["place"])}
        for row in stored["impacts"]
    ]
    return Sensitivity(tuple(Impact(**row) for row in rows), stored["floats"], stored["samples"])


def proposed_layers(work: Work, metric: str, minimum: float | None) -> Proposal:
    """Returns the fewest layers to keep in FP16 for an accuracy, each trial built and measured.

    Trials leave every layer at its place; the caller plans with what is found. Each is kept, so a
    search that was interrupted goes on where it was, and one for another accuracy begins with what
    is known.
    """
    from edgekit.reference.proposal import propose, reaches
    from edgekit.reference.sensitivity import Proposal

    def compute() -> dict[str, Any]:
        impacts = measured_sensitivity(work).impacts
        inputs = _held(work.inputs())
        trials = 0
        best: int | None = None

        def measure(layers: frozenset[str]) -> Mapping[str, Any]:
            nonlocal trials, best
            trials += 1
            so_far = "none yet" if best is None else f"{counted(best, 'layer')} in FP16"
            found = _trial(
                work, layers, inputs, f"trial {trials}{work.fp16_suffix}, best so far {so_far}"
            )
            if reaches(found, metric, minimum):
                best = len(layers) if best is None else min(best, len(layers))
            return found

        # without a gate the fewest layers of all are not needed
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
    """Returns inputs in memory, where they fit: every trial reads them all."""
    found, size = [], 0
    for sample in inputs:
        found.append(dict(sample))
        size += sum(value.nbytes for value in sample.values())
        if size > _HELD_BYTES:
            return inputs
    return found


def _trial(work: Work, layers: frozenset[str], inputs: Feeds, text: str) -> dict[str, Any]:
    """Returns the accuracy of the plan's build with these layers in FP16."""
    from edgekit.placement.segments import segmented
    from edgekit.reference.build import build_reference
    from edgekit.reference.proposal import with_fp16

    work.update(0, 0, text)
    if not layers:
        return work.accuracy

    def compute() -> dict[str, Any]:
        plan = with_fp16(work.plan, layers)
        segments = segmented(work.model, work.network, plan)
        built = build_reference(segments, work.scales_of(plan))
        return work.measure(work.model, built, text=text, inputs=inputs)

    key = work.build_key, work.inputs_identity, sorted(layers), work.file.accuracy.scores
    found: dict[str, Any] = work.stored("trial", compute, *key)
    return found


def fall_back_to_fp16(work: Work) -> None:
    """Keeps the fewest layers in FP16 that bring the build to the configuration's gate.

    Raises:
        GateError: No layers do, not even all of them.
    """
    from edgekit.reference.proposal import reaches, shortfall

    gate = work.file.accuracy
    for _ in range(_ROUNDS):
        found = proposed_layers(work, gate.metric, gate.min)
        if found.layers is None:
            raise gate_failure(work, shortfall(found), found.accuracy, fp16=False)
        if not found.layers or set(found.layers) <= set(work.fp16_by_gate):
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


def accuracy_notes(work: Work) -> list[str]:
    """Says what the numbers are about."""
    notes = [
        f"accuracy is against the FP32 network on {work.inputs_text}, emulated on this machine; "
        "it is no accuracy on a task"
    ]
    if work.file.model.builtin is not None:
        notes.append("the network's weights are random")
    if work.translated is not None:
        notes.append(float_note(work.named))
    if work.fp16_by_gate:
        notes.append(f"kept in FP16: {listed(work.fp16_by_gate)}")
    return notes


# What a configuration needs, computed on demand and stored in the cache.
#
# Each value stands under the digest of what it depends on, so a value that is not needed is not
# computed, and one that was computed before is read back.


_SHOWN = 3


class Work(PlannedWork):
    """The host side of a configuration, from the model to the built engines and their error."""

    @cached_property
    def build_key(self) -> str:
        """Identity of the build: model, placement and scales."""
        placed = [
            [share.share, [[p.name, p.device, p.precision, p.segment] for p in share.layers]]
            for share in self.plan.plans
        ]
        scales = self.plan_scales.digest if self.plan_scales else None
        return self.cache.key("build", self.model_digest, placed, scales)

    @cached_property
    def artefacts(self) -> Artefacts:
        """The engines of the reference build, which follow the target's numerics on this CPU."""
        from edgekit.reference.build import build_reference

        record = None if self.force else self.cache.get("build", self.build_key)
        artefacts = load_artefacts(self.cache, record) if record else None
        if artefacts is None:
            self.fresh.add("build")
            artefacts = build_reference(
                self.segments,
                self.plan_scales,
                progress=lambda done, total: self.update(
                    done, total, f"engines{self.fp16_suffix}, segment {done} of {total}"
                ),
            )
            record = store_artefacts(self.cache, artefacts)
            self.cache.put("build", self.build_key, record)
            artefacts = load_artefacts(self.cache, record) or artefacts
        return artefacts

    @cached_property
    def accuracy(self) -> dict[str, Any]:
        """Error of the built network against FP32 over the calibration inputs."""
        # engines that were just built are compared anew: an older comparison may be of damaged ones
        artefacts = self.artefacts
        built = "build" in self.fresh
        result: dict[str, Any] = self.stored(
            "accuracy", lambda: self.measure(self.model, artefacts), self.build_key,
            self.inputs_identity, self.file.accuracy.scores, again=built,
        )  # fmt: skip
        return result

    def measure(
        self,
        model: Model,
        artefacts: Artefacts,
        *,
        text: str = "",
        inputs: Iterable[Mapping[str, np.ndarray]] | None = None,
    ) -> dict[str, Any]:
        """Compares a build with its FP32 model over the calibration inputs.

        Of several plan variants the worst counts; ``per_segment`` has them all.
        """
        from edgekit.reference.accuracy import accuracy

        found = []
        lanes = _distinct_lanes(artefacts)
        text = text or f"accuracy{self.fp16_suffix}"
        for number, lane in enumerate(lanes):
            error = accuracy(
                model, artefacts, self._counted(text, inputs, number, len(lanes)), lane=lane,
                scores=self.file.accuracy.scores,
            )  # fmt: skip
            segments = [{"lane": lane, **part} for part in error["per_segment"]]
            found.append({**error, "per_segment": segments})
        worst = min(found, key=lambda error: float(error["cosine"]))
        random = "random weights and " if self.file.model.builtin is not None else ""
        data = random + self.inputs_text
        parts = [part for error in found for part in error["per_segment"]]
        failures = list(dict.fromkeys(text for error in found for text in error["failures"]))
        return {**worst, "failures": failures, "per_segment": parts, "data": data}

    def _counted(
        self, text: str, inputs: Iterable[Mapping[str, np.ndarray]] | None, plan: int, plans: int
    ) -> Iterator[Mapping[str, np.ndarray]]:
        """The calibration inputs, reporting how many were taken of those of all plans."""
        inputs = self.inputs() if inputs is None else inputs
        total = len(inputs) if isinstance(inputs, Sized) else 0
        text += f", plan {plan + 1} of {plans}" if plans > 1 else ""
        of = f" of {total}" if total else ""
        count = 0
        for done, sample in enumerate(inputs):
            self.update(plan * total + done, plans * total, f"{text}, input {done + 1}{of}")
            yield sample
            count = done + 1
        self.read = count

    def gated(self) -> dict[str, Any]:
        """Returns the accuracy of a build that passes the configuration's gate.

        Without one it still holds that nothing collapses and that a detector keeps its scores.

        Where INT8 misses it, the fewest layers that bring it there are kept in FP16, in the plan
        and in the engines too, unless the configuration's fallback is "none".

        Raises:
            GateError: No build passes.
        """
        from edgekit.reference.proposal import reaches

        gate = self.file.accuracy
        missed = not reaches(self.accuracy, gate.metric, gate.min)
        if missed and self.scales is not None and gate.fallback == "fp16":
            fall_back_to_fp16(self)
        self.check_accuracy(self.accuracy)
        return self.accuracy

    def check_accuracy(self, error: Mapping[str, Any]) -> None:
        """Raises GateError when ``error`` is below the configuration's gate."""
        from edgekit.reference.accuracy import describe_metric
        from edgekit.reference.proposal import reaches

        gate = self.file.accuracy
        if not reaches(error, gate.metric, gate.min):
            notes = []
            if not reaches({**error, "failures": ()}, gate.metric, gate.min):
                value = describe_metric(error, gate.metric)
                notes.append(f"{gate.metric} against FP32 is {value}, below {gate.min:g}")
            notes += [*error.get("failures", ())][:_SHOWN]
            notes += [one["told"] for one in error.get("nonfinite") or ()]
            raise gate_failure(self, "; ".join(notes), error)

    def accuracy_text(self, error: Mapping[str, Any], figures: str) -> str:
        """Returns ``figures``, or that what ``error`` has says nothing, and that no gate judges.

        Args:
            error: What ``measure`` returned.
            figures: What it says where it is known.
        """
        from edgekit.reference.accuracy import NOT_KNOWN

        if not error.get("constant"):
            return figures
        gate = self.file.accuracy
        unjudged = gate.min is not None and not error.get("judged", True)
        return f"accuracy {NOT_KNOWN}" + (
            f"; accuracy.min ({gate.metric}) is not judged" if unjudged else ""
        )


def _distinct_lanes(artefacts: Artefacts) -> list[int]:
    """Returns the plan variants that differ in more than the DLA core they run on."""
    seen: dict[tuple[str, ...], int] = {}
    for lane, (_, segments) in enumerate(artefacts.lanes):
        seen.setdefault(tuple(segment.engine for segment in segments), lane)
    return list(seen.values())
