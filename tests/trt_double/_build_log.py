"""The lines a build logs, in the grammar of the real ones."""

from typing import Any

from ._play_base import emit

_REASON = {
    "REDUCE": "{}: DLA cores do not support AVG Reduce operation.",
    "CONCATENATION": "{}: DLA only supports concatenation on the C dimension.",
    "SLICE": "{}: DLA only supports slicing 4 dimensional tensors.",
}


def subgraphs(layers: list[Any], order: list[Any]) -> list[list[Any]]:
    """Runs of `layers` that follow each other in `order`, constants aside."""
    chosen, found, open_ = {id(one) for one in layers}, [], False
    for layer in order:
        if layer._s.kind_name == "CONSTANT":
            continue
        if id(layer) not in chosen:
            open_ = False
        elif open_:
            found[-1].append(layer)
        else:
            found.append([layer])
            open_ = True
    return found


def foreign(group: list[Any]) -> str:
    """The name of a DLA subgraph: its first and last layer."""
    first, last = group[0]._s.name, group[-1]._s.name
    return f"{{ForeignNode[{first}...{last}]}}" if len(group) > 1 else f"{{ForeignNode[{first}]}}"


def log_build(
    double: Any, logger: Any, config: Any, on_dla: list[Any], on_gpu: list[Any], refused: list[Any]
) -> None:
    """Warnings, the two placement lists, pools and offloading."""

    def say(severity: str, text: str) -> None:
        emit(double, logger, severity, text)

    for layer in refused:
        kind = layer._s.kind_name
        if kind in _REASON:
            say("WARNING", _REASON[kind].format(layer._s.name))
        say(
            "WARNING",
            f"Layer '{layer._s.name}' ({kind}): Unsupported on DLA. "
            "Switching this layer's device type to GPU.",
        )
    ranged = [
        one
        for profile in config._s.profiles
        for one in profile._s.shapes.values()
        if one[0] != one[2]
    ]
    if ranged and (on_dla or refused or config._s.default_device_type.name == "DLA"):
        say(
            "WARNING",
            "DLA requests all profiles have same min, max, and opt value. "
            "All dla layers are falling back to GPU",
        )
    groups = subgraphs(on_dla, [*_ordered(on_dla, on_gpu)])
    at = "VERBOSE"  # INFO up to 8.5, which is not played
    say(at, "---------- Layers Running on DLA ----------")
    for group in groups:
        say(at, f"[DlaLayer] {foreign(group)}")
    say(at, "---------- Layers Running on GPU ----------")
    for layer in on_gpu:
        say(at, f"[GpuLayer] {layer._s.kind_name}: {layer._s.name}")
    if not on_gpu:
        say(at, "No layer is running on GPU")
    if not groups:
        return
    pools = {name: size / 1024**2 for name, size in config._s.pools.items()}
    say(
        "VERBOSE",
        f"DLA Memory Pool Sizes: Managed SRAM = {pools['DLA_MANAGED_SRAM']:g} MiB, "
        f"Local DRAM = {pools['DLA_LOCAL_DRAM']:g} MiB, "
        f"Global DRAM = {pools['DLA_GLOBAL_DRAM']:g} MiB",
    )
    say("VERBOSE", f"Number of DLA node candidates offloaded : {len(groups)} out of {len(groups)}")
    for group in groups:
        say("VERBOSE", f"{foreign(group)} successfully offloaded to DLA.")


def _ordered(on_dla: list[Any], on_gpu: list[Any]) -> list[Any]:
    """Both in the network's order."""
    either = {id(one) for one in (*on_dla, *on_gpu)}
    any_layer = next(iter((*on_dla, *on_gpu)), None)
    order = any_layer._s.network_layers if any_layer is not None else []
    return [one for one in order if id(one) in either]
