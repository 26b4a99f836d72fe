"""Which layers stay in FP16 in an INT8 build, and why: the user, the model, the accuracy gate,
or the network's end, where INT8 loses bits and saves nothing (:func:`edgekit.dla.float_tail`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgekit._listed import listed
from edgekit.pipeline._stored import Stored

if TYPE_CHECKING:
    from edgekit.network import Network
    from edgekit.placement import Plan

__all__ = ["Kept"]

_SHOWN = 3


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
        return self._fp16_chosen(network, strict=strict, gate=gate) | self.fp16_tail(network)

    def fp16_tail(self, network: Network) -> frozenset[str]:
        """Returns the layers at the network's end that INT8 is of no use to.

        The layers of a Q/DQ model run in what its nodes say.
        """
        from edgekit.dla import float_tail

        return frozenset() if self.translated is not None else float_tail(network)

    def _fp16_chosen(self, network: Network, *, strict: bool, gate: bool) -> frozenset[str]:
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

    def fp16_notes(self, network: Network, plan: Plan) -> list[str]:
        """Says which layers of a plan were kept in FP16, what asked for it, and where they run."""
        if self.file.precision != "int8":
            return []
        notes = []
        chosen = self._fp16_chosen(network, strict=True, gate=True)
        gate = self.file.accuracy
        if chosen:
            why = f" ({gate.metric} of at least {gate.min:g})" if self.kept and gate.min else ""
            order = [layer.name for layer in network.layers if layer.name in chosen]
            notes.append(f"kept in FP16: {listed(order)}{why}")
        tail = self.fp16_tail(network)
        if tail:
            order = [layer.name for layer in network.layers if layer.name in tail]
            placed = {layer.name: layer.device for layer in plan.layers}
            devices = listed(sorted({placed[name] for name in order}))
            notes.append(
                f"in FP16 on {devices}: {listed(order, _SHOWN)}, the network's end, where values "
                "of different range meet and INT8 saves nothing"
            )
        return notes
