"""``edgekit fleet pause`` and ``abort``: ask a rollout's driver, which runs on this machine."""

from __future__ import annotations

from pathlib import Path

import click

from edgekit.cli import _fleet_options as f
from edgekit.cli import _options as o
from edgekit.cli._commands import action
from edgekit.cli._fleet import ACTIONS

__all__ = ["asker"]


def asker(what: str) -> click.Command:
    """Returns the command that asks for an action by its name."""

    @action(ACTIONS[what][1], f"edgekit fleet {what} resnet50-20260601-120000")
    @f.rollout
    @f.state
    @o.json
    @o.debug
    def command(rollout: str, state: Path | None, json: bool) -> None:
        with f.open_fleet(state) as fleet:
            reached = fleet.ask(rollout, what)
            document = fleet.document(rollout)
        if json:
            o.print_json(document)
        else:
            o.say(f"{rollout}: {reached}")

    return command
