"""The terminal's summary of a measurement, on a board and on a PC."""

import pytest

from edgekit.benchmark.document import BoardName, bench_document
from edgekit.reports.terminal.measurement import bench_text
from edgekit.targets.loader import get
from edgekit_device.benchmark.measurement import Measurement
from edgekit_device.protocol.codec import read
from tests.benchmark import handmade_plan
from tests.benchmark.test_verdict import idle, power, sample
from tests.reports.shown import shown


def rails(draw):
    return {"VDD_GPU_SOC": {"now": draw}, "VDD_CPU_CV": {"now": 1000}, "VIN_SYS_5V0": {"now": 4000}}


def board(**changes):
    samples = [
        sample(t / 10, rails_mw=rails(9000), temperatures_c={"tj": 50.0 + t}) for t in range(31)
    ]
    quiet = [{**idle()[0], "t_s": -2.0 + t / 10, "rails_mw": rails(4000)} for t in range(10)]
    measured = {
        **handmade_plan.measurement(),
        "clock": "board-measured",
        "samples_ms": [2.0, 2.001] * 800,
        "iterations": 1600,
        "monitor": {"samples": samples, "idle": quiet, "facts": {}},
        "power": {**power(), "changed": True},
        "phases_ms": {"compute": {"min": 1.5, "median": 1.6, "p999": 1.9, "max": 2.0}},
        "cold": {"open_ms": 812.0, "first_ms": 12.5},
        **changes,
    }
    target = get("jetson-agx-orin-64gb")
    found = bench_document(
        read(Measurement, measured),
        handmade_plan.plan(),
        name="net",
        board=BoardName(name="lab"),
        target=target,
    )
    return shown(bench_text(found), 100)


def test_a_board_says_all_that_was_seen():
    text = board()
    assert text.splitlines()[0].startswith("net on lab (jetson-agx-orin-64gb, int8): board-meas")
    assert "VALID" in text.splitlines()[1]
    row = next(line for line in text.splitlines() if line.strip().startswith("compute"))
    assert row.split() == ["compute", "1.500", "-", "1.600", "-", "-", "-", "1.900", "2.000"]
    for part in (
        "opened in 812.000 ms",
        "mJ per inference",
        "over idle",
        "VDD_GPU_SOC 9.00 W",
        "GR3D 1300 / 1300",
        "tj at most 80.0 C",
        "MAXN, clocks locked; before MAXN, restored",
    ):
        assert part in " ".join(text.split())


def test_a_percentile_needs_frames_that_are_slower():
    def head(count):
        lines = board(iterations=count).splitlines()
        return next(line.split() for line in lines if line.startswith("ms")), lines

    names, _ = head(150)
    assert "p99.9" not in names  # it would be the slowest frame under another name
    assert [name for name in names if name.endswith("*")] == ["p90*", "p95*", "p99*"]
    names, lines = head(20_000)
    assert "p99.9" in names
    assert not any(line.startswith("* fewer") for line in lines)


def test_what_held_otherwise_than_requested_is_said():
    printed = board(
        streams=[{"stream": n, "iterations": 800, "throughput_qps": 250.0} for n in (0, 1)],
        runtime={"flags": {"graph": False}, "notes": ["left out: graph"]},
        power=power("MODE_30W"),
    )
    text = " ".join(printed.split())
    assert "runtime: left out: graph" in text
    assert "streams: 1: 250/s, 800 frames; 2: 250/s, 800 frames" in text
    assert "MODE_30W, clocks locked; the plan is for MAXN" in text


def test_a_difference_to_idle_that_is_none_is_said():
    draws = [sample(t / 10, rails_mw=rails(9000)) for t in range(31)]
    busy = [{**idle()[0], "t_s": -2.0 + t / 10, "rails_mw": rails(12_000)} for t in range(10)]
    text = " ".join(board(monitor={"samples": draws, "idle": busy, "facts": {}}).split())
    assert "no energy over idle: the board drew 17.00 W before and 14.00 W during" in text
    assert "thereof" not in text


def test_reasons_stand_with_their_remedies():
    lines = board(iterations=3, power={**power("MODE_30W"), "locked": False}).splitlines()
    assert lines[1] == "the measurement is INVALID; do not quote it:"
    assert any("bench.iterations: only 3 iterations" in line for line in lines)
    assert sum("remedy:" in line for line in lines) == 2
    again = next(line for line in lines if "measure again:" in line)
    assert "edgekit bench CONFIG --iterations 10" in again
    assert "--power-mode MAXN" in again


def test_a_cpus_verdict_is_a_footnote():
    measured = handmade_plan.measured(iterations=3)
    lines = shown(bench_text(bench_document(measured, handmade_plan.plan()))).splitlines()
    (verdict,) = (i for i, line in enumerate(lines) if "INVALID" in line)
    assert lines[verdict].startswith("footnote: the reference backend's time on a CPU is INVALID")
    assert verdict > next(i for i, line in enumerate(lines) if line.startswith("throughput:"))
    assert all("edgekit bench CONFIG" in line for line in lines if "remedy:" in line)


def test_a_command_is_one_line_however_long():
    measured = handmade_plan.measured(iterations=3)
    document = bench_document(measured, handmade_plan.plan(), config="x" * 200 + ".yaml")
    again = f"  measure again: edgekit bench {'x' * 200}.yaml --iterations 10"
    assert again in shown(bench_text(document)).splitlines()


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ("my net.yaml", "edgekit bench 'my net.yaml'"),
        ("net.onnx", "edgekit bench net.onnx --target jetson-agx-orin-64gb --precision int8"),
    ],
)
def test_remedies_name_what_was_measured(config, named):
    measured = handmade_plan.measured(iterations=3, duration_s=0.1)
    document = bench_document(measured, handmade_plan.plan(), config=config)
    verdict = document.verdict
    assert verdict.command.startswith(named + " --")
    remedies = [one.remedy for one in verdict.reasons]
    assert len(remedies) == 2
    assert all(one.startswith(f"run {named} --") for one in remedies)
    assert "CONFIG" not in shown(bench_text(document))


def test_a_pc_is_no_board():
    measured = handmade_plan.measured()
    text = shown(bench_text(bench_document(measured, handmade_plan.plan())))
    assert "not a board time" in text
    assert "this CPU" not in text  # it may be a board's far away
    assert "energy" not in text
    assert "not seen:" in text
    assert "nothing was measured" in shown(
        bench_text(bench_document(None, handmade_plan.plan()).model_copy(update={"note": ""}))
    )
