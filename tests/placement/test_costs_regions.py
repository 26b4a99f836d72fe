"""Parts of a transformer that the GPU fuses: what they save, and what a DLA inside them costs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgekit.dla.judge import judge
from edgekit.dla.verdicts import Judgement
from edgekit.network.model import Network
from edgekit.placement.costs.constants import device_constants, layer_kinds
from edgekit.placement.costs.model import CostModel
from edgekit.placement.costs.regions import find_regions
from edgekit.placement.forecast import forecast
from edgekit.placement.kernels import join
from edgekit.placement.placing import place, prepare
from edgekit.placement.plan import Options, Pin, Plan
from edgekit.placement.profiles.reader import read_profile
from edgekit.solver.evaluation import evaluate
from edgekit.solver.problem import Goal
from edgekit.targets.loader import get
from tests.buildlog import timing_log as tl
from tests.dla.dla_nets import Builder, detr_like, resnet50

ORIN = get("jetson-agx-orin-64gb")


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Network:
    return detr_like(Path(tmp_path_factory.mktemp("detr")), 2)


@pytest.fixture(scope="module")
def judged(net: Network) -> Judgement:
    return judge(net, ORIN, precision="fp16")


def model() -> CostModel:
    return CostModel(ORIN, ORIN.mode("MAXN"), "fp16", frozenset(), device_constants())


def test_attention_saves_its_softmax_and_a_convolutional_network_nothing(
    net: Network, tmp_path: Path
) -> None:
    found = find_regions(model(), net, {})
    saving = {net.layers[i].kind for i, us in found.saved_us.items() if us}
    assert {"MATRIX_MULTIPLY", "SOFTMAX"} <= saving
    assert saving <= set(layer_kinds().regions.fused)
    inside = {i for part in found.parts for i in part.layers}
    kinds = {net.layers[i].kind for i in inside if net.layers[i].op not in ("Gemm", "MatMul")}
    assert "CONVOLUTION" not in kinds
    assert find_regions(model(), resnet50(tmp_path), {}).parts == ()


def test_a_layer_that_a_dla_can_run_saves_nothing_for_certain(net: Network) -> None:
    soft = next(i for i, layer in enumerate(net.layers) if layer.kind == "SOFTMAX")
    assert find_regions(model(), net, {}).saved_us[soft] > 0
    assert soft not in find_regions(model(), net, {net.layers[soft].name: True}).saved_us


def test_check_and_plan_say_the_same(net: Network, judged: Judgement) -> None:
    notes = forecast(net, judged, ORIN)
    assert notes is not None
    plan = place(net, judged, ORIN, precision="fp16")
    alone, auto = plan.baselines["gpu_only"], plan.baselines["tensorrt_auto"]
    assert alone is not None
    assert auto is not None
    assert notes.gpu_only_us == pytest.approx(alone.latency_us, abs=1e-5)
    assert notes.auto_us == pytest.approx(auto.latency_us, abs=1e-5)
    assert plan.optimal
    assert plan.predicted.latency_us <= alone.latency_us


def test_the_first_layer_on_a_dla_pays_and_the_second_does_not(
    net: Network, judged: Judgement
) -> None:
    prepared = prepare(net, judged, ORIN, precision="fp16")
    built, problem = prepared.built, prepared.problem
    goal = Goal.of(problem, "latency", {})
    gpu = [
        next(m for m, c in enumerate(row) if c and not problem.device(m)) for row in problem.costs
    ]
    (part,) = prepared.request.regions.parts
    able = [
        v
        for v, kernel in enumerate(built.kernels)
        if not part.layers.isdisjoint(kernel.layers) and problem.costs[v][1]
    ]
    first, second = able[0], able[-1]

    def gpu_us(*moved: int) -> float:
        modes = list(gpu)
        for v in moved:
            modes[v] = next(m for m, c in enumerate(problem.costs[v]) if c and problem.device(m))
        placing = evaluate(problem, tuple(modes), goal)
        assert placing is not None
        return placing.load_us[0]

    alone, one, two, both = (gpu_us(*moved) for moved in ((), (first,), (second,), (first, second)))
    assert one > alone + 0.9 * part.broken_us
    assert both == pytest.approx(one + two - alone - part.broken_us, abs=60)
    assert two > alone + 0.9 * part.broken_us


def test_a_pin_into_the_part_is_retained_and_costs_the_fusion(
    net: Network, judged: Judgement
) -> None:
    gemm = next(x for x in net.layers if x.op == "Gemm" and judged.verdicts[x.name].ok)
    free = place(net, judged, ORIN, precision="fp16")
    pinned = place(
        net, judged, ORIN, precision="fp16", options=Options(pins=(Pin(gemm.name, "DLA"),))
    )
    (part,) = prepare(net, judged, ORIN, precision="fp16").request.regions.parts
    assert next(x.device for x in pinned.layers if x.name == gemm.name).startswith("DLA")
    assert pinned.predicted.gpu_us > 0.9 * part.broken_us
    assert pinned.predicted.latency_us > free.predicted.latency_us
    assert all(name in net.tensors for one in pinned.loadables for name in one.formats)


def heads(path: Path, rows: int, count: int) -> Network:
    """Attention as PyTorch exports it, with heads and the guard against rows without a key."""
    width = 16 * count
    b = Builder(x=(rows, width))
    split = b.constant("split", [1, rows, count, 16])
    parts = []
    for name, perm in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
        own = (b.weight(f"{name}.w", (width, width)), b.weight(f"{name}.b", (width,)))
        y = b.add("Reshape", f"{name}_split", b.add("Gemm", name, "x", *own), split)
        parts.append(b.add("Transpose", f"{name}_heads", y, perm=perm))
    soft = b.add("Softmax", "soft", b.add("MatMul", "scores", parts[0], parts[1]), axis=-1)
    none = b.constant("none", [0.0], np.float32)
    soft = b.add("Where", "guard", b.add("IsNaN", "odd", soft), none, soft)
    y = b.add("Transpose", "mixed", b.add("MatMul", "mix", soft, parts[2]), perm=[0, 2, 1, 3])
    y = b.add("Reshape", "rows", y, b.constant("joined", [rows, width]))
    own = (b.weight("out.w", (width, width)), b.weight("out.b", (width,)))
    return b.network(path, b.add("Gemm", "out", y, *own))


def test_a_shuffle_that_a_gemm_brings_is_no_product(tmp_path: Path) -> None:
    """It bears the Gemm's operator, and counted a time for each of its rows."""
    network = heads(tmp_path, 512, 4)
    found = [i for i, la in enumerate(network.layers) if la.kind == "SHUFFLE" and la.op == "Gemm"]
    assert any(network.layers[i].params["mode"] == "TRANSPOSE" for i in found)
    layers = [
        replace(la, op="Transpose") if i in found else la for i, la in enumerate(network.layers)
    ]
    plain = replace(network, layers=tuple(layers))
    for i in found:
        own, other = (model().kernel_us(net, join(net, (i,)), "GPU") for net in (network, plain))
        assert own == other


def test_all_on_the_gpu_is_the_gpu_alone(tmp_path: Path) -> None:
    """What lies between products stays in lines: vectors of 32 would hold 4 heads' channels."""
    network = heads(tmp_path, 512, 4)
    own = judge(network, ORIN, precision="int8")
    plan = place(network, own, ORIN, precision="int8", options=Options(pins=(Pin("*", "GPU"),)))
    alone = plan.baselines["gpu_only"]
    assert alone is not None
    assert plan.predicted.latency_us == pytest.approx(alone.latency_us)
    notes = forecast(network, own, ORIN)
    assert notes is not None
    assert notes.gpu_only_us == pytest.approx(alone.latency_us)


def pieces(path: Path, times: dict[str, float], *, next_to: str = "") -> Options:
    """A build log that timed these on the GPU one by one, beside a loadable."""
    form = ["Half(512,32,1)"]
    lines = tl.header()
    if next_to:
        lines += tl.unit(f"{{ForeignNode[{next_to}]}}", "DLA", [(form, form, 90.0)])
    for name, us in times.items():
        lines += tl.unit(name, "Myelin" if "ForeignNode" in name else "Cask", [(form, form, us)])
    file = path / "build.log"
    file.write_text("\n".join(lines))
    return Options(profile=read_profile(file), dla_cores=())


def test_pieces_of_a_fusion_are_not_added_up(
    net: Network, judged: Judgement, tmp_path: Path
) -> None:
    """A loadable broke the fusion when they were timed: they are the price of that, no more."""
    kinds = ("MATRIX_MULTIPLY", "SOFTMAX", "SHUFFLE", "CONVOLUTION")
    stem = {"stem", "body"}
    slow = {
        la.name: 400.0
        for la in net.layers
        if la.kind in kinds and not stem & set(la.nodes) and la.nodes != ("up_0",)
    }
    plain = place(net, judged, ORIN, precision="fp16", options=Options(dla_cores=()))
    options = pieces(tmp_path, slow, next_to="up_0")
    plan = place(net, judged, ORIN, precision="fp16", options=options)
    assert plan.measured
    assert plan.predicted.latency_us == pytest.approx(plain.predicted.latency_us)
    assert plan.measured.fraction < 0.01
    assert set(plan.measured.layers.values()) == {"predicted"}
    # a loadable in there costs what was measured with one
    pinned = replace(options, dla_cores=(0,), pins=(Pin("up_0", "DLA"),))
    broken = place(net, judged, ORIN, precision="fp16", options=pinned)
    assert broken.measured
    assert broken.predicted.gpu_us > sum(slow.values()) > 2 * plain.predicted.gpu_us
    assert broken.measured.fraction > 0.8
    assert any("of the latency is measured" in note for note in broken.notes)


def test_conversions_between_pieces_are_a_part_of_breaking_the_fusion(
    net: Network, judged: Judgement, tmp_path: Path
) -> None:
    """Beside a loadable the softmax ran in FP32: what its tensors' conversions took counts once."""
    half, full = ["Half(1024,32,1)"], ["Float(1024,32,1)"]
    square = (1, 32, 32)
    chain = [("scores_1", "MatMul", "s"), ("soft_1", "Softmax", "p"), ("mix_1", "MatMul", "m")]
    reads = dict(zip((name for *_, name in chain[1:]), ("s", "p"), strict=True))
    forms = {"scores_1": half, "soft_1": full, "mix_1": half}
    lines = tl.header(
        *tl.network(
            {"x": square},
            [
                (name, kind, {reads.get(out, "x"): square}, {out: square})
                for name, kind, out in chain
            ],
            ["m"],
        )
    )
    lines += tl.unit("{ForeignNode[up_0]}", "DLA", [(half, half, 90.0)])
    for name, form in forms.items():
        lines += tl.unit(name, "Cask", [(form, form, 40.0)])
    into = tl.reformats("s", {(half[0], full[0]): 30.0})
    out_of = tl.reformats("p", {(full[0], half[0]): 20.0})

    def planned(log: list[str], *pins: Pin) -> Plan:
        file = tmp_path / "build.log"
        file.write_text("\n".join(log))
        options = Options(profile=read_profile(file), pins=pins, dla_cores=(0,) if pins else ())
        return place(net, judged, ORIN, precision="fp16", options=options)

    broken = Pin("up_0", "DLA")
    with_both, without = planned([*lines, *into, *out_of], broken), planned(lines, broken)
    more = with_both.predicted.gpu_us - without.predicted.gpu_us
    assert more == pytest.approx(50.0, abs=1e-3)
    assert with_both.measured
    assert without.measured
    known = with_both.measured.measured_us - without.measured.measured_us
    assert known == pytest.approx(50.0, abs=1e-3)
    assert with_both.measured.measured_us <= with_both.predicted.latency_us
    assert planned([*lines, *into, *out_of]).predicted == planned(lines).predicted


def test_what_fast_pieces_add_up_to_bounds_the_fusion(
    net: Network, judged: Judgement, tmp_path: Path
) -> None:
    fast = {la.name: 0.5 for la in net.layers if la.kind in ("MATRIX_MULTIPLY", "CONVOLUTION")}
    plain = place(net, judged, ORIN, precision="fp16", options=Options(dla_cores=()))
    plan = place(
        net, judged, ORIN, precision="fp16", options=pieces(tmp_path, fast, next_to="up_0")
    )
    assert plan.predicted.latency_us < plain.predicted.latency_us


def test_a_measured_fusion_is_the_sum_of_its_parts(
    net: Network, judged: Judgement, tmp_path: Path
) -> None:
    """Timed whole, and a part of it once more alone: the whole counts, and counts as measured."""
    whole = {"{ForeignNode[scores_1...mix_1]}": 60.0}
    one = place(net, judged, ORIN, precision="fp16", options=pieces(tmp_path, whole))
    both = pieces(tmp_path, {**whole, "soft_1": 900.0})
    two = place(net, judged, ORIN, precision="fp16", options=both)
    assert two.predicted == one.predicted
    inside = ("scores_1", "soft_1", "mix_1")
    for plan in (one, two):
        assert plan.measured
        took = [la.predicted_us for la in plan.layers if set(la.nodes) & set(inside)]
        assert sum(took) == pytest.approx(60.0, abs=1e-3)
        assert plan.measured.measured_us == pytest.approx(60.0, abs=1e-3)
