"""The smallest set of wishes that conflict, against all subsets."""

import itertools
import random

import pytest

from edgekit.errors import GateError
from edgekit.placement.placing import find_conflict
from edgekit.placement.plan import Options, Pin
from tests.placement.queries import query_for, with_options


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return query_for(tmp_path_factory.mktemp("small"))


def holds(one, **options) -> bool:
    try:
        one.plan(Options(**options))
    except GateError:
        return False
    return True


def options_of(constraints) -> dict:
    """Options from (kind, ...) tuples, as a user would write them."""
    made: dict = {"bounds": {}, "pins": ()}
    for kind, *rest in constraints:
        if kind == "bound":
            made["bounds"][rest[0]] = rest[1]
        elif kind == "pin":
            made["pins"] += (Pin(*rest),)
        else:
            made[kind] = rest[0]
    return made


def test_what_can_hold_has_no_conflict(small):
    assert find_conflict(with_options(small, bounds={"latency_us": 1e6}, max_transitions=4)) is None


def test_a_bound_alone_says_what_can_be_had(small):
    best = small.plan().predicted.latency_us
    found = find_conflict(with_options(small, bounds={"latency_us": best / 2}, max_transitions=9))
    assert [constraint.text for constraint in found.constraints] == [
        f"bound latency_us={best / 2:.10g}"
    ]
    assert found.smallest
    assert found.best["latency_us"] == pytest.approx(best, rel=1e-6)
    assert holds(small, bounds={"latency_us": found.best["latency_us"] * 1.0001})


def test_a_pin_against_a_verdict_names_the_rule(small):
    found = find_conflict(with_options(small, pins=(Pin("softmax", "DLA"), Pin("conv1", "GPU"))))
    (constraint,) = found.constraints
    assert constraint.text == "pin softmax=DLA"
    assert constraint.why.startswith("softmax: ")


def test_a_later_pin_takes_layers_from_an_earlier_one(small):
    # the first pin would conflict, but the second one takes its layer from it
    pins = (Pin("softmax", "DLA"), Pin("*", "GPU"))
    found = find_conflict(with_options(small, pins=pins, bounds={"gpu_us": 1.0}))
    assert "pin softmax=DLA" not in [constraint.text for constraint in found.constraints]


@pytest.mark.few(2)
@pytest.mark.parametrize("seed", range(5))
def test_no_smaller_set_conflicts(small, seed):
    chance = random.Random(seed)
    latency = small.plan().predicted.latency_us
    gpu = small.plan(Options(objective="gpu_time")).predicted.gpu_us
    everything = [
        ("bound", "latency_us", latency * chance.choice([0.9, 1.0001, 1.1])),
        ("bound", "gpu_us", gpu * chance.choice([0.9, 1.0001, 1.1])),
        ("pin", "conv1", chance.choice(["GPU", "DLA0"])),
        ("pin", "fc", chance.choice(["GPU", "DLA"])),
        ("max_transitions", chance.choice([0, 1, 2])),
    ]
    failing = [
        some
        for size in range(len(everything) + 1)
        for some in itertools.combinations(everything, size)
        if not holds(small, **options_of(some))
    ]
    found = find_conflict(with_options(small, **options_of(everything)))
    if tuple(everything) not in failing:
        assert found is None
        return
    assert found.smallest
    assert len(found.constraints) == min(map(len, failing))
