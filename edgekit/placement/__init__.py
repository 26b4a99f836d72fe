"""Where each layer runs: costs, the exact optimiser, segments, loadables and plans as JSON."""

from edgekit.placement._json import plan_from_json, plan_to_json
from edgekit.placement._place import place
from edgekit.placement._request import PlanImpossible
from edgekit.placement._types import (
    OBJECTIVES,
    Loadable,
    Options,
    Pin,
    PlacedLayer,
    Plan,
    Predicted,
    Share,
)

__all__ = [
    "OBJECTIVES",
    "Loadable",
    "Options",
    "Pin",
    "PlacedLayer",
    "Plan",
    "PlanImpossible",
    "Predicted",
    "Share",
    "place",
    "plan_from_json",
    "plan_to_json",
]
