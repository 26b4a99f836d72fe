"""Where each layer runs: costs, the exact optimiser, segments, loadables and plans as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit._lazy import lazy

if TYPE_CHECKING:
    from edgekit.placement._ask import Ask, plan_value, value_of
    from edgekit.placement._booked import booked_layers, device_times, frame_times, unbooked
    from edgekit.placement._builder import device_types
    from edgekit.placement._compare import compare_plans, plan_summary
    from edgekit.placement._conflicts import explain_conflict
    from edgekit.placement._costs_data import noise
    from edgekit.placement._explain import explain_layer, find_layer
    from edgekit.placement._fixes import LATENCY, Fix, fixes, saved_us, together
    from edgekit.placement._forecast import Clock, Forecast, clock_of, forecast
    from edgekit.placement._front import pareto_front
    from edgekit.placement._json import plan_devices, plan_from_json, plan_to_json
    from edgekit.placement._kept_off import explain_gpu_only
    from edgekit.placement._measured import Measured, measured_model
    from edgekit.placement._measured_part import source_of
    from edgekit.placement._on_gpu import gpu_reasons
    from edgekit.placement._place import Prepared, place, prepare
    from edgekit.placement._profile import read_profile
    from edgekit.placement._profile_plan import LogPlan, plan_of_log
    from edgekit.placement._profile_rows import booked_rows
    from edgekit.placement._profile_types import Profile
    from edgekit.placement._request import PlanImpossible
    from edgekit.placement._several import Member, place_several
    from edgekit.placement._several_plans import Plans, Shared, Slot
    from edgekit.placement._transitions import transitions
    from edgekit.placement._types import (
        OBJECTIVES,
        Loadable,
        Options,
        Pin,
        PlacedLayer,
        Plan,
        Predicted,
        Reformat,
        Share,
        Unfused,
        proof_of,
    )

__all__ = [
    "LATENCY",
    "OBJECTIVES",
    "Ask",
    "Clock",
    "Fix",
    "Forecast",
    "Loadable",
    "LogPlan",
    "Measured",
    "Member",
    "Options",
    "Pin",
    "PlacedLayer",
    "Plan",
    "PlanImpossible",
    "Plans",
    "Predicted",
    "Prepared",
    "Profile",
    "Reformat",
    "Share",
    "Shared",
    "Slot",
    "Unfused",
    "booked_layers",
    "booked_rows",
    "clock_of",
    "compare_plans",
    "device_times",
    "device_types",
    "explain_conflict",
    "explain_gpu_only",
    "explain_layer",
    "find_layer",
    "fixes",
    "forecast",
    "frame_times",
    "gpu_reasons",
    "measured_model",
    "noise",
    "pareto_front",
    "place",
    "place_several",
    "plan_devices",
    "plan_from_json",
    "plan_of_log",
    "plan_summary",
    "plan_to_json",
    "plan_value",
    "prepare",
    "proof_of",
    "read_profile",
    "saved_us",
    "source_of",
    "together",
    "transitions",
    "unbooked",
    "value_of",
]

__getattr__ = lazy(
    __name__,
    {
        "_ask": "Ask plan_value value_of",
        "_booked": "booked_layers device_times frame_times unbooked",
        "_compare": "compare_plans plan_summary",
        "_conflicts": "explain_conflict",
        "_explain": "explain_layer find_layer",
        "_costs_data": "noise",
        "_fixes": "LATENCY Fix fixes saved_us together",
        "_forecast": "Clock Forecast clock_of forecast",
        "_builder": "device_types",
        "_front": "pareto_front",
        "_json": "plan_devices plan_from_json plan_to_json",
        "_kept_off": "explain_gpu_only",
        "_measured": "Measured measured_model",
        "_measured_part": "source_of",
        "_on_gpu": "gpu_reasons",
        "_place": "Prepared place prepare",
        "_profile": "read_profile",
        "_profile_plan": "LogPlan plan_of_log",
        "_profile_rows": "booked_rows",
        "_profile_types": "Profile",
        "_request": "PlanImpossible",
        "_several": "Member place_several",
        "_several_plans": "Plans Shared Slot",
        "_transitions": "transitions",
        "_types": "OBJECTIVES Loadable Options Pin PlacedLayer Plan Predicted Reformat Share "
        "Unfused proof_of",
    },
)
