"""``edgekit remove``: removes a release or an application from boards."""

from __future__ import annotations

from typing import Any

import click

from edgekit.cli import _options as o
from edgekit.cli._boards import plain, reach, tell, wheres

__all__ = ["command"]


@o.command(
    "remove",
    "Examples: edgekit remove nvidia@10.0.0.7 --app resnet50 --release 000003-1f2e3d4c5b6a; "
    "edgekit remove nvidia@10.0.0.7 --app resnet50",
)
@wheres
@click.option("--app", required=True, help="The application.")
@click.option("--release", help="Only this release; it must not be the one that serves.")
@reach
@o.talk
def command(
    wheres: tuple[str, ...],
    app: str,
    release: str | None,
    json: bool,
    quiet: bool,
    verbose: bool,
    **reached: Any,
) -> None:
    from edgekit.pipeline._status import remove_document

    document, answered = remove_document(wheres, app, release, **reached)
    if not json:
        screen = o.console()
        for board in document["boards"]:
            if board["error"] is None:
                text = f"removed {', '.join(board['removed']) or app}"
            else:
                text = board["error"]["message"]
            screen.print(plain(f"{board['board']}: {text}"), soft_wrap=True)
    tell(document, answered, json)
