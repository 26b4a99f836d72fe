"""Smallest conflicting sets, against every subset."""

import itertools
import random

import pytest

from edgekit.solver.optimiser import smallest_conflict


@pytest.mark.parametrize("seed", range(40))
def test_no_smaller_set_conflicts(seed):
    chance = random.Random(seed)
    names = [f"c{i}" for i in range(chance.randint(1, 6))]
    cores = [
        set(chance.sample(names, chance.randint(1, len(names))))
        for _ in range(chance.randint(1, 4))
    ]

    def fails(some) -> bool:
        return any(core <= set(some) for core in cores)

    found, sure = smallest_conflict(names, fails)
    least = min(
        size
        for size in range(1, len(names) + 1)
        for some in itertools.combinations(names, size)
        if fails(some)
    )
    assert sure
    assert fails(found)
    assert len(found) == least


def test_what_comes_first_is_dropped_first():
    assert smallest_conflict(["a", "b"], lambda some: len(some) >= 1)[0] == ["b"]


def test_too_many_sets_are_not_tried():
    names = list(range(40))
    found, sure = smallest_conflict(names, lambda some: len(some) >= 20)
    assert len(found) == 20
    assert not sure
