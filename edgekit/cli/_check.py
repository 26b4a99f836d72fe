"""``edgekit check``: which layers can run on a DLA, and why not."""

from __future__ import annotations

from typing import Annotated

import typer

from edgekit.cli import _options as o
from edgekit.errors import GateError

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(
        "check",
        epilog="Examples: edgekit check model.onnx --target jetson-agx-orin-64gb; "
        "edgekit check model.onnx -t jetson-agx-xavier --precision fp16 --fail-under 90",
    )(check)


def check(
    model: Annotated[str, typer.Argument(help="ONNX file, builtin:NAME or YAML configuration.")],
    target: o.Target = None,
    precision: o.Precision = None,
    tensorrt: o.TensorRT = None,
    shape: o.Shape = None,
    outputs: o.Outputs = None,
    fail_under: Annotated[
        float | None, typer.Option(help="Exit 1 below this percentage of MACs on the DLA.")
    ] = None,
    max_loadables: Annotated[
        int | None, typer.Option(help="Exit 1 with more loadables than this.")
    ] = None,
    json: o.Json = False,
    quiet: o.Quiet = False,
    verbose: o.Verbose = False,
    debug: o.Debug = False,
) -> None:
    """Say which layers can run on a DLA, and for the others which rule they break."""
    options = {
        "target": target,
        "precision": precision,
        "tensorrt": tensorrt,
        "model": {"shapes": o.shapes_of(shape) or None, "outputs": outputs},
    }
    with o.open_pipeline(model, options, quiet=not verbose, verbose=verbose) as pipeline:
        document = pipeline.check()
    if json:
        o.print_json(document)
    else:
        from edgekit.report import summary_check

        o.stdout_console().print(summary_check(document))
    share = 100 * document["summary"]["dla_macs_fraction"]
    if fail_under is not None and share < fail_under:
        raise o.printed(
            GateError(
                f"{share:.1f} % of the MACs would run on the DLA, below {fail_under:g} %",
                code="check.below-threshold",
            )
        )
    if max_loadables is not None and document["loadables"] > max_loadables:
        raise o.printed(
            GateError(
                f"{document['loadables']} loadables, more than {max_loadables}",
                code="check.too-many-loadables",
            )
        )
