"""Several networks of one configuration: each is loaded and rewritten, then all are placed."""

from __future__ import annotations

import dataclasses
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit._listed import counted
from edgekit.errors import EdgekitError, UsageError
from edgekit.pipeline._cache import Cache
from edgekit.pipeline._progress import Progress, Quiet
from edgekit.pipeline._steps import Steps
from edgekit.pipeline._work import Work

if TYPE_CHECKING:
    from edgekit.config import Config
    from edgekit.placement import Member, Plans

__all__ = ["plan_networks", "write_networks_report"]


def plan_networks(
    config: Config,
    *,
    force: bool = False,
    progress: Progress | None = None,
    cache: Cache | None = None,
) -> Plans:
    """Places and schedules the networks of a configuration that has several.

    Args:
        config: The configuration.
        force: Load and rewrite everything again.
        progress: Where steps are told; nowhere when None.
        cache: Where results are kept; the user's cache folder when None.

    Raises:
        UsageError: The configuration has one network; options that make no sense.
        GateError: "plan.infeasible": rates or deadlines that cannot be kept.
    """
    from edgekit.placement import place_several

    file = config.file
    if not file.model.networks:
        raise UsageError("this configuration has one network", code="config.networks")
    names = [network.name for network in file.model.networks]
    steps = Steps([*names, "plan"], progress or Quiet())
    cache = cache or Cache()
    works = [Work(_only(config, number), cache, force=force) for number in range(len(names))]
    members = []
    for number, work in enumerate(works):
        work.update = steps.progress.update
        work.tell = steps.progress.note
        work.weighs = False  # how one network is planned alone says little of several
        with steps.step(names[number]) as step:
            try:
                members.append(_member(config, number, work))
            except EdgekitError as error:
                error.where = error.where or f"network {names[number]}"
                raise
            step.detail = counted(len(members[-1].network.layers), "layer")
    _pins_match(config, members)
    with steps.step("plan") as step:
        plans = place_several(
            members,
            works[0].target,
            power_mode=file.power_mode,
            objective=file.placement.objective,
            one_core=file.build.mode == "hybrid",
            progress=lambda done, total: steps.progress.update(done, total, "scheduling"),
        )
        step.detail = counted(len(members), "network")
    told = dict.fromkeys(
        f"{name}: {note}" for name, work in zip(names, works, strict=True) for note in work.notes
    )
    return dataclasses.replace(plans, notes=(*plans.notes, *told))


def write_networks_report(plans: Plans, path: Path, *, name: str = "") -> None:
    """Writes the HTML page of several networks.

    Raises:
        EnvironmentLack: The file cannot be written.
    """
    from edgekit.report import write_plans_report

    write_plans_report(plans.to_json(), path, name=name)


def _only(config: Config, number: int) -> Config:
    """Returns the configuration of one of the networks."""
    file = config.file
    own = file.model.networks[number]
    keys = ("onnx", "builtin", "seed", "shapes", "batch", "outputs")
    model = file.model.model_copy(update={"networks": [], **{k: getattr(own, k) for k in keys}})
    changes: dict[str, Any] = {"model": model, "precision": own.precision or file.precision}
    return dataclasses.replace(config, file=file.model_copy(update=changes))


def _member(config: Config, number: int, work: Work) -> Member:
    from edgekit.placement import Member, Options, Pin

    own = config.file.model.networks[number]
    section = config.file.placement
    layers = [layer.name for layer in work.network.layers]
    common = [pin for pin in section.pin if any(fnmatchcase(name, pin.layers) for name in layers)]
    pools = None if section.pools == "auto" else section.pools.model_dump(exclude_none=True)
    options = Options(
        dla_cores=tuple(dict.fromkeys(section.dla_cores)),
        gpu=section.gpu and config.file.build.mode != "standalone",
        pins=tuple(Pin(pin.layers, pin.device) for pin in (*common, *own.pin)),
        max_loadables=section.max_loadables,
        pools=pools,
    )
    return Member(
        own.name, work.network, work.judgement, work.file.precision, options, own.rate_hz,
        own.deadline_ms,
    )  # fmt: skip


def _pins_match(config: Config, members: list[Member]) -> None:
    """Refuses a common pin that matches no layer of any network."""
    names = [layer.name for member in members for layer in member.network.layers]
    for pin in config.file.placement.pin:
        if not any(fnmatchcase(name, pin.layers) for name in names):
            raise UsageError(
                f"pin {pin.layers!r} matches no layer of any network",
                code="plan.pin",
                where=config.document.where(("placement", "pin")),
                hint="see `edgekit check` of each network",
            )
