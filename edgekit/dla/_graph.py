"""The network around a layer, as facts look at it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgekit.network import Layer, Network

__all__ = ["Graph"]


class Graph:
    """A network with the look-ups that facts need.

    Attributes:
        tensors: The network's, by name.
        refused: Names of the layers judged so far that stay on the GPU.
        asked: Whether somebody looked at a neighbour since it was last set to False: what is said
            of a layer holds for every layer like it as long as nobody did.
    """

    def __init__(self, network: Network) -> None:
        self.tensors = network.tensors
        self.refused: set[str] = set()
        self.asked = False
        self._producers = network.producers()
        self._consumers = network.consumers()

    @property
    def producers(self) -> Mapping[str, Layer]:
        """The layer that writes a tensor, by tensor."""
        self.asked = True
        return self._producers

    @property
    def consumers(self) -> Mapping[str, tuple[Layer, ...]]:
        """The layers that read a tensor, by tensor."""
        self.asked = True
        return self._consumers
