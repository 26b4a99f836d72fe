"""Commands that measure and look at measurements: ``bench``, ``trace``, ``history`` with its
actions, and ``compare``.
"""

from __future__ import annotations

import io
import json
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import wraps
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgekit.cli import commands
from edgekit.cli import options as o
from edgekit.cli.commands import argument
from edgekit.cli.options import all_of, write_markdown
from edgekit.cli.options import markdown as markdown_option
from edgekit.cli.output import mark_printed, print_json, say, say_page, show_page, terminal_format
from edgekit.errors import GateError, UsageError
from edgekit.text import plain, sentence

if TYPE_CHECKING:
    from edgekit.pipeline.pipeline import Pipeline


_RATE_MS = click.IntRange(10, 60_000)
_OPTIONS = all_of(
    click.option(
        "--duration",
        "duration_s",
        type=float,
        metavar="S",
        help="Measure for at least this many seconds.",
    ),
    click.option(
        "--iterations", type=int, help="Measure at least this many inferences in each stream."
    ),
    click.option(
        "--warmup",
        "warmup_ms",
        type=float,
        metavar="MS",
        help="Warm up for this many milliseconds.",
    ),
    click.option("--streams", type=int, help="Frames in flight at once."),
    click.option(
        "--graph",
        is_flag=True,
        default=None,
        help="Replay frames as a CUDA graph (GPU-only plans).",
    ),
    click.option(
        "--spin/--blocking",
        default=None,
        help="Wait for the GPU by spinning or by blocking (default: CUDA's choice).",
    ),
    click.option(
        "--no-transfers",
        "transfers",
        flag_value=False,
        default=None,
        help="Do not copy inputs and outputs for each frame.",
    ),
    click.option(
        "--sleep",
        "sleep_ms",
        type=float,
        metavar="MS",
        help="Pause after each frame, in milliseconds.",
    ),
    click.option(
        "--inputs",
        type=click.Path(path_type=Path, exists=True),
        help="Input frames (.npz, .npy, images) to use instead of the bundle's.",
    ),
    click.option(
        "--lock-clocks",
        is_flag=True,
        default=None,
        help="Lock all clocks at their maximum (jetson_clocks) while measuring.",
    ),
    click.option(
        "--power-mode",
        metavar="MODE",
        help="Power mode (nvpmodel) to measure in; restored afterwards.",
    ),
    click.option(
        "--with-trtexec",
        is_flag=True,
        default=None,
        help="Also measure the same plans with trtexec and compare.",
    ),
    click.option(
        "--monitor",
        "monitor_ms",
        type=_RATE_MS,
        metavar="MS",
        help="Sampling interval for clocks, power and load, in milliseconds.",
    ),
    click.option("--no-monitor", is_flag=True, help="Do not sample clocks, power and load."),
    click.option(
        "--idle",
        "idle_s",
        type=float,
        metavar="S",
        help="Sample the idle board for this many seconds first, as the power baseline.",
    ),
)
_CELLS = (
    "id",
    "at",
    "name",
    "clock",
    "verdict",
    "board",
    "target",
    "power_mode",
    "precision",
    "backend",
    "bundle",
    "commit",
    "dirty",
    "iterations",
    "throughput_qps",
    "energy_uj",
)
_LATENCIES = ("min", "mean", "median", "p90", "p95", "p99", "max")
_MARK = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,99}")
_AGE = re.compile(r"(\d{1,5})d")
_REGRESSION = 1
_PERCENT = re.compile(r"(\d+(?:\.\d+)?)\s*(%?)")
_SIDE = (
    "a bench.json, an id of edgekit history, last, last~N, baseline:NAME or a git "
    "revision; separate several by commas."
)


def bench_options(function: Any) -> Any:
    """Gives a command these options as ``bench``; None is what was not given."""
    names = (
        "duration_s",
        "iterations",
        "warmup_ms",
        "streams",
        "graph",
        "spin",
        "transfers",
        "sleep_ms",
        "inputs",
        "lock_clocks",
        "power_mode",
        "with_trtexec",
        "monitor_ms",
        "idle_s",
    )

    @wraps(function)
    def with_bench(**given: Any) -> Any:
        bench = {name: given.pop(name) for name in names}
        # not two options of one name: each would be held to the other's range
        if given.pop("no_monitor"):
            if bench["monitor_ms"] is not None:
                raise UsageError(
                    "--monitor and --no-monitor cannot be used together", hint="give one"
                )
            bench["monitor_ms"] = 0
        if bench["inputs"] is not None:
            bench["inputs"] = str(bench["inputs"].absolute())
        return function(bench=bench, **given)

    return _OPTIONS(with_bench)


@commands.command(
    "bench",
    "edgekit bench configs/resnet50-orin.yaml --power-mode MAXN --lock-clocks\n"
    "edgekit bench model.onnx -t jetson-agx-orin-64gb --duration 10 --streams 2 --with-trtexec\n"
    "edgekit bench config.yaml --inputs frames.npz --require-valid --json\n"
    "edgekit bench edgekit-out/bench.json --tegrastats board.log",
)
@o.model
@o.target
@o.precision
@bench_options
@click.option(
    "--tegrastats", type=o.FILE,
    help="Measure nothing: add this log's power and energy to MODEL, a bench.json.",
)  # fmt: skip
@click.option(
    "--require-valid", is_flag=True, help="Exit with code 1 if the measurement is INVALID."
)
@o.cut
@o.out_or_former
@o.boards
@o.talk
@markdown_option
def bench_command(
    model: str,
    target: str | None,
    precision: str | None,
    bench: dict[str, Any],
    tegrastats: Path | None,
    require_valid: bool,
    part: dict[str, Any],
    json: bool,
    markdown: str | None,
    **settings: Any,
) -> None:
    options = {"target": target, "precision": precision, "model": part, "bench": bench}
    if tegrastats is not None:
        from edgekit.pipeline.steps.tegrastats_log import with_tegrastats

        document = with_tegrastats(Path(model), tegrastats)
    else:
        with o.open_pipeline(model, options, **settings) as pipeline:
            document = pipeline.bench()
    if markdown is not None:
        write_markdown(document, markdown)
    if json:
        print_json(document)
    elif markdown != "-":
        from edgekit.reports.terminal.measurement import bench_text

        show_page(bench_text(document))
        for name in ["bench"] if tegrastats is not None else document.files:
            say(f"{name}: {Path(document.files[name])}")
    if require_valid and document.verdict and document.verdict.status != "VALID":
        reasons = document.verdict.reasons
        raise mark_printed(
            GateError(
                f"the measurement is INVALID: {'; '.join(one.message for one in reasons)}",
                code=reasons[0].code,
                where=document.name,
                hint="; ".join(dict.fromkeys(one.remedy for one in reasons)),
            )
        )


@commands.command(
    "trace",
    "edgekit trace configs/resnet50-orin.yaml --nsys report.sqlite\n"
    "edgekit trace bench.json --tegrastats board.log -o both.json",
)
@argument("source", "YAML configuration, or a bench.json.", required=False)
@click.option(
    "--nsys", multiple=True, type=o.FILE,
    help="An SQLite export of Nsight Systems; repeatable.",
)  # fmt: skip
@click.option(
    "--profile",
    multiple=True,
    type=o.FILE,
    help="Layer times: trtexec --exportProfile, an IProfiler's output or a verbose "
    "build log; repeatable.",
)
@click.option("--layer-info", type=o.FILE, help="trtexec --exportLayerInfo of the same engine.")
@click.option("--times", type=o.FILE, help="trtexec --exportTimes.")
@click.option("--tegrastats", type=o.FILE, help="A tegrastats log: power, temperature, clocks.")
@click.option(
    "--dla-core", type=click.IntRange(0, 15), default=0,
    help="DLA core for layers of --profile that are not in a plan (0).",
)  # fmt: skip
@click.option("-o", "--output", type=o.OUTPUT, help="File for the trace (trace.json).")
@o.cut
@o.talk
def trace_command(
    source: str | None, output: Path | None, part: dict[str, Any], json: bool, **options: Any
) -> None:
    from edgekit.pipeline.exports import TraceFiles, trace

    config, bench = _which(source)
    files = TraceFiles(
        bench, options["nsys"], options["profile"], options["layer_info"], options["times"],
        options["tegrastats"], options["dla_core"],
    )  # fmt: skip
    quiet, verbose = options["quiet"], options["verbose"]
    if config is None:
        if any(part.values()):
            raise UsageError("--shape, --batch and --outputs need a configuration")
        document = trace(files, output or Path("trace.json"))
    else:
        with o.open_pipeline(config, {"model": part}, quiet=quiet, verbose=verbose) as pipeline:
            document = pipeline.trace(files, output or _timeline_path(pipeline))
    if json:
        print_json(document)
        return
    for line in _process_lines(document["processes"]):
        print(plain(line, 300))
    for note in document["notes"]:
        print(plain(f"note: {sentence(note)}", 1000))
    print(f"trace: {document['file']}")


def _process_lines(processes: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yields each source with how it was placed, once for all its processes, and those."""
    for _, group in groupby(processes, lambda one: (one["source"], one["pid"] // 100)):
        own = list(group)
        together = f"; its {len(own)} processes share one clock" if len(own) > 1 else ""
        yield f"{own[0]['source']}: {own[0]['alignment']}{together}"
        yield from (f"  {process['name']}: {process['clock']}" for process in own)


def _which(source: str | None) -> tuple[str | None, Path | None]:
    """A configuration, or what a bench wrote."""
    if source is not None and source.lower().endswith(".json"):
        return None, Path(source)
    if source is not None and not source.startswith("builtin:"):
        o.refuse_missing(source, "a YAML configuration or a bench.json")
    return source, None


def _timeline_path(pipeline: Pipeline) -> Path:
    """The bench step's own trace stays as it is: it is what this one is made of."""
    return pipeline.out / "timeline.json"


@commands.command(
    "history",
    "edgekit history resnet50 --board lab\nedgekit history show 12\n"
    "edgekit history mark 12 release\nedgekit history export -o results.csv\n"
    "edgekit history prune --keep 50",
)
@argument("name", "Use only this configuration's results.", required=False)
@click.option("--board", help="Use only this board's results.")
@click.option("--limit", type=click.IntRange(1, 1_000_000), default=20, show_default=True,
              help="Show at most this many, newest first.")  # fmt: skip
@click.option("--repair", "mend", is_flag=True,
              help="Move a damaged history file aside and keep what is readable.")  # fmt: skip
@o.talk
def history_command(
    name: str | None,
    board: str | None,
    limit: int,
    mend: bool,
    json: bool,
    quiet: bool,
    verbose: bool,
) -> None:
    from edgekit.results.selection import history_document
    from edgekit.results.store import ResultStore, repair

    mended = repair() if mend else None
    with ResultStore() as store:
        found = store.results(name=name, board=board, limit=limit)
    if json:
        print_json(history_document(found) | ({"repair": mended} if mended else {}))
        return
    if mended:
        text = f"moved to {mended['moved']}" if mended["repaired"] else "intact: nothing to repair"
        say(f"the history is {text}; {mended['kept']} results kept")
    if not found:
        say("nothing was measured yet" if name is None else f"no results of {name}")
        return
    from edgekit.reports.terminal.history import history_text

    width, colour = terminal_format()
    say_page(history_text(found, width=width, colour=colour))


# The actions of ``edgekit history``.


@history_command.action(
    "show",
    "Show all details of a result.",
    "edgekit history show 12 --json > bench.json",
)
@argument("which", "An id, last, last~N or baseline:NAME.")
@click.option("--name", help="Use only this configuration's results, for last.")
@click.option("--board", help="Use only this board's results.")
@o.talk
def show(
    which: str, name: str | None, board: str | None, json: bool, quiet: bool, verbose: bool
) -> None:
    """Prints a result; with --json its whole edgekit.bench/1, samples included."""
    from edgekit.results.selection import select
    from edgekit.results.store import row_of

    for result in select(which, name=name, board=board):
        if json:
            print_json({**result.document.to_json(), "samples_ms": list(result.samples),
                          "history": row_of(result).to_json()})  # fmt: skip
            return
        from edgekit.reports.terminal.history import result_text

        say(result_text(result))


@history_command.action(
    "mark",
    "Name a result, for edgekit compare baseline:NAME.",
    "edgekit history mark last release-3",
)
@argument("which", "An id, last or last~N.")
@argument("name", "Letters, digits, . _ / and -.")
@o.talk
def mark(which: str, name: str, json: bool, quiet: bool, verbose: bool) -> None:
    """Names a result."""
    from edgekit.results.selection import select
    from edgekit.results.store import ResultStore

    if not _MARK.fullmatch(name):
        raise UsageError(
            f"{name!r} is not a valid name for a mark", hint="letters, digits, . _ / and -"
        )
    with ResultStore() as store:
        (result, *others) = select(which, store=store)
        if others or result.id is None:
            raise UsageError(f"{which!r} names more than one result")
        store.mark(name, result.id)
    if json:
        print_json({"schema": "edgekit.history.mark/1", "name": name, "id": result.id})
    else:
        say(f"baseline:{name} is {result.label}")


@history_command.action(
    "export",
    "Write results as JSON or CSV.",
    "edgekit history export --name resnet50 -o results.csv",
)
@argument(
    "which", "Results to export: ids, last, ... as for compare (default: all).", required=False
)
@click.option("--name", help="Use only this configuration's results.")
@click.option("--board", help="Use only this board's results.")
@click.option(
    "--format",
    "form",
    type=click.Choice(("json", "csv")),
    help="json (whole documents with samples) or csv (default: by the file name).",
)
@click.option("-o", "--output", type=o.OUTPUT, help="File to write (default: stdout).")
@o.quiet
@o.debug
def export(
    which: str | None, name: str | None, board: str | None, form: str | None, output: Path | None,
    quiet: bool,
) -> None:  # fmt: skip
    """Writes results to a file or stdout."""
    from edgekit.files import write_atomically
    from edgekit.results.selection import select
    from edgekit.results.store import ResultStore

    with ResultStore() as store:
        found = (
            select(which, name=name, board=board, store=store)
            if which
            else store.results(name=name, board=board)
        )
    as_csv = form == "csv" if form else bool(output and output.suffix.lower() == ".csv")
    text = _csv(found) if as_csv else _json(found)
    if output is None:
        sys.stdout.write(text)
        return
    with write_atomically(output) as temporary:
        temporary.write_text(text, encoding="utf-8")
    if not quiet:
        say(f"{len(found)} results in {output}")


@history_command.action(
    "prune", "Delete old results.", "edgekit history prune --keep 50 --older-than 90d"
)
@click.option(
    "--keep", type=click.IntRange(0), help="Keep the newest N results of each name and board."
)
@click.option("--older-than", metavar="DAYS", help="Delete only results older than this: 90d.")
@click.option("--dry-run", is_flag=True, help="Only show what would be deleted.")
@click.option(
    "--yes", is_flag=True, help="Do not ask for confirmation when all results would be deleted."
)
@o.talk
def prune(
    keep: int | None, older_than: str | None, dry_run: bool, yes: bool, json: bool, quiet: bool,
    verbose: bool,
) -> None:  # fmt: skip
    """Forgets results that no option keeps; marked ones stay always."""
    from edgekit.results.store import ResultStore, group_of

    if keep is None and older_than is None:
        raise UsageError(
            "no results are selected for deletion", hint="--keep 50, --older-than 90d, or both"
        )
    before = time.time() - _days(older_than) * 86400 if older_than else None
    gone: list[int] = []
    retained = 0
    with ResultStore() as store:
        counts: dict[tuple[str, str], int] = {}
        for result in store.results(samples=False):
            key = (group_of(result.name), result.board)
            counts[key] = counts.get(key, 0) + 1
            old = before is None or (result.at or 0) < before
            if not result.marks and old and (keep is None or counts[key] > keep):
                gone.append(result.id or 0)
            elif not result.marks:
                retained += 1
        if gone and not dry_run:
            if not retained and not yes:
                _agree(len(gone), json)
            store.remove(gone)
    if json:
        print_json({"schema": "edgekit.history.prune/1", "removed": gone, "dry_run": dry_run})
    else:
        say(f"{len(gone)} results {'would be deleted' if dry_run else 'deleted'}")


def _agree(count: int, json: bool) -> None:
    """Asks for confirmation that all unmarked results go.

    Raises:
        UsageError: There is no terminal to ask on, or the answer is no.
    """
    text = f"all {count} unmarked results would be deleted" if count > 1 else (
        "the only unmarked result would be deleted"
    )  # fmt: skip
    if json or not sys.stdin.isatty():
        raise UsageError(
            f"{text}; nothing was deleted", code="history.prune-all",
            hint="--yes deletes them, --dry-run only counts, --keep N keeps some",
        )  # fmt: skip
    if not click.confirm(f"{text}. Delete them?", default=False, err=True):
        raise UsageError("nothing was deleted", code="history.prune-all")


def _days(text: str) -> int:
    match = _AGE.fullmatch(text)
    if not match:
        raise UsageError(f"--older-than {text!r} is not a number of days", hint="--older-than 90d")
    return int(match[1])


def _json(results: list[Any]) -> str:
    from edgekit.results.store import row_of

    rows = [
        {**row_of(one).to_json(),
         "document": {**one.document.to_json(), "samples_ms": list(one.samples)}}
        for one in results
    ]  # fmt: skip
    return json.dumps({"schema": "edgekit.history/1", "results": rows}, allow_nan=False) + "\n"


def _csv(results: list[Any]) -> str:
    import csv

    from edgekit.results.store import row_of

    paper = io.StringIO()
    writer = csv.writer(paper, lineterminator="\n")
    writer.writerow([*_CELLS, *(f"{key}_ms" for key in _LATENCIES), "marks"])
    for result in results:
        row = row_of(result).to_json()
        latency = row["latency_ms"] or {}
        cells = [*(row[key] for key in _CELLS), *(latency.get(key) for key in _LATENCIES)]
        writer.writerow([_harmless(cell) for cell in [*cells, " ".join(row["marks"])]])
    return paper.getvalue()


def _harmless(cell: Any) -> Any:
    """A name that a spreadsheet would take for a formula is text."""
    return f"'{cell}" if isinstance(cell, str) and cell[:1] in "=+-@\t\r" and cell else cell


def _fraction(_context: click.Context, _option: click.Parameter, text: str) -> float:
    """Reads "5%" and "0.05"; 5 alone could be either."""
    match = _PERCENT.fullmatch(text.strip())
    value = float(match[1]) / (100 if match[2] else 1) if match else -1.0
    if not 0 <= value < 1:
        raise UsageError(f"the threshold {text!r} is not a fraction", hint="--threshold 5% or 0.05")
    return value


@commands.command(
    "compare",
    "edgekit compare last~1 last\nedgekit compare main HEAD --name resnet50 "
    "--threshold 3%\nedgekit compare before.json after.json --metric p99\n"
    "edgekit compare baseline:release 12,13,14,15",
)
@argument("a", f"Baseline: {_SIDE}")
@argument("b", "Measurement to compare with the baseline, in the same forms.")
@click.option("--threshold", default="5%", show_default=True, callback=_fraction,
              help="Smallest change that counts as a regression.")  # fmt: skip
@click.option(
    "--metric",
    default="latency.median",
    show_default=True,
    help="Metric: latency.median, .mean, .p90, .p95 or .p99, throughput or energy.",
)
@click.option("--confidence", type=click.FloatRange(0.5, 0.9999), default=0.95, show_default=True,
              help="Confidence level of the interval.")  # fmt: skip
@click.option("--strict", is_flag=True,
              help="Exit with code 1 also if a regression cannot be ruled out.")  # fmt: skip
@click.option("--name", help="Use only this configuration's results.")
@click.option("--board", help="Use only this board's results.")
@click.option(
    "--force",
    is_flag=True,
    help="Compare even if a measurement is INVALID or of another board, power mode or clock.",
)
@o.talk
@markdown_option
def compare_command(
    a: str,
    b: str,
    threshold: float,
    metric: str,
    confidence: float,
    strict: bool,
    name: str | None,
    board: str | None,
    force: bool,
    markdown: str | None,
    json: bool,
    quiet: bool,
    verbose: bool,
) -> None:
    from edgekit.results.comparison import Comparison, compare
    from edgekit.results.selection import select

    sides = [select(words, name=name, board=board) for words in (a, b)]
    document = compare(
        *sides, metric=metric, threshold=threshold, confidence=confidence, force=force
    )
    if markdown is not None:
        write_markdown(Comparison.model_validate(document), markdown)
    if json:
        print_json(document)
    elif markdown != "-":
        from edgekit.reports.terminal.history import compare_text

        say(compare_text(document, every=verbose))
    if document["regression"] or (strict and document["regression_possible"]):
        raise SystemExit(_REGRESSION)
