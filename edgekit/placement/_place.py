"""``place``: from a network and its verdicts to a plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from edgekit.dla import Judgement
from edgekit.network import Network
from edgekit.placement._baselines import Baseline, baselines
from edgekit.placement._costs import CostModel, cost_data, model_error
from edgekit.placement._goal import Goal, evaluate
from edgekit.placement._kernels import Kernel
from edgekit.placement._loadables import run_in_order
from edgekit.placement._problem import Problem, metrics
from edgekit.placement._request import Request, build_problem, check_options, make_request
from edgekit.placement._segments import (
    DIGITS,
    loadables_of,
    placed_layers,
    pools_of,
    transitions_of,
)
from edgekit.placement._solve import Solved, objective_value, solve
from edgekit.placement._throughput import Part
from edgekit.placement._types import Loadable, Options, Plan, Predicted, Share
from edgekit.targets import Target

__all__ = ["OPTIMAL_GAP", "place"]

OPTIMAL_GAP = 1e-4


def place(
    network: Network,
    judgement: Judgement,
    target: Target,
    *,
    precision: str,
    power_mode: str | None = None,
    options: Options = Options(),  # noqa: B008 - frozen
    progress: Callable[[int, int], None] | None = None,
) -> Plan:
    """Decides where every layer runs, optimally under the cost model.

    Args:
        network: The layer graph.
        judgement: Verdicts for the same network, target and precision.
        target: The board.
        precision: "int8", "fp16" or "fp32"; FP32 runs on the GPU only.
        power_mode: NVIDIA's name; None is the board's MAXN or default mode.
        options: Objective, bounds, cores, pins, loadables.
        progress: Called with (steps done, steps in all).

    Returns:
        The plan. Its ``bound`` is in the objective's unit: microseconds, microjoules, or frames
        a second for throughput, where it bounds from above. For a mix of plans ``predicted`` has
        the longest latency of any frame and the mean energy and GPU time of a frame.

    Raises:
        UsageError: Options that make no sense; a pin that matches no layer.
        GateError: "plan.impossible" (standalone, but layers do not fit the DLA) or
            "plan.infeasible" (pins or bounds that nothing can keep).
    """
    report = progress or (lambda done, total: None)
    check_options(options, target)
    mode = target.mode(power_mode)
    model = CostModel(target, mode, precision, options.fp16_layers, cost_data("devices"))
    request = make_request(network, judgement, model, options)
    kernels, problem = build_problem(request)
    compared = baselines(request, partial(objective_value, options.objective))
    report(1, 3)
    solved = solve(problem, options)
    kernels, problem, solved = _never_worse(request, kernels, problem, solved, compared)
    report(2, 3)
    plan = _plan(request, kernels, problem, solved, compared)
    report(3, 3)
    return plan


def _never_worse(
    request: Request,
    kernels: tuple[Kernel, ...],
    problem: Problem,
    solved: Solved,
    compared: Mapping[str, Baseline | None],
) -> tuple[tuple[Kernel, ...], Problem, Solved]:
    """Takes a baseline that keeps every wish and beats the plan.

    That can only be one that cuts through a kernel or fuses across a capability border, which the
    optimiser leaves alone.
    """
    options = request.options
    if not options.gpu or options.pins:
        return kernels, problem, solved
    for baseline in compared.values():
        if baseline is None:
            continue
        goal = Goal(None, options.bounds)
        placing = evaluate(baseline.problem, baseline.devices, goal)
        if placing is None:
            continue
        value = objective_value(options.objective, baseline.problem, placing.load)
        if options.objective == "throughput":
            qps = 1e6 / value if value else 0.0
            if qps > solved.value:
                bound = max(solved.bound, qps)
                kernels, problem = baseline.kernels, baseline.problem
                solved = Solved((Part(1.0, placing),), qps, bound)
        elif value < solved.value:
            kernels, problem = baseline.kernels, baseline.problem
            solved = Solved((Part(1.0, placing),), value, min(solved.bound, value))
    return kernels, problem, solved


def _plan(
    request: Request,
    kernels: tuple[Kernel, ...],
    problem: Problem,
    solved: Solved,
    compared: Mapping[str, Baseline | None],
) -> Plan:
    model, options = request.model, request.options
    shares: list[Share] = []
    loadables: list[Loadable] = []
    transitions = 0
    for number, part in enumerate(solved.parts):
        placing = part.placing
        steps = run_in_order(problem, placing.devices, placing.sequence)
        layers = placed_layers(request.network, model, kernels, problem.devices, steps)
        shares.append(Share(round(part.share, 9), layers))
        loadables += loadables_of(request.network, model, layers)
        if number == 0:
            transitions = transitions_of(steps)
    value, bound = round(solved.value, DIGITS), round(solved.bound, DIGITS)
    gap = abs(value - bound) / value if value else 0.0
    return Plan(
        target=model.target.name,
        power_mode=model.mode.name,
        precision=model.precision,
        tensorrt=request.judgement.tensorrt,
        layers=shares[0].layers,
        loadables=tuple(loadables),
        pools=pools_of(loadables),
        transitions=transitions,
        predicted=_predicted_mix(problem, solved),
        objective=options.objective,
        optimal=gap <= OPTIMAL_GAP,
        bound=bound,
        gap=gap,
        plans=tuple(shares),
        baselines={
            name: None if b is None else _predicted(b.problem, b.load)
            for name, b in compared.items()
        },
        model_error=model_error(),
        notes=tuple(_notes(request, shares)),
    )


def _predicted(problem: Problem, load: Sequence[float]) -> Predicted:
    have = metrics(problem, load)
    period = have["period_us"]
    return Predicted(
        round(have["latency_us"], DIGITS),
        round(1e6 / period, DIGITS) if period else 0.0,
        round(have["energy_uj"], DIGITS),
        round(have["gpu_us"], DIGITS),
    )


def _predicted_mix(problem: Problem, solved: Solved) -> Predicted:
    if len(solved.parts) == 1:
        return _predicted(problem, solved.parts[0].placing.load)
    each = [(part.share, metrics(problem, part.placing.load)) for part in solved.parts]
    return Predicted(
        round(max(have["latency_us"] for _, have in each), DIGITS),
        round(solved.value, DIGITS),
        round(sum(share * have["energy_uj"] for share, have in each), DIGITS),
        round(sum(share * have["gpu_us"] for share, have in each), DIGITS),
    )


def _notes(request: Request, shares: Sequence[Share]) -> list[str]:
    """Returns what a reader should know about this plan."""
    notes = []
    model = request.model
    on_dla = any(layer.device != "GPU" for share in shares for layer in share.layers)
    if not model.target.dla.cores:
        notes.append(f"{model.target.name} has no DLA: everything runs on the GPU")
    elif model.precision == "fp32":
        notes.append("FP32 does not run on a DLA: everything runs on the GPU")
    elif not any(request.able.values()):
        notes.append("no layer can run on the DLA: everything runs on the GPU")
    elif not on_dla:
        notes.append("the GPU alone is best for this objective: no part is worth a move to the DLA")
    if on_dla:
        notes.append(
            "contention for memory between the GPU and the DLA is not modelled: run together, "
            "both are slower than predicted"
        )
    if model.mode.warning:
        notes.append(model.mode.warning)
    return notes
