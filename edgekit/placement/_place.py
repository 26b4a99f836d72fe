"""``place``: from a network and its verdicts to a plan."""

from __future__ import annotations

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
from edgekit.placement._costs import CostModel, cost_data
from edgekit.placement._measured import measured_model
from edgekit.placement._optimise import Part, Solved, is_better, objective_value
from edgekit.placement._options import check_options
from edgekit.placement._request import Request, make_request
from edgekit.placement._search import search
from edgekit.placement._types import Options, Plan
from edgekit.solver import Placing, Problem
from edgekit.targets import Target

__all__ = ["Prepared", "place", "prepare"]

OVERLAPPING = ("throughput", "period", "energy")  # objectives whose plans pay for sharing the DRAM

Tell = Callable[[int, int], None]


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
    beside: str = "dla",
) -> Prepared:
    """Returns the problem that :func:`place` solves; arguments and errors are the same.

    ``beside`` is whose work has the other kind of device at its side all the time, where frames
    overlap or an energy is minimised (``CostModel.beside``): the energy that sharing the DRAM takes
    is not more than that of either kind.
    """
    check_options(options, target)
    mode = target.mode(power_mode)
    if not options.gpu or options.objective not in OVERLAPPING:
        beside = ""
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
    prepared = prepare(
        network, judgement, target, precision=precision, power_mode=power_mode, options=options
    )
    request, built, compared = prepared.request, prepared.built, prepared.baselines
    report(1, 3)
    built, solved, notes = search(request, built, compared, told)
    if options.objective == "energy" and request.model.beside and request.cores:
        # the energy of sharing is the less of two sums, so the best plan is the better of two
        second = prepare(
            network, judgement, target, precision=precision, power_mode=power_mode,
            options=options, beside="gpu",
        )  # fmt: skip
        found = search(second.request, second.built, compared, told)
        compared = {
            name: one if other is None or (one and one.energy_uj <= other.energy_uj) else other
            for (name, one), other in zip(compared.items(), second.baselines.values(), strict=True)
        }
        bound = min(solved.bound, found[1].bound)
        if is_better(options, found[1].value, solved.value):
            request, (built, solved, notes) = second.request, found
        solved = replace(solved, bound=bound)
    report(2, 3)
    plan = assemble(request, built, solved, compared, notes)
    report(3, 3)
    return plan
