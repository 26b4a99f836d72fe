"""What one loadable can hold, and the fast sums behind the best single cut."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edgekit.dla.judge import judge
from edgekit.errors import GateError, UsageError
from edgekit.network.model import Network
from edgekit.placement.inputs import PlanImpossible
from edgekit.placement.kernels import LONGEST, fuse
from edgekit.placement.placing import place, prepare
from edgekit.placement.plan import Options, Pin, Plan
from edgekit.placement.problem import build_problem
from edgekit.solver.evaluation import evaluate
from edgekit.solver.problem import Goal
from edgekit.targets.loader import get
from tests.placement.random_nets import branching, judged
from tests.placement.test_place import chain

ORIN = get("jetson-agx-orin-64gb")


def plan_of(net: Network, **options: object) -> Plan:
    verdicts = judge(net, ORIN, precision="int8")
    return place(net, verdicts, ORIN, precision="int8", options=Options(**options))


def test_a_loadable_has_one_batch_size() -> None:
    net = chain(["CONVOLUTION"] * 4)
    four = {name: replace(net.tensors[name], shape=(4, 64, 56, 56)) for name in ("t3", "t4")}
    net = replace(net, tensors={**net.tensors, **four})
    plan = plan_of(net, pins=(Pin("*", "DLA"),))
    assert [len(one.layers) for one in plan.loadables] == [2, 2]
    assert plan.builder is not None
    assert plan.builder.matches


def test_the_pool_holds_tensors_inside_and_at_the_border() -> None:
    """Six convolutions have two tensors of 16 MiB alive inside and two at the border, one has the
    border's alone, which take more than 32 MiB."""
    net = chain(["CONVOLUTION"] * 6, size=512)
    pins = (Pin("*", "DLA"),)
    plan = plan_of(net, pins=pins, pools={"local_dram": 64 << 20})
    assert [len(one.layers) for one in plan.loadables] == [6]
    assert plan.pools["local_dram"] == 64 << 20
    assert plan.optimal
    with pytest.raises(GateError):
        plan_of(net, pins=pins, pools={"local_dram": 32 << 20})


def test_what_check_refuses_for_its_memory_no_plan_places() -> None:
    """One convolution reads and writes tensors of 512 MiB; the pool has 1 GiB for both."""
    net = chain(["CONVOLUTION"] * 2, channels=32, size=4096)
    assert set(judge(net, ORIN, precision="int8").placed.values()) == {"GPU"}
    for objective in ("latency", "gpu_time"):
        plan = plan_of(net, objective=objective)
        assert {layer.device for layer in plan.layers} == {"GPU"}
        notes = " ".join(plan.notes)
        assert "no layer fits the DLA's memory: everything runs on the GPU" in notes
        assert "convolution0 stays on the GPU (convolution1 likewise" in notes
        assert "it needs 2,048 MiB of local DRAM, and the limit is 1,024 MiB (memory.pool" in notes
        assert "edgekit plan --pool local_dram=2048MiB" in notes
    larger = plan_of(net, objective="gpu_time", pools={"local_dram": 2 << 30})
    assert "DLA0" in {layer.device for layer in larger.layers}
    assert not any("stays on the GPU" in note for note in larger.notes)


def test_a_larger_pool_does_not_lift_the_limit_of_inner_tensors() -> None:
    net = chain(["CONVOLUTION"] * 3, channels=32, size=4096)
    plan = plan_of(net, pins=(Pin("*", "DLA"),), pools={"local_dram": 16 << 30})
    assert len(plan.loadables) > 1  # two tensors of 512 MiB inside one would be 1 GiB


def test_a_pin_that_no_pool_can_hold_is_an_error_with_the_limit() -> None:
    net = chain(["CONVOLUTION"] * 2, channels=32, size=4096)
    with pytest.raises(GateError) as caught:
        plan_of(net, pins=(Pin("*1", "DLA"),))
    assert (caught.value.code, caught.value.where) == ("plan.infeasible", "convolution1")
    assert "pinned to DLA, but it needs 2,048 MiB of local DRAM" in caught.value.message
    assert "--pool local_dram=2048MiB" in caught.value.message
    with pytest.raises(PlanImpossible) as standalone:
        plan_of(net, gpu=False)
    assert set(standalone.value.layers) == {"convolution0", "convolution1"}
    assert "2 of 2 layers cannot run on the DLA" in standalone.value.message
    assert "--pool local_dram=2048MiB" in (standalone.value.hint or "")
    assert plan_of(net, pins=(Pin("*", "GPU"),)).loadables == ()


def test_a_smaller_sram_is_taken_as_it_is() -> None:
    plan = plan_of(chain(["CONVOLUTION"] * 2), gpu=False, pools={"managed_sram": 300_000})
    assert plan.pools["managed_sram"] == 1 << 18


@pytest.mark.parametrize(
    ("pool", "size", "has"),
    [("managed_sram", 2 << 20, "1 MiB of managed SRAM"), ("local_dram", 1 << 37, "65536 MiB of")],
)
def test_no_pool_is_larger_than_the_board(pool: str, size: int, has: str) -> None:
    with pytest.raises(UsageError) as caught:
        plan_of(chain(["CONVOLUTION"]), pools={pool: size})
    assert caught.value.code == "plan.pool"
    assert has in caught.value.message


def test_a_kernel_ends_somewhere() -> None:
    net = chain(["SCALE"] * (2 * LONGEST + 1), size=4)
    kernels = fuse(net, ["SCALE"], ["SCALE"], lambda _: None)
    assert [len(kernel.layers) for kernel in kernels] == [LONGEST, LONGEST, 1]


@pytest.mark.parametrize("seed", range(8))
def test_the_best_cut_is_the_best_of_all_cuts(seed: int) -> None:
    net = branching(400 + seed, 10)
    verdicts = judged(net, seed)
    precision = ("int8", "fp16")[seed % 2]
    prepared = prepare(net, verdicts, ORIN, precision=precision)
    reported = prepared.baselines["best_cut"]
    problem = build_problem(prepared.request, plain=True).problem
    goal = Goal.of(problem, "latency")
    rows = [
        {problem.device(m): m for m, cost in enumerate(row) if cost is not None}
        for row in problem.costs
    ]
    values = []
    for first, second in ((1, 0), (0, 1)):
        for at in range(1, len(rows)):
            devices = [first] * at + [second] * (len(rows) - at)
            if all(d in row for d, row in zip(devices, rows, strict=True)):
                modes = [row[d] for d, row in zip(devices, rows, strict=True)]
                found = evaluate(problem, modes, goal)
                assert found is not None
                values.append(found.value)
    if reported is None:
        assert values == []
    else:
        assert sum(reported.load_us) == pytest.approx(min(values), abs=1e-6)
