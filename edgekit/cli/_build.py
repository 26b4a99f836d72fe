"""``edgekit build``: cuts the network at the plan's borders and builds every segment."""

from __future__ import annotations

from typing import Annotated

import typer

from edgekit.cli import _options as o

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("build", epilog="Example: edgekit build configs/resnet50-orin.yaml")(build)


def build(
    config: Annotated[str, typer.Argument(help="YAML configuration.")],
    outputs: o.Outputs = None,
    force: o.Force = False,
    json: o.Json = False,
    quiet: o.Quiet = False,
    verbose: o.Verbose = False,
    debug: o.Debug = False,
) -> None:
    """Build the engines of a configuration and compare them with FP32."""
    with o.open_pipeline(
        config, {"model": {"outputs": outputs}}, force=force, quiet=quiet, verbose=verbose
    ) as pipeline:
        document = pipeline.build()
    if json:
        o.print_json(document)
        return
    accuracy = document["accuracy"]
    print(
        f"{len(document['segments'])} segments, backend {document['backend']}; against FP32: "
        f"cosine {accuracy['cosine']:.6f}, top-1 agreement {accuracy['top1_agreement']:.0%}"
    )
