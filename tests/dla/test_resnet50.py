"""torchvision's ResNet-50 against the verbose TensorRT 10.3 build of it on an AGX Orin.

The log (see ``build_log`` in dla/_sources.yaml): 122 layers, two loadables, GlobalAveragePool and
the reshape behind the classifier on the GPU, pools of 1/4/64 and 1/2/8 MiB in INT8; in FP16 the
backbone's local pool is 16 MiB and the global pools are the same.
"""

import json
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from edgekit.dla.judge import judge
from edgekit.dla.memory import core_memory, predict_need, report_memory
from edgekit.dla.verdicts import MemoryNeed
from edgekit.network.model import Network, loadable_name
from edgekit.placement.check_document import judged_layers, make_summary
from edgekit.targets.loader import get
from edgekit_device.protocol.codec import write
from tests.dla.dla_nets import resnet50

MIB = 1 << 20


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Network:
    return resnet50(Path(tmp_path_factory.mktemp("resnet50")))


def stages() -> Iterator[str]:
    """The layers of torchvision's ResNet-50 up to its pooling, in its exporter's order."""
    yield from ("/conv1/Conv", "/relu/Relu", "/maxpool/MaxPool")
    for stage, blocks in enumerate((3, 4, 6, 3), start=1):
        for block in range(blocks):
            at = f"/layer{stage}/layer{stage}.{block}"
            for part in ("conv1/Conv", "relu/Relu", "conv2/Conv", "relu_1/Relu", "conv3/Conv"):
                yield f"{at}/{part}"
            if block == 0:
                yield f"{at}/downsample/downsample.0/Conv"
            yield from (f"{at}/Add", f"{at}/relu_2/Relu")


CLASSIFIER = "/fc/Gemm + (Unnamed Layer* 125) [ElementWise]"


def test_every_layer_of_the_real_build_by_name_and_in_order(net: Network) -> None:
    found = judge(net, get("jetson-agx-orin-64gb"))
    placed = [(found.placed[la.name], la.kind, la.builder_name) for la in net.layers]
    assert [name for place, _, name in placed if place == "DLA"] == [*stages(), CLASSIFIER]
    assert [(kind, name) for place, kind, name in placed if place == "GPU"] == [
        ("REDUCE", "/avgpool/GlobalAveragePool"),
        ("SHUFFLE", "reshape_after_/fc/Gemm"),
    ]
    assert [loadable_name(net, group.layers) for group in found.candidates] == [
        "{ForeignNode[/conv1/Conv.../layer4/layer4.2/relu_2/Relu]}",
        f"{{ForeignNode[{CLASSIFIER}]}}",
    ]


def test_what_fusion_took_is_known_by_the_builders_names(net: Network) -> None:
    """Its warnings came before its fusions: four of the five are about these."""
    parts = [(part.kind, part.name) for layer in net.layers for part in layer.absorbed]
    assert parts == [
        ("SHUFFLE", "/Flatten"),
        ("CONSTANT", "fc.weight"),
        ("CONSTANT", "fc.bias"),
        ("SHUFFLE", "ONNXTRT_Broadcast"),
        ("ELEMENTWISE", "(Unnamed Layer* 125) [ElementWise]"),
    ]
    with pytest.raises(KeyError, match="nobody"):
        loadable_name(net, ["/fc/Gemm", "nobody"])
    with pytest.raises(KeyError):
        loadable_name(net, [])


@pytest.mark.skipif("EDGEKIT_LOGS" not in os.environ, reason="needs the log itself")
def test_against_the_log_itself(net: Network) -> None:
    (log,) = Path(os.environ["EDGEKIT_LOGS"]).rglob("dla_int8_verbose.log")
    text = log.read_text(errors="replace")
    found = judge(net, get("jetson-agx-orin-64gb"))
    ours = {
        place: [la for la in net.layers if found.placed[la.name] == place]
        for place in ("DLA", "GPU")
    }
    assert re.findall(r"\[DlaLayer\] (.*)", text) == [la.builder_name for la in ours["DLA"]]
    on_gpu = [f"{la.kind}: {la.builder_name}" for la in ours["GPU"]]
    assert re.findall(r"\[GpuLayer\] (.*)", text) == on_gpu
    offloaded = re.findall(r"(\{ForeignNode\[.*\]\}) successfully offloaded", text)
    assert offloaded == [loadable_name(net, group.layers) for group in found.candidates]
    warned = re.findall(r"Layer '(.*)' \((\w+)\): Unsupported on DLA", text)
    known = {(part.name, part.kind) for layer in net.layers for part in layer.absorbed}
    assert set(warned) <= known | {(la.name, la.kind) for la in ours["GPU"]}


def test_layers_and_loadables_of_the_real_build(net: Network) -> None:
    found = judge(net, get("jetson-agx-orin-64gb"))
    assert len(net.layers) == 122
    backbone, classifier = found.candidates
    assert (len(backbone.layers), backbone.retained, classifier.retained) == (119, True, True)
    assert backbone.layers[0] == "/conv1/Conv"
    assert backbone.layers[-1] == "/layer4/layer4.2/relu_2/Relu"
    assert classifier.layers == ("/fc/Gemm",)
    assert {name for name, place in found.placed.items() if place == "GPU"} == {
        "/avgpool/GlobalAveragePool",
        "reshape_after_/fc/Gemm",
    }
    pool = found.verdicts["/avgpool/GlobalAveragePool"]
    assert [reason.rule for reason in pool.reasons] == ["reduce.function"]
    assert pool.certainty == "certain"
    assert found.verdicts["reshape_after_/fc/Gemm"].certainty == "disputed"


@pytest.mark.parametrize(
    ("precision", "pools"),
    [("int8", [(1, 4, 64), (1, 2, 8)]), ("fp16", [(1, 16, 64), (1, 2, 8)])],
)
def test_pools_of_the_real_build(
    net: Network, precision: str, pools: list[tuple[int, int, int]]
) -> None:
    target = get("jetson-agx-orin-64gb")
    found = judge(net, target, precision=precision)
    needs = [predict_need(net, group.layers, target, precision) for group in found.candidates]
    sizes = [(n.managed_sram, n.local_dram, n.global_dram) for n in needs]
    assert sizes == [(a * MIB, b * MIB, c * MIB) for a, b, c in pools]


def test_layers_are_listed_as_the_contract_says(net: Network) -> None:
    target = get("jetson-agx-orin-64gb")
    judgement = judge(net, target)
    layers = [write(layer) for layer in judged_layers(net, judgement)]
    assert json.loads(json.dumps(layers)) == layers
    assert write(make_summary(net, judgement)) == {
        "layers": 122,
        "dla_layers": 120,
        "gpu_layers": 2,
        "dla_macs_fraction": 1.0,
    }
    first, last = layers[0], layers[-1]
    assert set(first) == {
        "name",
        "kind",
        "nodes",
        "from",
        "dla",
        "placed",
        "graph_output",
        "macs",
        "weight_bytes",
        "output_bytes",
        "loadable",
        "dropped",
        "rewrites",
        "module",
    }
    assert first["macs"] == 64 * 112 * 112 * 3 * 49
    assert (first["weight_bytes"], first["output_bytes"]) == (64 * 3 * 49 + 64, 64 * 112 * 112)
    assert (last["nodes"], last["from"], last["graph_output"]) == ([], ["/fc/Gemm"], True)
    assert set(last["dla"]["reasons"][0]) == {"rule", "message", "found", "limit", "source", "fix"}
    assert last["dla"]["certainty"] == "disputed"


def test_the_slot_limit_moves_loadables_to_the_gpu(net: Network) -> None:
    target = get("jetson-agx-orin-64gb")
    found = judge(net, target, max_loadables=1)
    assert [group.retained for group in found.candidates] == [True, False]
    assert found.verdicts["/fc/Gemm"].ok
    assert found.placed["/fc/Gemm"] == "GPU"
    assert 0.99 < make_summary(net, found).dla_macs_fraction < 1


def test_without_a_dla_the_gpu_is_the_answer(net: Network) -> None:
    found = judge(net, get("jetson-orin-nano-8gb"))
    assert found.candidates == ()
    assert set(found.placed.values()) == {"GPU"}
    rules = {reason.rule for v in found.verdicts.values() for reason in v.reasons}
    assert rules == {"general.no_dla"}


def test_a_layer_without_scales_is_judged_in_fp16(net: Network) -> None:
    names = [name for name in net.tensors if not name.startswith("/layer1")]
    scales = dict.fromkeys(names, 0.1)
    found = judge(net, get("jetson-agx-orin-64gb"), scales=scales)
    assert found.placed["/layer1/layer1.0/conv1/Conv"] == "DLA"


@pytest.mark.parametrize("precision", ["int8", "fp16"])
def test_pools_of_the_backbone_of_detr(net: Network, precision: str) -> None:
    """The same layers for 800x1066: the DETR builds of the same board give them 128 and 64 MiB."""
    sides = {
        224: (800, 1066),
        112: (400, 533),
        56: (200, 267),
        28: (100, 134),
        14: (50, 67),
        7: (25, 34),
    }
    tensors = {
        name: replace(t, shape=(*t.shape[:2], *sides[t.shape[2]])) if t.shape[2:] != (1, 1) else t
        for name, t in net.tensors.items()
        if len(t.shape) == 4
    }
    large = replace(net, tensors={**net.tensors, **tensors})
    target = get("jetson-agx-orin-64gb")
    backbone, _ = report_memory(large, judge(large, target, precision=precision), target)
    assert backbone.need == MemoryNeed(1 * MIB, 128 * MIB, 64 * MIB)
    assert backbone.broken == ()


def test_a_core_holds_what_the_log_adds_up(net: Network) -> None:
    """The log: total memory of the accepted candidates 1, 6 and 72 MiB."""
    target = get("jetson-agx-orin-64gb")
    total = core_memory(report_memory(net, judge(net, target), target))
    assert total == MemoryNeed(1 * MIB, 6 * MIB, 72 * MIB)
