"""Where a board runs the layers of a model."""

from edgekit.dla.judge import judge
from edgekit.network.lowering.layers import layers
from edgekit.targets.loader import get

ORIN, XAVIER = "jetson-agx-orin-64gb", "jetson-agx-xavier"


def places(model, board=ORIN):
    """DLA or GPU by layer."""
    return judge(layers(model), get(board), precision="fp16").placed


def kinds_off(model, board=ORIN):
    """Kinds of the layers that the board's DLA does not run, in order."""
    network = layers(model)
    verdicts = judge(network, get(board), precision="fp16").verdicts
    return [layer.kind for layer in network.layers if not verdicts[layer.name].placeable]
