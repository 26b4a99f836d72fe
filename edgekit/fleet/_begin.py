"""What is settled when a rollout begins: its name, its bundles, and on which terms."""

from __future__ import annotations

import contextlib
import itertools
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.errors import ConfigError, Problem, UsageError
from edgekit.fleet._bundles import Bundles
from edgekit.fleet._hints import name_taken
from edgekit.fleet._lock import is_driven
from edgekit.fleet._store import Store
from edgekit.fleet._types import Member

if TYPE_CHECKING:
    from edgekit.bundle import Bundle
    from edgekit.config import Config
    from edgekit.pipeline import Progress

__all__ = ["first_bundles", "free_name", "of_app", "terms_of"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def first_bundles(
    store: Store,
    progress: Progress | None,
    row: Mapping[str, Any],
    configs: Mapping[str, Config],
    file: Path | None,
    config: Config,
) -> dict[str, Bundle]:
    """Returns by key the bundles that no board has to build; told before a rollout is written."""
    if file is not None:
        from edgekit.pipeline import Pipeline

        with Pipeline(config) as pipeline:
            return {"file": pipeline.packing.read(file)}
    bundles = Bundles(store, {**row, "id": -1}, progress=progress)
    return {
        key: bundle
        for source, one in configs.items()
        if (made := bundles.first(Path(source), one)) is not None
        for key, bundle in [made]
    }


def free_name(store: Store, name: str | None, app: str) -> str:
    """Returns the name of a new rollout: the one that is wished, or the app's and the time.

    Raises:
        UsageError: It is taken, or no name.
    """
    if name is None:
        name = f"{app}-{time.strftime('%Y%m%d-%H%M%S')}"[-64:]
        taken = {row["name"] for row in store.rollouts()}
        return next(n for n in _numbered(name) if n not in taken)
    if _NAME.fullmatch(name) is None:
        raise UsageError(f"--name {name!r}: letters, digits, '.', '_' and '-'")
    with contextlib.suppress(KeyError):
        there = store.rollout(name)
        skipped = any(row["state"] == "skipped" for row in store.boards(there["id"]))
        alive = is_driven(store.folder, there["id"])
        raise name_taken(there, store.folder, skipped=skipped, driven=alive)
    return name


def _numbered(name: str) -> Iterator[str]:
    yield name
    for number in itertools.count(2):
        yield f"{name}-{number}"


def terms_of(config: Config) -> dict[str, Any]:
    """Returns what a deployment is given beside its bundle, as ``edgekit deploy`` gives it."""
    deploy = config.file.deploy
    return {
        "keep": deploy.keep,
        "policy": deploy.health.policy(),
        "source": "\n".join(deploy.mirror) or None,
    }


def of_app(config: Config, app: str, member: Member) -> Config:
    """Returns a board's own configuration if it is of the rollout's application."""
    if config.file.name != app:
        problem = Problem(
            f"the configuration of {member.name} is of {config.file.name!r}, the rollout of "
            f"{app!r}",
            config.document.where(("name",)),
            "a rollout brings one application: give both configurations one name",
        )
        raise ConfigError([problem], code="fleet.other-app")
    return config
