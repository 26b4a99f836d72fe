"""Several networks of a configuration: each is loaded and rewritten as in the pipeline, then all
are placed together; and the HTML page of the result.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from edgekit.config.loader import Config
from edgekit.errors import EdgekitError, UsageError
from edgekit.network.layer_names import layers_matching, unmatched_error
from edgekit.pipeline.cache import Cache
from edgekit.pipeline.context import Context, Session
from edgekit.pipeline.progress import Progress, SilentProgress, StepLog
from edgekit.pipeline.report_page import ReportPage
from edgekit.pipeline.steps.build_request import check_requested
from edgekit.pipeline.steps.load import require_parse
from edgekit.pipeline.steps.placement import shared_options
from edgekit.pipeline.steps.plugin_sections import check_plugins
from edgekit.pipeline.steps.rewrite import judgement, network, unrewritten_network
from edgekit.reports.html.plans import write_plans_report
from edgekit.schedule.placing import frames_per_hyperperiod, place_several
from edgekit.schedule.plans import NetworkRequest, Plans
from edgekit.text import counted


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
        progress: Called with the steps' progress; not used if None.
        cache: Holds the results; the user's cache folder if None.

    Raises:
        UsageError: The configuration has one network; options that make no sense; rates that
            repeat too rarely ("plan.hyperperiod"), before anything is loaded.
        GateError: "plan.infeasible": rates or deadlines that cannot be kept.
    """
    file = config.file
    if not file.model.networks:
        raise UsageError(
            "this configuration has one network",
            code="config.networks",
            hint="use edgekit.plan (edgekit plan), or list several under model.networks",
        )
    names = [network.name for network in file.model.networks]
    # refuses rates that repeat too rarely before anything is loaded
    frames_per_hyperperiod({network.name: network.rate_hz for network in file.model.networks})
    steps = StepLog([*names, "plan"], progress or SilentProgress())
    cache = cache or Cache()
    contexts = [
        # the use of rewrites is decided for all networks together
        Context(
            _config_of_one(config, number),
            cache,
            Session(steps.progress),
            force=force,
            weighs=False,
        )
        for number in range(len(names))
    ]
    members = []
    for number, context in enumerate(contexts):
        check_requested(context)
        with steps.step(names[number]) as step:
            try:
                members.append(_network_request(config, number, context))
            except EdgekitError as error:
                error.where = error.where or f"network {names[number]}"
                raise
            step.detail = counted(len(members[-1].network.layers), "layer")
    _check_common_pins(config, members)
    with steps.step("plan") as step:
        plans = place_several(
            members,
            contexts[0].target,
            power_mode=file.power_mode,
            objective=file.placement.objective,
            one_core=file.build.mode == "hybrid",
            progress=lambda done, total: steps.progress.update(done, total, "scheduling"),
        )
        step.detail = counted(len(members), "network")
    # a note that concerns several networks comes once for each, with its name
    notes = dict.fromkeys(
        f"{name}: {note}"
        for name, context in zip(names, contexts, strict=True)
        for note in context.session.notes
    )
    return dataclasses.replace(plans, notes=(*plans.notes, *notes))


def page_of_networks(
    config: Config, *, output: Path | None, out: Path | None, progress: Progress | None = None
) -> ReportPage[Plans]:
    """Plans the networks of a configuration that has several, and writes their page.

    Args:
        config: The configuration.
        output: The page; ``report.html`` in ``out`` if None.
        out: A folder; ``edgekit-out/NAME`` if None.
        progress: As in ``plan_networks``.
    """
    plans = plan_networks(config, progress=progress)
    page = output or (out or Path("edgekit-out") / config.file.name) / "report.html"
    write_networks_report(plans, page, name=config.file.name)
    return ReportPage(page, plans)


def write_networks_report(plans: Plans, path: Path, *, name: str = "") -> None:
    """Writes the HTML page of several networks.

    Raises:
        EnvironmentLack: The file cannot be written.
    """
    write_plans_report(plans, path, name=name)


def _config_of_one(config: Config, number: int) -> Config:
    """Returns the configuration of a single network."""
    file = config.file
    network = file.model.networks[number]
    keys = ("onnx", "builtin", "seed", "shapes", "batch", "outputs", "cut", "plugins")
    model = file.model.model_copy(update={"networks": [], **{k: getattr(network, k) for k in keys}})
    precision = network.precision or file.precision
    single = file.model_copy(update={"model": model, "precision": precision})
    return dataclasses.replace(config, file=single)


def _network_request(config: Config, number: int, context: Context) -> NetworkRequest:
    own = config.file.model.networks[number]
    check_plugins(context)
    require_parse(context)
    pins = config.file.placement.pin
    # the placement refuses a pin that matches no layer, and a common pin need not match everywhere
    common = [pin for pin in pins if layers_matching(network(context), pin.layers)]
    options = shared_options(config.file, (*common, *own.pin))
    return NetworkRequest(
        own.name,
        network(context),
        judgement(context),
        own.precision or config.file.precision,
        options,
        own.rate_hz,
        own.deadline_ms,
        unrewritten_network(context),
    )


def _check_common_pins(config: Config, members: list[NetworkRequest]) -> None:
    """Refuses a common pin that matches no layer of any network."""
    networks = [member.network for member in members]
    for pin in config.file.placement.pin:
        if not any(layers_matching(network, pin.layers) for network in networks):
            raise unmatched_error(
                pin.layers,
                *networks,
                what="pin",
                code="plan.pin",
                where=config.document.where(("placement", "pin")),
            )
