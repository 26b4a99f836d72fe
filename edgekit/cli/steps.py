"""Commands that run a configuration's steps up to a given step: ``build``, ``bundle``, ``deploy``,
``refit``, ``infer``, ``serve``, ``report`` (also of an existing ``report.json``) and ``run``, which
runs all.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import click

from edgekit import api
from edgekit.cli import commands
from edgekit.cli import options as o
from edgekit.cli import options as written
from edgekit.cli.boards import (
    app_option,
    host_options,
    last_error,
    plain_text,
    print_boards,
    show,
    table,
)
from edgekit.cli.commands import argument
from edgekit.cli.output import (
    console,
    print_json,
    progress,
    say_accuracy,
    say_notes,
)
from edgekit.errors import GateError, UsageError
from edgekit.text import counted, sentence

if TYPE_CHECKING:
    from edgekit.api import BoardBuild, BoardRow, Build, DeployedRelease, Plans, ServingStatus
    from edgekit.reports.schema import Report


_SERVER_ACTIONS = ("start", "status", "reload", "stop")
_FIRST_RUN = "report.first-run"


@commands.command(
    "build",
    "edgekit build configs/resnet50-orin.yaml\nedgekit build my-board.yaml --strict",
)
@o.config
@o.cut
@o.parser
@o.missing
@o.strict
@o.thorough
@o.force
@o.board_options
@o.reports
def build_command(
    config: str,
    part: api.ModelPart,
    missing: str | None,
    strict: bool | None,
    thorough: bool | None,
    parser: bool | None,
    json: bool,
    **settings: Any,
) -> None:
    document = api.build(
        config,
        model=part,
        calibration={"missing": missing},
        build={"strict": strict},
        accuracy={"thorough": thorough},
        parser=parser,
        **settings,
    )
    if json:
        print_json(document)
        return
    _show_document(document)


def _show_document(document: Build) -> None:
    """Prints a build."""
    count = counted(len(document.segments), "segment")
    print(f"{count}, backend {document.backend}; {document.figures}")
    say_accuracy(document.accuracy, emulated=bool(document.boards))
    for board in document.boards:
        _show_build(board)
    say_notes(document)


def _show_build(board: BoardBuild) -> None:
    """Prints a board's build."""
    print(f"{board.board}: built with TensorRT {board.tensorrt}")
    for engine in board.engines:
        facts = [f"{engine.bytes:,} bytes", f"{engine.seconds:.0f} s"]
        if engine.stripped:
            full = engine.full_bytes
            size = "full size unknown" if full is None else f"{full:,} with its weights"
            facts.insert(1, f"stripped, {size}")
        if engine.version_compatible:
            facts.append("version compatible")
        facts += [f"{key}: {held}" for key, held in engine.settings.items()]
        print(f"  {engine.key}: {', '.join(facts)}")
    plan = board.plan
    if plan is None or plan.same:
        print("  matches the plan: layers, devices and loadables")
    else:
        print(f"  {counted(len(plan.differences), 'difference')} from the plan, listed as notes")


@commands.command(
    "bundle",
    "edgekit bundle configs/resnet50-orin.yaml\n"
    "edgekit bundle configs/resnet50-orin.yaml -o resnet50-full.ekb",
)
@o.config
@click.option(
    "-o",
    "--full",
    type=o.OUTPUT,
    help="Also write the bundle with its weights to this file.",
)
@click.option(
    "--counter",
    type=click.IntRange(min=1),
    metavar="N",
    help="Release counter; boards refuse lower ones (deploy.release.counter).",
)
@click.option(
    "--valid-until",
    metavar="DAY",
    help="Boards refuse to install it unattended after this time (deploy.release.valid_until).",
)
@o.out
@o.cut
@o.force
@o.reports
def bundle_command(
    config: str,
    full: Path | None,
    counter: int | None,
    valid_until: str | None,
    part: api.ModelPart,
    json: bool,
    **settings: Any,
) -> None:
    release = {"counter": counter, "valid_until": valid_until}
    document = api.bundle(config, full=full, model=part, deploy={"release": release}, **settings)
    if json:
        print_json(document)
        return
    print(f"{document.path}  {document.stripped_bytes:,} bytes ({document.bytes:,} with weights)")
    if full is not None:
        print(f"{full}  with weights")


@commands.command(
    "deploy",
    "edgekit deploy configs/resnet50-orin.yaml\n"
    "edgekit deploy configs/resnet50-orin.yaml --bundle resnet50-full.ekb\n"
    "edgekit deploy configs/resnet50-orin.yaml --again",
)
@o.config
@click.option("--bundle", type=o.FILE, help="Install this bundle instead of building one.")
@click.option(
    "--allow-older",
    metavar="REASON",
    help="Install also a bundle that the release counter or the times of bundles forbid.",
)
@o.dry_run
@o.out_or_former
@o.cut
@o.strict
@o.force
@o.again
@o.board_options
@o.reports
def deploy_command(
    config: str,
    bundle: Path | None,
    dry_run: bool,
    part: api.ModelPart,
    strict: bool | None,
    json: bool,
    **settings: Any,
) -> None:
    if strict and bundle is not None:
        raise UsageError("--strict has no effect with --bundle, which builds nothing")
    document = api.deploy(
        config, file=bundle, dry_run=dry_run, model=part, build={"strict": strict}, **settings
    )
    if json:
        print_json(document)
        return
    for release in document.releases:
        text = (
            _print_dry_run(release)
            if dry_run
            else f"{release.release} ({release.bytes_sent:,} bytes sent)"
        )
        print(f"{release.board.name}: {text}")
        say_notes(release)


def _print_dry_run(release: DeployedRelease) -> str:
    if release.reused:
        return f"up to date: {release.release} serves this bundle"
    now = f"{release.previous or 'nothing'} serves now"
    if release.digest is None:
        return f"would build engines and install them; {now}"
    sent = release.bytes_sent
    size = "" if sent is None else f" ({sent:,} bytes to send)"
    return f"would install bundle {release.digest[:12]}{size}; {now}"


@commands.command("refit", "edgekit refit configs/resnet50-orin.yaml --weights finetuned.onnx")
@o.config
@click.option(
    "--weights",
    type=o.FILE,
    required=True,
    help="ONNX file with the same names, shapes and types, but other weights.",
)
@o.cut
@o.out_or_former
@o.again
@o.board_options
@o.reports
def refit_command(
    config: str, weights: Path, part: api.ModelPart, json: bool, **settings: Any
) -> None:
    document = api.refit(config, weights, model=part, **settings)
    if json:
        print_json(document)
        return
    print(
        f"{document.changed} of {counted(document.tensors, 'tensor')} changed; {document.figures}"
    )
    say_accuracy(document.accuracy, emulated=True)
    for release in document.releases:
        print(f"{release.board.name}: {release.release} ({release.bytes_sent:,} bytes sent)")
        say_notes(release)


@commands.command(
    "infer",
    "edgekit infer configs/resnet50-orin.yaml --input x.npz --output y.npz",
)
@o.config
@click.option("-i", "--input", type=o.FILE, help="Input as .npz or .npy (default: synthetic).")
@click.option("-o", "--output", type=o.OUTPUT, help="Write the outputs to this .npz.")
@click.option(
    "--draw", type=o.FOLDER, metavar="FOLDER", help="Draw a detector's objects into this folder."
)
@o.cut
@o.out
@o.board_options
@o.reports
def infer_command(
    config: str,
    input: Path | None,
    output: Path | None,
    draw: Path | None,
    part: api.ModelPart,
    json: bool,
    **settings: Any,
) -> None:
    found = api.infer(config, input, output, draw=draw, model=part, **settings)
    if json:
        print_json(found)
        return
    for tensor in found.outputs:
        print(
            f"{tensor.name} {tensor.dtype}{tensor.shape}  min {tensor.min:.6g}  "
            f"max {tensor.max:.6g}  arg max {tensor.argmax}"
        )
    print(f"written to {found.file}")
    for file in found.drawn:
        print(f"drawn to {file}")
    say_notes(found)


@commands.command(
    "detect",
    "edgekit detect yolo.yaml street.jpg\n"
    "edgekit detect yolo.yaml photos/ --score 0.4 --draw found/ --json",
)
@o.config
@argument("images", "Pictures, and folders of pictures.", type=o.FILE, nargs=-1, required=True)
@click.option(
    "--draw", type=o.FOLDER, metavar="FOLDER", help="Folder for the drawn pictures (--out)."
)
@click.option("--score", type=float, help="Least score of an object (0.25).")
@click.option(
    "--iou", type=float, help="Overlap above which the object with the lower score goes (0.45)."
)
@click.option("--most", type=int, help="Objects of a picture at most (300).")
@click.option(
    "--agnostic",
    is_flag=True,
    default=None,
    help="Objects of different classes suppress each other.",
)
@o.cut
@o.out
@o.board_options
@o.reports
def detect_command(
    config: str,
    images: Sequence[Path],
    draw: Path | None,
    score: float | None,
    iou: float | None,
    most: int | None,
    agnostic: bool | None,
    part: api.ModelPart,
    json: bool,
    **settings: Any,
) -> None:
    kept = {"score": score, "iou": iou, "most": most, "agnostic": agnostic}
    found = api.detect(config, images, draw=draw, model=part, detection=kept, **settings)
    if json:
        print_json(found)
        return
    for picture in found.pictures:
        print(
            f"{picture.file}  {picture.width}x{picture.height}  "
            f"{counted(len(picture.objects), 'object')}"
        )
        for detected in picture.objects:
            left, top, right, bottom = detected.box
            name = detected.text or detected.name or f"class {detected.number}"
            print(f"  {name}  {detected.score:.2f}  {left:.0f},{top:.0f} {right:.0f},{bottom:.0f}")
        print(f"  drawn to {picture.drawn}")
    say_notes(found)


@commands.command(
    "serve",
    "edgekit serve nvidia@10.0.0.7 start --app resnet50 --workers 2\n"
    "edgekit serve configs/resnet50-orin.yaml status",
)
@argument("where", "YAML configuration, or USER@HOST:PORT or an alias of ~/.ssh/config.")
@argument(
    "action",
    "start, status, reload (switch to the current release now) or stop.",
    type=click.Choice(_SERVER_ACTIONS),
    default="status",
)
@app_option
@click.option("--workers", type=click.IntRange(1, 64), help="Number of worker processes.")
@click.option("--queue", type=click.IntRange(1, 65536), help="Longest queue of waiting requests.")
@click.option(
    "--timeout-s",
    type=click.FloatRange(0.01, 3600),
    help="Seconds a request may wait, and then run.",
)
@click.option("--threads", type=click.IntRange(0, 1024), help="Threads per engine.")
@host_options
@o.output_options
def serve_command(
    where: str,
    action: Literal["start", "status", "reload", "stop"],
    app: str | None,
    json: bool,
    quiet: bool,
    verbose: bool,
    **given: Any,
) -> None:
    served = api.serve(where, action, app=app, **given)
    if not json:
        found = table("board", "serves", "process", "requests", "errors", "p50 ms", "p99 ms")
        notes = []
        for board in served.boards:
            found.add_row(plain_text(board.board), *map(plain_text, _server_row(board)))
            notes += [f"{board.board}: {text}" for text in _server_notes(board)]
        show(found, notes)
    print_boards(served, served.boards, json)


def _server_row(board: BoardRow) -> list[object]:
    from edgekit.reports.text import percentile_cell

    if board.error is not None:
        return ["failed" if board.reachable else "not reached", *["-"] * 5]
    serving = _serving(board)
    if serving is None:
        return ["nothing", *["-"] * 5]
    spent = serving.latency_ms
    return [
        serving.release or "no requests yet",
        serving.pid,
        serving.requests,
        serving.errors,
        spent.p50 if spent else None,
        percentile_cell(spent.p99 if spent else None, "p99", spent.of_last if spent else 0, 4),
    ]


def _serving(board: BoardRow) -> ServingStatus | None:
    """Returns the status of a board's server; None if it is stopped."""
    found: ServingStatus | None = getattr(board, "serving", None)
    return found


def _server_notes(board: BoardRow) -> list[str]:
    """Returns sentences about a board in addition to the table's figures."""
    if board.error is not None:
        return [board.error.message]
    serving = _serving(board)
    last = last_error(serving.last_error if serving else None)
    return [f"last error: {last}"] if last else []


@commands.command(
    "report",
    "edgekit report configs/resnet50-orin.yaml\n"
    "edgekit report edgekit-out/resnet50/report.json -o page.html",
)
@o.config_or_report
@click.option(
    "-o", "--output", type=o.Output(".html"), help="Write the page to this file, NAME.html."
)
@o.out
@click.option(
    "--baseline",
    metavar="RUN",
    help="Compare with this measurement: a bench.json, last or an id of edgekit history.",
)
@o.cut
@o.board_options
@o.output_options
@written.markdown
@written.annotate
def report_command(
    config: str,
    json: bool,
    baseline: str | None,
    markdown: str | None,
    annotate: Path | None,
    part: api.ModelPart,
    output: Path | None,
    quiet: bool,
    verbose: bool,
    **settings: Any,
) -> None:
    if Path(config).suffix.lower() == ".json":
        if annotate is not None:
            raise UsageError("--annotate needs a configuration: a report contains no model")
        if part.given:
            raise UsageError(
                "--shape, --batch and --outputs need a configuration: a report contains no model"
            )
    found = api.report(
        config,
        baseline=baseline,
        output=output,
        annotate=annotate,
        model=part,
        progress=progress(quiet, verbose),
        **settings,
    )
    report = found.report
    if markdown is not None:
        written.write_markdown(report, markdown)
    if json:
        print_json(report)
    elif markdown != "-":
        print(found.page)
        say_notes(found)
    _print_comparison(found.report, json=json, quiet=quiet)


def _print_comparison(report: Report | Plans, *, json: bool, quiet: bool) -> None:
    """Prints the result of a requested comparison on stderr, after all files are written.

    Raises:
        GateError: "report.not-compared", or "report.regression" past the threshold.
    """
    from edgekit.reports.comparison import compared_words, refused_words, regression_words
    from edgekit.reports.schema import RefusedComparison, Report

    baseline = report.baseline if isinstance(report, Report) else None
    if baseline is None:
        return
    error = None
    if isinstance(baseline, RefusedComparison):
        words, lines = refused_words(baseline), []
        if baseline.refused.code == _FIRST_RUN:
            if not (json or quiet):
                click.echo(f"note: {sentence(words)}", err=True)
            return
        error = GateError(
            words,
            code="report.not-compared",
            hint="all files were written and contain this result; edgekit compare --force "
            "compares anyway",
        )
    else:
        lines = compared_words(baseline)
        if words := regression_words(baseline):
            error = GateError(
                words,
                code="report.regression",
                hint="all files were written and contain this result",
            )
    if not (json or quiet):
        for line in lines:
            click.echo(line, err=True)
    if error is not None:
        # the printed report has the comparison
        error.printed = json
        raise error


@commands.command("run", "edgekit run configs/resnet50-orin.yaml")
@o.config
@o.out_or_former
@o.cut
@o.parser
@o.missing
@o.strict
@o.thorough
@o.force
@o.again
@o.board_options
@o.output_options
@written.markdown
@written.annotate
def run_command(
    config: str,
    part: api.ModelPart,
    missing: str | None,
    strict: bool | None,
    thorough: bool | None,
    parser: bool | None,
    json: bool,
    markdown: str | None,
    annotate: Path | None,
    quiet: bool,
    verbose: bool,
    **settings: Any,
) -> None:
    from edgekit.reports.terminal.summary import terminal_summary

    result = api.run(
        config,
        annotate=annotate,
        progress=progress(quiet, verbose),
        model=part,
        calibration={"missing": missing},
        build={"strict": strict},
        accuracy={"thorough": thorough},
        parser=parser,
        **settings,
    )
    # without a bundle the run ends with the build, which has no report
    report = getattr(result, "report", None)
    if markdown is not None:
        if report is None:
            raise UsageError("--markdown needs a report, and this run ends with the build")
        written.write_markdown(report, markdown)
    if json:
        print_json(getattr(result, "document", result))
    elif report is None:
        _show_document(cast("Build", result))
    elif markdown != "-":
        terminal_summary(report, console())
