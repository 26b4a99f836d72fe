"""How little work the busiest device can have, by prices of the devices' time.

Whatever runs where, the busiest device works at least a weighted mean of what all do. For given
weights (prices of a microsecond of the GPU and of the cores) that mean is least when each network
takes its cheapest plan, so that networks are independent of each other and every price gives a
bound (Lagrange); the best one is that of the linear programme over all plans.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Load", "least_load"]

_ROUNDS = 8


@dataclass(frozen=True, slots=True)
class Load:
    """The GPU's time, the mean time of a core, and what is proved of their weighted sum."""

    gpu_us: float
    core_us: float
    bound: float

    def at(self, price: float) -> float:
        """Returns the weighted sum at another price of the GPU."""
        return price * self.gpu_us + (1 - price) * self.core_us


def least_load(cheapest: Callable[[float], Load]) -> float:
    """Returns a lower bound of the busiest device's load.

    ``cheapest`` takes the price of the GPU (the cores' is 1 less that) and returns the plans with
    the least weighted sum. The sum as a function of the price is concave, and each answer is a
    line above it; the next price is where the lines of either side cross (Kelley, 1960).
    """
    left, right = cheapest(0.0), cheapest(1.0)
    best = max(left.bound, right.bound)
    for _ in range(_ROUNDS):
        up, down = left.gpu_us - left.core_us, right.core_us - right.gpu_us
        if up <= 0 or down <= 0:
            break
        price = min(1.0, max(0.0, (right.core_us - left.core_us) / (up + down)))
        found = cheapest(price)
        best = max(best, found.bound)
        if found.at(price) >= left.at(price) * (1 - 1e-6):
            break
        if found.gpu_us > found.core_us:
            left = found
        else:
            right = found
    return best
