"""On twenty simulated boards tune stops at the best plan, and not before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from edgekit.network.loading.load import load
from edgekit.network.lowering.layers import layers
from edgekit.network.model import Network
from edgekit.tuning.candidates import PlacementSpace
from tests.network.onnx_making import make
from tests.tuning.test_tune import query_for, tuned
from tests.tuning.tune_world import World, world_of

LAYERS = 9
SWITCH = 0.05
"""Of the GPU's time for a frame: what a change of devices takes."""


def chain(path: Path) -> None:
    """Writes a random chain of convolutions, poolings and sigmoids."""
    random = np.random.default_rng(0)
    nodes, weights, channels, name = [], {}, 8, "x"
    ops = random.choice(["Conv", "Conv", "MaxPool", "Sigmoid"], LAYERS)
    for i, op in enumerate(["Conv", *ops]):
        inputs, more = [name], dict[str, Any]()
        if op == "Conv":
            many, size = int(random.choice([8, 16, 32, 64])), int(random.choice([1, 3, 5]))
            value = random.standard_normal((many, channels, size, size)).astype(np.float32)
            weights[f"w{i}"] = value
            inputs, more, channels = [name, f"w{i}"], {"pads": [size // 2] * 4}, many
        elif op == "MaxPool":
            more = {"kernel_shape": [3, 3], "pads": [1] * 4}
        name = f"t{i}"
        nodes.append(helper.make_node(str(op), inputs, [name], f"n{i}", **more))
    onnx.save(make(nodes, {"x": [1, 8, 32, 32]}, [name], weights, opset=13), path)


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Network:
    path = tmp_path_factory.mktemp("boards") / "chain.onnx"
    chain(path)
    return layers(load(path))


def best_us(space: PlacementSpace, world: World) -> float:
    """The truth of a chain's best placement."""
    ends: dict[str, float] = {}
    for kernel, least in zip(space.kernels, space.least_us, strict=True):
        names = [space.network.layers[i].name for i in kernel.layers]
        ends = {
            device: sum(world.layer_us(name, device) for name in names)
            + min(
                (us + world.switch_us * (before != device) for before, us in ends.items()),
                default=0.0,
            )
            for device in least
        }
    return min(ends.values())


@pytest.mark.few(1)
@pytest.mark.parametrize("board", range(20))
def test_it_stops_where_nothing_that_is_left_can_be_better(net: Network, board: int) -> None:
    """Layers' times lie up to 55 times apart, and the devices are as fast as each other."""
    query = query_for(net)
    space = PlacementSpace(query.prepared())
    random = np.random.default_rng([7, board])
    times = {
        device: {
            layer.name: 10 * us * float(np.exp(random.uniform(-2, 2)))
            for layer, us in zip(net.layers, space.prior_us[device], strict=True)
            if us > 0
        }
        for device in ("GPU", "DLA")
    }
    total = {device: sum(each.values()) for device, each in times.items()}
    dla = {name: us * total["GPU"] / total["DLA"] for name, us in times["DLA"].items()}
    world = world_of(
        query,
        {**times["GPU"], "*": 0.5},
        {**dla, "*": 0.5},
        noise=0.02,
        seed=board,
        switch_us=SWITCH * total["GPU"],
    )
    found = tuned(query, world, request={"turns": 0, "rounds": 12})
    # 2 % of the best, of which the tolerance is one
    assert world.cost(found.best.plan, "latency") <= 1.02 * best_us(space, world), found.why
