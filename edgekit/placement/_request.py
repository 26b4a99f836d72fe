"""A network with everything that placing it needs, and what makes that impossible."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from edgekit._listed import listed
from edgekit.dla import Judgement, Reason
from edgekit.errors import GateError
from edgekit.network import Network
from edgekit.placement._costs import CostModel
from edgekit.placement._costs_regions import Regions, regions_of
from edgekit.placement._handover import Handover
from edgekit.placement._options import resolve_pins, usable_cores
from edgekit.placement._room import Room
from edgekit.placement._types import Options

__all__ = ["PlanImpossible", "Request", "make_request"]

_SHOWN = 5


class PlanImpossible(GateError):
    """A standalone plan was asked for, and some layers cannot run on a DLA.

    ``layers`` maps their names to the reasons; ``to_json`` adds them to the error.
    """

    default_code = "plan.impossible"

    def __init__(self, message: str, layers: Mapping[str, tuple[Reason, ...]], hint: str) -> None:
        super().__init__(message, hint=hint)
        self.layers = layers

    def to_json(self) -> dict[str, Any]:
        """Adds ``layers``: name and reasons of each layer that does not fit."""
        document = super().to_json()
        document["error"]["layers"] = [
            {"name": name, "reasons": [reason.to_json() for reason in reasons]}
            for name, reasons in self.layers.items()
        ]
        return document


@dataclass(frozen=True)
class Request:
    """A network with everything that placing it needs.

    ``able`` says by layer whether a DLA core may run it at all (verdict and precision);
    ``cores`` are the DLA cores in use, ascending; ``handover`` knows what borders cost, ``room``
    what a loadable can hold.
    """

    network: Network
    judgement: Judgement
    model: CostModel
    options: Options
    cores: tuple[int, ...]
    able: Mapping[str, bool]
    pins: Mapping[str, str]
    handover: Handover
    room: Room

    @property
    def devices(self) -> tuple[str, ...]:
        """Device names in the problem's order."""
        return ("GPU", *(f"DLA{core}" for core in self.cores))

    @cached_property
    def regions(self) -> Regions:
        """The parts that the GPU runs fused."""
        able = {name: verdict.placeable for name, verdict in self.judgement.verdicts.items()}
        return regions_of(self.model, self.network, able)


def make_request(
    network: Network, judgement: Judgement, model: CostModel, options: Options
) -> Request:
    """Gathers a request; raises GateError when a pin asks for what a layer cannot do."""
    cores = usable_cores(options, model.target, model.precision)
    able = {name: verdict.placeable and bool(cores) for name, verdict in judgement.verdicts.items()}
    pins = resolve_pins(network, options)
    for name, device in pins.items():
        if device == "GPU":
            if not options.gpu:
                raise _pin_error(name, device, "the plan is standalone, without the GPU")
        elif not able[name]:
            reasons = judgement.verdicts[name].reasons
            why = reasons[0].message if reasons and cores else "no DLA core can be used"
            raise _pin_error(name, device, why)
        elif device != "DLA" and int(device[3:]) not in cores:
            why = options.cores_why or f"only DLA core {cores[0]} is in use (dla_cores)"
            raise _pin_error(name, device, why)
    precisions = {layer.name: model.layer_precision(layer, "DLA0") for layer in network.layers}
    verdicts = {name: verdict.placeable for name, verdict in judgement.verdicts.items()}
    fused = [part.layers for part in regions_of(model, network, verdicts).parts]
    request = Request(
        network, judgement, model, options, cores, able, pins, Handover(network, model, fused),
        Room(network, model, options, precisions),
    )  # fmt: skip
    if not options.gpu:
        _require_standalone(request)
    return request


def _pin_error(layer: str, device: str, why: str) -> GateError:
    return GateError(
        f"pinned to {device}, but {why}",
        code="plan.infeasible",
        where=layer,
        hint="remove the pin or change what keeps the layer away",
    )


def _require_standalone(request: Request) -> None:
    verdicts = request.judgement.verdicts
    unable = {x.name: verdicts[x.name].reasons for x in request.network.layers}
    unable = {name: reasons for name, reasons in unable.items() if not request.able[name]}
    if not unable:
        return
    if not request.cores:
        why = "FP32 does not run on a DLA" if request.model.precision == "fp32" else "there is none"
        message = f"a standalone plan needs a DLA core, and {why}"
    else:
        few = listed((_broken(name, reasons) for name, reasons in unable.items()), _SHOWN)
        count = len(request.network.layers)
        message = f"{len(unable)} of {count} layers cannot run on the DLA: {few}"
    raise PlanImpossible(message, unable, "allow the GPU, or see `edgekit check` for the fixes")


def _broken(name: str, reasons: tuple[Reason, ...]) -> str:
    """A layer with the rules that it breaks; none where only its precision is in the way."""
    rules = ", ".join(dict.fromkeys(reason.rule for reason in reasons))
    return f"{name} ({rules})" if rules else name
