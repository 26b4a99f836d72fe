"""Each reason against a measurement fires for its cause alone, and says what to do."""

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgekit.benchmark.document import bench_document
from edgekit.benchmark.statistics import MeasurementLimits, limit
from edgekit.errors import BoardError
from edgekit.targets.loader import get
from edgekit_device.benchmark.measurement import Measurement
from edgekit_device.errors import DeviceError
from edgekit_device.protocol.codec import read
from tests.benchmark import handmade_plan
from tests.tries import tries

STEADY = [1.0, 1.001] * 1500
_CONSOLE = "[02/03/2026-10:00:00] [I] Latency: min = 0.1 ms, median = {:.4f} ms"
CALM = {"percent": 0.0, "mhz": 1728}


def sample(t_s, gpu=1300, dla=1600, emc=3199, **changes):
    return {
        "t_s": t_s,
        "cpu": [CALM, {"percent": 40.0, "mhz": 1728}],
        "engines": {
            "GR3D": {"on": True, "percent": 50.0, "mhz": [gpu, gpu]},
            "NVDLA0": {"on": True, "percent": None, "mhz": [dla]},
            "EMC": {"on": True, "percent": 9.0, "mhz": [emc]},
        },
        "swap": {"used_bytes": 0, "total_bytes": 1 << 30},
        "other": {"process_percent": 38.0, "cooling": {}, "overcurrent_events": {"oc1": 3}},
        **changes,
    }


def idle():
    calm = {"GR3D": {"on": True, "percent": 0.0, "mhz": [305]}}
    return [{"t_s": -2.0, "cpu": [CALM, CALM], "engines": calm}]


def power(mode="MAXN", **during):
    read = {"name": mode, "id": 0}
    return {
        "mode": {"before": read, "during": read, "after": read},
        "clocks": {"during": during},
        "locked": True,
        "restored": True,
        "notes": [],
    }


def judged(samples=None, target="jetson-agx-orin-64gb", **changes):
    facts = {
        **handmade_plan.measurement(),
        "clock": "board-measured",
        "samples_ms": STEADY,
        "segments": [
            {"lane": 0, "index": i, "device": device, "latency_ms": {"median": 0.5}}
            for i, device in enumerate(("GPU", "DLA0", "GPU"))
        ],
        "monitor": {
            "samples": samples or [sample(t / 10) for t in range(30)],
            "idle": idle(),
            "facts": {},
        },
        "power": power(),
        **changes,
    }
    plan = handmade_plan.plan()
    return bench_document(read(Measurement, facts), plan, target=get(target)).verdict


def codes(**changes):
    verdict = judged(**changes)
    assert all(reason.remedy and reason.message for reason in verdict.reasons)
    return [reason.code for reason in verdict.reasons]


def moved(key, value):
    return [sample(0.1), sample(0.2, **{key: value}), sample(0.3)]


def test_a_watched_and_steady_measurement_is_valid():
    verdict = judged()
    assert verdict.to_json() == {"status": "VALID", "reasons": [], "unchecked": [], "command": ""}


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"samples": moved("gpu", 918)}, "bench.clocks-moved"),
        ({"samples": moved("dla", 1369)}, "bench.clocks-moved"),
        ({"samples": moved("emc", 2133)}, "bench.clocks-moved"),
        ({"samples": [sample(t, dla=614) for t in (0.1, 0.2)]}, "bench.dla-clock"),
        ({"samples": moved("other", {"cooling": {"cpu-throttle-alert": 1}})}, "bench.throttled"),
        (
            {"samples": [sample(0.1), sample(0.2, other={"overcurrent_events": {"oc1": 4}})]},
            "bench.throttled",
        ),
        ({"samples": moved("swap", {"used_bytes": 5 << 20})}, "bench.swap"),
        ({"samples": [sample(0.1, cpu=[{"percent": 90.0}] * 4)] * 2}, "bench.other-load"),
        ({"samples_ms": [1.0] * 97 + [4.0] * 3, "clock": "cpu-measured"}, "bench.unstable"),
        ({"samples_ms": [1.0] * 95 + [1.6] * 5, "clock": "board-measured"}, "bench.outliers"),
    ],
)
def test_each_cause_has_its_reason(changes, code):
    assert code in codes(**changes)
    if code not in ("bench.unstable", "bench.outliers"):
        assert codes(**changes) == [code]


def test_what_happens_outside_the_measured_frames_does_not_count():
    around = [sample(-0.5, gpu=305), *[sample(t / 10) for t in range(30)], sample(60.0, gpu=305)]
    assert codes(samples=around) == []


def test_a_gpu_that_nothing_used_may_sleep():
    alone = [{"lane": 0, "index": 0, "device": "DLA0", "latency_ms": {"mean": 0.5}}]
    samples = [sample(t / 10, gpu=0 if t % 2 else 305) for t in range(10)]
    assert codes(samples=samples, segments=alone) == []
    assert codes(samples=[sample(t / 10, gpu=305 + 100 * (t % 2)) for t in range(10)]) == [
        "bench.clocks-moved"
    ]


def test_the_default_mode_of_agx_xavier_is_reported_with_its_dla_clock():
    xavier = [sample(t / 10, dla=115.2) for t in range(10)]
    verdict = judged(samples=xavier, target="jetson-agx-xavier", power=power("MODE_15W_DESKTOP"))
    by_code = {reason.code: reason for reason in verdict.reasons}
    assert set(by_code) == {"bench.power-mode", "bench.dla-clock"}
    assert "115 MHz" in by_code["bench.power-mode"].message
    assert "--power-mode MAXN" in by_code["bench.power-mode"].remedy
    assert by_code["bench.dla-clock"].found == 115.2
    # the clock is known from the mode where nothing showed it
    blind = judged(samples=[{"t_s": 0.1}], target="jetson-agx-xavier", power=power("15w_desktop"))
    assert "bench.dla-clock" in {reason.code for reason in blind.reasons}


def test_what_nobody_saw_is_reported():
    verdict = judged(monitor=None, power=None)
    assert verdict.status == "VALID"
    unchecked = " ".join(verdict.unchecked)
    for word in (
        "power mode",
        "clock of GPU",
        "clock of DLA0",
        "EMC",
        "throttling",
        "swap",
        "other CPU load",
        "other GPU load",
    ):
        assert word in unchecked


def test_a_board_that_was_seen_and_reported_nothing_is_not_called_calm():
    # samples with their times alone, as a sampler in a container has them
    blind = [{"t_s": t / 10} for t in range(30)]
    found = judged(monitor={"samples": blind, "idle": [{"t_s": -1.0}], "facts": {}}, power=None)
    assert found.unchecked == [
        text.replace("not sampled before the measurement (--idle)", "not reported by any monitor")
        for text in judged(monitor=None, power=None).unchecked
    ]


def test_a_pc_is_judged_by_what_a_pc_has():
    verdict = judged(clock="cpu-measured", monitor=None, power=None)
    unchecked = " ".join(verdict.unchecked)
    assert "swap" in unchecked
    assert not any(word in unchecked for word in ("DLA", "power mode", "throttling"))


def test_trtexec_is_agreed_with_or_said_to_differ():
    def engines(*shares):
        return {
            "why": None,
            "engines": [
                {
                    "lane": 0,
                    "index": i,
                    "device": "GPU",
                    "console": _CONSOLE.format(0.5 / (1 + share)),
                    "why": None,
                }
                if share is not None
                else {
                    "lane": 0,
                    "index": i,
                    "device": "DLA0",
                    "why": "trtexec cannot run a DLA loadable",
                }
                for i, share in enumerate(shares)
            ],
        }

    assert codes(trtexec=engines(0.01, -0.02)) == []
    assert codes(trtexec=engines(0.01, -0.2)) == ["bench.trtexec-differs"]
    assert "DLA0 segment 1: trtexec cannot" in judged(trtexec=engines(0, None)).unchecked[0]
    lost = judged(trtexec={"why": "there is no trtexec", "engines": []})
    assert lost.unchecked == ["trtexec's times: there is no trtexec"]


def test_every_limit_names_a_source_that_is_explained():
    from edgekit.knowledge import data_folder, read_knowledge

    file = read_knowledge(data_folder("targets") / "_bench.yaml")
    for name, row in file["limits"].items():
        assert row["what"], name
        assert set(row["source"]) <= set(file["sources"]), name
    assert (
        MeasurementLimits().iterations,
        MeasurementLimits().duration_s,
        MeasurementLimits().warmup_ms,
    ) == (10, 3.0, 200.0)
    assert limit("variation", "cpu-measured") > limit("variation", "board-measured")


_NAMES = st.sampled_from(
    [
        "t_s",
        "engines",
        "GR3D",
        "mhz",
        "cpu",
        "percent",
        "other",
        "cooling",
        "swap",
        "mode",
        "during",
        "name",
        "clocks",
        "samples",
        "idle",
        "facts",
        "clock_caps_hz",
        "console",
    ]
)
_JUNK = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=tries(40))
@given(
    st.fixed_dictionaries(
        {}, optional=dict.fromkeys(("monitor", "power", "trtexec", "segments"), _JUNK)
    ),
    _JUNK,
)
def test_what_another_loader_writes_is_judged_or_refused(changes, odd):
    if isinstance(changes.get("monitor"), dict):
        one = sample(**{"t_s": 0.1, **odd}) if isinstance(odd, dict) else odd
        changes["monitor"]["samples"] = [one]
    with contextlib.suppress(BoardError, DeviceError):
        facts = read(
            Measurement, {**handmade_plan.measurement(), "clock": "board-measured", **changes}
        )
        bench_document(facts, handmade_plan.plan(), target=get("jetson-agx-xavier"))


def remedy(code, **changes):
    return next(one.remedy for one in judged(**changes).reasons if one.code == code)


def test_no_remedy_is_one_that_does_not_help():
    free = {**power(), "locked": False}
    varies = {"samples_ms": [1.0, 1.3] * 1500}
    assert "--lock-clocks" in remedy("bench.unstable", power=free, **varies)
    assert "--lock-clocks" not in remedy("bench.unstable", **varies)
    pc = {"samples_ms": [1.0, 2.0] * 1500, "clock": "cpu-measured", "power": None}
    assert "clocks" not in remedy("bench.unstable", **pc)
    assert "measure with" not in remedy("bench.clocks-moved", samples=moved("gpu", 918))
    # jetson_clocks leaves a DLA's clock alone
    slow = {"samples": [sample(t, dla=614) for t in (0.1, 0.2)]}
    for mode in ("MAXN", "MODE_30W"):
        hint = remedy("bench.dla-clock", power={**power(mode), "locked": False}, **slow)
        assert "--lock-clocks" not in hint
        assert ("--power-mode MAXN" in hint) is (mode != "MAXN")


def test_the_power_mode_is_the_measured_one():
    plan, board = handmade_plan.plan(), get("jetson-agx-orin-64gb")
    facts = handmade_plan.measured(power=power("MODE_30W"))
    found = bench_document(facts, plan, target=board)
    assert (found.power_mode, found.planned_power_mode) == ("MODE_30W", "MAXN")
    (unchecked,) = [one for one in found.verdict.unchecked if "power mode" in one]
    assert "MODE_30W" in unchecked
    assert "MAXN" in unchecked
    pc = bench_document(handmade_plan.measured(), plan, target=board)
    assert (pc.power_mode, pc.planned_power_mode) == (None, "MAXN")
    assert "power mode" not in " ".join(pc.verdict.unchecked)
