"""Fewest loadables within the prediction's noise: regions stay whole on the GPU, and why."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import onnx
import pytest
import yaml

import edgekit
from edgekit.dla.judge import judge
from edgekit.dla.loadables import find_candidates
from edgekit.dla.verdicts import LoadableCandidate
from edgekit.errors import EdgekitError
from edgekit.network.model import Layer, Network, Tensor
from edgekit.placement import placing
from edgekit.placement.check import CheckResult, check_model
from edgekit.placement.costs.kernel_costs import noise
from edgekit.placement.forecast import make_timer
from edgekit.placement.placing import PlacementQuery
from edgekit.placement.plan import (
    SECOND_METRICS,
    Options,
    Pin,
    Plan,
    plan_from_json,
    plan_value,
)
from edgekit.targets.loader import get
from tests import exports
from tests.placement.random_nets import branching

NAME = "jetson-agx-orin-64gb"
BOARD = get(NAME)


def regions(first: int, islands: Sequence[int], channels: int = 128, size: int = 80) -> Network:
    """Returns large convolutions, and islands of small ones, each behind a softmax."""
    pool = {"kernel": (4, 4), "stride": (4, 4), "pads": (0, 0, 0, 0), "mode": "MAX"}
    kinds = ["first"] * first + ["pool"]
    for count in islands:
        kinds += ["softmax", *["conv"] * count]
    tensors = {"t0": Tensor("t0", (1, channels, size, size), "float32")}
    found: list[Layer] = []
    for i, kind in enumerate(kinds):
        size = size // 4 if kind == "pool" else size
        name = f"{kind}{i}"
        ends = ((f"t{i}",), (f"t{i + 1}",))
        if kind in ("first", "conv"):
            model = next(x for x in branching(0, 9).layers if x.kind == "CONVOLUTION")
            weights = channels * channels * 9
            layer = replace(
                model,
                name=name,
                nodes=(name,),
                origin=(name,),
                inputs=ends[0],
                outputs=ends[1],
                params={**model.params, "out_maps": channels},
                macs=weights * size * size,
                weight_elements=weights,
            )
        elif kind == "pool":
            layer = Layer(name, "POOLING", "MaxPool", (name,), (name,), *ends, pool)
        else:
            layer = Layer(name, "SOFTMAX", "Softmax", (name,), (name,), *ends, {"axis": 1})
        found.append(layer)
        tensors[f"t{i + 1}"] = Tensor(f"t{i + 1}", (1, channels, size, size), "float32")
    return Network("regions", tuple(found), tensors, ("t0",), (f"t{len(found)}",))


def query(network: Network, **options: object) -> PlacementQuery:
    """Returns a request in which the large convolutions are on the DLA, and no softmax can be."""
    found = judge(network, BOARD, precision="int8")
    verdicts = {
        name: replace(one, ok=one.ok and not name.startswith("softmax"))
        for name, one in found.verdicts.items()
    }
    groups = find_candidates(network, {name: one.ok for name, one in verdicts.items()})
    on_dla = {name for group in groups if group.retained for name in group.layers}
    judgement = replace(
        found,
        verdicts=verdicts,
        candidates=groups,
        placed={name: "DLA" if name in on_dla else "GPU" for name in verdicts},
    )
    chosen = Options(pins=(Pin("first*", "DLA"),), **options)  # type: ignore[arg-type]
    return PlacementQuery(network, judgement, BOARD, "int8", None, chosen)


def second(plan: Plan) -> float:
    return float(getattr(plan.predicted, SECOND_METRICS[plan.objective]) or 0.0)


def without_the_choice(monkeypatch: pytest.MonkeyPatch, request: PlacementQuery) -> Plan:
    with monkeypatch.context() as patched:
        patched.setattr(placing, "reduce_loadables", lambda optimum, chosen, *_: chosen)
        return request.plan()


def every_placement(request: PlacementQuery) -> Iterator[Plan]:
    """Yields the plan of every set of layers that may be on the DLA."""
    free = [x.name for x in request.network.layers if request.judgement.verdicts[x.name].placeable]
    free = [name for name in free if not name.startswith("first")]
    for devices in itertools.product(("GPU", "DLA"), repeat=len(free)):
        pins = tuple(Pin(name, device) for name, device in zip(free, devices, strict=True))
        options = replace(request.options, slack=0.0, pins=(*request.options.pins, *pins))
        yield request.plan(options)


@pytest.mark.parametrize(
    ("objective", "slack", "loadables", "otherwise"),
    [("latency", 0.085, 1, 2), ("energy", 0.03, 2, 2)],
)
def test_no_placement_as_good_has_fewer_loadables(
    monkeypatch: pytest.MonkeyPatch, objective: str, slack: float, loadables: int, otherwise: int
) -> None:
    request = query(regions(4, (5,)), objective=objective, slack=slack)
    plan, chosen = request.plan(), without_the_choice(monkeypatch, request)
    assert plan.slack is not None
    best, least = plan.slack.optimum * (1 + slack), second(chosen) * (1 + slack)
    as_good = [
        len(other.loadables)
        for other in every_placement(request)
        if plan_value(other) <= best and second(other) <= least
    ]
    assert len(plan.loadables) == min(as_good, default=otherwise) == loadables
    assert len(chosen.loadables) == otherwise
    assert plan.slack.given_up <= slack


def test_the_plan_tells_what_stays_on_the_gpu_and_what_that_costs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    request = query(regions(4, (5,)), objective="latency", slack=0.085)
    plan, chosen = request.plan(), without_the_choice(monkeypatch, request)
    fewer = plan.fewer
    assert fewer is not None
    assert fewer.instead_of == len(chosen.loadables)
    was = {layer.name: layer.device for layer in chosen.layers}
    moved = [x.name for x in plan.layers if x.device == "GPU" and was[x.name] != "GPU"]
    assert list(fewer.gpu_layers) == moved
    assert fewer.gpu_modules == fewer.dla_layers == ()
    assert fewer.given_up == pytest.approx(plan_value(plan) / plan_value(chosen) - 1)
    assert fewer.given_up_second == pytest.approx(second(plan) / second(chosen) - 1)
    assert 0 < fewer.given_up_second < fewer.noise == noise()
    (reason,) = [note for note in plan.notes if note.startswith("kept whole on the GPU")]
    assert all(part in reason for part in (moved[0], "1 loadable fewer", "8.9 %", "of the energy"))
    assert (plan.bound, plan.gap, plan.optimal) == (chosen.bound, chosen.gap, chosen.optimal)
    assert plan_value(plan) >= plan.bound
    assert plan_from_json(plan.to_json()) == plan


def test_without_slack_the_optimum_is_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    request = query(regions(4, (5,)), objective="energy", slack=0.0)
    plan = request.plan()
    assert plan.fewer is None
    assert plan == without_the_choice(monkeypatch, request)


@pytest.fixture
def file(name: str, tmp_path: Path) -> Path:
    """The structure of a real export: of ultralytics, and of transformers' DETR."""
    path = tmp_path / f"{name}.onnx"
    onnx.save(exports.load(name), path)
    return path


def best_single_cut(result: CheckResult, metric: str) -> int:
    """Returns the loadables of the best of all single cuts along the running order.

    A cut's first part runs on a core, as far as one can run it, and the rest on the GPU.
    """
    network, judgement = result.network, result.judgement
    clock = make_timer(network, judgement, result.target)
    assert clock is not None
    outside: set[str] = set()
    part: list[Layer] = []
    found = []
    for layer in network.layers:
        if not judgement.verdicts[layer.name].placeable or not outside.isdisjoint(layer.inputs):
            outside.update(layer.outputs)
            continue
        part.append(layer)
        whole = LoadableCandidate(tuple(one.name for one in part), True, "")
        loads = clock.loads_us([whole])
        energy = clock.model.energy(("GPU", "DLA0"), (*loads, 0.0))[0]
        value = {"latency_us": sum(loads), "gpu_us": loads[0], "energy_uj": energy}[metric]
        found.append((value, len(part)))
    count = min(found)[1]
    able = {one.name: True for one in part[:count]}
    inside = replace(network, layers=tuple(part[:count]))
    return len(find_candidates(inside, able, judgement.slots, judgement.precision))


def no_more_than_any_cut(path: Path, objective: str, metric: str) -> None:
    plan = edgekit.plan(path, target=NAME, placement={"objective": objective})
    result = check_model(path, target=NAME)
    cuts = result.document.cuts
    assert cuts
    assert len(plan.loadables) <= cuts[0].loadables
    assert len(plan.loadables) <= best_single_cut(result, metric)


@pytest.mark.parametrize(
    ("name", "objective", "metric"),
    [
        ("yolo11n", "latency", "latency_us"),
        ("yolo26n", "latency", "latency_us"),
        ("yolo26n", "energy", "energy_uj"),
        ("hf_detr_resnet50", "latency", "latency_us"),
    ],
)
def test_a_detector_has_no_more_loadables_than_the_best_cut(
    file: Path, objective: str, metric: str
) -> None:
    no_more_than_any_cut(file, objective, metric)


@pytest.mark.parametrize("name", ["yolo11n", "yolo26n"])
def test_a_loadable_more_than_the_best_cut_gains_more_than_the_noise(file: Path) -> None:
    plan = edgekit.plan(file, target=NAME, placement={"objective": "gpu_time"})
    count = len(plan.loadables)
    assert count > 1
    few = {"objective": "gpu_time", "max_loadables": count - 1, "slack": 0}
    with_fewer = edgekit.plan(file, target=NAME, placement=few)
    assert plan_value(with_fewer) > (1 + noise()) * plan_value(plan)


@pytest.mark.parametrize("name", ["yolo11n"])
def test_the_reason_names_the_modules_in_text_and_document(file: Path, tmp_path: Path) -> None:
    plan = edgekit.plan(file, target=NAME)
    assert plan.fewer is not None
    assert plan.fewer.gpu_modules
    command = [sys.executable, "-m", "edgekit", "plan", str(file), "-t", NAME]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    words = " ".join(done.stdout.split())
    assert f"kept whole on the GPU: {', '.join(plan.fewer.gpu_modules)}" in words
    assert "1 loadable fewer for" in words
    devices = {layer.name: layer.device for layer in plan.layers}
    network = check_model(file, target=NAME).network
    for layer in network.layers:
        if layer.module in plan.fewer.gpu_modules:
            assert devices.get(layer.name, "GPU") == "GPU"


@pytest.mark.parametrize("name", ["yolo11n"])
def test_a_pin_by_module_keeps_a_region_whole(file: Path) -> None:
    network = check_model(file, target=NAME).network
    inside = {x.name for x in network.layers if f"{x.module}.".startswith("model.10.")}
    pins = [{"layers": "model.10", "device": "GPU"}]
    placement = {"objective": "gpu_time", "pin": pins}
    plan = edgekit.plan(file, target=NAME, placement=placement)
    devices = {layer.name: layer.device for layer in plan.layers}
    assert inside
    assert {devices[name] for name in inside if name in devices} == {"GPU"}
    assert any(device != "GPU" for device in devices.values())


@pytest.mark.parametrize("name", ["yolo11n", "hf_detr_resnet50"])
def test_a_standalone_build_names_the_cut_that_makes_it_possible(file: Path) -> None:
    with pytest.raises(EdgekitError) as refused:
        edgekit.plan(file, target=NAME, build={"mode": "standalone"})
    assert refused.value.code == "plan.impossible"
    line = re.search(r"model: \{.*?\]\}", refused.value.hint)
    assert line is not None
    section = yaml.safe_load(line[0])["model"]
    plan = edgekit.plan(file, target=NAME, build={"mode": "standalone"}, model=section)
    assert {layer.device for layer in plan.layers} == {"DLA0"}
    assert f"({len(plan.layers)} layers" in refused.value.hint


def exported(module: object, shape: tuple[int, ...], path: Path) -> Path:
    torch = pytest.importorskip("torch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(module, (torch.zeros(shape),), path, dynamo=False, opset_version=17)
    return path


@pytest.mark.whole
@pytest.mark.parametrize("name", ["yolo11n", "yolo26n"])
def test_a_network_of_ultralytics_has_no_more_loadables_than_the_best_cut(
    tmp_path: Path, name: str
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ultralytics = pytest.importorskip("ultralytics")
        module = ultralytics.YOLO(f"{name}.yaml").model.eval()
    module.model[-1].export = True
    path = exported(module, (1, 3, 640, 640), tmp_path / "net.onnx")
    no_more_than_any_cut(path, "latency", "latency_us")


@pytest.mark.whole
def test_detr_of_transformers_has_no_more_loadables_than_the_best_cut(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        transformers = pytest.importorskip("transformers")
        pytest.importorskip("timm")
        config = transformers.DetrConfig(use_pretrained_backbone=False)
        detr = transformers.DetrForObjectDetection(config).eval()

    class Plain(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.inner = detr

        def forward(self, pixels: object) -> object:
            found = self.inner(pixel_values=pixels)
            return found.logits, found.pred_boxes

    path = exported(Plain(), (1, 3, 480, 640), tmp_path / "net.onnx")
    no_more_than_any_cut(path, "latency", "latency_us")
