"""From a request to the problem that the solver gets: kernels, their modes, borders, limits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from edgekit.network import Layer
from edgekit.placement._borders import Borders
from edgekit.placement._built import Built
from edgekit.placement._contention import together
from edgekit.placement._cuts import dla_kernels, gpu_kernels, parts
from edgekit.placement._fused import fused
from edgekit.placement._kernels import Kernel
from edgekit.placement._modes import Modes
from edgekit.placement._regions import broken_regions
from edgekit.placement._request import Request
from edgekit.solver import Cost, Problem

__all__ = ["build_problem", "problem_of"]

_Allowed = Callable[[Sequence[Layer], str], bool]


def build_problem(
    request: Request, *, plain: bool = False, kernels: tuple[Kernel, ...] | None = None
) -> Built:
    """Returns the problem of a request.

    Args:
        request: The network and what is asked.
        plain: Leaves every tensor in its best format.
        kernels: Other kernels than the parts of all that can be fused somewhere.
    """
    if kernels is None:
        kernels = parts(request)

    def allowed(layers: Sequence[Layer], device: str) -> bool:
        pins = {request.pins.get(layer.name) for layer in layers} - {None}
        if device == "GPU":
            return request.options.gpu and pins <= {"GPU"}
        return all(request.able[layer.name] for layer in layers) and pins <= {"DLA", device}

    wholes = {"GPU": gpu_kernels(request)}
    if request.cores:
        wholes |= dict.fromkeys(request.devices[1:], dla_kernels(request))
    return fused(request, problem_of(request, kernels, allowed, plain=plain), wholes)


def problem_of(
    request: Request, kernels: tuple[Kernel, ...], allowed: _Allowed, *, plain: bool = False
) -> Built:
    """Returns the problem of kernels, whatever they were cut by."""
    network, model, options = request.network, request.model, request.options
    names = request.devices
    watts = [model.watts(name) for name in names]
    layers_of = [[network.layers[i] for i in kernel.layers] for kernel in kernels]
    able = [any(allowed(layers, name) for name in names[1:]) for layers in layers_of]
    fits = request.room.fits(kernels, able) if any(able) else None
    if fits is not None:
        able = [ok and fits(frozenset((v,))) for v, ok in enumerate(able)]
    modes = Modes()
    rows: list[dict[int, Cost]] = []
    for v, (kernel, layers) in enumerate(zip(kernels, layers_of, strict=True)):
        row: dict[int, Cost] = {}
        if allowed(layers, "GPU"):
            layouts = request.handover.gpu(kernel)
            for layout in layouts[:1] if plain or not request.cores else layouts:
                us = model.kernel_us(network, kernel, "GPU", layout[1])
                us = max(0.0, us - request.regions.saved(kernel))
                row[modes.gpu(layout, best=layout == layouts[0])] = _cost(0, us, watts)
        for device, name in enumerate(names[1:], 1):
            if able[v] and allowed(layers, name):
                us = model.kernel_us(network, kernel, name)
                row[modes.core(device)] = _cost(device, us, watts)
        rows.append(row)
    borders, tensors, ways, free = Borders(
        network, request.handover, modes, [tuple(row) for row in rows], watts, plain
    ).find(kernels)
    if not options.gpu:
        borders, ways, free = [replace(border, transfers=()) for border in borders], {}, {}
    for name, border in broken_regions(request, kernels, rows, modes, watts):
        borders, tensors = [*borders, border], [*tensors, name]
    launch = model.launch_us() if request.cores else 0.0
    problem = Problem(
        devices=names,
        modes=tuple(modes.modes),
        costs=tuple(tuple(row.get(m) for m in range(len(modes.modes))) for row in rows),
        borders=tuple(borders),
        launch=(None, *(_cost(device, launch, watts) for device in range(1, len(names)))),
        max_loadables=options.max_loadables,
        pools=request.room.pools(kernels, able) if any(able) else (),
        fits=fits,
        min_size=options.min_loadable_layers if options.min_loadable_layers > 1 else 0,
        sizes=tuple(len(kernel.layers) for kernel in kernels),
        max_transitions=(options.max_transitions,),
        together=together(names, model.target.dla.generation),
    )
    return Built(kernels, problem, tuple(tensors), ways, free)


def _cost(device: int, us: float, watts: Sequence[float]) -> Cost:
    load = [0.0] * (len(watts) + 1)
    load[device] = us
    return Cost(tuple(load), us * watts[device])
