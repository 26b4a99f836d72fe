"""The bound by prices against every mix of a few plans."""

import random

import pytest

from edgekit.schedule.own_plans import PricedLoad, least_load


def best_mix(plans):
    """The least largest load of any mix of two plans, which two devices never need more of."""
    best = min(max(gpu, core) for gpu, core in plans)
    for a in plans:
        for b in plans:
            change = (a[0] - a[1]) - (b[0] - b[1])
            share = (b[1] - b[0]) / change if change else -1.0
            if 0 <= share <= 1:
                best = min(best, share * a[0] + (1 - share) * b[0])
    return best


@pytest.mark.parametrize("seed", range(20))
def test_the_bound_is_the_best_mix_of_plans(seed):
    rng = random.Random(seed)
    plans = [(rng.uniform(0, 100), rng.uniform(0, 300)) for _ in range(rng.randrange(1, 7))]

    def cheapest(price):
        gpu, core = min(plans, key=lambda p: price * p[0] + (1 - price) * p[1])
        return PricedLoad(gpu, core, price * gpu + (1 - price) * core)

    assert least_load(cheapest) == pytest.approx(best_mix(plans), rel=1e-5)


def test_bounds_of_searches_that_found_nothing_are_retained():
    assert least_load(lambda price: PricedLoad(0.0, 0.0, 4.0 * price)) == 4.0
