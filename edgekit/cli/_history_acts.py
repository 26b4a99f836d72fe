"""The actions of ``edgekit history``."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import click

from edgekit.cli import _options as o
from edgekit.cli._commands import action, argument
from edgekit.cli._history import ACTIONS
from edgekit.errors import UsageError
from edgekit.history._listing import row_of

__all__ = ["export", "mark", "prune", "show"]

_CELLS = (
    "id", "at", "name", "clock", "verdict", "board", "target", "power_mode", "precision",
    "backend", "bundle", "commit", "dirty", "iterations", "throughput_qps", "energy_uj",
)  # fmt: skip
_LATENCIES = ("min", "mean", "median", "p90", "p95", "p99", "max")
_MARK = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,99}")
_AGE = re.compile(r"(\d{1,5})d")


@action(ACTIONS["show"][1], "edgekit history show 12 --json > bench.json")
@argument("which", "An id, last, last~N or baseline:NAME.")
@click.option("--name", help="Only this configuration's results: of which last is meant.")
@click.option("--board", help="Only this board's.")
@o.talk
def show(
    which: str, name: str | None, board: str | None, json: bool, quiet: bool, verbose: bool
) -> None:
    """Prints a result; with --json its whole edgekit.bench/1, samples included."""
    from edgekit.history import select

    for result in select(which, name=name, board=board):
        if json:
            o.print_json({**result.document, "samples_ms": list(result.samples),
                          "history": row_of(result)})  # fmt: skip
            return
        from edgekit.report import result_text

        o.say(result_text(result))


@action(ACTIONS["mark"][1], "edgekit history mark last release-3")
@argument("which", "An id, last or last~N.")
@argument("name", "Letters, digits, . _ / and -.")
@o.talk
def mark(which: str, name: str, json: bool, quiet: bool, verbose: bool) -> None:
    """Names a result."""
    from edgekit.history import Store, select

    if not _MARK.fullmatch(name):
        raise UsageError(f"{name!r} is no name for a mark", hint="letters, digits, . _ / and -")
    with Store() as store:
        (result, *others) = select(which, store=store)
        if others or result.id is None:
            raise UsageError(f"{which!r} is not one result of the history")
        store.mark(name, result.id)
    if json:
        o.print_json({"schema": "edgekit.history.mark/1", "name": name, "id": result.id})
    else:
        o.say(f"baseline:{name} is {result.label}")


@action(ACTIONS["export"][1], "edgekit history export --name resnet50 -o results.csv")
@argument("which", "Ids, last, ... as for compare; all of them without it.", required=False)
@click.option("--name", help="Only this configuration's results.")
@click.option("--board", help="Only this board's.")
@click.option("--format", "form", type=click.Choice(("json", "csv")),
              help="json (whole documents with samples) or csv; by the file's name.")  # fmt: skip
@click.option("-o", "--output", type=o.FILE, help="File; stdout without it.")
@o.quiet
@o.debug
def export(
    which: str | None, name: str | None, board: str | None, form: str | None, output: Path | None,
    quiet: bool,
) -> None:  # fmt: skip
    """Writes results to a file or stdout."""
    from edgekit._files import write_atomically
    from edgekit.history import Store, select

    with Store() as store:
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
        o.say(f"{len(found)} results in {output}")


@action(ACTIONS["prune"][1], "edgekit history prune --keep 50 --older-than 90d")
@click.option("--keep", type=click.IntRange(0), help="The newest N of each name and board stay.")
@click.option("--older-than", metavar="DAYS", help="What is younger stays: 90d.")
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@click.option("--yes", is_flag=True, help="Do not ask where every result would go.")
@o.talk
def prune(
    keep: int | None, older_than: str | None, dry_run: bool, yes: bool, json: bool, quiet: bool,
    verbose: bool,
) -> None:  # fmt: skip
    """Forgets results that no option keeps; marked ones stay always."""
    import time

    from edgekit.history import Store
    from edgekit.history._trial_names import group_of

    if keep is None and older_than is None:
        raise UsageError("nothing says what may go", hint="--keep 50, --older-than 90d, or both")
    before = time.time() - _days(older_than) * 86400 if older_than else None
    gone: list[int] = []
    kept = 0
    with Store() as store:
        counts: dict[tuple[str, str], int] = {}
        for result in store.results(samples=False):
            key = (group_of(result.name), result.board)
            counts[key] = counts.get(key, 0) + 1
            old = before is None or (result.at or 0) < before
            if not result.marks and old and (keep is None or counts[key] > keep):
                gone.append(result.id or 0)
            elif not result.marks:
                kept += 1
        if gone and not dry_run:
            if not kept and not yes:
                _agree(len(gone), json)
            store.remove(gone)
    if json:
        o.print_json({"schema": "edgekit.history.prune/1", "removed": gone, "dry_run": dry_run})
    else:
        o.say(f"{len(gone)} results {'would go' if dry_run else 'removed'}")


def _agree(count: int, json: bool) -> None:
    """Asks whether all that bears no mark is to go.

    Raises:
        UsageError: Nobody can be asked, or the answer is no.
    """
    told = f"all {count} results that bear no mark would go" if count > 1 else (
        "the one result that bears no mark would go"
    )  # fmt: skip
    if json or not sys.stdin.isatty():
        raise UsageError(
            f"{told}; nothing was removed", code="history.prune-all",
            hint="--yes does it, --dry-run only counts, --keep N keeps some",
        )  # fmt: skip
    if not click.confirm(f"{told}. Remove them?", default=False, err=True):
        raise UsageError("nothing was removed", code="history.prune-all")


def _days(text: str) -> int:
    match = _AGE.fullmatch(text)
    if not match:
        raise UsageError(f"--older-than {text!r} is no number of days", hint="--older-than 90d")
    return int(match[1])


def _json(results: list[Any]) -> str:
    import json

    rows = [
        {**row_of(one), "document": {**one.document, "samples_ms": list(one.samples)}}
        for one in results
    ]
    return json.dumps({"schema": "edgekit.history/1", "results": rows}, allow_nan=False) + "\n"


def _csv(results: list[Any]) -> str:
    import csv
    import io

    paper = io.StringIO()
    writer = csv.writer(paper, lineterminator="\n")
    writer.writerow([*_CELLS, *(f"{key}_ms" for key in _LATENCIES), "marks"])
    for result in results:
        row = row_of(result)
        latency = row["latency_ms"] or {}
        cells = [*(row[key] for key in _CELLS), *(latency.get(key) for key in _LATENCIES)]
        writer.writerow([_harmless(cell) for cell in [*cells, " ".join(row["marks"])]])
    return paper.getvalue()


def _harmless(cell: Any) -> Any:
    """A name that a spreadsheet would take for a formula is text."""
    return f"'{cell}" if isinstance(cell, str) and cell[:1] in "=+-@\t\r" and cell else cell
