"""``edgekit rollback``: goes back to the release before."""

from __future__ import annotations

from typing import Annotated

import typer

from edgekit.cli import _options as o

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("rollback", epilog="Example: edgekit rollback configs/resnet50-orin.yaml")(rollback)


def rollback(
    config: Annotated[str, typer.Argument(help="YAML configuration.")],
    accept_host_key: o.AcceptHostKey = False,
    json: o.Json = False,
    quiet: o.Quiet = False,
    verbose: o.Verbose = False,
    debug: o.Debug = False,
) -> None:
    """Switch every board of a configuration back to its previous release."""
    with o.open_pipeline(
        config, quiet=quiet, verbose=verbose, accept_host_key=accept_host_key
    ) as pipeline:
        document = pipeline.rollback()
    if json:
        o.print_json(document)
        return
    for board in document["boards"]:
        print(f"{board['name']}: {board['from']} -> {board['to']}")
