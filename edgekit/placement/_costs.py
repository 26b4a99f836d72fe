"""The cost model: what a kernel takes on each device, and what a tensor takes to change sides.

A roofline with a floor: ``launch + row_us * rows + depth_us * depth + max(floor, macs / peak,
bytes / bandwidth)``. The constants are data under ``targets/costs`` with their sources;
``scripts/fit_costs.py`` fits and checks them; docs/cost-model.md explains them.
Everything here predicts; nothing is measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from edgekit.network import Layer, Network, Tensor
from edgekit.placement._contention import energy_factors
from edgekit.placement._costs_data import cost_data, model_error
from edgekit.placement._costs_dla import dla_joins, dla_us, io_us
from edgekit.placement._costs_formats import (
    BYTES,
    Layout,
    dla_formats,
    gpu_formats,
)  # fmt: skip
from edgekit.placement._costs_gpu import gpu_joins, gpu_slowdown, gpu_us
from edgekit.placement._costs_reformat import fixed_us, moving_us
from edgekit.placement._kernels import Kernel, operations
from edgekit.targets import PowerMode, Target

__all__ = ["SUMS", "CostModel", "Layout", "cost_data", "model_error"]

SUMS = ("dla", "gpu")  # the energy of a placement is the less of the sums for these ``beside``

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
        beside: What :meth:`watts` are taken for: "dla" or "gpu", all work of this kind of device
            has the other one at its side, and its watts contain what sharing the DRAM costs both;
            empty: a device alone. A placement's energy is :meth:`energy`, whatever this is.
        power: What the whole network runs in, if that is not ``precision``: watts are known by
            precision of a whole build.
    """

    target: Target
    mode: PowerMode
    precision: str
    fp16_layers: frozenset[str]
    constants: Mapping[str, Any]
    power: str = ""
    beside: str = ""
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

    def layer_shares(self, network: Network, kernel: Kernel, device: str) -> tuple[float, ...]:
        """Returns each layer's part of a kernel's time, in the order of its layers.

        An operation's time belongs to its layers by what each adds to it: multiply-accumulates,
        weights and the tensors that it reads from elsewhere. A ReLU in a convolution adds nothing.
        """
        if len(kernel.layers) == 1:
            return (1.0,)
        parts = self._parts(network, kernel, device)
        took = [self.kernel_us(network, part, device) for part in parts]
        total = sum(took)
        share: dict[int, float] = {}
        for part, us in zip(parts, took, strict=True):
            own = [self._added_us(network, part, i, device) for i in part.layers]
            whole = sum(own)
            for i, added in zip(part.layers, own, strict=True):
                within = added / whole if whole else 1 / len(own)
                share[i] = within * (us / total if total else len(own) / len(kernel.layers))
        found = [share[i] for i in kernel.layers]
        return tuple(one / sum(found) for one in found)

    def _parts(self, network: Network, kernel: Kernel, device: str) -> tuple[Kernel, ...]:
        return operations(network, kernel, gpu_joins if device == "GPU" else dla_joins)

    def _added_us(self, network: Network, part: Kernel, index: int, device: str) -> float:
        """Returns what a layer adds to an operation, arithmetic and traffic one after the other."""
        layer = network.layers[index]
        names = [name for name in layer.inputs if name in part.inputs]
        if index == part.layers[0]:  # what comes out would do so without the layers that follow
            names += part.outputs
        moved = sum(network.tensors[name].elements for name in dict.fromkeys(names))
        moved += layer.weight_elements
        precision = self.layer_precision(network.layers[part.layers[0]], device)
        dram = self.target.dram.bytes_per_second * self.mode.memory_share / 1e6
        if device == "GPU":
            gpu, data = self.target.gpu, self.constants["gpu"][self.target.gpu.arch]
            ops = gpu.int8_ops_per_clock_per_sm
            if precision != "int8":
                ops = gpu.fp16_ops_per_clock_per_sm
            peak = ops / 2 * self.mode.gpu_sms * self.mode.gpu_mhz
            if precision == "fp32":
                peak *= data["fp32_of_fp16"]
        else:
            data = self.constants["dla"][self.target.dla.generation]
            rate = self.target.dla.int8_macs_per_clock
            if precision != "int8":
                rate = data["fp16_macs_per_clock"]
            peak = rate * self.mode.dla_mhz[int(device.removeprefix("DLA"))]
        busy = layer.macs / (peak * data["efficiency"][precision])
        return float(busy + moved * BYTES[precision] / (dram * data["memory"]))

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
        board = cost_data("reformat")["measured_on"]
        share = self.target.dram.bytes_per_second * self.mode.memory_share
        share /= board["dram_bytes_per_second"]
        constants = self.constants["gpu"][self.target.gpu.arch]
        slower = gpu_slowdown(self.mode, board["gpu_mhz"], constants)
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

        Four of five of the published rows of this kind of device and precision do, by constants
        fitted without their network or board; where there is none, the band is wide.
        """
        kind, own = "gpu" if device == "GPU" else "dla", precision or self.precision
        bands = cost_data("error")["bands"]
        low, high = bands.get(f"{kind}_{own}", bands["all"])
        if not self.has_rows(device, own):
            low, high = cost_data("extrapolated")["band"]
        return float(low), float(high)

    def has_rows(self, device: str, precision: str) -> bool:
        """Whether the model has seen a published time of this kind of device and precision."""
        kind = self.target.gpu.arch if device == "GPU" else self.target.dla.generation
        family = "gpu" if device == "GPU" else "dla"
        return bool(cost_data("error")["rows_of"].get(f"{family} {kind} {precision}"))

    def launch_us(self) -> float:
        """Returns the cost of starting one loadable; 0 without a DLA."""
        if not self.target.dla.cores:
            return 0.0
        return float(self.constants["dla"][self.target.dla.generation]["launch_us"])

    def energy(
        self, devices: Sequence[str], load_us: Sequence[float]
    ) -> tuple[float, tuple[float, ...]]:
        """Returns the energy of a frame with these loads, and the watts by device that make it.

        Frames overlap, as in the throughput, so it contains what sharing the DRAM costs: that of
        all DLA work beside the GPU, or of all GPU work beside a core, whichever is less.
        """
        found = []
        for beside in SUMS:
            watts = tuple(self.watts(name, beside) for name in devices)
            found.append((sum(us * w for us, w in zip(load_us, watts, strict=False)), watts))
        return min(found)

    def watts(self, device: str, beside: str | None = None) -> float:
        """Returns the module's power while one device works, and what ``beside`` adds to it.

        ``beside`` is the model's own where it is None.
        """
        alone = self._watts(device)
        kind, other = ("gpu", "DLA0") if device == "GPU" else ("dla", "GPU")
        beside = self.beside if beside is None else beside
        if kind != beside or not self.target.dla.cores:
            return alone
        own, others = energy_factors(self.target.dla.generation)[kind]
        return own * alone + others * self._watts(other)

    def _watts(self, device: str) -> float:
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
