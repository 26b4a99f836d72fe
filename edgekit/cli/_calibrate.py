"""``edgekit calibrate``: INT8 scales, measured here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from edgekit.cli import _options as o

__all__ = ["command"]


@o.command(
    "calibrate",
    "Example: edgekit calibrate model.onnx -t jetson-agx-orin-64gb --data images/ "
    "--save calib.cache",
)
@o.model
@o.target
@click.option("--data", type=o.FILE, help=".npz, .npy or image folder; synthetic when absent.")
@click.option("--method", help="entropy, minmax, percentile or mse.")
@click.option("--save", type=o.FILE, help="Write a TensorRT calibration cache here.")
@o.cut
@o.force
@o.talk
def command(
    model: str,
    target: str | None,
    data: Path | None,
    method: str | None,
    save: Path | None,
    part: dict[str, Any],
    json: bool,
    **settings: Any,
) -> None:
    options = {
        "target": target,
        "precision": "int8",
        "model": part,
        "calibration": {"data": str(data.resolve()) if data else None, "method": method},
    }
    with o.open_pipeline(model, options, **settings) as pipeline:
        document = pipeline.calibrate(save)
    if json:
        o.print_json(document)
        return
    print(f"{len(document['scales'])} scales by {document['method']} from {document['data']}")
    if save is not None:
        print(f"written to {save}")
