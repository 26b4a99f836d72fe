"""``edgekit run``: every step of a configuration."""

from __future__ import annotations

from typing import Annotated

import typer

from edgekit.cli import _options as o

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("run", epilog="Example: edgekit run configs/resnet50-orin.yaml")(run)


def run(
    config: Annotated[str, typer.Argument(help="YAML configuration.")],
    out: o.Out = None,
    outputs: o.Outputs = None,
    force: o.Force = False,
    accept_host_key: o.AcceptHostKey = False,
    trust_key: o.TrustKey = False,
    json: o.Json = False,
    quiet: o.Quiet = False,
    verbose: o.Verbose = False,
    debug: o.Debug = False,
) -> int:
    """Run all steps: check, rewrite, calibrate, plan, build, bundle, deploy, refit, bench, ..."""
    from edgekit.report import terminal_summary

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
        result = pipeline.run()
    if json:
        o.print_json(result.document)
    else:
        terminal_summary(result.report, o.stdout_console())
    return 0
