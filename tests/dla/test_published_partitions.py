"""Partitions that others published, layer set by layer set; the nets are rebuilt in dla_nets.

Sources: NVIDIA's jetson_dla_tutorial at ee4e0ed (AGX Orin, TensorRT 8.4, INT8, batch 32, and a
build of it with TensorRT 8.5), HaX-CoNN at 87f5f25 (GoogLeNet on AGX Xavier), MLPerf's results
v1.0 (ResNet-50 on Xavier), NVIDIA's cuDLA-samples at dffbd62 (YOLOv5s without its end) and a
verbose build of DETR with TensorRT 10.3.
"""

import re
from itertools import pairwise
from pathlib import Path

import pytest

from edgekit.dla.judge import judge
from edgekit.dla.verdicts import Judgement
from edgekit.network.model import Network, loadable_name
from edgekit.targets.loader import get
from tests.counted_work import lines_of
from tests.dla.dla_nets import cifar, detr_like, googlenet, mlperf_resnet50, yolo_trimmed

ORIN, XAVIER = "jetson-agx-orin-64gb", "jetson-agx-xavier"


def on_gpu(net: Network, found: Judgement) -> list[tuple[str, str]]:
    return [(la.kind, la.name) for la in net.layers if found.placed[la.name] == "GPU"]


def foreign_nodes(net: Network, found: Judgement) -> list[str]:
    """The loadables by the builder's names, less the parts of a Gemm, which differ by release."""
    names = [loadable_name(net, group.layers) for group in found.candidates if group.retained]
    return [re.sub(r" \+ .*?(?=\.\.\.|\]\}$)", "", name) for name in names]


def test_parts_of_names_are_left_out() -> None:
    named = "{ForeignNode[Gemm_15 + linear.bias + (Unnamed Layer* 19) [Shuffle]]}"
    assert re.sub(r" \+ .*?(?=\.\.\.|\]\}$)", "", named) == "{ForeignNode[Gemm_15]}"


@pytest.mark.parametrize("tensorrt", ["8.4.0", "8.5.2", "10.3"])
def test_a_global_average_splits_the_net_in_two(tmp_path: Path, tensorrt: str) -> None:
    net = cifar(tmp_path, "GlobalAveragePool")
    found = judge(net, get(ORIN), tensorrt=tensorrt)
    assert foreign_nodes(net, found) == ["{ForeignNode[Conv_0...Relu_7]}", "{ForeignNode[Gemm_15]}"]
    body = {f"{'Relu' if i % 2 else 'Conv'}_{i}" for i in range(8)}
    assert [set(group.layers) for group in found.candidates] == [body, {"Gemm_15"}]
    assert on_gpu(net, found) == [
        ("REDUCE", "GlobalAveragePool_8"),
        ("SHUFFLE", "reshape_after_Gemm_15"),
    ]


def test_an_average_pool_keeps_it_in_one_piece(tmp_path: Path) -> None:
    net = cifar(tmp_path, "AveragePool")
    found = judge(net, get(ORIN), tensorrt="8.4.0")
    assert foreign_nodes(net, found) == ["{ForeignNode[Conv_0...Gemm_15]}"]
    assert on_gpu(net, found) == [("SHUFFLE", "reshape_after_Gemm_15")]


@pytest.mark.parametrize("precision", ["fp16", "int8"])
def test_googlenet_is_one_loadable_and_its_softmax(tmp_path: Path, precision: str) -> None:
    net = googlenet(tmp_path)
    found = judge(net, get(XAVIER), precision=precision)
    assert foreign_nodes(net, found) == ["{ForeignNode[conv1/7x7_s2...loss3/classifier]}"]
    assert on_gpu(net, found) == [("SOFTMAX", "prob")]
    (group,) = found.candidates
    assert group.layers == tuple(layer.name for layer in net.layers if layer.name != "prob")
    assert len(judge(net, get(ORIN), precision=precision).candidates) == 1


def test_mlperfs_resnet50_is_one_loadable_and_its_top_k(tmp_path: Path) -> None:
    net = mlperf_resnet50(tmp_path)
    for name in (XAVIER, ORIN):
        found = judge(net, get(name))
        assert foreign_nodes(net, found) == ["{ForeignNode[conv1...fc_replaced]}"]
        assert on_gpu(net, found) == [("TOPK", "topk")]


@pytest.mark.parametrize("precision", ["fp16", "int8"])
def test_yolo_without_its_end_is_all_dla(tmp_path: Path, precision: str) -> None:
    net = yolo_trimmed(tmp_path)
    found = judge(net, get(ORIN), precision=precision)
    assert on_gpu(net, found) == []
    assert [group.layers for group in found.candidates] == [tuple(la.name for la in net.layers)]


def test_gemms_side_by_side_are_one_and_the_sixteen_largest_stay(tmp_path: Path) -> None:
    """q and k read one tensor, v another, and between blocks everything passes over the GPU."""
    blocks = 6
    net = detr_like(tmp_path, blocks)
    found = judge(net, get(ORIN), precision="fp16")
    every = [("stem", "stem_relu", "body", "body_relu")]
    for i in range(blocks):
        # sums and Tanh of two dimensions are candidates, too
        every += [(f"place_{i}",), (f"q_{i}", f"k_{i}", f"v_{i}")]
        every += [(f"{part}_{i}",) for part in ("out", "again", "up", "bend", "down", "more")]
    assert [group.layers for group in found.candidates] == every
    retained = [group.layers for group in found.candidates if group.retained]
    assert len(retained) == 16
    single = [names for names in every if len(names) == 1]
    assert set(every) - set(retained) == set(single[9:])
    assert all(found.verdicts[name].ok and found.placed[name] == "GPU" for (name,) in single[9:])


def test_judging_is_linear_in_layers() -> None:
    from edgekit.network.model import Layer, Tensor

    shape = (1, 64, 8, 8)
    params = {
        "kernel": (3, 3),
        "stride": (1, 1),
        "pads": (1, 1, 1, 1),
        "dilation": (1, 1),
        "groups": 1,
        "out_maps": 64,
    }
    target, lines = get(ORIN), []
    for count in (250, 2000):
        names = [f"t{i}" for i in range(count + 1)]
        layers = tuple(
            Layer(f"c{i}", "CONVOLUTION", "Conv", (f"c{i}",), (), (one,), (two,), params)
            for i, (one, two) in enumerate(pairwise(names))
        )
        tensors = {name: Tensor(name, shape, "float32") for name in names}
        net = Network("long", layers, tensors, (names[0],), (names[-1],))
        found = judge(net, target)  # the first one reads the rules
        assert [len(group.layers) for group in found.candidates] == [count]
        lines.append(lines_of(lambda: judge(net, target)))  # noqa: B023
    assert lines[1] < 9 * lines[0]
