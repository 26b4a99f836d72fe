"""Attempts that fail, are cancelled, or meet an exception of ours in a callback."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgekit_device.errors import DeviceError
from edgekit_device.jobs.job import JobCancelled
from tests.edgekit_device.build import toys
from tests.edgekit_device.build.bench import Bench, document_for


@pytest.mark.parametrize("version", ["10.3.0", "11.4.0"])
def test_cancelling_stops_at_the_next_step(version: str, tmp_path: Path) -> None:
    on = Bench(version, tmp_path)
    steps: list[int] = []

    def report(done: int, total: int, text: str) -> None:
        steps.append(done)
        on.cancelled = done > 100

    with pytest.raises(JobCancelled):
        on.build(document_for(version), on_progress=report)
    assert max(steps) < 1000
    assert not (tmp_path / "timing.cache").exists()


def test_an_exception_of_ours_in_a_callback_comes_out(tmp_path: Path) -> None:
    on = Bench("10.3.0", tmp_path)

    def report(done: int, total: int, text: str) -> None:
        raise ValueError("no room for news")

    with pytest.raises(DeviceError, match="ValueError: no room for news") as failed:
        on.build(toys.engine(), on_progress=report)
    assert failed.value.code == "build.callback"


def test_a_weights_refused_name_is_no_reason_of_a_later_failure(tmp_path: Path) -> None:
    on = Bench("10.3.0", tmp_path)
    on.double.settings.broken = "Error Code 10: Internal Error (no implementation)"
    document = toys.engine(device="GPU", gpu_fallback=False, refit_individual=["nothing"])
    with pytest.raises(DeviceError, match="no implementation") as failed:
        on.build(document, ("REFIT_INDIVIDUAL",))
    assert "nothing" not in failed.value.message
    assert any("no weights named nothing" in line for line in on.lines)


def test_a_cache_that_is_not_taken_names_the_tensors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on = Bench("10.3.0", tmp_path)
    kind = on.trt.IInt8EntropyCalibrator2

    # a builder that does not like the cache asks for data instead
    from edgekit_device.build import config

    made = config.calibrator

    def refused(trt: Any, cache: bytes, requested: Any) -> Any:
        one = made(trt, cache, requested)
        monkeypatch.setattr(type(one), "read_calibration_cache", lambda self: None)
        assert isinstance(one, kind)
        return one

    monkeypatch.setattr("edgekit_device.build.builder.calibrator", refused)
    with pytest.raises(DeviceError, match="asked for data: no scale for 'c1', 'c2'") as failed:
        on.build(toys.engine())
    assert failed.value.code == "build.calibration"


def test_the_cache_gets_the_header_of_the_boards_release(tmp_path: Path) -> None:
    on = Bench("8.6.1", tmp_path)
    served: list[bytes] = []
    from edgekit_device.build import builder
    from edgekit_device.build.config import calibrator

    made = calibrator
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            builder,
            "calibrator",
            lambda trt, cache, requested: served.append(cache) or made(trt, cache, requested),
        )
        on.build(toys.engine())
    assert served[0].split(b"\n")[0] == b"TRT-8601-EntropyCalibration2"
    assert served[0].split(b"\n")[1:] == toys.cache_text().split(b"\n")[1:]
