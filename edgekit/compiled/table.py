"""The devices of a compiled network's modules: the rows of its table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from edgekit.compiled.document import PlacedModule
from edgekit.network.module_names import enclosing_modules
from edgekit.placement.check_document import tensor_bytes

if TYPE_CHECKING:
    from edgekit.documents import ClockName
    from edgekit.network.model import Layer, Network
    from edgekit.placement.plan import PlacedLayer, Plan

#: Device of left-out modules that are not modules of this process.
ONNX_RUNTIME = "ONNX Runtime"


@dataclass
class _Row:
    layers: list[Layer] = field(default_factory=list)
    us: float = 0.0


def placed_modules(network: Network, plan: Plan, outside: Set[str]) -> list[PlacedModule]:
    """Returns a part's modules: the largest that are on a single device.

    A module on several devices is replaced by its submodules; its own operators have a row for each
    device.

    Args:
        network: The part's layers.
        plan: Their placement.
        outside: The part's inputs that other parts or left-out modules produce.
    """
    placed = {layer.name: layer for layer in plan.layers}
    clocks: dict[str, ClockName] = {
        work.device: "predicted" if work.clock == "predicted" else "board-measured"
        for share in plan.plans
        for work in share.devices
    }
    devices: dict[str, set[str]] = defaultdict(set)
    for layer in network.layers:
        for path in enclosing_modules(layer.module):
            devices[path].add(placed[layer.name].device)
    rows: dict[tuple[str, str], _Row] = {}
    for layer in network.layers:
        # without the network itself, outermost first
        whole = (path for path in enclosing_modules(layer.module)[1:] if len(devices[path]) == 1)
        key = (next(whole, layer.module), placed[layer.name].device)
        row = rows.setdefault(key, _Row())
        row.layers.append(layer)
        row.us += placed[layer.name].predicted_us
    made = {name: layer for layer in network.layers for name in layer.outputs}
    return [
        PlacedModule(
            module=path,
            where=device,
            us=row.us,
            clock=clocks[device],
            bytes=sum(_bytes_read(network, row.layers, made, placed, device, outside)),
        )
        for (path, device), row in rows.items()
    ]


def _bytes_read(
    network: Network,
    layers: list[Layer],
    made: dict[str, Layer],
    placed: dict[str, PlacedLayer],
    device: str,
    outside: Set[str],
) -> Iterator[int]:
    """Yields the bytes of the tensors from other devices, in the type of their producer; from
    outside the part, in FP32.
    """
    # constants cross no border
    read = {name for layer in layers for name in layer.inputs if name in made or name in outside}
    for name in sorted(read):
        if name not in made:
            yield tensor_bytes(network.tensors[name], "fp32")
            continue
        maker = placed[made[name].name]
        if maker.device != device:
            yield tensor_bytes(network.tensors[name], maker.precision)
