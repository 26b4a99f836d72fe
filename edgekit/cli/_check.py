"""``edgekit check``: which layers can run on a DLA, and why not."""

from __future__ import annotations

import click

from edgekit.cli import _options as o
from edgekit.errors import GateError

__all__ = ["command"]


@o.command(
    "check",
    "Examples: edgekit check model.onnx --target jetson-agx-orin-64gb; "
    "edgekit check model.onnx -t jetson-agx-xavier --precision fp16 --fail-under 90",
)
@o.model
@o.target
@o.precision
@o.tensorrt
@o.cut
@click.option("--fail-under", type=float, help="Exit 1 below this percentage of MACs on the DLA.")
@click.option("--max-loadables", type=int, help="Exit 1 with more loadables than this.")
@o.talk
def command(
    model: str,
    target: str | None,
    precision: str | None,
    tensorrt: str | None,
    shape: dict[str, list[int]] | None,
    outputs: list[str] | None,
    fail_under: float | None,
    max_loadables: int | None,
    json: bool,
    quiet: bool,
    verbose: bool,
) -> None:
    options = {
        "target": target,
        "precision": precision,
        "tensorrt": tensorrt,
        "model": {"shapes": shape, "outputs": outputs},
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
