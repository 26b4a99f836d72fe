"""Counts and names layers as TensorRT's ONNX importer does, to know what its log calls them.

The importer writes constants and broadcasts as layers of their own, and leaves some layers without
a name; the builder then prints "(Unnamed Layer* N) [ElementWise]", N being the position among all
layers that the importer made. Source: onnx-tensorrt 10.3, importerUtils.cpp (convertToTensor,
broadcastTensors), ImporterContext.cpp (registerLayer, generateUniqueName) and onnxOpImporters.cpp
(Gemm); a verbose TensorRT 10.3 build of ResNet-50 agrees. Exact for weights that the file holds;
nodes that fold away count once here, where the importer may write several layers.
"""

from __future__ import annotations

from collections.abc import Collection

from edgekit.network._types import Absorbed

__all__ = ["Importer"]

_BROADCAST = "ONNXTRT_Broadcast"
_SHAPE_SHUFFLE = "ONNXTRT_ShapeShuffle"


class Importer:
    """The importer's running count of layers and the names that it has given."""

    def __init__(self, constants: Collection[str]) -> None:
        self._constants = constants
        self._count = 0
        self._taken: set[str] = set()
        self._next_suffix = 0

    def layers(self, count: int = 1) -> None:
        """Layers that take the name of their node."""
        self._count += count

    def reshape(self) -> None:
        """A reshape: registered once as a helper, then again under its node's name."""
        self._count += 1
        self._register(_SHAPE_SHUFFLE)

    def constant(self, name: str) -> tuple[Absorbed, ...]:
        """A constant read as a tensor: a layer the first time, nothing afterwards."""
        if name not in self._constants or name in self._taken:
            return ()
        self._taken.add(name)
        self._count += 1
        return (Absorbed("CONSTANT", name),)

    def broadcast(self) -> Absorbed:
        """A shuffle that prepends dimensions of size 1."""
        self._count += 1
        self._register(_SHAPE_SHUFFLE)
        return Absorbed("SHUFFLE", self._register(_BROADCAST))

    def unnamed_sum(self) -> Absorbed:
        """The element-wise layer that adds a Gemm's bias, which a convolution takes in."""
        part = Absorbed("ELEMENTWISE", f"(Unnamed Layer* {self._count}) [ElementWise]", True)
        self._count += 1
        return part

    def scalar_product(self) -> None:
        """Multiplication by a Gemm's alpha or beta: constant, broadcast and element-wise."""
        self._count += 1
        self.broadcast()
        self._count += 1

    def _register(self, name: str) -> str:
        # one counter for all names, as in generateUniqueName
        found = name
        while found in self._taken:
            found = f"{name}_{self._next_suffix}"
            self._next_suffix += 1
        self._taken.add(found)
        return found
