"""The cost model: a kernel's time on each device (``kernel_costs``), the GPU's time to reformat a
tensor (``reformat``), and the slowdown of devices that work at the same time.
Times are in microseconds, predicted unless a profile measured them.

A roofline with a floor: ``launch + row_us * rows + depth_us * depth + max(floor, macs / peak,
bytes / bandwidth)``. The constants are data under ``targets/costs`` with their sources;
``scripts/fit_costs.py`` fits and checks them; docs/cost-model.md explains them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import field, replace
from itertools import combinations
from typing import Any

from edgekit.dla.plugin_formats import plugin_precision
from edgekit.network.model import Layer, Network, Tensor
from edgekit.placement.costs.constants import (
    DeviceConstants,
    DlaConstants,
    GpuConstants,
    contention_constants,
    extrapolation,
    layer_kinds,
    model_errors,
    power_constants,
)
from edgekit.placement.costs.kernel_costs import (
    BYTES,
    Layout,
    dla_formats,
    dla_joins,
    dla_us,
    gpu_formats,
    gpu_joins,
    gpu_us,
    io_us,
)
from edgekit.placement.costs.reformat import predict_reformat_us
from edgekit.placement.kernels import LayerKernel, fuse, operations
from edgekit.targets.board import PowerMode, Target
from edgekit_device.protocol.codec import document
from edgekit_device.protocol.fields import dla_core

SUMS = ("dla", "gpu")  # a placement's energy is the smaller sum for these values of ``concurrent``
# they round the previous kernel's output and scale the next kernel's input: no kernels of their own
# (assumed; NVIDIA's DLA operator matrix: "collapsed to INT8 scaling factor")
_QDQ_KINDS = frozenset({"QUANTIZE", "DEQUANTIZE"})


def _joins_neighbour(network: Network, layer: Layer) -> bool:
    """Returns True if a Q/DQ node is a part of its neighbour: not at the network's ends."""
    ends = (*network.inputs, *network.outputs)
    return layer.kind in _QDQ_KINDS and not any(n in ends for n in (*layer.inputs, *layer.outputs))


class Measurements:
    """Measured times of a network; this base class has none.

    The subclasses (``profiles``) hold a profile's measurements, or factors learnt from a profile. A
    time is None if the prediction is to be used; ``model`` is the calling model.
    """

    def layer_precision(self, model: CostModel, layer: Layer, device: str, predicted: str) -> str:
        """Returns the precision of a layer on a device."""
        return predicted

    def formats(
        self,
        model: CostModel,
        network: Network,
        kernel: LayerKernel,
        device: str,
        predicted: tuple[str, ...],
    ) -> tuple[str, ...]:
        """Returns the formats of a kernel, the best first."""
        return predicted

    def kernel_us(
        self,
        model: CostModel,
        network: Network,
        kernel: LayerKernel,
        device: str,
        format: str | None,
    ) -> float | None:
        """Returns the time of a kernel."""
        return None

    def reformat_us(
        self, model: CostModel, tensor: Tensor, source: Layout, goal: Layout
    ) -> float | None:
        """Returns the time of the GPU's reformat of such a tensor."""
        return None

    def dla_io_us(
        self, model: CostModel, tensor: Tensor, format: str, precision: str, direction: str
    ) -> float | None:
        """Returns the extra time of a format at a loadable's border."""
        return None

    def launch_us(self, predicted: float) -> float:
        """Returns the time to start a loadable."""
        return predicted

    def has_kernel(self, kernel: LayerKernel, device: str) -> bool:
        """Returns True if a kernel's time on a device was measured."""
        return False

    def has_reformat(self, tensor: Tensor, source: Layout, goal: Layout) -> bool:
        """Returns True if the time of a reformat was measured."""
        return False

    def fused_parts(self) -> tuple[frozenset[int], ...] | None:
        """Returns the parts that the GPU ran fused; None if unknown."""
        return None

    def is_fused(self, kernel: LayerKernel) -> bool:
        """Returns True if a kernel's GPU time was measured with its whole fusion on the GPU."""
        return False

    def is_piece(self, layer: int) -> bool:
        """Returns True if a layer of a fused part was timed in pieces, next to a DLA."""
        return False

    def breaking_us(self, layers: Collection[int], saved_us: Mapping[int, float]) -> float:
        """Returns the extra time of a fused part's timed pieces over the fusion.

        Args:
            layers: The part's layers.
            saved_us: By layer, the time that the fusion saves over a kernel of its own.
        """
        return 0.0


PREDICTED = Measurements()


@document(frozen=True)
class CostModel:
    """Times in microseconds for a board in a power mode: measured if known, else predicted.

    Attributes:
        target: The board.
        mode: Its power mode (clocks, powered SMs, memory clock).
        precision: "int8", "fp16" or "fp32".
        fp16_layers: Layers that run in FP16 although the precision is INT8.
        constants: ``targets/costs/devices.yaml``, or a trial of the fitting script.
        concurrent: The concurrency assumed by :meth:`watts`. With "dla" or "gpu", all work of this
            kind of device runs while the other kind works, and its watts include both devices' cost
            of sharing the DRAM; empty: a device alone. :meth:`energy` does not depend on it.
        power: The precision of the whole network, if it is not ``precision``: watts are known by
            precision of a whole build.
        measured: The measured times of a profile.
        rate_hz: Frames a second at which the energy is computed; None if frames follow each other
            without a pause (back to back).
    """

    target: Target
    mode: PowerMode
    precision: str
    fp16_layers: frozenset[str]
    constants: DeviceConstants
    power: str = ""
    concurrent: str = ""
    measured: Measurements = PREDICTED
    rate_hz: float | None = None
    _reformats: dict[Any, float] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )

    @property
    def _gpu_constants(self) -> GpuConstants:
        return self.constants.gpu[self.target.gpu.arch]

    @property
    def _dla_constants(self) -> DlaConstants:
        return self.constants.dla[self.target.dla.generation]

    def layer_precision(self, layer: Layer, device: str) -> str:
        """Returns a layer's precision on a device ("GPU", "DLA0", ...)."""
        forced = layer.name in self.fp16_layers
        predicted = self.precision
        if layer.opaque:
            predicted = plugin_precision(layer, self.precision, scaled=not forced)
        elif predicted == "int8":
            lacks_int8 = layer.kind in layer_kinds().no_int8_on_gpu.kinds
            predicted = "fp16" if forced or (device == "GPU" and lacks_int8) else "int8"
        if self.precision != "int8":
            return predicted
        return self.measured.layer_precision(self, layer, device, predicted)

    def formats(self, network: Network, kernel: LayerKernel, device: str) -> tuple[str, ...]:
        """Returns a kernel's possible tensor formats on a device, its best first.

        On a DLA these are the formats that a loadable which begins or ends with this kernel can
        read or write; inside a loadable there is no choice. DLA_HWC4 is read-only.
        """
        layers = [network.layers[i] for i in kernel.layers]
        precision = self.layer_precision(layers[0], device)
        if device == "GPU":
            predicted = gpu_formats(layers, network, precision)
        else:
            predicted = dla_formats(kernel, network, precision)
        return self.measured.formats(self, network, kernel, device, predicted)

    def kernel_us(
        self, network: Network, kernel: LayerKernel, device: str, format: str | None = None
    ) -> float:
        """Returns the time of a kernel on "GPU" or on a DLA core, in ``format`` or its best format.

        A DLA kernel's time is the same in every format; :meth:`dla_io_us` is the extra time of
        another format at a loadable's border.
        """
        known = self.measured.kernel_us(self, network, kernel, device, format)
        return self.predicted_us(network, kernel, device, format) if known is None else known

    def predicted_us(
        self, network: Network, kernel: LayerKernel, device: str, format: str | None = None
    ) -> float:
        """Returns the predicted value of :meth:`kernel_us`, ignoring measurements."""
        if not network.layers[kernel.layers[0]].formula:
            # unknown, as the plan and the check report (``Network.uncounted``)
            return 0.0
        if all(_joins_neighbour(network, network.layers[i]) for i in kernel.layers):
            return 0.0
        precision = self.layer_precision(network.layers[kernel.layers[0]], device)
        if network.layers[kernel.layers[0]].bodies:
            return self._bodies_us(network.layers[kernel.layers[0]], precision)
        if (core := dla_core(device)) is not None:
            data = self._dla_constants
            return dla_us(network, kernel, precision, core, self.target, self.mode, data)
        form = format or self.formats(network, kernel, device)[0]
        on_gpu = self._gpu_constants
        return gpu_us(network, kernel, precision, form, self.target, self.mode, on_gpu)

    def _bodies_us(self, layer: Layer, precision: str) -> float:
        """Returns the time of an If, a Loop or a Scan on the GPU.

        Iterations are sequential, each with the kernels of the body, in which consecutive pointwise
        layers are one kernel. For an If the longer branch counts.
        """
        took = [self._body_us(body.network, layer.kind, precision) for body in layer.bodies]
        return float(layer.params.get("trip_count", 1) * max(took))

    def _body_us(self, network: Network, kind: str, precision: str) -> float:
        # a profile's times are by the outer network's layers
        inside = replace(self, precision=precision, measured=PREDICTED)
        rules, joined = layer_kinds().fusion, layer_kinds().in_loops.joined
        runs = [0.0]
        # in a loop consecutive pointwise layers are one kernel, which takes as long as its longest
        before = False
        for kernel in fuse(network, rules.heads, rules.tails, lambda _: 0):
            us = inside.predicted_us(network, kernel, "GPU")
            joins = kind == "LOOP" and network.layers[kernel.layers[0]].kind in joined
            if before and joins:
                runs[-1] = max(runs[-1], us)
            else:
                runs.append(us)
            before = joins
        return sum(runs)

    def layer_shares(self, network: Network, kernel: LayerKernel, device: str) -> tuple[float, ...]:
        """Returns each layer's part of a kernel's time, in the order of its layers.

        An operation's time is divided by each layer's contribution: multiply-accumulates, weights
        and the tensors that it reads from elsewhere. A ReLU in a convolution contributes 0.
        """
        if len(kernel.layers) == 1:
            return (1.0,)
        parts = operations(network, kernel, gpu_joins if device == "GPU" else dla_joins)
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
        return tuple(part / sum(found) for part in found)

    def _added_us(self, network: Network, part: LayerKernel, index: int, device: str) -> float:
        """Returns a layer's contribution to an operation: the sum of arithmetic and traffic."""
        layer = network.layers[index]
        # tensors inside an operation stay on the chip
        names = [name for name in layer.inputs if name in part.inputs]
        if index == part.layers[0]:  # the output would be written without the later layers, too
            names += part.outputs
        moved = sum(network.tensors[name].elements for name in dict.fromkeys(names))
        moved += layer.weight_elements
        precision = self.layer_precision(network.layers[part.layers[0]], device)
        dram = self.target.dram.bytes_per_second * self.mode.memory_share / 1e6
        if (core := dla_core(device)) is None:
            gpu, constants = self.target.gpu, self._gpu_constants
            ops = gpu.int8_ops_per_clock_per_sm
            if precision != "int8":
                ops = gpu.fp16_ops_per_clock_per_sm
            peak = ops / 2 * self.mode.gpu_sms * self.mode.gpu_mhz
            if precision == "fp32":
                peak *= constants.fp32_of_fp16
            share, memory = constants.efficiency[precision], constants.memory
        else:
            on_dla = self._dla_constants
            rate = on_dla.fp16_macs_per_clock
            if precision == "int8":
                rate = self.target.dla.int8_macs_per_clock
            peak = rate * self.mode.dla_mhz[core]
            share, memory = on_dla.efficiency[precision], on_dla.memory
        return float(layer.macs / (peak * share) + moved * BYTES[precision] / (dram * memory))

    def reformat_us(self, tensor: Tensor, source: Layout, goal: Layout) -> float:
        """Returns the time of the GPU's reformat of a tensor; 0 between equal layouts."""
        known = self.measured.reformat_us(self, tensor, source, goal)
        return self.predicted_reformat_us(tensor, source, goal) if known is None else known

    def predicted_reformat_us(self, tensor: Tensor, source: Layout, goal: Layout) -> float:
        """Returns the predicted value of :meth:`reformat_us`, ignoring measurements."""
        if source == goal or len(tensor.shape) == 0 or not tensor.elements:
            return 0.0
        # many tensors of a network have the same shape
        key = (tensor.shape, source, goal)
        known = self._reformats.get(key)
        if known is None:
            known = self._reformats[key] = predict_reformat_us(
                tensor.shape, source, goal, self.target, self.mode, self._gpu_constants
            )
        return known

    def dla_io_us(self, tensor: Tensor, format: str, precision: str, direction: str) -> float:
        """Returns the extra time of a loadable because a tensor at its border has this format.

        Args:
            tensor: The tensor that it reads or writes.
            format: "CHW32", "CHW16", "DLA_LINEAR" or "DLA_HWC4".
            precision: The loadable's, "int8" or "fp16".
            direction: "read" or "write".
        """
        known = self.measured.dla_io_us(self, tensor, format, precision, direction)
        if known is not None:
            return known
        return self.predicted_io_us(tensor, format, precision, direction)

    def predicted_io_us(self, tensor: Tensor, format: str, precision: str, direction: str) -> float:
        """Returns the predicted value of :meth:`dla_io_us`, ignoring measurements."""
        generation = self.target.dla.generation
        data = self._dla_constants
        found = io_us(tensor.shape, format, precision, direction, generation, data)
        # the core is not known here: the slowest core counts
        return float(found * self.target.dla.max_mhz / min(self.mode.dla_mhz))

    def band(self, device: str, precision: str | None = None) -> tuple[float, float]:
        """Returns the range of the ratio of measured to predicted times.

        It holds for four of five published rows of this kind of device and precision, with
        constants fitted without their network or board; without such rows the band is wide.
        """
        kind, own = "gpu" if device == "GPU" else "dla", precision or self.precision
        if not self.has_rows(device, own):
            return extrapolation().band
        bands = model_errors().bands
        return bands.get(f"{kind}_{own}", bands["all"])

    def has_rows(self, device: str, precision: str) -> bool:
        """Returns True if there is a published time for this kind of device and precision."""
        kind = self.target.gpu.arch if device == "GPU" else self.target.dla.generation
        family = "gpu" if device == "GPU" else "dla"
        return bool(model_errors().rows_of.get(f"{family} {kind} {precision}"))

    def launch_us(self) -> float:
        """Returns the microseconds to start a loadable; 0 without a DLA."""
        if not self.target.dla.cores:
            return 0.0
        predicted = self._dla_constants.launch_us
        return self.measured.launch_us(predicted)

    def energy(
        self, devices: Sequence[str], load_us: Sequence[float]
    ) -> tuple[float, tuple[float, ...]]:
        """Returns the energy of a frame with these loads, and its watts by device.

        Back to back, frames overlap as in the throughput, so the energy includes the cost of
        sharing the DRAM: for all DLA work while the GPU works, or for all GPU work while a core
        works, whichever is smaller. At a rate the idle module draws its power from each frame to
        the next, and each device in use its standby power (:meth:`idle_uj`); the watts are the
        addition for work, without any sharing.
        """
        if self.rate_hz is not None:
            watts = tuple(self.watts(name) for name in devices)
            active = sum(us * w for us, w in zip(load_us, watts, strict=False))
            return active + self.idle_uj(load_us[: len(devices)]), watts
        found = []
        for concurrent in SUMS:
            watts = tuple(self.watts(name, concurrent) for name in devices)
            found.append((sum(us * w for us, w in zip(load_us, watts, strict=False)), watts))
        return min(found)

    def idle_uj(self, load_us: Sequence[float]) -> float:
        """Returns the part of a frame's energy that the idle module draws, in microjoules.

        At a rate, it includes the standby power of devices in use between frames. The GPU is always
        in use: it also reformats and copies for an engine on a DLA core.

        Args:
            load_us: The frame's microseconds by device, the GPU first.
        """
        if self.rate_hz is None:
            return self.target.idle_watts * sum(load_us)
        # an idle core draws no standby power
        cores = sum(us > 0 for us in load_us[1:])
        standby = _standby("GPU") + cores * _standby("DLA0")
        return (self.target.idle_watts + standby) * 1e6 / self.rate_hz

    def watts(self, device: str, concurrent: str | None = None) -> float:
        """Returns the module's watts while one device works, with the addition for ``concurrent``.

        At a rate it is the addition for work to the idle module with this device on standby.
        ``concurrent`` is the model's own if None.
        """
        alone = self._watts(device)
        if self.rate_hz is not None:
            return alone - self.target.idle_watts - _standby(device)
        kind, other = ("gpu", "DLA0") if device == "GPU" else ("dla", "GPU")
        concurrent = self.concurrent if concurrent is None else concurrent
        if kind != concurrent or not self.target.dla.cores:
            return alone
        own, others = energy_factors(self.target)[kind]
        return own * alone + others * self._watts(other)

    def _watts(self, device: str) -> float:
        data = power_constants()
        if (core := dla_core(device)) is None:
            per_sm = data.gpu_watts_per_sm[self.target.gpu.arch][self.power or self.precision]
            own = per_sm * self.mode.gpu_sms * (self.mode.gpu_mhz / 1e3) ** data.clock_exponent.gpu
        else:
            mhz = self.mode.dla_mhz[core]
            watts = data.dla_watts[self.target.dla.generation]
            own = watts * (mhz / 1e3) ** data.clock_exponent.dla
        return float(self.target.idle_watts + own)


def _standby(device: str) -> float:
    """Returns the watts that a device in use adds to the idle module between its work."""
    watts = power_constants().standby_watts
    return watts.gpu if device == "GPU" else watts.dla


def contention_factors(target: Target) -> Mapping[str, float]:
    """Returns a board's factors: its own, else its DLA generation's; empty if unknown."""
    family = contention_constants().extra.get(target.dla.generation)
    return {} if family is None else {**family, **target.contention}


def slowdown(
    extra: Mapping[str, float], core: bool, cores: int, gpu: bool, *, hybrid: bool = False
) -> float:
    """Returns the factor of a device's time beside other working devices.

    Args:
        extra: The factors of a board or of a DLA generation.
        core: True if the device is a DLA core.
        cores: Number of other working DLA cores.
        gpu: True if the GPU is another working device.
        hybrid: True if the engine on the core has layers on the GPU, which wait for the GPU.
    """
    if not core:
        return 1 + cores * extra["gpu_by_dla"]
    kind = "hybrid_" if hybrid else ""
    by_gpu, by_core = extra[f"{kind}dla_by_gpu"], extra[f"{kind}dla_by_dla"]
    return 1 + gpu * by_gpu + bool(cores) * by_core


def contention_table(target: Target, *, hybrid: bool = False) -> dict[str, dict[str, float]]:
    """Returns the slowdowns by device and by the other working device; empty if unknown."""
    extra = contention_factors(target)
    if not extra:
        return {}
    found = {
        "gpu": {
            "dla": slowdown(extra, False, 1, False),
            "dla+dla": slowdown(extra, False, 2, False),
        },
        "dla": {
            "gpu": slowdown(extra, True, 0, True, hybrid=hybrid),
            "dla": slowdown(extra, True, 1, False, hybrid=hybrid),
            "dla+gpu": slowdown(extra, True, 1, True, hybrid=hybrid),
        },
    }
    return {
        device: {others: round(factor, 4) for others, factor in row.items()}
        for device, row in found.items()
    }


def concurrent_speeds(
    devices: Sequence[str], target: Target, *, hybrid: bool
) -> tuple[tuple[float, ...], ...]:
    """Returns, by set of devices that work at once, each device's speed; 0 if not in the set.

    Devices that work at the same time share the DRAM. The factors depend on the set of working
    devices (``targets/costs/contention.yaml``), so the feasible loads form a polytope: time is
    divided among the sets of devices that work at once, and the work of a device in a set's time is
    that time over its slowdown in the set. For this model the following result is exact: a plan's
    period is the largest of a few weighted sums of its loads (``PlacementProblem.shares``).

    An engine with layers on a DLA core and on the GPU (a hybrid engine) also waits for a busy GPU.
    While it waits it draws no power, so the energy uses the factors of the memory alone.

    Empty if no factors are known. ``hybrid``: True if engines on DLA cores have GPU layers.
    """
    extra = contention_factors(target)
    if not extra or len(devices) < 2:
        return ()
    found = []
    for size in range(1, len(devices) + 1):
        for inside in combinations(range(len(devices)), size):
            speeds = [0.0] * len(devices)
            for d in inside:
                others = [devices[e] for e in inside if e != d]
                cores = sum(name != "GPU" for name in others)
                speeds[d] = 1 / slowdown(
                    extra, devices[d] != "GPU", cores, "GPU" in others, hybrid=hybrid
                )
            found.append(tuple(speeds))
    return tuple(found)


def energy_factors(target: Target) -> dict[str, tuple[float, float]]:
    """Returns factors of watts for work that shares the DRAM, by the device that never works alone.

    "dla": the factors of the DLA's and of the GPU's watts in a microsecond of the DLA's work, if
    the GPU works during the whole time; "gpu": the factors of the GPU's and of the DLA's watts.
    Both sums are upper bounds, so the smaller sum is the cost of sharing if the device with less
    work never works alone.
    """
    extra = contention_factors(target)
    if not extra:
        return {"dla": (1.0, 0.0), "gpu": (1.0, 0.0)}
    gpu, dla = slowdown(extra, False, 1, False), slowdown(extra, True, 0, True)
    return {"dla": (dla, dla * (1 - 1 / gpu)), "gpu": (gpu, gpu * (1 - 1 / dla))}
