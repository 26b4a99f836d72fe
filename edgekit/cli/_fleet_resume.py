"""``edgekit fleet resume``: goes on with a rollout."""

from __future__ import annotations

from pathlib import Path

import click

from edgekit.cli import _fleet_options as f
from edgekit.cli import _options as o
from edgekit.cli._commands import action
from edgekit.cli._fleet import ACTIONS
from edgekit.cli._fleet_show import finish

__all__ = ["command"]


@action(ACTIONS["resume"][1], "edgekit fleet resume resnet50-20260601-120000")
@f.rollout
@f.state
@o.accept_host_key
@o.talk
def command(
    rollout: str,
    state: Path | None,
    accept_host_key: bool,
    json: bool,
    quiet: bool,
    verbose: bool,
) -> None:
    with (
        f.open_fleet(
            state, quiet=quiet or json, verbose=verbose, accept_host_key=accept_host_key
        ) as fleet,
        f.stops(lambda text: click.echo(text, err=True)) as stopped,
    ):
        document = fleet.drive(rollout, stopped=stopped)
    finish(document, fleet.store.folder, json, stopped.met, accept_host_key)
