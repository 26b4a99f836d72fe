"""What sharing the memory costs, and what no published time supports, in plans."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import edgekit
from edgekit.dla.judge import judge
from edgekit.errors import EdgekitError, GateError
from edgekit.network.loading import load as load_module
from edgekit.network.lowering import layers as layers_module
from edgekit.placement.costs.constants import contention_constants, extrapolation
from edgekit.placement.placing import place, prepare
from edgekit.placement.plan import Options, Pin
from edgekit.solver.evaluation import evaluate
from edgekit.solver.problem import Goal
from edgekit.targets.loader import get

BOARD = "jetson-agx-orin-64gb"


def save(path: Path, nodes: list[onnx.NodeProto], weights: dict[str, tuple[int, ...]]) -> str:
    random = np.random.default_rng(0)
    stored = [
        numpy_helper.from_array((random.standard_normal(shape) / 20).astype(np.float32), name)
        for name, shape in weights.items()
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 64, 56, 56])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        stored,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(onnx.shape_inference.infer_shapes(model), path)
    return str(path)


def chain(path: Path, layers: int = 10) -> str:
    """Convolutions and ReLUs: any part of it can be on either device."""
    nodes, weights, last = [], {}, "x"
    for number in range(layers):
        weights[f"w{number}"] = (64, 64, 3, 3)
        out = "y" if number == layers - 1 else f"r{number}"
        nodes.append(
            helper.make_node(
                "Conv", [last, f"w{number}"], [f"c{number}"], pads=[1] * 4, name=f"conv{number}"
            )
        )
        nodes.append(helper.make_node("Relu", [f"c{number}"], [out], name=f"relu{number}"))
        last = out
    return save(path, nodes, weights)


def gated(path: Path) -> str:
    """A depthwise convolution, squeeze and excitation."""
    nodes = [
        helper.make_node("Conv", ["x", "deep"], ["d"], pads=[1] * 4, group=64, name="deep"),
        helper.make_node("Conv", ["d", "wide"], ["w"], name="wide"),
        helper.make_node("GlobalAveragePool", ["w"], ["p"], name="pool"),
        helper.make_node("Conv", ["p", "gate"], ["g"], name="gate"),
        helper.make_node("Sigmoid", ["g"], ["s"], name="sigmoid"),
        helper.make_node("Mul", ["w", "s"], ["y"], name="scale"),
    ]
    return save(
        path, nodes, {"deep": (64, 1, 3, 3), "wide": (64, 64, 1, 1), "gate": (64, 64, 1, 1)}
    )


def plan(
    model: str, objective: str, target: str = BOARD, mode: str = "hybrid", **placement: object
) -> object:
    options = {"objective": objective, **placement}
    build = {"mode": mode}
    return edgekit.plan(model, target=target, precision="int8", placement=options, build=build)


@pytest.mark.parametrize("objective", ["throughput", "period"])
def test_frames_that_overlap_carry_what_sharing_costs(tmp_path: Path, objective: str) -> None:
    made = plan(chain(tmp_path / "chain.onnx"), objective, dla_cores=[0], mode="split")
    alone = made.baselines["gpu_only"].throughput_qps
    assert made.optimal
    assert made.predicted.throughput_qps > alone
    # by device, the time of a frame as if nothing were shared
    loads = dict.fromkeys(("GPU", "DLA0"), 0.0)
    for part in made.plans:
        for layer in part.layers:
            loads[layer.device] += part.share * layer.predicted_us
    assert min(loads.values()) > 0
    assert made.predicted.throughput_qps < 1e6 / max(loads.values())
    extra = contention_constants().extra["2.0"]["gpu_by_dla"]
    assert any(f"the GPU takes {100 * extra:.0f} % longer" in note for note in made.notes)


def pinned(path: Path, *on_gpu: int) -> dict[str, object]:
    """Returns a chain of ten convolutions on the DLA but for some, and how it is planned."""
    model = chain(path)
    pins = [{"layers": "*", "device": "DLA"}]
    pins += [{"layers": f"*{n}", "device": "GPU"} for n in on_gpu]
    return {"model": model, "objective": "period", "pin": pins, "dla_cores": [0]}


def loads(made: object) -> tuple[float, float]:
    busy = made.to_json()["frame"]["busy_us"]
    return busy.get("GPU", 0.0), busy["DLA0"]


def test_a_hybrid_engine_waits_for_a_busy_gpu_and_engines_of_segments_do_not(
    tmp_path: Path,
) -> None:
    given = pinned(tmp_path / "chain.onnx", 8, 9)
    hybrid, split = plan(**given), plan(**given, mode="split")
    assert loads(hybrid) == loads(split)
    assert hybrid.predicted.energy_uj == split.predicted.energy_uj
    # ResNet-50 on an AGX Orin: 210.7 of 778.8 inferences a second beside the GPU
    gpu, core = loads(hybrid)
    extra = contention_constants().extra["2.0"]["gpu_by_dla"]
    kept, beside = 210.748 / 778.844, 1 / (1 + extra)
    period = 1e6 / hybrid.predicted.throughput_qps
    assert period == pytest.approx(
        max(gpu + core * (1 - beside) / kept, core + gpu * (1 - kept) / beside), rel=1e-3
    )
    assert split.predicted.throughput_qps > 1.1 * hybrid.predicted.throughput_qps
    waits = [note for note in hybrid.notes if "27 % of its rate beside a busy GPU" in note]
    assert len(waits) == 1
    assert not any("27 %" in note for note in split.notes)
    assert hybrid.to_json()["frame"]["shared"] == ["memory", "gpu"]
    assert split.to_json()["frame"]["shared"] == ["memory"]


def test_an_engine_wholly_on_the_dla_is_no_hybrid_one(tmp_path: Path) -> None:
    given = pinned(tmp_path / "chain.onnx")
    pure, split = plan(**given), plan(**given, mode="split")
    assert {layer.device for layer in pure.layers} == {"DLA0"}
    assert pure.predicted == split.predicted
    assert not any("rate beside a busy GPU" in note for note in pure.notes)


@pytest.mark.parametrize(
    ("target", "kept", "where"),
    [
        (BOARD, 0.870, "measured on AGX Orin 64GB and taken for every Orin"),
        ("jetson-agx-orin-32gb", 0.870, "measured on AGX Orin 64GB and taken for every Orin"),
        ("jetson-orin-nx-16gb", 0.639, "measured on this board"),
        ("drive-orin", 0.973, "measured on this board"),
    ],
)
def test_two_hybrid_engines_keep_what_was_measured_of_such_a_board(
    tmp_path: Path, target: str, kept: float, where: str
) -> None:
    given = pinned(tmp_path / "chain.onnx", 9)
    made = plan(**{**given, "objective": "throughput", "dla_cores": [0, 1]}, target=target)
    assert len(made.plans) == 2
    (note,) = (note for note in made.notes if "counts both DLA cores" in note)
    assert f"each keeps {100 * kept:.0f} % of its rate" in note
    assert where in note
    # the cores decide: the GPU has one layer
    alone = 1e6 / loads(plan(**given, target=target))[1]
    assert alone * 2 * kept > made.predicted.throughput_qps > alone * 2 * kept * 0.6


@pytest.mark.few(1)
@pytest.mark.parametrize("precision", ["int8", "fp16"])
def test_at_a_low_rate_the_dla_costs_more_energy_than_the_gpu_and_back_to_back_less(
    precision: str,
) -> None:
    """As YOLO11n did on an AGX Orin at 50W and 10 frames a second, and ResNet-50 back to back."""
    frame = {
        rate: edgekit.plan(
            "builtin:light_resnet50",
            target=BOARD,
            precision=precision,
            power_mode="50W",
            placement={"rate_hz": rate},
        )
        for rate in (None, 10)
    }
    energy = {
        (device, rate): made.baselines[name].energy_uj
        for rate, made in frame.items()
        for device, name in (("GPU", "gpu_only"), ("DLA", "tensorrt_auto"))
    }
    assert energy["DLA", 10] > energy["GPU", 10]
    if precision == "int8":
        assert energy["DLA", None] < energy["GPU", None]
    for rate, made in frame.items():
        document = made.to_json()
        assert document["energy"]["rate_hz"] == rate
        part = document["plans"][0]
        paid = sum(one["predicted_uj"] for one in part["layers"])
        paid += sum(one["uj"] for one in (*part["reformats"], *part["unfused"]))
        paid += sum(one["launch_uj"] + one["border_uj"] for one in document["loadables"])
        idle = document["energy"]["idle_uj"]
        assert made.predicted.energy_uj == pytest.approx(paid + idle * (rate is not None))
        if rate:  # 7.6 W for a tenth of a second, and the devices' standby
            assert 760_000 < idle < 860_000
            low, high = document["bands"]["energy_uj"]
            assert idle < low < made.predicted.energy_uj < high
        else:
            assert idle == pytest.approx(7.6 * made.predicted.latency_us)


def test_the_least_energy_at_a_rate_is_the_best_of_all_pinned_placements(tmp_path: Path) -> None:
    model = chain(tmp_path / "chain.onnx", 6)
    devices = set()
    for rate in (10, 100, 1000):
        best = plan(model, "energy", rate_hz=rate, slack=0)
        assert best.optimal
        assert best.bound == pytest.approx(best.predicted.energy_uj, rel=1e-4)
        assert best.predicted.throughput_qps >= rate
        for on_dla in ((), (0, 1, 2), (3, 4, 5), (0, 1, 2, 3, 4, 5)):
            pins = [
                {"layers": f"*{n}", "device": "DLA" if n in on_dla else "GPU"} for n in range(6)
            ]
            other = plan(model, "energy", rate_hz=rate, pin=pins, slack=0)
            assert best.predicted.energy_uj <= other.predicted.energy_uj * (1 + 1e-9)
        devices.add(tuple(sorted({layer.device for layer in best.layers})))
        bound = best.predicted.energy_uj
        kept = plan(model, "latency", rate_hz=rate, bounds={"energy_uj": bound * 1.0001})
        assert kept.predicted.energy_uj <= bound * 1.0001
        with pytest.raises(GateError) as caught:
            plan(model, "latency", rate_hz=rate, bounds={"energy_uj": bound * 0.999})
        assert caught.value.where == "bounds.energy_uj"
    assert ("GPU",) in devices
    assert len(devices) > 1


def test_a_rate_that_no_plan_keeps_up_with_is_named(tmp_path: Path) -> None:
    with pytest.raises(GateError, match="rate_hz 1000000 cannot be met") as caught:
        plan(chain(tmp_path / "chain.onnx"), "latency", rate_hz=1e6)
    assert caught.value.exit_code == 1


def test_a_rate_is_for_one_network(tmp_path: Path) -> None:
    one = {"name": "a", "onnx": chain(tmp_path / "chain.onnx", 2)}
    config = {
        "version": 1,
        "name": "two",
        "target": BOARD,
        "model": {"networks": [one, {**one, "name": "b"}]},
        "placement": {"rate_hz": 10},
    }
    path = tmp_path / "two.yaml"
    path.write_text(json.dumps(config))
    with pytest.raises(EdgekitError, match="rate_hz is for one network"):
        edgekit.plan(path)


OBJECTIVES = ["latency", "throughput", "period", "energy", "gpu_time"]


@pytest.mark.few(2)
@pytest.mark.parametrize("target", [BOARD, "jetson-agx-xavier"])
@pytest.mark.parametrize("on_dla", [(3, 4, 5), (0, 1, 2, 3, 4, 5, 6), ()])
def test_a_placement_has_one_prediction_whatever_was_made_best(
    tmp_path: Path, target: str, on_dla: tuple[int, ...]
) -> None:
    """Pins leave one placement; the objective may choose other formats where devices meet."""
    model = chain(tmp_path / "chain.onnx")
    pins = (
        [{"layers": f"conv{n}", "device": "DLA" if n in on_dla else "GPU"} for n in range(10)]
        if on_dla
        else []
    )
    cores = [0] if on_dla else []
    by_placement: dict[object, set[tuple[object, ...]]] = {}
    baselines = set()
    for objective in OBJECTIVES:
        made = plan(model, objective, target, dla_cores=cores, pin=pins)
        assert made.optimal
        for part in made.plans:
            where = tuple((layer.name, layer.device) for layer in part.layers)
            formats = tuple((one.tensor, one.source, one.goal) for one in part.reformats)
            times = (round(part.predicted.latency_us, 4), round(part.predicted.gpu_us, 4))
            by_placement.setdefault((where, formats, times), set()).add(
                (round(part.predicted.energy_uj, 4), round(part.predicted.throughput_qps, 4))
            )
        for name in ("gpu_only", "tensorrt_auto"):
            one = made.baselines[name]
            baselines.add((name, one and tuple(one.to_json().values())))
        assert not on_dla or any(
            note.startswith("throughput and energy include") for note in made.notes
        )
    assert all(len(values) == 1 for values in by_placement.values()), by_placement
    assert len(by_placement) < len(OBJECTIVES)  # some of them are one placement
    assert len(baselines) == 2


def test_a_front_has_the_energy_that_plans_have(tmp_path: Path) -> None:
    model = chain(tmp_path / "chain.onnx", 4)
    pins = [{"layers": "conv0", "device": "DLA"}, {"layers": "conv3", "device": "GPU"}]
    options = {"dla_cores": [0], "pin": pins}
    for first, second in (("latency_us", "energy_uj"), ("energy_uj", "latency_us")):
        front = edgekit.pareto(
            model, first, second, target=BOARD, precision="int8", placement=options
        )
        assert front.complete
        for point in front.points:
            bounds = {second: getattr(point, second) * (1 + 1e-6)}
            made = plan(model, first.partition("_")[0], bounds=bounds, **options)
            assert getattr(made.predicted, first) == pytest.approx(getattr(point, first), rel=2e-5)
            assert point.bound <= made.predicted.to_json()[first] * (1 + 1e-9)
        energy = plan(model, "energy", **options).predicted.energy_uj
        assert min(p.energy_uj for p in front.points) == pytest.approx(energy, rel=2e-5)


@pytest.mark.parametrize("target", [BOARD, "jetson-agx-xavier"])
def test_the_least_energy_of_all_placements_with_what_sharing_costs(
    tmp_path: Path, target: str
) -> None:
    """Each frame's work on the two devices overlaps as long as there is work for both."""
    net, board = (
        layers_module.layers(load_module.load(chain(tmp_path / "chain.onnx", 4))),
        get(target),
    )
    judged = judge(net, board, precision="int8")
    pins = (Pin("conv0", "DLA"), Pin("conv3", "GPU"))  # else one device does all of it
    made = place(
        net,
        judged,
        board,
        precision="int8",
        options=Options(objective="energy", dla_cores=(0,), pins=pins),
    )
    # waiting for a busy GPU takes no energy: only the memory's factors count
    # as if nothing were shared
    plain = prepare(
        net, judged, board, precision="int8", options=Options(dla_cores=(0,), pins=pins, split=True)
    )
    problem, model = plain.problem, plain.request.model
    gpu_watts, dla_watts = (model.watts(name) for name in problem.devices)
    (speeds,) = (row for row in problem.together if all(row))
    allowed = [[m for m, cost in enumerate(row) if cost] for row in problem.costs]
    energies = []
    for modes in product(*allowed):
        placing = evaluate(problem, modes, Goal.of(problem, "energy"))
        if placing is None:
            continue
        loads = placing.load_us[:2]
        both = min(load / speed for load, speed in zip(loads, speeds, strict=True))
        gpu, core = (load + both * (1 - speed) for load, speed in zip(loads, speeds, strict=True))
        energies.append(gpu_watts * gpu + dla_watts * core)
    assert len(energies) > 8
    assert len({layer.device for layer in made.layers}) == 2
    assert made.predicted.energy_uj == pytest.approx(min(energies), rel=1e-6)
    assert made.bound == pytest.approx(min(energies), rel=1e-4)
    assert made.optimal


@pytest.mark.parametrize("objective", ["throughput", "period", "energy", "gpu_time"])
def test_every_objective_says_what_nothing_supports(tmp_path: Path, objective: str) -> None:
    low, high = extrapolation().band
    pins = [{"layers": "deep", "device": "DLA"}]
    for made in (
        plan(gated(tmp_path / "gated.onnx"), objective, dla_cores=[0], pin=pins),
        plan(gated(tmp_path / "gated.onnx"), objective, target="jetson-agx-thor"),
    ):
        assert made.extrapolated
        said = [note for note in made.notes if "xtrapolated" in note]
        assert said
        assert all("extrapolated" in note.lower() for note in said)
        name, value = {
            "throughput": ("throughput_qps", made.predicted.throughput_qps),
            "period": ("throughput_qps", made.predicted.throughput_qps),
            "energy": ("energy_uj", made.predicted.energy_uj),
            "gpu_time": ("gpu_us", made.predicted.gpu_us),
        }[objective]
        if name in made.bands and value:
            least, most = made.bands[name]
            assert most / least == pytest.approx(high / low, rel=0.01)


def test_the_terminal_says_extrapolated_next_to_optimal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from edgekit.cli import main

    model = chain(tmp_path / "chain.onnx", 3)
    with pytest.raises(SystemExit):
        main.main(["plan", model, "-t", "jetson-agx-thor", "--precision", "int8", "-q"])
    printed = " ".join(capsys.readouterr().out.split())
    assert "proved optimal, extrapolated" in printed
    assert "assumed band" in printed
    with pytest.raises(SystemExit):
        main.main(["plan", model, "-t", BOARD, "--precision", "int8", "-q"])
    assert "80 % band" in " ".join(capsys.readouterr().out.split())


def test_an_fp16_head_of_an_int8_network_pays_for_its_conversion(tmp_path: Path) -> None:
    model = chain(tmp_path / "chain.onnx", 4)
    whole = plan(model, "latency", dla_cores=[])
    both = edgekit.plan(model, target=BOARD, precision="fp16", placement={"dla_cores": []})
    assert both.predicted.latency_us > whole.predicted.latency_us
    from edgekit.dla.judge import judge
    from edgekit.network.loading import load as load_module
    from edgekit.network.lowering import layers as layers_module
    from edgekit.placement.placing import place
    from edgekit.placement.plan import Options
    from edgekit.targets.loader import get

    loaded = load_module.load(model)
    net, board = layers_module.layers(loaded), get(BOARD)
    judged = judge(net, board, precision="int8", tensorrt="10.3")
    head = frozenset(layer.name for layer in net.layers[-2:])
    mixed = place(
        net, judged, board, precision="int8", options=Options(dla_cores=(), fp16_layers=head)
    )
    costs = {layer.name: layer.predicted_us for layer in mixed.layers}
    assert mixed.predicted.latency_us > sum(costs.values()) + 10  # a kernel of its own
