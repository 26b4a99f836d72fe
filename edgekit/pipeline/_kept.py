"""Which layers stay in FP16 in an INT8 build, and why."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from edgekit._listed import listed
from edgekit.pipeline._stored import Stored

if TYPE_CHECKING:
    from edgekit.network import Network

__all__ = ["Kept"]


class Kept(Stored):
    """The layers that the configuration, the model or the accuracy gate keeps in FP16.

    Attributes:
        kept: Layers that the accuracy gate asked for.
        translated: What a Q/DQ model was translated to, if it was; its ``fp16_nodes`` stay FP16.
    """

    kept: tuple[str, ...] = ()
    translated: Any = None

    def fp16_layers(
        self, network: Network, *, strict: bool = False, gate: bool = True
    ) -> frozenset[str]:
        """Returns the layers of a network that stay in FP16.

        Args:
            network: The model's as it came, or the rewritten one.
            strict: Whether every glob of the configuration must match a layer of it.
            gate: Whether those that the accuracy gate asked for are among them.

        Raises:
            UsageError: One does not.
        """
        if self.file.precision != "int8":
            return frozenset()
        globs, names = self._fp16_asked(gate)
        if not (globs or names):
            return frozenset()
        from edgekit.sensitivity import layers_named

        where = "calibration.fp16_layers"
        return layers_named(network, globs, where=where, strict=strict) | layers_named(
            network, names, strict=False
        )

    def fp16_wishes(self, *, gate: bool = True) -> list[Any]:
        """Returns what tells one choice of FP16 layers from another, as for ``fp16_layers``."""
        globs, names = self._fp16_asked(gate)
        return [*globs, sorted(names)]

    def _fp16_asked(self, gate: bool) -> tuple[list[str], list[str]]:
        """Returns the configuration's globs; and names of nodes and layers."""
        nodes = () if self.translated is None else self.translated.fp16_nodes
        return self.file.calibration.fp16_layers, [*nodes, *(self.kept if gate else ())]

    def fp16_note(self, layers: Iterable[str]) -> str:
        """Says which layers were kept in FP16 and what asked for it."""
        gate = self.file.accuracy
        why = f" ({gate.metric} of at least {gate.min:g})" if self.kept else ""
        return f"kept in FP16: {listed(layers)}{why}"
