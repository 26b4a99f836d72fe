"""``edgekit tune``: plans, builds and measures until nothing that is left can be better."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from edgekit.cli import _options as o

__all__ = ["command"]


@o.command(
    "tune",
    "edgekit tune configs/resnet50-orin.yaml --budget 3600\n"
    "edgekit tune configs/resnet50-orin.yaml --objective throughput --rounds 8\n"
    "edgekit tune configs/resnet50-orin.yaml --from other/tuned.profile.json",
)
@o.config
@click.option("--objective", help="What is tuned for (the configuration's placement.objective).")
@click.option("--budget", type=click.FloatRange(min=0), help="Seconds for everything.")
@click.option(
    "--rounds", type=click.IntRange(min=1), default=12, show_default=True,
    help="Plans to measure at most.",
)  # fmt: skip
@click.option(
    "--turns", type=click.IntRange(min=0), default=5, show_default=True,
    help="Turns of the first and the best plan at the end.",
)  # fmt: skip
@click.option(
    "--tolerance", type=click.FloatRange(min=0, max=1), default=0.01, show_default=True,
    help="Relative improvement that is worth a measurement.",
)  # fmt: skip
@click.option(
    "--from", "tables", type=o.FILE, multiple=True, metavar="FILE",
    help="Measured times of an earlier tuning (tuned.profile.json); repeatable.",
)  # fmt: skip
@click.option("--anew", is_flag=True, help="Begin anew, whatever was measured before.")
@click.option("--keep", is_flag=True, help="Leave the trials' application on the board.")
@o.cut
@o.out
@o.boards
@o.talk
def command(
    config: str,
    objective: str | None,
    budget: float | None,
    rounds: int,
    turns: int,
    tolerance: float,
    tables: tuple[Path, ...],
    anew: bool,
    keep: bool,
    part: dict[str, Any],
    out: Path | None,
    json: bool,
    quiet: bool,
    verbose: bool,
    **settings: Any,
) -> None:
    from edgekit.config import open_config
    from edgekit.pipeline import Wish, tune

    progress = o.progress(quiet, verbose)
    document = tune(
        open_config(config, model=part),
        Wish(objective or "", budget, rounds, turns, tolerance),
        out=out,
        tables=tables,
        keep=keep,
        anew=anew,
        tell=progress.note,
        progress=progress if verbose else None,
        **settings,
    )
    if json:
        o.print_json(document)
    else:
        from edgekit.cli._tune_text import tune_text

        for line in tune_text(document, verbose=verbose):
            o.say(line)
    if document["status"] == "interrupted":
        raise o.Interrupted
