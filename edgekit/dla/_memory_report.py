"""Memory of every loadable: what it needs, what it may have, and which limit it breaks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from edgekit.dla._memory import Sizes, pool_limits, sizes_of
from edgekit.dla._rules import load_rules, memory_facts, titles_of
from edgekit.dla._types import LoadableCandidate, MemoryNeed

if TYPE_CHECKING:
    from edgekit.dla._types import Judgement
    from edgekit.network import Network
    from edgekit.targets import Target

__all__ = [
    "BrokenLimit", "LoadableMemory", "core_memory", "loadable_memory", "memory_report",
    "pool_disputes",
]  # fmt: skip

_DRAM = ("local_dram", "global_dram")


@dataclass(frozen=True, slots=True)
class BrokenLimit:
    """A limit that a loadable breaks; sizes in bytes.

    ``need`` is the size that is held against ``limit``: the pool for ``memory.pool``, the tensors
    or weights themselves for the others. ``documented`` is that size with weights as large as their
    type is: where it fits and ``need`` does not, the limit is disputed, not broken.
    """

    pool: str
    rule: str
    need: int
    limit: int
    documented: int
    source: str
    fix: str

    def to_json(self) -> dict[str, Any]:
        """Returns plain values."""
        return {
            "pool": self.pool, "rule": self.rule, "need": self.need, "limit": self.limit,
            "documented": self.documented, "source": self.source, "fix": self.fix,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class LoadableMemory:
    """The predicted memory of one loadable; sizes in bytes.

    Attributes:
        layers: In graph order.
        kept: Whether it is one: the core has a slot for it, and it breaks no memory limit.
        need: The smallest legal pools.
        tensors: Internal tensors alive at once at most, in the DLA's formats.
        weights: Weights with their padding.
        limits: What each pool may be.
        broken: Limits that do not hold; empty where all do.
        disputed: Limits that hold by the documented size of the weights, but not by the size that
            builds were seen to take; they keep nothing off the DLA.
    """

    layers: tuple[str, ...]
    kept: bool
    need: MemoryNeed
    tensors: int
    weights: int
    limits: MemoryNeed
    broken: tuple[BrokenLimit, ...] = ()
    disputed: tuple[BrokenLimit, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Returns plain values; everything is predicted."""
        return {
            "layers": list(self.layers),
            "kept": self.kept,
            "need": self.need.to_json(),
            "raw": {"local_dram": self.tensors, "global_dram": self.weights},
            "limits": self.limits.to_json(),
            "broken": [one.to_json() for one in self.broken],
            "disputed": [one.to_json() for one in self.disputed],
        }


def memory_report(
    network: Network,
    judgement: Judgement,
    target: Target,
    limits: MemoryNeed | None = None,
) -> tuple[LoadableMemory, ...]:
    """Predicts the memory of every candidate, in graph order; linear in the network.

    Args:
        network: The layer graph that was judged.
        judgement: Its verdict for ``target``.
        target: The board.
        limits: The pools that the build is given; :func:`pool_limits` when None.
    """
    allowed = pool_limits(target) if limits is None else limits
    precision = judgement.precisions or judgement.precision
    return tuple(
        _memory_of(network, group, target, precision, allowed) for group in judgement.candidates
    )


def loadable_memory(
    network: Network,
    layers: Sequence[str],
    target: Target,
    precision: str | Mapping[str, str],
    limits: MemoryNeed | None = None,
) -> LoadableMemory:
    """Predicts the memory of one loadable; arguments as for :func:`memory` and the report."""
    allowed = pool_limits(target) if limits is None else limits
    group = LoadableCandidate(tuple(layers), True)
    return _memory_of(network, group, target, precision, allowed)


def within_memory(
    network: Network,
    groups: Sequence[LoadableCandidate],
    target: Target,
    precision: str | Mapping[str, str],
) -> tuple[LoadableCandidate, ...]:
    """Returns candidates of which those that break a memory limit are not kept.

    TensorRT offloads the candidates one by one, and one that needs more than a pool may hold falls
    back to the GPU; its slot stays empty. A disputed limit takes none away.

    Args:
        network: The layer graph.
        groups: What the slots hold is kept.
        target: The board.
        precision: As for :func:`memory`.
    """
    limits = pool_limits(target)

    def held(group: LoadableCandidate) -> LoadableCandidate:
        broken = _memory_of(network, group, target, precision, limits).broken
        return replace(group, kept=False, dropped=broken[0].rule) if broken else group

    return tuple(held(group) if group.kept else group for group in groups)


def core_memory(loadables: Iterable[LoadableMemory]) -> MemoryNeed:
    """Returns what the kept loadables take on one core: DRAM adds up, managed SRAM is shared."""
    needs = [one.need.to_json() for one in loadables if one.kept]
    how = memory_facts()["totals"]
    total = {
        pool: sum(sizes) if how[pool] == "sum" else max(sizes, default=0)
        for pool in ("managed_sram", *_DRAM)
        for sizes in [[need[pool] for need in needs]]
    }
    return MemoryNeed(**total)


def pool_disputes(target: Target) -> dict[str, str]:
    """Returns, by pool, what other sources say of its default on this board; empty if nothing."""
    pools = ("managed_sram", *_DRAM)
    told = {pool: disputes_of(pool).get(target.dla.generation) for pool in pools}
    return {pool: text for pool, text in told.items() if text}


def disputes_of(pool: str) -> dict[str, str]:
    """Returns what other sources say of a pool's default, by DLA generation."""
    fact = memory_facts()[pool]
    ours = titles_of(fact["source"])
    return {
        generation: f"{row['text']} ({titles_of(row['source'])}; against: {ours})"
        for generation, row in fact.get("disputed", {}).items()
    }


def _memory_of(
    network: Network,
    group: LoadableCandidate,
    target: Target,
    precision: str | Mapping[str, str],
    limits: MemoryNeed,
) -> LoadableMemory:
    sizes = sizes_of(network, group.layers, target, precision)
    broken, disputed = _broken(sizes, limits, len(group.layers))
    return LoadableMemory(
        layers=group.layers,
        kept=group.kept,
        need=sizes.need,
        tensors=sizes.tensors,
        weights=sizes.weights,
        limits=limits,
        broken=broken,
        disputed=disputed,
    )


def _broken(
    sizes: Sizes, limits: MemoryNeed, layers: int
) -> tuple[tuple[BrokenLimit, ...], tuple[BrokenLimit, ...]]:
    """Returns the limits that a loadable of so many layers breaks, and the disputed ones."""
    raw = {
        "local_dram": (sizes.tensors, sizes.tensors),
        "global_dram": (sizes.weights, sizes.documented_weights),
    }
    need, allowed = sizes.need.to_json(), limits.to_json()
    least = sizes.documented_need.to_json()
    documented = {row["pool"]: row for row in memory_facts()["rules"] if "pool" in row}
    broken: list[BrokenLimit] = []
    disputed: list[BrokenLimit] = []
    for pool in _DRAM:
        row = documented[pool]
        of_rule = (row["id"], *raw[pool], row["bytes"], raw[pool][1] >= row["bytes"])
        of_pool = (
            "memory.pool", need[pool], least[pool], allowed[pool], least[pool] > allowed[pool]
        )  # fmt: skip
        over = [
            *([of_rule] if raw[pool][0] >= row["bytes"] else ()),
            *([of_pool] if need[pool] > allowed[pool] else ()),
        ]
        if not over:
            continue
        # a certain refusal by a smaller pool outweighs a disputed one
        held = next((one for one in over if one[-1]), over[0])
        (broken if held[-1] else disputed).append(_limit(pool, held, layers))
    return tuple(broken), tuple(disputed)


def _limit(pool: str, held: tuple[str, int, int, int, bool], layers: int) -> BrokenLimit:
    name, need, documented, limit, certain = held
    rule = load_rules().rules[name]
    facts = {"layers": layers}
    fix = next((way.fix for way in rule.ways if way.when(facts) is None), rule.fix)
    source = "; ".join(rule.sources)
    if not certain:
        against = titles_of(memory_facts()["convolution_weight_bytes"]["source"])
        source = f"{source}; against: {against}"
    return BrokenLimit(pool, name, need, limit, documented, source, fix)
