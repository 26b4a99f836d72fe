"""``edgekit remove``: removes a release or an application from boards."""

from __future__ import annotations

from typing import Any

import click

from edgekit.cli import _options as o
from edgekit.cli._boards import app_option, reach, tell_each, wheres

__all__ = ["command"]


@o.command(
    "remove",
    "edgekit remove nvidia@10.0.0.7 --app resnet50 --release 000003-1f2e3d4c5b6a\n"
    "edgekit remove nvidia@10.0.0.7 --app resnet50",
)
@wheres
@app_option
@click.option("--release", help="Only this release; it must not be the one that serves.")
@reach
@o.talk
def command(
    wheres: tuple[str, ...],
    app: str | None,
    release: str | None,
    json: bool,
    quiet: bool,
    verbose: bool,
    **reached: Any,
) -> None:
    from edgekit.pipeline._status import remove_document

    document, answered = remove_document(wheres, app, release, **reached)
    whole = f"the whole of {document['app']}: "

    def text(board: dict[str, Any]) -> str:
        gone = ", ".join(board["removed"])
        return f"removed {gone if release is not None else whole + (gone or 'it had no release')}"

    tell_each(document, answered, json, text)
