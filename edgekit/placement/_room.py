"""What one loadable can hold: memory pools and one batch size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from edgekit.dla import MemoryNeed, loadable_batch, loadable_memory, pool_limits, weight_bytes
from edgekit.network import Network
from edgekit.placement._costs import CostModel
from edgekit.placement._kernels import Kernel
from edgekit.placement._types import Options
from edgekit.solver import Pool

__all__ = ["Room"]

DRAM = ("local_dram", "global_dram")


class Room:
    """Says whether kernels can be one loadable on a board, and what memory it then has.

    Without the user's word on a pool the rule is that of ``edgekit check``: what breaks a limit
    for certain does not fit; where only the size that builds were seen to take is too large, the
    limit is disputed and keeps nothing off the DLA. A pool that the user names is kept to the byte.
    Managed SRAM is a cache: a loadable takes what it is given.
    """

    def __init__(
        self, network: Network, model: CostModel, options: Options, precisions: dict[str, str]
    ) -> None:
        self._network = network
        self._model = model
        self._target = model.target
        self._precisions = precisions
        self._given = dict(options.pools or {})
        self._limits = replace(pool_limits(model.target), **self._given)
        self.batch = {layer.name: loadable_batch(layer, network) for layer in network.layers}
        self._known: dict[frozenset[int], bool] = {}

    def without_limits(self) -> Room:
        """Returns the same for loadables that are given as they are."""
        return _Endless(self._network, self._model, Options(), self._precisions)

    def need(self, layers: Sequence[str]) -> MemoryNeed:
        """Returns the pools of a loadable of these layers."""
        found = loadable_memory(self._network, layers, self._target, self._precisions)
        sram = self._given.get("managed_sram")
        if sram is None or sram >= found.need.managed_sram:
            return found.need
        return replace(found.need, managed_sram=_power_below(sram))

    def holds(self, layers: Sequence[str]) -> bool:
        """Whether these layers can be one loadable."""
        if len({self.batch[name] for name in layers}) > 1:
            return False
        found = loadable_memory(self._network, layers, self._target, self._precisions, self._limits)
        need = found.need.to_json()
        if any(need[name] > size for name, size in self._given.items() if name in DRAM):
            return False
        return not any(one.pool not in self._given for one in found.broken)

    def fits(
        self, kernels: Sequence[Kernel], able: Sequence[bool]
    ) -> Callable[[frozenset[int]], bool] | None:
        """Returns what says whether kernels can be one loadable; None when all ``able`` can."""
        names = [[self._network.layers[i].name for i in kernel.layers] for kernel in kernels]
        everything = [name for own, ok in zip(names, able, strict=True) if ok for name in own]
        if not everything or self.holds(everything):
            return None
        known = self._known

        def one(nodes: frozenset[int]) -> bool:
            if nodes not in known:
                known[nodes] = self.holds([name for v in sorted(nodes) for name in names[v]])
            return known[nodes]

        return one

    def pools(self, kernels: Sequence[Kernel], able: Sequence[bool]) -> tuple[Pool, ...]:
        """Returns the pool of weights, which add up, where it can bind."""
        given = self._given.get("global_dram")
        limit = self._limits.global_dram if given is None else _power_below(given)
        generation = self._target.dla.generation or "2.0"
        needs = tuple(
            float(
                weight_bytes(
                    self._network,
                    [self._network.layers[i] for i in kernel.layers],
                    self._precisions,
                    generation,
                    documented=given is None,
                )
            )
            if ok
            else 0.0
            for kernel, ok in zip(kernels, able, strict=True)
        )
        return (Pool("global_dram", float(limit), needs),) if sum(needs) > limit else ()


class _Endless(Room):
    def fits(self, kernels: Sequence[Kernel], able: Sequence[bool]) -> None:
        """Everything can be one loadable."""

    def pools(self, kernels: Sequence[Kernel], able: Sequence[bool]) -> tuple[Pool, ...]:
        """Nothing binds."""
        return ()


def _power_below(size: int) -> int:
    return 1 << (size.bit_length() - 1) if size > 0 else 0
