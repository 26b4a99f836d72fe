"""``edgekit calibrate from-qdq``: a Q/DQ model as the plain model, its cache and precisions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from edgekit._listed import counted
from edgekit.cli import _options as o
from edgekit.cli._commands import action, argument

__all__ = ["from_qdq"]


@action(
    "Translate a Q/DQ model to implicit INT8, which is what the DLA takes up to TensorRT 10.7: the "
    "plain model, a calibration cache of its scales and the layers that stay in FP16. "
    "edgekit plan and run do so by themselves.",
    "edgekit calibrate from-qdq qdq.onnx -t jetson-agx-orin-64gb -o plain.onnx "
    "--save calib.cache --precisions layers.txt --precisions precisions.json",
)
@argument("model", "ONNX file with QuantizeLinear and DequantizeLinear nodes.")
@o.target
@o.tensorrt
@click.option("-o", "--out", type=o.FILE, help="Write the plain model here.")
@click.option("--save", type=o.FILE, help="Write a TensorRT calibration cache here.")
@click.option(
    "--precisions",
    type=o.FILE,
    multiple=True,
    help="Write the FP16 layers here: for trtexec --layerPrecisions, or as .json; repeatable.",
)
@click.option(
    "--unequal",
    type=click.Choice(["refuse", "largest"]),
    default="refuse",
    help="What to do with a tensor that is quantised with several scales (refuse).",
)
@click.option(
    "--tied",
    is_flag=True,
    help="Write scales that the builder has one for all of as it takes them: the largest. "
    "edgekit calibrate MODEL --save does so.",
)
@o.cut
@o.talk
def from_qdq(
    model: str,
    target: str | None,
    tensorrt: str | None,
    out: Path | None,
    save: Path | None,
    precisions: tuple[Path, ...],
    unequal: str,
    tied: bool,
    part: dict[str, Any],
    json: bool,
    quiet: bool,
    verbose: bool,
) -> None:
    from edgekit.pipeline import from_qdq_document

    document = from_qdq_document(
        model, model=out, cache=save, precisions=precisions, target=target, tensorrt=tensorrt,
        unequal=unequal, tied=tied, **part,
    )  # fmt: skip
    if json:
        o.print_json(document)
        return
    o.say(
        f"{counted(document['quantizers'], 'scale')} of Q/DQ nodes, "
        f"{len(document['propagated'])} that follow, "
        f"{counted(document['weights'], 'quantised constant')}"
    )
    rows = [f"{r['tensor']}: {r['scale']:.7g} ({r['rule']})" for r in document["propagated"]]
    o.say_rows(rows, verbose=verbose)
    if document["missing"]:
        o.say(f"no scale: {', '.join(document['missing'])}")
        o.say(f"FP16: {', '.join(document['fp16_nodes'])}")
    else:
        o.say("no scale is missing")
    o.say_notes(document)
    files = document["files"]
    for path in (files["model"], files["cache"], *files["precisions"]):
        if path is not None:
            o.say(f"written to {path}")
    if document["trtexec"]:
        o.say(f"build it with: {document['trtexec']}")
