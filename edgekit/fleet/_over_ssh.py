"""A rollout's boards over SSH."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from edgekit._data import cache_folder
from edgekit.errors import ConfigError
from edgekit.fleet._bundles import Bundles, signer_of
from edgekit.fleet._driver import Driver, SshDriver

__all__ = ["over_ssh"]


def over_ssh(rollout: Mapping[str, Any], bundles: Bundles, *, accept_host_key: bool) -> Driver:
    """Returns the driver of a rollout's boards over SSH, on the terms it began with."""
    from edgekit.config import open_config

    trust = None
    if rollout["trust"]:
        with contextlib.suppress(ConfigError):  # it may be gone; boards trust the key by now
            trust = signer_of(open_config(rollout["config"]))
    return SshDriver(
        rollout["app"],
        bundles,
        state_folder=cache_folder(),
        terms_of=lambda m: rollout["terms"][str(m.config or rollout["config"])],
        reason=f"the rollout {rollout['name']} was taken back",
        idle=2 * int(rollout["settings"]["parallel"]),
        accept_host_key=accept_host_key,
        trust=trust,
    )
