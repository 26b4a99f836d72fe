"""What holds for every plan: accounts that add up, no baseline better, limits kept, order kept."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys

import pytest

from edgekit.dla.judge import judge
from edgekit.dla.loadables import find_candidates
from edgekit.network.model import Network
from edgekit.placement.placing import place, prepare
from edgekit.placement.plan import Options, Pin, Plan, plan_from_json
from edgekit.placement.problem import build_problem
from edgekit.placement.search import optimise
from edgekit.targets.loader import get
from tests.placement.random_nets import branching, judged
from tests.placement.test_place import chain, check_segments

ORIN = get("jetson-agx-orin-64gb")
METRIC = {
    "latency": "latency_us",
    "throughput": "throughput_qps",
    "energy": "energy_uj",
    "gpu_time": "gpu_us",
    "period": "throughput_qps",
}


def plan_of(net: Network, seed: int, precision: str = "int8", **options: object) -> Plan:
    chosen = Options(**options)
    verdicts = judged(net, seed, precision)
    return place(net, verdicts, ORIN, precision=precision, options=chosen)


@pytest.mark.few(4)
@pytest.mark.parametrize("seed", range(9))
def test_no_baseline_is_better_and_segments_are_in_order(seed: int) -> None:
    net = branching(seed, 14)
    for objective, metric in METRIC.items():
        cores = (0, 1) if seed % 3 == 0 and objective != "period" else (0,)
        plan = plan_of(net, seed, objective=objective, dla_cores=cores)
        own = getattr(plan.predicted, metric)
        for name, baseline in plan.baselines.items():
            if baseline is None:
                continue
            theirs, more = getattr(baseline, metric), metric == "throughput_qps"
            assert own >= theirs * (1 - 1e-6) if more else own <= theirs * (1 + 1e-6), name
        assert plan.optimal
        check_segments(net, plan)
        assert plan_from_json(json.loads(json.dumps(plan.to_json()))) == plan


@pytest.mark.parametrize("seed", range(8))
def test_a_latency_is_its_layers_launches_and_reformats(seed: int) -> None:
    """Summed from the document alone; a plan without formats beside the best has no more."""
    net = branching(100 + seed, 16)
    precision = ("int8", "fp16")[seed % 2]
    pins = (Pin("conv*", "DLA"),) if seed > 3 else ()
    verdicts = judged(net, seed, precision)
    pins = tuple(
        pin
        for pin in pins
        if all(v.ok for name, v in verdicts.verdicts.items() if name.startswith("conv"))
    )
    options = Options(objective="gpu_time", pins=pins)
    prepared = prepare(net, verdicts, ORIN, precision=precision, options=options)
    plan = place(net, verdicts, ORIN, precision=precision, options=options)
    launch = prepared.request.model.launch_us()
    total = sum(layer.predicted_us for layer in plan.layers)
    total += launch * len(plan.loadables) + sum(one.us for one in plan.reformats)
    slower = plan.predicted.latency_us - total
    if all("LINEAR" not in form for one in plan.loadables for form in one.formats.values()):
        fused = sum(  # a kernel whose first part is on the DLA takes what it takes alone
            cost.load_us[0]
            for border in prepared.problem.borders
            for t in border.transfers
            for cost in t.ways
        )
        assert -1e-3 <= slower <= fused
    assert slower >= -1e-3


@pytest.mark.parametrize("seed", [11, 27, 69])
def test_no_other_fusion_is_better(seed: int) -> None:
    """The kernels of each baseline, and pins that cut kernels, against the plan's own problem."""
    net = branching(seed, 12)
    verdicts = judged(net, seed, "int8")
    rng = random.Random(seed)
    names = [name for name, verdict in verdicts.verdicts.items() if verdict.ok]
    pins = tuple(Pin(name, rng.choice(["GPU", "DLA"])) for name in rng.sample(names, 2))
    for objective in ("latency", "period"):
        options = Options(objective=objective, pins=pins)
        prepared = prepare(net, verdicts, ORIN, precision="int8", options=options)
        own = optimise(prepared.problem, options)
        for baseline in prepared.baselines.values():
            assert baseline is not None
            other = build_problem(prepared.request, kernels=baseline.built.kernels)
            found = optimise(other.problem, options)
            assert not found.parts or found.value >= own.bound * (1 - 1e-6)


def test_a_pin_that_cuts_a_fusion_costs_nothing_where_both_parts_stay_together() -> None:
    net = chain(["CONVOLUTION", "ACTIVATION"] * 3)
    verdicts = judge(net, ORIN, precision="int8")
    found = []
    for globs in (["*"], ["convolution*", "activation5"]):
        options = Options(pins=tuple(Pin(glob, "DLA") for glob in globs))
        found.append(place(net, verdicts, ORIN, precision="int8", options=options))
    assert found[1].predicted.latency_us <= found[0].predicted.latency_us * (1 + 1e-9)
    bound = {"latency_us": found[0].predicted.latency_us * 1.001}  # only fused ones keep it
    options = Options(objective="period", pins=(Pin("convolution*", "DLA"),), bounds=bound)
    assert place(net, verdicts, ORIN, precision="int8", options=options).optimal


def test_matching_formats_cost_nothing_and_others_a_reformat() -> None:
    net = chain(["CONVOLUTION"] * 3)
    pins = tuple(Pin(f"convolution{i}", device) for i, device in enumerate(("GPU", "DLA", "GPU")))
    found = {}
    for precision in ("int8", "fp16"):
        verdicts = judge(net, ORIN, precision=precision)
        plan = place(net, verdicts, ORIN, precision=precision, options=Options(pins=pins))
        found[precision] = plan
        assert all(one.source != one.goal and one.us > 0 for one in plan.reformats)
    # INT8: both devices have CHW32. FP16: 8 channels last on the GPU, 16 to a vector on the DLA
    assert found["int8"].reformats == ()
    assert found["int8"].loadables[0].formats == {"t1": "CHW32", "t2": "CHW32"}
    assert {one.tensor for one in found["fp16"].reformats} == {"t1", "t2"}
    assert {one.source for one in found["fp16"].reformats} >= {"fp16:HWC8"}


@pytest.mark.parametrize("seed", range(6))
def test_limits_are_retained(seed: int) -> None:
    net = branching(200 + seed, 18)
    free = plan_of(net, seed, objective="gpu_time")
    few = plan_of(net, seed, objective="gpu_time", max_transitions=2)
    assert few.transitions <= 2
    assert few.predicted.gpu_us >= free.predicted.gpu_us - 1e-6
    large = plan_of(net, seed, objective="gpu_time", min_loadable_layers=4)
    assert all(len(one.layers) >= 4 for one in large.loadables)
    none = plan_of(net, seed, objective="gpu_time", max_transitions=0)
    assert len({layer.device for layer in none.layers}) == 1
    assert few.constraints.max_transitions == 2


@pytest.mark.parametrize("seed", range(6))
def test_the_builder_ends_at_the_plan_or_the_plan_says_so(seed: int) -> None:
    net = branching(300 + seed, 18)
    plan = plan_of(net, seed, objective="gpu_time")
    types = {x.name: "GPU" if x.device == "GPU" else "DLA" for x in plan.layers}
    assert plan.builder is not None
    assert plan.builder.device_types == types
    groups = find_candidates(net, {name: kind == "DLA" for name, kind in types.items()})
    assert plan.builder.candidates == len(groups)
    made = {frozenset(group.layers) for group in groups if group.retained}
    matches = made == {frozenset(one.layers) for one in plan.loadables}
    assert plan.builder.matches == matches
    assert bool(plan.builder.differences) != matches
    assert any("TensorRT would" in note for note in plan.notes) != matches


def test_the_builder_merges_what_a_pool_keeps_apart() -> None:
    net = chain(["CONVOLUTION"] * 6, channels=512, size=14)
    options = Options(pins=(Pin("*", "DLA"),), pools={"global_dram": 16 << 20})
    verdicts = judge(net, ORIN, precision="int8")
    plan = place(net, verdicts, ORIN, precision="int8", options=options)
    assert len(plan.loadables) == 2
    assert plan.builder is not None
    assert (plan.builder.candidates, plan.builder.matches) == (1, False)
    (one,) = plan.builder.differences
    assert (one.kind, one.loadables) == ("merged", (0, 1))
    assert any("TensorRT would merge" in note for note in plan.notes)


def test_what_check_places_can_be_placed() -> None:
    """Weights that only fit by the documented size of one byte: disputed, not refused."""
    net = chain(["CONVOLUTION"], channels=5600, size=4)
    verdicts = judge(net, ORIN, precision="int8")
    assert verdicts.placed == {"convolution0": "DLA"}
    options = Options(pins=(Pin("*", "DLA"),))
    plan = place(net, verdicts, ORIN, precision="int8", options=options)
    assert plan.loadables[0].layers == ("convolution0",)
    assert plan.pools["global_dram"] > 512 << 20


@pytest.mark.whole
def test_the_same_plan_in_another_process() -> None:
    code = "from tests.placement.test_invariants import documents\nprint(documents())\n"
    seed = "2" if os.environ.get("PYTHONHASHSEED") != "2" else "1"
    path = os.pathsep.join(p for p in sys.path if p)
    reported = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path},
    ).stdout
    assert reported == documents() + "\n"


def documents() -> str:
    net = branching(7, 16)
    plans = [plan_of(net, 7, objective=objective, dla_cores=(0, 1)) for objective in METRIC]
    return json.dumps([plan.to_json() for plan in plans])
