"""``edgekit report``: writes the HTML report of a configuration."""

from __future__ import annotations

from typing import Any

from edgekit.cli import _options as o

__all__ = ["command"]


@o.command("report", "Example: edgekit report configs/resnet50-orin.yaml")
@o.config
@o.out
@o.boards
@o.talk
def command(config: str, json: bool, **settings: Any) -> None:
    with o.open_pipeline(config, **settings) as pipeline:
        result = pipeline.run()
    if json:
        o.print_json(result.report)
    else:
        print(result.document["files"]["report"])
