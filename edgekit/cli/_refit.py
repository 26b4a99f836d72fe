"""``edgekit refit``: gives a deployed application other weights without rebuilding it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from edgekit.cli import _options as o

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(
        "refit",
        epilog="Example: edgekit refit configs/resnet50-orin.yaml --weights finetuned.onnx",
    )(refit)


def refit(
    config: Annotated[str, typer.Argument(help="YAML configuration.")],
    weights: Annotated[Path, typer.Option(help="ONNX file with the same names, shapes and types.")],
    out: o.Out = None,
    accept_host_key: o.AcceptHostKey = False,
    trust_key: o.TrustKey = False,
    json: o.Json = False,
    quiet: o.Quiet = False,
    verbose: o.Verbose = False,
    debug: o.Debug = False,
) -> None:
    """Ship only the tensors that changed and refit the engines on the board."""
    with o.open_pipeline(
        config,
        out=out,
        quiet=quiet,
        verbose=verbose,
        accept_host_key=accept_host_key,
        trust_key=trust_key,
    ) as pipeline:
        document = pipeline.refit(weights)
    if json:
        o.print_json(document)
        return
    print(f"{document['changed']} of {document['tensors']} tensors changed")
    for release in document["releases"]:
        print(f"{release['board']['name']}: {release['release']} "
              f"({release['bytes_sent']:,} bytes sent)")  # fmt: skip
