"""tune on the reference backend, with devices that wait as the test says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import edgekit_device
from edgekit.benchmark.document import Bench, bench_document
from edgekit.config.loader import open_config
from edgekit.errors import DataError
from edgekit.pipeline.cache import Cache
from edgekit.pipeline.pipeline import Pipeline
from edgekit.pipeline.steps.calibrate import calibration_inputs
from edgekit.pipeline.steps.plan import query, with_plan
from edgekit.placement.placing import PlacementQuery
from edgekit.placement.plan import Plan
from edgekit.placement.profiles.reader import read_profile
from edgekit.tuning.candidates import plan_signature
from edgekit.tuning.document import Tuned
from edgekit.tuning.run import tune
from edgekit.tuning.session import Tuning
from edgekit.tuning.trials import TuningRequest
from edgekit_device.benchmark.measure import bench
from edgekit_device.benchmark.settings import BenchSettings
from tests.edgekit_device.segment_waits import make_segments_wait
from tests.pipeline.nets import small_config
from tests.tuning.tune_world import every_plan

# microseconds, far above what the network takes and a busy machine adds
WAITS_US = {"GPU": {"Conv": 30_000, "Gemm": 2_000}, "DLA": {"Conv": 5_000, "Gemm": 60_000}}


def waits_us(device: str, ops: Sequence[str]) -> float:
    """What a segment of a device waits for its operators, in microseconds."""
    return sum(WAITS_US[device.rstrip("01")].get(op, 0) for op in ops)


class Reference:
    """Builds plans as the pipeline does and measures them in this process."""

    name, model = "", "small"
    clock, backend = "cpu-measured", "reference"
    again_s = 0.0

    def __init__(self, config: Path, folder: Path, start: Plan, query: PlacementQuery) -> None:
        self.config, self.folder, self.start, self.query = config, folder, start, query
        self._built: dict[str, tuple[Any, Any]] = {}

    def measure(self, plan: Plan) -> Bench:
        key = plan_signature(plan)
        if key not in self._built:
            self._built[key] = self._build(plan, self.folder / key)
        model, frame = self._built[key]
        answer = bench(model, frame, BenchSettings(0, 0, 3))
        return bench_document(answer, plan)

    def _build(self, plan: Plan, out: Path) -> tuple[Any, Any]:
        with Pipeline(open_config(self.config), out=out, cache=Cache()) as pipeline:
            pipeline.context = with_plan(pipeline.context, plan)
            path = out / "full"
            pipeline.bundle(full=path)
            frame = dict(next(iter(calibration_inputs(pipeline.context))))
        return edgekit_device.load(str(path), trust_unsigned=True), frame


def waits(plan: Plan, ops: Mapping[str, str]) -> float:
    """What the plan's segments wait."""
    return sum(waits_us(x.device, [ops[x.name]]) for x in plan.layers)


@pytest.mark.whole
def test_the_optimum_where_devices_differ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_segments_wait(monkeypatch, waits_us)
    config = small_config(tmp_path, precision="fp16", objective="latency")
    with Pipeline(open_config(config), out=tmp_path / "out", cache=Cache()) as pipeline:
        start, asked = pipeline.plan(), query(pipeline.context)
    ops = {layer.name: layer.op for layer in asked.network.layers}
    best = min(waits(plan, ops) for plan in every_plan(asked))
    reference = Reference(config, tmp_path / "trials", start, asked)
    tuning = Tuning([reference], TuningRequest(rounds=8, turns=5))
    tuning.run()
    assert waits(start, ops) > 2 * best
    assert waits(tuning.winner.plan, ops) == best
    assert tuning.first.cost("latency") >= waits(start, ops)


@pytest.mark.whole
def test_the_board_is_left_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEKIT_NO_SSHD", "1")
    config = open_config(small_config(tmp_path, precision="fp16", objective="latency"))
    said: list[str] = []
    document = tune(
        config,
        TuningRequest("", rounds=2, turns=0),
        out=tmp_path / "tune",
        cache=Cache(),
        on_note=said.append,
    )
    assert document.clock == "cpu-measured"
    assert [one.status for one in document.trials] == ["measured", "measured"]
    # without turns nothing is proven
    assert not document.changed
    assert said
    with pytest.raises(DataError):
        read_profile(document.files["profile"])
    pinned = open_config(config, **_snippet(document))
    with Pipeline(pinned, out=tmp_path / "out", cache=Cache()) as pipeline:
        assert {layer.device for layer in pipeline.plan().layers} == {"GPU"}
        assert not pipeline.boards.clients()[0].releases()


def _snippet(document: Tuned) -> dict[str, Any]:
    import yaml

    found: dict[str, Any] = yaml.safe_load(Path(document.files["snippet"]).read_text())
    return found
