"""The fewest layers to keep out of INT8 for a required accuracy, verified build by build;
and a plan with some layers in FP16.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Generic, TypeVar

from edgekit.errors import GateError
from edgekit.reference.accuracy import Accuracy, describe_metric
from edgekit.reference.search_bounds import SearchBounds
from edgekit.reference.sensitivity import Impact, Proposal
from edgekit.text import count_all
from edgekit_device.protocol.codec import write

if TYPE_CHECKING:
    from edgekit.placement.plan import PlacedLayer, Plan


# finding the head of the ranking takes about ten builds; the others give back halves, quarters and
# eighths
_BUILDS = 32
_SHOWN = 3
_Planned = TypeVar("_Planned")
# most plans to try, each with more layers in FP16
_ROUNDS = 4


def with_fp16(plan: Plan, layers: Collection[str]) -> Plan:
    """Returns the plan with these layers in FP16 instead of INT8.

    It is for trials of numerics: places and predicted times stay those of INT8.
    """

    def in_fp16(placed: tuple[PlacedLayer, ...]) -> tuple[PlacedLayer, ...]:
        return tuple(
            replace(layer, precision="fp16")
            if layer.name in layers and layer.precision == "int8"
            else layer
            for layer in placed
        )

    return replace(
        plan,
        layers=in_fp16(plan.layers),
        plans=tuple(replace(share, layers=in_fp16(share.layers)) for share in plan.plans),
    )


def reaches(accuracy: Accuracy, metric: str, minimum: float | None) -> bool:
    """Returns True if an accuracy passes a gate; a bit-equal result has no SNR and passes.

    An accuracy with a collapsed part (``failures``) never passes, with any figure of the whole.
    Figures of outputs that hardly vary (not ``judged``) are not meaningful and miss no gate.
    """
    return not accuracy.failures and reaches_value(accuracy, metric, minimum)


def reaches_value(accuracy: Accuracy, metric: str, minimum: float | None) -> bool:
    """Returns True if the figure of the whole alone passes a gate."""
    value: float | None = getattr(accuracy, metric)
    return minimum is None or value is None or not accuracy.judged or value >= minimum


def propose(
    impacts: Sequence[Impact],
    measure: Callable[[frozenset[str]], Accuracy],
    *,
    metric: str,
    minimum: float | None,
    keep: frozenset[str] = frozenset(),
    most: int | None = _BUILDS,
) -> Proposal:
    """Looks for the fewest kernels to keep in FP16.

    The worst kernels are kept in FP16 until the build reaches the accuracy (their number by
    bisection of its logarithm). Then superfluous kernels are given back: first many at once, at
    last one by one; both within ``most`` builds. The proposal itself was measured. If it is
    reported as minimal, the proposal without each single kernel was measured, too. A smaller set of
    other kernels may exist: there are too many sets to try all.

    Args:
        impacts: The kernels in INT8, worst first.
        measure: Builds with these layers in FP16 and returns its ``build.accuracy``.
        metric: A metric of ``gate.METRICS``.
        minimum: The lowest value that passes; None if the gate only forbids collapses.
        keep: Layers that always stay in FP16.
        most: Builds to measure, at least two; a proposal that is not minimal by then is reported
            as such. None: no limit.
    """
    known: dict[frozenset[int], Accuracy] = {}

    def names(chosen: Sequence[int]) -> frozenset[str]:
        return keep.union(*(impacts[n].layers for n in chosen))

    def passes(chosen: Sequence[int]) -> bool:
        key = frozenset(chosen)
        if key not in known:
            known[key] = measure(names(chosen))
        return reaches(known[key], metric, minimum)

    def proposal(chosen: Sequence[int] | None, minimal: bool) -> Proposal:
        used = range(len(impacts)) if chosen is None else sorted(chosen)
        layers = [name for n in used for name in impacts[n].layers]
        return Proposal(
            metric,
            minimum,
            None if chosen is None else (*sorted(keep), *layers),
            len(used),
            known[frozenset(used)],
            known[frozenset()],
            minimal,
            len(known),
        )

    def more() -> bool:
        return most is None or len(known) < most

    everything = range(len(impacts))
    if passes(()):
        return proposal((), minimal=True)
    # before the search, which would find this out after many builds
    if not passes(everything):
        return proposal(None, minimal=False)
    chosen = _shortest_head(passes, len(impacts), more)
    chosen, minimal = _drop_superfluous(chosen, passes, more)
    return proposal(chosen, minimal)


def _shortest_head(
    passes: Callable[[Sequence[int]], bool], count: int, more: Callable[[], bool]
) -> list[int]:
    """Returns the fewest kernels from the head of the ranking that reach the accuracy."""
    low, high = 0, count
    while high - low > 1 and more():
        # a few bad kernels are more likely than many
        middle = min(max(math.isqrt(low * high), low + 1), high - 1)
        if passes(range(middle)):
            high = middle
        else:
            low = middle
    return list(range(high))


def _drop_superfluous(
    chosen: list[int], passes: Callable[[Sequence[int]], bool], more: Callable[[], bool]
) -> tuple[list[int], bool]:
    """Drops superfluous kernels: halves, quarters, ... (delta debugging), the mildest first."""
    size = max(1, len(chosen) // 2)
    while True:
        smaller = False
        start = len(chosen)
        while start > 0:
            begin = max(0, start - size)
            rest = [*chosen[:begin], *chosen[start:]]
            if not more():
                return chosen, False
            if passes(rest):
                chosen, smaller = rest, True
            start = begin
        # no single kernel can be dropped: minimal
        if size == 1 and not smaller:
            return chosen, True
        size = max(1, size // 2)


def shortfall(proposal: Proposal) -> str:
    """Returns a sentence that FP16 of all layers misses the accuracy too, with the numbers."""
    metric = proposal.metric
    every = count_all(proposal.kernels, "INT8 kernel")
    if reaches_value(proposal.accuracy, metric, proposal.minimum):
        return (
            f"{'; '.join(proposal.accuracy.failures)} with {every} in FP16, so keeping layers in "
            "FP16 does not help"
        )

    minimum = proposal.minimum or 0.0
    return (
        f"{metric} against FP32 is {describe_metric(proposal.int8, metric)} in INT8 and "
        f"{describe_metric(proposal.accuracy, metric)} with {every} in FP16 (minimum "
        f"{minimum:.10g}), so keeping layers in FP16 does not help"
    )


def describe_miss(accuracy: Accuracy, metric: str, minimum: float | None) -> str:
    """Returns how an accuracy misses a gate; empty if it passes (``reaches``)."""
    if reaches(accuracy, metric, minimum):
        return ""
    notes = []
    if not reaches_value(accuracy, metric, minimum):
        value = describe_metric(accuracy, metric)
        notes.append(f"{metric} against FP32 is {value}, below {minimum:g}")
    notes += accuracy.failures[:_SHOWN]
    notes += [output.message for output in accuracy.nonfinite]
    return "; ".join(notes)


def below_gate(
    text: str, accuracy: Accuracy, *, data: str, int8: bool, fallback: bool
) -> GateError:
    """Returns the error of a build that is below its gate: "accuracy.below-gate".

    Args:
        text: How it misses the gate.
        accuracy: The build's accuracy.
        data: Description of the measured inputs.
        int8: True if the build is INT8 and may pass in FP16.
        fallback: True if layers were tried in FP16 (``accuracy.fallback``).
    """
    hint = "use precision: fp32, or lower the gate"
    if int8:
        hint = "calibrate on more or better data, use precision: fp16, or lower the gate"
        if not fallback:
            hint = f"accuracy.fallback: fp16 keeps the fewest layers in FP16; or {hint}"
    failure = GateError(
        f"{text} ({data})", code="accuracy.below-gate", where="accuracy.min", hint=hint
    )
    failure.extra["accuracy"] = write(accuracy)
    return failure


# A plan with other precisions has other places, so a proposal is planned and measured anew.


@dataclass(frozen=True)
class Fp16Search(Generic[_Planned]):
    """The search for layers in FP16 over plans, until one passes the gate.

    Attributes:
        propose: Returns the layers for a plan, within bounds, by the ranking of another plan's
            kernels; raises if no layers suffice.
        keep: Returns the plan with the proposed layers in FP16.
        kept: Returns the layers that a plan keeps in FP16 by this search.
        int8: Returns the layers that a plan has in INT8.
        passes: Returns True if a plan's build passes the gate.
        thorough: True if the kernels of each plan are ranked anew, which takes as long as many
            builds. Otherwise only if a plan has further kernels in INT8.
    """

    propose: Callable[[_Planned, SearchBounds, _Planned], Proposal]
    keep: Callable[[_Planned, Proposal], _Planned]
    kept: Callable[[_Planned], frozenset[str]]
    int8: Callable[[_Planned], frozenset[str]]
    passes: Callable[[_Planned], bool]
    thorough: bool

    def run(self, planned: _Planned, bounds: SearchBounds) -> _Planned:
        """Returns the first plan that passes, or the last plan found."""
        ranking = planned
        for _ in range(_ROUNDS):
            # a ranking takes as long as many builds, and holds for fewer INT8 kernels
            if self.thorough or not self.int8(planned) <= self.int8(ranking):
                ranking = planned
            found = self.propose(planned, bounds, ranking)
            if not found.layers or self.kept(planned).issuperset(found.layers):
                break  # already tried for a plan with other places; the gate reports the distance
            planned, bounds = self.keep(planned, found), bounds.after(found.builds)
            if self.passes(planned):
                break
        return planned
