"""The summaries of ``edgekit plan`` and of a whole run, in at most 80 columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from edgekit.benchmark.document import ReportedBench
from edgekit.placement.buckets import Bucket, RangeCost
from edgekit.placement.plan import (
    OBJECTIVE_UNITS,
    PREDICTED_KEYS,
    Plan,
    gpu_alone_doubt,
    objective_band,
    plan_summary,
    predicted_value,
)
from edgekit.placement.profiles.measured import time_source
from edgekit.reference.accuracy import SegmentMeasures
from edgekit.reports import text
from edgekit.reports.buckets import HEAD, SIDES, TITLE, bucket_rows, range_lines
from edgekit.reports.document import advantage_text, comparison
from edgekit.reports.facts import (
    PERCENTILES,
    built_line,
    latency_shown,
    measure_words,
    part_words,
    serving_words,
    warning_words,
)
from edgekit.reports.layers import busy_time, busy_with, sharing_words
from edgekit.reports.schema import (
    Accuracy,
    MoreComparison,
    Placement,
    RefusedComparison,
    Report,
    ReportedPlanShare,
    ReportedVerdict,
    Row,
)
from edgekit.reports.terminal.cuts import add_cuts
from edgekit.reports.terminal.layout import table
from edgekit.reports.terminal.plan import METRICS, UNITS, proof
from edgekit.text import ABSENT, PYTORCH, counted, listed, percent, sentence
from edgekit_device.protocol.codec import write

WIDTH = 80
SEGMENTS = 4  # segments or plans shown at the end of a run
SHOWN = 8  # loadables and reformats listed before "and N more"


def prediction_table(
    rows: Sequence[Row],
    objective: str,
    brings: str,
    source: str = "",
    unknown: int = 0,
    rate_hz: float | None = None,
) -> RenderableType:
    """Returns the plan's prediction next to the baselines', and the plan's advantage.

    Args:
        rows: From ``comparison``.
        objective: The plan's objective.
        brings: From ``advantage_text``.
        source: Source of the plan's times, from ``time_source``; "" for predicted.
        unknown: Number of layers with unknown cost, which the figures leave out.
        rate_hz: Frames per second of the energies; None: back to back.
    """
    marked = any(row.keeps is False for row in rows)
    found = Table(
        title=text.prediction_title(source, unknown, rate_hz),
        title_justify="left",
        title_style="bold",
        box=None,
        # the marks need some of the 80 columns
        padding=(0, 1 if marked else 2, 0, 0),
        expand=False,
    )
    found.add_column("placement", header_style="dim")
    key = "period_us" if objective == "period" else PREDICTED_KEYS[objective]
    against = f"{METRICS[key][0]}\nvs plan"
    for name in ("latency", "per second", "energy", "GPU time", against):
        found.add_column(name, justify="right", header_style="dim", no_wrap=True)
    for row in rows:
        if row.latency_us is None:
            known = "unknown" if row.possible else "not possible"
            found.add_row(row.label, known, style="dim")
            continue
        found.add_row(
            f"{row.label} *" if row.keeps is False else row.label,
            text.microseconds(row.latency_us),
            text.significant(row.throughput_qps),
            text.energy(row.energy_uj),
            text.microseconds(row.gpu_us),
            _change(row, rows[0], PREDICTED_KEYS[objective]),
            style="bold" if row.key == "plan" else "",
        )
    if marked:
        found.caption, found.caption_justify = "* breaks the limits of the plan", "left"
    return Group(found, Text(brings, style="bold")) if brings else found


def _change(row: Row, plan: Row, key: str) -> str:
    if row.key == "plan":
        return ""
    if row.change is None:
        return ABSENT
    show = METRICS[key][1]
    # as printed: two equal figures with a change between them would look like an error
    same = show(row.figure(key)) == show(plan.figure(key))
    return "the same" if same else text.change(100 * row.change)


def _placement(placement: Placement) -> list[tuple[str, str]]:
    plans = placement.plans  # missing in older documents
    if len(plans) > 1:
        lines = [_plan_share_text(plan) for plan in plans[:SEGMENTS]]
        if len(plans) > SEGMENTS:
            lines.append(f"and {counted(len(plans) - SEGMENTS, 'more plan')}")
    else:
        lines = [
            f"{row.device}: {counted(row.layers, 'layer')}"
            + (
                f", {percent(row.macs_fraction)} of {text.macs(placement.macs)} MACs"
                if placement.macs
                else ""
            )
            + (
                f", busy {text.microseconds(row.predicted_us)} "
                f"({listed([*busy_with(row.layers), 'predicted'])})"
                if row.predicted_us
                else ""
            )
            for row in placement.devices
        ]
    rows = [("Placement", "\n".join(lines))]
    if lost := sharing_words(placement.frame):
        rows.append(("Contention", lost))
    if placement.loadables:
        pools = placement.pools
        sizes = ", ".join(
            f"{name} {text.size(pools[key])}" for key, name in text.POOLS.items() if key in pools
        )
        changes = counted(placement.transitions, "device change")
        rows.append(("Loadables", f"{len(placement.loadables)} on the DLA; {changes}"))
        if sizes:
            rows.append(("Pools", sizes))
    return rows


def _plan_share_text(plan: ReportedPlanShare) -> str:
    """Returns the time of a frame of one of several plans on each of its devices."""
    return f"{percent(plan.share)} of the frames" + "".join(
        f"\n  {text.clean(row.device)}: {counted(row.layers, 'layer')}, "
        f"busy {text.microseconds(row.busy_us)} (predicted)"
        for row in plan.devices
        if row.layers
    )


def _accuracy(accuracy: Accuracy) -> str:
    parts = [
        f"cosine {measure_words(accuracy, 'cosine')}",
        f"SNR {measure_words(accuracy, 'snr_db')}",
        f"max abs {measure_words(accuracy, 'max_abs')}",
        f"top-1 agreement {measure_words(accuracy, 'top1_agreement')}",
    ]
    if accuracy.boxes is not None:
        parts.append(f"boxes {measure_words(accuracy, 'boxes')}")
    data = text.compared_on(accuracy)
    cell = "\n".join(warning_words(accuracy))
    if not accuracy.constant:
        cell += ("\n" if cell else "") + ", ".join(parts)
    cell += f"\non {data}" if data else ""
    cell += "".join(f"\n{part}" for part in part_words(accuracy))
    segments = accuracy.segments
    several = text.several_plans(segment.lane for segment in segments)
    cell += "".join(f"\n{_segment(segment, several)}" for segment in segments[:SEGMENTS])
    more = len(segments) - SEGMENTS
    return cell + (f"\nand {counted(more, 'more segment')}, see the report" if more > 0 else "")


def _segment(segment: SegmentMeasures, several: bool) -> str:
    where = f"{segment.segment} ({text.clean(segment.device)})"
    lane = text.plan_prefix(segment.lane, several)
    if segment.constant:
        return f"{lane}after segment {where}: same output for all inputs"
    return (
        f"{lane}after segment {where}: "
        f"cosine {measure_words(segment, 'cosine')}, SNR {measure_words(segment, 'snr_db')}"
    )


def _bench(bench: ReportedBench, verdict: ReportedVerdict) -> list[str]:
    """Returns the times, why they may not be quoted, and the command to measure again."""
    latency = {key: 1000 * value for key, value in (bench.latency_ms or {}).items()}
    parts = [f"{text.microseconds(latency.get('median'))} median"]
    if latency_shown(bench).get("p99") == PERCENTILES["p99"]:  # not if there are few frames
        parts.append(f"{text.microseconds(latency['p99'])} p99")
    parts.append(f"{text.significant(bench.throughput_qps)} per second")
    lines = [", ".join(parts) + f" ({verdict.status})"]
    if other := serving_words(bench):
        lines.append(f"of {other}")
    lines += [text.clean(reason.message) for reason in verdict.reasons]
    if verdict.command:
        lines.append(f"measure again: {text.clean(verdict.command)}")
    return lines


def _baseline_text(baseline: MoreComparison | RefusedComparison) -> str:
    from edgekit.reports.comparison import headline, refused_words

    if isinstance(baseline, RefusedComparison):
        return text.clean(refused_words(baseline))
    return f"{baseline.metric} {headline(baseline)}\nagainst {text.clean(baseline.a.label)}"


def terminal_summary(report: Report, console: Console) -> None:
    """Prints the summary of a run; parts that a run did not reach are left out.

    Args:
        report: The run's report.
        console: Decides about colours: rich drops them for NO_COLOR and without a terminal.
            Names from the model are printed as text, never as markup or escape sequences.
    """
    rows = _placement(report.placement)
    if report.accuracy:
        rows.append(("Against FP32", _accuracy(report.accuracy)))
    if report.bundle:
        full, stripped = report.bundle.bytes, report.bundle.stripped_bytes
        share = f" ({percent(stripped / full)})" if full and stripped is not None else ""
        rows.append(("Bundle", f"{text.size(full)}, {text.size(stripped)} without weights{share}"))
    if report.refit:
        same = "outputs equal those of the build with weights bit for bit"
        words = {True: same, False: "outputs differ", None: "not compared"}
        rows.append(("Refit", words[report.refit.bit_equal]))
    rows += [(f"Built on {text.clean(build.board)}", built_line(build)) for build in report.built]
    if board := report.board:
        rows.append(("Board", f"{text.clean(board.name)} ({text.clean(board.kind)})"))
    bench = report.bench if report.bench and report.bench.latency_ms else None
    if bench and bench.clock != "cpu-measured":
        rows.append(("Latency", "\n".join(_bench(bench, report.verdict))))
    if report.baseline:
        rows.append(("Baseline", _baseline_text(report.baseline)))
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in rows:
        grid.add_row(name, Text(value))
    width = min(console.width, WIDTH)
    facts = [
        report.target.name,
        text.mode_words(report),
        report.precision.upper(),
        f"TensorRT {report.tensorrt}",
    ]
    console.print()
    for answer in report.answers():
        style = "bold red" if answer.ok is False else "bold"
        console.print(Text(text.clean(answer.words), style=style), width=width)
    console.print()
    console.print(
        Panel(
            grid,
            title=Text(text.clean(report.name), style="bold"),
            title_align="left",
            subtitle=Text(text.clean(", ".join(fact for fact in facts if fact))),
            subtitle_align="right",
            width=width,
            padding=(0, 1),
        )
    )
    console.print()
    predicted = report.predicted
    console.print(
        prediction_table(
            predicted.rows,
            report.placement.objective,
            text.clean(predicted.advantage),
            predicted.source,
            predicted.unknown_cost,
            predicted.rate_hz,
        ),
        width=width,
    )
    console.print()
    for note in report.notes:
        console.print(Text(f"note: {sentence(text.clean(note))}", style="yellow"), width=width)
    if bench and bench.clock == "cpu-measured":
        times = "; ".join(_bench(bench, report.verdict))
        footnote = f"footnote, the reference backend on this CPU, not a board time: {times}"
        console.print(Text(text.clean(footnote), style="dim"), width=width)
    # a path is not broken over lines, so that it can be copied
    for name, path in report.files.items():
        line = Text(f"{text.clean(name):<8}", style="dim").append(text.clean(path), style="not dim")
        console.print(line, soft_wrap=True)


def summary_plan(plan: Plan) -> RenderableType:
    """Returns the placement in short: the objective with its proof, devices, loadables with their
    memory and formats, reformats, predictions next to baselines, and options for the builder.
    """
    head = f"{plan.target} {plan.power_mode}, {plan.precision.upper()}, TensorRT {plan.tensorrt}"
    parts: list[RenderableType] = [
        Text(text.clean(head), style="bold"),
        Text(_objective(plan), style="bold"),
        Text("\n".join(_plan_lines(plan))),
        Text(),
        _devices(plan),
    ]
    if lost := sharing_words(plan.frame):
        parts.append(Text(sentence(lost)))
    if plan.loadables:
        parts += [Text(), _loadables(plan)]
    if plan.reformats:
        parts += [Text(), Text("\n".join(_reformats(plan)))]
    if plan.buckets and plan.range is not None:
        parts += [Text(), *bucket_table(plan.buckets, plan.range)]
    rows = comparison(plan)
    parts += [
        Text(),
        prediction_table(
            rows,
            plan.objective,
            advantage_text(plan, rows),
            time_source(plan.measured),
            len(plan.unknown_cost),
            plan.rate_hz,
        ),
    ]
    if plan.cuts:
        page = text.Page()
        add_cuts(page, plan.cuts)
        parts += [Text(str(page))]
    parts += [Text(line) for line in _builder(plan)]
    parts += [Text(f"note: {sentence(text.clean(note))}", style="yellow") for note in plan.notes]
    return Group(*parts)


def bucket_table(buckets: Sequence[Bucket], cost: RangeCost) -> list[RenderableType]:
    """Returns the listed shapes of a range, and its cost compared with one shape."""
    lines = [Text(sentence(line)) for line in range_lines(buckets, cost)]
    return [Text(TITLE, style="bold"), table(HEAD, bucket_rows(buckets), SIDES), *lines]


def _devices(plan: Plan) -> Table:
    """Returns the load of each device in a frame of each plan, with launches and hand-overs."""
    several = len(plan.plans) > 1
    busy = "busy" if plan.measured and plan.measured.fraction else "busy (predicted)"
    rows = [
        [
            *([str(number)] if several else []),
            row.device,
            text.count(row.layers),
            text.count(row.segments),
            busy_time(row.busy_us, row.layers),
        ]
        for number, part in enumerate(plan.plans, 1)
        for row in part.devices
    ]
    if plan.left:
        first = [ABSENT] if several else []
        rows.append([*first, PYTORCH, text.count(len(plan.left)), ABSENT, "left out"])
    head = [*(["plan"] if several else []), "device", "layers", "segments", busy]
    return table(head, rows, "rlrrr" if several else "lrrr")


def _objective(plan: Plan) -> str:
    summary = plan_summary(plan)
    if summary.value is None:
        return f"{plan.objective} unknown: no layer that takes time has a cost model"
    show = UNITS[summary.unit]
    value = show(summary.value)
    idle = plan.idle_uj if plan.objective == "energy" and plan.rate_hz is not None else 0.0
    of = ""
    if idle:  # the error of its watts is unknown: the band is for the rest
        of = f" of the {show(summary.value - idle)} above idle"
    range_ = _band(plan, objective_band(plan), show, of, less=idle)
    if plan.unknown_cost:
        range_ += f" not counting {counted(len(plan.unknown_cost), 'layer')} of unknown cost"
    source = time_source(plan.measured)
    if plan.objective == "energy" and source != "predicted":
        source = f"power predicted, times {source}"
    aim = text.energy_words(plan.rate_hz) if plan.objective == "energy" else plan.objective
    return f"{aim} {value}{range_}, {source}; {proof(summary)}"


def _band(
    plan: Plan,
    band: tuple[float, float] | None,
    show: Callable[[float | None], str],
    of: str = "",
    less: float = 0.0,
) -> str:
    """Returns a band in brackets, each end without ``less``; "" without a band."""
    if band is None or band[0] >= band[1]:
        return ""
    kind = "assumed" if plan.extrapolated else "80 %"
    low, high = (show(end - less) for end in band)
    return f" ({kind} band{of}: {low} to {high})"


def _plan_lines(plan: Plan) -> Iterator[str]:
    band = _band(plan, plan.bands.get("latency_us"), text.microseconds)
    if plan.objective != "latency" and band:
        yield f"latency {text.microseconds(plan.predicted.latency_us)}{band}"
    if len(plan.plans) > 1:
        yield f"{len(plan.plans)} plans share the frames"
        for number, part in enumerate(plan.plans, 1):
            latency = f", {text.microseconds(part.predicted.latency_us)}" if part.predicted else ""
            yield (
                f"  plan {number}: {percent(part.share)}{latency}, "
                f"{counted(part.transitions, 'device change')}, "
                f"{counted(len(part.reformats), 'reformat')}"
            )
    else:
        yield counted(plan.transitions, "device change")
    if not plan.dla_cores:
        auto = plan.baselines.get("tensorrt_auto")
        if plan.kept_off:
            few = " and ".join(text.clean(reason) for reason in plan.kept_off)
            keep = "keeps" if len(plan.kept_off) == 1 else "keep"
            yield f"GPU alone: {few} {keep} everything off the DLA"
        elif auto is not None and auto != plan.predicted:
            show = UNITS[OBJECTIVE_UNITS[plan.objective]]
            breaks = plan.baselines_keep.get("tensorrt_auto") is False
            note = ", which breaks the limits," if breaks else ""
            theirs, ours = (
                predicted_value(plan.objective, auto),
                predicted_value(plan.objective, plan.predicted),
            )
            mine = "this plan" if plan.baselines_rewritten else "the GPU alone"
            count = len(plan.unknown_cost)
            less = f", not counting {counted(count, 'layer')} of unknown cost" if count else ""
            yield (
                f"GPU alone: using the DLA does not improve {plan.objective}; TensorRT's "
                f"automatic DLA{note} reaches {show(theirs)}, {mine} {show(ours)} (predicted{less})"
            )
        else:
            yield "GPU alone"
    elif doubt := gpu_alone_doubt(plan):
        yield sentence(doubt)
    if plan.measured and plan.measured.unmatched:
        yield f"{counted(len(plan.measured.unmatched), 'row')} of the profile matched no layer"


def _loadables(plan: Plan) -> Table:
    first = ["plan"] if len(plan.plans) > 1 else []
    head = [*first, "loadable", "layers", *text.POOLS.values(), "formats"]
    rows = []
    for loadable in plan.loadables[:SHOWN]:
        memory = write(loadable.memory)
        formats = ", ".join(dict.fromkeys(loadable.formats.values()))
        rows.append(
            [
                *([str(loadable.plan + 1)] if first else []),
                f"DLA{loadable.core}",
                text.count(len(loadable.layers)),
                *(text.size(memory[key]) for key in text.POOLS),
                formats or ABSENT,
            ]
        )
    if len(plan.loadables) > SHOWN:
        rows.append([f"and {len(plan.loadables) - SHOWN} more", *[""] * (len(head) - 1)])
    return table(head, rows, "r" * (len(head) - 1))


def _reformats(plan: Plan) -> Iterator[str]:
    several = len(plan.plans) > 1
    for number in range(len(plan.plans)):
        own = [reformat for reformat in plan.reformats if reformat.plan == number]
        total = text.microseconds(sum(reformat.us for reformat in own))
        whose = f"plan {number + 1}: " if several else ""
        yield f"{whose}{counted(len(own), 'reformat')} on the GPU, {total}"
        for reformat in sorted(own, key=lambda reformat: -reformat.us)[:SHOWN]:
            us, tensor = text.microseconds(reformat.us), text.clean(reformat.tensor)
            formats = f"{reformat.source} -> {reformat.goal}"
            yield f"  {us:>8}  {formats}  {tensor}, {reformat.clock}"
        if len(own) > SHOWN:
            yield f"  and {len(own) - SHOWN} more; --json lists them"


def _builder(plan: Plan) -> Iterator[str]:
    """Yields the settings with which TensorRT's builder makes this plan."""
    if not plan.builder or not plan.loadables:
        return
    several = len(plan.plans) > 1
    yield ""
    for number, part in enumerate(plan.plans, 1):
        builder = part.builder or plan.builder
        types = builder.device_types
        on_dla = sum(device == "DLA" for device in types.values())
        what, where = "it", "builder"
        if several:
            what, where = f"plan {number}", f"plans[{number - 1}].builder"
        if not on_dla:
            yield f"plan {number} runs on the GPU alone"
            continue
        yield (
            f"to build {what}: set the device type of {counted(on_dla, 'layer')} to DLA and "
            f"of {len(types) - on_dla} to GPU (--json: {where}.device_types)"
        )
        if builder.matches:
            yield "TensorRT is expected to form the plan's loadables"
