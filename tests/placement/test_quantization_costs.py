"""Q/DQ networks as they are: planned in the precision between the nodes, which are no kernels."""

from __future__ import annotations

import pytest

from edgekit.dla.judge import judge
from edgekit.network.lowering import layers as layers_module
from edgekit.placement.placing import place
from edgekit.placement.plan import Options
from edgekit.targets.loader import get
from tests.quantize.qdq_nets import residual

BOARD = get("jetson-agx-orin-64gb")


def planned(layers, **requested):
    judgement = judge(layers, BOARD, tensorrt="11.4.1")
    options = Options(**requested)
    return place(layers, judgement, BOARD, precision="int8", options=options)


@pytest.mark.parametrize("cores", [(), (0,)])
def test_layers_between_the_nodes_are_int8_and_the_nodes_take_no_time(cores):
    layers = layers_module.layers(residual(64).model("last_dq"))
    plan = planned(layers, dla_cores=cores, objective="gpu_time")
    placed = {layer.name: layer for layer in plan.layers}
    assert {placed[name].precision for name in ("a", "b", "sum")} == {"int8"}
    assert any(layer.device != "GPU" for layer in plan.layers) == bool(cores)
    for name in ("a_relu_q", "a_relu_dq", "skip_q", "skip_dq"):
        assert placed[name].predicted_us == 0
    assert placed["a"].predicted_us > 0


def test_what_quantises_the_network_s_input_is_a_kernel():
    layers = layers_module.layers(residual(64).model("last_dq"))
    placed = {layer.name: layer for layer in planned(layers, dla_cores=()).layers}
    assert placed["x_q"].predicted_us > 0
    assert placed["last_dq"].predicted_us > 0
    assert placed["x_dq"].predicted_us == 0
