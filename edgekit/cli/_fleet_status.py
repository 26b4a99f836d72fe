"""``edgekit fleet status``: rollouts, or one of them board by board; changes nothing."""

from __future__ import annotations

from pathlib import Path

import click

from edgekit.cli import _fleet_options as f
from edgekit.cli import _options as o
from edgekit.cli._commands import action
from edgekit.cli._fleet import ACTIONS
from edgekit.cli._fleet_show import show, show_all

__all__ = ["command"]


@action(
    ACTIONS["status"][1],
    "edgekit fleet status\nedgekit fleet status resnet50-20260601-120000 --boards",
)
@f.optional_rollout
@click.option("--boards", is_flag=True, help="Every board, not only those that are not well.")
@f.state
@o.json
@o.debug
def command(rollout: str | None, boards: bool, state: Path | None, json: bool) -> None:
    with f.open_fleet(state) as fleet:
        if rollout is None:
            from edgekit.fleet._document import listing_of

            listing = listing_of(fleet.store)
            if json:
                o.print_json(listing)
                return
            show_all(listing, fleet.store.folder)
            return
        document, folder = fleet.document(rollout), fleet.store.folder
    if json:
        o.print_json(document)
    else:
        show(document, folder, every=boards)
