"""``edgekit bundle``: packs, strips and signs what a board needs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from edgekit.cli import _options as o

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(
        "bundle",
        epilog="Examples: edgekit bundle configs/resnet50-orin.yaml; "
        "edgekit bundle configs/resnet50-orin.yaml --full resnet50-full.ekb",
    )(bundle)


def bundle(
    config: Annotated[str, typer.Argument(help="YAML configuration.")],
    full: Annotated[
        Path | None, typer.Option(help="Also write the bundle with its weights here.")
    ] = None,
    out: o.Out = None,
    outputs: o.Outputs = None,
    force: o.Force = False,
    json: o.Json = False,
    quiet: o.Quiet = False,
    verbose: o.Verbose = False,
    debug: o.Debug = False,
) -> None:
    """Pack the engines, without their weights, into one signed file."""
    with o.open_pipeline(
        config, {"model": {"outputs": outputs}}, out=out, force=force, quiet=quiet, verbose=verbose
    ) as pipeline:
        document = pipeline.bundle(full=full)
    if json:
        o.print_json(document)
        return
    print(f"{document['path']}  {document['stripped_bytes']:,} bytes "
          f"({document['bytes']:,} with weights)")  # fmt: skip
    if full is not None:
        print(f"{full}  with weights")
