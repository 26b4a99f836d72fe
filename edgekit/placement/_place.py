"""``place``: from a network and its verdicts to a plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from edgekit.dla import Judgement
from edgekit.errors import GateError
from edgekit.network import Network
from edgekit.placement._baselines import Baseline, baselines
from edgekit.placement._costs import CostModel, cost_data, model_error
from edgekit.placement._goal import Goal, Placing, evaluate
from edgekit.placement._kernels import Kernel
from edgekit.placement._loadables import Step, run_in_order
from edgekit.placement._options import check_options
from edgekit.placement._problem import Problem, metrics
from edgekit.placement._problem import loads as loads_of
from edgekit.placement._request import Request, build_problem, make_request
from edgekit.placement._segments import (
    DIGITS,
    loadables_of,
    placed_layers,
    pools_of,
    split_by_memory,
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
    fp16 = options.fp16_layers
    if precision == "int8":
        # layers without a scale, as the verdicts and `check` have it
        fp16 |= {name for name, own in judgement.precisions.items() if own == "fp16"}
    model = CostModel(target, mode, precision, fp16, cost_data("devices"))
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
    transitions: list[int] = []
    loads: list[tuple[float, ...]] = []
    for part in solved.parts:
        steps, load = _fitted(request, kernels, problem, part.placing)
        layers = placed_layers(request.network, model, kernels, problem, steps)
        shares.append(Share(round(part.share, 9), layers))
        loadables += loadables_of(request.network, model, layers)
        transitions.append(transitions_of(steps))
        loads.append(load)
    predicted = _predicted_mix(problem, [part.share for part in solved.parts], loads)
    if options.objective == "throughput":
        value = predicted.throughput_qps
    else:
        value = round(objective_value(options.objective, problem, loads[0]), DIGITS)
    bound = round(solved.bound, DIGITS)
    gap = abs(value - bound) / value if value else 0.0
    return Plan(
        target=model.target.name,
        power_mode=model.mode.name,
        precision=model.precision,
        tensorrt=request.judgement.tensorrt,
        layers=shares[0].layers,
        loadables=tuple(loadables),
        pools=pools_of(loadables),
        transitions=transitions[0],
        predicted=predicted,
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


def _predicted_mix(
    problem: Problem, shares: Sequence[float], loads: Sequence[Sequence[float]]
) -> Predicted:
    if len(loads) == 1:
        return _predicted(problem, loads[0])
    each = [metrics(problem, load) for load in loads]
    mean = [
        sum(s * us for s, us in zip(shares, device, strict=True))
        for device in zip(*loads, strict=True)
    ]
    return Predicted(
        round(max(have["latency_us"] for have in each), DIGITS),
        round(1e6 / max(mean), DIGITS),
        round(sum(s * have["energy_uj"] for s, have in zip(shares, each, strict=True)), DIGITS),
        round(mean[0], DIGITS),
    )


def _fitted(
    request: Request, kernels: tuple[Kernel, ...], problem: Problem, placing: Placing
) -> tuple[tuple[Step, ...], tuple[float, ...]]:
    """Returns the runs of a placement within the memory pools, and its loads with them."""
    steps = run_in_order(problem, placing.devices, placing.sequence)
    fitting = split_by_memory(request.network, request.model, kernels, steps)
    used = Counter(step.device for step in fitting if step.device)
    for core, count in used.items():
        if count > problem.max_loadables:
            raise GateError(
                f"{count} loadables are needed on {problem.devices[core]} to keep its memory "
                f"pools within their limits, and it holds {problem.max_loadables}",
                code="plan.infeasible",
                hint="pin the largest layers to the GPU",
            )
    return fitting, tuple(loads_of(problem, placing.devices, used))


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
