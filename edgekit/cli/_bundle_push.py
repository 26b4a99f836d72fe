"""``edgekit bundle push``: puts a bundle where boards take it from themselves."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from edgekit._listed import counted
from edgekit.cli import _options as o
from edgekit.cli._commands import action, argument

__all__ = ["push"]


@action(
    "Put a bundle on a mirror (a folder for any HTTP server) or into a registry.",
    "edgekit bundle push net-full.ekb /srv/mirror\n"
    "edgekit bundle push net-full.ekb oci://registry.local/boards/net:1",
)
@argument("bundle", "An .ekb file or a bundle folder, with its weights.", type=o.FILE)
@argument("to", "A folder, or oci://REGISTRY/REPOSITORY:TAG.")
@click.option("--oci-layout", is_flag=True, help="The folder (FOLDER:TAG) is an OCI image layout.")
@o.json
@o.debug
def push(bundle: Path, to: str, oci_layout: bool, json: bool) -> None:
    from edgekit import bundle as floor

    pushed = floor.push(floor.read(bundle), to, oci_layout=oci_layout)
    if json:
        o.print_json({"schema": "edgekit.push/1", **asdict(pushed)})
        return
    o.say(
        f"{pushed.path}  {counted(pushed.blobs, 'blob')}, {pushed.bytes:,} bytes written, "
        f"{pushed.reused} were there"
    )
