"""What the DLA of a board says about a small network."""

from edgekit.dla.judge import judge
from edgekit.network.lowering.layers import layers
from edgekit.targets.loader import get

ORIN, XAVIER = "jetson-agx-orin-64gb", "jetson-agx-xavier"


def refused(model, board=ORIN, precision="fp16"):
    """Kinds of the layers, kept constants among them, that the board's DLA does not run."""
    graph = layers(model)
    verdicts = judge(graph, get(board), precision=precision).verdicts
    return [layer.kind for layer in graph.whole.layers if not verdicts[layer.name].ok]


def kinds_off(model, board=ORIN):
    """Kinds of the layers that the board's DLA does not run, in order; shuffles before it count."""
    network = layers(model)
    verdicts = judge(network, get(board), precision="fp16").verdicts
    return [layer.kind for layer in network.layers if not verdicts[layer.name].placeable]
