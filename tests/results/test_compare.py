"""Comparisons find what is there, and not what is not: seeded simulations, refusals, words."""

import json
import random
from dataclasses import replace

import pytest

from edgekit.benchmark.document import Bench
from edgekit.errors import DataError, UsageError
from edgekit.results.comparison import compare
from edgekit.results.selection import read_result
from edgekit.results.store import Result
from tests.results.measurements import bench, bench_json, energy, times


def result(samples, label="x", **changes):
    measured = bench(samples, **{**changes, "samples_ms": None})
    return Result(measured, tuple(samples), label, board="remote:lab")


def pair(seed, ratio=1.0, *, count=400, memory=0.7, spread=0.02):
    sides = (
        times(count, 2.0 * factor, seed=2 * seed + side, memory=memory, spread=spread)
        for side, factor in enumerate((1.0, ratio))
    )
    return [[result(samples, f"s{side}")] for side, samples in enumerate(sides)]


def noisy_run(source, level=2.0, *, label="r", bundle=None, spread=0.03):
    """A run on a noisy machine, which is never faster; single times hardly vary within it."""
    own = level * (1 + abs(source.gauss(0, spread)) + source.expovariate(1 / spread))
    samples = times(60, own, seed=source.randrange(1 << 30), spread=0.002)
    return replace(result(samples, label), bundle=bundle)


def earlier(values, bundle="ab" * 32, **changes):
    """Runs of one release in the history."""
    return [
        replace(
            result(times(60, value, seed=900 + i, spread=0.001), f"#{i}", **changes), bundle=bundle
        )
        for i, value in enumerate(values)
    ]


STEADY = earlier([2.0, 2.01, 1.99, 2.0, 2.005, 1.995])


def test_equal_runs_of_a_noisy_machine_are_seldom_called_different():
    """Of 100 pairs at most 5, with one run a side and with five, and none is a regression."""
    source = random.Random(1)
    single, several = list[str](), list[str]()
    for _ in range(100):
        past = [noisy_run(source, bundle="ab" * 32) for _ in range(8)]
        one, other = ([noisy_run(source)] for _ in range(2))
        single.append(compare(one, other, past=past).direction)
        assert compare(one, other).direction == "unknown"
        five, others = ([noisy_run(source) for _ in range(5)] for _ in range(2))
        several.append(compare(five, others).direction)
    for found in (single, several):
        assert sum(word in ("better", "worse") for word in found) <= 5


def test_five_runs_a_side_find_ten_percent():
    source = random.Random(2)
    found = [
        compare(
            [noisy_run(source) for _ in range(5)],
            [noisy_run(source, 2.2) for _ in range(5)],
        ).verdict
        for _ in range(40)
    ]
    assert found.count("slower") >= 36
    assert "faster" not in found


def test_one_run_a_side_tells_what_exceeds_the_spread_of_earlier_runs_of_one_release():
    a, b = [result(times(60, 2.0, seed=1), "a")], [result(times(60, 2.3, seed=2), "b")]
    alone = compare(a, b)
    assert (alone.verdict, alone.regression, alone.method.name) == ("cannot tell", False, "none")
    assert "measure each side several times" in alone.notes[0]
    found = compare(a, b, past=STEADY)
    assert (found.verdict, found.regression, found.method.name) == ("slower", True, "history")
    assert "6 earlier runs of one release were apart here, up to 1.0 %" in found.notes[0]
    near = [result(times(60, 2.01, seed=3), "c")]
    assert compare(a, near, past=STEADY).verdict == "no difference"
    wide = earlier([2.0, 2.4, 2.1, 2.2])
    assert compare(a, b, past=wide).verdict == "cannot tell"
    assert compare(a, b, past=STEADY[:3]).method.name == "none"
    # runs of releases, of other conditions or much longer ones show nothing
    for past in (
        [replace(one, bundle=f"{i:064}") for i, one in enumerate(STEADY)],
        [replace(one, bundle=None) for one in STEADY],
        earlier([2.0] * 6, power_mode="15W"),
        [result(times(600, 2.0, seed=i), "l") for i in range(6)],
    ):
        assert compare(a, b, past=past).method.name == "none"
    # nor do the runs that are compared
    assert compare(STEADY[:1], STEADY[1:2], past=STEADY[:4]).method.name == "none"


def test_words_and_exit_status_agree_whatever_is_compared():
    source = random.Random(4)
    for _ in range(30):
        past = [noisy_run(source, bundle="ab" * 32) for _ in range(source.choice([0, 4, 8]))]
        count = source.choice([1, 1, 2, 5])
        a, b = (
            [noisy_run(source, 2.0 * factor) for _ in range(count)]
            for factor in (1.0, source.choice([1.0, 1.1, 1.4]))
        )
        found = compare(a, b, past=past)
        assert not found.regression or found.direction == "worse"
        assert (found.ratio.low is None) == (
            found.direction == "unknown" and found.method.name == "none"
        )
        if any("measure each side several times" in note for note in found.notes):
            assert not found.regression


def test_drift_widens_the_interval():
    steady, drifting = times(600, 2.0, seed=5), times(600, 2.0, seed=6)
    drifting = [value * (1 + 0.06 * i / 600) for i, value in enumerate(drifting)]
    past = [replace(result(times(600, 2.0, seed=i), "p"), bundle="ab" * 32) for i in range(20, 26)]
    quiet = compare([result(steady)], [result(times(600, 2.0, seed=7))], past=past).ratio
    found = compare([result(steady)], [result(drifting)], past=past)
    assert found.ratio.high - found.ratio.low > 3 * (quiet.high - quiet.low)
    assert any("drifts by +" in note for note in found.notes)


@pytest.mark.parametrize(
    ("ratio", "verdict", "regression"),
    [(1.2, "slower", True), (0.8, "faster", False), (1.0, "no difference", False)],
)
def test_words_for_latency_and_throughput(ratio, verdict, regression):
    a, b = pair(3, ratio, memory=0.0, count=60)
    for metric in ("median", "latency.mean", "throughput"):
        found = compare(a, b, metric=metric, past=STEADY)
        assert (found.verdict, found.regression) == (verdict, regression)


def test_an_imprecise_measurement_cannot_report():
    found = compare(*pair(1, count=12, spread=0.3))
    assert (found.verdict, found.regression) == ("cannot tell", False)
    assert found.regression_possible


def test_runs_are_what_repeats():
    """Runs differ by 3 %, each alone is sure to 0.1 %: one a side cannot tell."""
    levels = [2.0, 2.06, 1.95, 2.03, 1.98, 2.05, 1.96, 2.02]
    runs = [
        result(times(300, level, seed=i, spread=0.005), f"r{i}") for i, level in enumerate(levels)
    ]
    assert compare(runs[:1], runs[1:2]).verdict == "cannot tell"
    found = compare(runs[:4], runs[4:])
    assert found.direction in ("same", "unknown")
    assert found.method.name == "runs"
    faster = [result([v * 0.8 for v in run.samples], "f") for run in runs[4:]]
    assert compare(runs[:4], faster).verdict == "faster"
    # one new run is believed to vary as the known ones do
    assert compare(runs[:4], runs[4:5]).direction in ("same", "unknown")
    assert compare(runs[:4], faster[:1]).verdict == "faster"


def test_one_odd_run_does_not_decide():
    """The other seven of A say that B is 20 % slower."""
    usual = [2.0, 2.01, 1.99, 2.0, 2.02, 1.98, 2.01]
    sides = [[*usual, 40.0], [1.2 * level for level in (*usual, 2.0)]]
    a, b = (
        [result(times(50, level, seed=seed), f"{level}") for seed, level in enumerate(side)]
        for side in sides
    )
    found = compare(a, b)
    assert (found.verdict, found.regression) == ("slower", True)
    assert found.ratio.estimate == pytest.approx(1.2, rel=0.02)


@pytest.mark.parametrize(
    ("a", "b", "tells"), [(2, 2, True), (1, 3, True), (1, 2, False), (2, 3, True)]
)
def test_few_runs_have_a_wide_interval_and_three_have_none(a, b, tells):
    def runs(count, level):
        return [
            result(times(100, level * (1 + 0.01 * i), seed=i), f"{level} {i}") for i in range(count)
        ]

    assert compare(runs(a, 2.0), runs(b, 2.02)).direction in ("same", "unknown")
    found = compare(runs(a, 2.0), runs(b, 3.0))
    assert (found.verdict == "slower") is tells
    assert any("too few for an interval" in note for note in found.notes) is not tells


@pytest.mark.parametrize("metric", ["throughput", "p99", "energy"])
def test_what_a_run_has_one_value_of_is_compared_with_earlier_runs(metric):
    def run(level, seed, **changes):
        # two streams: the rate is not 1 / latency
        own = {"throughput_qps": 1800.0 / level, "energy": energy(450 * level)}
        return result(times(60, level, seed=seed), f"{seed}", **own, **changes)

    past = [replace(run(2.0 + 0.002 * i, 50 + i), bundle="ab" * 32) for i in range(6)]
    a, b = [run(2.0, 1)], [run(2.4, 2)]
    assert compare(a, b, metric=metric).verdict == "cannot tell"
    assert compare(a, b, metric=metric, past=past).direction == "worse"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {
                "verdict": {
                    "status": "INVALID",
                    "reasons": [{"code": "bench.throttled", "message": "hot"}],
                }
            },
            "throttled",
        ),
        ({"power_mode": "15W"}, "power mode differs: MAXN, 15W"),
        ({"clock": "cpu-measured"}, "the clock differs"),
    ],
)
def test_what_is_not_alike_is_refused(changes, said):
    a, b = result(times(50, 2.0, seed=1), "a"), result(times(50, 2.0, seed=2), "b", **changes)
    with pytest.raises(DataError) as caught:
        compare([a], [b])
    assert said in str(caught.value)
    assert said in " ".join(compare([a], [b], force=True).forced)


def test_a_prediction_is_never_compared():
    a = result([1.0] * 10)
    predicted = Result(a.document.model_copy(update={"clock": "predicted", "latency_ms": None}))
    with pytest.raises(DataError, match="prediction"):
        compare([a], [predicted], force=True)
    for lacking, said in (
        ({}, "no clock and no latency_ms"),
        ({"clock": "cpu-measured"}, "no latency_ms"),
    ):
        with pytest.raises(DataError, match=said) as caught:
            compare(
                [a],
                [Result(Bench.model_validate({"schema": "edgekit.bench/1", **lacking}))],
                force=True,
            )
        assert caught.value.code == "compare.form"


def test_settings_that_differ_are_reported():
    a = result(times(50, 2.0, seed=1))
    b = result(times(50, 2.0, seed=2), settings={"streams": 1, "graph": True, "spin": False})
    found = compare([a], [b]).differences
    assert [one.to_json() for one in found] == [{"what": "settings: graph", "a": "off", "b": "on"}]


def test_a_setting_that_did_not_hold_is_no_difference():
    requested = {"streams": 1, "graph": True, "spin": False}
    flags = {"threads": 0, "graph": False, "spin": None}
    runs = [
        result(times(50, 2.0, seed=seed), settings=settings, runtime={"flags": flags})
        for seed, settings in ((1, requested), (2, {**requested, "graph": False}))
    ]
    assert compare(runs[:1], runs[1:]).differences == []
    held = result(
        times(50, 2.0, seed=3), settings=requested, runtime={"flags": {**flags, "graph": True}}
    )
    (reported,) = compare(runs[:1], [held]).differences
    assert reported.to_json() == {"what": "runtime: flags.graph", "a": "off", "b": "on"}


def test_energy_has_its_own_words():
    def runs(level):
        return [result(times(20, 2.0, seed=i), energy=energy(level + i)) for i in range(4)]

    assert compare(runs(900), runs(700), metric="energy").verdict == "less energy"
    with pytest.raises(DataError, match="no energy"):
        compare([result([1.0])], [result([1.0])], metric="energy")
    with pytest.raises(UsageError, match="no metric"):
        compare([result([1.0])], [result([1.0])], metric="speed")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"schema": "edgekit.bench/1", "samples_ms": [NaN]}',
        "[" * 5000,
        '{"schema": "edgekit.bench/1", "samples_ms": ["1"]}',
        '{"schema": "edgekit.bench/1", "latency_ms": {"median": null}}',
        '{"schema": "edgekit.bench/1", "verdict": 3}',
    ],
)
def test_a_file_that_is_no_measurement(tmp_path, text):
    (tmp_path / "bench.json").write_text(text)
    with pytest.raises(DataError, match=r"not a measurement|the file is not JSON"):
        read_result(tmp_path / "bench.json")


def test_a_run_document_holds_its_measurement(tmp_path):
    path = tmp_path / "run.json"
    path.write_text(json.dumps({"schema": "edgekit.run/1", "bench": bench_json([1.0, 2.0])}))
    assert read_result(path).samples == (1.0, 2.0)
