"""``edgekit deploy``: installs a release on the boards of a configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from edgekit.cli import _options as o
from edgekit.errors import UsageError

__all__ = ["command"]


@o.command(
    "deploy",
    "edgekit deploy configs/resnet50-orin.yaml\n"
    "edgekit deploy configs/resnet50-orin.yaml --bundle resnet50-full.ekb\n"
    "edgekit deploy configs/resnet50-orin.yaml --again",
)
@o.config
@click.option("--bundle", type=o.FILE, help="Install this bundle instead of building one.")
@o.out
@o.cut
@o.strict
@o.force
@o.again
@o.boards
@o.talk
def command(
    config: str,
    bundle: Path | None,
    part: dict[str, Any],
    strict: bool | None,
    json: bool,
    **settings: Any,
) -> None:
    if strict and bundle is not None:
        raise UsageError("--strict is about what is built, and --bundle builds nothing")
    options = {"model": part, "build": {"strict": strict}}
    with o.open_pipeline(config, options, **settings) as pipeline:
        document = pipeline.deploy(bundle)
    if json:
        o.print_json(document)
        return
    for release in document["releases"]:
        print(f"{release['board']['name']}: {release['release']} "
              f"({release['bytes_sent']:,} bytes sent)")  # fmt: skip
        o.say_notes(release)
