"""``edgekit fleet export ansible``: writes inventory, playbooks and role."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from edgekit._listed import counted
from edgekit.cli import _options as o
from edgekit.cli._commands import action, argument

__all__ = ["command"]


@action(
    "Write a rollout as inventory, playbooks and role for Ansible.",
    "edgekit fleet export ansible rollout -c configs/resnet50-orin.yaml -i fleet.yaml\n"
    "edgekit fleet export ansible rollout -c configs/resnet50-orin.yaml -i fleet.yaml "
    "--mirror https://mirror.example.org/edgekit/ --max-failures 5%",
)
@argument("what", "ansible.", type=click.Choice(["ansible"]))
@argument("folder", "Folder to write.", type=o.FILE)
@click.option("-c", "--config", required=True, help="YAML configuration.")
@click.option(
    "-i", "--inventory", type=o.FILE, help="YAML of boards; the configuration's own if absent."
)
@click.option("--select", "selector", help="Boards by label: 'site=a,kind!=xavier'.")
@click.option("--bundle", type=o.FILE, help="This bundle instead of building one.")
@click.option(
    "--mirror", multiple=True, help="URL that boards fetch from instead of copies; repeatable."
)
@click.option("--canary", type=click.IntRange(min=0), default=0, help="Boards of a first wave.")
@click.option(
    "--waves", default="10%,50%,100%", show_default=True, help="How far each wave brings it."
)
@click.option(
    "--max-failures", "budget", default="0", show_default=True, help="Percent of a wave: 5%."
)
@o.talk
def command(
    what: str,
    folder: Path,
    config: str,
    inventory: Path | None,
    selector: str | None,
    bundle: Path | None,
    mirror: tuple[str, ...],
    json: bool,
    **settings: Any,
) -> None:
    from edgekit.fleet._ansible import export

    quiet, verbose = settings.pop("quiet"), settings.pop("verbose")
    found = export(
        folder,
        config,
        inventory=inventory,
        selector=selector,
        bundle=bundle,
        sources=mirror,
        progress=o.progress(quiet, verbose),
        **settings,
    )
    if json:
        o.print_json({"schema": "edgekit.fleet.ansible/1", **asdict(found)})
        return
    waves = ", ".join(map(str, found.waves))
    o.say(f"{found.folder}: {counted(found.boards, 'board')} in waves of {waves}")
    for app, digest in found.bundles:
        o.say(f"  {app} {digest[:12]}")
    o.say(f"  cd {shlex.quote(found.folder)} && ansible-playbook deploy.yml")
    o.say(
        "  a wave with more failures is taken back; those before it: ansible-playbook rollback.yml"
    )
    for note in found.notes:
        o.say(f"note: {note}")
