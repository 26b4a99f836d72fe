"""Where a board runs the layers of a model."""

from edgekit import dla, targets
from edgekit.network import layers

ORIN, XAVIER = "jetson-agx-orin-64gb", "jetson-agx-xavier"


def places(model, board=ORIN):
    """DLA or GPU by layer."""
    return dla.judge(layers(model), targets.get(board), precision="fp16").placed


def kinds_off(model, board=ORIN):
    """Kinds of the layers that the board's DLA does not run, in order."""
    network = layers(model)
    verdicts = dla.judge(network, targets.get(board), precision="fp16").verdicts
    return [layer.kind for layer in network.layers if not verdicts[layer.name].placeable]
