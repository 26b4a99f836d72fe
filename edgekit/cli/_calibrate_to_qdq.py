"""``edgekit calibrate to-qdq``: a plain model and its scales as a strongly typed Q/DQ model."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from edgekit._listed import counted, listed
from edgekit.cli import _calibrate_data as data
from edgekit.cli import _options as o
from edgekit.cli._commands import action

__all__ = ["to_qdq"]

_SHOWN = 10
# the first release that takes Q/DQ nodes to a DLA (dla/general.yaml, general.explicit_quantization)
_RELEASE = "11.4.1"


@action(
    "Lower a plain model to Q/DQ nodes, which is how INT8 comes to the DLA from TensorRT 11.4.1 "
    "on; the scales are measured, or those of a calibration cache. edgekit plan and run do so by "
    "themselves.",
    "edgekit calibrate to-qdq model.onnx -t jetson-agx-orin-64gb --cache calib.cache -o qdq.onnx",
)
@o.model
@o.target
@o.tensorrt
@click.option("-o", "--out", type=o.FILE, required=True, help="Write the Q/DQ model here.")
@click.option("--cache", type=o.FILE, help="TensorRT calibration cache with the scales.")
@data.options
@click.option(
    "--method",
    help="auto (the best by measuring, the default), entropy, minmax, percentile or mse.",
)
@o.missing
@click.option(
    "--weights",
    type=click.Choice(["per_channel", "per_tensor"]),
    default="per_channel",
    help="Scales of weights (per_channel: one for each output channel).",
)
@click.option(
    "--float16/--float32",
    default=True,
    help="Types of layers outside of INT8 (FP16, with casts; a DLA has no FP32).",
)
@o.cut
@o.force
@o.talk
def to_qdq(
    model: str,
    target: str | None,
    tensorrt: str | None,
    out: Path,
    cache: Path | None,
    inputs: dict[str, Any],
    method: str | None,
    missing: str | None,
    weights: str,
    float16: bool,
    part: dict[str, Any],
    json: bool,
    verbose: bool,
    **settings: Any,
) -> None:
    calibration = {
        **inputs,
        "cache": os.path.realpath(cache) if cache else None,
        "method": method,
        "missing": missing,
    }
    options = {
        "target": target,
        "tensorrt": tensorrt or _RELEASE,
        "precision": "int8",
        "model": part,
        "calibration": calibration,
        "rewrite": {"enable": "none"},
    }
    with o.open_pipeline(model, options, verbose=verbose, **settings) as pipeline:
        document = pipeline.to_qdq(out, weights=weights, float16=float16)
    if json:
        o.print_json(document)
        return
    o.say(
        f"{counted(document['activations'], 'activation')} and "
        f"{counted(document['weights'], 'constant')} between Q/DQ nodes, "
        f"{counted(document['casts'], 'cast')}, opset {document['opset']}; scales: "
        f"{document['method']}, {document['data']}"
    )
    check = document["check"]
    o.say(
        f"TensorRT {document['tensorrt']} on {document['target']}: {check['dla_layers']} of "
        f"{counted(check['layers'], 'layer')} could run on the DLA, "
        f"{check['int8_layers']} in INT8, {counted(check['loadables'], 'loadable')}"
    )
    rows = [f"GPU: {row['layer']} ({row['rule']})" for row in check["gpu"]]
    o.say_rows(rows, verbose=verbose)
    fp16 = document["fp16_layers"]
    if fp16:
        o.say(f"FP16: {listed(fp16, len(fp16) if verbose else _SHOWN)}")
    o.say_notes(document)
    o.say(f"written to {document['file']}")
    o.say(f"build it with: {document['trtexec']}")
