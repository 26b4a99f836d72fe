"""A small network, judged, to be placed."""

from dataclasses import replace

from edgekit.dla.judge import judge
from edgekit.network.loading.load import load
from edgekit.network.lowering.layers import layers
from edgekit.placement.placing import PlacementQuery
from edgekit.placement.plan import Options, Pin
from edgekit.targets.loader import get
from tests.pipeline.nets import small_net

__all__ = ["Pin", "query_for", "with_options"]

BOARD = "jetson-agx-orin-64gb"


def query_for(folder, *, precision="int8", board=BOARD, **options) -> PlacementQuery:
    small_net(folder / "small.onnx")
    network = layers(load(folder / "small.onnx"))
    target = get(board)
    judgement = judge(network, target, precision=precision, tensorrt=target.tensorrt)
    return PlacementQuery(network, judgement, target, precision, None, Options(**options))


def with_options(one: PlacementQuery, **options) -> PlacementQuery:
    """The same with other options."""
    return replace(one, options=Options(**options))
