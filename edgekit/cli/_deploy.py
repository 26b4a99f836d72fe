"""``edgekit deploy``: installs a release on the boards of a configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from edgekit.cli import _options as o

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(
        "deploy",
        epilog="Examples: edgekit deploy configs/resnet50-orin.yaml; "
        "edgekit deploy configs/resnet50-orin.yaml --bundle resnet50-full.ekb",
    )(deploy)


def deploy(
    config: Annotated[str, typer.Argument(help="YAML configuration.")],
    bundle: Annotated[
        Path | None, typer.Option(help="Install this bundle instead of building one.")
    ] = None,
    out: o.Out = None,
    outputs: o.Outputs = None,
    force: o.Force = False,
    accept_host_key: o.AcceptHostKey = False,
    trust_key: o.TrustKey = False,
    json: o.Json = False,
    quiet: o.Quiet = False,
    verbose: o.Verbose = False,
    debug: o.Debug = False,
) -> None:
    """Ship, refit, self-test and switch to a new release; the old one is kept."""
    with o.open_pipeline(
        config,
        {"model": {"outputs": outputs}},
        out=out,
        force=force,
        quiet=quiet,
        verbose=verbose,
        accept_host_key=accept_host_key,
        trust_key=trust_key,
    ) as pipeline:
        document = pipeline.deploy(bundle)
    if json:
        o.print_json(document)
        return
    for release in document["releases"]:
        print(f"{release['board']['name']}: {release['release']} "
              f"({release['bytes_sent']:,} bytes sent)")  # fmt: skip
