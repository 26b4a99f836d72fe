"""The cost model: what a kernel takes on each device, and what a tensor takes to change sides.

A roofline with a floor: ``launch + row_us * rows + depth_us * depth + max(floor, macs / peak,
bytes / bandwidth)``. The constants are data under ``targets/costs`` with their sources;
``scripts/fit_costs.py`` fits and checks them; docs/cost-model.md explains them.
Everything here predicts; nothing is measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from edgekit.network import Layer, Network, Tensor
from edgekit.placement._costs_data import cost_data, model_error
from edgekit.placement._costs_dla import dla_us, io_us
from edgekit.placement._costs_formats import (
    Layout,
    dla_formats,
    gpu_formats,
)  # fmt: skip
from edgekit.placement._costs_gpu import gpu_slowdown, gpu_us
from edgekit.placement._costs_reformat import fixed_us, moving_us
from edgekit.placement._kernels import Kernel
from edgekit.targets import PowerMode, Target

__all__ = ["CostModel", "Layout", "cost_data", "model_error"]

# they round what the kernel before them writes, and scale what the one behind them reads: no
# kernels of their own (assumed; NVIDIA's DLA operator matrix: "collapsed to INT8 scaling factor")
_FREE = frozenset({"QUANTIZE", "DEQUANTIZE"})


def _is_free(network: Network, layer: Layer) -> bool:
    """Whether a Q/DQ node is a part of its neighbour: one at the network's ends has none there."""
    ends = (*network.inputs, *network.outputs)
    return layer.kind in _FREE and not any(n in ends for n in (*layer.inputs, *layer.outputs))


@dataclass(frozen=True)
class CostModel:
    """Predicts times in microseconds for a board in a power mode.

    Attributes:
        target: The board.
        mode: Its power mode (clocks, powered SMs, memory clock).
        precision: "int8", "fp16" or "fp32".
        fp16_layers: Layers that run in FP16 although the precision is INT8.
        constants: ``targets/costs/devices.yaml``, or a trial of the fitting script.
        power: What the whole network runs in, if that is not ``precision``: watts are known by
            precision of a whole build.
    """

    target: Target
    mode: PowerMode
    precision: str
    fp16_layers: frozenset[str]
    constants: Mapping[str, Any]
    power: str = ""
    _reformats: dict[Any, float] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )

    def layer_precision(self, layer: Layer, device: str) -> str:
        """Returns the precision that a layer runs in on a device ("GPU", "DLA0", ...)."""
        if self.precision != "int8":
            return self.precision
        lacks_int8 = layer.kind in cost_data("kinds")["no_int8_on_gpu"]["kinds"]
        if layer.name in self.fp16_layers or layer.opaque or (device == "GPU" and lacks_int8):
            return "fp16"
        return "int8"

    def formats(self, network: Network, kernel: Kernel, device: str) -> tuple[str, ...]:
        """Returns the tensor formats that a kernel can have on a device, its best one first.

        On a DLA they are those in which a loadable that begins or ends with this kernel can read
        or write; inside a loadable there is no choice. DLA_HWC4 is for reading only.
        """
        layers = [network.layers[i] for i in kernel.layers]
        precision = self.layer_precision(layers[0], device)
        if device == "GPU":
            return gpu_formats(layers, network, precision)
        return dla_formats(kernel, network, precision)

    def kernel_us(
        self, network: Network, kernel: Kernel, device: str, format: str | None = None
    ) -> float:
        """Returns the time of one kernel on "GPU" or on a DLA core, in its best format or in one.

        A DLA kernel takes the same in every format; what another format at a loadable's border
        adds is :meth:`dla_io_us`.
        """
        if network.layers[kernel.layers[0]].opaque:
            # unknown, which the plan and the check say (``Network.opaque``)
            return 0.0
        if all(_is_free(network, network.layers[i]) for i in kernel.layers):
            return 0.0
        precision = self.layer_precision(network.layers[kernel.layers[0]], device)
        if device != "GPU":
            core = int(device.removeprefix("DLA"))
            constants = self.constants["dla"][self.target.dla.generation]
            return dla_us(network, kernel, precision, core, self.target, self.mode, constants)
        form = format or self.formats(network, kernel, device)[0]
        constants = self.constants["gpu"][self.target.gpu.arch]
        return gpu_us(network, kernel, precision, form, self.target, self.mode, constants)

    def reformat_us(self, tensor: Tensor, source: Layout, goal: Layout) -> float:
        """Returns the time of the GPU's reformat of a tensor; 0 where nothing changes."""
        if source == goal or len(tensor.shape) == 0 or not tensor.elements:
            return 0.0
        key = (tensor.shape, source, goal)
        known = self._reformats.get(key)
        if known is None:
            known = self._reformats[key] = self._reformat(tensor, source, goal)
        return known

    def _reformat(self, tensor: Tensor, source: Layout, goal: Layout) -> float:
        generation = self.target.dla.generation or "2.0"
        measured = cost_data("reformat")["measured_on"]["dram_bytes_per_second"]
        share = self.target.dram.bytes_per_second * self.mode.memory_share / measured
        slower = gpu_slowdown(self.target, self.mode, self.constants["gpu"][self.target.gpu.arch])
        moving = moving_us(tensor.shape, source, goal, generation)
        return float(fixed_us() * slower + moving / share)

    def dla_io_us(self, tensor: Tensor, format: str, precision: str, direction: str) -> float:
        """Returns what a loadable takes longer because a tensor at its border has this format.

        Args:
            tensor: What it reads or writes.
            format: "CHW32", "CHW16", "DLA_LINEAR" or "DLA_HWC4".
            precision: The loadable's, "int8" or "fp16".
            direction: "read" or "write".
        """
        generation = self.target.dla.generation
        constants = self.constants["dla"][generation]
        found = io_us(tensor.shape, format, precision, direction, generation, constants)
        return float(found * self.target.dla.max_mhz / min(self.mode.dla_mhz))

    def band(self, device: str, precision: str | None = None) -> tuple[float, float]:
        """Returns the factors between which measured times lie of predicted ones, mostly.

        Four of five of the published rows of this kind of device and precision do, those that the
        fit did not see included; where there are fewer than 19 of them, all do.
        """
        kind = "gpu" if device == "GPU" else "dla"
        bands = cost_data("error")["bands"]
        low, high = bands.get(f"{kind}_{precision or self.precision}", bands["all"])
        return float(low), float(high)

    def launch_us(self) -> float:
        """Returns the cost of starting one loadable; 0 without a DLA."""
        if not self.target.dla.cores:
            return 0.0
        return float(self.constants["dla"][self.target.dla.generation]["launch_us"])

    def watts(self, device: str) -> float:
        """Returns the module's power while one device works."""
        data = cost_data("power")
        idle = data["idle_watts"].get(self.target.name, data["idle_watts"]["default"])
        exponent = data["clock_exponent"]
        if device == "GPU":
            per_sm = data["gpu_watts_per_sm"][self.target.gpu.arch][self.power or self.precision]
            own = per_sm * self.mode.gpu_sms * (self.mode.gpu_mhz / 1e3) ** exponent["gpu"]
        else:
            mhz = self.mode.dla_mhz[int(device.removeprefix("DLA"))]
            watts = data["dla_watts"][self.target.dla.generation]
            own = watts * (mhz / 1e3) ** exponent["dla"]
        return float(idle + own)
