"""What a board's benchmark is asked for a configuration's section."""

import io
from types import SimpleNamespace

import pytest
from rich.console import Console

from edgekit.config.schema import BenchSection
from edgekit.errors import EnvironmentLack
from edgekit.pipeline.steps.bench import board_settings, board_tensorrt, report_stages
from edgekit.reports.terminal.progress import Terminal


def requested(backend="tensorrt", tensorrt="10.3.0.30", **section):
    return board_settings(BenchSection(**section), backend=backend, tensorrt=tensorrt)


def test_a_board_is_watched_idle_and_a_pc_is_not():
    assert requested().idle_ms == 2000
    assert requested("reference").monitor_ms == 100
    for settings in (requested("reference"), requested(monitor_ms=0), requested(idle_s=0)):
        assert settings.idle_ms == 0


def test_what_the_board_obeys_goes_along():
    section = {
        "power_mode": "MAXN",
        "lock_clocks": True,
        "spin": False,
        "transfers": False,
        "streams": 3,
        "sleep_ms": 2.0,
    }
    settings = requested(**section)
    assert {name: getattr(settings, name) for name in section} == section


def test_trtexec_is_requested_as_its_release_takes_it():
    assert "--loadEngine={engine}" in requested(with_trtexec=True).trtexec.always
    assert requested().trtexec is None
    with pytest.raises(EnvironmentLack, match="does not report its TensorRT release"):
        requested(tensorrt=None, with_trtexec=True)


def test_the_probe_reports_what_a_hello_does_not():
    def never():
        pytest.fail("asked")

    probe = SimpleNamespace(fingerprint={"tensorrt": "10.3.0.30"})
    constraint = BenchSection(with_trtexec=True)
    assert board_tensorrt(constraint, SimpleNamespace(tensorrt="8.6.2.3"), never) == "8.6.2.3"
    assert board_tensorrt(BenchSection(), None, never) is None
    # a release that was refitted or already serves comes without a hello
    assert board_tensorrt(constraint, None, lambda: probe) == "10.3.0.30"


def test_a_monitor_is_off_or_not_too_quick():
    with pytest.raises(ValueError, match="at least 10"):
        BenchSection(monitor_ms=3)


def test_a_stage_that_nobody_announced_spoils_no_estimate():
    """A bench of 20 s told 2,158 s left with its frames in flight: 1 % seemed done after 21 s."""
    now, out = [100.0], io.StringIO()
    terminal = Terminal(Console(file=out, width=200), verbose=True, clock=lambda: now[0])
    terminal.begin(11, 12, "bench")
    reported = report_stages(terminal.update, lambda: now[0])
    for stage, left, seconds in [
        ("open", None, 1),
        ("warm-up", 20.2, 0.2),
        ("measure", 20.0, 20),
        ("pipelined", 20.0, 20),
        ("layers", None, 5),
    ]:
        reported(stage, left)
        now[0] += seconds
    reported("layers", None)
    lines = [" ".join(line.split()) for line in out.getvalue().splitlines()]
    assert lines == [
        f"[11/12] bench: {news}"
        for news in ("open", "warm-up 5 %", "measure 6 %", "pipelined 51 %", "layers")
    ]
