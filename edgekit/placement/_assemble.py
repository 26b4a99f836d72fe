"""From the solved problem to the plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgekit._listed import counted, listed
from edgekit.placement._adopt import as_the_builder_groups
from edgekit.placement._baselines import Baseline
from edgekit.placement._builder import builder_of, told
from edgekit.placement._built import Built
from edgekit.placement._contention import contention_table
from edgekit.placement._costs import cost_data, model_error
from edgekit.placement._costs_shapes import function, is_depthwise
from edgekit.placement._measured_part import measured_part
from edgekit.placement._optimise import Solved, objective_value
from edgekit.placement._request import Request
from edgekit.placement._running import DIGITS, Running, pools_of, transitions_of
from edgekit.placement._search import keeping
from edgekit.placement._types import Loadable, Plan, Predicted, Share, proof_of
from edgekit.solver import Problem, metrics

__all__ = ["OPTIMAL_GAP", "assemble"]

OPTIMAL_GAP = 1e-4
_SHOWN = 4


@dataclass(frozen=True)
class _Shown:
    """A plan of the mix as the document shows it."""

    share: Share
    loadables: tuple[Loadable, ...]
    load_us: tuple[float, ...]
    energy_uj: float


def assemble(
    request: Request,
    built: Built,
    solved: Solved,
    compared: Mapping[str, Baseline | None],
    notes: Sequence[str] = (),
) -> Plan:
    """Returns the plan document's values for a solved problem."""
    model, options, problem = request.model, request.options, built.problem
    shown = [_shown(request, built, solved, number) for number in range(len(solved.parts))]
    predicted = _mixed(request, problem, [one.share.share for one in shown], shown)
    if options.objective == "throughput":
        value = predicted.throughput_qps
    else:
        first = shown[0]
        value = objective_value(options.objective, problem, first.load_us, first.energy_uj)
        value = round(value, DIGITS)
    bound = round(solved.bound, DIGITS)
    gap = abs(value - bound) / value if value else 0.0
    loadables = tuple(loadable for one in shown for loadable in one.loadables)
    builder = builder_of(
        request.network,
        [(one.share.layers, one.loadables) for one in shown],
        options.max_loadables,
    )
    measured = measured_part(
        model,
        shown[0].share.layers,
        [(one.us, one.clock == "measured") for one in shown[0].share.reformats],
        sum(one.us for one in shown[0].share.unfused),
        metrics(problem, shown[0].load_us, shown[0].energy_uj)["latency_us"],
    )
    # measured times are known
    unmeasured = {one.name for one in shown[0].share.layers if not one.predicted_us}
    unknown = tuple(name for name in request.network.opaque if name in unmeasured)
    whole = measured is not None and measured["fraction"] == 1 and len(shown) == 1
    extrapolated = () if whole else extrapolated_by(request, [one.share for one in shown])
    return Plan(
        target=model.target.name,
        power_mode=model.mode.name,
        precision=model.precision,
        tensorrt=request.judgement.tensorrt,
        layers=shown[0].share.layers,
        loadables=loadables,
        pools=pools_of(loadables),
        transitions=shown[0].share.transitions,
        predicted=predicted,
        objective=options.objective,
        optimal=gap <= OPTIMAL_GAP,
        bound=bound,
        gap=gap,
        plans=tuple(one.share for one in shown),
        baselines={
            name: None if b is None else _predicted(b.built.problem, b.load_us, b.energy_uj)
            for name, b in compared.items()
        },
        model_error=model_error(),
        notes=(
            *_notes(request, shown, gap, extrapolated, measured),
            *told(builder),
            *_without(unknown),
            *notes,
            *(measured["notes"] if measured else ()),
        ),
        reformats=tuple(reformat for one in shown for reformat in one.share.reformats),
        builder=builder,
        bands=_bands(request, predicted, shown, bool(extrapolated), measured),
        measured=measured,
        constraints=_constraints(request),
        unknown_cost=unknown,
        baselines_keep={
            name: None if b is None else keeping(request, problem, b) is not None
            for name, b in compared.items()
        },
        extrapolated=extrapolated,
    )


def extrapolated_by(request: Request, shares: Sequence[Share]) -> tuple[str, ...]:
    """Returns what plans predict that no published time supports."""
    model, network = request.model, request.network
    found: dict[str, None] = {}
    used = {(layer.device, layer.precision) for share in shares for layer in share.layers}
    for device, precision in sorted(used):
        if not model.has_rows(device, precision):
            board = model.target.gpu.arch if device == "GPU" else "the DLA"
            what = f"the GPU ({board})" if device == "GPU" else board
            found[f"{precision.upper()} on {what} has no published time"] = None
    known = cost_data("extrapolated")
    if any(layer.params.get("steps") for layer in network.layers):
        found[f"{known['recurrences']['why']} have no published time"] = None
    rule = known["mobile_on_dla"]
    on_dla = {layer.name for share in shares for layer in share.layers if layer.device != "GPU"}
    if any(is_depthwise(network, layer) for layer in network.layers if layer.name in on_dla):
        gates = any(function(layer) in rule["gates"] for layer in network.layers)
        shuffles = any(
            layer.kind == "SHUFFLE"
            and any(len(network.tensors[n].shape) >= rule["shuffle_rank"] for n in layer.inputs)
            for layer in network.layers
        )
        if gates or shuffles:
            found[f"{rule['why']} have no published time"] = None
    return tuple(found)


def _shown(request: Request, built: Built, solved: Solved, number: int) -> _Shown:
    part = solved.parts[number]
    load_us = part.placing.load_us
    energy_uj, watts = request.model.energy(built.problem.devices, load_us)
    running = Running(request.network, request.model, request.room, built, part.placing, watts)
    options = request.options
    running = as_the_builder_groups(running, options.max_loadables, options.min_loadable_layers)
    layers, loadables = running.layers(), running.loadables(number)
    share = Share(
        round(part.share, 9),
        layers,
        transitions_of(running.placing.steps),
        _predicted(built.problem, load_us, energy_uj),
        running.reformats(number),
        running.unfused(number),
        builder_of(request.network, [(layers, loadables)], options.max_loadables, number),
    )
    return _Shown(share, loadables, load_us, energy_uj)


def _predicted(problem: Problem, load_us: Sequence[float], energy_uj: float) -> Predicted:
    have = metrics(problem, load_us, energy_uj)
    period = have["period_us"]
    return Predicted(
        round(have["latency_us"], DIGITS),
        round(1e6 / period, DIGITS) if period else 0.0,
        round(have["energy_uj"], DIGITS),
        round(have["gpu_us"], DIGITS),
    )


def _mixed(
    request: Request, problem: Problem, shares: Sequence[float], shown: Sequence[_Shown]
) -> Predicted:
    """Returns what frames take that use plans in these shares.

    Frames of different plans overlap: period and energy are those of a frame's mean loads.
    """
    if len(shown) == 1:
        return _predicted(problem, shown[0].load_us, shown[0].energy_uj)
    each = [metrics(problem, one.load_us, one.energy_uj) for one in shown]

    def mean(values: Sequence[float]) -> float:
        return sum(s * value for s, value in zip(shares, values, strict=True))

    loads = [mean([one.load_us[d] for one in shown]) for d in range(len(problem.devices))]
    period = problem.period_us(loads)
    return Predicted(
        round(max(have["latency_us"] for have in each), DIGITS),
        round(1e6 / period, DIGITS) if period else 0.0,
        round(request.model.energy(problem.devices, loads)[0], DIGITS),
        round(mean([have["gpu_us"] for have in each]), DIGITS),
    )


def _bands(
    request: Request,
    predicted: Predicted,
    shown: Sequence[_Shown],
    extrapolated: bool,
    measured: Mapping[str, Any] | None,
) -> dict[str, tuple[float, float]]:
    """Returns the values between which the predicted ones may lie, by the model's known errors.

    Measured times make them as much narrower as they are a part of each device's; how much power
    a device takes is predicted all the same.
    """
    band = getattr(request.model, "band", None)
    if band is None:
        return {}
    factors = [band(name, request.model.precision) for name in request.devices]
    if extrapolated:
        wide = tuple(map(float, cost_data("extrapolated")["band"]))
        factors = [(min(low, wide[0]), max(high, wide[1])) for low, high in factors]
    busy = [sum(one.share.share * one.load_us[d] for one in shown) for d in range(len(factors))]
    total = sum(busy)
    if not total:
        return {name: (value, value) for name, value in predicted.to_json().items()}
    low, high = _mean(busy, factors)
    energy = _between(predicted.energy_uj, low, high)
    if measured and len(shown) == 1:  # of several plans only the first one's part is known
        parts = [
            measured["fraction_of"]["gpu" if name == "GPU" else "dla"] for name in request.devices
        ]
        factors = [
            (1 + (least - 1) * (1 - part), 1 + (most - 1) * (1 - part))
            for (least, most), part in zip(factors, parts, strict=True)
        ]
        low, high = _mean(busy, factors)
    gpu = factors[0]
    return {
        "latency_us": _between(predicted.latency_us, low, high),
        "throughput_qps": _between(predicted.throughput_qps, 1 / high, 1 / low),
        "energy_uj": energy,
        "gpu_us": _between(predicted.gpu_us, *gpu),
    }


def _mean(busy: Sequence[float], factors: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Returns the devices' factors together, each as far as it is busy."""
    total = sum(busy)
    low, high = (
        sum(us * factor[side] for us, factor in zip(busy, factors, strict=True)) / total
        for side in range(2)
    )
    return low, high


def _between(value: float, low: float, high: float) -> tuple[float, float]:
    return (round(value * low, DIGITS), round(value * high, DIGITS))


def _constraints(request: Request) -> dict[str, Any]:
    """Returns what the plan keeps to, as the user said it."""
    options = request.options
    return {
        "dla_cores": list(request.cores),
        "gpu": options.gpu,
        "pins": [{"layers": pin.layers, "device": pin.device} for pin in options.pins],
        "bounds": dict(options.bounds),
        "max_loadables": options.max_loadables,
        "max_transitions": options.max_transitions,
        "min_loadable_layers": options.min_loadable_layers,
        "pools": None if options.pools is None else dict(options.pools),
    }


def _limited(request: Request) -> bool:
    """Whether anything that the user wrote can keep layers off the DLA."""
    options = request.options
    return bool(
        options.pins
        or options.bounds
        or options.pools
        or options.max_transitions is not None
        or options.min_loadable_layers > 1
    )


def _without(unknown: Sequence[str]) -> list[str]:
    if not unknown:
        return []
    return [
        f"in no time here, nor in its band: {counted(len(unknown), 'layer')} of unknown cost "
        f"({listed(unknown, _SHOWN)}); the board takes longer (--profile has their times)"
    ]


def _shared(generation: str | None) -> str:
    """Returns what the plan's figures contain of the memory that devices share."""
    table = contention_table(generation)
    if not table:
        return "contention for memory is not known on this board: together, devices are slower"
    gpu, dla = (100 * (table[one][other] - 1) for one, other in (("gpu", "dla"), ("dla", "gpu")))
    return (
        f"throughput and energy contain what sharing the memory costs: the GPU takes {gpu:.0f} % "
        f"longer beside a DLA core, and the core {dla:.0f} %"
    )


def _notes(
    request: Request,
    shown: Sequence[_Shown],
    gap: float,
    extrapolated: Sequence[str],
    measured: Mapping[str, Any] | None,
) -> list[str]:
    """Returns what a reader should know about this plan."""
    notes = []
    model = request.model
    on_dla = any(layer.device != "GPU" for one in shown for layer in one.share.layers)
    proof = proof_of(gap <= OPTIMAL_GAP, extrapolated)
    if proof and measured and measured["fraction"]:
        notes.append(f"{proof}, which has measured times and predicts what they lack")
    elif proof:
        notes.append(f"{proof}: the board's own times are not known to it")
    else:
        notes.append(f"not proved optimal under the model: at most {100 * gap:.2g} % from the best")
    notes += [f"extrapolated: {why}; the band is wide" for why in extrapolated]
    if not model.target.dla.cores:
        notes.append(f"{model.target.name} has no DLA: everything runs on the GPU")
    elif model.precision == "fp32":
        notes.append("FP32 does not run on a DLA: everything runs on the GPU")
    elif not request.cores:
        notes.append("no DLA core may be used: everything runs on the GPU")
    elif not any(request.able.values()):
        notes.append("no layer can run on the DLA: everything runs on the GPU")
    elif not on_dla:
        among = " of all placements that keep what is asked" if _limited(request) else ""
        notes.append(f"the GPU alone is best for this objective{among}")
    if on_dla and request.options.gpu:
        notes.append(_shared(model.target.dla.generation))
    if model.mode.warning:
        notes.append(model.mode.warning)
    return notes
