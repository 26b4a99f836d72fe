"""How a rollout's boards are asked: over SSH by this process, or by Ansible."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from edgekit._data import cache_folder
from edgekit.errors import ConfigError, UsageError
from edgekit.fleet._bundles import Bundles, signer_of
from edgekit.fleet._driver import Driver, SshDriver
from edgekit.fleet._hints import ACCEPT_KEY
from edgekit.fleet._types import Member

__all__ = ["check_ansible", "driver_of", "over_ansible", "over_ssh"]


def driver_of(
    rollout: Mapping[str, Any], bundles: Bundles, *, folder: Path, accept_host_key: bool
) -> Driver:
    """Returns the driver that a rollout began with; ``folder`` is the state's."""
    if rollout["settings"].get("driver") != "ansible":
        return over_ssh(rollout, bundles, accept_host_key=accept_host_key)
    if accept_host_key:
        raise UsageError(
            "--accept-host-key: Ansible takes no unknown host key",
            code="fleet.host-key",
            hint=ACCEPT_KEY,
        )
    return over_ansible(rollout, bundles, folder / "ansible" / str(rollout["name"]))


def over_ssh(rollout: Mapping[str, Any], bundles: Bundles, *, accept_host_key: bool) -> Driver:
    """Returns the driver of a rollout's boards over SSH, on the terms it began with."""
    return SshDriver(
        rollout["app"],
        bundles,
        state_folder=cache_folder(),
        terms_of=lambda m: {
            **rollout["terms"][str(m.config or rollout["config"])],
            "put_back": _again(rollout),
        },
        reason=f"the rollout {rollout['name']} was taken back",
        idle=2 * int(rollout["settings"]["parallel"]),
        accept_host_key=accept_host_key,
        trust=_signer(rollout),
    )


def over_ansible(rollout: Mapping[str, Any], bundles: Bundles, folder: Path) -> Driver:
    """Returns the driver of a rollout's boards by Ansible, on the terms it began with."""
    from edgekit.fleet._ansible import known_hosts_text, trusted
    from edgekit.fleet._over_ansible import AnsibleDriver

    signer = _signer(rollout)
    return AnsibleDriver(
        rollout["app"],
        bundles.unasked,
        folder=folder,
        forks=int(rollout["settings"]["parallel"]),
        terms_of=lambda m: rollout["terms"][str(m.config or rollout["config"])],
        signers=[] if signer is None else [trusted(signer)],
        known_hosts=known_hosts_text(cache_folder() / "known_hosts"),
        operator=f"the rollout {rollout['name']}",
        again=_again(rollout),
    )


def check_ansible(members: Sequence[Member]) -> None:
    """Raises where Ansible is not there, or a board is one that it cannot drive."""
    from edgekit.fleet._ansible_files import host_vars
    from edgekit.fleet._runner import program

    program()
    for member in members:
        host_vars(member)


def _again(rollout: Mapping[str, Any]) -> bool:
    """Whether boards put back what was taken back on them; no rollout of before does."""
    return bool(rollout["settings"].get("again"))


def _signer(rollout: Mapping[str, Any]) -> str | None:
    """Returns the public key that boards are to trust from now on, or None."""
    from edgekit.config import open_config

    if rollout["trust"]:
        with contextlib.suppress(ConfigError):  # it may be gone; boards trust the key by now
            return signer_of(open_config(rollout["config"]))
    return None
