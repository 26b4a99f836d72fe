"""The reasons for the devices of PyTorch modules' layers: ``edgekit.why-modules/1``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from edgekit.documents import Coded, Document, Figure, Precision, TargetName
from edgekit.network.layer_names import layers_matching
from edgekit.network.module_names import common_module, enclosing_modules
from edgekit.network.module_tree import LayerPlace, ModuleTotals, module_totals
from edgekit.placement.gpu_reasons import Why, gpu_reasons, why_not
from edgekit.placement.placing import Objective, PlacementQuery, Unit
from edgekit.placement.plan import OBJECTIVE_UNITS, Plan, booked_layers, plan_value

if TYPE_CHECKING:
    from edgekit.dla.verdicts import Judgement
    from edgekit.network.model import Layer, Network
    from edgekit.targets.board import Target


class WhyModules(Document):
    """The reasons for the devices of modules' layers in the first plan; times are predicted."""

    schema_: Literal["edgekit.why-modules/1"] = Field(alias="schema")
    name: str = Field(description="the requested module, or a glob")
    target: TargetName
    power_mode: str
    precision: Precision
    objective: Objective
    value: Figure = Field(description="the plan's, in the unit")
    unit: Unit = Field(description="us, uj or qps")
    modules: list[Annotated[ModuleTotals, Coded()]] = Field(
        description="the innermost module around the layers, and those inside it"
    )
    reasons: list[Why] = Field(
        description="of the layers on the GPU: the rules that they break, and why those are there "
        "that a DLA could run"
    )


def explain_modules(query: PlacementQuery, plan: Plan, name: str) -> WhyModules:
    """Returns the reasons for the plan's devices of the layers that match a glob.

    Args:
        query: The network, which names modules, and the request.
        plan: The resulting plan.
        name: A module or a glob for ``layers_matching``.
    """
    network = query.network
    named = set(layers_matching(network, name))
    layers = tuple(layer for layer in network.layers if layer.name in named)
    reasons = [
        reason.model_copy(update={"layers": own, "count": len({layer.name for layer in own})})
        for reason in _reasons(plan, network, query.judgement, query.target)
        if (own := [layer for layer in reason.layers if layer.name in named])
    ]
    around = common_module(layer.module for layer in layers)
    return WhyModules(
        schema="edgekit.why-modules/1",
        name=name,
        target=plan.target,
        power_mode=plan.power_mode,
        precision=plan.precision,
        objective=plan.objective,
        value=plan_value(plan),
        unit=OBJECTIVE_UNITS[plan.objective],
        modules=[
            totals
            for totals in _totals(plan, network, layers, reasons)
            if around in enclosing_modules(totals.module)
        ],
        reasons=reasons,
    )


def planned_modules(
    plan: Plan,
    network: Network,
    judgement: Judgement,
    target: Target,
    measured: Mapping[str, float] | None = None,
) -> tuple[ModuleTotals, ...]:
    """Returns the modules of a plan (of its first variant); empty if the network names none.

    ``measured``: as for ``module_totals``.
    """
    if network.modules is None:
        return ()
    reasons = _reasons(plan, network, judgement, target)
    return _totals(plan, network, network.layers, reasons, measured)


def _reasons(plan: Plan, network: Network, judgement: Judgement, target: Target) -> list[Why]:
    """Returns why layers are on the GPU: their broken rules, and their cost on a DLA."""
    # a left-out module is on no device by choice, not by a rule
    left = {layer.name for layer in plan.left}
    verdicts = {name: verdict for name, verdict in judgement.verdicts.items() if name not in left}
    placeable = replace(judgement, verdicts=verdicts)
    return [*why_not(placeable), *gpu_reasons(plan, network, judgement, target)]


def _totals(
    plan: Plan,
    network: Network,
    layers: tuple[Layer, ...],
    reasons: Sequence[Why],
    measured: Mapping[str, float] | None = None,
) -> tuple[ModuleTotals, ...]:
    rules: dict[str, list[str]] = {}
    for reason in reasons:
        for layer in reason.layers:
            rules.setdefault(layer.name, []).append(reason.rule)
    places = {
        layer.name: LayerPlace(layer.device, layer.predicted_us, rules.get(layer.name, ()))
        for layer in booked_layers(plan.plans[0], network)
    }
    places |= {layer.name: LayerPlace(layer.device) for layer in plan.left}
    return module_totals(replace(network, layers=layers), places, measured)
