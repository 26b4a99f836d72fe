"""What a plan is compared with: the GPU alone, TensorRT's automatic DLA, the best single cut."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from edgekit.placement._kernels import Kernel
from edgekit.placement._problem import Problem, loads
from edgekit.placement._request import Request, build_problem, kernels_of, problem_of

__all__ = ["Baseline", "baselines"]


@dataclass(frozen=True)
class Baseline:
    """A placement that ignores pins and bounds: its kernels, devices by kernel, and loads."""

    kernels: tuple[Kernel, ...]
    problem: Problem
    devices: tuple[int, ...]
    load: tuple[float, ...]


def baselines(
    request: Request, value: Callable[[Problem, Sequence[float]], float]
) -> dict[str, Baseline | None]:
    """Returns gpu_only, tensorrt_auto and best_cut (least ``value``); None where impossible.

    All of them may use the GPU and the first core in use, whatever the options say.
    """
    cores = request.cores[:1]
    options = replace(request.options, gpu=True, pins=())
    plain = replace(request, options=options, cores=cores, pins={})
    return {
        "gpu_only": _gpu_only(plain),
        "tensorrt_auto": _tensorrt_auto(plain) if cores else None,
        "best_cut": _best_cut(plain, value) if cores else None,
    }


def _gpu_only(request: Request) -> Baseline:
    fp16 = request.model.fp16_layers
    kernels = kernels_of(request.network, {x.name: x.name in fp16 for x in request.network.layers})
    problem = problem_of(request, kernels)
    devices = (0,) * len(kernels)
    return Baseline(kernels, problem, devices, tuple(loads(problem, devices, {})))


def _tensorrt_auto(request: Request) -> Baseline | None:
    """Every candidate that TensorRT keeps is a loadable on the core; all else is on the GPU."""
    run_of: dict[str, int] = {}
    kept = [c for c in request.judgement.candidates if c.kept]
    for number, candidate in enumerate(kept, 1):
        run_of.update(dict.fromkeys(candidate.layers, number))
    fp16 = request.model.fp16_layers
    names = [layer.name for layer in request.network.layers]
    kernels = kernels_of(request.network, {n: (run_of.get(n, 0), n in fp16) for n in names})
    problem = problem_of(request, kernels)
    devices = tuple(int(names[kernel.layers[0]] in run_of) for kernel in kernels)
    if any(problem.times[v][d] is None for v, d in enumerate(devices)):
        return None
    load = loads(problem, devices, {1: len(kept)})
    return Baseline(kernels, problem, devices, tuple(load))


def _best_cut(
    request: Request, value: Callable[[Problem, Sequence[float]], float]
) -> Baseline | None:
    """Returns the best of: the first kernels on one device, the rest on the other."""
    kernels, problem = build_problem(request)
    count = len(kernels)
    able = [row[1] is not None for row in problem.times]
    first = next((v for v in range(count) if not able[v]), count)  # DLA may have kernels before it
    last = next((v for v in range(count - 1, -1, -1) if not able[v]), -1)
    ways = [(1,) * at + (0,) * (count - at) for at in range(1, min(first, count - 1) + 1)]
    ways += [(0,) * at + (1,) * (count - at) for at in range(max(last + 1, 1), count)]
    costed = [(tuple(loads(problem, devices, {1: 1})), devices) for devices in ways]
    if not costed:
        return None
    load, devices = min(costed, key=lambda way: value(problem, way[0]))
    return Baseline(kernels, problem, devices, load)
