"""Ties go to the better whole: plans within a slack of the optimum, and what is said of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edgekit.dla.judge import judge
from edgekit.network.lowering.layers import layers
from edgekit.network.zoo import builtin
from edgekit.placement.explanation import explain_layer
from edgekit.placement.placing import PlacementQuery, place
from edgekit.placement.plan import OBJECTIVES, Options, Plan, plan_from_json, plan_value
from edgekit.targets.loader import get

BOARD = get("jetson-agx-orin-64gb")


@pytest.fixture(scope="module")
def query() -> PlacementQuery:
    network = layers(builtin("light_inception_v1", 0))
    judgement = judge(network, BOARD, precision="int8")
    return PlacementQuery(network, judgement, BOARD, "int8", None, Options(objective="gpu_time"))


def planned(query: PlacementQuery, objective: str, slack: float) -> Plan:
    return place(
        query.network,
        query.judgement,
        BOARD,
        precision="int8",
        options=replace(query.options, objective=objective, slack=slack),
    )


@pytest.mark.few(2)
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_plan_within_the_slack_is_better_otherwise_and_the_optimum_stays_proved(
    query: PlacementQuery, objective: str
) -> None:
    strict, other = (planned(query, objective, slack) for slack in (0.0, 0.03))
    assert strict.slack is not None
    assert other.slack is not None
    assert strict.slack.given_up == 0
    assert strict.slack.optimum == pytest.approx(plan_value(strict))
    assert (other.bound, other.gap, other.optimal) == (strict.bound, strict.gap, strict.optimal)
    assert other.slack.optimum == strict.slack.optimum
    assert other.slack.given_up <= 0.03
    away = abs(plan_value(other) - plan_value(strict)) / plan_value(strict)
    assert away == pytest.approx(other.slack.given_up, abs=1e-6)
    ours, best = (getattr(one.predicted, other.slack.metric) for one in (other, strict))
    assert best == other.slack.at_optimum
    assert ours < best if other.slack.given_up else ours == best
    assert plan_from_json(other.to_json()) == other


def test_a_little_gpu_time_buys_latency_and_the_plan_says_so(query: PlacementQuery) -> None:
    strict, other = (planned(query, "gpu_time", slack) for slack in (0.0, 0.03))
    assert other.predicted.latency_us < 0.98 * strict.predicted.latency_us
    assert other.predicted.gpu_us > strict.predicted.gpu_us
    assert any("placement.slack" in note for note in other.notes)
    assert not any("placement.slack" in note for note in strict.notes)
    moved = next(
        one.name
        for one, was in zip(other.layers, strict.layers, strict=True)
        if one.device != was.device
    )
    options = replace(query.options, slack=0.03)
    because = explain_layer(replace(query, options=options), other, moved).because
    assert any("placement.slack" in sentence for sentence in because)


def test_more_slack_is_never_slower(query: PlacementQuery) -> None:
    latencies = [
        planned(query, "gpu_time", slack).predicted.latency_us for slack in (0.0, 0.01, 0.1, 1.0)
    ]
    assert latencies == sorted(latencies, reverse=True)
    assert latencies[-1] < latencies[0]
