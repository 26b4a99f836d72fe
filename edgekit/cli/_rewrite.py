"""``edgekit rewrite``: exact rewrites that make a network fit the DLA."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from edgekit.cli import _options as o

__all__ = ["command"]


@o.command("rewrite", "Example: edgekit rewrite model.onnx -t jetson-agx-orin-64gb --save out.onnx")
@o.model
@o.target
@click.option("-o", "--save", type=o.FILE, help="Write the rewritten model here.")
@o.precision
@o.tensorrt
@o.cut
@o.talk
def command(
    model: str,
    target: str | None,
    save: Path | None,
    precision: str | None,
    tensorrt: str | None,
    part: dict[str, Any],
    json: bool,
    **settings: Any,
) -> None:
    options = {
        "target": target,
        "precision": precision,
        "tensorrt": tensorrt,
        "model": part,
    }
    with o.open_pipeline(model, options, **settings) as pipeline:
        document = pipeline.rewrite(save)
    if json:
        o.print_json(document)
        return
    before, after = document["before"], document["after"]
    for applied in document["rewrites"]:
        error = applied["max_error"]
        if error is None:
            # ONNX Runtime has no kernel for what was there
            error = applied["max_error_float64"]
        print(f"{applied['rewrite']}: {', '.join(applied['nodes'])} "
              f"(largest error {error:.1e} of the maximum)")  # fmt: skip
    print(f"layers on DLA {before['dla_layers']} -> {after['dla_layers']}, "
          f"loadables {before['loadables']} -> {after['loadables']}")  # fmt: skip
    if save is not None:
        print(f"written to {save}")
