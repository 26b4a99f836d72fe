"""See DESIGN: the network floor."""

from edgekit.network._types import Layer, Model, Network, Tensor

__all__ = ["Layer", "Model", "Network", "Tensor"]
