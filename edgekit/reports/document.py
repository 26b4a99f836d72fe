"""Makes the report of a run: the content of the page and the summary. Numbers stay numbers
here; ``html`` turns them into text and the templates only lay them out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from edgekit.benchmark.document import Bench, Histogram, ReportedBench, profile_notes
from edgekit.dla.memory import pool_limits
from edgekit.error_document import FinishedStep
from edgekit.network.model import Network
from edgekit.placement.gpu_reasons import gpu_reasons, why_not
from edgekit.placement.plan import (
    PREDICTED_KEYS,
    Plan,
    PredictedCost,
    device_times,
    has_known_time,
    predicted_value,
    within_error,
)
from edgekit.placement.profiles.measured import time_source
from edgekit.quantize.scales import change_rows
from edgekit.reports import text
from edgekit.reports.facts import (
    RunFacts,
    measure_words,
    reported_power,
    serving_words,
    warning_words,
)
from edgekit.reports.layers import (
    device_rows,
    layer_rows,
    measured_frame,
    measured_parts,
    reported_modules,
    trace_summary,
)
from edgekit.reports.schema import (
    Accuracy,
    Calibration,
    Gate,
    Graph,
    Loadable,
    Placement,
    PlanDevice,
    Predicted,
    Reformats,
    Report,
    ReportedAnswer,
    ReportedBoard,
    ReportedLayer,
    ReportedPlanShare,
    ReportedSegment,
    ReportedVerdict,
    Row,
    Slot,
    Timeline,
)
from edgekit.reports.text import compared_on, significant
from edgekit.text import ABSENT, count_all, counted, percent, sentence
from edgekit_device.protocol.codec import write

HISTOGRAM_BINS = 32
BASELINES = (
    ("gpu_only", "GPU alone"),
    ("tensorrt_auto", "TensorRT automatic DLA"),
    ("best_cut", "Best single cut"),
)
LEAST_CHANGE = 0.005  # smaller changes are shown as "0 %"
# figures of an accuracy's answer
_ANSWERED = (
    ("cosine", "cosine"),
    ("snr_db", "SNR"),
    ("top1_agreement", "top-1"),
    ("boxes", "boxes"),
)
_QUANTITIES = {
    "throughput_qps": ("frames per second", "more", "fewer"),
    "gpu_us": ("GPU time", "more", "less"),
    "energy_uj": ("energy", "more", "less"),
    "latency_us": ("latency", "more", "less"),
}
BENCH_ONLY = ("samples_ms", "predicted", "monitor", "power", "energy")


def network_graph(network: Network, rows: Sequence[ReportedLayer], slots: Sequence[Slot]) -> Graph:
    """Returns the edges between layers and between segments, each pair of layers once.

    Reformats by a device outside of its segments are in ``reformats``, so that ``segments`` and
    ``reformats`` together have all times of a device.

    Args:
        network: Gives the writer and the readers of each tensor.
        rows: The report's layers.
        slots: The devices' work for a frame of the first plan, from the timeline.
    """
    number = {row.name: row.number for row in rows}
    segment = {row.number: row.segment for row in rows}
    makers = {name: layer.name for name, layer in network.producers().items()}
    edges: dict[tuple[int, int], None] = {}
    between: Counter[tuple[int, int]] = Counter()
    for layer in network.layers:
        here = number.get(layer.name)
        for tensor in layer.inputs:
            there = number.get(makers.get(tensor, ""))
            if here is None or there is None or here == there:
                continue
            edges[there, here] = None
            if segment[there] != segment[here]:
                between[segment[there], segment[here]] += 1
    return Graph(
        edges=list(edges),
        segments=_segments(rows, slots),
        reformats=[
            Reformats(segment=slot.segment, device=slot.device, predicted_us=slot.duration_us)
            for slot in slots
            if not slot.layers
        ],
        segment_edges=[(*edge, count) for edge, count in sorted(between.items())],
    )


def _segments(rows: Sequence[ReportedLayer], slots: Sequence[Slot]) -> list[ReportedSegment]:
    times = {slot.segment: slot for slot in slots if slot.layers}
    members: dict[int, list[ReportedLayer]] = {}
    for row in rows:
        members.setdefault(row.segment, []).append(row)
    return [
        ReportedSegment(
            segment=segment,
            device=found[0].device,
            layers=len(found),
            first=found[0].name,
            last=found[-1].name,
            macs=sum(row.macs for row in found),
            predicted_us=slot.duration_us if slot else 0.0,
            reformats_us=slot.reformats_us if slot else 0.0,
            launch_us=slot.launch_us if slot else 0.0,
        )
        for segment, found in sorted(members.items())
        for slot in [times.get(segment)]
    ]


def timeline(facts: RunFacts) -> Timeline:
    """Returns the times of each segment: predicted, and in ``measured`` those of a real frame."""
    from edgekit.benchmark.schedule import predicted_schedule

    plan = facts.plan
    slots = predicted_schedule(plan, facts.network)
    busy: dict[str, float] = {}
    for number, share in enumerate(plan.plans):
        own = [loadable for loadable in plan.loadables if loadable.plan == number]
        for device, us in device_times(share, own).items():
            busy[device] = busy.get(device, 0.0) + us
    tracks = ["GPU", *(f"DLA{core}" for core in range(facts.target.dla.cores))]
    tracks += sorted({slot.device for slot in slots} - set(tracks))
    return Timeline(
        clock="predicted",
        end_us=max((slot.start_us + slot.duration_us for slot in slots), default=0.0),
        busy_us=busy,
        tracks=tracks,
        slots=[
            Slot(
                plan=slot.variant,
                segment=slot.segment,
                device=slot.device,
                start_us=slot.start_us,
                duration_us=slot.duration_us,
                layers=len(slot.layers),
                first=slot.layers[0][0] if slot.layers else "",
                last=slot.layers[-1][0] if slot.layers else "",
                reformats_us=sum(step.us for step in slot.steps if step.kind == "reformat"),
                launch_us=sum(step.us for step in slot.steps if step.kind == "launch"),
            )
            for slot in slots
        ],
        measured=measured_frame(facts.trace),
    )


def histogram(samples: Sequence[float]) -> Histogram | None:
    """Returns counts of equal bins from the fastest to the slowest sample, in milliseconds."""
    if len(samples) < 2:
        return None
    low, high = min(samples), max(samples)
    width = (high - low) / HISTOGRAM_BINS
    counts = [0] * HISTOGRAM_BINS
    for value in samples:
        place = int((value - low) / width) if width > 0 else 0
        # the slowest sample is on the upper edge of the last bin
        counts[min(place, HISTOGRAM_BINS - 1)] += 1
    return Histogram(low_ms=low, high_ms=high, counts=counts)


def reported_verdict(facts: RunFacts, placement: Placement) -> ReportedVerdict:
    """Joins the measurement's verdict with the gates of the run: unformatted numbers, and
    ``passed`` null for gates that were not judged.
    """
    bench = facts.bench
    said = bench.verdict if bench else None
    gates = [
        _bench_gate(bench),
        _accuracy_gate(facts.accuracy),
        Gate(gate="refit", passed=facts.refit.bit_equal, found=None, limit=None)
        if facts.refit
        else None,
        _memory_gate(placement),
        _steps_gate(facts.steps),
    ]
    return ReportedVerdict(
        status=said.status if said else "NOT MEASURED",
        clock=(bench and bench.clock) or "predicted",
        reasons=said.reasons if said else [],
        command=said.command if said else "",
        unchecked=said.unchecked if said else [],
        gates=[gate for gate in gates if gate],
    )


def _bench_gate(bench: Bench | None) -> Gate | None:
    """Returns the gate of a measurement that may not be quoted, with its first reason.

    A CPU's time is not a board's time, so its measurement fails no check.
    """
    if bench is None or bench.verdict is None or bench.verdict.status != "INVALID":
        return None
    reasons = bench.verdict.reasons
    return Gate(
        gate="bench",
        passed=None if bench.clock == "cpu-measured" else False,
        found=None,
        limit=None,
        message=reasons[0].message if reasons else "",
    )


def _accuracy_gate(accuracy: Accuracy | None) -> Gate | None:
    if accuracy is None or accuracy.min is None:
        return None
    # outputs that do not vary have no figures: the gate was not judged by them
    known = not accuracy.constant
    passed = accuracy.passed if known else None
    return Gate(
        gate="accuracy",
        metric=accuracy.metric,
        # random weights or inputs can show a failure, but no success of the user's network
        passed=None if passed and accuracy.stand_in else passed,
        found=accuracy.figure() if known else None,
        limit=accuracy.min,
        on=compared_on(accuracy),
    )


def _memory_gate(placement: Placement) -> Gate | None:
    """Returns the gate of the fullest pool of all loadables; a limit of 0 is unknown."""
    known = [
        (need / limit, pool, need, limit)
        for loadable in placement.loadables
        for pool, need in loadable.memory.items()
        if (limit := placement.pool_limits.get(pool))
    ]
    if not known:
        return None
    _, pool, need, limit = max(known, key=lambda entry: entry[0])
    return Gate(gate="memory", pool=pool, passed=need <= limit, found=need, limit=limit)


def _steps_gate(steps: Sequence[FinishedStep]) -> Gate | None:
    if not steps:
        return None
    failed = sum(step.status == "failed" for step in steps)
    return Gate(gate="steps", passed=not failed, found=failed, limit=0)


def answers(
    facts: RunFacts, placement: Placement, verdict: ReportedVerdict
) -> list[ReportedAnswer]:
    """Returns the answers, a sentence each.

    "release" is answered if the measured release is not the plan's. ``ok`` is None if there was no
    request or no data; ``clock`` is the source of a figure.

    Args:
        facts: The run.
        placement: The report's placement.
        verdict: The report's: the measurement's verdict and the gates.
    """
    gates = {gate.gate: gate for gate in verdict.gates}
    found = [
        _fit_answer(facts, placement, gates.get("memory")),
        _speed_answer(facts, verdict),
        _accuracy_answer(facts.accuracy, gates.get("accuracy")),
    ]
    if other := serving_words(facts.bench):
        words = f"The measurements are of {other}, not of this plan and its predictions."
        found.append(ReportedAnswer(question="release", words=words, ok=False, clock=verdict.clock))
    return found


def _fit_answer(facts: RunFacts, placement: Placement, memory: Gate | None) -> ReportedAnswer:
    failed = [step.name for step in facts.steps if step.status == "failed"]
    where = _placement_text(facts, placement)
    ok: bool | None = True
    if failed:
        words, ok = f"The run failed in step {failed[0]}. {sentence(where)}", False
    elif memory is not None and memory.passed is False:
        pool = text.POOLS.get(memory.pool, memory.pool)
        need, limit = text.size(memory.found), text.size(memory.limit)
        words, ok = (
            f"Does not fit the DLA: a loadable needs {need} of {pool}, the limit is "
            f"{limit}. {sentence(where)}",
            False,
        )
    elif facts.built:
        boards = ", ".join(build.board for build in facts.built)
        words = f"Fits, as built on {boards}: {where}"
    else:
        words = f"Predicted to fit: {where}"
        # doubts: the prediction does not decide between this plan and the GPU alone
        ok = None if facts.plan.doubts else True
    return ReportedAnswer(question="fit", words=words, ok=ok, clock="")


def _placement_text(facts: RunFacts, placement: Placement) -> str:
    """Returns the layers' devices, as the second part of a sentence."""
    layers, on_dla = placement.layers, placement.dla_layers
    every = counted(layers, "layer")
    on_gpu = f"{count_all(layers, 'layer')} {'runs' if layers == 1 else 'run'} on the GPU"
    if facts.target.dla.cores == 0:
        return f"{facts.target.title} has no DLA: {on_gpu}."
    if on_dla == 0:
        capable = text.count(placement.dla_capable_layers)
        return (
            f"{on_gpu}; {capable} could run on a DLA, but the GPU "
            f"alone is best for the objective {facts.plan.objective}."
        )
    share = ""
    if placement.macs:
        share = f" and {percent(placement.dla_macs_fraction)} of the MACs"
    plans = len(placement.shares)
    if plans > 1:
        shares = [percent(share) for share in placement.shares]
        which = "one of the most used plans" if shares[1] == shares[0] else "the most used plan"
        return (
            f"{plans} plans share the frames; {which} has {text.count(on_dla)} of {every}{share} "
            "on a DLA core."
        )
    loadables = counted(len(placement.loadables), "loadable")
    return f"{text.count(on_dla)} of {every}{share} run on the DLA, in {loadables}."


def _speed_answer(facts: RunFacts, verdict: ReportedVerdict) -> ReportedAnswer:
    bench = facts.bench
    median = (bench.latency_ms or {}).get("median") if bench else None
    # a CPU's time is no answer about the board: the prediction is
    if bench and verdict.clock == "board-measured" and median is not None:
        words = (
            f"Median latency {text.measured_time(median)}, "
            f"{text.significant(bench.throughput_qps)} inferences per second, "
            "measured on the board"
        )
        if bench.taken_back:
            words += ", for another release"
        ok = {"VALID": True, "INVALID": False}.get(verdict.status)
        if ok is False:
            reasons = verdict.reasons
            more = f" and {len(reasons) - 1} more" if reasons[1:] else ""
            why = f": {reasons[0].message}{more}" if reasons else ""
            words += f", INVALID{why}"
        return ReportedAnswer(question="speed", words=f"{words}.", ok=ok, clock=verdict.clock)

    plan = facts.plan
    own, alone = plan.predicted, plan.baselines.get("gpu_only")
    band = plan.bands.get("latency_us")
    source = time_source(plan.measured)
    if not has_known_time(plan):
        words = "Latency is unknown: no layer that takes time has a cost model."
        return ReportedAnswer(question="speed", words=words, ok=None, clock="predicted")
    if source == "predicted":
        words = f"Predicted latency {text.microseconds(own.latency_us)}"
    else:
        words = f"Latency {text.microseconds(own.latency_us)}, {source}"
    if band and band[0] < band[1]:
        words += f" ({text.microseconds(band[0])} to {text.microseconds(band[1])})"
    words += f", {text.significant(own.throughput_qps)} inferences per second"
    if plan.unknown_cost:
        words += f", not counting {counted(len(plan.unknown_cost), 'layer')} of unknown cost"
    if alone is not None and alone != own:
        words += (
            f"; GPU alone {text.microseconds(alone.latency_us)}, "
            f"{text.significant(alone.throughput_qps)} per second"
        )
    words += "".join(f"; {doubt}" for doubt in plan.doubts)
    return ReportedAnswer(question="speed", words=f"{words}.", ok=None, clock="predicted")


def _accuracy_answer(accuracy: Accuracy | None, gate: Gate | None) -> ReportedAnswer:
    def answer(words: str, ok: bool | None = None) -> ReportedAnswer:
        return ReportedAnswer(question="accuracy", words=words, ok=ok, clock="")

    if accuracy is None:
        return answer("Accuracy was not compared.")
    if warnings := warning_words(accuracy):
        more = f" and {len(warnings) - 1} more" if warnings[1:] else ""
        return answer(f"Accuracy is unknown: {warnings[0]}{more}.")
    figures = [
        f"{name} {measure_words(accuracy, key)}"
        for key, name in _ANSWERED
        if measure_words(accuracy, key) != ABSENT
    ]
    ok = gate.passed if gate else None
    lead = "Accuracy against FP32" if ok is None else f"Accuracy {'passes' if ok else 'fails'}"
    wanted = f", limit {gate.metric} {gate.limit:g}" if gate else ""
    where = compared_on(accuracy)
    words = f"{lead}: {', '.join(figures)}{wanted}" + (f" ({where})" if where else "")
    if accuracy.stand_in:
        words += (
            f"; with {accuracy.stand_in} it shows the numerics, not what the network is good for"
        )
    if gate is None:
        words += "; no limit is set (accuracy.min)"
    return answer(f"{words}.", ok)


def comparison(plan: Plan) -> list[Row]:
    """Returns the plan's prediction and the baselines', with latency relative to the plan's.

    ``change`` is the relative change of the plan's objective; ``keeps`` is True if the baseline
    keeps the plan's limits (None if unknown).
    """
    rows = [_row(plan, "plan", "This plan", plan.predicted, keeps=True)]
    for key, label, baseline, keeps in _baseline_rows(plan):
        if baseline is None:
            rows.append(Row(key=key, label=label, latency_us=None, possible=False))
        else:
            rows.append(_row(plan, key, label, baseline, keeps=keeps))
    return rows


def _row(plan: Plan, key: str, label: str, cost: PredictedCost, *, keeps: bool | None) -> Row:
    own, theirs = plan.predicted.latency_us, cost.latency_us
    value = predicted_value(plan.objective, plan.predicted)
    ratio = theirs / own if own and theirs is not None else None
    change = predicted_value(plan.objective, cost) / value - 1 if value > 0 else None
    if key == "plan":
        # exactly, also where the plan's own figure is 0 or unknown
        ratio, change = 1.0, 0.0
    return Row(
        key=key,
        label=label,
        latency_us=cost.latency_us,
        throughput_qps=cost.throughput_qps,
        energy_uj=cost.energy_uj,
        gpu_us=cost.gpu_us,
        latency_ratio=ratio,
        change=change,
        keeps=keeps,
    )


def _baseline_rows(plan: Plan) -> Iterator[tuple[str, str, PredictedCost | None, bool | None]]:
    """Yields key, label, cost and True if it keeps the limits: for the given network, then for the
    rewritten network.
    """
    for key, label in BASELINES:
        yield key, label, plan.baselines.get(key), plan.baselines_keep.get(key)
        rewritten = plan.baselines_rewritten.get(key)
        if rewritten is not None and key != "best_cut":
            yield f"{key}_rewritten", f"{label} after rewrites", rewritten, None


def advantage_text(plan: Plan, rows: Sequence[Row]) -> str:
    """Returns a plan's advantage over the GPU alone, in one or two sentences; "" if none.

    The figure of the objective comes first. Figures within the prediction error come last, with
    the advice to measure.

    Args:
        plan: The plan.
        rows: Its :func:`comparison`.
    """
    own, alone = (next(row for row in rows if row.key == key) for key in ("plan", "gpu_only"))
    if own.latency_us is None or alone.latency_us is None:
        return ""
    aim, doubtful = PREDICTED_KEYS[plan.objective], within_error(plan)
    sure: list[str] = []
    unsure: list[str] = []
    # sorted is stable: the objective's figure first, the others in their usual order
    for key in sorted(_QUANTITIES, key=lambda key: key != aim):
        before, after = alone.figure(key), own.figure(key)
        # a change that is printed as 0 % is no advantage
        if before and after is not None and abs(after / before - 1) >= LEAST_CHANGE:
            found = unsure if key in doubtful else sure
            found.append(_change_text(after / before, *_QUANTITIES[key]))
    sentences = []
    if sure:
        sentences.append(f"Compared with the GPU alone: {', '.join(sure)} (predicted).")
    if unsure:
        what = "Within the prediction error" if sure else "The GPU alone is within the error"
        sentences.append(f"{what}: {', '.join(unsure)}; measure both on the board.")
    return " ".join(sentences)


def _change_text(ratio: float, quantity: str, more: str, less: str) -> str:
    if ratio >= 2:
        return f"{significant(ratio, 2)}x the {quantity}"
    return f"{100 * abs(ratio - 1):.0f} % {more if ratio > 1 else less} {quantity}"


def _placement(facts: RunFacts, rows: Sequence[ReportedLayer]) -> Placement:
    plan = facts.plan
    # the rows of layers and devices are of the first plan; `plans` has those of a mix
    first = device_times(
        plan.plans[0], [loadable for loadable in plan.loadables if loadable.plan == 0]
    )
    devices = device_rows(rows, first)
    on_dla = [row for row in devices if row.device != "GPU"]
    return Placement(
        layers=len(rows),
        macs=sum(row.macs for row in rows),
        devices=devices,
        dla_layers=sum(row.layers for row in on_dla),
        dla_macs_fraction=sum(row.macs_fraction for row in on_dla),
        dla_capable_layers=sum(bool(row.dla_ok) for row in rows),
        disputed_layers=sum(row.certainty == "disputed" for row in rows),
        loadables=[
            Loadable(
                core=loadable.core,
                layers=len(loadable.layers),
                first=loadable.layers[0] if loadable.layers else "",
                last=loadable.layers[-1] if loadable.layers else "",
                memory=write(loadable.memory),
                formats=dict(loadable.formats),
            )
            for loadable in plan.loadables
        ],
        pools=dict(plan.pools),
        # the limit of each pool: the configured size, or the build's default
        pool_limits={**write(pool_limits(facts.target)), **(plan.constraints.pools or {})}
        if facts.target.dla.cores
        else {},
        transitions=plan.transitions,
        segments=len({row.segment for row in rows}),
        objective=plan.objective,
        optimal=plan.optimal,
        extrapolated=list(plan.extrapolated),
        unknown_cost=list(plan.unknown_cost),
        bound=plan.bound,
        gap=plan.gap,
        slack=plan.slack,
        shares=[share.share for share in plan.plans],
        frame=plan.frame,
        plans=_plans(plan, rows),
    )


def _plans(plan: Plan, rows: Sequence[ReportedLayer]) -> list[ReportedPlanShare]:
    """Returns the share of each plan of a mix, and its devices' work for a frame."""
    macs = {row.name: row.macs for row in rows}
    total = sum(macs.values())
    found = []
    for share in plan.plans:
        own: Counter[str] = Counter()
        for layer in share.layers:
            own[layer.device] += macs.get(layer.name, 0)
        devices = [
            PlanDevice(
                macs=own[row.device],
                macs_fraction=own[row.device] / total if total else 0.0,
                **vars(row),
            )
            for row in share.devices
        ]
        found.append(ReportedPlanShare(share=share.share, devices=devices))
    return found


def _bench(bench: Bench | None) -> ReportedBench | None:
    """Returns the measurement without its samples, which the bench file keeps.

    The monitor's values are in "power", and the other parts are in separate places too.
    """
    if bench is None:
        return None
    kept = {key: value for key, value in bench.to_json().items() if key not in BENCH_ONLY}
    return ReportedBench.model_validate({**kept, "histogram": histogram(bench.samples_ms or ())})


def _notes(facts: RunFacts) -> dict[str, list[str]]:
    """Returns the notes by subject, each once."""
    groups = {name: list(notes) for name, notes in facts.note_groups.items()}
    known = {note for notes in groups.values() for note in notes}
    plan = [note for note in facts.plan.notes if note not in known]
    rest = [note for note in facts.notes if note not in known and note not in plan]
    found = {
        "plan": [*groups.get("plan", ()), *plan],
        "accuracy": groups.get("accuracy", []),
        "measurement": profile_notes(facts.bench.measurement()) if facts.bench else [],
        "build": groups.get("build", []),
        "run": [*groups.get("run", ()), *rest],
    }
    shown: set[str] = set()
    for name, notes in found.items():
        # a note of an earlier subject is not repeated under a later one
        found[name] = [note for note in dict.fromkeys(notes) if note not in shown]
        shown.update(notes)
    return {name: notes for name, notes in found.items() if notes}


def report_document(facts: RunFacts) -> Report:
    """Makes the report.

    Args:
        facts: The run's facts; absent parts become null, and their section states that.

    Returns:
        Times named ``_us`` are microseconds, energies ``_uj`` microjoules, sizes bytes. Predicted
        and measured values are in separate objects, each with its ``clock``.
    """
    plan, target = facts.plan, facts.target
    reasons = gpu_reasons(plan, facts.network, facts.judgement, target)
    parts = measured_parts(facts.trace, facts.clock)
    rows = layer_rows(facts, reasons, parts)
    predicted = comparison(plan)
    placement = _placement(facts, rows)
    scales = facts.scales
    notes = _notes(facts)
    verdict = reported_verdict(facts, placement)
    answer = answers(facts, placement, verdict)
    timed = timeline(facts)
    return Report(
        schema="edgekit.report/1",
        name=facts.name,
        model=facts.model,
        target=ReportedBoard(name=target.name, title=target.title, dla_cores=target.dla.cores),
        power_mode=plan.power_mode,
        precision=plan.precision,
        tensorrt=plan.tensorrt,
        mode=facts.mode,
        backend=facts.backend or None,
        headline=" ".join(item.words for item in answer),
        answer=answer,
        verdict=verdict,
        placement=placement,
        predicted=Predicted(
            clock="predicted",
            model_error=plan.model_error,
            source=time_source(plan.measured),
            unknown_cost=len(plan.unknown_cost),
            rate_hz=plan.rate_hz,
            rows=predicted,
            advantage=advantage_text(plan, predicted),
            latency_band_us=plan.bands.get("latency_us"),
            doubts=list(plan.doubts),
        ),
        accuracy=facts.accuracy,
        calibration=Calibration(
            method=scales.method,
            data=scales.data,
            tensors=len(scales.scales),
            changes=list(change_rows(scales.changes)),
        )
        if scales
        else None,
        bundle=facts.bundle,
        refit=facts.refit,
        built=list(facts.built),
        bench=_bench(facts.bench),
        power=reported_power(facts.bench),
        baseline=None,
        board=facts.board,
        rewrites=list(facts.rewrites),
        cuts=list(facts.cuts),
        layers=rows,
        modules=reported_modules(facts.network, rows, parts),
        buckets=list(plan.buckets),
        range=plan.range,
        measured_parts=parts,
        why_not=why_not(facts.judgement),
        why_gpu=reasons,
        # the graph shows the layers' rows, which are of the first plan
        graph=network_graph(facts.network, rows, [slot for slot in timed.slots if slot.plan == 0]),
        timeline=timed,
        trace=trace_summary(facts.trace, facts.files.get("trace")),
        steps=list(facts.steps),
        files=dict(facts.files),
        config=facts.config_text,
        environment=dict(facts.environment),
        notes=[note for group in notes.values() for note in group],
        note_groups=notes,
    )
