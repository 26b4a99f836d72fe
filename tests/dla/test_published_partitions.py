"""Partitions that NVIDIA's jetson_dla_tutorial logged (AGX Orin, TensorRT 8.4, INT8, batch 32)."""

from pathlib import Path

import pytest

from edgekit import targets
from edgekit.dla import Judgement, judge
from edgekit.network import Network
from tests.dla.dla_nets import Builder


def cifar(path: Path, pool: str) -> Network:
    """The tutorial's net: four convolutions with ReLU and two poolings, a pool and a Gemm."""
    b = Builder(input=(32, 3, 32, 32))
    x, channels = "input", 3
    for index, maps in enumerate([64, 128, 256, 512]):
        x = b.add("Relu", f"Relu_{2 * index + 1}", b.conv(f"Conv_{2 * index}", x, channels, maps))
        x = b.add("MaxPool", f"MaxPool_{index}", x, kernel_shape=[2, 2], strides=[2, 2])
        channels = maps
    window = {} if pool.startswith("Global") else {"kernel_shape": [2, 2], "strides": [2, 2]}
    x = b.add(pool, f"{pool}_8", x, **window)
    x = b.add("Flatten", "Flatten_9", x)
    fc = (b.weight("linear.weight", (10, 512)), b.weight("linear.bias", (10,)))
    return b.network(path, b.add("Gemm", "Gemm_15", x, *fc, transB=1))


def on_gpu(net: Network, found: Judgement) -> list[tuple[str, str]]:
    return [(la.kind, la.name) for la in net.layers if found.placed[la.name] == "GPU"]


@pytest.mark.parametrize("tensorrt", ["8.4.0", "8.5.2", "10.3"])
def test_a_global_average_splits_the_net_in_two(tmp_path: Path, tensorrt: str) -> None:
    net = cifar(tmp_path, "GlobalAveragePool")
    found = judge(net, targets.get("jetson-agx-orin-64gb"), tensorrt=tensorrt)
    assert [(g.layers[0], g.layers[-1]) for g in found.candidates] == [
        ("Conv_0", "MaxPool_3"), ("Gemm_15", "Gemm_15"),
    ]  # fmt: skip
    assert on_gpu(net, found) == [
        ("REDUCE", "GlobalAveragePool_8"), ("SHUFFLE", "reshape_after_Gemm_15"),
    ]  # fmt: skip


def test_an_average_pool_keeps_it_in_one_piece(tmp_path: Path) -> None:
    net = cifar(tmp_path, "AveragePool")
    found = judge(net, targets.get("jetson-agx-orin-64gb"), tensorrt="8.4.0")
    assert [(g.layers[0], g.layers[-1]) for g in found.candidates] == [("Conv_0", "Gemm_15")]
    assert on_gpu(net, found) == [("SHUFFLE", "reshape_after_Gemm_15")]


def test_ten_thousand_nodes_are_judged_in_about_a_second(tmp_path: Path) -> None:
    import time

    from edgekit.network import Layer, Tensor

    shape = (1, 64, 8, 8)
    tensors = {f"t{i}": Tensor(f"t{i}", shape, "float32") for i in range(10_001)}
    params = {
        "kernel": (3, 3), "stride": (1, 1), "pads": (1, 1, 1, 1), "dilation": (1, 1), "groups": 1,
        "out_maps": 64,
    }  # fmt: skip
    layers = tuple(
        Layer(f"c{i}", "CONVOLUTION", "Conv", (f"c{i}",), (), (f"t{i}",), (f"t{i + 1}",), params)
        for i in range(10_000)
    )
    net = Network("long", layers, tensors, ("t0",), ("t10000",))
    target = targets.get("jetson-agx-orin-64gb")
    judge(net, target)
    start = time.perf_counter()
    found = judge(net, target)
    assert time.perf_counter() - start < 3
    assert [len(group.layers) for group in found.candidates] == [10_000]
