"""What a kernel costs on each device, and what its borders cost on either side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edgekit.network import Network
from edgekit.placement._costs import CostModel
from edgekit.placement._kernels import Kernel
from edgekit.placement._measured import Measured

__all__ = ["Costing"]

DIGITS = 6
_CALLER = ("fp32", "LINEAR")


@dataclass(frozen=True)
class Costing:
    """A network's kernels with the model that says what they cost.

    Attributes:
        network: The layers.
        model: Predicted costs, or measured ones where there are any.
        kernels: Groups of layers that run as one.
    """

    network: Network
    model: CostModel
    kernels: tuple[Kernel, ...]

    def kernel_of(self, layer: str) -> Kernel:
        """Returns the kernel that a layer is a part of."""
        index = next(i for i, one in enumerate(self.network.layers) if one.name == layer)
        return next(kernel for kernel in self.kernels if index in kernel.layers)

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
            rows.append(
                {"device": device, "precision": model.layer_precision(first, device),
                 "format": form, "us": round(us, DIGITS),
                 "uj": round(us * model.watts(device), DIGITS),
                 "clock": "measured" if known else "predicted"}
            )  # fmt: skip
        # a DLA core computes in one format only; the others are for its borders
        return rows if device == "GPU" else rows[:1]

    def borders(
        self, kernel: Kernel, devices: Mapping[str, str], other: str
    ) -> list[dict[str, Any]]:
        """Returns what the kernel's tensors cost at its border, where it is and on ``other``.

        Args:
            kernel: The kernel.
            devices: By layer, its device in the plan.
            other: The device that the kernel could be on instead.
        """
        own = devices[self.network.layers[kernel.layers[0]].name]
        writer = {t: k for k in self.kernels for t in k.outputs}
        rows = []
        for name in dict.fromkeys(kernel.inputs):
            source = writer.get(name)
            rows.append(self._border(name, "reads", source, kernel, devices, own, other))
        for name in kernel.outputs:
            readers = [k for k in self.kernels if name in k.inputs]
            users: list[Kernel | None] = [*readers]
            if name in set(self.network.outputs):
                users.append(None)
            # paid once however many read it: the dearest reader stands for them
            found = [self._border(name, "writes", u, kernel, devices, own, other) for u in users]
            rows += sorted(found, key=lambda row: -max(row["us"], row["otherwise_us"]))[:1]
        return rows

    def _border(
        self,
        name: str,
        direction: str,
        neighbour: Kernel | None,
        kernel: Kernel,
        devices: Mapping[str, str],
        own: str,
        other: str,
    ) -> dict[str, Any]:
        there = None
        if neighbour is not None:
            there = devices[self.network.layers[neighbour.layers[-1]].name]
        costs = []
        for here in (own, other):
            sides = [self._layout(neighbour, there, name), self._layout(kernel, here, name)]
            if direction == "writes":
                sides.reverse()
            crosses = there is None or there != here
            costs.append(
                self.model.reformat_us(self.network.tensors[name], *sides) if crosses else 0.0
            )
        layer = None if neighbour is None else self.network.layers[neighbour.layers[-1]].name
        return {
            "tensor": name, "direction": direction, "neighbour": layer, "device": there,
            "us": round(costs[0], DIGITS), "otherwise_us": round(costs[1], DIGITS),
        }  # fmt: skip

    def _layout(self, kernel: Kernel | None, device: str | None, name: str) -> tuple[str, str]:
        """Returns a kernel's type and format at a tensor; the caller's outside the network."""
        if kernel is None or device is None:
            return _CALLER
        network, model = self.network, self.model
        precision = model.layer_precision(network.layers[kernel.layers[0]], device)
        forms = model.formats(network, kernel, device)
        if device != "GPU" and name not in kernel.inputs:
            forms = tuple(form for form in forms if form != "DLA_HWC4") or forms
        return precision, forms[0]
