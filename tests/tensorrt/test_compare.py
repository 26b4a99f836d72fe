"""The plan beside the build: capability, placement, loadables, reformats."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from edgekit.dla.verdicts import Judgement, LayerVerdict, MemoryNeed
from edgekit.placement.plan import PlannedLoadable
from edgekit.placement.segments import cut_segments
from edgekit.tensorrt.comparison import BuiltLoadables, InspectedLoadables, compare_build
from edgekit.tensorrt.requests import requested_lanes
from tests.tensorrt.results import build_result
from tests.tensorrt.test_engines import SCALES, model_of, network_of, node, place_all, plan_of, toy

LOG = """\
[11/21/2026-20:36:45] [TRT] [V] ---------- Layers Running on DLA ----------
[11/21/2026-20:36:45] [TRT] [V] [DlaLayer] {dla}
[11/21/2026-20:36:45] [TRT] [V] ---------- Layers Running on GPU ----------
{gpu}"""
GPU = "[11/21/2026-20:36:45] [TRT] [V] [GpuLayer] CONVOLUTION: {}\n"


def log(dla, *gpu):
    rows = "".join(GPU.format(name) for name in gpu)
    return LOG.replace("{dla}", dla).replace("{gpu}", rows)


def judged(network, *refused):
    verdicts = {x.name: LayerVerdict(x.name not in refused) for x in network.layers}
    placed = {name: "DLA" if verdict.ok else "GPU" for name, verdict in verdicts.items()}
    return Judgement("jetson-agx-orin-64gb", "int8", "10.3", verdicts, (), placed)


def compared(
    text, *, refused=(), answers=None, mode="hybrid", reformats=(), layers=(), segment=lambda i: i
):
    model, network = toy()
    plan = plan_of(place_all(network, "int8", segment))
    loadable = PlannedLoadable(0, ("b",), MemoryNeed(4096, 4096, 4096))
    plan = replace(plan, loadables=(loadable,))
    lanes = requested_lanes(cut_segments(model, network, plan), mode, SCALES)
    engines = [
        {
            "key": e.key,
            "can_run_on_dla": answers or {},
            "reformats": list(reformats),
            "unmapped": [],
            "layers": list(layers),
        }
        for e in lanes[0].engines
    ]
    logs = {lanes[0].engines[0].key: text} if text else {}
    return compare_build(
        network, judged(network, *refused), plan, lanes, build_result(engines), logs
    )


def test_a_build_as_planned_has_no_differences():
    found = compared(log("{ForeignNode[b]}", "a", "c"), answers={"a": True, "b": True, "c": True})
    assert found.differences == ()
    assert found.same
    (engine,) = found.engines
    assert engine.placement.loadables == BuiltLoadables(plan=1, builder=1, same=1)
    assert engine.capability.asked == 3


def test_a_layer_that_the_builder_moved_is_named_with_both_places():
    found = compared(log("{ForeignNode[c]}", "a", "b"))
    assert not found.same
    moved = {x.layer: (x.plan, x.builder) for x in found.engines[0].placement.differ}
    assert moved == {"b": ("DLA", "GPU"), "c": ("GPU", "DLA")}


def test_what_can_run_on_dla_says_is_held_against_our_verdict():
    found = compared("", refused=("a",), answers={"a": True, "b": False, "c": True})
    wrong = {x.layer: (x.ours, x.builder) for x in found.engines[0].capability.disagree}
    assert wrong == {"a": (False, True), "b": (True, False)}
    assert len(found.differences) == 2
    assert found.engines[0].placement is None  # nothing tells where the layers went


def test_reformats_at_fixed_borders_are_differences():
    found = compared("", mode="split", reformats=["Reformatting CopyNode for Input Tensor 0"])
    assert len(found.differences) == len(found.engines) == 3
    assert all("Reformatting CopyNode" in text for text in found.differences)


def test_the_inspector_counts_loadables_where_the_log_reports_nothing():
    dla = {"name": "{ForeignNode[b]}", "type": "DLA", "device": "DLA"}
    gpu = {"name": "a", "type": "CaskConvolution", "device": "GPU"}
    assert compared("", layers=[gpu, dla, gpu]).same
    names_only = {"name": "{ForeignNode[b]}", "type": "", "device": ""}
    assert compared("", layers=[names_only]).engines[0].inspector is None
    found = compared("", layers=[gpu])
    assert found.engines[0].inspector == InspectedLoadables(plan=1, engine=0)
    assert "inspector" in found.differences[0]
    # a log that says the same is told once
    both = compared(log("", "a", "b", "c"), layers=[gpu])
    assert sum("loadables" in text for text in both.differences) == 1


def test_lanes_are_compared_with_their_own_plans():
    weights = {"u": np.ones((8, 8, 1, 1), np.float32)}
    model = model_of([node("Conv", "x u", "a")], weights, {"x": [1, 8, 6, 6]}, ["a"])
    network = network_of(model)
    on_gpu, on_dla = (
        place_all(network, "int8", lambda i: 0, lambda n, d=d: d) for d in ("GPU", "DLA0")
    )
    plan = plan_of(on_gpu, on_dla)
    plan = replace(
        plan, loadables=(PlannedLoadable(0, ("a",), MemoryNeed(4096, 4096, 4096), plan=1),)
    )
    lanes = requested_lanes(cut_segments(model, network, plan), "hybrid", SCALES)
    engines = [
        {
            "key": lane.engines[0].key,
            "can_run_on_dla": {},
            "reformats": [],
            "unmapped": [],
            "layers": [],
        }
        for lane in lanes
    ]
    logs = {"lane0": log("", "a"), "lane1": log("{ForeignNode[a]}")}
    found = compare_build(network, judged(network), plan, lanes, build_result(engines), logs)
    assert found.engines[0].placement is None  # the GPU alone: nothing to hold against it
    assert found.engines[1].placement.loadables.same == 1
    assert found.same, found.differences
