"""`edgekit report`: the report of a run or of an existing ``report.json``, its comparison with a
baseline, and the path of the page.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from edgekit.errors import UNREACHABLE_CODES, DataError, EdgekitError
from edgekit.files import write_json
from edgekit.reports.comparison import with_baseline, without_comparison
from edgekit.reports.html.page import write_report
from edgekit.reports.schema import Report, read_report
from edgekit.results.selection import past_results, read_result, select_results

if TYPE_CHECKING:
    from edgekit.pipeline.pipeline import Pipeline

#: The code of a comparison that was refused because the run is the first with its name.
FIRST_RUN = "report.first-run"


T = TypeVar("T")


@dataclass(frozen=True)
class ReportPage(Generic[T]):
    """A page that was written.

    Attributes:
        page: The HTML file.
        report: The page's contents: a report, or the plans of a configuration with several
            networks.
        notes: Notes on releases that serve instead of the run's own.
    """

    page: Path
    report: T
    notes: tuple[str, ...] = ()


def page_of_file(
    path: Path, *, baseline: str | None, output: Path | None, out: Path | None
) -> ReportPage[Report]:
    """Writes the page of a ``report.json`` again, without running a step.

    Args:
        path: The report's file.
        baseline: The measurement to compare with, as the user named it.
        output: The page; next to the file, or in ``out``, if None.
        out: A folder.
    """
    report = read_report(path)
    if baseline:
        report = _compare_with_baseline(report, baseline, of=path)
    beside = path.with_suffix(".html")
    page = output or (out / beside.name if out is not None else beside)
    write_report(report, page)
    return ReportPage(page, report)


def page_of_run(
    pipeline: Pipeline, *, baseline: str | None, output: Path | None, annotate: Path | None
) -> ReportPage[Report]:
    """Runs the steps that are missing and writes the page.

    Args:
        pipeline: The configuration's pipeline.
        baseline: The measurement to compare with, as the user named it.
        output: A further file for the page.
        annotate: The ONNX file that gets each node's place and time.

    Raises:
        EdgekitError: There is no such baseline, which is checked before any step; or as
            ``Pipeline.run``.
    """
    if baseline:
        # a run takes minutes: a wrong name must not be found at its end
        check_baseline(baseline, pipeline.file.name)
    with hinting_page(pipeline.out / "report.json"):
        result = pipeline.run(annotate)
    report = result.report
    page = Path(report.files["report"])
    if baseline:
        try:
            report = _compare_with_baseline(report, baseline)
        except DataError as error:  # keeps the results of the run
            report = without_comparison(report, error)
        write_report(report, page)
        write_json(page.with_suffix(".json"), report.to_json())
    if output is not None:
        write_report(report, output)
    notes = [
        note for release in result.document.releases if release.taken_back for note in release.notes
    ]
    return ReportPage(output or page, report, tuple(notes))


def check_baseline(baseline: str, name: str) -> None:
    """Refuses a missing baseline before any step; a first run needs none.

    Raises:
        EdgekitError: There is no such baseline.
    """
    try:
        select_results(baseline, name=name)
    except DataError as error:
        if not _is_first_run(baseline, error):
            raise


def _is_first_run(baseline: str, error: EdgekitError) -> bool:
    """Returns True if "last" finds no result because the run is the first, which is no error."""
    return baseline.strip() == "last" and error.code == "history.no-result"


def _compare_with_baseline(report: Report, baseline: str, *, of: Path | None = None) -> Report:
    """Returns the report with the comparison of its own bench.json with the baseline.

    Args:
        report: The report of a run.
        baseline: As the user named it; "last" is the last result before the run.
        of: The report's file, if it was given; a file that was moved has its bench.json in the
            same folder.

    Raises:
        DataError: The report has no measurement, or its file is missing.
    """
    own = report.files.get("bench")
    if report.bench is None or not own:
        raise DataError(
            "the report contains no measurement to compare",
            code="report.not-measured",
            hint="measure first with: edgekit report CONFIG --baseline RUN",
        )
    path = Path(own)
    # the report has the path at the time of its run
    if of is not None and not path.exists():
        path = of.parent / path.name
    if not path.exists():
        raise DataError(
            f"the report's measurement, {own}, was not found, nor one in the report's folder",
            code="report.not-measured",
            where=str(of or ""),
            hint=f"copy the run's {path.name} into the report's folder, or run edgekit report "
            f"CONFIG --baseline {baseline}",
        )
    result = read_result(path)
    try:
        found = select_results(baseline, name=report.name, but=result)
    except DataError as error:
        if not _is_first_run(baseline, error):
            raise
        none = DataError(
            f"the history has no earlier run of {report.name}: {baseline} works from the "
            "next run on",
            code=FIRST_RUN,
        )
        return without_comparison(report, none)
    return with_baseline(report, found, [result], past_results(found, [result]))


@contextmanager
def hinting_page(known: Path) -> Iterator[None]:
    """Adds the command that writes the page of a known report, if the board is unreachable."""
    try:
        yield
    except EdgekitError as error:
        if error.code in UNREACHABLE_CODES and known.is_file():
            again = (
                f"rebuild the page of the last run with: edgekit report {shlex.quote(str(known))}"
            )
            error.hint = "; ".join(hint for hint in (error.hint, again) if hint)
        raise
