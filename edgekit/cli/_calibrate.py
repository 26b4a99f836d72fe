"""``edgekit calibrate``: INT8 scales, measured here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from edgekit._listed import counted
from edgekit.cli import _calibrate_data as data
from edgekit.cli import _calibrate_sensitivity as sensitive
from edgekit.cli import _options as o
from edgekit.cli._commands import command_with_actions

__all__ = ["command"]

_ACTIONS = {
    "show": ("_calibrate_cache", "Show a calibration cache, beside a model what it lacks."),
    "diff": ("_calibrate_cache", "Compare two calibration caches; exit code 1 if they differ."),
    "merge": ("_calibrate_cache", "Merge and edit calibration caches into one."),
    "from-qdq": (
        "_calibrate_from_qdq",
        "Turn a Q/DQ model into the plain model, its cache and its precisions.",
    ),
    "to-qdq": ("_calibrate_to_qdq", "Turn a plain model and its scales into a Q/DQ model."),
}


@command_with_actions(
    "calibrate",
    "edgekit calibrate model.onnx -t jetson-agx-orin-64gb --data images/ --save calib.cache",
    _ACTIONS,
)
@o.model
@o.target
@o.tensorrt
@data.options
@click.option(
    "--method",
    help="auto (the best by measuring, the default), entropy, minmax, percentile or mse.",
)
@click.option("--save", type=o.FILE, help="Write a TensorRT calibration cache here.")
@sensitive.options
@o.cut
@o.force
@o.talk
def command(
    model: str,
    target: str | None,
    tensorrt: str | None,
    method: str | None,
    inputs: dict[str, Any],
    save: Path | None,
    sensitivity: bool,
    accuracy: str | None,
    write_config: Path | None,
    part: dict[str, Any],
    json: bool,
    **settings: Any,
) -> None:
    gate = sensitive.wanted(sensitivity, accuracy, write_config, save)
    options = {
        "target": target,
        "tensorrt": tensorrt,
        "precision": "int8",
        "model": part,
        "calibration": {**inputs, "method": method},
    }
    with o.open_pipeline(model, options, **settings) as pipeline:
        if sensitivity:
            sensitive.show(pipeline.sensitivity(*gate, write_config), json=json)
            return
        document = pipeline.calibrate(save)
    if json:
        o.print_json(document)
        return
    found = counted(len(document["scales"]), "scale")
    none = f"; {counted(n, 'tensor')} without one" if (n := len(document["without"])) else ""
    print(f"{found} by {document['method']} from {document['data']}{none}")
    if document["changes"]:
        from edgekit.report import changes_text

        width, colour = o.paper()
        o.say_page(changes_text(document["changes"], width=width or 100, colour=colour))
    o.say_notes(document)
    if save is not None:
        print(f"written to {save}: {_written(document['written'])}")


def _written(found: dict[str, int]) -> str:
    parts = []
    if found["without"]:
        parts.append(f"{found['without']} with the scale 0, which have none")
    if found["original"]:
        parts.append(f"{found['original']} of the network before it was rewritten")
    return ", ".join([counted(found["tensors"], "tensor"), *parts])
