"""The whole session of a board, where somebody has it: EDGEKIT_LOGS names a folder of logs."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from edgekit.benchmark.energy import energy
from edgekit.benchmark.trace.tegrastats import read_tegrastats
from edgekit.targets.loader import get

FOLDER = os.environ.get("EDGEKIT_LOGS", "")
pytestmark = pytest.mark.skipif(not FOLDER, reason="EDGEKIT_LOGS names no folder of logs")


def test_energy_agrees_with_the_authors_summary() -> None:
    summaries = sorted(Path(FOLDER).rglob("conc_*.json"))
    assert summaries
    rails = get("jetson-agx-orin-64gb").rails
    for path in summaries:
        said = json.loads(path.read_text("utf-8"))
        log = path.with_name(Path(said["tegrastats_log"]).name)
        session = read_tegrastats(log, rails=rails)
        assert len(session.samples) == said["n_samples"]
        seconds = float(said["duration_s"])
        frames = round(said["aggregate_throughput_qps"] * seconds)
        found = energy(session, rails, frames, seconds)
        assert found is not None
        assert found.total.uj_per_inference == pytest.approx(
            1e6 / said["aggregate_inf_per_s_per_w"], rel=0.03
        )
        assert found.total.median_mw == pytest.approx(said["power_steady_mw"], rel=0.01)
        assert found.total.idle_mw == said["power_idle_floor_mw"]
