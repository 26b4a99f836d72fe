"""``edgekit bundle``: packs, strips and signs what a board needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from edgekit.cli import _options as o
from edgekit.cli._commands import command_with_actions

__all__ = ["command"]


_ACTIONS = {"push": ("_bundle_push", "Put a bundle on a mirror or into a registry.")}


@command_with_actions(
    "bundle",
    "edgekit bundle configs/resnet50-orin.yaml\n"
    "edgekit bundle configs/resnet50-orin.yaml --full resnet50-full.ekb",
    _ACTIONS,
)
@o.config
@click.option("--full", type=o.FILE, help="Also write the bundle with its weights here.")
@click.option(
    "--counter",
    type=click.IntRange(min=1),
    metavar="N",
    help="Release counter, which boards remember (deploy.release.counter).",
)
@click.option(
    "--valid-until",
    metavar="DAY",
    help="Boards install it unattended until then (deploy.release.valid_until).",
)
@o.out
@o.cut
@o.force
@o.talk
def command(
    config: str,
    full: Path | None,
    counter: int | None,
    valid_until: str | None,
    part: dict[str, Any],
    json: bool,
    **settings: Any,
) -> None:
    given = {"counter": counter, "valid_until": valid_until}
    release = {name: value for name, value in given.items() if value is not None}
    over = {"model": part, **({"deploy": {"release": release}} if release else {})}
    with o.open_pipeline(config, over, **settings) as pipeline:
        document = pipeline.bundle(full=full)
    if json:
        o.print_json(document)
        return
    print(f"{document['path']}  {document['stripped_bytes']:,} bytes "
          f"({document['bytes']:,} with weights)")  # fmt: skip
    if full is not None:
        print(f"{full}  with weights")
