"""``edgekit rollback``: goes back to the release before."""

from __future__ import annotations

from typing import Any

from edgekit.cli import _options as o

__all__ = ["command"]


@o.command("rollback", "Example: edgekit rollback configs/resnet50-orin.yaml")
@o.config
@o.accept_host_key
@o.talk
def command(config: str, json: bool, **settings: Any) -> None:
    with o.open_pipeline(config, **settings) as pipeline:
        document = pipeline.rollback()
    if json:
        o.print_json(document)
        return
    for board in document["boards"]:
        print(f"{board['name']}: {board['from']} -> {board['to']}")
