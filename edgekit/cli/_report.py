"""``edgekit report``: writes the HTML report of a configuration, or renders a report.json."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgekit.cli import _options as o
from edgekit.cli import _written as written
from edgekit.cli._report_known import page_without_board
from edgekit.errors import GateError, UsageError

if TYPE_CHECKING:
    from edgekit.config import Config
    from edgekit.errors import EdgekitError
    from edgekit.history import Result

__all__ = ["command"]

_FIRST_RUN = "report.first-run"


@o.command(
    "report",
    "edgekit report configs/resnet50-orin.yaml\n"
    "edgekit report edgekit-out/resnet50/report.json -o page.html",
)
@o.config_or_report
@o.out
@click.option(
    "--baseline",
    metavar="RUN",
    help="Compare the measurement with this one: a bench.json, last, an id of edgekit history.",
)
@o.cut
@o.boards
@o.talk
@written.markdown
@written.annotate
def command(
    config: str,
    json: bool,
    baseline: str | None,
    markdown: str | None,
    annotate: Path | None,
    part: dict[str, Any],
    **settings: Any,
) -> None:
    if Path(config).suffix.lower() == ".json":
        if annotate is not None:
            raise UsageError("--annotate takes a configuration: a report holds no model")
        if any(part.values()):
            raise UsageError(
                "--shape, --batch and --outputs take a configuration: a report holds no model"
            )
        _again(Path(config), json, settings["quiet"], baseline, settings["out"], markdown)
        return
    from edgekit.config import open_config

    opened = open_config(config, model=part)
    if opened.file.model.networks:
        _several(opened, json, settings)
        return
    if baseline:
        _look_for(baseline, opened.file.name)
    with o.open_pipeline(opened, or_serving=True, **settings) as pipeline:
        with page_without_board(pipeline.out / "report.json"):
            result = pipeline.run()
        if annotate is not None:
            from edgekit.pipeline import write_annotated

            write_annotated(pipeline, annotate, result.report)
    report = result.report
    if baseline:
        report = _after_run(report, baseline)
        _write(report, Path(report["files"]["report"]))
    if markdown is not None:
        written.write_markdown(report, markdown)
    if json:
        o.print_json(report)
    elif markdown != "-":
        print(report["files"]["report"])
        for release in result.document["releases"]:
            if release["taken_back"]:
                o.say_notes(release)
    _tell_comparison(report, json=json, quiet=settings["quiet"])


def _again(
    path: Path,
    json: bool,
    quiet: bool,
    baseline: str | None,
    out: Path | None,
    markdown: str | None,
) -> None:
    """Renders a report document; nothing is run."""
    from edgekit.report import read_report, shown

    report = read_report(path)
    page = out or path.with_suffix(".html")
    if page.is_dir():
        page /= path.with_suffix(".html").name
    with shown(str(path)):
        if baseline:
            report = _compared(report, baseline, of=path)
        _write(report, page, keep=path)
        if markdown is not None:
            written.write_markdown(report, markdown)
    if json:
        o.print_json(report)
    elif markdown != "-":
        print(page)
    if baseline:
        _tell_comparison(report, json=json, quiet=quiet)


def _after_run(report: dict[str, Any], baseline: str) -> dict[str, Any]:
    """Returns the report compared, or saying why not: what a run has found is not lost."""
    from edgekit.errors import DataError
    from edgekit.report import without_comparison

    try:
        return _compared(report, baseline)
    except DataError as error:
        return without_comparison(report, error)


def _look_for(baseline: str, name: str) -> None:
    """Says that a baseline is not there before anything is run; before a first run none is.

    Raises:
        EdgekitError: There is no such baseline.
    """
    from edgekit.errors import DataError

    try:
        _select(baseline, name)
    except DataError as error:
        if not _first_run(baseline, error):
            raise


def _first_run(baseline: str, error: EdgekitError) -> bool:
    """Whether "last" finds nothing: the run is the first one, which is no mistake."""
    return baseline.strip() == "last" and error.code == "history.no-result"


def _tell_comparison(report: dict[str, Any], *, json: bool, quiet: bool) -> None:
    """Says on stderr what came of the comparison, if one was asked for; all files are written.

    Raises:
        GateError: "report.not-compared", or "report.regression" past the threshold.
    """
    from edgekit.report import compared_words, refused_words, regression_words

    baseline = report.get("baseline") or {}
    told = refused_words(baseline)
    if told and baseline["refused"]["code"] == _FIRST_RUN:
        if not (json or quiet):
            click.echo(f"note: {told}", err=True)
        return
    if told:
        error = GateError(
            told, code="report.not-compared",
            hint="all files are written, and say so; edgekit compare --force compares anyway",
        )  # fmt: skip
    elif told := regression_words(baseline):
        error = GateError(told, code="report.regression", hint="all files are written, and say so")
    else:
        error = None
    if baseline and not (json or quiet):
        for line in compared_words(baseline):
            click.echo(line, err=True)
    if error is not None:
        error.printed = json
        raise error


def _write(report: dict[str, Any], page: Path, *, keep: Path | None = None) -> None:
    """Writes the page, and beside a run's own page its document; ``keep`` is not written over."""
    from edgekit.bench import write_json
    from edgekit.report import write_report

    write_report(report, page)
    document = page.with_suffix(".json")
    if keep is None:
        write_json(document, report)


def _select(words: str, name: str, but: Result | None = None) -> list[Result]:
    """Returns the baseline; "last" is the last one that is not the run itself."""
    from edgekit.history import select

    return select(words, name=name, but=but)


def _compared(report: dict[str, Any], baseline: str, *, of: Path | None = None) -> dict[str, Any]:
    """Returns the report with the comparison of its own bench.json with the baseline.

    Args:
        report: An ``edgekit.report/1``.
        baseline: As the user named it.
        of: The report's file, where it was given; one that was moved has its bench.json beside it.

    Raises:
        DataError: The report has no measurement, or its file is not there.
    """
    from edgekit.errors import DataError
    from edgekit.history import read_result
    from edgekit.report import with_baseline, without_comparison

    own = (report.get("files") or {}).get("bench")
    if not report.get("bench") or not own:
        raise DataError(
            "the report holds no measurement to compare", code="report.not-measured",
            hint="edgekit report CONFIG --baseline RUN measures first",
        )  # fmt: skip
    path = Path(own)
    if of is not None and not path.exists():
        path = of.parent / path.name
    if not path.exists():
        raise DataError(
            f"the report's measurement, {own}, is not there any more, nor beside the report",
            code="report.not-measured", where=str(of or ""),
            hint=f"put the run's {path.name} beside the report, or run edgekit report CONFIG "
            f"--baseline {baseline}",
        )  # fmt: skip
    result = read_result(path)
    try:
        found = _select(baseline, report["name"], result)
    except DataError as error:
        if not _first_run(baseline, error):
            raise
        none = DataError(
            f"the history has no earlier run of {report['name']}: {baseline} is for the next one",
            code=_FIRST_RUN,
        )  # fmt: skip
        return without_comparison(report, none)
    return with_baseline(report, found, [result])


def _several(config: Config, json: bool, settings: dict[str, Any]) -> None:
    from edgekit.pipeline import plan_networks, write_networks_report

    plans = plan_networks(config, progress=o.progress(settings["quiet"], settings["verbose"]))
    path = (settings["out"] or Path("edgekit-out") / config.file.name) / "report.html"
    write_networks_report(plans, path, name=config.file.name)
    if json:
        o.print_json(plans.to_json())
    else:
        print(path)
