"""What a kernel costs on each device, and what its borders cost on either side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgekit.network import Network
from edgekit.placement._built import Built
from edgekit.placement._costs import CostModel
from edgekit.placement._costs_regions import Regions
from edgekit.placement._kernels import Kernel
from edgekit.placement._measured import Measured
from edgekit.solver import OUTSIDE, Border

__all__ = ["Costing"]

DIGITS = 6


@dataclass(frozen=True)
class Costing:
    """A network's kernels with the model that says what they cost.

    Attributes:
        network: The layers.
        model: Predicted costs, or measured ones where there are any.
        built: The problem that the solver sees.
        regions: What the GPU runs fused.
        watts: By device, those that the plan's energy is the sum of.
    """

    network: Network
    model: CostModel
    built: Built
    regions: Regions
    watts: Mapping[str, float]

    def kernel_of(self, layer: str) -> Kernel:
        """Returns the kernel that a layer is a part of."""
        index = next(i for i, one in enumerate(self.network.layers) if one.name == layer)
        return next(kernel for kernel in self.built.kernels if index in kernel.layers)

    def costs(self, kernel: Kernel, device: str) -> list[dict[str, Any]]:
        """Returns the kernel's time and energy on a device, by tensor format, its best first.

        ``clock`` says whether the time is measured or predicted; the energy is predicted.
        """
        network, model = self.network, self.model
        first = network.layers[kernel.layers[0]]
        known = isinstance(model, Measured) and model.kernel_measured(kernel, device)
        rows = []
        for form in model.formats(network, kernel, device):
            us = model.kernel_us(network, kernel, device, form)
            if device == "GPU":
                us = max(0.0, us - self.regions.saved(kernel))
            rows.append(
                {"device": device, "precision": model.layer_precision(first, device),
                 "format": form, "us": round(us, DIGITS),
                 "uj": round(us * self.watts[device], DIGITS),
                 "clock": "measured" if known else "predicted"}
            )  # fmt: skip
        # a DLA core computes in one format only; the others are for its borders
        return rows if device == "GPU" else rows[:1]

    def borders(
        self, kernel: Kernel, devices: Mapping[str, str], other: str
    ) -> list[dict[str, Any]]:
        """Returns what conversions at the kernel's borders take, where it is and on ``other``.

        Its neighbours stay where they are, and every kernel has its best format there.

        Args:
            kernel: The kernel.
            devices: By layer, its device in the plan.
            other: The device that the kernel could be on instead.
        """
        problem, kernels = self.built.problem, self.built.kernels
        own = kernels.index(kernel)
        names = [devices[self.network.layers[k.layers[0]].name] for k in kernels]
        here = [self._mode(v, name) for v, name in enumerate(names)]
        there = [*here]
        there[own] = self._mode(own, other)
        rows = []
        for border, tensor in zip(problem.borders, self.built.tensors, strict=True):
            if own != border.producer and own not in border.consumers:
                continue
            writes = own == border.producer
            near = [*border.consumers] if writes else [border.producer]
            sides = [names[v] for v in near if v != OUTSIDE]
            sides += ["caller"] * (border.output if writes else border.producer == OUTSIDE)
            rows.append(
                {"tensor": tensor, "direction": "writes" if writes else "reads",
                 "neighbours": list(dict.fromkeys(sides)),
                 "us": round(self._paid(border, here), DIGITS),
                 "otherwise_us": round(self._paid(border, there), DIGITS)}
            )  # fmt: skip
        return rows

    def _mode(self, node: int, device: str) -> int | None:
        """Returns the best mode of a node on a device."""
        problem = self.built.problem
        fitting = [
            (sum(cost.load_us), m) for m, cost in enumerate(problem.costs[node])
            if cost is not None and problem.devices[problem.device(m)] == device
        ]  # fmt: skip
        return min(fitting)[1] if fitting else None

    def _paid(self, border: Border, modes: Sequence[int | None]) -> float:
        outside = self.built.problem.outside
        source = outside if border.producer == OUTSIDE else modes[border.producer]
        users = [modes[v] for v in border.consumers] + [outside] * border.output
        pairs = {(source, user) for user in users}
        return sum(
            min(sum(way.load_us) for way in transfer.ways)
            for transfer in border.transfers
            if pairs & transfer.pairs
        )
