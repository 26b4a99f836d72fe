"""``edgekit rewrite``: exact rewrites that make a network fit the DLA."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from edgekit.cli import _options as o

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(
        "rewrite",
        epilog="Example: edgekit rewrite model.onnx -t jetson-agx-orin-64gb --save out.onnx",
    )(rewrite)


def rewrite(
    model: Annotated[str, typer.Argument(help="ONNX file, builtin:NAME or YAML configuration.")],
    target: o.Target = None,
    save: Annotated[
        Path | None, typer.Option("--save", "-o", help="Write the rewritten model here.")
    ] = None,
    precision: o.Precision = None,
    tensorrt: o.TensorRT = None,
    shape: o.Shape = None,
    outputs: o.Outputs = None,
    json: o.Json = False,
    quiet: o.Quiet = False,
    verbose: o.Verbose = False,
    debug: o.Debug = False,
) -> None:
    """Apply every rewrite that improves the verdict, each proved on random inputs."""
    options = {
        "target": target,
        "precision": precision,
        "tensorrt": tensorrt,
        "model": {"shapes": o.shapes_of(shape) or None, "outputs": outputs},
    }
    with o.open_pipeline(model, options, quiet=quiet, verbose=verbose) as pipeline:
        document = pipeline.rewrite(save)
    if json:
        o.print_json(document)
        return
    before, after = document["before"], document["after"]
    for applied in document["rewrites"]:
        print(f"{applied['rewrite']}: {', '.join(applied['nodes'])} "
              f"(largest error {applied['max_error']:.1e} of the maximum)")  # fmt: skip
    print(f"layers on DLA {before['dla_layers']} -> {after['dla_layers']}, "
          f"loadables {before['loadables']} -> {after['loadables']}")  # fmt: skip
    if save is not None:
        print(f"written to {save}")
