"""Energy of an inference: made-up samples whose answer is plain, and a real board's session."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.benchmark.document import bench_document
from edgekit.benchmark.energy import energy
from edgekit.benchmark.monitor import with_release_warning
from edgekit.benchmark.trace.tegrastats import monitor_of_log, read_tegrastats
from edgekit.errors import BoardError, DataError
from edgekit.targets.board import PowerRails
from edgekit.targets.loader import get
from edgekit_device.benchmark.measurement import Measurement
from edgekit_device.board.samples import Monitor
from edgekit_device.errors import DeviceError
from edgekit_device.protocol.codec import read
from tests.security.security_fuzz import times

DATA = Path(__file__).parents[1] / "data" / "orin_jp62_trt103"
RAILS = PowerRails(total=("A", "B"), devices={"DLA": "B"}, inside={"C": "A"}, settle_s=1.0)


def sample(at: float, **rails: float) -> dict[str, Any]:
    """One sample with these rails in mW."""
    return {"t_s": at, "rails_mw": {name: {"now": value} for name, value in rails.items()}}


def monitor(samples: list[dict[str, Any]], **more: Any) -> Monitor:
    """A monitor document."""
    return read(Monitor, {"samples": samples, "idle": [], **more})


def test_power_times_time_over_inferences() -> None:
    steady = [sample(0.1 * n, A=3000, B=1000, C=900) for n in range(21)]
    idle = [sample(-9 + 0.5 * n, A=1000, B=500 if n > 1 else 9000, C=1) for n in range(8)]
    found = energy(monitor(steady, idle=idle), RAILS, 400, 2.0)
    assert found is not None
    total = found.total
    assert total.mean_mw == pytest.approx(4000)
    assert total.uj_per_inference == pytest.approx(4.0 * 2.0 / 400 * 1e6)  # watts, seconds
    assert total.over_idle_uj == pytest.approx((4.0 - 1.5) * 2.0 / 400 * 1e6)
    assert total.rails == ["A", "B"]  # C is a part of A
    assert found.baseline == "idle"
    assert found.by_rail["B"].devices == ["DLA"]
    assert found.by_rail["B"].idle_mw == 500  # the wake of an earlier load is left out
    assert found.by_rail["C"].in_total is False
    assert found.clock == "board-measured"


def test_only_samples_of_the_measured_time_count() -> None:
    around = [sample(0.1 * n, A=400 if 20 <= n <= 40 else 9000, B=0) for n in range(61)]
    found = energy(monitor(around), RAILS, 10, 2.0, begin=2.0)
    assert found is not None
    assert found.total.mean_mw == pytest.approx(400)
    assert found.window_s == pytest.approx([2.0, 4.0])


def test_what_lags_the_load_is_left_out() -> None:
    rising = [sample(0.1 * n, A=100 if n < 10 else 500, B=0) for n in range(30)]
    found = energy(monitor(rising, busy_from_s=0.0), RAILS, 10, 3.0)
    assert found is not None
    assert found.total.mean_mw == pytest.approx(500)
    assert found.window_s[0] == pytest.approx(1.0)
    early = energy(monitor(rising[:8], busy_from_s=0.0), RAILS, 10, 0.7)
    assert early is not None
    assert "had not settled" in early.notes[0]


def test_the_mean_is_over_time_not_over_samples() -> None:
    crowded = [sample(0.0, A=100, B=0), *(sample(1 + n / 1e3, A=300, B=0) for n in range(100))]
    crowded.append(sample(9.0, A=300, B=0))
    found = energy(monitor(crowded), RAILS, 9, 9.0)
    assert found is not None
    assert found.total.mean_mw == pytest.approx((200 * 1 + 300 * 8) / 9, rel=1e-3)


def test_the_least_power_is_the_baseline_where_nothing_was_idle() -> None:
    samples = [sample(-2, A=50, B=50), *(sample(n, A=100, B=100) for n in range(5))]
    found = energy(monitor(samples), RAILS, 4, 4.0)
    assert found is not None
    assert (found.baseline, found.total.idle_mw) == ("floor", 100)
    alike = energy(monitor(samples[1:]), RAILS, 4, 4.0)
    assert alike is not None
    assert (alike.baseline, alike.total.over_idle_uj) == (None, None)


def test_a_single_look_is_no_baseline() -> None:
    samples = [sample(n / 2, A=100, B=100) for n in range(8)]
    idle = [sample(-1 - n, A=10, B=10) for n in range(5)]
    found = energy(monitor(samples, idle=idle), RAILS, 4, 4.0)
    assert found is not None
    assert (found.baseline, found.notes) == ("idle", [])
    few = energy(monitor(samples, idle=idle[:4]), RAILS, 4, 4.0, clock="cpu-measured")
    assert few is not None
    assert (few.baseline, few.total.over_idle_uj) == (None, None)
    assert "only 4 times" in few.notes[0]
    assert few.clock == "cpu-measured"  # the energy of an inference on a CPU is no board's


def test_less_than_at_rest_is_no_energy() -> None:
    samples = [sample(n / 2, A=100, B=100) for n in range(8)]
    idle = [sample(-1 - n, A=90, B=200) for n in range(5)]
    found = energy(monitor(samples, idle=idle), RAILS, 4, 4.0)
    assert found is not None
    assert found.total.over_idle_uj is None
    assert found.by_rail["A"].over_idle_uj == pytest.approx(10e3)  # 10 mW for a second
    assert "no energy over idle" in found.notes[0]


def test_a_missing_rail_gives_no_total_and_says_so() -> None:
    found = energy(monitor([sample(n, A=100) for n in range(5)]), RAILS, 4, 4.0)
    assert found is not None
    assert found.total is None
    assert "B" in found.notes[0]
    assert energy(monitor([{"t_s": 0.0}]), RAILS, 4, 4.0) is None
    assert energy(monitor([sample(0, A=1)]), RAILS, 0, 4.0) is None


def test_a_real_session_agrees_with_its_authors_summary() -> None:
    """DLA 0 of an AGX Orin runs ResNet-50; the author divides by the median while it is busy."""
    said = json.loads((DATA / "conc_solo_dla0.json").read_text("utf-8"))
    rails = get("jetson-agx-orin-64gb").rails
    session = read_tegrastats(DATA / "teg_conc_solo_dla0.log", rails=rails)
    assert session.unknown == {}
    assert session.interval_ms == pytest.approx(100, rel=0.1)
    seconds = 10.0  # of the 20 of which the summary is
    found = energy(
        session,
        rails,
        round(said["aggregate_throughput_qps"] * seconds),
        seconds,
    )
    assert found is not None
    total = found.total
    assert total.uj_per_inference == pytest.approx(
        1e6 / said["aggregate_inf_per_s_per_w"], rel=0.03
    )
    assert total.median_mw == pytest.approx(said["power_steady_mw"], rel=0.001)
    assert (found.baseline, total.idle_mw) == ("floor", said["power_idle_floor_mw"])
    dla = next(one for one in found.by_rail.values() if "DLA" in one.devices)
    assert dla.over_idle_uj > 0.5 * dla.uj_per_inference


def test_a_log_that_was_cut_and_mixed_up() -> None:
    lines = (DATA / "teg_conc_solo_dla0.log").read_text("ascii").splitlines(keepends=True)
    cut = monitor_of_log([*lines[:40], "# a note\n", "\n", "Segmentation fault\n", lines[40][:200]])
    assert len(cut.samples) == 40  # the last one lost its rails
    assert cut.warnings[0].startswith("1 line is none")
    known = monitor_of_log(lines[:9], interval_ms=500)
    assert known.samples[8].t_s - known.samples[0].t_s == pytest.approx(4.0)
    assert monitor_of_log([]).samples == ()


def test_a_file_that_is_no_log(tmp_path: Path) -> None:
    with pytest.raises(DataError) as missing:
        read_tegrastats(tmp_path / "none.log")
    assert missing.value.code == "tegrastats.unreadable"
    (tmp_path / "other.log").write_bytes(b"\xff\x00 hello\n")
    with pytest.raises(DataError) as other:
        read_tegrastats(tmp_path / "other.log")
    assert other.value.code == "tegrastats.none"


def test_a_release_that_nobody_knows_is_reported() -> None:
    for known in ("36.4.3", None):
        assert with_release_warning([], known) == ()
    once = with_release_warning(with_release_warning(["before"], "99.1.0"), "99.1.0")
    assert once[0] == "before"
    assert "99.1.0" in once[1]
    assert len(once) == 2


_ODD: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=3),
    lambda one: (
        st.lists(one, max_size=3) | st.dictionaries(st.sampled_from(["A", "B", "now"]), one)
    ),
    max_leaves=8,
)


@times(50)
@given(_ODD, _ODD, st.floats(allow_nan=False, allow_infinity=False, width=16))
def test_what_a_board_may_send_is_used_or_refused(samples: Any, rails: Any, at: float) -> None:
    listed = [{"t_s": at, "rails_mw": rails}, sample(at + 1, A=1, B=2), samples]
    sampled = {"samples": listed, "idle": samples, "busy_from_s": rails}
    measured = {"latency_ms": {"median": 1.0}, "duration_s": 2.0, "iterations": 3}
    with contextlib.suppress(BoardError, DeviceError):
        found = read(Measurement, {**measured, "monitor": sampled})
        json.dumps(bench_document(found, None).to_json(), allow_nan=False)
