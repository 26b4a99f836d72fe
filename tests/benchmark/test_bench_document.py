import pytest
from pydantic import ValidationError

from edgekit.benchmark.document import Bench, bench_document
from edgekit.benchmark.statistics import MeasurementLimits
from edgekit.documents import fault_words
from edgekit.errors import BoardError
from edgekit_device.errors import DeviceError
from tests.benchmark import handmade_plan


def make(**changes):
    return bench_document(handmade_plan.measured(**changes), handmade_plan.plan())


def test_measured_and_predicted_stand_apart_and_say_what_they_are():
    document = make()
    assert document.schema_ == "edgekit.bench/1"
    assert (document.clock, document.kind) == ("cpu-measured", "measured")
    assert "not a board time" in document.note
    assert document.predicted.clock == "predicted"
    assert document.predicted.latency_us == 2412.0
    assert document.predicted.baselines["best_cut"] is None
    assert document.predicted.baselines["gpu_only"].latency_us == 618.0
    assert document.backend == "reference"


def test_statistics_come_from_the_single_times():
    document = make(samples_ms=[1.0, 2.0, 3.0, 4.0], iterations=4, latency_ms={"mean": 99.0})
    assert document.latency_ms["mean"] == 2.5
    assert document.latency_ms["p90"] == 4.0
    assert document.coefficient_of_variation > 0.4


def test_without_single_times_the_loaders_statistics_hold():
    document = make(samples_ms=None)
    assert document.latency_ms["p99"] == 21.1
    assert document.coefficient_of_variation is None
    assert document.verdict.status == "VALID"
    assert document.verdict.unchecked


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"iterations": 9}, "bench.iterations"),
        ({"duration_s": 0.4}, "bench.duration"),
        ({"warmup_ms": 10.0}, "bench.warmup"),
        ({"samples_ms": [1.0, 9.0] * 50}, "bench.unstable"),
    ],
)
def test_a_poor_measurement_is_invalid_with_reason_and_remedy(changes, code):
    verdict = make(**changes).verdict
    assert verdict.status == "INVALID"
    assert [reason.code for reason in verdict.reasons] == [code]
    reason = verdict.reasons[0]
    assert reason.remedy
    assert reason.found != reason.limit


def test_a_board_is_judged_more_strictly_than_a_cpu():
    wobbling = [1.0, 1.1] * 50
    assert make(samples_ms=wobbling).verdict.status == "VALID"
    board = make(samples_ms=wobbling, clock="board-measured")
    assert board.verdict.status == "INVALID"
    assert "not a board time" not in board.note


def test_limits_can_be_set():
    document = bench_document(
        handmade_plan.measured(duration_s=0.1),
        handmade_plan.plan(),
        limits=MeasurementLimits(duration_s=0.05),
    )
    assert document.verdict.status == "VALID"
    assert document.limits.duration_s == 0.05


@pytest.mark.parametrize("bad", [[1.0, -2.0], [float("nan")], ["fast"]])
def test_samples_that_are_no_times_are_refused(bad):
    with pytest.raises(DeviceError) as caught:
        make(samples_ms=bad)
    assert caught.value.where.startswith("samples_ms[")


def test_an_empty_measurement_is_refused():
    with pytest.raises(BoardError) as caught:
        make(samples_ms=[], latency_ms={})
    assert caught.value.code == "bench.empty"


def test_a_surplus_key_is_refused_with_its_place():
    document = make().to_json()
    document["verdict"]["sure"] = True
    with pytest.raises(ValidationError) as caught:
        Bench.model_validate(document)
    assert fault_words(caught.value) == "verdict: unknown: 'sure'"
