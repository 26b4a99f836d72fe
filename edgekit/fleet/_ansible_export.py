"""From a configuration and an inventory to a folder for Ansible."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.errors import UsageError
from edgekit.fleet._ansible import Exported, export_ansible, trusted
from edgekit.fleet._types import Member

if TYPE_CHECKING:
    from edgekit.bundle import Bundle
    from edgekit.config import Config
    from edgekit.pipeline import Progress

__all__ = ["export"]


def export(
    folder: Path,
    config: str | Path,
    *,
    inventory: Path | None = None,
    selector: str | None = None,
    bundle: Path | None = None,
    sources: Sequence[str] = (),
    canary: int = 0,
    waves: str,
    budget: str = "0",
    progress: Progress | None = None,
) -> Exported:
    """Builds what the boards get and writes the folder.

    Args:
        folder: Where to.
        config: The configuration of the application.
        inventory: The boards; None: those of the configuration.
        selector: Which of them.
        bundle: Instead of building one.
        sources: See ``export_ansible``, as ``canary``, ``waves`` and ``budget``. None given: the
            configuration's ``deploy.mirror``.
        progress: Where a build is told.

    Raises:
        ConfigError: The configuration or the inventory is wrong.
        UsageError: Nothing is selected, and what ``export_ansible`` raises.
        EdgekitError: The build failed.
    """
    from edgekit.bundle import read
    from edgekit.config import open_config
    from edgekit.fleet._bundles import signer_of
    from edgekit.fleet._select import select
    from edgekit.pipeline import Cache

    opened = open_config(config)
    members = select(_members(inventory, opened), selector)
    configs = {str(m.config): open_config(m.config) for m in members if m.config is not None}
    configs[""] = opened
    given = None if bundle is None else read(bundle)
    made: dict[str, Bundle] = {}
    of: dict[str, Bundle] = {}
    for member in members:
        key = str(member.config) if member.config else ""
        if key not in made:
            made[key] = given or _packed(configs[key], progress)
        of[member.name] = made[key]
    signers = dict.fromkeys(trusted(signer_of(configs[key])) for key in made)
    deploy = opened.file.deploy
    return export_ansible(
        folder,
        members,
        of,
        canary=canary,
        waves=waves,
        budget=budget,
        sources=[*sources] or deploy.mirror,
        signers=list(signers),
        policy={"keep": deploy.keep, **deploy.health.policy()},
        known_hosts=Cache().folder / "known_hosts",
    )


def _members(inventory: Path | None, config: Config) -> tuple[Member, ...]:
    if inventory is not None:
        from edgekit.fleet._inventory import load_inventory

        return load_inventory(inventory).members
    from edgekit.pipeline._hosts import boards_of_config

    boards = boards_of_config(config)
    if not boards:
        raise UsageError(
            "the configuration names no board",
            where=config.path,
            hint="write them under deploy.boards, or give --inventory",
        )
    return tuple(Member(board, where=config.path) for board in boards)


def _packed(config: Config, progress: Progress | None) -> Bundle:
    from edgekit.pipeline import Pipeline

    with Pipeline(config, progress=progress) as pipeline:
        pipeline.bundle()
        return pipeline.packing.bundle
