"""Plans as JSON (``edgekit.plan/1``) and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgekit.dla import MemoryNeed
from edgekit.errors import DataError
from edgekit.placement._types import Loadable, PlacedLayer, Plan, Predicted, Reformat, Share

__all__ = ["SCHEMA", "plan_from_json", "plan_to_json"]

SCHEMA = "edgekit.plan/1"
_SAME = (
    "target", "power_mode", "precision", "tensorrt", "transitions", "objective", "optimal",
    "bound", "gap", "model_error",
)  # fmt: skip


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
            }
            for loadable in plan.loadables
        ],
        "pools": dict(plan.pools),
        "predicted": plan.predicted.to_json(),
        "plans": [
            {"share": part.share, "layers": [_layer(layer) for layer in part.layers]}
            for part in plan.plans
        ],
        "baselines": {
            name: None if predicted is None else predicted.to_json()
            for name, predicted in plan.baselines.items()
        },
        "notes": list(plan.notes),
        "reformats": [
            {
                "tensor": one.tensor,
                "from": one.source,
                "to": one.goal,
                "us": one.us,
                "clock": one.clock,
                "plan": one.plan,
            }
            for one in plan.reformats
        ],
        "builder": plan.builder,
        "bands": {name: list(band) for name, band in plan.bands.items()},
        "measured": plan.measured,
        "constraints": dict(plan.constraints),
        **{name: getattr(plan, name) for name in _SAME},
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
                Loadable(x["core"], tuple(x["layers"]), MemoryNeed(**x["memory"]), x["formats"])
                for x in document["loadables"]
            ),
            pools=dict(document["pools"]),
            predicted=Predicted(**document["predicted"]),
            plans=tuple(Share(x["share"], _layers(x["layers"])) for x in document["plans"]),
            baselines={
                name: None if x is None else Predicted(**x)
                for name, x in document["baselines"].items()
            },
            notes=tuple(document["notes"]),
            reformats=tuple(
                Reformat(x["tensor"], x["from"], x["to"], x["us"], x["clock"], x["plan"])
                for x in document.get("reformats", ())
            ),
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


def _layers(documents: list[dict[str, Any]]) -> tuple[PlacedLayer, ...]:
    return tuple(PlacedLayer(**{**x, "nodes": tuple(x["nodes"])}) for x in documents)
