"""Disjoint sets that grow together."""

import random

from edgekit.disjoint_sets import DisjointSets


def test_members_come_in_the_order_of_their_first_ones():
    sets = DisjointSets[str]()
    for names in ("ab", "cd", "ef", "db"):
        sets.join(*names)
    assert sets.members() == (("a", "b", "c", "d"), ("e", "f"))


def test_one_that_was_never_joined_is_a_set_of_its_own():
    sets = DisjointSets[int]()
    sets.join(1, 2)
    sets.join(4)
    assert sets.root(3) == 3
    assert sets.root(1) == sets.root(2)
    assert sets.members() == ((1, 2), (3,))


def test_sets_are_the_connected_components_of_a_graph():
    chance = random.Random(0)
    edges = [(chance.randrange(300), chance.randrange(300)) for _ in range(180)]
    sets, plain = DisjointSets[int](), {key: {key} for key in range(300)}
    for one, other in edges:
        sets.join(one, other)
        merged = plain[one] | plain[other]
        plain.update(dict.fromkeys(merged, merged))
    for key in range(300):
        assert {k for k in range(300) if sets.root(k) == sets.root(key)} == plain[key]


def test_a_long_chain_is_one_set_in_either_direction():
    for keys in (range(100_000), range(100_000, 0, -1)):
        sets = DisjointSets[int]()
        for key in keys:
            sets.join(key, key + 1)
        assert len(sets.members()) == 1
