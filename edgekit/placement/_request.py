"""From a network and what the user asks to the problem that the optimiser solves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from edgekit.dla import Judgement, Reason
from edgekit.errors import GateError
from edgekit.network import Layer, Network
from edgekit.placement._costs import CostModel, cost_data
from edgekit.placement._kernels import Kernel, fuse, join
from edgekit.placement._options import resolve_pins, usable_cores
from edgekit.placement._problem import OUTSIDE, Border, Problem
from edgekit.placement._types import Options

__all__ = [
    "PlanImpossible", "Request", "build_problem", "kernels_of", "make_request", "problem_of",
]  # fmt: skip


class PlanImpossible(GateError):
    """A standalone plan was asked for, and some layers cannot run on a DLA.

    ``layers`` maps their names to the reasons; ``to_json`` adds them to the error.
    """

    default_code = "plan.impossible"

    def __init__(self, message: str, layers: Mapping[str, tuple[Reason, ...]], hint: str) -> None:
        super().__init__(message, hint=hint)
        self.layers = layers

    def to_json(self) -> dict[str, Any]:
        """Adds ``layers``: name and reasons of each layer that does not fit."""
        document = super().to_json()
        document["error"]["layers"] = [
            {"name": name, "reasons": [reason.to_json() for reason in reasons]}
            for name, reasons in self.layers.items()
        ]
        return document


@dataclass(frozen=True)
class Request:
    """A network with everything that placing it needs.

    ``able`` says by layer whether a DLA core may run it at all (verdict and precision);
    ``cores`` are the DLA cores in use, ascending.
    """

    network: Network
    judgement: Judgement
    model: CostModel
    options: Options
    cores: tuple[int, ...]
    able: Mapping[str, bool]
    pins: Mapping[str, str]

    @property
    def devices(self) -> tuple[str, ...]:
        """Device names in the problem's order."""
        return ("GPU", *(f"DLA{core}" for core in self.cores))


def make_request(
    network: Network, judgement: Judgement, model: CostModel, options: Options
) -> Request:
    """Gathers a request; raises GateError when a pin asks for what a layer cannot do."""
    cores = usable_cores(options, model.target, model.precision)
    able = {name: verdict.ok and bool(cores) for name, verdict in judgement.verdicts.items()}
    pins = resolve_pins(network, options)
    for name, device in pins.items():
        if device == "GPU":
            if not options.gpu:
                raise _pin_error(name, device, "the plan is standalone, without the GPU")
        elif not able[name]:
            reasons = judgement.verdicts[name].reasons
            why = reasons[0].message if reasons and cores else "no DLA core can be used"
            raise _pin_error(name, device, why)
        elif device != "DLA" and int(device[3:]) not in cores:
            raise _pin_error(name, device, f"the cores in use are {', '.join(map(str, cores))}")
    request = Request(network, judgement, model, options, cores, able, pins)
    if not options.gpu:
        _require_standalone(request)
    return request


def _pin_error(layer: str, device: str, why: str) -> GateError:
    return GateError(
        f"pinned to {device}, but {why}",
        code="plan.infeasible",
        where=layer,
        hint="remove the pin or change what keeps the layer away",
    )


def _require_standalone(request: Request) -> None:
    verdicts = request.judgement.verdicts
    unable = {x.name: verdicts[x.name].reasons for x in request.network.layers}
    unable = {name: reasons for name, reasons in unable.items() if not request.able[name]}
    if not unable:
        return
    if not request.cores:
        why = "FP32 does not run on a DLA" if request.model.precision == "fp32" else "there is none"
        message = f"a standalone plan needs a DLA core, and {why}"
    else:
        few = ", ".join(list(unable)[:5]) + (", ..." if len(unable) > 5 else "")
        count = len(request.network.layers)
        message = f"{len(unable)} of {count} layers cannot run on the DLA: {few}"
    raise PlanImpossible(message, unable, "allow the GPU, or see `edgekit check` for the fixes")


def build_problem(request: Request) -> tuple[tuple[Kernel, ...], Problem]:
    """Returns the kernels of a request and its problem, in the same order."""
    key_of = {
        layer.name: (
            request.able[layer.name],
            request.pins.get(layer.name),
            layer.name in request.model.fp16_layers,
        )
        for layer in request.network.layers
    }
    kernels = kernels_of(request.network, key_of)
    return kernels, _fused_on_gpu(request, kernels, problem_of(request, kernels))


def kernels_of(network: Network, key_of: Mapping[str, object]) -> tuple[Kernel, ...]:
    """Fuses layers that have the same key."""
    rules = cost_data("kinds")["fusion"]
    return fuse(network, rules["heads"], rules["tails"], lambda layer: str(key_of[layer.name]))


def problem_of(request: Request, kernels: tuple[Kernel, ...]) -> Problem:
    """Returns the times and borders of kernels, whatever they were cut by."""
    names = request.devices
    times = []
    for kernel in kernels:
        layers = [request.network.layers[i] for i in kernel.layers]
        times.append(
            tuple(
                request.model.kernel_us(request.network, kernel, name)
                if _allowed(request, layers, name)
                else None
                for name in names
            )
        )
    return Problem(
        names,
        tuple(times),
        tuple(_borders(request, kernels)),
        request.model.launch_us() if request.cores else 0.0,
        request.options.max_loadables,
        tuple(request.model.watts(name) for name in names),
    )


def _fused_on_gpu(request: Request, kernels: tuple[Kernel, ...], problem: Problem) -> Problem:
    """Lets kernels that only a capability or a pin keeps apart run as one where both are on GPU.

    The later part then costs what it adds to the fused kernel; coming from a DLA it costs what it
    takes alone, and the border between the two, which nobody else reads, pays the difference.
    """
    network, model = request.network, request.model
    fp16 = {layer.name: layer.name in model.fp16_layers for layer in network.layers}
    whole_of = {i: n for n, k in enumerate(kernels_of(network, fp16)) for i in k.layers}
    last_of: dict[int, tuple[int, tuple[int, ...]]] = {}  # whole -> latest part, layers so far
    times = [list(row) for row in problem.times]
    extra: dict[tuple[int, int], float] = {}
    for v, kernel in enumerate(kernels):
        wholes = {whole_of[i] for i in kernel.layers}
        alone = times[v][0]
        if len(wholes) != 1 or alone is None:
            continue
        whole = wholes.pop()
        u, before = last_of.get(whole, (v, ()))
        if before and times[u][0] is None:
            continue
        layers = tuple(sorted((*before, *kernel.layers)))
        last_of[whole] = (v, layers)
        if before and set(kernels[u].outputs) & set(kernel.inputs):
            prefix = model.kernel_us(network, join(network, before), "GPU")
            added = max(0.0, model.kernel_us(network, join(network, layers), "GPU") - prefix)
            if added < alone:
                times[v][0] = added
                extra[u, v] = alone - added
    borders = tuple(
        replace(b, to_gpu_us=b.to_gpu_us + sum(extra.get((b.producer, v), 0) for v in b.consumers))
        for b in problem.borders
    )
    return replace(problem, times=tuple(map(tuple, times)), borders=borders)


def _allowed(request: Request, layers: list[Layer], device: str) -> bool:
    pin = request.pins.get(layers[0].name)
    if device == "GPU":
        return request.options.gpu and pin in (None, "GPU")
    return pin in (None, "DLA", device) and all(request.able[layer.name] for layer in layers)


def _borders(request: Request, kernels: tuple[Kernel, ...]) -> list[Border]:
    """Returns every tensor between kernels; a standalone plan has no reformats at all."""
    network, model = request.network, request.model
    readers: dict[str, list[int]] = {}
    for v, kernel in enumerate(kernels):
        for name in kernel.inputs:
            readers.setdefault(name, []).append(v)
    found = [(name, OUTSIDE) for name in network.inputs if name in readers]
    found += [(name, v) for v, kernel in enumerate(kernels) for name in kernel.outputs]
    borders = []
    for name, v in found:
        tensor, leaves = network.tensors[name], name in network.outputs
        reads = tuple(readers.get(name, ()))
        to_dla = to_gpu = 0.0
        if request.cores and request.options.gpu:
            outside = v == OUTSIDE
            user = kernels[reads[0]] if reads else kernels[v]
            owner = user if outside else kernels[v]
            precision = model.layer_precision(network.layers[owner.layers[0]], "DLA0")
            to_dla = model.to_dla_us(tensor, precision, network_input=outside)
            to_gpu = model.to_gpu_us(tensor, precision, network_output=leaves)
        borders.append(Border(v, reads, to_dla, to_gpu, leaves and request.options.gpu))
    return borders
