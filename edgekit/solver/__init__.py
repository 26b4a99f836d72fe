"""The exact optimiser for placement problems, whatever network they come from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit._lazy import lazy

if TYPE_CHECKING:
    from edgekit.solver._chain import chain_optimum
    from edgekit.solver._problem import (
        OUTSIDE,
        Border,
        Cost,
        Goal,
        Mode,
        Optimum,
        Placing,
        Pool,
        Problem,
        Step,
        Transfer,
        metrics,
    )

__all__ = [
    "OUTSIDE",
    "Border",
    "Cost",
    "Goal",
    "Mode",
    "Optimum",
    "Placing",
    "Pool",
    "Problem",
    "Step",
    "Transfer",
    "chain_optimum",
    "metrics",
]

__getattr__ = lazy(
    __name__,
    {
        "_chain": "chain_optimum",
        "_problem": (
            "OUTSIDE Border Cost Goal Mode Optimum Placing Pool Problem Step Transfer metrics"
        ),
    },
)
