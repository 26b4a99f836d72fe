"""place() on real networks and on small ones made by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import onnx.backend.test
import pytest

import edgekit
from edgekit.dla.judge import judge
from edgekit.errors import DataError, GateError, UsageError
from edgekit.network.loading.load import load
from edgekit.network.lowering import layers as layers_module
from edgekit.network.model import Layer, Network, Tensor
from edgekit.placement.costs.constants import contention_constants
from edgekit.placement.inputs import PlanImpossible
from edgekit.placement.placing import place
from edgekit.placement.plan import (
    Change,
    Options,
    Pin,
    Plan,
    compare_plans,
    plan_from_json,
)
from edgekit.targets.loader import get

LIGHT = Path(onnx.backend.test.__file__).parent / "data" / "light"
ORIN = "jetson-agx-orin-64gb"
NAMES = [
    "squeezenet",
    "shufflenet",
    "bvlc_alexnet",
    "densenet121",
    "inception_v1",
    "inception_v2",
    "resnet50",
    "vgg19",
    "zfnet512",
]


@pytest.fixture(scope="module")
def resnet() -> Network:
    return layers_module.layers(load(LIGHT / "light_resnet50.onnx"))


def plan_of(
    net: Network,
    target: str = ORIN,
    precision: str = "int8",
    mode: str | None = None,
    **options: object,
) -> Plan:
    board = get(target)
    verdicts = judge(net, board, precision=precision)
    return place(
        net, verdicts, board, precision=precision, power_mode=mode, options=Options(**options)
    )


def chain(kinds: list[str], channels: int = 64, size: int = 56) -> Network:
    """A chain of 3x3 convolutions and other layers over one shape."""
    shape = (1, channels, size, size)
    tensors = {"t0": Tensor("t0", shape, "float32")}
    layers = []
    for i, kind in enumerate(kinds):
        tensors[f"t{i + 1}"] = Tensor(f"t{i + 1}", shape, "float32")
        name = f"{kind.lower()}{i}"
        conv = kind == "CONVOLUTION"
        weights = channels * channels * 9 if conv else 0
        params: dict[str, object] = {"axes": (1,)}
        if conv:
            params = {
                "kernel": (3, 3),
                "stride": (1, 1),
                "dilation": (1, 1),
                "pads": (1, 1, 1, 1),
                "groups": 1,
                "out_maps": channels,
            }
        elif kind == "ACTIVATION":
            params = {"function": "RELU"}
        elif kind == "SOFTMAX":
            params = {"axis": 1}
        layers.append(
            Layer(
                name,
                kind,
                {"CONVOLUTION": "Conv", "ACTIVATION": "Relu"}.get(kind, kind.title()),
                (name,),
                (name,),
                (f"t{i}",),
                (f"t{i + 1}",),
                params,
                macs=weights * size * size,
                weight_elements=weights,
            )
        )
    return Network("chain", tuple(layers), tensors, ("t0",), (f"t{len(kinds)}",))


def check_segments(net: Network, plan: Plan) -> None:
    """Every segment is on one device and only reads what earlier ones wrote."""
    for share in plan.plans:
        at = {layer.name: layer.segment for layer in share.layers}
        device = {layer.segment: layer.device for layer in share.layers}
        assert set(device) == set(range(len(device)))
        assert all(device[layer.segment] == layer.device for layer in share.layers)
        makers = net.producers()
        for layer in net.layers:
            for name in layer.inputs:
                if name in makers:
                    assert at[makers[name].name] <= at[layer.name]
        assert [layer.name for layer in share.layers] == [layer.name for layer in net.layers]


@pytest.mark.few(1)
@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_light_networks_are_proved(name: str) -> None:
    net = layers_module.layers(load(LIGHT / f"light_{name}.onnx"))
    board = get(ORIN)
    verdicts = judge(net, board, precision="int8")
    for objective in ("latency", "throughput", "gpu_time"):
        options = Options(objective=objective, dla_cores=(0, 1))
        plan = place(net, verdicts, board, precision="int8", options=options)
        assert plan.optimal
        assert plan.gap <= 1e-4
        assert sum(share.share for share in plan.plans) == pytest.approx(1)
        check_segments(net, plan)
        assert plan_from_json(json.loads(json.dumps(plan.to_json()))) == plan
        for share in plan.plans:
            for layer in share.layers:
                assert layer.device == "GPU" or verdicts.verdicts[layer.name].ok
        best = {"latency": min, "gpu_time": min, "throughput": max}[objective]
        metric = {"latency": "latency_us", "gpu_time": "gpu_us", "throughput": "throughput_qps"}
        found = [plan.predicted, *(b for b in plan.baselines.values() if b)]
        values = [getattr(each, metric[objective]) for each in found]
        assert values[0] == pytest.approx(best(values), rel=1e-9)


def test_resnet50_on_orin_matches_what_was_measured(resnet: Network) -> None:
    plan = plan_of(resnet)
    gpu, auto = plan.baselines["gpu_only"], plan.baselines["tensorrt_auto"]
    assert gpu is not None
    assert auto is not None
    assert gpu.latency_us == pytest.approx(1013, rel=0.15)  # trtexec, GPU, INT8
    assert auto.latency_us == pytest.approx(1278, rel=0.15)  # trtexec, --useDLACore=0, INT8
    assert plan.predicted.latency_us <= gpu.latency_us


def test_fp16_on_orins_dla_is_an_order_slower(resnet: Network) -> None:
    int8 = plan_of(resnet).baselines["tensorrt_auto"]
    fp16 = plan_of(resnet, precision="fp16").baselines["tensorrt_auto"]
    assert int8 is not None
    assert fp16 is not None
    assert 14 <= fp16.latency_us / int8.latency_us <= 21


def test_offload_under_a_latency_bound(resnet: Network) -> None:
    free = plan_of(resnet, objective="gpu_time")
    bound = plan_of(resnet, objective="gpu_time", bounds={"latency_us": 960})
    assert bound.optimal
    assert bound.predicted.latency_us <= 960
    assert free.predicted.gpu_us < bound.predicted.gpu_us < 600
    assert bound.loadables
    pools = set(bound.pools.values())
    assert all(size & (size - 1) == 0 for size in pools)


@pytest.mark.parametrize(
    ("target", "precision"), [("jetson-orin-nano-8gb", "int8"), (ORIN, "fp32")]
)
def test_gpu_only_is_a_first_class_answer(resnet: Network, target: str, precision: str) -> None:
    for objective in ("latency", "throughput", "period", "energy", "gpu_time"):
        plan = plan_of(resnet, target, precision, objective=objective)
        assert plan.optimal
        assert {layer.device for layer in plan.layers} == {"GPU"}
        assert plan.loadables == ()
        assert plan.pools == {}
        assert plan.baselines["tensorrt_auto"] is None
        assert any("GPU" in note for note in plan.notes)


def test_max_loadables_holds() -> None:
    net = chain((["CONVOLUTION"] * 9 + ["SOFTMAX"]) * 3 + ["CONVOLUTION"] * 9)
    board = get(ORIN)
    verdicts = judge(net, board, precision="int8")
    softmax = {layer.name for layer in net.layers if layer.kind == "SOFTMAX"}
    blocked = {
        name: replace(verdict, ok=name not in softmax)
        for name, verdict in verdicts.verdicts.items()
    }
    verdicts = replace(verdicts, verdicts=blocked)
    for slots in (0, 1, 3):
        options = Options(objective="gpu_time", max_loadables=slots)
        plan = place(net, verdicts, board, precision="int8", options=options)
        assert len(plan.loadables) == slots


def test_fp16_layers_run_in_fp16() -> None:
    net = chain(["CONVOLUTION"] * 3)
    plan = plan_of(net, fp16_layers=frozenset({"convolution1"}))
    assert [layer.precision for layer in plan.layers] == ["int8", "fp16", "int8"]


def test_standalone_uses_one_loadable_and_no_reformats() -> None:
    net = chain(["CONVOLUTION", "ACTIVATION"] * 3)
    plan = plan_of(net, gpu=False)
    assert {layer.device for layer in plan.layers} == {"DLA0"}
    assert len(plan.loadables) == 1
    assert plan.predicted.gpu_us == 0
    both = plan_of(net, gpu=False, dla_cores=(0, 1), objective="throughput")
    # two cores share the DRAM: each takes longer beside the other
    one, other = plan.predicted.throughput_qps, both.predicted.throughput_qps
    slower = 1 + contention_constants().extra["2.0"]["dla_by_dla"]
    assert other == pytest.approx(2 * one / slower)
    assert other < 2 * one
    assert [share.share for share in both.plans] == [0.5, 0.5]


def test_standalone_that_cannot_be_names_layers_and_reasons(resnet: Network) -> None:
    with pytest.raises(PlanImpossible) as caught:
        plan_of(resnet, gpu=False)
    document = caught.value.to_json()["error"]
    assert caught.value.exit_code == 1
    assert document["code"] == "plan.impossible"
    assert document["layers"]
    assert all(entry["reasons"] for entry in document["layers"])
    first = document["layers"][0]
    assert f"{first['name']} ({first['reasons'][0]['rule']}" in document["message"]


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"objective": "latencies"}, "plan.objective"),
        ({"bounds": {"latency": 5}}, "plan.bound"),
        ({"bounds": {"latency_us": -5}}, "plan.bound"),
        ({"dla_cores": (2,)}, "plan.core"),
        ({"pins": (Pin("nothing*", "GPU"),)}, "plan.pin"),
        ({"pins": (Pin("*", "NPU"),)}, "plan.device"),
    ],
)
def test_options_that_make_no_sense(options: dict[str, object], code: str) -> None:
    with pytest.raises(UsageError) as caught:
        plan_of(chain(["CONVOLUTION"]), **options)
    assert caught.value.code == code


def test_weights_beyond_the_pool_are_split_and_proved() -> None:
    net = chain(["CONVOLUTION"] * 10, channels=512, size=14)  # 4.7 MB of weights each
    pinned = (Pin("*", "DLA"),)
    assert len(plan_of(net, pins=pinned).loadables) == 1
    cut = plan_of(net, pins=pinned, pools={"global_dram": 16 << 20})
    assert sorted(len(one.layers) for one in cut.loadables) == [1, 3, 3, 3]
    assert cut.optimal
    assert cut.pools["global_dram"] <= 16 << 20
    check_segments(net, cut)
    # a pool in which nothing fits leaves the GPU; with a pin to the DLA nothing is left
    tiny = plan_of(net, objective="gpu_time", pools={"global_dram": 1 << 20})
    assert {layer.device for layer in tiny.layers} == {"GPU"}
    with pytest.raises(GateError) as caught:
        plan_of(net, pins=pinned, pools={"global_dram": 1 << 20})
    assert caught.value.code == "plan.infeasible"


def test_a_later_pin_wins() -> None:
    net = chain(["CONVOLUTION", "ACTIVATION", "POOLING"])
    plan = plan_of(net, pins=(Pin("*", "DLA"), Pin("pooling*", "GPU")))
    devices = {layer.name: layer.device for layer in plan.plans[0].layers}
    assert {device for name, device in devices.items() if name.startswith("pooling")} == {"GPU"}
    plan = plan_of(net, pins=(Pin("pooling*", "GPU"), Pin("*", "DLA")))
    assert "GPU" not in {layer.device for layer in plan.plans[0].layers}


def test_a_search_that_ends_at_once_proves_nothing_and_is_still_a_document(monkeypatch):
    # a busy machine can reach the clock's limit before the first bound is known
    monkeypatch.setattr("edgekit.placement.search.PERIOD_EFFORT", 0.0)
    plan = edgekit.plan(
        "builtin:light_squeezenet", target="jetson-agx-orin-64gb", placement={"objective": "period"}
    )
    assert plan.bound >= 0
    assert not plan.optimal
    json.dumps(plan.to_json(), allow_nan=False)


def test_a_plan_without_any_known_cost_has_no_figures() -> None:
    """A network of a plugin alone: nothing is 0, faster or proved."""
    tensors = {name: Tensor(name, (1, 8, 16, 16), "float32") for name in "xy"}
    layer = Layer("p", "PLUGIN_V2", "Mine", ("p",), ("p",), ("x",), ("y",), {}, formula=False)
    net = Network("n", (layer,), tensors, ("x",), ("y",))
    assert net.uncounted == ("p",)
    board = get(ORIN)
    plan = place(net, judge(net, board, precision="int8"), board, precision="int8")
    document = plan.to_json()
    unknown = dict.fromkeys(("latency_us", "throughput_qps", "energy_uj", "gpu_us"))
    assert document["predicted"] == document["plans"][0]["predicted"] == unknown
    assert document["baselines"]["gpu_only"] == document["baselines"]["tensorrt_auto"] == unknown
    assert document["frame"]["period_us"] is document["frame"]["busy_us"]["GPU"] is None
    assert (document["optimal"], document["bands"]) == (False, {})
    assert any("time, rate and energy are unknown" in note for note in plan.notes)
    assert not any("Optimal" in note for note in plan.notes)
    assert plan_from_json(document) == plan
    compared = compare_plans(plan, plan, ["nothing"])
    assert compared.before.value is compared.objective.by is None
    assert compared.difference["latency_us"] == Change(None, None)


@pytest.mark.parametrize(
    ("place", "value", "where"),
    [
        (("layers", 0, "device"), "XPU", "layers[0].device"),
        (("pools",), {"global_dram": -1}, "pools.global_dram"),
        (("surplus",), 1, ""),
        (("plans", 0, "reformats"), [{"tensor": "x"}], "plans[0].reformats[0]"),
        (("constraints", "pins"), [{"layers": "*", "device": "CPU"}], "constraints.pins[0].device"),
        (("slack", "metric"), "beauty", "slack.metric"),
        (("frame", "device"), "XPU", "frame.device"),
        (("plans", 0, "devices", 0, "busy_us"), -7.0, "plans[0].devices[0].busy_us"),
        (("bands", "latency_us"), [1.0], "bands.latency_us"),
    ],
)
def test_a_document_that_is_no_plan_is_refused_with_its_place(place, value, where, resnet) -> None:
    document = json.loads(json.dumps(plan_of(resnet).to_json()))
    *above, last = place
    part = document
    for key in above:
        part = part[key]
    part[last] = value
    with pytest.raises(DataError) as caught:
        plan_from_json(document)
    assert (caught.value.code, caught.value.where) == ("plan.schema", where)
