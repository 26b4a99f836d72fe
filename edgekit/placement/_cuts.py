"""How a network is cut into kernels: by what a device can fuse, and finer, by all of that at once.

A kernel lies on one device, so what can be decided apart must be cut. The parts of what a device
would fuse are whole again on it (:mod:`edgekit.placement._fused`).
"""

from __future__ import annotations

from collections.abc import Mapping

from edgekit.network import Network
from edgekit.placement._costs import cost_data
from edgekit.placement._kernels import Kernel, fuse, joined
from edgekit.placement._request import Request

__all__ = ["auto_kernels", "auto_runs", "dla_kernels", "gpu_kernels", "parts"]

Kernels = tuple[Kernel, ...]


def gpu_kernels(request: Request) -> Kernels:
    """Returns what the GPU fuses where it runs everything."""
    fp16 = request.model.fp16_layers
    return _fuse(request.network, {x.name: x.name in fp16 for x in request.network.layers})


def dla_kernels(request: Request) -> Kernels:
    """Returns what a DLA fuses where it runs all that it can; the rest as the GPU would."""
    able, fp16, batch = request.able, request.model.fp16_layers, request.room.batch
    return _fuse(
        request.network,
        {x.name: (able[x.name], x.name in fp16, batch[x.name]) for x in request.network.layers},
    )


def auto_runs(request: Request) -> dict[str, int]:
    """Returns the number of the loadable, from 1, by layer, that TensorRT would make by itself."""
    kept = [c for c in request.judgement.candidates if c.kept]
    return {name: number for number, one in enumerate(kept, 1) for name in one.layers}


def auto_kernels(request: Request) -> Kernels:
    """Returns what is fused in TensorRT's automatic placement."""
    run_of, fp16 = auto_runs(request), request.model.fp16_layers
    names = [layer.name for layer in request.network.layers]
    return _fuse(request.network, {name: (run_of.get(name, 0), name in fp16) for name in names})


def parts(request: Request) -> Kernels:
    """Returns the largest kernels that lie within one of each cut, and have one pin."""
    network, cuts = request.network, [gpu_kernels(request)]
    if request.cores:
        cuts += [dla_kernels(request), auto_kernels(request)]
    places = [{i: n for n, kernel in enumerate(cut) for i in kernel.layers} for cut in cuts]
    pins = [request.pins.get(layer.name) for layer in network.layers]
    groups: list[list[int]] = []
    for kernel in cuts[0]:  # a path of layers, as in every cut
        before: object = None
        for i in kernel.layers:
            key = (pins[i], *(place[i] for place in places))
            if key != before:
                groups.append([])
            groups[-1].append(i)
            before = key
    groups.sort(key=lambda group: group[-1])
    return joined(network, groups)


def _fuse(network: Network, key_of: Mapping[str, object]) -> Kernels:
    """Fuses layers that have the same key."""
    rules = cost_data("kinds")["fusion"]
    return fuse(network, rules["heads"], rules["tails"], lambda layer: str(key_of[layer.name]))
