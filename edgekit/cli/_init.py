"""``edgekit init``: a commented configuration for a model."""

from __future__ import annotations

from pathlib import Path

import click

from edgekit.cli import _options as o
from edgekit.cli._commands import argument

__all__ = ["command"]


@o.command("init", "edgekit init model.onnx --target jetson-agx-orin-64gb")
@argument("model", "ONNX file or builtin:NAME.")
@click.option("-t", "--target", default="jetson-agx-orin-64gb", show_default=True, help="Board.")
@o.batch
@click.option("--output", type=o.FILE, help="File to write (NAME.yaml beside the model).")
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
@o.json
@o.quiet
@o.debug
def command(
    model: str,
    target: str,
    batch: int | None,
    output: Path | None,
    force: bool,
    json: bool,
    quiet: bool,
) -> None:
    from edgekit.config import write_template

    path = write_template(model, target, output, batch=batch, overwrite=force)
    if json:
        o.print_json({"schema": "edgekit.init/1", "path": str(path)})
    elif not quiet:
        print(f"{path}\nnext: edgekit run {path}")
