"""torchvision's ResNet-50 against the verbose TensorRT 10.3 build of it on an AGX Orin.

The log (see ``build_log`` in dla/_sources.yaml): 122 layers, two loadables, GlobalAveragePool and
the reshape behind the classifier on the GPU, pools of 1/4/64 and 1/2/8 MiB in INT8; in FP16 the
backbone's local pool is 16 MiB and the global pools are the same.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from edgekit.dla.judge import judge
from edgekit.dla.memory import predict_need, report_memory
from edgekit.dla.verdicts import MemoryNeed
from edgekit.network.model import Network, loadable_name
from edgekit.placement.check_document import make_summary
from edgekit.targets.loader import get
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


def test_the_slot_limit_moves_loadables_to_the_gpu(net: Network) -> None:
    target = get("jetson-agx-orin-64gb")
    found = judge(net, target, max_loadables=1)
    assert [group.retained for group in found.candidates] == [True, False]
    assert found.verdicts["/fc/Gemm"].ok
    assert found.placed["/fc/Gemm"] == "GPU"
    assert 0.99 < make_summary(net, found).dla_macs_fraction < 1
