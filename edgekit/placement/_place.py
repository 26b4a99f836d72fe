"""``place``: from a network and its verdicts to a plan."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial

from edgekit.dla import Judgement
from edgekit.errors import GateError
from edgekit.network import Network
from edgekit.placement._assemble import assemble
from edgekit.placement._baselines import Baseline, baselines
from edgekit.placement._build_problem import build_problem
from edgekit.placement._built import Built
from edgekit.placement._costs import SUMS, CostModel, cost_data
from edgekit.placement._measured import measured_model
from edgekit.placement._optimise import Part, Solved, is_better, objective_value
from edgekit.placement._options import check_options
from edgekit.placement._request import Request, make_request
from edgekit.placement._search import search
from edgekit.placement._types import Options, Plan
from edgekit.solver import Placing, Problem
from edgekit.targets import Target

__all__ = ["Prepared", "energy_sums", "place", "prepare"]

Tell = Callable[[int, int], None]

_Found = tuple[Request, Built, Solved, list[str]]


@dataclass(frozen=True)
class Prepared:
    """What to place, as the solver sees it, and the way back from its answer to a plan."""

    request: Request

    @cached_property
    def built(self) -> Built:
        """The problem and what its indices stand for."""
        return build_problem(self.request)

    @cached_property
    def baselines(self) -> dict[str, Baseline | None]:
        """The placements that every plan is compared with."""
        value = partial(objective_value, self.request.options.objective)
        return baselines(self.request, value)

    @property
    def problem(self) -> Problem:
        """The problem for ``edgekit.solver``."""
        return self.built.problem

    def plan(self, placing: Placing, bound: float) -> Plan:
        """Returns the plan of a placement of :attr:`problem` that is worth at least ``bound``."""
        solved = Solved((Part(1.0, placing),), placing.value, bound)
        return assemble(self.request, self.built, solved, self.baselines)


def prepare(
    network: Network,
    judgement: Judgement,
    target: Target,
    *,
    precision: str,
    power_mode: str | None = None,
    options: Options = Options(),  # noqa: B008 - frozen
    beside: str = "",
) -> Prepared:
    """Returns the problem that :func:`place` solves; arguments and errors are the same.

    ``beside`` is which of the sums whose less is a placement's energy (``CostModel.energy``) the
    solver's energy is; the plan has the less of both, whatever this is.
    """
    check_options(options, target)
    mode = target.mode(power_mode)
    fp16, power = options.fp16_layers, ""
    if precision == "int8":
        # layers without a scale, as the verdicts and `check` have it
        fp16 |= {name for name, own in judgement.precisions.items() if own == "fp16"}
        power = "fp16" if all(layer.name in fp16 for layer in network.layers) else ""
    able = {name: verdict.placeable for name, verdict in judgement.verdicts.items()}
    predicts = CostModel(target, mode, precision, fp16, cost_data("devices"), power, beside)
    model = measured_model(predicts, options.profile, network, able)
    return Prepared(make_request(network, judgement, model, options))


def place(
    network: Network,
    judgement: Judgement,
    target: Target,
    *,
    precision: str,
    power_mode: str | None = None,
    options: Options = Options(),  # noqa: B008 - frozen
    progress: Tell | None = None,
    told: Callable[[float, float], None] | None = None,
    explains: bool = True,
) -> Plan:
    """Decides where every layer runs and in which formats tensors cross, optimally under the model.

    Args:
        network: The layer graph.
        judgement: Verdicts for the same network, target and precision.
        target: The board.
        precision: "int8", "fp16" or "fp32"; FP32 runs on the GPU only.
        power_mode: NVIDIA's name; None is the board's MAXN or default mode.
        options: Objective, bounds, cores, pins, limits of loadables.
        progress: Called with (steps done, steps in all).
        told: Called with the best value so far and the proven bound during a long search.
        explains: Whether a placement that cannot be is told with the smallest set of wishes that
            conflict, which takes further placements.

    Returns:
        The plan. Its ``bound`` is in the objective's unit: microseconds, microjoules, or frames
        a second for throughput, where it bounds from above. For a mix of plans ``predicted`` has
        the longest latency of any frame and the mean energy and GPU time of a frame.

    Raises:
        UsageError: Options that make no sense; a pin that matches no layer.
        DataError: The profile is another board's, precision's or model's.
        GateError: "plan.impossible" (standalone, but layers do not fit the DLA),
            "plan.infeasible" (pins, bounds or limits that nothing can keep) or "plan.limit"
            (the search was ended before anything was found or ruled out).
    """
    if explains:
        from edgekit.placement._ask import Ask
        from edgekit.placement._conflicts import explain_conflict

        ask = Ask(network, judgement, target, precision, power_mode, options)
        try:
            return ask.plan(progress=progress, told=told)
        except GateError as error:
            explain_conflict(ask, error)
            raise
    report = progress or (lambda done, total: None)
    shared = energy_sums(options)
    found, refused, proven = list[_Found](), list[GateError](), list[float]()
    for beside in shared:
        prepared = prepare(
            network, judgement, target, precision=precision, power_mode=power_mode,
            options=options, beside=beside,
        )  # fmt: skip
        request = prepared.request
        if beside == shared[0]:
            compared = prepared.baselines
            report(1, 3)
        try:
            built, solved, notes = search(request, prepared.built, prepared.baselines, told)
        except GateError as error:
            refused.append(error)
            continue
        proven.append(solved.bound)
        if options.objective == "energy":
            devices, load_us = built.problem.devices, solved.parts[0].placing.load_us
            solved = replace(solved, value=request.model.energy(devices, load_us)[0])
        if beside or len(shared) == 1:
            found.append((request, built, solved, notes))
        if not request.cores:
            break
    limits = [error for error in refused if error.code != "plan.infeasible"]
    if not found:
        raise (limits or refused)[0]
    best = found[0]
    for other in found[1:]:
        if is_better(options, other[2].value, best[2].value):
            best = other
    request, built, solved, notes = best
    bound = max(proven) if options.objective == "throughput" else min(proven)
    if limits:  # nothing is proved of what one of the sums allows
        bound = math.inf if options.objective == "throughput" else 0.0
    solved = replace(solved, bound=bound)
    report(2, 3)
    plan = assemble(request, built, solved, compared, notes)
    report(3, 3)
    return plan


def energy_sums(options: Options) -> tuple[str, ...]:
    """Returns for which ``CostModel.beside`` a placement is to be solved.

    The energy is the less of two sums, so what is best, or within a bound, by it is so by one of
    them: the best placement is the better of two. Plans of a mix can be within a bound by either;
    what bounds mixes of them all is the problem with less energy than both, which comes last.
    """
    if not options.gpu or (options.objective != "energy" and "energy_uj" not in options.bounds):
        return ("",)  # a core alone shares nothing
    return (*SUMS, "") if options.objective == "throughput" else SUMS
