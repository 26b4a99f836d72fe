"""What is proposed reaches the accuracy, and none of it can be left out."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.reference.accuracy import Accuracy
from edgekit.reference.proposal import propose, reaches, shortfall
from edgekit.reference.sensitivity import Impact


def accuracy_of(
    cosine: float = 1.0, snr_db: float | None = None, *, judged: bool = True, failures=()
) -> Accuracy:
    return Accuracy(
        cosine=cosine,
        cosine_min=cosine,
        snr_db=snr_db,
        exact=False,
        max_abs=0.1,
        judged=judged,
        top1_agreement=1.0,
        count=1,
        nonfinite=(),
        constant=(),
        groups=(),
        scores=(),
        failures=failures,
        per_segment=(),
    )


def ranking(count: int) -> list[Impact]:
    return [Impact((f"k{n}",), "GPU", 20.0 + n, 0.9, 0.9, 0.1, 1.0) for n in range(count)]


class Builds:
    """Kernels whose errors add up; those kept in FP16 have a small one."""

    def __init__(self, errors: Mapping[str, float], left: float = 0.0) -> None:
        self.errors = errors
        self.left = left
        self.requested: list[frozenset[str]] = []

    def __call__(self, layers: frozenset[str]) -> Accuracy:
        assert layers not in self.requested, "no build is measured twice"
        self.requested.append(layers)
        return accuracy_of(self.value(layers))

    def value(self, layers: frozenset[str]) -> float:
        error = sum(self.left if name in layers else e for name, e in self.errors.items())
        return 1.0 - error


# the first draw of a process takes seconds on a busy machine
@given(st.lists(st.integers(0, 100), min_size=1, max_size=40), st.integers(500, 1000))
def test_it_reaches_the_accuracy_and_each_kernel_is_needed(thousandths, limit) -> None:
    """Also where the ranking, measured kernel by kernel, is not the order of their shares."""
    errors, minimum = [value / 1000 for value in thousandths], limit / 1000
    builds = Builds({f"k{n}": error for n, error in enumerate(errors)})
    found = propose(ranking(len(errors)), builds, metric="cosine", minimum=minimum, most=10_000)
    assert found.layers is not None
    assert found.minimal
    chosen = frozenset(found.layers)
    assert builds.value(chosen) >= minimum
    assert found.accuracy.cosine == builds.value(chosen)
    assert found.int8.cosine == builds.value(frozenset())
    assert found.builds == len(builds.requested)
    for name in chosen:
        assert builds.value(chosen - {name}) < minimum
        assert chosen - {name} in builds.requested, "each was left out in a build"


@given(st.integers(1, 8), st.data())
def test_what_is_proposed_passed_whatever_the_builds_say(count, data) -> None:
    """Errors can cancel each other, so fewer INT8 kernels need not be better."""
    answers: dict[frozenset[str], float] = {}

    def measure(layers: frozenset[str]) -> Accuracy:
        answers[layers] = data.draw(st.sampled_from([0.1, 0.9]))
        return accuracy_of(answers[layers])

    found = propose(ranking(count), measure, metric="cosine", minimum=0.5, most=10_000)
    if found.layers is None:
        assert answers[frozenset(f"k{n}" for n in range(count))] == 0.1
        return
    chosen = frozenset(found.layers)
    assert answers[chosen] == 0.9
    assert all(answers[chosen - {name}] == 0.1 for name in chosen)


def test_few_builds_find_one_culprit_of_many() -> None:
    errors = dict.fromkeys((f"k{n}" for n in range(64)), 0.0)
    builds = Builds({**errors, "k0": 0.5})
    found = propose(ranking(64), builds, metric="cosine", minimum=0.99)
    assert found.layers == ("k0",)
    assert len(builds.requested) == 3


def test_all_in_fp16_that_misses_is_reported_with_the_numbers() -> None:
    found = propose(
        ranking(3),
        Builds(dict.fromkeys(("k0", "k1", "k2"), 0.1), left=0.01),
        metric="cosine",
        minimum=0.99,
    )
    assert found.layers is None
    assert found.kernels == 3
    assert "0.7 in INT8 and 0.97 with all 3" in shortfall(found)


def test_too_many_builds_end_the_search_and_are_reported() -> None:
    builds = Builds({f"k{n}": 0.01 for n in range(40)})
    found = propose(ranking(40), builds, metric="cosine", minimum=0.75, most=12)
    assert found.layers is not None
    assert builds.value(frozenset(found.layers)) >= 0.75
    assert not found.minimal
    assert found.builds <= 12


def test_a_network_of_many_kernels_takes_no_build_for_each() -> None:
    builds = Builds({f"k{n}": 0.01 if n % 2 else 0.0 for n in range(200)})
    found = propose(ranking(200), builds, metric="cosine", minimum=0.5)
    assert found.layers is not None
    assert builds.value(frozenset(found.layers)) >= 0.5
    assert found.builds == len(builds.requested) < 50
    assert not found.minimal


def test_layers_retained_whatever_is_found_are_in_every_build() -> None:
    errors = {"a": 0.4, "k0": 0.2, "k1": 0.01}
    builds = Builds(errors)
    found = propose(ranking(2), builds, metric="cosine", minimum=0.9, keep=frozenset({"a"}))
    assert found.layers == ("a", "k0")
    assert all("a" in layers for layers in builds.requested)


@pytest.mark.parametrize(
    ("value", "minimum", "passes"),
    [(30.0, 30.0, True), (29.9, 30.0, False), (None, 99.0, True), (-999.0, None, True)],
)
def test_a_gate(value, minimum, passes) -> None:
    assert reaches(accuracy_of(snr_db=value), "snr_db", minimum) is passes


def test_a_gate_does_not_judge_by_figures_that_say_nothing() -> None:
    assert reaches(accuracy_of(0.95, judged=False), "cosine", 0.99)
    assert not reaches(accuracy_of(0.95), "cosine", 0.99)
    lost = accuracy_of(0.95, judged=False, failures=("the cosine of tensor 'y' is 0.5",))
    assert not reaches(lost, "cosine", 0.4)
