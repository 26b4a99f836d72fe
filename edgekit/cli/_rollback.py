"""``edgekit rollback``: goes back to the release before."""

from __future__ import annotations

from typing import Any

import click

from edgekit.cli import _options as o
from edgekit.cli._boards import app_option, reach, tell_each
from edgekit.cli._commands import argument

__all__ = ["command"]


@o.command(
    "rollback",
    "edgekit rollback configs/resnet50-orin.yaml\n"
    "edgekit rollback nvidia@10.0.0.7 --app resnet50 --reason 'too many false alarms'",
)
@argument("where", "YAML configuration, or USER@HOST:PORT or an alias of ~/.ssh/config.")
@app_option
@click.option("--reason", help="For the board's history.")
@reach
@o.talk
def command(
    where: str,
    app: str | None,
    reason: str | None,
    json: bool,
    quiet: bool,
    verbose: bool,
    **reached: Any,
) -> None:
    from edgekit.pipeline._asking import app_of
    from edgekit.pipeline._status import rollback_document

    document, answered = rollback_document([where], app_of(where, app), reason, **reached)
    tell_each(document, answered, json, _said)


def _said(board: dict[str, Any]) -> str:
    return f"{board['from']} -> {board['to'] or 'nothing'}"
