"""The layers of an INT8 build that stay in FP16, and the notes about them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgekit.dla.precision import Amax, Join, float_tail, uneven_joins
from edgekit.text import listed

if TYPE_CHECKING:
    from edgekit.network.model import Network


_SHOWN = 3


@dataclass(frozen=True)
class FloatLayers:
    """Layers of a network that stay in FP16.

    Attributes:
        chosen: Layers named by the user, the model or the accuracy gate.
        tail: Layers at the network's end that gain no time from INT8.
        joins: Concatenations of tensors that must not share a scale.
        measured: True if these were found by ranges, not by the network's structure alone.
    """

    chosen: frozenset[str] = frozenset()
    tail: frozenset[str] = frozenset()
    joins: tuple[Join, ...] = ()
    measured: bool = False

    @classmethod
    def of(cls, network: Network, amax: Amax, chosen: frozenset[str]) -> FloatLayers:
        """Returns the chosen layers, and the layers in which values of different range meet.

        Args:
            network: The layers.
            amax: Known largest magnitudes by tensor.
            chosen: Named layers.
        """
        return cls(chosen, float_tail(network, amax), uneven_joins(network, amax), bool(amax))

    @property
    def names(self) -> frozenset[str]:
        """Names of all these layers."""
        joined = (name for join in self.joins for name in join.layers)
        return self.chosen.union(self.tail, joined)

    def notes(self, network: Network, devices: Mapping[str, str], why: str) -> list[str]:
        """Returns notes about the layers of a plan kept in FP16, with reason and device.

        Args:
            network: The layers.
            devices: The plan's devices by layer.
            why: Reason of the chosen layers; empty if the user or the model named them.
        """

        def ordered(names: Collection[str]) -> list[str]:
            return [layer.name for layer in network.layers if layer.name in names]

        def where(names: Collection[str]) -> str:
            order = ordered(names)
            on = listed(sorted({devices[name] for name in order}))
            return f"in FP16 on {on}: {listed(order, _SHOWN)}"

        notes = []
        if self.chosen:
            reason = f" ({why})" if why else ""
            notes.append(f"kept in FP16: {listed(ordered(self.chosen))}{reason}")
        for join in self.joins:
            if not self.tail.issuperset(join.layers):
                low, high = join.ranges
                notes.append(
                    f"{where(join.layers)}: {join.layer!r} joins {join.narrow!r} (up to "
                    f"{low:.3g}) with {join.wide!r} (up to {high:.3g}), and with one INT8 scale "
                    f"the former loses {join.bits:.1f} of its 8 bits"
                )
        if self.tail:
            guessed = (
                ""
                if self.measured
                else ", chosen by the network's structure because no ranges are known"
            )
            notes.append(
                f"{where(self.tail)}: at the network's end, where values of different ranges meet "
                f"and INT8 saves no time{guessed}"
            )
        return notes
