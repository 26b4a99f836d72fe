"""``edgekit calibrate --sensitivity``: its options, and how its document reads."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import click

from edgekit.cli import _options as o
from edgekit.errors import GateError, UsageError

__all__ = ["options", "show", "wanted"]

options = o.all_of(
    click.option("--sensitivity", is_flag=True, help="Rank the layers by what their INT8 costs."),
    click.option(
        "--accuracy",
        metavar="METRIC=MIN",
        help="With --sensitivity: propose the fewest layers to keep in FP16 for this accuracy "
        "against FP32 (cosine, snr_db or top1_agreement).",
    ),
    click.option(
        "--write-config", type=o.FILE, help="Write a configuration with the proposal here."
    ),
)


def wanted(
    sensitivity: bool, accuracy: str | None, write_config: Path | None, save: Path | None
) -> tuple[str | None, float | None]:
    """Returns metric and minimum of ``--accuracy``, both None where it is not given.

    Raises:
        UsageError: The options do not go together, or ``accuracy`` is not METRIC=MIN.
    """
    if not sensitivity and (accuracy or write_config):
        raise UsageError(
            f"{'--accuracy' if accuracy else '--write-config'} goes with --sensitivity",
            hint="add --sensitivity",
        )
    if sensitivity and save is not None:
        raise UsageError(
            "--sensitivity writes no cache",
            hint="run edgekit calibrate --save by itself; the scales are not measured again",
        )
    if accuracy is None:
        return None, None
    metric, _, text = accuracy.partition("=")
    try:
        minimum = float(text)
    except ValueError:
        minimum = math.nan
    from edgekit.sensitivity import METRICS, impossible

    # a word is no number, but "nan" is one
    told = metric in METRICS and not math.isnan(minimum) and impossible(metric, minimum)
    if told:
        raise UsageError(told, where=f"--accuracy {accuracy}", hint="ask for less")
    if metric not in METRICS or math.isnan(minimum):
        raise UsageError(
            f"--accuracy {accuracy!r} is not METRIC=MIN",
            hint=f"--accuracy cosine=0.999; metrics: {', '.join(METRICS)}",
        )
    return metric, minimum


def show(document: dict[str, Any], *, json: bool) -> None:
    """Prints the document.

    Raises:
        GateError: Its proposal does not reach the accuracy.
    """
    if json:
        o.print_json(document)
    else:
        from edgekit.report import sensitivity_text

        width, colour = o.paper()
        o.say_page(sensitivity_text(document, width=width or 100, colour=colour))
        if document["file"]:
            o.say(f"written to {document['file']}")
        elif document["config"]:
            o.say(document["config"].rstrip())
    if "shortfall" in document:
        error = GateError(
            f"{document['shortfall']} ({document['data']})",
            code="accuracy.below-gate",
            hint="calibrate on more or better data, or ask for less",
        )
        raise o.printed(error) if json else error
