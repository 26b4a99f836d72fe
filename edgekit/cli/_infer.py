"""``edgekit infer``: runs the deployed release on inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from edgekit.cli import _options as o

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(
        "infer",
        epilog="Example: edgekit infer configs/resnet50-orin.yaml --input x.npz --output y.npz",
    )(infer)


def infer(
    config: Annotated[str, typer.Argument(help="YAML configuration.")],
    input: Annotated[
        Path | None, typer.Option("--input", "-i", help=".npz or .npy; synthetic when absent.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", help="Write the outputs to this .npz.")
    ] = None,
    outputs: o.Outputs = None,
    out: o.Out = None,
    accept_host_key: o.AcceptHostKey = False,
    trust_key: o.TrustKey = False,
    json: o.Json = False,
    quiet: o.Quiet = False,
    verbose: o.Verbose = False,
    debug: o.Debug = False,
) -> None:
    """Run one inference on the board."""
    with o.open_pipeline(
        config,
        {"model": {"outputs": outputs}},
        out=out,
        quiet=quiet,
        verbose=verbose,
        accept_host_key=accept_host_key,
        trust_key=trust_key,
    ) as pipeline:
        document = pipeline.infer(input, output)
    if json:
        o.print_json(document)
        return
    for tensor in document["outputs"]:
        print(f"{tensor['name']} {tensor['dtype']}{tensor['shape']}  min {tensor['min']:.6g}  "
              f"max {tensor['max']:.6g}  arg max {tensor['argmax']}")  # fmt: skip
    print(f"written to {document['file']}")
