"""What the user may ask of a placement, checked before anything is computed."""

from __future__ import annotations

import difflib
from fnmatch import fnmatchcase

from edgekit.errors import UsageError
from edgekit.network import Network
from edgekit.placement._types import OBJECTIVES, Options
from edgekit.targets import Target

__all__ = ["check_options", "resolve_pins", "usable_cores"]

BOUNDS = ("latency_us", "energy_uj", "gpu_us", "period_us")
POOLS = ("managed_sram", "local_dram", "global_dram")
DEVICES = ("GPU", "DLA", "DLA0", "DLA1")


def check_options(options: Options, target: Target) -> None:
    """Refuses what makes no sense (UsageError): objectives, bounds, cores, pinned devices."""
    _known("objective", options.objective, OBJECTIVES)
    for name, limit in options.bounds.items():
        _known("bound", name, BOUNDS)
        if not limit > 0:
            raise UsageError(f"bound {name} is {limit}, it must be above 0", code="plan.bound")
    for pin in options.pins:
        _known("device", pin.device, DEVICES)
    if options.max_loadables < 0:
        raise UsageError("max_loadables must not be negative", code="plan.max_loadables")
    if options.max_transitions is not None and options.max_transitions < 0:
        raise UsageError("max_transitions must not be negative", code="plan.max_transitions")
    if options.min_loadable_layers < 1:
        raise UsageError("min_loadable_layers must be 1 or more", code="plan.min_loadable_layers")
    for name, size in (options.pools or {}).items():
        _known("pool", name, POOLS)
        if size < 0:
            raise UsageError(f"pool {name} is {size} bytes, it must not be negative",
                             code="plan.pool")  # fmt: skip
    missing = [core for core in options.dla_cores if core not in range(target.dla.cores)]
    if missing and target.dla.cores:
        raise UsageError(
            f"{target.name} has no DLA core {missing[0]}",
            code="plan.core",
            hint=f"its cores are {', '.join(map(str, range(target.dla.cores)))}",
        )


def _known(what: str, name: str, known: tuple[str, ...]) -> None:
    if name not in known:
        near = difflib.get_close_matches(name, known, 1)
        raise UsageError(
            f"unknown {what} {name!r}",
            code=f"plan.{what}",
            hint=f"did you mean {near[0]}?" if near else f"one of {', '.join(known)}",
        )


def usable_cores(options: Options, target: Target, precision: str) -> tuple[int, ...]:
    """Returns the DLA cores to plan with; none on boards without a DLA and in FP32."""
    if precision == "fp32" or not options.max_loadables:
        return ()
    return tuple(sorted({core for core in options.dla_cores if core < target.dla.cores}))


def resolve_pins(network: Network, options: Options) -> dict[str, str]:
    """Returns the pinned device by layer name; a later pin wins over an earlier one."""
    found: dict[str, str] = {}
    for pin in options.pins:
        names = [layer.name for layer in network.layers if fnmatchcase(layer.name, pin.layers)]
        if not names:
            near = difflib.get_close_matches(pin.layers, [x.name for x in network.layers], 1)
            raise UsageError(
                f"pin {pin.layers!r} matches no layer",
                code="plan.pin",
                hint=f"the nearest layer is {near[0]}" if near else "see `edgekit check`",
            )
        found.update(dict.fromkeys(names, pin.device))
    return found
