"""``edgekit report``: writes the HTML report of a configuration."""

from __future__ import annotations

from typing import Annotated

import typer

from edgekit.cli import _options as o

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("report", epilog="Example: edgekit report configs/resnet50-orin.yaml")(report)


def report(
    config: Annotated[str, typer.Argument(help="YAML configuration.")],
    out: o.Out = None,
    accept_host_key: o.AcceptHostKey = False,
    trust_key: o.TrustKey = False,
    json: o.Json = False,
    quiet: o.Quiet = False,
    verbose: o.Verbose = False,
    debug: o.Debug = False,
) -> None:
    """Do what is not done yet and write the report."""
    with o.open_pipeline(
        config,
        out=out,
        quiet=quiet,
        verbose=verbose,
        accept_host_key=accept_host_key,
        trust_key=trust_key,
    ) as pipeline:
        result = pipeline.run()
    if json:
        o.print_json(result.report)
    else:
        print(result.document["files"]["report"])
