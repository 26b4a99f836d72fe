"""``edgekit calibrate``: INT8 scales, measured here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from edgekit.cli import _options as o

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(
        "calibrate",
        epilog="Example: edgekit calibrate model.onnx -t jetson-agx-orin-64gb --data images/ "
        "--save calib.cache",
    )(calibrate)


def calibrate(
    model: Annotated[str, typer.Argument(help="ONNX file, builtin:NAME or YAML configuration.")],
    target: o.Target = None,
    data: Annotated[
        Path | None, typer.Option(help=".npz, .npy or image folder; synthetic when absent.")
    ] = None,
    method: Annotated[str | None, typer.Option(help="entropy, minmax, percentile or mse.")] = None,
    save: Annotated[
        Path | None, typer.Option("--save", help="Write a TensorRT calibration cache here.")
    ] = None,
    shape: o.Shape = None,
    outputs: o.Outputs = None,
    force: o.Force = False,
    json: o.Json = False,
    quiet: o.Quiet = False,
    verbose: o.Verbose = False,
    debug: o.Debug = False,
) -> None:
    """Measure INT8 scales with ONNX Runtime, in TensorRT's calibration cache format."""
    options = {
        "target": target,
        "precision": "int8",
        "model": {"shapes": o.shapes_of(shape) or None, "outputs": outputs},
        "calibration": {"data": str(data.resolve()) if data else None, "method": method},
    }
    with o.open_pipeline(model, options, force=force, quiet=quiet, verbose=verbose) as pipeline:
        document = pipeline.calibrate(save)
    if json:
        o.print_json(document)
        return
    print(f"{len(document['scales'])} scales by {document['method']} from {document['data']}")
    if save is not None:
        print(f"written to {save}")
