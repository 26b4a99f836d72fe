"""``edgekit check``: which layers can run on a DLA, and why not."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgekit._listed import percent
from edgekit.cli import _options as o
from edgekit.cli._beat import Beat
from edgekit.errors import GateError, UsageError

if TYPE_CHECKING:
    from edgekit.pipeline import CheckResult

__all__ = ["command"]


def _number(_context: click.Context, _option: click.Parameter, value: float | None) -> float | None:
    if value is not None and math.isnan(value):  # which is in every range
        raise click.BadParameter("nan is no percentage")
    return value


@o.command(
    "check",
    "edgekit check model.onnx --target jetson-agx-orin-64gb\n"
    "edgekit check model.onnx -t jetson-agx-xavier --precision fp16 --fail-under 90\n"
    "edgekit check model.onnx -t jetson-agx-orin-64gb --layer /fc/Gemm",
)
@o.model
@o.target
@o.precision
@o.tensorrt
@click.option("--jetpack", help="JetPack release, e.g. 6.2, instead of a TensorRT release.")
@click.option("--power-mode", help="NVIDIA's name, e.g. MAXN, 30W; for the prediction.")
@click.option("--cache", type=o.FILE, help="Calibration cache: INT8 only where it has a scale.")
@o.cut
@click.option("--by-layer", is_flag=True, help="One line a layer.")
@click.option("--layer", metavar="NAME", help="All about a layer, ONNX node or loadable.")
@click.option("--sparsity", is_flag=True, help="2:4 sparsity by convolution; reads the weights.")
@click.option("--compare-log", type=o.FILE, help="Compare with a TensorRT or trtexec build log.")
@click.option(
    "--fail-under",
    type=click.FloatRange(0, 100),
    callback=_number,
    help="Exit 1 below this percentage of MACs on the DLA.",
)
@click.option(
    "--max-loadables", type=click.IntRange(min=0), help="Exit 1 with more loadables than this."
)
@o.talk
def command(
    model: str,
    target: str | None,
    precision: str | None,
    tensorrt: str | None,
    jetpack: str | None,
    power_mode: str | None,
    cache: Path | None,
    part: dict[str, Any],
    by_layer: bool,
    layer: str | None,
    sparsity: bool,
    compare_log: Path | None,
    fail_under: float | None,
    max_loadables: int | None,
    json: bool,
    quiet: bool,
    verbose: bool,
) -> None:
    from edgekit.pipeline import check_named

    if by_layer + sparsity + (layer is not None) + (compare_log is not None) > 1:
        raise UsageError(
            "--by-layer, --layer, --sparsity and --compare-log each print something else",
            hint="give one",
        )
    with Beat("check", quiet=quiet) as beat:
        result = check_named(
            model,
            jetpack=jetpack,
            target=target,
            precision=precision,
            tensorrt=tensorrt,
            power_mode=power_mode,
            model=part,
            calibration={"cache": None if cache is None else str(cache.absolute())},
            tell=beat,
        )
        beat("writing the answer")
        document = _asked(result, layer, sparsity, compare_log)
    if not json:
        o.say_page(_text(document, by_layer, verbose))
    elif isinstance(document, dict):
        o.print_json(document)
    else:
        o.print_json({**result.document, "compare": document.to_json()})
    _gates(result.document, fail_under, max_loadables, json)


def _asked(result: CheckResult, layer: str | None, sparsity: bool, log: Path | None) -> Any:
    """Returns the document to print, or the comparison with a log."""
    if layer is not None:
        from edgekit.pipeline import layer_document

        return layer_document(result, layer)
    if sparsity:
        from edgekit.pipeline import sparsity_document

        return sparsity_document(result)
    if log is not None:
        from edgekit.buildlog import compare, read_log

        return compare(result.network, result.judgement, read_log(log), target=result.target)
    return result.document


def _text(document: Any, by_layer: bool, verbose: bool) -> str:
    from edgekit import report

    width, colour = o.paper()
    if not isinstance(document, dict):
        return report.render_comparison(document, verbose=verbose)
    if document["schema"].startswith("edgekit.layer/"):
        return report.check_one_layer(document, width=width or 80, colour=colour)
    if document["schema"].startswith("edgekit.sparsity/"):
        return report.sparsity_text(document, width=width, colour=colour)
    if by_layer:
        return report.check_layers(document, width=width, colour=colour)
    return report.summary_check(document, width=min(width or 80, 80), colour=colour)


def _gates(
    document: dict[str, Any], fail_under: float | None, max_loadables: int | None, json: bool
) -> None:
    more = "check without --json tells"  # which has been printed otherwise
    share = document["summary"]["dla_macs_fraction"]
    if fail_under is not None and 100 * share < fail_under:
        known = "known " if document.get("unknown_cost") else ""
        # as the verdict above says it, with the digits that it takes to be below the limit
        digits = next((n for n in range(1, 6) if round(100 * share, n) < fail_under), 6)
        raise o.printed(
            GateError(
                f"{percent(share, digits)} of the {known}MACs would run on the DLA, "
                f"below {fail_under:g} %",
                code="check.below-threshold",
                where=document["model"],
                hint=f"{more} why the rest cannot, and which fixes help" if json else "",
            )
        )
    count = document["loadables"]
    if max_loadables is not None and count > max_loadables:
        raise o.printed(
            GateError(
                f"{count} loadable{'' if count == 1 else 's'}, more than {max_loadables}",
                code="check.too-many-loadables",
                where=document["model"],
                hint=f"{more} which layers split the network" if json else "",
            )
        )
