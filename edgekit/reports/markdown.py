"""Markdown for pull requests, of the report's, a measurement's or a comparison's document.
GitHub refuses a comment of more than 65,536 characters, so a table that would go beyond is
cut and says so. Names come from models, boards and configurations: none of them is markup.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.errors import DataError
from edgekit.files import write_atomically
from edgekit.reports import text
from edgekit.reports.comparison import (
    compared_metrics,
    compared_notes,
    compared_values,
    headline,
    metric_name,
    ratio_words,
    refused_words,
    value_words,
)
from edgekit.reports.facts import (
    cost_facts,
    few_words,
    flat_facts,
    latency_shown,
    measure_words,
    part_words,
    serving_words,
    warning_words,
)
from edgekit.reports.layers import (
    busy_time,
    by_time,
    order_words,
    part_cells,
    sharing_words,
    within_words,
)
from edgekit.reports.text import clean, several_plans
from edgekit.text import percent, sentence

if TYPE_CHECKING:
    from edgekit.buildlog.log_document import ExplainedLog
    from edgekit.parsing.nvidia import ParserWord
    from edgekit.placement.check_document import Check, Checks

LIMIT = 65_536
_CUT = "\n*Cut to fit into a comment: {}.*\n"
_SPARE = 600  # for the note on what was cut
_LONGEST = 200  # characters of one cell; a longer name adds nothing

# punctuation that could be markup: a character reference is text (CommonMark 0.31, section 2.5)
_MARKUP = {ord(char): f"&#{ord(char)};" for char in "&<>\\`*{}[]#+!|~$^="}
_BACKTICKS = re.compile(r"&#96;((?:(?!&#96;).)+)&#96;")
_EMOJI = re.compile(r":(?=[\w+-]+:)")  # GitHub draws :name:

# between letters an underscore is text (the same, section 6.2)
_UNDERSCORE = re.compile(r"(?<![^\W_])_+|_+(?![^\W_])")
_ICONS = {"VALID": "✅", "INVALID": "⚠️", "better": "✅", "same": "✅", "worse": "❌",
          "unknown": "❔"}  # fmt: skip
_CLOCKS = {
    "cpu-measured": "measured on a CPU with the reference backend: not a board time",
    "board-measured": "measured on the board",
    "predicted": "predicted, not measured",
}


def escaped(value: object, most: int = _LONGEST) -> str:
    """Returns text that no Markdown reader takes for anything else, in one line."""
    plain = " ".join(clean(" ".join(str(value).split())).split())
    short = plain if len(plain) <= most else f"{plain[: most - 1]}…"
    # GitHub looks for mentions and addresses in what the Markdown became: a comment parts them
    return (
        _EMOJI.sub("&#58;", _UNDERSCORE.sub(_coded, short.translate(_MARKUP)))
        .replace("@", "@<!-- -->")
        .replace("&#35;", "&#35;<!-- -->")
        .replace("//", "/<!-- -->/")
        .replace("www.", "www<!-- -->.")
    )


def _coded(found: re.Match[str]) -> str:
    return "&#95;" * len(found[0])


def code(value: object) -> str:
    """Returns a name in the type of code, where nothing is linked either."""
    text = escaped(value)
    return f"<code>{text}</code>" if text else ""


def prose(value: object, most: int = _LONGEST) -> str:
    """Returns a sentence, with what it has in backticks in the type of code."""
    return _BACKTICKS.sub(r"<code>\1</code>", escaped(value, most))


class Paper:
    """Collects paragraphs and tables up to GitHub's limit."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._parts: list[str] = []
        self._space = limit - _SPARE
        self._cut: list[str] = []

    def add(self, text: str, what: str = "") -> None:
        """Adds a paragraph of Markdown; one that does not fit is left out, and named ``what``."""
        block = f"{text}\n\n"
        if len(block) > self._space:
            self._note(what or "a paragraph")
            return
        self._space -= len(block)
        self._parts.append(block)

    def table(self, head: Sequence[str], rows: Iterable[Sequence[str]], right: str = "") -> None:
        """Adds a table of cells that are Markdown already; it is short, so it is not cut."""
        self.add("\n".join([*_top(head, right), *map(_row, rows)]), "a table")

    def folded(
        self, title: str, head: Sequence[str], rows: Sequence[Sequence[str]], right: str = ""
    ) -> None:
        """Adds a table that one opens; as many rows as fit."""
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
        if shown:
            block = start + "\n".join(lines) + end
            self._space -= len(block)
            self._parts.append(block)

    def text(self, title: str, lines: str) -> None:
        """Adds literal text that one opens, such as a configuration."""
        if not lines.strip():
            return
        # indented code has no end that its text could write
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


def write_markdown(document: Any, path: Path) -> None:
    """Writes a document as Markdown to a file; as :func:`markdown`."""
    text_of = markdown(document)
    with write_atomically(path) as temporary:
        temporary.write_text(text_of, encoding="utf-8")


def markdown(document: Any, *, limit: int = LIMIT) -> str:
    """Returns a document as Markdown.

    Args:
        document: An ``edgekit.report/1``, ``edgekit.bench/1``, ``edgekit.compare/1``,
            ``edgekit.checks/1`` or ``edgekit.log/1``.
        limit: Characters at most.

    Raises:
        DataError: It is another document.
    """
    writers: dict[str, Callable[[Any, Paper], None]] = {
        "edgekit.report/1": write_report,
        "edgekit.bench/1": write_bench,
        "edgekit.compare/1": write_compare,
        "edgekit.checks/1": write_checks,
        "edgekit.log/1": write_log,
    }
    schema = str(document.get("schema") if isinstance(document, dict) else document.schema)
    write = writers.get(schema)
    if write is None:
        raise DataError(
            f"no Markdown is available for {clean(schema)!r}",
            code="markdown.schema",
            hint=f"one of {', '.join(writers)}",
        )
    paper = Paper(limit)
    write(document, paper)
    return str(paper)


def write_report(document: Mapping[str, Any], paper: Paper) -> None:
    """Writes a run: headline, what was predicted next to what was measured, details folded."""
    target = document["target"]["name"]
    facts = [target, text.mode_words(document), document["precision"].upper(),
             f"TensorRT {document['tensorrt']}"]  # fmt: skip
    paper.add(f"### edgekit: {code(document['name'])}")
    answer = document.get("answer") or [{"words": document["headline"], "ok": None}]
    icons = {True: "✅ ", False: "❌ "}
    paper.add("  \n".join([
        *(f"{icons.get(one['ok'], '')}{escaped(one['words'], 400)}" for one in answer),
        ", ".join(escaped(fact) for fact in facts if fact),
    ]))  # fmt: skip
    baseline = document.get("baseline")
    if baseline and (refused := refused_words(baseline)):
        paper.add(f"{_ICONS['unknown']} {escaped(refused, 400)}")
    elif baseline:
        _write_baseline(baseline, paper)
    bench = document["bench"] if (document["bench"] or {}).get("latency_ms") else None
    if bench:
        bench = {**bench, "energy": (document["power"] or {}).get("energy")}
    on_cpu = (bench or {}).get("clock") == "cpu-measured"
    if bench and not on_cpu:
        _write_verdict(bench, paper)
    _write_predicted(document, paper)
    if bench and not on_cpu:
        _write_measured(bench, paper)
    _write_checks(document, paper)
    if bench and on_cpu:  # it says nothing about a board
        _write_verdict(bench, paper)
        _write_measured(bench, paper)
    _write_details(document, paper)


def _write_predicted(document: Mapping[str, Any], paper: Paper) -> None:
    rows = []
    for row in document["predicted"]["rows"]:
        if row["latency_us"] is None:
            known = "not possible" if row.get("possible") is False else "unknown"
            rows.append([escaped(row["label"]), known, "", "", ""])
            continue
        rows.append([
            escaped(row["label"]), text.microseconds(row["latency_us"]),
            text.significant(row.get("throughput_qps")), text.energy(row.get("energy_uj")),
            text.microseconds(row.get("gpu_us")),
        ])  # fmt: skip
    predicted = document["predicted"]
    title = text.prediction_title(
        predicted.get("source", ""), predicted.get("unknown_cost", 0), predicted.get("rate_hz")
    )
    head = (escaped(title, 200), "latency", "per second", "energy", "GPU time")
    paper.table(head, rows, "lrrrr")
    if band := document["predicted"].get("latency_band_us"):
        low, high = map(text.microseconds, band)
        paper.add(f"The plan's latency lies between {low} and {high} by the prediction error.")
    if brings := document["predicted"].get("advantage"):
        paper.add(escaped(brings, 400))


def write_bench(document: Mapping[str, Any], paper: Paper) -> None:
    """Writes a measurement."""
    paper.add(f"### edgekit bench: {code(document.get('name'))}")
    if not document.get("latency_ms"):
        paper.add("Nothing was measured.")
        return
    on_cpu = document.get("clock") == "cpu-measured"
    if not on_cpu:
        _write_verdict(document, paper)
    _write_measured(document, paper)
    if on_cpu:  # a footnote, as in the terminal
        _write_verdict(document, paper)
    parts = document.get("segments") or ()
    several = several_plans(parts)
    segments = [
        [*([str((one.get("lane") or 0) + 1)] if several else []), escaped(one.get("index", "")),
         escaped(one.get("device")), _ms((one.get("latency_ms") or {}).get("median"))]
        for one in parts
    ]  # fmt: skip
    head = (*(["plan"] if several else []), "segment", "device", "median")
    paper.folded("Segments", head, segments, "r" * several + "rlr")
    _write_pairs("Settings", document.get("settings"), paper)
    _write_pairs("Runtime", document.get("runtime"), paper)


def _write_verdict(bench: Mapping[str, Any], paper: Paper) -> None:
    """Says whether the measurement can be quoted, before any number of it."""
    verdict = bench.get("verdict") or {}
    status = str(verdict.get("status") or "not judged")
    board = bench.get("board") or {}
    where = f", board {code(board['name'])}" if board.get("name") else ""
    mode = f", {escaped(bench['power_mode'])}" if bench.get("power_mode") else ""
    clock = _CLOCKS.get(str(bench.get("clock")), escaped(bench.get("clock")))
    paper.add(
        f"{_ICONS.get(status, '')} **measurement {escaped(status)}**: "
        f"{text.count(bench.get('iterations'))} inferences, {clock}{where}{mode}"
    )
    if other := serving_words(bench):
        paper.add(f"Measured: {escaped(other, 600)}.")
    reasons = [
        f"- {escaped(one.get('message'), 400)}. *{escaped(one.get('remedy'), 400)}*"
        for one in verdict.get("reasons") or ()
    ]
    if reasons and verdict.get("command"):
        reasons.append(f"- measure again: {code(verdict['command'])}")
    if reasons:
        paper.add("\n".join(reasons), "why the measurement is INVALID")


def _write_measured(bench: Mapping[str, Any], paper: Paper) -> None:
    latency = bench["latency_ms"]
    shown = latency_shown(bench)
    head = [f"Latency, {'CPU' if bench.get('clock') == 'cpu-measured' else 'board'}",
            *(name.replace("*", "\\*") for name in shown.values()), "per second"]  # fmt: skip
    row = ["measured", *(text.measured(latency[key]) for key in shown),
           text.significant(bench.get("throughput_qps"))]  # fmt: skip
    paper.table(head, [row], "l" + "r" * (len(shown) + 1))
    if few := few_words(bench):
        paper.add(escaped(few))
    rows = [[escaped(name), escaped(value)] for name, value in cost_facts(bench)]
    if rows:
        paper.table(("Resources", ""), rows, "lr")


def _write_checks(document: Mapping[str, Any], paper: Paper) -> None:
    rows = []
    accuracy, bundle = document["accuracy"], document["bundle"]
    if accuracy:
        gated = accuracy.get("min") is not None  # older documents say "passed" without a gate
        gated = gated and not accuracy.get("constant")
        if accuracy.get("passed"):  # never green on data that are not the user's
            gated = gated and not accuracy.get("stand_in")
        gate = {True: " ✅", False: " ❌"}.get(accuracy.get("passed"), "") if gated else ""
        cosine = "not known" if accuracy.get("constant") else measure_words(accuracy, "cosine")
        how = f" ({on})" if (on := text.compared_on(accuracy)) else ""
        rows.append([escaped(f"Cosine to FP32{how}", 400), cosine + gate])
        rows += [["", escaped(one, 400)] for one in warning_words(accuracy)]
        rows += [["", escaped(one, 400)] for one in part_words(accuracy)]
        if not accuracy.get("constant"):
            rows.append(["SNR", measure_words(accuracy, "snr_db")])
    if bundle:
        rows.append(["Bundle without weights", text.size(bundle.get("stripped_bytes"))])
        rows.append(["Bundle with weights", text.size(bundle.get("bytes"))])
    placement = document["placement"]
    several = len(placement["shares"]) > 1
    for row in placement["devices"]:
        if row["predicted_us"]:
            whose = " in the first plan" if several else ""
            rows.append([
                f"{escaped(row['device'])} busy{whose}, predicted",
                busy_time(row, "predicted_us"),
            ])  # fmt: skip
    if lost := sharing_words(placement.get("frame")):
        rows.append(["Contention", escaped(lost, 400)])
    if document["target"]["dla_cores"]:
        if placement["macs"]:
            rows.append(["MACs on the DLA", percent(placement["dla_macs_fraction"])])
        rows.append(["Loadables", text.count(len(placement["loadables"]))])
    if rows:
        paper.table(("Check", ""), rows, "lr")


def _write_details(document: Mapping[str, Any], paper: Paper) -> None:
    notes = document["notes"]
    if notes:
        paper.folded("Notes", ("",), [[escaped(sentence(note), 400)] for note in notes])
    why = [
        [code(one["rule"]), text.count(one["count"]), escaped(one["fixes"][0] if one["fixes"]
                                                              else "", 400)]
        for one in document["why_not"]
    ]  # fmt: skip
    paper.folded(
        "Why layers are not on the DLA",
        ("rule", "layers", "fixes"),
        why,
        "lrl",
    )
    _write_pairs("Settings of the measurement", (document["bench"] or {}).get("settings"), paper)
    paper.text("Configuration", document["config"])
    parts = document.get("measured_parts") or ()
    every = [row["measured"] for row in document["layers"] if row.get("measured")]
    wholes = [
        [code(one["name"]), escaped(one["device"]), one["layers"], one["time"], one["share"]]
        for one in part_cells(parts, sum(one["us"] for one in (*every, *parts)))
    ]
    whole = ("timed as a whole", "device", "layers", "measured", "of all layers")
    paper.folded("Loadables and fusions, timed as a whole", whole, wholes, "llrrr")
    layers = [
        [code(row["name"]), escaped(row["kind"]), escaped(row["device"]),
         escaped(row["precision"]), text.microseconds(row["predicted_us"]),
         escaped(within_words(row)) or text.microseconds((row.get("measured") or {}).get("us"))]
        for row in by_time(document["layers"])
    ]  # fmt: skip
    head = ("layer", "kind", "device", "precision", "predicted", "measured")
    order = order_words(document["layers"])
    paper.folded(f"Layers, slowest first ({order})", head, layers, "llllrr")


def write_checks(document: Checks, paper: Paper) -> None:
    """Writes checks of models: a row each, what failed, and the broken rules of each, folded."""
    checks, failures = document.checks, document.failures
    icon = "❌" if failures else "✅"
    many = len(checks)
    paper.add(f"### {icon} edgekit check: {many} model{'' if many == 1 else 's'}")
    failed = [f"- {code(one['where'])}: {prose(one['message'], 400)}" for one in failures]
    if failed:
        paper.add("\n".join(failed), "what failed")
    rows = [
        [code(one.model), escaped(one.target), escaped(one.precision.upper()),
         escaped(one.tensorrt), *_placed_cells(one)]
        for one in checks
    ]  # fmt: skip
    head = ("model", "board", "precision", "TensorRT", "layers on the DLA", "MACs on the DLA",
            "loadables")  # fmt: skip
    paper.table(head, rows, "llllrrr")
    refused = [
        [code(one.model), code(problem.node), escaped(problem.operator),
         prose(problem.message, 400), prose(problem.fix, 600)]
        for one in checks
        for problem in one.parse.problems
    ]  # fmt: skip
    if refused:
        paper.table(
            ("model", "node", "operator", "what the parser refuses", "what to do"), refused, "lllll"
        )
    said = [
        [code(one.model), escaped(one.parser.release), *_parser_cells(one.parser)]
        for one in checks
        if one.parser
    ]
    if said:
        paper.table(("model", "NVIDIA's parser", "imports it", "what it refuses"), said, "llll")
    unknown = [
        [code(one.model), code(row.layer), escaped(row.operator)]
        for one in checks
        for row in one.unknown_cost
    ]
    paper.folded("Layers of unknown cost, not counted", ("model", "layer", "operator"), unknown)
    for one in checks:
        paper.folded(
            f"Why not on the DLA: {escaped(one.model)}",
            ("rule", "layers", "for example", "what to do"),
            _reasons(one),
            "lrll",
        )


def _parser_cells(parser: ParserWord) -> list[str]:
    """Whether NVIDIA's own parser imports a model, and the first thing that it refuses."""
    if parser.ok:
        return ["yes", ""]
    first = parser.problems[0]
    where = f"{first.operator} {first.node}: " if first.node else ""
    return ["no", prose(f"{where}{first.message}", 400)]


def _placed_cells(check: Check) -> list[str]:
    """Layers and multiply-accumulates on the DLA, and loadables, if there is a placement."""
    if not check.placed:
        return ["cannot be parsed", "", ""]
    summary = check.summary
    return [
        f"{summary.dla_layers:,} of {summary.layers:,}",
        percent(summary.dla_macs_fraction),
        text.count(check.loadables),
    ]


def _reasons(check: Check) -> list[list[str]]:
    """Rows of the broken rules, the most frequent first; one that needs nothing done has no fix."""
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
    """Writes what a build log says: the headline, errors, broken rules, and the layers, folded."""
    paper.add(f"### edgekit explain-log: {code(document.file)}")
    paper.add("  \n".join(escaped(line, 400) for line in document.headline))
    errors = [
        f"- {prose(one.cause, 400)}. **Do:** {prose(one.remedy, 600)} ({escaped(one.source, 300)})"
        for one in document.errors
    ]
    errors += [
        f"- no known cause: {code(one)}: search for it, or file an issue with the log"
        for one in document.unknown_errors
    ]
    if errors:
        paper.add("\n".join(errors), "errors")
    rules = [
        [code(one.rule), text.count(len(one.layers)), code(one.layers[0]),
         prose("; ".join(way.fix for way in one.fixes or [one]), 400),
         escaped(one.source, 300)]
        for one in document.rules
    ]  # fmt: skip
    if rules:
        paper.table(
            ("rule", "layers", "for example", "what to do", "source"), rows=rules, right="lr"
        )
    unknown = [
        [code(one.layer), escaped(one.kind), escaped("; ".join(one.words), 400)]
        for one in document.unexplained
    ]
    paper.folded("Refused without a known rule", ("layer", "type", "words"), unknown)
    loadables = [[code(one.name), text.count(len(one.layers))]
                 for one in document.log.loadables]  # fmt: skip
    paper.folded("Loadables on the DLA", ("loadable", "layers"), loadables, "lr")
    layers = [[code(one.name), escaped(one.kind)] for one in document.log.gpu_layers]
    paper.folded("Layers on the GPU", ("layer", "type"), layers)
    if notes := [f"- {prose(sentence(note), 400)}" for note in document.notes]:
        paper.add("\n".join(notes), "notes")


def write_compare(document: Mapping[str, Any], paper: Paper) -> None:
    """Writes a comparison."""
    paper.add(f"### edgekit compare: {escaped(document['metric'])}")
    _write_answer(document, paper)
    rows = [[escaped(one["what"]), escaped(one["a"]), escaped(one["b"])]
            for one in document["differences"]]  # fmt: skip
    paper.folded("What else differs", ("", "A", "B"), rows)
    runs = [
        [side.upper(), escaped(run["label"]), value_words(run["value"], document["unit"]),
         _commit(run), escaped((run["bundle"] or "")[:12]), escaped(run["verdict"] or "")]
        for side in "ab"
        for run in document[side]["runs"]
    ]  # fmt: skip
    paper.folded("Runs", ("", "run", "value", "commit", "bundle", "verdict"), runs, "llrlll")


def _write_answer(document: Mapping[str, Any], paper: Paper) -> None:
    a, b = compared_values(document)
    icon = _ICONS[document["direction"]]
    paper.table(
        ("", escaped(document["a"]["label"]), escaped(document["b"]["label"]), "difference"),
        [[escaped(document["metric"]), a, b, escaped(ratio_words(document))]],
        "lrrr",
    )
    verdict = document["verdict"]  # the headline begins with it
    rest = headline(document).removeprefix(verdict)
    paper.add(f"{icon} **{escaped(verdict)}**{escaped(rest, 400)}")
    _write_notes(document, document["notes"], paper)


def _write_baseline(baseline: Mapping[str, Any], paper: Paper) -> None:
    """Writes a row a metric, as the page has it."""
    every = compared_metrics(baseline)
    rows = [
        [
            escaped(metric_name(one["metric"])),
            *map(escaped, compared_values(one)),
            escaped(ratio_words(one)),
            f"{_ICONS[one['direction']]} "
            f"{escaped(one['verdict'])}{', above the threshold' if one['regression'] else ''}",
        ]
        for one in every
    ]
    head = ("Against the baseline", "baseline", "this run", "difference", "answer")
    paper.table(head, rows, "lrrrl")
    limit = percent(baseline["threshold"], 0)
    paper.add(f"Baseline: {code(baseline['a']['label'])}; changes above {limit} are regressions.")
    _write_notes(baseline, compared_notes(baseline), paper)


def _write_notes(document: Mapping[str, Any], notes: Sequence[str], paper: Paper) -> None:
    lines = [f"- forced: {escaped(reason, 400)}" for reason in document["forced"]]
    lines += [f"- {escaped(sentence(note), 400)}" for note in notes]
    if lines:
        paper.add("\n".join(lines), "notes")


def _write_pairs(title: str, mapping: Mapping[str, Any] | None, paper: Paper) -> None:
    rows = [[escaped(key), escaped(value)] for key, value in flat_facts(mapping)]
    paper.folded(title, ("", ""), rows)


def _commit(run: Mapping[str, Any]) -> str:
    return code(f"{run['commit'][:12]}{'+' if run['dirty'] else ''}") if run["commit"] else ""


def _ms(value: float | None) -> str:
    return text.microseconds(None if value is None else 1000 * value)
