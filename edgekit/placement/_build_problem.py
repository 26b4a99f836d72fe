"""From a request to the problem that the solver gets: kernels, their modes, borders, limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from edgekit.network import Layer, Network
from edgekit.placement._borders import Borders
from edgekit.placement._built import Built
from edgekit.placement._costs import cost_data
from edgekit.placement._kernels import Kernel, fuse, join
from edgekit.placement._modes import Modes
from edgekit.placement._request import Request
from edgekit.solver import OUTSIDE, Border, Cost, Problem, Transfer

__all__ = ["build_problem", "kernels_of", "problem_of"]

_Allowed = Callable[[Sequence[Layer], str], bool]


def build_problem(request: Request, *, plain: bool = False) -> Built:
    """Returns the problem of a request; ``plain`` leaves every tensor in its best format."""
    fp16 = request.model.fp16_layers
    key_of = {
        layer.name: (
            request.able[layer.name],
            request.pins.get(layer.name),
            layer.name in fp16,
            request.room.batch[layer.name],
        )
        for layer in request.network.layers
    }
    kernels = kernels_of(request.network, key_of)

    def allowed(layers: Sequence[Layer], device: str) -> bool:
        pin = request.pins.get(layers[0].name)
        if device == "GPU":
            return request.options.gpu and pin in (None, "GPU")
        able = all(request.able[layer.name] for layer in layers)
        return able and pin in (None, "DLA", device)

    built = problem_of(request, kernels, allowed, plain=plain)
    return _fused_on_gpu(request, built)


def kernels_of(network: Network, key_of: Mapping[str, object]) -> tuple[Kernel, ...]:
    """Fuses layers that have the same key."""
    rules = cost_data("kinds")["fusion"]
    return fuse(network, rules["heads"], rules["tails"], lambda layer: str(key_of[layer.name]))


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
    )
    return Built(kernels, problem, tuple(tensors), ways, free)


def _cost(device: int, us: float, watts: Sequence[float]) -> Cost:
    load = [0.0] * (len(watts) + 1)
    load[device] = us
    return Cost(tuple(load), us * watts[device])


def _fused_on_gpu(request: Request, built: Built) -> Built:
    """Lets kernels that only a capability or a pin keeps apart run as one where both are on GPU.

    The later part then costs what it adds to the fused kernel; coming from a DLA it costs what it
    takes alone, and the border between the two, which nobody else reads, pays the difference.
    """
    network, model, kernels = request.network, request.model, built.kernels
    fp16 = {layer.name: layer.name in model.fp16_layers for layer in network.layers}
    whole_of = {i: n for n, k in enumerate(kernels_of(network, fp16)) for i in k.layers}
    consumers = network.consumers()
    on_gpu = [[m for m, cost in enumerate(row) if cost and _on_gpu(built.problem, m)]
              for row in built.problem.costs]  # fmt: skip
    last_of: dict[int, tuple[int, tuple[int, ...]]] = {}  # whole -> latest part, layers so far
    saved: dict[tuple[int, int], float] = {}
    for v, kernel in enumerate(kernels):
        wholes = {whole_of[i] for i in kernel.layers}
        if len(wholes) != 1 or not on_gpu[v]:
            continue
        whole = wholes.pop()
        u, before = last_of.get(whole, (v, ()))
        if before and not on_gpu[u]:
            continue
        layers = tuple(sorted((*before, *kernel.layers)))
        last_of[whole] = (v, layers)
        if before and set(kernels[u].outputs) & set(kernel.inputs):
            prefix = model.kernel_us(network, join(network, before, consumers), "GPU")
            together = model.kernel_us(network, join(network, layers, consumers), "GPU")
            alone = model.kernel_us(network, kernel, "GPU")
            if max(0.0, together - prefix) < alone:
                saved[u, v] = alone - max(0.0, together - prefix)
    return _with_savings(request, built, saved) if saved else built


def _on_gpu(problem: Problem, mode: int) -> bool:
    """Whether a mode is a kernel's on the GPU."""
    return mode != problem.outside and problem.modes[mode].device == 0


def _with_savings(request: Request, built: Built, saved: Mapping[tuple[int, int], float]) -> Built:
    problem = built.problem
    watts = [request.model.watts(name) for name in problem.devices]
    costs = [list(row) for row in problem.costs]
    less = {v: us for (_, v), us in saved.items()}
    for v, us in less.items():
        for m, cost in enumerate(costs[v]):
            if cost and _on_gpu(problem, m):
                costs[v][m] = _cost(0, max(0.0, cost.load_us[0] - us), watts)
    borders: list[Border] = []
    left = dict(saved)
    for border in problem.borders:
        extra: list[Transfer] = []
        for v in border.consumers:
            us = left.pop((border.producer, v), 0.0)
            if not us or border.producer == OUTSIDE:
                continue
            cores = [m for m, c in enumerate(problem.costs[border.producer])
                     if c and problem.modes[m].device != 0]  # fmt: skip
            gpu = [m for m, c in enumerate(problem.costs[v]) if c and _on_gpu(problem, m)]
            if cores and gpu:
                pairs = frozenset((a, b) for a in cores for b in gpu)
                extra.append(Transfer(pairs, (_cost(0, us, watts),)))
        borders.append(replace(border, transfers=(*border.transfers, *extra)))
    problem = replace(problem, costs=tuple(map(tuple, costs)), borders=tuple(borders))
    return replace(built, problem=problem)
