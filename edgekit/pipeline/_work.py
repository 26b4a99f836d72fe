"""What a configuration asks for, computed when it is needed and kept in the cache.

Each value stands under the digest of what it depends on, so a value that is not needed is not
computed, and one that was computed before is read back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sized
from functools import cached_property
from typing import TYPE_CHECKING, Any

from edgekit.pipeline._placing import Placing

if TYPE_CHECKING:
    import numpy as np

    from edgekit.build import Artefacts
    from edgekit.network import Model

__all__ = ["Work"]

_SHOWN = 3


class Work(Placing):
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
        from edgekit.build import build_reference
        from edgekit.pipeline._artefacts import load_artefacts, store_artefacts

        record = None if self.force else self.cache.get("build", self.build_key)
        artefacts = load_artefacts(self.cache, record) if record else None
        if artefacts is None:
            self.fresh.add("build")
            artefacts = build_reference(
                self.model,
                self.network,
                self.plan,
                self.plan_scales,
                progress=lambda done, total: self.update(
                    done, total, f"engines{self.with_kept}, segment {done} of {total}"
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
        tell: str = "",
        inputs: Iterable[Mapping[str, np.ndarray]] | None = None,
    ) -> dict[str, Any]:
        """Compares a build with its FP32 model over the calibration inputs.

        Of several plan variants the worst counts; ``per_segment`` has them all.
        """
        from edgekit.build import accuracy

        found = []
        lanes = _distinct_lanes(artefacts)
        tell = tell or f"accuracy{self.with_kept}"
        for number, lane in enumerate(lanes):
            error = accuracy(
                model, artefacts, self._told(tell, inputs, number, len(lanes)), lane=lane,
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

    def _told(
        self, tell: str, inputs: Iterable[Mapping[str, np.ndarray]] | None, plan: int, plans: int
    ) -> Iterator[Mapping[str, np.ndarray]]:
        """The calibration inputs, telling how many were taken of those of all plans."""
        inputs = self.inputs() if inputs is None else inputs
        total = len(inputs) if isinstance(inputs, Sized) else 0
        tell += f", plan {plan + 1} of {plans}" if plans > 1 else ""
        of = f" of {total}" if total else ""
        count = 0
        for done, sample in enumerate(inputs):
            self.update(plan * total + done, plans * total, f"{tell}, input {done + 1}{of}")
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
        from edgekit.pipeline._sensitivity import fall_back
        from edgekit.sensitivity import reaches

        gate = self.file.accuracy
        missed = not reaches(self.accuracy, gate.metric, gate.min)
        if missed and self.scales is not None and gate.fallback == "fp16":
            fall_back(self)
        self.check_accuracy(self.accuracy)
        return self.accuracy

    def check_accuracy(self, error: Mapping[str, Any]) -> None:
        """Raises GateError when ``error`` is below the configuration's gate."""
        from edgekit.build import metric_told
        from edgekit.pipeline._sensitivity import gate_failure
        from edgekit.sensitivity import reaches

        gate = self.file.accuracy
        if not reaches(error, gate.metric, gate.min):
            told = []
            if not reaches({**error, "failures": ()}, gate.metric, gate.min):
                value = metric_told(error, gate.metric)
                told.append(f"{gate.metric} against FP32 is {value}, below {gate.min:g}")
            told += [*error.get("failures", ())][:_SHOWN]
            told += [one["told"] for one in error.get("nonfinite") or ()]
            raise gate_failure(self, "; ".join(told), error)

    def accuracy_told(self, error: Mapping[str, Any], figures: str) -> str:
        """Returns ``figures``, or that what ``error`` has says nothing, and that no gate judges.

        Args:
            error: What ``measure`` returned.
            figures: What it says where it is known.
        """
        from edgekit.build import NOT_KNOWN

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
