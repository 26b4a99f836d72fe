"""``edgekit report``: writes the HTML report of a configuration."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.cli import _options as o

if TYPE_CHECKING:
    from edgekit.config import Config

__all__ = ["command"]


@o.command("report", "Example: edgekit report configs/resnet50-orin.yaml")
@o.config
@o.out
@o.boards
@o.talk
def command(config: str, json: bool, **settings: Any) -> None:
    from edgekit.config import open_config

    opened = open_config(config)
    if opened.file.model.networks:
        _several(opened, json, settings)
        return
    with o.open_pipeline(opened, **settings) as pipeline:
        result = pipeline.run()
    if json:
        o.print_json(result.report)
    else:
        print(result.document["files"]["report"])


def _several(config: Config, json: bool, settings: dict[str, Any]) -> None:
    from edgekit.pipeline import plan_networks, write_networks_report

    plans = plan_networks(config, progress=o.progress(settings["quiet"], settings["verbose"]))
    path = (settings["out"] or Path("edgekit-out") / config.file.name) / "report.html"
    write_networks_report(plans, path, name=config.file.name)
    if json:
        o.print_json(plans.to_json())
    else:
        print(path)
