"""Random branching networks with random verdicts, the same for a seed everywhere."""

from __future__ import annotations

import random
from dataclasses import replace

from edgekit.dla.judge import judge
from edgekit.dla.loadables import find_candidates
from edgekit.dla.verdicts import Judgement
from edgekit.network.model import Layer, Network, Tensor
from edgekit.targets.loader import get

__all__ = ["branching", "judged"]


def branching(seed: int, count: int, *, channels: int = 64, size: int = 28) -> Network:
    """Convolutions, additions, pools and softmax layers over one shape; leaves are outputs."""
    rng = random.Random(seed)
    shape = (1, channels, size, size)
    tensors = {"t0": Tensor("t0", shape, "float32")}
    layers: list[Layer] = []
    read: set[str] = set()
    for i in range(count):
        names = list(tensors)[-4:]
        kind = rng.random()
        two = rng.sample(names, min(len(names), 2))
        if kind > 0.75 and len(two) == 2:
            layer = _layer(f"add{i}", "ELEMENTWISE", two, i, {"function": "SUM"})
        elif kind > 0.6:
            layer = _layer(f"softmax{i}", "SOFTMAX", two[:1], i, {"axis": 1})
        elif kind > 0.5:
            params = {"kernel": (3, 3), "stride": (1, 1), "pads": (1, 1, 1, 1), "mode": "MAX"}
            layer = _layer(f"pool{i}", "POOLING", two[:1], i, params)
        else:
            layer = _convolution(i, two[0], channels, size)
        tensors[f"t{i + 1}"] = Tensor(f"t{i + 1}", shape, "float32")
        layers.append(layer)
        read.update(layer.inputs)
    outputs = tuple(name for name in list(tensors)[1:] if name not in read)
    return Network("random", tuple(layers), tensors, ("t0",), outputs)


def _layer(name: str, kind: str, inputs: list[str], i: int, params: dict[str, object]) -> Layer:
    return Layer(name, kind, kind.title(), (name,), (name,), tuple(inputs), (f"t{i + 1}",), params)


def _convolution(i: int, source: str, channels: int, size: int) -> Layer:
    weights = channels * channels * 9
    params: dict[str, object] = {
        "kernel": (3, 3),
        "stride": (1, 1),
        "dilation": (1, 1),
        "pads": (1, 1, 1, 1),
        "groups": 1,
        "out_maps": channels,
    }
    return replace(
        _layer(f"conv{i}", "CONVOLUTION", [source], i, params),
        op="Conv",
        macs=weights * size * size,
        weight_elements=weights,
    )


def judged(net: Network, seed: int, precision: str = "int8") -> Judgement:
    """Returns verdicts by which softmax layers and a few others stay on the GPU."""
    rng = random.Random(seed)
    found = judge(net, get("jetson-agx-orin-64gb"), precision=precision)
    verdicts = {
        name: replace(v, ok=v.ok and not name.startswith("softmax") and rng.random() > 0.1)
        for name, v in found.verdicts.items()
    }
    groups = find_candidates(net, {name: v.ok for name, v in verdicts.items()})
    on_dla = {name for group in groups if group.retained for name in group.layers}
    placed = {name: "DLA" if name in on_dla else "GPU" for name in verdicts}
    return replace(found, verdicts=verdicts, candidates=groups, placed=placed)
