"""What the DLA of a board says about a small network."""

from edgekit.dla.judge import judge
from edgekit.network.lowering.layers import layers
from edgekit.targets.loader import get


def refused(model, board="jetson-agx-orin-64gb", precision="fp16"):
    """Kinds of the layers, kept constants among them, that the board's DLA does not run."""
    graph = layers(model)
    verdicts = judge(graph, get(board), precision=precision).verdicts
    return [layer.kind for layer in graph.whole.layers if not verdicts[layer.name].ok]
