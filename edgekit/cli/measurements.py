"""Commands that make and show measurements: ``bench``, ``trace``, ``history`` with its actions, and
``compare``.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import wraps
from itertools import groupby
from pathlib import Path
from typing import Any

import click

from edgekit import api
from edgekit.cli import commands, completion
from edgekit.cli import options as o
from edgekit.cli.commands import argument
from edgekit.cli.options import combine, write_markdown
from edgekit.cli.options import markdown as markdown_option
from edgekit.cli.output import (
    mark_printed,
    print_json,
    progress,
    say,
    say_page,
    show_page,
    terminal_format,
)
from edgekit.errors import GateError, UsageError
from edgekit.text import counted, printable, sentence

_RATE_MS = click.IntRange(10, 60_000)
_OPTIONS = combine(
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
_AGE = re.compile(r"(\d{1,5})d")
_REGRESSION = 1
_PERCENT = re.compile(r"(\d+(?:\.\d+)?)\s*(%?)")
_SIDE = (
    "a bench.json, an id of edgekit history, last, last~N, baseline:NAME or a git "
    "revision; separate several by commas."
)


@dataclass(frozen=True)
class BenchOptions:
    """Keys of a configuration's "bench" section; None if not given."""

    duration_s: float | None
    iterations: int | None
    warmup_ms: float | None
    streams: int | None
    graph: bool | None
    spin: bool | None
    transfers: bool | None
    sleep_ms: float | None
    inputs: Path | None
    lock_clocks: bool | None
    power_mode: str | None
    with_trtexec: bool | None
    monitor_ms: float | None
    idle_s: float | None


def bench_options(function: Any) -> Any:
    """Adds the options of a measurement to a command, as ``bench``."""

    @wraps(function)
    def with_bench(*, no_monitor: bool, inputs: Path | None, **given: Any) -> Any:
        # not two options of the same name: each would be checked against the other's range
        if no_monitor:
            if given["monitor_ms"] is not None:
                raise UsageError(
                    "--monitor and --no-monitor cannot be used together", hint="give one"
                )
            given["monitor_ms"] = 0
        own = {
            field.name: given.pop(field.name)
            for field in fields(BenchOptions)
            if field.name != "inputs"
        }
        bench = BenchOptions(inputs=None if inputs is None else inputs.absolute(), **own)
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
    "--tegrastats",
    type=o.FILE,
    help="Only add this log's power and energy to MODEL, a bench.json, without a measurement.",
)
@click.option(
    "--require-valid", is_flag=True, help="Exit with code 1 if the measurement is INVALID."
)
@o.cut_or_torch
@o.out_or_former
@o.board_options
@o.reports
@markdown_option
def bench_command(
    model: str,
    target: str | None,
    precision: str | None,
    bench: BenchOptions,
    tegrastats: Path | None,
    require_valid: bool,
    part: api.ModelPart,
    json: bool,
    markdown: str | None,
    **settings: Any,
) -> None:
    if tegrastats is not None:
        document = api.add_power(model, tegrastats)
    else:
        document = api.bench(
            model, target=target, precision=precision, model=part, bench=bench, **settings
        )
    if markdown is not None:
        write_markdown(document, markdown)
    if json:
        print_json(document)
    elif markdown != "-":
        from edgekit.reports.terminal.measurement import bench_text

        show_page(bench_text(document))
        # a log is added to the bench.json alone
        for name in ["bench"] if tegrastats is not None else document.files:
            say(f"{name}: {Path(document.files[name])}")
    if require_valid and document.verdict and document.verdict.status != "VALID":
        reasons = document.verdict.reasons
        raise mark_printed(
            GateError(
                f"the measurement is INVALID: {'; '.join(reason.message for reason in reasons)}",
                code=reasons[0].code,
                where=document.name,
                hint="; ".join(dict.fromkeys(reason.remedy for reason in reasons)),
            )
        )


@commands.command(
    "trace",
    "edgekit trace configs/resnet50-orin.yaml --nsys report.sqlite\n"
    "edgekit trace bench.json --tegrastats board.log -o both.json",
)
@argument("source", "YAML configuration, or a bench.json.", required=False)
@click.option(
    "--nsys",
    multiple=True,
    type=o.FILE,
    help="An SQLite export of Nsight Systems; repeatable.",
)
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
    "--dla-core",
    type=click.IntRange(0, 15),
    default=0,
    help="DLA core for layers of --profile that are not in a plan (0).",
)
@click.option("-o", "--output", type=o.OUTPUT, help="File for the trace (trace.json).")
@o.cut_or_torch
@o.output_options
def trace_command(
    source: str | None,
    nsys: Sequence[Path],
    profile: Sequence[Path],
    layer_info: Path | None,
    times: Path | None,
    tegrastats: Path | None,
    dla_core: int,
    output: Path | None,
    part: api.ModelPart,
    json: bool,
    quiet: bool,
    verbose: bool,
) -> None:
    config, bench = _config_or_bench(source)
    if config is None and part.given:
        raise UsageError("--shape, --batch and --outputs need a configuration")
    shown = progress(quiet, verbose)
    traced = api.trace(
        save=output,
        config=config,
        bench=bench,
        nsys=nsys,
        profiles=profile,
        layer_info=layer_info,
        times=times,
        tegrastats=tegrastats,
        dla_core=dla_core,
        progress=shown,
        model=part,
    )
    if json:
        print_json(traced)
        return
    # each source once, then its processes; their ids are 100 * source + number
    for _, group in groupby(traced.processes, lambda process: (process.source, process.pid // 100)):
        own = list(group)
        together = f"; its {len(own)} processes share one clock" if len(own) > 1 else ""
        print(printable(f"{own[0].source}: {own[0].alignment}{together}", 300))
        for process in own:
            print(printable(f"  {process.name}: {process.clock}", 300))
    if traced.modules:
        from edgekit.reports.terminal.modules import modules_text

        say_page(modules_text(traced.modules))
    for note in traced.notes:
        print(printable(f"note: {sentence(note)}", 1000))
    print(f"trace: {traced.file}")


def _config_or_bench(source: str | None) -> tuple[str | None, Path | None]:
    """Returns a configuration's name, or the path of a bench result."""
    if source is not None and source.lower().endswith(".json"):
        return None, Path(source)
    if source is not None and not api.is_builtin(source):
        o.refuse_missing(source, "a YAML configuration or a bench.json")
    return source, None


@commands.command(
    "history",
    "edgekit history resnet50 --board lab\nedgekit history show 12\n"
    "edgekit history mark 12 release\nedgekit history export -o results.csv\n"
    "edgekit history prune --keep 50",
)
@argument("name", "Use only this configuration's results.", required=False)
@click.option("--board", help="Use only this board's results.")
@click.option(
    "--limit",
    type=click.IntRange(1, 1_000_000),
    default=20,
    show_default=True,
    help="Show at most this many, newest first.",
)
@click.option(
    "--repair",
    "mend",
    is_flag=True,
    help="Move a damaged history file aside and keep its readable results.",
)
@o.output_options
def history_command(
    name: str | None,
    board: str | None,
    limit: int,
    mend: bool,
    json: bool,
    quiet: bool,
    verbose: bool,
) -> None:
    document, found = api.history_with_times(name, board=board, limit=limit, repair=mend)
    if json:
        print_json(document)
        return
    if mended := document.repair:
        text = f"moved to {mended.moved}" if mended.repaired else "intact"
        say(f"the history is {text}; {mended.kept} results kept")
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
@o.output_options
def show(
    which: str, name: str | None, board: str | None, json: bool, quiet: bool, verbose: bool
) -> None:
    """Prints a result; with --json its whole edgekit.bench/1, samples included."""
    from edgekit.reports.terminal.history import result_text

    for result in api.measurements(which, name=name, board=board):
        if json:
            print_json(result.shown())
            return
        say(result_text(result))


@history_command.action(
    "mark",
    "Name a result, for edgekit compare baseline:NAME.",
    "edgekit history mark last release-3",
)
@argument("which", "An id, last or last~N.")
@argument("name", "Letters, digits, . _ / and -.")
@o.output_options
def mark(which: str, name: str, json: bool, quiet: bool, verbose: bool) -> None:
    """Names a result."""
    marked = api.mark_measurement(which, name)
    if json:
        print_json(marked)
    else:
        say(f"baseline:{name} is #{marked.id}")


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
    which: str | None,
    name: str | None,
    board: str | None,
    form: Any,
    output: Path | None,
    quiet: bool,
) -> None:
    """Writes results to a file or stdout."""
    found = api.export_history(output or sys.stdout, which, form=form, name=name, board=board)
    if output is not None and not quiet:
        say(f"{counted(len(found.results), 'result')} in {output}")


@history_command.action(
    "prune", "Delete old results.", "edgekit history prune --keep 50 --older-than 90d"
)
@click.option(
    "--keep", type=click.IntRange(0), help="Keep the newest N results of each name and board."
)
@click.option("--older-than", metavar="DAYS", help="Delete only results older than this: 90d.")
@click.option("--dry-run", is_flag=True, help="Only count the results to delete.")
@click.option(
    "--yes", is_flag=True, help="Do not ask for confirmation when all results would be deleted."
)
@o.output_options
def prune(
    keep: int | None,
    older_than: str | None,
    dry_run: bool,
    yes: bool,
    json: bool,
    quiet: bool,
    verbose: bool,
) -> None:
    """Forgets results that no option keeps; marked ones stay always."""

    def agree(count: int) -> None:
        if not yes:
            _confirm_prune(count, json)

    days = None if older_than is None else _parse_days(older_than)
    pruned = api.prune_history(keep, days, dry_run=dry_run, on_all=agree)
    if json:
        print_json(pruned)
    else:
        done = "would be deleted" if dry_run else "deleted"
        say(f"{counted(len(pruned.removed), 'result')} {done}")


def _confirm_prune(count: int, json: bool) -> None:
    """Asks for confirmation to remove all unmarked results.

    Raises:
        UsageError: There is no terminal for the question, or the answer is no.
    """
    text = (
        f"all {count} unmarked results would be deleted"
        if count > 1
        else ("the only unmarked result would be deleted")
    )
    if json or not sys.stdin.isatty():
        raise UsageError(
            f"{text}; no result was deleted",
            code="history.prune-all",
            hint="--yes deletes them, --dry-run only counts, --keep N keeps some",
        )
    if not click.confirm(f"{text}. Delete them?", default=False, err=True):
        raise UsageError("nothing was deleted", code="history.prune-all")


def _parse_days(text: str) -> int:
    match = _AGE.fullmatch(text)
    if not match:
        raise UsageError(f"--older-than {text!r} is not a number of days", hint="--older-than 90d")
    return int(match[1])


def _parse_fraction(_context: click.Context, _option: click.Parameter, text: str) -> float:
    """Parses "5%" and "0.05"; refuses the ambiguous 5."""
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
@click.option(
    "--threshold",
    default="5%",
    show_default=True,
    callback=_parse_fraction,
    help="Smallest change that counts as a regression.",
)
@click.option(
    "--metric",
    default="latency.median",
    show_default=True,
    help="Metric: latency.median, .mean, .p90, .p95 or .p99, throughput or energy.",
    shell_complete=completion.metrics,
)
@click.option(
    "--confidence",
    type=click.FloatRange(0.5, 0.9999),
    default=0.95,
    show_default=True,
    help="Confidence level of the interval.",
)
@click.option(
    "--strict", is_flag=True, help="Exit with code 1 also if a regression cannot be ruled out."
)
@click.option("--name", help="Use only this configuration's results.")
@click.option("--board", help="Use only this board's results.")
@click.option(
    "--force",
    is_flag=True,
    help="Compare even if a measurement is INVALID or of another board, power mode or clock.",
)
@o.output_options
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
    compared = api.compare(
        a,
        b,
        name=name,
        board=board,
        metric=metric,
        threshold=threshold,
        confidence=confidence,
        force=force,
    )
    if markdown is not None:
        write_markdown(compared, markdown)
    if json:
        print_json(compared)
    elif markdown != "-":
        from edgekit.reports.terminal.history import compare_text

        say(compare_text(compared, every=verbose))
    if compared.regression or (strict and compared.regression_possible):
        # not an error with a message: the comparison has been printed
        raise SystemExit(_REGRESSION)
