"""Plans as JSON (``edgekit.plan/1``) and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from edgekit.dla import MemoryNeed
from edgekit.errors import DataError
from edgekit.placement._booked import device_times, frame_times
from edgekit.placement._types import (
    Loadable,
    PlacedLayer,
    Plan,
    Predicted,
    Reformat,
    Share,
    Unfused,
)

__all__ = ["SCHEMA", "plan_devices", "plan_from_json", "plan_to_json"]

SCHEMA = "edgekit.plan/1"
_SAME = (
    "target", "power_mode", "precision", "tensorrt", "transitions", "objective", "optimal",
    "bound", "gap", "model_error",
)  # fmt: skip


_PAID = ("launch_us", "launch_uj", "border_us", "border_uj", "plan")


def plan_to_json(plan: Plan) -> dict[str, Any]:
    """Returns the ``edgekit.plan/1`` document of a plan: the contract's keys and the board's."""
    return {
        "schema": SCHEMA,
        "layers": [_layer(layer) for layer in plan.layers],
        "loadables": [
            {
                "core": loadable.core,
                "layers": list(loadable.layers),
                "memory": loadable.memory.to_json(),
                "formats": dict(loadable.formats),
                **{name: getattr(loadable, name) for name in _PAID},
            }
            for loadable in plan.loadables
        ],
        "pools": dict(plan.pools),
        "predicted": plan.predicted.to_json(),
        "frame": frame_times(plan),
        "plans": [
            {
                "share": part.share,
                "layers": [_layer(layer) for layer in part.layers],
                "transitions": part.transitions,
                "predicted": part.predicted and part.predicted.to_json(),
                "reformats": [_reformat(one) for one in part.reformats],
                "unfused": [asdict(one) for one in part.unfused],
                "builder": part.builder,
                "devices": plan_devices(plan, number),
            }
            for number, part in enumerate(plan.plans)
        ],
        "baselines": {
            name: None if predicted is None else predicted.to_json()
            for name, predicted in plan.baselines.items()
        },
        "notes": list(plan.notes),
        "baselines_keep": dict(plan.baselines_keep),
        "kept_off": list(plan.kept_off),
        "unknown_cost": list(plan.unknown_cost),
        "extrapolated": list(plan.extrapolated),
        "reformats": [_reformat(one) for one in plan.reformats],
        "builder": plan.builder,
        "bands": {name: list(band) for name, band in plan.bands.items()},
        "measured": plan.measured,
        "constraints": dict(plan.constraints),
        **{name: getattr(plan, name) for name in _SAME},
    }


def plan_devices(plan: Plan, number: int) -> list[dict[str, Any]]:
    """Returns what each device has of a frame of a plan, and how long it works for it."""
    part = plan.plans[number]
    times = device_times(part, [one for one in plan.loadables if one.plan == number])
    found = []
    for device in sorted(times, key=lambda name: (name != "GPU", name)):
        own = [layer for layer in part.layers if layer.device == device]
        found.append({
            "device": device, "layers": len(own),
            "segments": len({layer.segment for layer in own}),
            "busy_us": times[device], "clock": "predicted",
        })  # fmt: skip
    return found


def _reformat(one: Reformat) -> dict[str, Any]:
    return {
        "tensor": one.tensor,
        "from": one.source,
        "to": one.goal,
        "us": one.us,
        "uj": one.uj,
        "clock": one.clock,
        "plan": one.plan,
    }


def _layer(layer: PlacedLayer) -> dict[str, Any]:
    return {
        "name": layer.name,
        "nodes": list(layer.nodes),
        "device": layer.device,
        "precision": layer.precision,
        "segment": layer.segment,
        "predicted_us": layer.predicted_us,
        "predicted_uj": layer.predicted_uj,
    }


def plan_from_json(document: Mapping[str, Any]) -> Plan:
    """Returns the plan that :func:`plan_to_json` wrote; equal to the one it was written from.

    Raises:
        DataError: The document is not an ``edgekit.plan/1`` document.
    """
    if document.get("schema") != SCHEMA:
        raise DataError(
            f"not a plan: schema {document.get('schema')!r}",
            code="plan.schema",
            hint=f"expected a document with schema {SCHEMA!r}",
        )
    try:
        return Plan(
            layers=_layers(document["layers"]),
            loadables=tuple(
                Loadable(
                    x["core"],
                    tuple(x["layers"]),
                    MemoryNeed(**x["memory"]),
                    x["formats"],
                    **{name: x[name] for name in _PAID if name in x},
                )
                for x in document["loadables"]
            ),
            pools=dict(document["pools"]),
            predicted=Predicted(**document["predicted"]),
            plans=tuple(_share(x) for x in document["plans"]),
            baselines={
                name: None if x is None else Predicted(**x)
                for name, x in document["baselines"].items()
            },
            notes=tuple(document["notes"]),
            baselines_keep=dict(document.get("baselines_keep", {})),
            kept_off=tuple(document.get("kept_off", ())),
            unknown_cost=tuple(document.get("unknown_cost", ())),
            extrapolated=tuple(document.get("extrapolated", ())),
            reformats=_reformats(document),
            builder=document.get("builder"),
            bands={name: (low, high) for name, (low, high) in document.get("bands", {}).items()},
            measured=document.get("measured"),
            constraints=dict(document.get("constraints", {})),
            **{name: document[name] for name in _SAME},
        )
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"the plan document is incomplete: {error}",
            code="plan.schema",
            hint="write it again with `edgekit plan --json`",
        ) from error


def _share(x: Mapping[str, Any]) -> Share:
    predicted = x.get("predicted")
    return Share(
        x["share"],
        _layers(x["layers"]),
        x.get("transitions", 0),
        predicted and Predicted(**predicted),
        _reformats(x),
        tuple(Unfused(**one) for one in x.get("unfused", ())),
        x.get("builder"),
    )


def _reformats(x: Mapping[str, Any]) -> tuple[Reformat, ...]:
    return tuple(
        Reformat(r["tensor"], r["from"], r["to"], r["us"], r["clock"], r["plan"], r.get("uj", 0.0))
        for r in x.get("reformats", ())
    )


def _layers(documents: list[dict[str, Any]]) -> tuple[PlacedLayer, ...]:
    return tuple(PlacedLayer(**{**x, "nodes": tuple(x["nodes"])}) for x in documents)
