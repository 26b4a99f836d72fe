"""The inputs of the placement from a configuration."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from edgekit.dla.verdicts import Judgement
from edgekit.network.model import Network
from edgekit.pipeline.context import Context, computed
from edgekit.pipeline.steps.load import fp16_layers

if TYPE_CHECKING:
    from edgekit.config.schema import ConfigFile, PinSection
    from edgekit.placement.placing import PlacementQuery
    from edgekit.placement.plan import Options


def query_for(context: Context, network: Network, judgement: Judgement) -> PlacementQuery:
    """Returns all inputs of a network's placement, to solve it once or with changes."""
    from edgekit.placement.placing import PlacementQuery

    # a board without a DLA has no verdicts, and still has its layers in FP16
    options = replace(placement_options(context), fp16_layers=fp16_layers(context, network))
    file = context.file
    return PlacementQuery(
        network, judgement, context.target, file.precision, file.power_mode, options
    )


def uses_gpu(file: ConfigFile) -> bool:
    """Returns True if the GPU takes layers of the network."""
    return file.placement.gpu and file.build.mode != "standalone"


def shared_options(file: ConfigFile, pins: Iterable[PinSection]) -> Options:
    """Returns a configuration's options that single and multiple networks share, with pins."""
    from edgekit.placement.plan import Options, Pin

    section, mode = file.placement, file.build.mode
    return Options(
        dla_cores=tuple(dict.fromkeys(section.dla_cores)),
        gpu=uses_gpu(file),
        pins=tuple(Pin(pin.layers, pin.device) for pin in pins),
        max_loadables=section.max_loadables,
        pools=section.pool_limits,
        split=mode == "split",
    )


@computed("placement", "build.mode", "target")
def placement_options(context: Context) -> Options:
    """Returns the configuration's section ``placement``; notes fewer DLA cores than requested."""
    from edgekit.placement.inputs import limit_to_one_engine

    section, mode = context.file.placement, context.file.build.mode
    bounds = section.bounds.model_dump(exclude_none=True)
    if section.rate_hz is not None:
        # the plan keeps up with the frames, for any objective
        bounds["period_us"] = min(bounds.get("period_us", math.inf), 1e6 / section.rate_hz)
    options = replace(
        shared_options(context.file, section.pin),
        objective=section.objective,
        bounds=bounds,
        max_transitions=section.max_transitions,
        min_loadable_layers=section.min_loadable_layers,
        profile=_profile(context),
        rate_hz=section.rate_hz,
        slack=section.slack,
    )
    context.note(*_device_name_notes(context))
    if mode == "hybrid":
        # a hybrid engine is built for one DLA core
        options, note = limit_to_one_engine(options, context.target)
        context.note(*note)
    return options


def _device_name_notes(context: Context) -> Iterator[str]:
    """Yields notes on pins whose devices the configuration names in another way."""
    pins = context.file.placement.pin
    written = context.config.document.value.get("placement") or {}
    for given, pin in zip(written.get("pin") or [], pins, strict=False):
        if given["device"] != pin.device:
            yield f"The device {given['device']} of the pin {pin.layers} is {pin.device}"


@computed("placement.profile", "placement.layer_info")
def _profile(context: Context) -> Any:
    """Returns the measured times that the configuration names, or None."""
    path = context.file.placement.profile
    if path is None:
        return None
    from edgekit.benchmark.document import read_bench
    from edgekit.placement.profiles.reader import read_profile

    context.update(0, 0, "reading the profile")
    info = context.file.placement.layer_info
    return read_profile(
        context.config.resolve(path),
        layer_info=info and context.config.resolve(info),
        documents=read_bench,
    )
