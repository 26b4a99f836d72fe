"""Markdown for pull requests, of the report's, a measurement's or a comparison's document.
GitHub refuses a comment of more than 65,536 characters, so a longer table is cut with a note.
Names come from models, boards and configurations: they are never markup.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.benchmark.document import Bench
from edgekit.buildlog.log_document import ExplainedLog
from edgekit.files import write_atomically
from edgekit.network.module_tree import HEAD, RIGHT, ModuleTotals, tree_rows
from edgekit.placement.checks_document import Checks
from edgekit.reports import buckets, text
from edgekit.reports.comparison import (
    after_verdict,
    compared_metrics,
    compared_notes,
    compared_values,
    metric_name,
    ratio_words,
    refused_words,
    value_words,
)
from edgekit.reports.facts import (
    cost_facts,
    flatten_facts,
    footnote_words,
    latency_shown,
    measure_words,
    part_words,
    serving_words,
    warning_words,
)
from edgekit.reports.layers import (
    busy_time,
    order_words,
    part_cells,
    sharing_words,
    sort_by_time,
    within_words,
)
from edgekit.reports.schema import MoreComparison, Predicted, RefusedComparison, Report
from edgekit.reports.text import clean
from edgekit.results.comparison import Comparison
from edgekit.text import counted, percent, sentence
from edgekit_device.protocol.codec import write

if TYPE_CHECKING:
    from edgekit.parsing.nvidia import ParserResult
    from edgekit.placement.check_document import Check

LIMIT = 65_536
_CUT = "\n*Cut to fit into a comment: {}.*\n"
_SPARE = 600  # characters for the note about cut rows
_LONGEST = 200  # characters of one cell; a longer name adds no information

# punctuation that could be markup: a character reference is text (CommonMark 0.31, section 2.5)
_MARKUP = {ord(char): f"&#{ord(char)};" for char in "&<>\\`*{}[]#+!|~$^="}
_BACKTICKS = re.compile(r"&#96;((?:(?!&#96;).)+)&#96;")
_EMOJI = re.compile(r":(?=[\w+-]+:)")  # GitHub draws :name:

# between letters an underscore is text (the same, section 6.2)
_UNDERSCORE = re.compile(r"(?<![^\W_])_+|_+(?![^\W_])")
_ICONS = {
    "VALID": "✅",
    "INVALID": "⚠️",
    "better": "✅",
    "same": "✅",
    "worse": "❌",
    "unknown": "❔",
}
_CLOCKS = {
    "cpu-measured": "measured on a CPU with the reference backend: not a board time",
    "board-measured": "measured on the board",
    "predicted": "predicted, not measured",
}
#: Documents with a Markdown form.
Reported = Report | Bench | Comparison | Checks | ExplainedLog


def escaped(value: object, most: int = _LONGEST) -> str:
    """Returns text in one line, escaped so that no Markdown reader takes it for markup."""
    plain = " ".join(clean(" ".join(str(value).split())).split())
    short = plain if len(plain) <= most else f"{plain[: most - 1]}…"
    marked = short.translate(_MARKUP)
    marked = _UNDERSCORE.sub(lambda found: "&#95;" * len(found[0]), marked)
    # GitHub looks for mentions and addresses in the rendered Markdown: a comment splits them
    return (
        _EMOJI.sub("&#58;", marked)
        .replace("@", "@<!-- -->")
        .replace("&#35;", "&#35;<!-- -->")
        .replace("//", "/<!-- -->/")
        .replace("www.", "www<!-- -->.")
    )


def code(value: object) -> str:
    """Returns a name as code, in which GitHub makes no links."""
    text = escaped(value)
    return f"<code>{text}</code>" if text else ""


def prose(value: object, most: int = _LONGEST) -> str:
    """Returns a sentence, with its parts in backticks as code."""
    return _BACKTICKS.sub(r"<code>\1</code>", escaped(value, most))


class Paper:
    """Collects paragraphs and tables up to GitHub's limit."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._parts: list[str] = []
        self._space = limit - _SPARE
        self._cut: list[str] = []

    def add(self, text: str, what: str = "") -> None:
        """Adds a paragraph of Markdown; if it is too long, a note with its name instead."""
        block = f"{text}\n\n"
        if len(block) > self._space:
            self._note(what or "a paragraph")
            return
        self._space -= len(block)
        self._parts.append(block)

    def table(self, head: Sequence[str], rows: Iterable[Sequence[str]], right: str = "") -> None:
        """Adds a short table of cells that are Markdown already; it is never cut."""
        self.add("\n".join([*_top(head, right), *map(_row, rows)]), "a table")

    def folded(
        self, title: str, head: Sequence[str], rows: Sequence[Sequence[str]], right: str = ""
    ) -> None:
        """Adds a folded table; as many rows as fit."""
        if not rows:
            return
        start = f"<details><summary>{title}</summary>\n\n"
        end = "\n\n</details>\n\n"
        lines = _top(head, right)
        space = self._space - len(start) - len(end) - sum(len(line) + 1 for line in lines)
        shown = 0
        for line in map(_row, rows):
            if len(line) + 1 > space:
                break
            space -= len(line) + 1
            shown += 1
            lines.append(line)
        if shown < len(rows):
            self._note(f"{len(rows) - shown:,} of {len(rows):,} rows of {title}")
        # a table without rows would only be a title
        if shown:
            block = start + "\n".join(lines) + end
            self._space -= len(block)
            self._parts.append(block)

    def text(self, title: str, lines: str) -> None:
        """Adds folded literal text, such as a configuration."""
        if not lines.strip():
            return
        # indented code has no end marker that its text could contain
        body = "\n".join(f"    {clean(line)}" for line in lines.splitlines())
        self.add(f"<details><summary>{title}</summary>\n\n{body}\n\n</details>", title)

    def _note(self, what: str) -> None:
        if len(", ".join([*self._cut, what])) < _SPARE - len(_CUT):
            self._cut.append(what)

    def __str__(self) -> str:
        cut = _CUT.format(", ".join(self._cut)) if self._cut else ""
        return "".join(self._parts).rstrip("\n") + "\n" + cut


def _top(head: Sequence[str], right: str) -> list[str]:
    sides = ["--:" if right[i : i + 1] == "r" else ":--" for i in range(len(head))]
    return [_row(head), _row(sides)]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def write_markdown(document: Reported, path: Path) -> None:
    """Writes a document as Markdown to a file; as :func:`markdown`."""
    text_of = markdown(document)
    with write_atomically(path) as temporary:
        temporary.write_text(text_of, encoding="utf-8")


def markdown(document: Reported, *, limit: int = LIMIT) -> str:
    """Returns a document as Markdown.

    Args:
        document: An ``edgekit.report/1``, ``edgekit.bench/1``, ``edgekit.compare/1``,
            ``edgekit.checks/1`` or ``edgekit.log/1``.
        limit: Characters at most.
    """
    paper = Paper(limit)
    match document:
        case Report():
            write_report(document, paper)
        case Bench():
            write_bench(document, paper)
        case Comparison():
            write_compare(document, paper)
        case Checks():
            write_checks(document, paper)
        case ExplainedLog():
            write_log(document, paper)
    return str(paper)


def write_report(report: Report, paper: Paper) -> None:
    """Writes a run: headline, predicted values next to measured values, details folded."""
    facts = [
        report.target.name,
        text.mode_words(report),
        report.precision.upper(),
        f"TensorRT {report.tensorrt}",
    ]
    paper.add(f"### edgekit: {code(report.name)}")
    icons = {True: "✅ ", False: "❌ ", None: ""}
    paper.add(
        "  \n".join(
            [
                *(f"{icons[answer.ok]}{escaped(answer.words, 400)}" for answer in report.answers()),
                ", ".join(escaped(fact) for fact in facts if fact),
            ]
        )
    )
    baseline = report.baseline
    if isinstance(baseline, RefusedComparison):
        paper.add(f"{_ICONS['unknown']} {escaped(refused_words(baseline), 400)}")
    elif baseline is not None:
        _write_baseline(baseline, paper)
    bench: Bench | None = report.bench if report.bench and report.bench.latency_ms else None
    if bench and report.power:
        bench = bench.model_copy(update={"energy": report.power.energy})
    on_cpu = bench is not None and bench.clock == "cpu-measured"
    if bench and not on_cpu:
        _write_verdict(bench, paper)
    _write_predicted(report.predicted, paper)
    if bench and not on_cpu:
        _write_measured(bench, paper)
    _write_checks(report, paper)
    if bench and on_cpu:  # not a board's time
        _write_verdict(bench, paper)
        _write_measured(bench, paper)
    _write_details(report, paper)


def _write_predicted(predicted: Predicted, paper: Paper) -> None:
    rows = []
    for row in predicted.rows:
        if row.latency_us is None:
            rows.append(
                [escaped(row.label), "unknown" if row.possible else "not possible", "", "", ""]
            )
            continue
        rows.append(
            [
                escaped(row.label),
                text.microseconds(row.latency_us),
                text.significant(row.throughput_qps),
                text.energy(row.energy_uj),
                text.microseconds(row.gpu_us),
            ]
        )
    title = text.prediction_title(predicted.source, predicted.unknown_cost, predicted.rate_hz)
    head = (escaped(title, 200), "latency", "per second", "energy", "GPU time")
    paper.table(head, rows, "lrrrr")
    if predicted.latency_band_us:
        low, high = map(text.microseconds, predicted.latency_band_us)
        paper.add(f"The plan's latency is {low} to {high} by the prediction error.")
    if predicted.advantage:
        paper.add(escaped(predicted.advantage, 400))


def write_bench(bench: Bench, paper: Paper) -> None:
    """Writes a measurement."""
    paper.add(f"### edgekit bench: {code(bench.name)}")
    if not bench.latency_ms:
        paper.add("Nothing was measured.")
        return
    on_cpu = bench.clock == "cpu-measured"
    if not on_cpu:
        _write_verdict(bench, paper)
    _write_measured(bench, paper)
    if on_cpu:  # a footnote, as in the terminal
        _write_verdict(bench, paper)
    several = len({segment.lane for segment in bench.segments}) > 1
    segments = [
        [
            *([str(segment.lane + 1)] if several else []),
            escaped(segment.index),
            escaped(segment.device),
            text.microseconds(None if median is None else 1000 * median),
        ]
        for segment in bench.segments
        for median in [(segment.latency_ms or {}).get("median")]
    ]
    head = (*(["plan"] if several else []), "segment", "device", "median")
    paper.folded("Segments", head, segments, "r" * several + "rlr")
    _write_pairs("Settings", write(bench.settings), paper)
    _write_pairs("Runtime", write(bench.runtime), paper)


def _write_verdict(bench: Bench, paper: Paper) -> None:
    """Writes the measurement's verdict (may it be quoted) before any of its numbers."""
    verdict = bench.verdict
    status = verdict.status if verdict else "not judged"
    where = f", board {code(bench.board.name)}" if bench.board and bench.board.name else ""
    mode = f", {escaped(bench.power_mode)}" if bench.power_mode else ""
    clock = _CLOCKS.get(bench.clock or "", escaped(bench.clock))
    paper.add(
        f"{_ICONS.get(status, '')} **measurement {escaped(status)}**: "
        f"{text.count(bench.iterations)} inferences, {clock}{where}{mode}"
    )
    if other := serving_words(bench):
        paper.add(f"Measured: {escaped(other, 600)}.")
    reasons = [
        f"- {escaped(reason.message, 400)}. *{escaped(reason.remedy, 400)}*"
        for reason in (verdict.reasons if verdict else ())
    ]
    if verdict and verdict.reasons and verdict.command:
        reasons.append(f"- measure again: {code(verdict.command)}")
    if reasons:
        paper.add("\n".join(reasons), "why the measurement is INVALID")


def _write_measured(bench: Bench, paper: Paper) -> None:
    latency = bench.latency_ms or {}
    shown = latency_shown(bench)
    head = [
        f"Latency, {'CPU' if bench.clock == 'cpu-measured' else 'board'}",
        # a footnote's mark, not the begin of emphasis
        *(name.replace("*", "\\*") for name in shown.values()),
        "per second",
    ]
    row = [
        "measured",
        *(text.measured_time(latency[key]) for key in shown),
        text.significant(bench.throughput_qps),
    ]
    paper.table(head, [row], "l" + "r" * (len(shown) + 1))
    if few := footnote_words(bench):
        paper.add(escaped(few))
    rows = [[escaped(name), escaped(value)] for name, value in cost_facts(bench)]
    if rows:
        paper.table(("Resources", ""), rows, "lr")


def _write_checks(report: Report, paper: Paper) -> None:
    rows = []
    accuracy, bundle, placement = report.accuracy, report.bundle, report.placement
    if accuracy:
        # older documents have "passed" without a gate
        gated = accuracy.min is not None and not accuracy.constant
        if accuracy.passed:  # never green with data other than the user's
            gated = gated and not accuracy.stand_in
        gate = {True: " ✅", False: " ❌", None: ""}[accuracy.passed] if gated else ""
        cosine = "not known" if accuracy.constant else measure_words(accuracy, "cosine")
        how = f" ({on})" if (on := text.compared_on(accuracy)) else ""
        rows.append([escaped(f"Cosine to FP32{how}", 400), cosine + gate])
        rows += [["", escaped(word, 400)] for word in warning_words(accuracy)]
        rows += [["", escaped(part, 400)] for part in part_words(accuracy)]
        if not accuracy.constant:
            rows.append(["SNR", measure_words(accuracy, "snr_db")])
    if bundle:
        rows.append(["Bundle without weights", text.size(bundle.stripped_bytes)])
        rows.append(["Bundle with weights", text.size(bundle.bytes)])
    whose = " in the first plan" if len(placement.shares) > 1 else ""
    for row in placement.devices:
        if row.predicted_us:
            rows.append(
                [
                    f"{escaped(row.device)} busy{whose}, predicted",
                    busy_time(row.predicted_us, row.layers),
                ]
            )
    if lost := sharing_words(placement.frame):
        rows.append(["Contention", escaped(lost, 400)])
    if report.target.dla_cores:
        if placement.macs:
            rows.append(["MACs on the DLA", percent(placement.dla_macs_fraction)])
        rows.append(["Loadables", text.count(len(placement.loadables))])
    if rows:
        paper.table(("Check", ""), rows, "lr")


def _write_details(report: Report, paper: Paper) -> None:
    if report.notes:
        paper.folded("Notes", ("",), [[escaped(sentence(note), 400)] for note in report.notes])
    reasons = [
        [code(why.rule), text.count(why.count), escaped(why.fixes[0] if why.fixes else "", 400)]
        for why in report.why_not
    ]
    paper.folded(
        "Why layers are not on the DLA",
        ("rule", "layers", "fixes"),
        reasons,
        "lrl",
    )
    settings = report.bench.settings if report.bench else None
    _write_pairs("Settings of the measurement", write(settings), paper)
    paper.text("Configuration", report.config)
    parts = report.measured_parts
    timed = sum(row.measured.us for row in report.layers if row.measured)
    wholes = [
        [code(cell.name), escaped(cell.device), cell.layers, cell.time, cell.share]
        for cell in part_cells(parts, timed + sum(part.us for part in parts))
    ]
    whole = ("timed as a whole", "device", "layers", "measured", "of all layers")
    paper.folded("Loadables and fusions, timed as a whole", whole, wholes, "llrrr")
    _write_modules("Modules", report.modules, paper)
    layers = [
        [
            code(row.name),
            escaped(row.kind),
            escaped(row.device),
            escaped(row.precision),
            text.microseconds(row.predicted_us),
            escaped(within_words(row))
            or text.microseconds(row.measured.us if row.measured else None),
        ]
        for row in sort_by_time(report.layers)
    ]
    head = ("layer", "kind", "device", "precision", "predicted", "measured")
    order = order_words(report.layers)
    paper.folded(f"Layers, slowest first ({order})", head, layers, "llllrr")


def write_checks(document: Checks, paper: Paper) -> None:
    """Writes checks of models: a row each, failures, and the broken rules of each, folded."""
    checks, failures = document.checks, document.failures
    icon = "❌" if failures else "✅"
    paper.add(f"### {icon} edgekit check: {counted(len(checks), 'model')}")
    failed = [f"- {code(failure.where)}: {prose(failure.message, 400)}" for failure in failures]
    if failed:
        paper.add("\n".join(failed), "what failed")
    rows = [
        [
            code(check.model),
            escaped(check.target),
            escaped(check.precision.upper()),
            escaped(check.tensorrt),
            *_placed_cells(check),
        ]
        for check in checks
    ]
    head = (
        "model",
        "board",
        "precision",
        "TensorRT",
        "layers on the DLA",
        "MACs on the DLA",
        "loadables",
    )
    paper.table(head, rows, "llllrrr")
    for check in checks:
        if check.buckets and check.range is not None:
            shapes = [[escaped(cell) for cell in row] for row in buckets.bucket_rows(check.buckets)]
            paper.add(f"**{buckets.TITLE}: {escaped(check.model)}**")
            paper.table(buckets.HEAD, shapes, buckets.SIDES)
            lines = buckets.range_lines(check.buckets, check.range)
            paper.add("\n".join(f"- {prose(line, 400)}" for line in lines), "the range's cost")
    refused = [
        [
            code(check.model),
            code(problem.node),
            escaped(problem.operator),
            prose(": ".join(filter(None, (problem.place, problem.message))), 600),
            prose(problem.fix, 600),
        ]
        for check in checks
        for problem in check.parse.problems
    ]
    if refused:
        paper.table(
            ("model", "node", "operator", "refused by the parser", "remedy"), refused, "lllll"
        )
    said = [
        [code(check.model), escaped(check.parser.release), *_parser_cells(check.parser)]
        for check in checks
        if check.parser
    ]
    if said:
        paper.table(("model", "NVIDIA's parser", "imports it", "what it refuses"), said, "llll")
    unknown = [
        [code(check.model), code(row.layer), escaped(row.operator)]
        for check in checks
        for row in check.unknown_cost
    ]
    paper.folded("Layers of unknown cost, not counted", ("model", "layer", "operator"), unknown)
    for check in checks:
        paper.folded(
            f"Why not on the DLA: {escaped(check.model)}",
            ("rule", "layers", "for example", "what to do"),
            _reasons(check),
            "lrll",
        )
        _write_modules(f"Modules: {escaped(check.model)}", check.modules, paper)


def _write_modules(title: str, modules: Sequence[ModuleTotals], paper: Paper) -> None:
    rows = [
        [code(row["module"].strip()), *(escaped(row[name]) for name in HEAD[1:])]
        for row in tree_rows(modules)
    ]
    sides = "".join("r" if name in RIGHT else "l" for name in HEAD)
    paper.folded(title, HEAD, rows, sides)


def _parser_cells(parser: ParserResult) -> list[str]:
    """Returns the verdict of NVIDIA's parser on a model, and the first node that it refuses."""
    if parser.ok:
        return ["yes", ""]
    first = parser.problems[0]
    where = f"{first.operator} {first.node}: " if first.node else ""
    return ["no", prose(f"{where}{first.message}", 400)]


def _placed_cells(check: Check) -> list[str]:
    """Returns layers and multiply-accumulates on the DLA, and loadables, if placed."""
    if not check.placed:
        return ["cannot be parsed", "", ""]
    summary = check.summary
    return [
        f"{summary.dla_layers:,} of {summary.layers:,}",
        percent(summary.dla_macs_fraction),
        text.count(check.loadables),
    ]


def _reasons(check: Check) -> list[list[str]]:
    """Returns rows of the broken rules, the most frequent first; the fix may be empty."""
    groups: dict[str, list[tuple[str, str]]] = {}
    for layer in check.layers:
        for reason in () if layer.dla.ok else layer.dla.reasons:
            groups.setdefault(reason.rule, []).append((layer.name, reason.fix))
    if lost := check.without_slot:
        groups[lost.rule] = [(name, lost.fix) for name in lost.layers]
    ordered = sorted(groups.items(), key=lambda item: -len(item[1]))
    return [
        [code(rule), text.count(len(found)), code(found[0][0]), prose(found[0][1], 400)]
        for rule, found in ordered
    ]


def write_log(document: ExplainedLog, paper: Paper) -> None:
    """Writes a build log's contents: headline, errors, broken rules, and the layers, folded."""
    paper.add(f"### edgekit explain-log: {code(document.file)}")
    paper.add("  \n".join(escaped(line, 400) for line in document.headline))
    errors = [
        f"- {prose(error.cause, 400)}. **Do:** {prose(error.remedy, 600)} "
        f"({escaped(error.source, 300)})"
        for error in document.errors
    ]
    errors += [
        f"- no known cause: {code(error)}: search for it, or file an issue with the log"
        for error in document.unknown_errors
    ]
    if errors:
        paper.add("\n".join(errors), "errors")
    rules = [
        [
            code(rule.rule),
            text.count(len(rule.layers)),
            code(rule.layers[0]),
            prose("; ".join(way.fix for way in rule.fixes or [rule]), 400),
            escaped(rule.source, 300),
        ]
        for rule in document.rules
    ]
    if rules:
        paper.table(
            ("rule", "layers", "for example", "what to do", "source"), rows=rules, right="lr"
        )
    unknown = [
        [code(fallback.layer), escaped(fallback.kind), escaped("; ".join(fallback.words), 400)]
        for fallback in document.unexplained
    ]
    paper.folded("Refused without a known rule", ("layer", "type", "words"), unknown)
    loadables = [
        [code(loadable.name), text.count(len(loadable.layers))]
        for loadable in document.log.loadables
    ]
    paper.folded("Loadables on the DLA", ("loadable", "layers"), loadables, "lr")
    layers = [[code(layer.name), escaped(layer.kind)] for layer in document.log.gpu_layers]
    paper.folded("Layers on the GPU", ("layer", "type"), layers)
    if notes := [f"- {prose(sentence(note), 400)}" for note in document.notes]:
        paper.add("\n".join(notes), "notes")


def write_compare(compared: Comparison, paper: Paper) -> None:
    """Writes a comparison."""
    paper.add(f"### edgekit compare: {escaped(compared.metric)}")
    _write_answer(compared, paper)
    rows = [
        [escaped(difference.what), escaped(difference.a), escaped(difference.b)]
        for difference in compared.differences
    ]
    paper.folded("What else differs", ("", "A", "B"), rows)
    runs = [
        [
            side,
            escaped(run.label),
            value_words(run.value, compared.unit),
            code(f"{run.commit[:12]}{'+' if run.dirty else ''}") if run.commit else "",
            escaped((run.bundle or "")[:12]),
            escaped(run.verdict or ""),
        ]
        for side, found in (("A", compared.a), ("B", compared.b))
        for run in found.runs
    ]
    paper.folded("Runs", ("", "run", "value", "commit", "bundle", "verdict"), runs, "llrlll")


def _write_answer(compared: Comparison, paper: Paper) -> None:
    a, b = compared_values(compared)
    icon = _ICONS[compared.direction]
    paper.table(
        ("", escaped(compared.a.label), escaped(compared.b.label), "difference"),
        [[escaped(compared.metric), a, b, escaped(ratio_words(compared))]],
        "lrrr",
    )
    paper.add(f"{icon} **{escaped(compared.verdict)}**{escaped(after_verdict(compared), 400)}")
    _write_notes(compared, compared.notes, paper)


def _write_baseline(baseline: MoreComparison, paper: Paper) -> None:
    """Writes a row per metric, as on the page."""
    rows = [
        [
            escaped(metric_name(metric.metric)),
            *map(escaped, compared_values(metric)),
            escaped(ratio_words(metric)),
            f"{_ICONS[metric.direction]} "
            f"{escaped(metric.verdict)}{', above the threshold' if metric.regression else ''}",
        ]
        for metric in compared_metrics(baseline)
    ]
    head = ("Against the baseline", "baseline", "this run", "difference", "answer")
    paper.table(head, rows, "lrrrl")
    limit = percent(baseline.threshold, 0)
    paper.add(f"Baseline: {code(baseline.a.label)}; changes above {limit} are regressions.")
    _write_notes(baseline, compared_notes(baseline), paper)


def _write_notes(compared: Comparison, notes: Sequence[str], paper: Paper) -> None:
    lines = [f"- forced: {escaped(reason, 400)}" for reason in compared.forced]
    lines += [f"- {escaped(sentence(note), 400)}" for note in notes]
    if lines:
        paper.add("\n".join(lines), "notes")


def _write_pairs(title: str, mapping: Mapping[str, object] | None, paper: Paper) -> None:
    rows = [[escaped(key), escaped(value)] for key, value in flatten_facts(mapping)]
    paper.folded(title, ("", ""), rows)
