"""A small network, judged, that can be asked for plans."""

from dataclasses import replace

from edgekit import targets
from edgekit.dla import judge
from edgekit.network import layers, load
from edgekit.placement import Ask, Options, Pin
from tests.pipeline.nets import small_net

__all__ = ["Pin", "ask", "asked"]

BOARD = "jetson-agx-orin-64gb"


def ask(folder, *, precision="int8", board=BOARD, **options) -> Ask:
    small_net(folder / "small.onnx")
    network = layers(load(folder / "small.onnx"))
    target = targets.get(board)
    judgement = judge(network, target, precision=precision, tensorrt=target.tensorrt)
    return Ask(network, judgement, target, precision, None, Options(**options))


def asked(one: Ask, **options) -> Ask:
    """The same with other options."""
    return replace(one, options=Options(**options))
