"""``deploy.health``: what it refuses, and that board and host mean the same when it is absent."""

from __future__ import annotations

from typing import Any

import pytest

from edgekit.config.schema import HealthSection
from edgekit_device.errors import DeviceError
from edgekit_device.release.policy import Policy, Timeouts, read_policy


def test_host_and_board_have_the_same_defaults() -> None:
    assert HealthSection().policy() == Policy()


def test_all_of_it_reaches_the_board() -> None:
    section = HealthSection(
        latency_ms=33,
        accuracy_min=0.99,
        samples=4,
        measure_s=2,
        soak_s=30,
        soak_every_s=5,
        refit_s=20,
        test_s=30,
    )
    assert section.policy() == Policy(
        latency_ms=33,
        accuracy_min=0.99,
        measure_s=2,
        soak_s=30,
        soak_every_s=5,
        timeouts=Timeouts(refit_s=20, test_s=30),
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {"accuracy_min": 0.9},
        {"labels": "x.txt"},
        {"latency_ms": 0},
        {"latency_ms": float("inf")},
        {"samples": -1},
        {"soak": 1},
        {"test_s": 0},
    ],
)
def test_what_it_refuses(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="HealthSection"):
        HealthSection(**wrong)


@pytest.mark.parametrize("wrong", [{"latency_ms": float("nan")}, {"soak_s": float("inf")}])
def test_a_board_takes_finite_numbers_alone(wrong: dict[str, float]) -> None:
    with pytest.raises(DeviceError) as caught:
        read_policy(wrong)
    assert caught.value.code == "policy.invalid"
