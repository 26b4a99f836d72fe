"""tune finds what is known to be best, keeps what it cannot beat, and carries on where it was."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.benchmark.document import Bench
from edgekit.dla.judge import judge
from edgekit.errors import BoardError, DataError, EnvironmentLack
from edgekit.network.loading.load import load
from edgekit.network.lowering.layers import layers
from edgekit.network.model import Network
from edgekit.placement.placing import PlacementQuery
from edgekit.placement.plan import Options, Pin
from edgekit.placement.profiles.reader import read_profile
from edgekit.targets.loader import get
from edgekit.tuning.candidates import PlacementSpace, plan_signature
from edgekit.tuning.document import plan_pins, tune_document
from edgekit.tuning.session import Tuning
from edgekit.tuning.text import tune_text
from edgekit.tuning.trials import TuningRequest, frame_cost, readable_value, relative_gain
from edgekit_device.benchmark.measurement import MeasuredNode, Pipelined, SegmentTimes
from tests.pipeline.nets import small_net
from tests.tuning.tune_world import World, best_mix, every_plan, world_of

ORIN = get("jetson-agx-orin-64gb")
GPU = {"*": 1.0, "conv1": 90.0, "conv2": 60.0, "pool": 9.0, "fc": 70.0, "softmax": 10.0}
DLA = {"*": 1.0, "conv1": 20.0, "conv2": 200.0, "pool": 40.0, "fc": 12.0}


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Network:
    path = tmp_path_factory.mktemp("tune") / "small.onnx"
    small_net(path)
    return layers(load(path))


def query_for(net: Network, objective: str = "latency", **options: Any) -> PlacementQuery:
    verdicts = judge(net, ORIN, precision="fp16")
    return PlacementQuery(
        net, verdicts, ORIN, "fp16", None, Options(objective=objective, **options)
    )


def tuned(query: PlacementQuery, world: Any, **more: Any) -> Tuning:
    request = {"objective": query.options.objective, "rounds": 16, **more.pop("request", {})}
    tuning = Tuning([world], TuningRequest(**request), **more)
    tuning.run()
    return tuning


def least(query: PlacementQuery, world: World) -> float:
    return min(world.cost(plan, query.options.objective) for plan in every_plan(query))


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("objective", "more"),
    [
        ("latency", {"switch_us": 15.0, "noise": 0.02}),
        ("period", {"together": 1.9}),
        ("energy", {"noise": 0.02, "power": True}),
    ],
)
def test_the_best_of_all_plans_is_found(net: Network, objective: str, more: Any) -> None:
    query = query_for(net, objective)
    world = world_of(query, GPU, DLA, **more)
    found = tuned(query, world)
    best = least(query, world)
    assert world.cost(found.first.plan, objective) > 1.1 * best
    assert world.cost(found.winner.plan, objective) <= 1.02 * best
    assert found.duel is not None
    assert found.duel.better
    assert found.first.key == plan_signature(world.start)
    assert len(set(world.measured)) < 9  # of 16


@pytest.mark.whole
def test_the_best_mix_is_found_where_working_together_costs(net: Network) -> None:
    """All plans measured at first are bound by the DLA: they do not tell what the GPU can do."""
    query = query_for(net, "throughput", dla_cores=(0, 1), split=True)
    world = world_of(query, GPU, DLA, together=1.9, noise=0.02)
    found = tuned(query, world, request={"tolerance": 0.04, "turns": 5})
    best = best_mix(query, world, 2)
    assert world.cost(found.first.plan, "throughput") > 1.5 * best
    # it stops where nothing promises more than the tolerance: six worlds end 0.4 to 6.2 % off
    assert world.cost(found.winner.plan, "throughput") <= 1.07 * best
    assert len(found.winner.plan.plans) > 1


@pytest.mark.whole
def test_predictions_that_are_wrong_by_five_either_way(net: Network) -> None:
    query = query_for(net)
    prior = PlacementSpace(query.prepared()).prior_us
    random = np.random.default_rng(5)
    times = {
        name: {"*": 0.5}
        | {
            layer.name: 10 * us * 5.0 ** random.choice([-1, 1]) * (6 if name == "DLA" else 1)
            for layer, us in zip(net.layers, prior[name], strict=True)
            if us > 0
        }
        for name in ("GPU", "DLA")
    }
    world = world_of(query, times["GPU"], times["DLA"], noise=0.01)
    found = tuned(query, world)
    assert world.cost(found.winner.plan, "latency") <= 1.02 * least(query, world)


def test_few_rounds_are_few_plans(net: Network) -> None:
    query = query_for(net)
    found = tuned(query, world_of(query, GPU, DLA), request={"rounds": 3})
    assert (found.status, len(found.trials)) == ("rounds", 3)


def test_the_gpu_s_part_of_a_hybrid_engine_is_seen(net: Network) -> None:
    """It is one segment that is named after its DLA; before, the GPU seemed to do nothing."""
    query = query_for(net, "gpu_time")
    plan = PlacementSpace(query.prepared()).alone("DLA")
    assert plan is not None
    names = [layer.name for layer in plan.layers]
    run = Bench(
        clock="board-measured",
        segments=[SegmentTimes(index=0, device="DLA0", layers=names, latency_ms={"median": 0.5})],
    )
    assert {layer.device for layer in plan.layers} == {"GPU", "DLA0"}
    with pytest.raises(BoardError, match="no gpu_time"):
        frame_cost(run, "gpu_time", plan)  # nothing tells its devices apart
    on_dla = [layer.name for layer in plan.layers if layer.device != "GPU"]
    loadable = f"{{ForeignNode[{on_dla[0]}...{on_dla[-1]}]}}"
    times = {loadable: 300.0, **{name: 25.0 for name in names if name not in on_dla}}
    nodes = [MeasuredNode(index=0, node=name, median_us=us) for name, us in times.items()]
    run = run.model_copy(update={"nodes": nodes})
    gpu = 25.0 * (len(names) - len(on_dla))
    assert frame_cost(run, "gpu_time", plan) == pytest.approx(500 * gpu / (300 + gpu))


def test_a_plan_that_leaves_the_gpu_alone_costs_it_nothing(net: Network) -> None:
    query = query_for(net, "gpu_time")
    # what no DLA runs takes no time
    world = world_of(
        query, {name: us for name, us in GPU.items() if name != "softmax"} | {"*": 0.0}, DLA
    )
    found = tuned(query, world)
    assert (
        world.cost(found.first.plan, "gpu_time") > 0.0 == world.cost(found.winner.plan, "gpu_time")
    )
    assert found.duel is not None
    assert found.duel.better
    document = tune_document(found, name="small", files={"profile": "p", "snippet": "s"})
    assert (document.winner.measured, document.bound) == (0.0, None)
    text = "\n".join(tune_text(document))
    assert "is better in GPU time: " in text
    assert "beyond" not in text


def test_the_start_stays_where_nothing_is_really_better(net: Network) -> None:
    query = query_for(net)
    # equal on both devices, and very noisy: whatever looks better is luck
    world = world_of(query, {"*": 20.0}, {"*": 20.0}, switch_us=0.0, noise=0.2)
    found = tuned(query, world, request={"rounds": 4})
    assert found.winner is found.first
    assert found.status in ("converged", "rounds")
    runs = [len(trial.runs) for trial in found.trials]
    assert found.best is found.first or runs[0] == 6


def test_a_plan_that_does_not_build_is_dropped_and_the_search_goes_on(net: Network) -> None:
    query = query_for(net)
    world = world_of(query, GPU, DLA, fails=frozenset({"fc"}))
    found = tuned(query, world, request={"rounds": 12, "tolerance": 0.02})
    dropped = [trial for trial in found.trials if trial.dropped]
    assert dropped
    assert all("build.failed" in trial.dropped for trial in dropped)
    assert found.winner.counts
    costs = [
        world.cost(plan, "latency")
        for plan in every_plan(query)
        if all(x.device == "GPU" for x in plan.layers if x.name == "fc")
    ]
    assert world.cost(found.winner.plan, "latency") <= 1.02 * min(costs)
    only = world_of(query, GPU, DLA, clock="cpu-measured")
    only.measure = lambda plan: (_ for _ in ()).throw(BoardError("no", code="x"))  # type: ignore[method-assign]
    with pytest.raises(BoardError):
        tuned(query, only)


def test_the_documents(net: Network, tmp_path: Path) -> None:
    query = query_for(net)
    world = world_of(query, GPU, DLA, switch_us=15.0)
    found = tuned(query, world)
    files = {"profile": "p", "snippet": "s"}
    document = tune_document(found, name="small", files=files)
    json.dumps(document.to_json(), allow_nan=False)
    assert document.clock == "board-measured"
    assert document.winner.measured < document.start.measured
    by_kind = {(row.device, row.kind): row for row in document.learnt.by_kind}
    convolutions = by_kind["GPU", "CONVOLUTION"]
    assert convolutions.learnt_us == pytest.approx(220, rel=0.1)
    assert convolutions.factor == pytest.approx(
        convolutions.learnt_us / convolutions.predicted_us, rel=1e-3
    )
    # what a sum of layers took is no layer's time: it is called learnt, and has a doubt
    rows = found.table("").rows
    single = {(row.device, row.layers[0]) for row in rows if len(row.layers) == 1}
    names = {layer.name for layer in net.layers if layer.kind == "CONVOLUTION"}
    apart = {("GPU", name) for name in names} <= single
    assert (convolutions.measured_us is not None) == apart
    assert any(row.measured_us is None for row in by_kind.values())
    assert all(row.learnt_sd_us > 0 for row in by_kind.values())
    assert document.proven is True
    moved = {name for change in document.changes for name in change.layers}
    before = {layer.name: layer.device for layer in found.first.plan.layers}
    after = {layer.name: layer.device for layer in found.winner.plan.layers}
    assert moved == {name for name in before if before[name] != after[name]}
    text = "\n".join(tune_text(document))
    assert "board-measured" in text
    # the percentage is that of the two figures beside it
    turns = document.turns
    assert turns.fraction == pytest.approx(1 - turns.ours / turns.theirs, abs=1e-4)
    better = (
        f"plan {found.winner.number} is better in latency: {readable_value(turns.ours)}, "
        "the starting plan "
    )
    row = document.winner
    assert row.final == turns.ours
    assert re.search(
        rf"plan {row.number}\* +{re.escape(readable_value(row.search))} +"
        rf"{re.escape(readable_value(row.final))}  ",
        text,
    )
    assert "* advised, by the final turns" in text
    assert all(one.final is None for one in document.trials if one.number not in (1, row.number))
    assert (
        f"{better}{readable_value(turns.theirs)}, medians of 5 alternating "
        f"measurements; {100 * turns.fraction:.1f} %" in text
    )
    assert text.count(f"{len(found.trials)} plans") == 1
    assert not re.search(r"\d us|\de[+-]\d|(?<![.\d])1 \w+s\b", text), text
    # the table that it leaves makes a plan of the same times
    path = tmp_path / "tuned.profile.json"
    path.write_text(json.dumps(found.table("").to_json()))
    again = query.plan(replace(query.options, profile=read_profile(path)))
    assert plan_signature(again) == found.winner.key
    assert again.predicted.latency_us == pytest.approx(world.cost(again, "latency"), rel=0.1)
    assert again.measured is not None
    assert set(again.measured.layers.values()) == {"measured"}
    pins = tuple(Pin(pin.layers, pin.device) for pin in plan_pins(found.winner.plan))
    assert plan_signature(query.plan(replace(query.options, pins=pins))) == found.winner.key


@pytest.mark.whole
def test_a_cpus_times_stay_a_cpus(net: Network, tmp_path: Path) -> None:
    query = query_for(net)
    slow = {name: {k: 900 * us for k, us in row.items()} for name, row in (("g", GPU), ("d", DLA))}
    world = world_of(query, slow["g"], slow["d"], clock="cpu-measured", switch_us=0.0)
    found = tuned(query, world)
    assert world.cost(found.winner.plan, "latency") <= 1.02 * least(query, world)
    document = tune_document(found, name="small", files={})
    assert "say nothing about the board" in document.note
    path = tmp_path / "tuned.profile.json"
    path.write_text(json.dumps(found.table("").to_json()))
    with pytest.raises(DataError) as refused:
        read_profile(path)
    assert refused.value.code == "profile.clock"


def test_rounds_budget_and_bounds(net: Network) -> None:
    query = query_for(net)
    few = tuned(query, world_of(query, GPU, DLA), request={"rounds": 2})
    assert (few.status, len(few.trials)) == ("rounds", 2)
    stopped = tuned(query, world_of(query, GPU, DLA), request={"rounds": 4})
    done = tuned(query, world_of(query, GPU, DLA))
    words = {}
    for one in (stopped, done):
        document = tune_document(one, name="small", files={"profile": "p", "snippet": "s"})
        words[one.status] = next(line for line in tune_text(document) if line.startswith("Ended"))
        shown = readable_value(document.bound.value)
    assert "stopped by --rounds 4; the bound is " in words["rounds"]
    assert "likely to beat" not in words["rounds"]
    assert f"no remaining plan is likely to beat {shown}." in words["converged"]
    ticks = iter(range(0, 100_000, 10))
    short = tuned(
        query, world_of(query, GPU, DLA), request={"budget_s": 30.0}, clock=lambda: next(ticks)
    )
    assert short.status == "budget"
    assert "stopped by --budget 30 s: nothing is left" in short.why
    assert short.duel is not None
    bound = query_for(net, bounds={"latency_us": 250.0})
    held = tuned(bound, world_of(bound, GPU, DLA, switch_us=0.0), request={"rounds": 2})
    assert all(t.breaks for t in held.trials if t.cost("latency") > 250)
    assert not held.winner.breaks


def test_what_a_measurement_is_value() -> None:
    document = Bench(
        samples_ms=[1.0, 3.0, 2.0],
        throughput_qps=400.0,
        pipelined=Pipelined(frames=3, throughput_qps=800.0),
    )
    assert frame_cost(document, "latency") == 2000.0
    assert frame_cost(document, "throughput") == 1250.0
    with pytest.raises(EnvironmentLack) as lack:
        frame_cost(document, "energy")
    assert lack.value.code == "tune.no-power"
    on_dla = SegmentTimes(index=0, device="DLA0", latency_ms={"median": 1.0})
    assert frame_cost(Bench(segments=[on_dla]), "gpu_time") == 0.0
    with pytest.raises(BoardError):
        frame_cost(Bench(), "gpu_time")
    assert relative_gain([0.0] * 5, [1.0] * 5).better
    assert not relative_gain([1.0] * 5, [0.0] * 5).better
    sure = relative_gain([9.0, 9.1, 9.0, 8.9, 9.0], [10.0, 10.1, 9.9, 10.0, 10.0])
    assert sure.better
    assert sure.low < 0.1 < sure.high
    assert not relative_gain([9.0, 9.0], [10.0, 10.0]).better
    assert not relative_gain([9.0, 11.0, 9.0, 11.0, 9.9], [10.0] * 5).better
