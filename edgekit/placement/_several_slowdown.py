"""How devices slow each other down on a board, from ``targets/costs/contention.yaml``."""

from __future__ import annotations

from typing import Any

from edgekit.placement._contention import contention_table
from edgekit.placement._costs import cost_data
from edgekit.solver import Slowdown, Workload
from edgekit.targets import Target

__all__ = ["slowdown_of"]


def slowdown_of(target: Target, workload: Workload) -> tuple[Slowdown, dict[str, Any]]:
    """Returns the slowdown by device, and what the plan's document says of it."""
    data = cost_data("contention")
    table = contention_table(target.dla.generation)
    source = data["source"]["measured"].get(target.dla.generation, "")
    cores = frozenset(workload.cores)

    def slowdown(device: int, others: frozenset[int]) -> float:
        beside = ["dla"] * min(2, len(others & cores))
        if others - cores:
            beside.append("gpu")
        if not beside:
            return 1.0
        own = table.get("dla" if device in cores else "gpu", {})
        return float(own.get("+".join(beside), 1.0))

    return slowdown, {"slowdown": table, "source": source}
