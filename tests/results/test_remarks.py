"""What a comparison says of its runs: a value that is bench's, drift, few times, the same run."""

from dataclasses import replace

import pytest

from edgekit.results.comparison import compare, drift
from edgekit_device.benchmark.statistics import summary as latency_summary
from tests.results.measurements import times
from tests.results.test_compare import result


@pytest.mark.parametrize("count", [8, 9, 40, 41, 164])
@pytest.mark.parametrize("metric", ["median", "mean", "p90"])
def test_a_value_is_what_bench_calls_so(count, metric):
    samples = times(count, 120.0, seed=count, spread=0.2)
    found = compare([result(samples)], [result(samples[::-1])], metric=metric)
    assert found.a.value == pytest.approx(latency_summary(samples)[metric], rel=1e-12)
    assert found.ratio.estimate == pytest.approx(1)


def test_noise_is_seldom_called_a_drift():
    """Of 40 runs as noisy as those of a busy machine the thirds' medians of most differ by 2 %."""
    runs = [times(90, 100.0, seed=seed, spread=0.25, memory=0.5) for seed in range(40)]
    assert sum(drift(samples) is not None for samples in runs) <= 3
    steps = [value * (1 + 0.1 * i / 600) for i, value in enumerate(times(600, 2.0, seed=1))]
    assert drift(steps) == pytest.approx(0.067, abs=0.01)
    rising = compare([result(times(600, 2.0, seed=2), "a")], [result(steps, "b")]).notes
    falling = compare([result(times(600, 2.0, seed=2), "a")], [result(steps[::-1], "b")]).notes
    assert any("drifts by +" in note and "hot" in note for note in rising)
    assert any("drifts by -" in note and "not warmed up" in note for note in falling)


def test_a_run_with_itself_is_noticed_under_any_name():
    samples = times(100, 2.0, seed=1)
    same = compare([result(samples, "#4")], [result(samples, "bench.json")]).notes
    other = compare([result(samples, "#4")], [result(times(100, 2.0, seed=2), "#5")]).notes
    assert any("the same measurement" in note for note in same)
    assert not any("the same measurement" in note for note in other)


def test_what_a_side_does_not_report_is_no_difference():
    samples = times(40, 2.0, seed=1)
    bare = result(samples, "bench.json")
    reported = replace(bare, label="#4", bundle="ab" * 32, fingerprint={"numpy": "2.0"})
    found = compare([bare], [reported])
    assert found.differences == []
    assert "not known for A: bundle, fingerprint: numpy" in found.notes
    other = replace(bare, label="#5", bundle="cd" * 32, fingerprint={"numpy": "2.1"})
    assert [one.what for one in compare([reported], [other]).differences] == [
        "bundle",
        "fingerprint: numpy",
    ]
