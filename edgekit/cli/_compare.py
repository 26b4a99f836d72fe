"""``edgekit compare``: whether one measurement really differs from another."""

from __future__ import annotations

import re

import click

from edgekit.cli import _options as o
from edgekit.cli._commands import argument
from edgekit.cli._written import markdown as markdown_option
from edgekit.cli._written import write_markdown
from edgekit.errors import UsageError

__all__ = ["command"]

_REGRESSION = 1
_PERCENT = re.compile(r"(\d+(?:\.\d+)?)\s*(%?)")
_SIDE = (
    "a bench.json, an id of edgekit history, last, last~N, baseline:NAME or a git revision; "
    "several with commas."
)


def _fraction(_context: click.Context, _option: click.Parameter, text: str) -> float:
    """Reads "5%" and "0.05"; 5 alone could be either."""
    match = _PERCENT.fullmatch(text.strip())
    value = float(match[1]) / (100 if match[2] else 1) if match else -1.0
    if not 0 <= value < 1:
        raise UsageError(f"the threshold {text!r} is no fraction", hint="--threshold 5% or 0.05")
    return value


@o.command(
    "compare",
    "edgekit compare last~1 last\nedgekit compare main HEAD --name resnet50 "
    "--threshold 3%\nedgekit compare before.json after.json --metric p99\n"
    "edgekit compare baseline:release 12,13,14,15",
)
@argument("a", f"What it was: {_SIDE}")
@argument("b", "What it is now, likewise.")
@click.option("--threshold", default="5%", show_default=True, callback=_fraction,
              help="A regression is larger than this.")  # fmt: skip
@click.option("--metric", default="latency.median", show_default=True,
              help="latency.median, .mean, .p90, .p95 or .p99, throughput or energy.")  # fmt: skip
@click.option("--confidence", type=click.FloatRange(0.5, 0.9999), default=0.95, show_default=True,
              help="Of the interval.")  # fmt: skip
@click.option("--strict", is_flag=True,
              help="Exit with 1 also where a regression cannot be ruled out.")  # fmt: skip
@click.option("--name", help="Only this configuration's results of the history.")
@click.option("--board", help="Only this board's results of the history.")
@click.option("--force", is_flag=True,
              help="Also what is INVALID or of another board, power mode or clock.")  # fmt: skip
@o.talk
@markdown_option
def command(
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
    from edgekit.history import compare, select

    sides = [select(words, name=name, board=board) for words in (a, b)]
    document = compare(
        *sides, metric=metric, threshold=threshold, confidence=confidence, force=force
    )
    if markdown is not None:
        write_markdown(document, markdown)
    if json:
        o.print_json(document)
    elif markdown != "-":
        from edgekit.report import compare_text

        o.say(compare_text(document, every=verbose))
    if document["regression"] or (strict and document["regression_possible"]):
        raise SystemExit(_REGRESSION)
