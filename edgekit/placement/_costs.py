"""The cost model: what a kernel takes on each device, and what a tensor takes to change sides.

A roofline with a floor: ``launch + max(floor, macs / peak, bytes / bandwidth)``. The constants are
data under ``targets/costs`` with their sources; ``scripts/fit_costs.py`` fits and checks them.
Everything here predicts; nothing is measured.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from edgekit.network import Layer, Network, Tensor
from edgekit.placement._costs_data import cost_data, model_error
from edgekit.placement._costs_formats import (
    BYTES,
    Layout,
    dla_formats,
    gpu_formats,
)  # fmt: skip
from edgekit.placement._costs_reformat import fixed_us, moving_us
from edgekit.placement._kernels import Kernel
from edgekit.targets import PowerMode, Target

__all__ = ["CostModel", "Layout", "cost_data", "model_error"]


@dataclass(frozen=True)
class CostModel:
    """Predicts times in microseconds for a board in a power mode.

    Attributes:
        target: The board.
        mode: Its power mode (clocks, powered SMs, memory clock).
        precision: "int8", "fp16" or "fp32".
        fp16_layers: Layers that run in FP16 although the precision is INT8.
        constants: ``targets/costs/devices.yaml``, or a trial of the fitting script.
    """

    target: Target
    mode: PowerMode
    precision: str
    fp16_layers: frozenset[str]
    constants: Mapping[str, Any]
    _reformats: dict[Any, float] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )

    def layer_precision(self, layer: Layer, device: str) -> str:
        """Returns the precision that a layer runs in on a device ("GPU", "DLA0", ...)."""
        if self.precision != "int8":
            return self.precision
        lacks_int8 = layer.kind in cost_data("kinds")["no_int8_on_gpu"]["kinds"]
        if layer.name in self.fp16_layers or (device == "GPU" and lacks_int8):
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
        del format
        if device == "GPU":
            return self._gpu_us(network, kernel)
        return self._dla_us(network, kernel, int(device.removeprefix("DLA")))

    def _gpu_us(self, network: Network, kernel: Kernel) -> float:
        layers = [network.layers[i] for i in kernel.layers]
        if all(_is_free(layer) for layer in layers):
            return 0.0
        data = self.constants["gpu"][self.target.gpu.arch]
        precision = self.layer_precision(layers[0], "GPU")
        gpu = self.target.gpu
        rate = (
            gpu.int8_ops_per_clock_per_sm if precision == "int8" else gpu.fp16_ops_per_clock_per_sm
        )
        peak = rate / 2 * self.mode.gpu_sms * self.mode.gpu_mhz  # MACs a microsecond
        if precision == "fp32":
            peak *= data["fp32_of_fp16"]
        work = 0.0
        for layer in layers:
            share = (
                data["grouped"] if _is_depthwise(network, layer) else data["efficiency"][precision]
            )
            work += layer.macs / (peak * share)
        moved = self._bytes(network, kernel, precision, 1.0) / self._bandwidth(data["memory"])
        slower = self._gpu_slowdown(data)
        return float(data["launch_us"] + max(data["floor_us"] * slower, work, moved))

    def _gpu_slowdown(self, data: Mapping[str, Any]) -> float:
        """Fixed times grow when the clock falls, though less than the clock."""
        ratio = self.target.gpu.max_mhz / self.mode.gpu_mhz
        return float(ratio ** data["clock_exponent"])

    def _dla_us(self, network: Network, kernel: Kernel, core: int) -> float:
        data = self.constants["dla"][self.target.dla.generation]
        layers = [network.layers[i] for i in kernel.layers]
        precision = self.layer_precision(layers[0], f"DLA{core}")
        slow = precision != "int8"
        rate = data["fp16_macs_per_clock"] if slow else self.target.dla.int8_macs_per_clock
        mhz = self.mode.dla_mhz[core]
        peak = rate * mhz * data["efficiency"][precision]
        work = sum(layer.macs * _padding(network, layer, data) for layer in layers) / peak
        batches = max(_batches(network, layer) for layer in layers)
        moved = self._bytes(network, kernel, precision, batches) / self._bandwidth(data["memory"])
        rows = max((_rows(network, layer) for layer in layers), default=1)
        weights = BYTES[precision] * sum(layer.weight_elements for layer in layers)
        again = rows * weights / (data["row_gb_per_second"] * 1e3) if rows > 1 else 0.0
        operation = data["operation_us"] * self.target.dla.max_mhz / mhz
        return float(operation + max(work, moved, again))

    def _bytes(
        self, network: Network, kernel: Kernel, precision: str, weight_reads: float
    ) -> float:
        elements = sum(network.tensors[name].elements for name in (*kernel.inputs, *kernel.outputs))
        weights = sum(network.layers[i].weight_elements for i in kernel.layers)
        return BYTES[precision] * (elements + weight_reads * weights)

    def _bandwidth(self, share: float) -> float:
        """Returns bytes a microsecond."""
        return self.target.dram.bytes_per_second * self.mode.memory_share * share / 1e6

    def reformat_us(self, tensor: Tensor, source: Layout, goal: Layout) -> float:
        """Returns the time of the GPU's reformat of a tensor; 0 where nothing changes."""
        if source == goal or len(tensor.shape) == 0:
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
        slower = self._gpu_slowdown(self.constants["gpu"][self.target.gpu.arch])
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
        del tensor, format, precision, direction
        return 0.0

    def to_dla_us(self, tensor: Tensor, precision: str, *, network_input: bool) -> float:
        """Returns the time of the GPU's reformat of a tensor for a DLA core."""
        source = BYTES["fp32" if network_input else precision] * tensor.elements
        return self._reformat_us("to_dla", precision, source + self._dla_bytes(tensor, precision))

    def to_gpu_us(self, tensor: Tensor, precision: str, *, network_output: bool) -> float:
        """Returns the time of the GPU's reformat of what a DLA core wrote."""
        goal = BYTES["fp32" if network_output else precision] * tensor.elements
        return self._reformat_us("to_gpu", precision, goal + self._dla_bytes(tensor, precision))

    def _reformat_us(self, direction: str, precision: str, moved: float) -> float:
        data = self.constants["handover"]
        table = data[precision]
        slower = self._gpu_slowdown(self.constants["gpu"][self.target.gpu.arch])
        bandwidth = self.target.dram.bytes_per_second * self.mode.memory_share
        share = bandwidth / data["measured_on"]["dram_bytes_per_second"]
        rate = table[f"{direction}_gb_per_second"] * 1e3 * share
        return float(table[f"{direction}_us"] * slower + moved / rate)

    def _dla_bytes(self, tensor: Tensor, precision: str) -> float:
        """Returns a tensor's size in the DLA's vector formats, whose channels are padded."""
        data = self.constants["handover"]
        size = BYTES[precision]
        if len(tensor.shape) < 2:
            return float(tensor.elements * size)
        channels = tensor.shape[1]
        vector = data["vector_bytes"] // size
        image = data["image_channels"]
        padded = image if channels <= image else math.ceil(channels / vector) * vector
        return float(tensor.elements / channels * padded * size)

    def launch_us(self) -> float:
        """Returns the cost of starting one loadable; 0 without a DLA."""
        if not self.target.dla.cores:
            return 0.0
        return float(self.constants["dla"][self.target.dla.generation]["launch_us"])

    def watts(self, device: str) -> float:
        """Returns the module's power while one device works."""
        data = cost_data("power")
        exponent = data["clock_exponent"]
        idle = data["idle_watts"].get(self.target.name, data["idle_watts"]["default"])
        if device == "GPU":
            per_sm = data["gpu_watts_per_sm"][self.target.gpu.arch]
            own = per_sm * self.mode.gpu_sms * (self.mode.gpu_mhz / 1e3) ** exponent
        else:
            mhz = self.mode.dla_mhz[int(device.removeprefix("DLA"))]
            own = data["dla_watts"][self.target.dla.generation] * (mhz / 1e3) ** exponent
        return float(idle + own)


def _is_free(layer: Layer) -> bool:
    free = cost_data("kinds")["free_on_gpu"]
    if layer.kind in free["kinds"]:
        return True
    return layer.kind == "SHUFFLE" and layer.params.get("mode") in free["shuffle_modes"]


def _groups(layer: Layer) -> int:
    return int(layer.params.get("groups", 1) or 1)


def _is_depthwise(network: Network, layer: Layer) -> bool:
    return _groups(layer) > 1 and _channels(network, layer) == _groups(layer)


def _channels(network: Network, layer: Layer) -> int:
    shape = network.tensors[layer.inputs[0]].shape if layer.inputs else ()
    return shape[1] if len(shape) > 1 else 1


def _padding(network: Network, layer: Layer, data: Mapping[str, Any]) -> float:
    """Returns how much more the MAC array does than the layer asks for."""
    if not layer.macs or not layer.weight_elements:
        return 1.0
    groups = _groups(layer)
    channels = max(1, _channels(network, layer) // groups)
    atom = data["grouped_atom"] if groups > 1 else data["channel_atom"]
    if groups == 1 and channels <= data["image_channels"]:
        atom = data["image_channels"]
    return float(math.ceil(channels / atom) * atom / channels)


def _batches(network: Network, layer: Layer) -> int:
    """Weights are read once for every item of a batch: batching does not help a DLA."""
    shape = network.tensors[layer.outputs[0]].shape
    return shape[0] if len(shape) > 1 else 1


def _rows(network: Network, layer: Layer) -> int:
    """Returns the rows of a matrix product, which a DLA runs as a batch; 1 for anything else."""
    if layer.op not in ("Gemm", "MatMul"):
        return 1
    shape = network.tensors[layer.outputs[0]].shape
    out = int(layer.params.get("out_maps", shape[-1] if shape else 1) or 1)
    return max(1, math.prod(shape) // out)
