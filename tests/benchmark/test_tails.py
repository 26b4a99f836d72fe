"""Which percentiles a number of frames does not bear."""

import pytest

from edgekit.benchmark.statistics import sparse_percentiles
from edgekit.reports.text import percentile_cell
from edgekit_device.benchmark.statistics import summary as latency_summary


@pytest.mark.parametrize(
    ("frames", "empty", "few"),
    [
        (9, "p90 p95 p99 p999", ""),
        (10, "p95 p99 p999", "p90"),
        (199, "p999", "p90 p95 p99"),
        (200, "p999", "p95 p99"),
        (999, "p999", "p99"),
        (2000, "", "p999"),
        (20_000, "", ""),
    ],
)
def test_percentiles_need_frames_beyond(frames, empty, few):
    assert sparse_percentiles(frames) == (tuple(empty.split()), tuple(few.split()), 20)
    summary = latency_summary(range(frames))
    # one that is called empty is the maximum, and no other is
    tops = [name for name in ("p90", "p95", "p99", "p999") if summary[name] == summary["max"]]
    assert tops == empty.split()


def test_a_table_s_cell_says_how_sure_a_percentile_is() -> None:
    cells = [percentile_cell(1.5, "p99", frames) for frames in (50, 1000, 5000)]
    assert cells == ["-", "1.500*", "1.500"]
    assert percentile_cell(None, "p99", 5000) == "-"
