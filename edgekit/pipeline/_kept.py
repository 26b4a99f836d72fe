"""Which layers stay in FP16 in an INT8 build, and why.

The user, the model or the accuracy gate asks for it; or values of different range meet there
(:func:`edgekit.dla.float_tail`, :func:`edgekit.dla.uneven_joins`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from edgekit._listed import listed
from edgekit.pipeline._stored import Stored

if TYPE_CHECKING:
    from edgekit.dla import Join
    from edgekit.network import Network
    from edgekit.placement import Plan

__all__ = ["Kept"]

_SHOWN = 3


class Kept(Stored):
    """The layers that the configuration, the model or the accuracy gate keeps in FP16.

    Attributes:
        kept: Layers that the accuracy gate asked for.
        amax: Largest magnitude by tensor, as measured; by each calibration method. Empty before.
        translated: What a Q/DQ model was translated to, if it was; its ``fp16_nodes`` stay FP16.
    """

    kept: tuple[str, ...] = ()
    amax: tuple[Mapping[str, float], ...] = ()
    translated: Any = None

    @property
    def known_amax(self) -> tuple[Mapping[str, float], ...]:
        """The largest magnitudes that were measured, or that a calibration cache gives."""
        return self.amax

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
        chosen = self._fp16_chosen(network, strict=strict, gate=gate)
        joined = (name for join in self._joins(network) for name in join.layers)
        return chosen.union(self._fp16_tail(network), joined)

    def _fp16_tail(self, network: Network) -> frozenset[str]:
        """Returns the layers at the network's end that INT8 is of no use to.

        The layers of a Q/DQ model run in what its nodes say.
        """
        from edgekit.dla import float_tail

        return frozenset() if self.translated else float_tail(network, self.known_amax)

    def _joins(self, network: Network) -> tuple[Join, ...]:
        """Returns the concatenations of tensors that must not share a scale, likewise."""
        from edgekit.dla import uneven_joins

        return () if self.translated else uneven_joins(network, self.known_amax)

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
        placed = {layer.name: layer.device for layer in plan.layers}

        def where(names: Iterable[str]) -> str:
            order = [layer.name for layer in network.layers if layer.name in names]
            devices = listed(sorted({placed[name] for name in order}))
            return f"in FP16 on {devices}: {listed(order, _SHOWN)}"

        tail = self._fp16_tail(network)
        for join in self._joins(network):
            if not tail.issuperset(join.layers):
                low, high = join.ranges
                notes.append(
                    f"{where(set(join.layers))}, for {join.layer!r} joins {join.narrow!r} (up to "
                    f"{low:.3g}) with {join.wide!r} (up to {high:.3g}), and one INT8 scale takes "
                    f"{join.bits:.1f} of the former's 8 bits"
                )
        if tail:
            known = "" if self.known_amax else ", by the network's structure: no range is known"
            notes.append(
                f"{where(tail)}, the network's end, where values of different range meet and INT8 "
                f"saves nothing{known}"
            )
        return notes
