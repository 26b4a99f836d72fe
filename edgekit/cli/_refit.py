"""``edgekit refit``: gives a deployed application other weights without rebuilding it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from edgekit._listed import counted
from edgekit.cli import _options as o

__all__ = ["command"]


@o.command("refit", "edgekit refit configs/resnet50-orin.yaml --weights finetuned.onnx")
@o.config
@click.option(
    "--weights",
    type=o.FILE,
    required=True,
    help="ONNX file with the same names, shapes and types.",
)
@o.cut
@o.out
@o.again
@o.boards
@o.talk
def command(config: str, weights: Path, part: dict[str, Any], json: bool, **settings: Any) -> None:
    with o.open_pipeline(config, {"model": part}, **settings) as pipeline:
        document = pipeline.refit(weights)
    if json:
        o.print_json(document)
        return
    told = pipeline.work.accuracy_told(document["accuracy"], o.figures(document["accuracy"]))
    print(f"{document['changed']} of {counted(document['tensors'], 'tensor')} changed; {told}")
    o.say_accuracy(document["accuracy"], emulated=True)
    for release in document["releases"]:
        print(f"{release['board']['name']}: {release['release']} "
              f"({release['bytes_sent']:,} bytes sent)")  # fmt: skip
        o.say_notes(release)
