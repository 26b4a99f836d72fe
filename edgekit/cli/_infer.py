"""``edgekit infer``: runs the deployed release on inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from edgekit.cli import _options as o

__all__ = ["command"]


@o.command(
    "infer",
    "edgekit infer configs/resnet50-orin.yaml --input x.npz --output y.npz",
)
@o.config
@click.option("-i", "--input", type=o.FILE, help=".npz or .npy; synthetic when absent.")
@click.option("--output", type=o.FILE, help="Write the outputs to this .npz.")
@o.cut
@o.out
@o.boards
@o.talk
def command(
    config: str,
    input: Path | None,
    output: Path | None,
    part: dict[str, Any],
    json: bool,
    **settings: Any,
) -> None:
    with o.open_pipeline(config, {"model": part}, **settings) as pipeline:
        document = pipeline.infer(input, output)
    if json:
        o.print_json(document)
        return
    for tensor in document["outputs"]:
        print(f"{tensor['name']} {tensor['dtype']}{tensor['shape']}  min {tensor['min']:.6g}  "
              f"max {tensor['max']:.6g}  arg max {tensor['argmax']}")  # fmt: skip
    print(f"written to {document['file']}")
    o.say_notes(document)
