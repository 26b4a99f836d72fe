"""See DESIGN: the network floor."""

from edgekit.network._digest import weight_digests
from edgekit.network._extract import extract
from edgekit.network._layers import layers
from edgekit.network._load import canonical, load
from edgekit.network._save import save
from edgekit.network._session import session
from edgekit.network._types import Layer, Model, Network, Tensor

__all__ = [
    "Layer",
    "Model",
    "Network",
    "Tensor",
    "canonical",
    "extract",
    "layers",
    "load",
    "save",
    "session",
    "weight_digests",
]
