"""``edgekit fleet abort``: asks a rollout's driver to, wherever it runs on this machine."""

from __future__ import annotations

from pathlib import Path

from edgekit.cli import _fleet_options as f
from edgekit.cli import _options as o
from edgekit.cli._commands import action
from edgekit.cli._fleet import ACTIONS

__all__ = ["command"]


@action(ACTIONS["abort"][1], "Example: edgekit fleet abort resnet50-20260601-120000")
@f.rollout
@f.state
@o.json
@o.debug
def command(rollout: str, state: Path | None, json: bool) -> None:
    with f.open_fleet(state) as fleet:
        reached = fleet.ask(rollout, "abort")
        document = fleet.document(rollout)
    if json:
        o.print_json(document)
    else:
        o.say(f"{rollout}: {reached}")
