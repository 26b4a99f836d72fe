"""``edgekit init``: a commented configuration for a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from edgekit.cli import _options as o

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("init", epilog="Example: edgekit init model.onnx --target jetson-agx-orin-64gb")(
        init
    )


def init(
    model: Annotated[str, typer.Argument(help="ONNX file or builtin:NAME.")],
    target: Annotated[str, typer.Option("--target", "-t", help="Board.")] = "jetson-agx-orin-64gb",
    output: Annotated[
        Path | None, typer.Option("--output", help="File to write (NAME.yaml beside the model).")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    json: o.Json = False,
    quiet: o.Quiet = False,
    debug: o.Debug = False,
) -> None:
    """Write a commented YAML configuration."""
    from edgekit.config import write_template

    path = write_template(model, target, output, overwrite=force)
    if json:
        o.print_json({"schema": "edgekit.init/1", "path": str(path)})
    elif not quiet:
        print(f"{path}\nnext: edgekit run {path}")
