"""From the solved problem to the plan: layers, loadables, reformats and pools in running order,
notes for the reader, and differences from the groups of TensorRT's builder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from typing import NamedTuple

from edgekit.dla.judge import first_qdq_release
from edgekit.dla.loadables import find_candidates
from edgekit.dla.plugin_formats import declaration, declared_formats
from edgekit.error_document import VerdictReason
from edgekit.network.graph import LEFT
from edgekit.network.model import Network, loadable_name
from edgekit.placement.baselines import Baseline
from edgekit.placement.control_flow import control_flow_notes
from edgekit.placement.costs.constants import contention_constants, extrapolation
from edgekit.placement.costs.handover import layout_text, read_formats
from edgekit.placement.costs.kernel_costs import (
    is_depthwise,
    model_error,
    pointwise_function,
)
from edgekit.placement.costs.model import CostModel, contention_table
from edgekit.placement.forecast import DIGITS
from edgekit.placement.inputs import LoadableCapacity, PlacementInputs
from edgekit.placement.plan import (
    OBJECTIVE_UNITS,
    SECOND_METRICS,
    UNKNOWN,
    BuilderDifference,
    BuilderGroups,
    Constraints,
    FrameEnergy,
    LeftLayer,
    MeasuredPart,
    Options,
    PlacedLayer,
    Plan,
    PlannedLoadable,
    PredictedCost,
    Reformat,
    Share,
    SlackChoice,
    Unfused,
    exception_text,
    mixes_devices,
    plan_value,
)
from edgekit.placement.problem import BuiltProblem, find_oversized, with_engine_contention
from edgekit.placement.profiles.measured import measured_part
from edgekit.placement.search import Solved, baseline_within_request, objective_value
from edgekit.solver.loadables import count_transitions
from edgekit.solver.problem import (
    OPTIMAL_GAP,
    OUTSIDE,
    Cost,
    ExecutionStep,
    PlacementProblem,
    Placing,
    metrics,
)
from edgekit.targets.board import GENERATIONS, Target
from edgekit.targets.releases import parse_version
from edgekit.text import counted, listed, percent
from edgekit_device.protocol.codec import document, write
from edgekit_device.protocol.fields import dla_core

_SHOWN = 4
_UNITS = {"us": "µs", "uj": "µJ", "qps": "frames a second"}
SHOWN = 5  # names in a difference


class _Figures(NamedTuple):
    """Predictions for an inference: microseconds, frames a second, microjoules."""

    latency_us: float
    throughput_qps: float
    energy_uj: float
    gpu_us: float

    def cost(self, unknown: Sequence[str]) -> PredictedCost:
        """Returns a document's figures; each is None if no layer has a known time.

        Args:
            unknown: The plan's layers that no time includes.
        """
        # if only layers of unknown cost remain, the cost is unknown, not zero
        return UNKNOWN if unknown and not self.latency_us else PredictedCost(*self)


@document(frozen=True)
class _DocumentPlan:
    """A plan of the mix in the form of the document."""

    share: Share
    figures: _Figures
    loadables: tuple[PlannedLoadable, ...]
    load_us: tuple[float, ...]
    energy_uj: float
    modes: tuple[int, ...]


def assemble(
    request: PlacementInputs,
    built: BuiltProblem,
    solved: Solved,
    compared: Mapping[str, Baseline | None],
    notes: Sequence[str] = (),
    optimum: Plan | None = None,
    *,
    notes_proof: bool = True,
    few: bool = False,
) -> Plan:
    """Returns the plan document's values for a solved problem.

    Args:
        request: The placed request.
        built: The problem.
        solved: Its solution.
        compared: The baselines.
        notes: Further notes.
        optimum: The best plan, if this is another plan within the slack.
        notes_proof: True to add a note on the proof of this plan.
        few: True if it is the best plan within the slack with at most this number of loadables.
    """
    model, options, problem = request.model, request.options, built.problem
    shown = [_document_plan(request, built, solved, number) for number in range(len(solved.parts))]
    predicted = _mix_figures(request, problem, [plan.share.share for plan in shown], shown)
    if options.objective == "throughput":
        value = predicted.throughput_qps
    else:
        first = shown[0]
        engines = with_engine_contention(request, problem, first.modes)
        value = objective_value(options.objective, engines, first.load_us, first.energy_uj)
        value = round(value, DIGITS)
    # rounded as the value is, or the two could differ by rounding alone
    bound = round(solved.bound, DIGITS)
    gap = abs(value - bound) / value if value else 0.0
    slack = _slack_choice(options, value, predicted, optimum)
    if optimum is not None:
        # the proof is of the optimum; this plan may be worse by the slack
        bound, gap = optimum.bound, optimum.gap
    loadables = tuple(loadable for plan in shown for loadable in plan.loadables)
    # of all plans of a mix: each is an engine of its own
    builder = builder_groups(
        request.network,
        [(plan.share.layers, plan.loadables) for plan in shown],
        options.max_loadables,
    )
    # of a mix: the plan with the largest share
    measured = measured_part(
        model,
        shown[0].share.layers,
        [(reformat.us, reformat.clock == "measured") for reformat in shown[0].share.reformats],
        sum(part.us for part in shown[0].share.unfused),
        metrics(problem, shown[0].load_us, shown[0].energy_uj)["latency_us"],
    )
    left = tuple(
        LeftLayer(layer.name, str(layer.params["module"]))
        for layer in request.network.layers
        if layer.opaque == LEFT
    )
    if left:
        names = {layer.name for layer in left}
        # the layers of left-out modules only affect the order
        shown = [replace(plan, share=_drop_layers(plan.share, names)) for plan in shown]
        builder = _drop_from_groups(builder, names)
    # measured times are known
    unmeasured = {layer.name for layer in shown[0].share.layers if not layer.predicted_us}
    unknown = tuple(name for name in request.network.uncounted if name in unmeasured)
    untimed = (*unknown, *(layer.name for layer in left))
    loads = _mean_loads(problem, shown)
    # of a mix only the first plan's measured part is known
    known_part = measured if len(shown) == 1 else None
    whole = known_part is not None and known_part.fraction == 1
    # a plan that is measured whole has no predictions
    extrapolated = () if whole else find_extrapolations(request, [plan.share for plan in shown])
    return Plan(
        target=model.target.name,
        power_mode=model.mode.name,
        precision=model.precision,
        tensorrt=request.judgement.tensorrt,
        layers=shown[0].share.layers,
        loadables=loadables,
        pools=max_pool_bytes(loadables),
        transitions=shown[0].share.transitions,
        predicted=predicted.cost(untimed),
        objective=options.objective,
        optimal=gap <= OPTIMAL_GAP and bool(predicted.latency_us or not untimed),
        bound=bound,
        gap=gap,
        plans=tuple(replace(plan.share, predicted=plan.figures.cost(untimed)) for plan in shown),
        baselines=baseline_costs(request, compared, untimed),
        model_error=model_error(),
        notes=(
            *(_proof_notes(shown, gap, unknown, measured, optimum is None) if notes_proof else ()),
            *_notes(request, shown, extrapolated, find_oversized(request, built), optimum is None),
            *builder_notes(builder),
            *_uncounted_notes(unknown, known=predicted.latency_us > 0),
            *_plugin_notes(request, [r for plan in shown for r in plan.share.reformats]),
            *_slack_note(slack, options.objective, value, predicted, len(loadables) if few else 0),
            *notes,
            *(measured.notes if measured else ()),
        ),
        reformats=tuple(reformat for plan in shown for reformat in plan.share.reformats),
        builder=builder,
        bands=_bands(request, predicted, loads, bool(extrapolated), known_part),
        measured=measured,
        constraints=_constraints(request),
        unknown_cost=unknown,
        baselines_keep=check_baselines(request, problem, compared),
        extrapolated=extrapolated,
        energy=FrameEnergy(options.rate_hz, round(model.idle_uj(loads), DIGITS)),
        slack=slack,
        left=left,
    )


def _drop_layers(share: Share, names: Set[str]) -> Share:
    builder = None if share.builder is None else _drop_from_groups(share.builder, names)
    layers = tuple(layer for layer in share.layers if layer.name not in names)
    return replace(share, layers=layers, builder=builder)


def _drop_from_groups(builder: BuilderGroups, names: Set[str]) -> BuilderGroups:
    types = {name: kind for name, kind in builder.device_types.items() if name not in names}
    return replace(builder, device_types=types)


def _slack_choice(
    options: Options, value: float, predicted: _Figures, optimum: Plan | None
) -> SlackChoice:
    metric = SECOND_METRICS[options.objective]
    if optimum is None:
        return SlackChoice(options.slack, value, 0.0, metric, getattr(predicted, metric))
    best = plan_value(optimum)
    given_up = abs(value - best) / best if best else 0.0
    figure = getattr(optimum.predicted, metric) or 0.0
    return SlackChoice(options.slack, best, given_up, metric, figure)


def _slack_note(
    slack: SlackChoice, objective: str, value: float, predicted: _Figures, loadables: int
) -> list[str]:
    """Returns a note on the cost and the gain of a plan within the slack of the optimum.

    With a number of ``loadables`` it is the best plan with at most this number.
    """
    own = getattr(predicted, slack.metric)
    if own == slack.at_optimum and not slack.given_up:
        return []
    unit = _UNITS[OBJECTIVE_UNITS[objective]]
    figure, _, of = slack.metric.partition("_")
    few = f"and with at most {counted(loadables, 'loadable')}, " if loadables else ""
    return [
        f"of the plans within {100 * slack.allowed:g} % (placement.slack) of the best {objective}, "
        f"{slack.optimum:,.6g} {unit}, {few}this one has the least {figure}: {own:,.6g} "
        f"{_UNITS[of]} instead of {slack.at_optimum:,.6g}; it gives up "
        f"{percent(slack.given_up, 2)} and reaches {value:,.6g} {unit} (predicted)"
    ]


def baseline_costs(
    request: PlacementInputs, compared: Mapping[str, Baseline | None], unknown: Sequence[str]
) -> dict[str, PredictedCost | None]:
    """Returns the predicted costs of baselines; ``unknown``: layers that no time includes."""
    found: dict[str, PredictedCost | None] = dict.fromkeys(compared)
    for name, b in compared.items():
        if b is not None:
            problem = with_engine_contention(request, b.built.problem, b.modes)
            found[name] = _round_figures(problem, b.load_us, b.energy_uj).cost(unknown)
    return found


def check_baselines(
    request: PlacementInputs, problem: PlacementProblem, compared: Mapping[str, Baseline | None]
) -> dict[str, bool | None]:
    """Returns, by baseline, True if it keeps the user's constraints; None if it is impossible."""
    return {
        name: None if b is None else baseline_within_request(request, problem, b) is not None
        for name, b in compared.items()
    }


def find_extrapolations(request: PlacementInputs, shares: Sequence[Share]) -> tuple[str, ...]:
    """Returns the predictions of plans that no published time supports."""
    model, network = request.model, request.network
    found: dict[str, None] = {}
    used = {(layer.device, layer.precision) for share in shares for layer in share.layers}
    for device, precision in sorted(used):
        if not model.has_rows(device, precision):
            board = model.target.gpu.arch if device == "GPU" else "the DLA"
            what = f"the GPU ({board})" if device == "GPU" else board
            found[f"{precision.upper()} on {what} has no published time"] = None
    known = extrapolation()
    if any(layer.params.get("steps") for layer in network.layers):
        found[f"{known.recurrences.why} have no published time"] = None
    if any(layer.bodies and layer.formula for layer in network.layers):
        found[f"{known.control_flow.why} have no published time"] = None
    rule = known.mobile_on_dla
    on_dla = {layer.name for share in shares for layer in share.layers if layer.device != "GPU"}
    if any(is_depthwise(network, layer) for layer in network.layers if layer.name in on_dla):
        gates = any(pointwise_function(layer) in rule.gates for layer in network.layers)
        # a channel shuffle goes through a tensor of more dimensions
        shuffles = any(
            layer.kind == "SHUFFLE"
            and any(len(network.tensors[n].shape) >= rule.shuffle_rank for n in layer.inputs)
            for layer in network.layers
        )
        if gates or shuffles:
            found[f"{rule.why} have no published time"] = None
    return tuple(found)


def _document_plan(
    request: PlacementInputs, built: BuiltProblem, solved: Solved, number: int
) -> _DocumentPlan:
    part = solved.parts[number]
    load_us = part.placing.load_us
    # the smaller of two sums decides the watts by which energies are divided over layers
    energy_uj, watts = request.model.energy(built.problem.devices, load_us)
    running = RunningPlan(
        request.network, request.model, request.capacity, built, part.placing, watts
    )
    options = request.options
    running = with_builder_loadables(running, options.max_loadables, options.min_loadable_layers)
    # after the change of loadables: segments and memory are those that are built
    layers, loadables = running.layers(), running.loadables(number)
    engines = with_engine_contention(request, built.problem, part.placing.modes)
    share = Share(
        round(part.share, 9),
        layers,
        count_transitions(running.placing.steps),
        None,
        running.reformats(number),
        running.unfused(number),
        builder_groups(request.network, [(layers, loadables)], options.max_loadables, number),
    )
    figures = _round_figures(engines, load_us, energy_uj)
    return _DocumentPlan(share, figures, loadables, load_us, energy_uj, part.placing.modes)


def _round_figures(
    problem: PlacementProblem, load_us: Sequence[float], energy_uj: float
) -> _Figures:
    have = metrics(problem, load_us, energy_uj)
    period = have["period_us"]
    return _Figures(
        round(have["latency_us"], DIGITS),
        round(1e6 / period, DIGITS) if period else 0.0,
        round(have["energy_uj"], DIGITS),
        round(have["gpu_us"], DIGITS),
    )


def _mix_figures(
    request: PlacementInputs,
    problem: PlacementProblem,
    shares: Sequence[float],
    shown: Sequence[_DocumentPlan],
) -> _Figures:
    """Returns the figures of frames that use plans in these shares.

    Frames of different plans overlap: period and energy are computed from a frame's mean loads.
    """
    problem = with_engine_contention(request, problem, *(plan.modes for plan in shown))
    if len(shown) == 1:
        return _round_figures(problem, shown[0].load_us, shown[0].energy_uj)
    each = [metrics(problem, plan.load_us, plan.energy_uj) for plan in shown]

    def mean(values: Sequence[float]) -> float:
        return sum(s * value for s, value in zip(shares, values, strict=True))

    loads = _mean_loads(problem, shown)
    period = problem.period_us(loads)
    return _Figures(
        # no frame takes longer, whichever plan it takes
        round(max(have["latency_us"] for have in each), DIGITS),
        round(1e6 / period, DIGITS) if period else 0.0,
        round(request.model.energy(problem.devices, loads)[0], DIGITS),
        round(mean([have["gpu_us"] for have in each]), DIGITS),
    )


def _mean_loads(problem: PlacementProblem, shown: Sequence[_DocumentPlan]) -> list[float]:
    """Returns each device's work for a frame, the mean of the plans weighted by their shares."""
    return [
        sum(plan.share.share * plan.load_us[d] for plan in shown)
        for d in range(len(problem.devices))
    ]


def _bands(
    request: PlacementInputs,
    predicted: _Figures,
    busy: Sequence[float],
    extrapolated: bool,
    measured: MeasuredPart | None,
) -> dict[str, tuple[float, float]]:
    """Returns the ranges of the predicted figures, by the model's known errors.

    ``busy`` is each device's work for a frame, in microseconds. Measured times narrow the ranges in
    proportion to their share of each device's time; a device's power remains predicted.
    """
    band = getattr(request.model, "band", None)
    if band is None:
        return {}
    factors = [band(name, request.model.precision) for name in request.devices]
    if extrapolated:
        wide = extrapolation().band
        factors = [(min(low, wide[0]), max(high, wide[1])) for low, high in factors]
    if not sum(busy):
        if request.network.uncounted:
            return {}
        return {name: (value, value) for name, value in predicted._asdict().items()}
    low, high = _weigh_factors(busy, factors)
    # back to back the idle power belongs to each device's time, so the band covers it
    idle_uj = 0.0
    if request.options.rate_hz is not None:
        idle_uj = request.model.idle_uj(busy)
    least, most = _scale_range(predicted.energy_uj - idle_uj, low, high)
    energy = (least + idle_uj, most + idle_uj)  # the module's idle time is known
    if measured:
        parts = [
            measured.fraction_of["gpu" if name == "GPU" else "dla"] for name in request.devices
        ]
        factors = [
            (1 + (least - 1) * (1 - part), 1 + (most - 1) * (1 - part))
            for (least, most), part in zip(factors, parts, strict=True)
        ]
        low, high = _weigh_factors(busy, factors)
    gpu = factors[0]
    return {
        "latency_us": _scale_range(predicted.latency_us, low, high),
        "throughput_qps": _scale_range(predicted.throughput_qps, 1 / high, 1 / low),
        "energy_uj": energy,
        "gpu_us": _scale_range(predicted.gpu_us, *gpu),
    }


def _weigh_factors(
    busy: Sequence[float], factors: Sequence[tuple[float, float]]
) -> tuple[float, float]:
    """Returns the mean of the devices' factors, weighted by their busy times."""
    total = sum(busy)
    low, high = (
        sum(us * factor[side] for us, factor in zip(busy, factors, strict=True)) / total
        for side in range(2)
    )
    return low, high


def _scale_range(value: float, low: float, high: float) -> tuple[float, float]:
    return (round(value * low, DIGITS), round(value * high, DIGITS))


def _constraints(request: PlacementInputs) -> Constraints:
    """Returns the plan's constraints, as the user set them."""
    options = request.options
    return Constraints(
        dla_cores=tuple(request.cores),
        gpu=options.gpu,
        pins=options.pins,
        bounds=options.bounds,
        max_loadables=options.max_loadables,
        max_transitions=options.max_transitions,
        min_loadable_layers=options.min_loadable_layers,
        split=options.split,
        rate_hz=options.rate_hz,
        pools=options.pools,
    )


def gpu_best_note(options: Options) -> str:
    """Returns the note for a GPU-only plan that is the optimum."""
    limited = bool(
        options.pins
        or options.bounds
        or options.pools
        or options.max_transitions is not None
        or options.min_loadable_layers > 1
    )
    among = " of all placements within the limits" if limited else ""
    return f"the GPU alone is best for this objective{among}"


def _uncounted_notes(unknown: Sequence[str], *, known: bool) -> list[str]:
    if not unknown:
        return []
    if not known:
        return [
            f"no layer that takes time has a cost model ({listed(unknown, _SHOWN)}): time, rate "
            "and energy are unknown; give measured times with --profile"
        ]
    have, their = ("has", "its") if len(unknown) == 1 else ("have", "their")
    return [
        f"{counted(len(unknown), 'layer')} {have} no cost model ({listed(unknown, _SHOWN)}); "
        f"{their} time is not in the prediction: of unknown cost, so the board will take longer; "
        "give measured times with --profile"
    ]


def _plugin_notes(request: PlacementInputs, reformats: Sequence[Reformat]) -> list[str]:
    """Returns notes on plugin formats that would avoid a reformat at the plugin.

    In a strongly typed network a plugin cannot choose INT8.
    """
    typed = parse_version(request.judgement.tensorrt) >= parse_version(first_qdq_release())
    beside = {reformat.tensor: reformat for reformat in reformats}
    notes = []
    for layer in request.network.layers:
        # only a plugin can be declared with other formats
        if not declared_formats(layer):
            continue
        saved: dict[str, dict[str, float]] = {}
        for names, side in ((layer.inputs, "source"), (layer.outputs, "goal")):
            for name in names:
                text = declaration(getattr(beside[name], side)) if name in beside else None
                if text is not None and not (typed and text.startswith("int8:")):
                    saved.setdefault(text, {})[name] = beside[name].us
        for text, tensors in saved.items():
            us = sum(tensors.values())
            notes.append(
                f"{layer.name}: if the plugin {layer.op} takes {text}, declare it "
                f"(model.plugins, formats) and the reformat of {listed([*tensors], _SHOWN)} goes "
                f"({us:.3g} µs)"
            )
    return notes


def _contention_notes(request: PlacementInputs, shown: Sequence[_DocumentPlan]) -> list[str]:
    """Returns notes on the contention between devices that the plan's figures include."""
    target = request.model.target
    if not contention_table(target):
        return [
            "memory contention on this board is unknown: devices that run together are "
            "slower than predicted"
        ]
    hybrid = request.hybrid and mixes_devices(plan.share for plan in shown)
    cores = {layer.device for plan in shown for layer in plan.share.layers} - {"GPU"}
    notes = [_contention_note(target, request.options.rate_hz)]
    if hybrid:
        notes.append(_hybrid_note(target))
    if len(cores) > 1:
        notes.append(_both_cores_note(target, hybrid))
    return notes


def _contention_note(target: Target, rate_hz: float | None) -> str:
    """Returns a note on contention between devices if no layer waits for another device."""
    what = "throughput and energy include" if rate_hz is None else "throughput includes"
    table = contention_table(target)
    gpu, dla = (
        100 * (table[device][other] - 1) for device, other in (("gpu", "dla"), ("dla", "gpu"))
    )
    return (
        f"{what} memory contention: with a DLA core running, the "
        f"GPU takes {gpu:.0f} % longer and the core {dla:.0f} %"
    )


def _rate_notes(model: CostModel, rate_hz: float, shown: Sequence[_DocumentPlan]) -> list[str]:
    """Returns notes on the parts of the energy at a rate, and on its omissions."""
    loads = zip(*(plan.load_us for plan in shown), strict=True)
    idle_uj = model.idle_uj([sum(us) for us in loads][:-1])
    notes = [
        f"the energy is that of a frame at {rate_hz:g} frames a second: {idle_uj / 1e3:,.4g} mJ "
        f"are the idle module's ({model.target.idle_watts:g} W) and the standby of its "
        "devices in use; a band of the energy leaves these out, since their error is not known"
    ]
    if any(plan.figures.latency_us > 1e6 / rate_hz for plan in shown):
        notes.append(
            "at this rate a frame begins before the previous frame ends: the energy does not "
            "include the cost of devices that then work at once"
        )
    return notes


def _hybrid_note(target: Target) -> str:
    kept = 100 / contention_table(target, hybrid=True)["dla"]["gpu"]
    return (
        "throughput includes waiting: in a hybrid engine the DLA core keeps "
        f"{kept:.0f} % of its rate beside a busy GPU, because the engine's GPU layers wait for it "
        f"({_factor_source(target, 'hybrid_dla_by_gpu')}); build.mode: split avoids the wait"
    )


def _both_cores_note(target: Target, hybrid: bool) -> str:
    kept = 100 / contention_table(target, hybrid=hybrid)["dla"]["dla"]
    name = "hybrid_dla_by_dla" if hybrid else "dla_by_dla"
    return (
        f"throughput counts both DLA cores: each keeps {kept:.0f} % of its rate beside the other "
        f"({_factor_source(target, name)})"
    )


def _factor_source(target: Target, factor: str) -> str:
    """Returns the source of a contention factor: this board, or a board of its DLA's family."""
    if factor in target.contention:
        return "measured on this board"
    family = GENERATIONS[target.dla.generation]
    if factor.startswith("hybrid_"):
        board = contention_constants().hybrid_of[target.dla.generation]
        return f"measured on {board} and taken for every {family}"
    return f"fitted on published pairs of {family}"


def _proof_notes(
    shown: Sequence[_DocumentPlan],
    gap: float,
    unknown: Sequence[str],
    measured: MeasuredPart | None,
    best: bool,
) -> list[str]:
    """Returns notes on the plan's proof; empty if no layer has a known time."""
    if unknown and not any(sum(plan.load_us) for plan in shown):
        return []
    except_for = f", {exception_text(unknown)}" if unknown else ""
    if not best:
        except_for = f", but for the slack{except_for}"
    if gap > OPTIMAL_GAP:
        return [f"Not proved optimal: at most {100 * gap:.2g} % from the best for predicted times"]
    if measured and measured.fraction:
        known = "Optimal for measured times, with predictions where none were measured"
        return [f"{known}{except_for}"]
    return [f"Optimal for predicted times{except_for}; no board measurements were used"]


def _notes(
    request: PlacementInputs,
    shown: Sequence[_DocumentPlan],
    extrapolated: Sequence[str],
    refused: Mapping[str, VerdictReason],
    best: bool,
) -> list[str]:
    """Returns the notes of this plan; ``best``: it is the optimum itself."""
    model = request.model
    on_dla = any(layer.device != "GPU" for plan in shown for layer in plan.share.layers)
    notes = [f"Extrapolated: {why}; the error band is wide" for why in extrapolated]
    if not model.target.dla.cores:
        notes.append(f"{model.target.name} has no DLA: everything runs on the GPU")
    # the first reason that applies explains the others
    elif model.precision == "fp32":
        notes.append("FP32 does not run on a DLA: everything runs on the GPU")
    elif not request.cores:
        notes.append("no DLA core is allowed: everything runs on the GPU")
    elif not any(request.able.values()):
        notes.append("no layer can run on the DLA: everything runs on the GPU")
    elif all(name in refused for name, able in request.able.items() if able):
        notes.append("no layer fits the DLA's memory: everything runs on the GPU")
    elif not on_dla and best:
        notes.append(gpu_best_note(request.options))
    notes += _memory_notes(request, shown, refused)
    if on_dla and request.options.gpu:
        notes += _contention_notes(request, shown)
    if request.options.rate_hz is not None:
        notes += _rate_notes(model, request.options.rate_hz, shown)
    if model.mode.warning:
        notes.append(model.mode.warning)
    return notes + control_flow_notes(request.network)


def _memory_notes(
    request: PlacementInputs, shown: Sequence[_DocumentPlan], refused: Mapping[str, VerdictReason]
) -> list[str]:
    """Returns notes on layers that the DLA's memory keeps on the GPU, and doubtful loadables."""
    notes = []
    if refused:
        name, reason = next(iter(refused.items()))
        others = list(refused)[1:]
        like = f" ({listed(others, _SHOWN)} likewise: edgekit plan --why LAYER)" if others else ""
        notes.append(
            f"{name} stays on the GPU{like}: {reason.message} ({reason.rule}; {reason.source}): "
            f"{reason.fix}"
        )
    for plan in shown:
        for loadable in plan.loadables:
            if doubt := request.capacity.doubt(loadable.layers):
                name = loadable_name(request.network, loadable.layers)
                notes.append(f"{name} is assumed to fit on the DLA, but sources disagree: {doubt}")
    return notes


@document(frozen=True)
class RunningPlan:
    """One plan in running order: the placement, and the meaning of its indices.

    Attributes:
        network: The layer graph.
        model: The cost model.
        capacity: The limits of a loadable.
        built: The problem and its meaning.
        placing: The placement.
        watts: Watts by device that make up the placement's energy.
    """

    network: Network
    model: CostModel
    capacity: LoadableCapacity
    built: BuiltProblem
    placing: Placing
    watts: tuple[float, ...]

    def layers(self) -> tuple[PlacedLayer, ...]:
        """Returns every layer with its device and segment, in graph order.

        A kernel's time is divided by each layer's contribution; the costs of reformats, launches
        and borders belong to no layer: they are in loadables, reformats and unfused parts.
        """
        found: dict[int, PlacedLayer] = {}
        for segment, step in enumerate(self.placing.steps):
            device = self.built.problem.devices[step.device]
            for v in step.nodes:
                layers = [(i, self.network.layers[i]) for i in self.built.kernels[v].layers]
                cost = self.built.problem.costs[v][self.placing.modes[v]]
                assert cost is not None
                time, energy = cost.load_us[step.device], self._energy(cost)
                shares = self.model.layer_shares(self.network, self.built.kernels[v], device)
                for (index, layer), share in zip(layers, shares, strict=True):
                    found[index] = PlacedLayer(
                        layer.name,
                        layer.nodes,
                        device,
                        self.model.layer_precision(layer, device),
                        segment,
                        round(time * share, DIGITS),
                        round(energy * share, DIGITS),
                    )
        return tuple(found[index] for index in sorted(found))

    def _energy(self, cost: Cost) -> float:
        return sum(us * watts for us, watts in zip(cost.load_us, self.watts, strict=False))

    def loadables(self, plan: int = 0) -> tuple[PlannedLoadable, ...]:
        """Returns the DLA segments with their memory and border formats, in running order."""
        found = []
        borders = self._borders()
        for number, step in enumerate(self.placing.steps):
            launch = self.built.problem.launch[step.device]
            core = dla_core(self.built.problem.devices[step.device])
            if launch is None or core is None:
                continue
            indices = sorted(i for v in step.nodes for i in self.built.kernels[v].layers)
            names = tuple(self.network.layers[i].name for i in indices)
            need = self.capacity.need(names)
            border_us, border_uj = borders.get(number, (0.0, 0.0))
            found.append(
                PlannedLoadable(
                    core,
                    names,
                    need,
                    self._formats(step),
                    round(launch.load_us[step.device], DIGITS),
                    round(self._energy(launch), DIGITS),
                    round(border_us, DIGITS),
                    round(border_uj, DIGITS),
                    plan,
                )
            )
        return tuple(found)

    def _borders(self) -> dict[int, tuple[float, float]]:
        """Returns, by step, the extra time and energy of a loadable for its tensors' formats.

        The first loadable that reads a tensor pays for it.
        """
        problem = self.built.problem
        step_of = {v: number for number, step in enumerate(self.placing.steps) for v in step.nodes}
        found: dict[int, tuple[float, float]] = {}
        for b, t, w in self.placing.ways:
            if (b, t) not in self.built.ways:
                continue
            border, cost = problem.borders[b], problem.borders[b].transfers[t].ways[w]
            p = border.producer
            for device, us in enumerate(cost.load_us[:-1]):
                if not device or not us:
                    continue
                ends = [p] if p != OUTSIDE and self._device(p) == device else border.consumers
                number = min(step_of[v] for v in ends if self._device(v) == device)
                had = found.get(number, (0.0, 0.0))
                found[number] = (had[0] + us, had[1] + us * self.watts[device])
        return found

    def unfused(self, plan: int = 0) -> tuple[Unfused, ...]:
        """Returns the costs of broken fusions, in the order of the tensors."""
        problem = self.built.problem
        found = []
        for b, t, w in sorted(self.placing.ways):
            if (b, t) in self.built.ways:
                continue
            cost = problem.borders[b].transfers[t].ways[w]
            # a broken fusion costs time on one device
            device = max(range(len(problem.devices)), key=lambda d: cost.load_us[d])
            found.append(
                Unfused(
                    self.built.tensors[b],
                    problem.devices[device],
                    round(sum(cost.load_us), DIGITS),
                    round(self._energy(cost), DIGITS),
                    plan,
                )
            )
        return tuple(found)

    def _formats(self, step: ExecutionStep) -> dict[str, str]:
        """Returns the format of each tensor that a loadable reads or writes."""
        inside, problem = frozenset(step.nodes), self.built.problem
        chosen = self._chosen_formats()
        reads: dict[str, str] = {}
        writes: dict[str, str] = {}
        for b, border in enumerate(problem.borders):
            name, p = self.built.tensors[b], border.producer
            if name not in self.network.tensors:  # the price of breaking a fused part
                continue
            readers = [v for v in border.consumers if v in inside]
            if p not in inside and readers:
                if p != OUTSIDE and self._device(p):  # another loadable wrote it
                    reads[name] = self._written_format(chosen, b)
                else:
                    form = chosen.get((b, step.device, True)) or self._free_format(b, readers[0])
                    kernel = self.built.kernels[readers[0]]
                    reads[name] = form or read_formats(self.model, self.network, kernel, name)[0]
            elif p in inside and (border.output or any(v not in inside for v in border.consumers)):
                writes[name] = self._written_format(chosen, b)
        return {**reads, **writes}

    def _written_format(self, chosen: Mapping[tuple[int, int, bool], str], b: int) -> str:
        """Returns the format in which a loadable writes a border's tensor."""
        border = self.built.problem.borders[b]
        form = chosen.get((b, self._device(border.producer), False))
        # with several readers the loadable writes its best format (BorderFinder)
        if not form and len(border.consumers) + border.output == 1:
            form = self._free_format(b, border.consumers[0] if border.consumers else OUTSIDE)
        if form:
            return form
        formats = self.model.formats(self.network, self.built.kernels[border.producer], "DLA0")
        return next(form for form in formats if form != "DLA_HWC4")  # DLA_HWC4 is read-only

    def _free_format(self, b: int, reader: int) -> str:
        """Returns the loadable's format if the hand-over to a reader is free, else ""."""
        modes, outside = self.placing.modes, self.built.problem.outside
        producer = self.built.problem.borders[b].producer
        source = outside if producer == OUTSIDE else modes[producer]
        goal = outside if reader == OUTSIDE else modes[reader]
        return self.built.free.get((b, source, goal), "")

    def _device(self, v: int) -> int:
        return self.built.problem.device(self.placing.modes[v])

    def _chosen_formats(self) -> dict[tuple[int, int, bool], str]:
        """Returns the loadables' formats that a way decided: by (border, core, True if read)."""
        problem = self.built.problem
        found: dict[tuple[int, int, bool], str] = {}
        for b, t, w in self.placing.ways:
            ways, border = self.built.ways.get((b, t)), problem.borders[b]
            if ways and ways[w].dla_format:
                # the goal of a reformat has the loadable's format only if the loadable reads it
                reads = ways[w].goal[1] == ways[w].dla_format
                # the other end of the hand-over is the GPU or the caller, device 0
                core = max(problem.device(m) for pair in border.transfers[t].pairs for m in pair)
                found[b, core, reads] = ways[w].dla_format
        return found

    def reformats(self, plan: int) -> tuple[Reformat, ...]:
        """Returns the GPU's reformats, in the order of the tensors."""
        found = []
        for b, t, w in sorted(self.placing.ways):
            ways = self.built.ways.get((b, t))
            if ways and ways[w].reformat_us > 0:
                way = ways[w]
                found.append(
                    Reformat(
                        self.built.tensors[b],
                        layout_text(way.source),
                        layout_text(way.goal),
                        round(way.reformat_us, DIGITS),
                        "measured" if way.measured else "predicted",
                        plan,
                        round(way.reformat_us * self.watts[0], DIGITS),
                    )
                )
        return tuple(found)


def max_pool_bytes(loadables: Sequence[PlannedLoadable]) -> dict[str, int]:
    """Returns, by pool, the largest bytes that any loadable needs; empty without loadables."""
    needs = [write(loadable.memory) for loadable in loadables]
    return {name: max(need[name] for need in needs) for name in needs[0]} if needs else {}


def with_builder_loadables(running: RunningPlan, slots: int, min_layers: int) -> RunningPlan:
    """Returns the plan with the builder's loadables if they cost no more than its own.

    The builder then needs only device types.
    """
    built, placing = running.built, running.placing
    layers = running.layers()
    kernel_of = {
        running.network.layers[i].name: v for v, k in enumerate(built.kernels) for i in k.layers
    }
    pieces: list[tuple[int, tuple[int, ...]]] = []
    for core in built.problem.cores:
        ours = {s.nodes for s in placing.steps if s.device == core}
        if not ours:
            continue
        groups, _ = builder_loadables(running.network, layers, built.problem.devices[core], slots)
        nodes = [tuple(sorted({kernel_of[name] for name in group})) for group in groups]
        inside = sorted(v for group in nodes for v in group)
        if inside != sorted(v for own in ours for v in own) or len(nodes) != len(ours):
            return running  # a kernel is cut, a loadable is missing, or their number differs
        for group, names in zip(nodes, groups, strict=True):
            # other loadables than the plan's must keep the user's and the memory's limits, too
            if group not in ours and (len(names) < min_layers or not running.capacity.holds(names)):
                return running
            pieces.append((core, group))
    if {piece for _, piece in pieces} == {s.nodes for s in placing.steps if s.device}:
        return running
    # the GPU's nodes one by one: their order joins them to runs again
    pieces += [(0, (v,)) for v, m in enumerate(placing.modes) if not built.problem.device(m)]
    # the device changes least often if each runs all that is ready; only the first device is open
    orders = [
        _order_pieces(built.problem, pieces, first) for first in range(len(built.problem.devices))
    ]
    found = [steps for steps in orders if steps]
    if not found:
        return running
    steps = min(found, key=lambda order: (count_transitions(order), len(order)))
    # the plan's own order has fewer changes, and a split build keeps it
    if count_transitions(steps) > count_transitions(placing.steps):
        return running
    return replace(running, placing=replace(placing, steps=steps))


def _order_pieces(
    problem: PlacementProblem, pieces: Sequence[tuple[int, tuple[int, ...]]], first: int
) -> tuple[ExecutionStep, ...]:
    """Returns steps that run everything ready on one device before another; () if there is a cycle
    of waits."""
    piece_of = {v: p for p, (_, nodes) in enumerate(pieces) for v in nodes}
    waits: dict[int, set[int]] = {p: set() for p in range(len(pieces))}
    for v, before in enumerate(problem.predecessors):
        waits[piece_of[v]] |= {piece_of[u] for u in before} - {piece_of[v]}
    steps: list[ExecutionStep] = []
    device, done = first, set[int]()
    while len(done) < len(pieces):
        ready = _ready_pieces(pieces, waits, done)
        if not ready:
            return ()
        if device not in ready:
            # this device has no ready work: change to the device with the most
            device = max(ready, key=lambda d: (len(ready[d]), -d))
        for p in ready[device]:
            done.add(p)
            if device:
                steps.append(ExecutionStep(device, pieces[p][1]))
            elif steps and not steps[-1].device:
                nodes = tuple(sorted((*steps[-1].nodes, *pieces[p][1])))
                steps[-1] = replace(steps[-1], nodes=nodes)
            else:
                steps.append(ExecutionStep(0, pieces[p][1]))
    return tuple(steps)


def _ready_pieces(
    pieces: Sequence[tuple[int, tuple[int, ...]]], waits: Mapping[int, set[int]], done: set[int]
) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for p in sorted(range(len(pieces)), key=lambda p: pieces[p][1][0]):
        if p not in done and waits[p] <= done:
            found.setdefault(pieces[p][0], []).append(p)
    return found


def builder_loadables(
    network: Network, layers: Sequence[PlacedLayer], device: str, slots: int
) -> tuple[tuple[tuple[str, ...], ...], int]:
    """Returns the loadables that the builder makes of a core's layers, and its candidate count.

    The builder joins the layers that are set to the DLA in graph order, parallel branches included,
    and the core keeps the groups with the most layers (edgekit/dla/loadables.py). So device types
    alone describe a plan to the board if these groups are its loadables.
    """
    on_core = {layer.name: layer.device == device for layer in layers}
    precisions = {layer.name: layer.precision for layer in layers}
    found = find_candidates(network, on_core, slots, precisions)
    return tuple(group.layers for group in found if group.retained), len(found)


def builder_groups(
    network: Network,
    plans: Sequence[tuple[Sequence[PlacedLayer], Sequence[PlannedLoadable]]],
    slots: int,
    number: int = 0,
) -> BuilderGroups:
    """Returns the groups of TensorRT's builder for plans.

    Args:
        network: The layer graph.
        plans: Layers and loadables of every plan; each core of a plan is an engine of its own.
        slots: Loadables that a core keeps.
        number: The first plan's index among all plans.
    """
    count = accepted = 0
    differences: list[BuilderDifference] = []
    for at, (layers, loadables) in enumerate(plans, number):
        for core in sorted({loadable.core for loadable in loadables}):
            ours = [loadable.layers for loadable in loadables if loadable.core == core]
            groups, made = builder_loadables(network, layers, f"DLA{core}", slots)
            count += made
            accepted += len(groups)
            differences += _compare_groups(at, core, ours, groups)
    # TensorRT's device types name no core: the engine's core is a setting of the builder
    first = {x.name: "GPU" if x.device == "GPU" else "DLA" for x in plans[0][0]}
    return BuilderGroups(first, count, accepted, not differences, tuple(differences))


def _compare_groups(
    plan: int, core: int, ours: Sequence[tuple[str, ...]], groups: Sequence[tuple[str, ...]]
) -> list[BuilderDifference]:
    wanted, made = {frozenset(x) for x in ours}, {frozenset(x) for x in groups}
    at: dict[str, int] = {name: i for i, names in enumerate(ours) for name in names}
    found = []
    for group in groups:
        if frozenset(group) in wanted:
            continue
        parts = sorted({at[name] for name in group if name in at})
        # all layers of these loadables and no others
        whole = sum(len(ours[i]) for i in parts) == len(group)
        kind = "merged" if whole and len(parts) > 1 else "regrouped"
        found.append(BuilderDifference(plan, core, kind, tuple(parts), _shorten(group)))
    # the builder keeps the largest groups: others go to the GPU
    missing = set(at) - {name for group in groups for name in group}
    for i, names in enumerate(ours):
        if frozenset(names) not in made and missing & set(names):
            found.append(BuilderDifference(plan, core, "sent to the GPU", (i,), _shorten(names)))
    return found


def _shorten(names: Sequence[str]) -> tuple[str, ...]:
    return (*names[:SHOWN], f"... {len(names)} in all") if len(names) > SHOWN else tuple(names)


def builder_notes(builder: BuilderGroups) -> list[str]:
    """Returns the notes on differences between the builder's groups and the plan."""
    kinds = [difference.kind for difference in builder.differences]
    notes = []
    if "merged" in kinds:
        notes.append(
            "TensorRT would merge loadables that the plan keeps separate "
            f"({kinds.count('merged')}): build the segments as separate engines "
            "(build.mode: split)"
        )
    if len(kinds) > kinds.count("merged"):
        notes.append(
            "TensorRT would group the DLA layers into other loadables than the plan: build "
            "the segments as separate engines (build.mode: split)"
        )
    return notes
