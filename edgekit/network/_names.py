"""What TensorRT calls a loadable."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgekit.network._types import Network

__all__ = ["loadable_name"]


def loadable_name(network: Network, layers: Collection[str]) -> str:
    """The builder's name of a loadable: ``{ForeignNode[FIRST...LAST]}``, or its only layer.

    First and last are in graph order, also where branches run side by side, with the names that
    TensorRT 10 gives them. TensorRT 8 writes more parts into the name of a Gemm; compare logs of
    it by what stands before the first " + ".

    Args:
        network: Where the layers are from.
        layers: Names of the loadable's layers, in any order.

    Raises:
        KeyError: when there are none, or ``network`` has no layer of such a name.
    """
    wanted = set(layers)
    found = [layer for layer in network.layers if layer.name in wanted]
    if not wanted or len(found) < len(wanted):
        raise KeyError(min(wanted - {layer.name for layer in found}, default=""))
    first, last = found[0].builder_name, found[-1].builder_name
    inside = first if len(found) == 1 else f"{first}...{last}"
    return f"{{ForeignNode[{inside}]}}"
