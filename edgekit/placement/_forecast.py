"""What TensorRT's automatic placement would take beside the GPU alone: the cost model, fast.

The same numbers as the baselines of a plan, without the optimiser and linear in the layers, so
that ``check`` can say them, and say again what they would be if more layers ran on the DLA.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgekit.placement._costs import CostModel, cost_data
from edgekit.placement._costs_regions import regions_of
from edgekit.placement._handover import CALLER, Handover, Way
from edgekit.placement._kernels import Kernel, fuse

if TYPE_CHECKING:
    from edgekit.dla import Judgement, LoadableCandidate
    from edgekit.network import Network
    from edgekit.targets import Target

__all__ = ["Clock", "Forecast", "clock_of", "forecast"]

DIGITS = 6
CORE = "DLA0"

#: Kernels, whether each is on the DLA, and the loads of GPU and DLA in microseconds.
_Loads = tuple[tuple[Kernel, ...], list[bool], float, float]


@dataclass(frozen=True)
class Forecast:
    """Predicted times of one inference in microseconds; nothing of it is measured.

    Attributes:
        power_mode: The board's power mode.
        auto_us: Latency with TensorRT's automatic DLA placement.
        dla_us: The part of it spent in loadables, their start included.
        gpu_only_us: Latency on the GPU alone.
        layer_us: The automatic placement's time by layer; a kernel's time is shared out by
            what each layer adds to it, and hand-over and launches belong to no layer.
    """

    power_mode: str
    auto_us: float
    dla_us: float
    gpu_only_us: float
    layer_us: dict[str, float]

    def to_json(self) -> dict[str, Any]:
        """Returns the ``predicted`` object of ``edgekit.check/1``."""
        return {
            "auto_us": self.auto_us, "gpu_only_us": self.gpu_only_us, "dla_us": self.dla_us,
            "power_mode": self.power_mode, "clock": "predicted",
        }  # fmt: skip


def forecast(
    network: Network,
    judgement: Judgement,
    target: Target,
    *,
    power_mode: str | None = None,
) -> Forecast | None:
    """Predicts what a judged network takes when TensorRT places it by itself.

    Args:
        network: The layer graph.
        judgement: Its verdicts; its kept candidates are the loadables, all on one core.
        target: The board.
        power_mode: NVIDIA's name; the board's MAXN or default mode when None.

    Returns:
        The prediction, equal to the ``tensorrt_auto`` and ``gpu_only`` baselines of a plan; None
        where the cost data knows nothing of the board's GPU or DLA.

    Raises:
        UsageError: The board has no such power mode.
    """
    clock = clock_of(network, judgement, target, power_mode=power_mode)
    return None if clock is None else clock.forecast(judgement.candidates)


def clock_of(
    network: Network,
    judgement: Judgement,
    target: Target,
    *,
    power_mode: str | None = None,
) -> Clock | None:
    """Returns what times placements of a network; None for a board without cost data."""
    mode = target.mode(power_mode)
    constants = cost_data("devices")
    known = target.gpu.arch in constants["gpu"] and mode.gpu_mhz and mode.gpu_sms
    if not known or (target.dla.cores and target.dla.generation not in constants["dla"]):
        return None
    by_layer = judgement.precisions
    # Q/DQ nodes make layers INT8 whatever was asked for
    precision = "int8" if "int8" in by_layer.values() else judgement.precision
    fp16 = {name for name, own in by_layer.items() if own == "fp16"}
    able = {name: verdict.placeable for name, verdict in judgement.verdicts.items()}
    return Clock(network, CostModel(target, mode, precision, frozenset(fp16), constants), able)


class Clock:
    """Times automatic placements of one network; what it has computed once it remembers.

    ``able`` says which layers a DLA could run, which decides what the GPU's fused parts save.
    """

    def __init__(self, network: Network, model: CostModel, able: Mapping[str, bool]) -> None:
        self._network = network
        self._model = model
        self._able = able
        self._rules = cost_data("kinds")["fusion"]
        self._kernel_us: dict[tuple[bool, tuple[int, ...]], float] = {}
        self._loads: dict[tuple[tuple[str, ...], ...], _Loads] = {}
        self._outputs = frozenset(network.outputs)
        self._regions = regions_of(model, network, able)
        self._handover = Handover(network, model, [part.layers for part in self._regions.parts])
        kernels, on_dla, *loads = self._devices(())
        self._gpu_only = sum(loads)
        #: What converting tensors between the GPU's kernels takes, when all layers are on it.
        self.between_us = self._handovers(kernels, on_dla)[0]

    @property
    def target(self) -> Target:
        """The board."""
        return self._model.target

    @property
    def gpu_only_us(self) -> float:
        """Latency on the GPU alone."""
        return round(self._gpu_only, DIGITS)

    def auto_us(self, candidates: Sequence[LoadableCandidate]) -> float:
        """Returns the latency with these loadables and all else on the GPU."""
        return round(sum(self._devices(candidates)[2:]), DIGITS)

    def forecast(self, candidates: Sequence[LoadableCandidate]) -> Forecast:
        """Returns times of the placement with these loadables."""
        kernels, on_dla, gpu_us, dla_us = self._devices(candidates)
        layers = self._network.layers
        layer_us: dict[int, float] = {}
        for kernel, dla in zip(kernels, on_dla, strict=True):
            time = self._time(kernel, dla)
            shares = self._model.layer_shares(self._network, kernel, CORE if dla else "GPU")
            for i, share in zip(kernel.layers, shares, strict=True):
                layer_us[i] = round(time * share, DIGITS)
        return Forecast(
            self._model.mode.name,
            round(gpu_us + dla_us, DIGITS),
            round(dla_us, DIGITS),
            self.gpu_only_us,
            {layers[i].name: layer_us[i] for i in sorted(layer_us)},
        )

    def sides(self) -> dict[str, tuple[float, float]]:
        """Returns what the kernel of each layer that a DLA could run takes on the GPU and on it."""
        layers = self._network.layers
        fp16 = self._model.fp16_layers
        kernels = fuse(
            self._network, self._rules["heads"], self._rules["tails"],
            lambda layer: (self._able.get(layer.name, False), layer.name in fp16),
        )  # fmt: skip
        return {
            layers[i].name: (
                round(self._time(kernel, False), DIGITS), round(self._time(kernel, True), DIGITS)
            )
            for kernel in kernels
            if self._able.get(layers[kernel.layers[0]].name)
            for i in kernel.layers
        }  # fmt: skip

    def _devices(self, candidates: Sequence[LoadableCandidate]) -> _Loads:
        loadables = tuple(candidate.layers for candidate in candidates if candidate.kept)
        if loadables not in self._loads:
            self._loads[loadables] = self._compute(loadables)
        return self._loads[loadables]

    def _compute(self, loadables: Sequence[Sequence[str]]) -> _Loads:
        run_of = {name: number for number, names in enumerate(loadables, 1) for name in names}
        layers = self._network.layers
        fp16 = self._model.fp16_layers
        kernels = fuse(
            self._network, self._rules["heads"], self._rules["tails"],
            lambda layer: (run_of.get(layer.name, 0), layer.name in fp16),
        )  # fmt: skip
        on_dla = [layers[kernel.layers[0]].name in run_of for kernel in kernels]
        load = [0.0, 0.0]
        for kernel, dla in zip(kernels, on_dla, strict=True):
            load[dla] += self._time(kernel, dla)
        if run_of:
            inside = {i for i, layer in enumerate(layers) if layer.name in run_of}
            load[0] += self._regions.broken_us(inside)
        for device, us in enumerate(self._handovers(kernels, on_dla)):
            load[device] += us
        load[1] += self._model.launch_us() * len(set(run_of.values()))
        return kernels, on_dla, load[0], load[1]

    def _time(self, kernel: Kernel, dla: bool) -> float:
        key = (dla, kernel.layers)
        known = self._kernel_us.get(key)
        if known is None:
            device = CORE if dla else "GPU"
            known = self._model.kernel_us(self._network, kernel, device)
            if not dla:
                known = max(0.0, known - self._regions.saved(kernel))
            self._kernel_us[key] = known
        return known

    def _handovers(self, kernels: Sequence[Kernel], on_dla: Sequence[bool]) -> tuple[float, float]:
        """Returns what borders cost the GPU and the DLA: once per tensor, direction and layout."""
        readers: dict[str, list[int]] = {}
        for v, kernel in enumerate(kernels):
            for name in kernel.inputs:
                readers.setdefault(name, []).append(v)
        handover = self._handover
        ways: list[Way] = []
        converted = 0.0
        for name in self._network.inputs:
            inside = [kernels[u] for u in readers.get(name, ()) if on_dla[u]]
            if inside:
                ways.append(handover.into(name, CALLER, inside)[0])
        for v, kernel in enumerate(kernels):
            for name in kernel.outputs:
                users = readers.get(name, ())
                if not on_dla[v]:
                    inside = [kernels[u] for u in users if on_dla[u]]
                    own = handover.gpu(kernel)[0]
                    if inside:
                        ways.append(handover.into(name, own, inside)[0])
                    fused = all(handover.is_fused(kernel, kernels[u]) for u in users)
                    others = dict.fromkeys(
                        handover.gpu(kernels[u])[0] for u in users if not on_dla[u] and not fused
                    )
                    tensor = self._network.tensors[name]
                    converted += sum(
                        handover.reformat_us(tensor, own, goal)
                        for goal in others
                        if handover.changes_type(own, goal)
                    )
                    continue
                goals = dict.fromkeys(handover.gpu(kernels[u])[0] for u in users if not on_dla[u])
                if name in self._outputs:
                    goals[CALLER] = None
                ways += [handover.out_of(name, goal, kernel)[0] for goal in goals]
        return converted + sum(way.reformat_us for way in ways), sum(way.io_us for way in ways)
