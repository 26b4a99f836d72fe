"""What a check says of memory: the pools of the loadables, and the convolution buffer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from edgekit._listed import counted

if TYPE_CHECKING:
    from edgekit.dla import Judgement
    from edgekit.network import Network
    from edgekit.targets import Target

__all__ = ["disputed_size", "memory_keys", "near_limit", "too_large"]

MIB = 1 << 20


def memory_keys(network: Network, judgement: Judgement, target: Target) -> dict[str, Any]:
    """Returns what the loadables need of the memory pools, alone and on a core, and the limits."""
    from edgekit.dla import SLOTS, core_memory, memory_report, pool_disputes, pool_limits
    from edgekit.network import loadable_name

    held: list[dict[str, Any]] = []
    refused: list[dict[str, Any]] = []
    report = memory_report(network, judgement, target)
    for group, one in zip(judgement.candidates, report, strict=True):
        if one.kept or group.dropped != SLOTS:
            entry = one.to_json()
            del entry["kept"]
            name = loadable_name(network, one.layers)
            entry |= {"name": name, "first": one.layers[0], "last": one.layers[-1]}
            (held if one.kept else refused).append(entry)
    limits = pool_limits(target).to_json()
    return {
        "memory": held,
        "memory_refused": refused,
        "memory_core": {"need": core_memory(report).to_json(), "limits": limits},
        "memory_disputes": pool_disputes(target),
    }


def too_large(refused: Sequence[Mapping[str, Any]]) -> list[str]:
    """Warns of candidates that a memory limit keeps on the GPU."""
    return [
        f"{one['name']} is predicted to stay on the GPU, with all its layers "
        f"({len(one['layers'])}): it needs {limit['need'] / MIB:,.1f} MiB of {_pool(limit)}, "
        f"the limit is {limit['limit'] / MIB:,.0f} ({limit['rule']}; {limit['source']}): "
        f"{limit['fix']}"
        for one in refused
        for limit in one["broken"][:1]
    ]


def disputed_size(held: Sequence[Mapping[str, Any]]) -> list[str]:
    """Warns of loadables that fit by the documented size of their weights only."""
    return [
        f"{one['name']} is taken to be on the DLA, disputed: by the documented size of its weights "
        f"it needs {limit['documented'] / MIB:,.1f} MiB of "
        f"{_pool(limit)}, where the limit is "
        f"{limit['limit'] / MIB:,.0f}, but {limit['need'] / MIB:,.1f} by the size that a build was "
        f"seen to take ({limit['rule']}; {limit['source']}): {limit['fix']}"
        for one in held
        for limit in one["disputed"]
    ]


def _pool(limit: Mapping[str, Any]) -> str:
    """Returns "local DRAM" or "global DRAM", the pools that have limits."""
    return str(limit["pool"]).replace("_dram", " DRAM")


def near_limit(network: Network, judgement: Judgement) -> list[str]:
    """Warns of convolutions so near the limit, or over it, that boards may judge otherwise."""
    from edgekit.dla import cbuf_use

    if not judgement.precisions:  # refused as a whole
        return []
    near = [one for one in cbuf_use(network, judgement.precisions) if one.near]
    if not near:
        return []
    first = near[0]
    return [
        f"{first.layer} needs {first.banks} of {first.available} banks of the convolution buffer"
        + (f" ({counted(len(near) - 1, 'more layer')} likewise)" if near[1:] else "")
        + f"; so near the limit boards and the documented formula disagree: {first.fix} "
        + f"({first.source})"
    ]
