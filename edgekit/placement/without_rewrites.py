"""Whether a network is planned better as it came than rewritten."""

from __future__ import annotations

from dataclasses import replace

from edgekit.errors import GateError, UsageError
from edgekit.placement.forecast import forecast
from edgekit.placement.placing import PlacementQuery
from edgekit.placement.plan import plan_value

# relative: predictions are no finer
_NOTICED = 1e-3


def better_without(before: PlacementQuery, after: PlacementQuery) -> str:
    """Returns why the network is better planned as it came; empty where it is not.

    What a rewrite writes for the DLA can be slower on the GPU, which matters where the best plan
    stays there. Planning twice takes time, so it is done only where the GPU alone got slower.

    Args:
        before: The network as it came, with the user's constraints.
        after: The rewritten one, with the same constraints.
    """
    alone = [
        forecast(query.network, query.judgement, query.target, power_mode=query.power_mode)
        for query in (before, after)
    ]
    if alone[0] is None or alone[1] is None:
        return ""
    if alone[1].gpu_only_us <= alone[0].gpu_only_us * (1 + _NOTICED):
        return ""
    try:
        without = before.plan(options=replace(before.options, cores_why=""))
    except (GateError, UsageError):
        # it cannot be planned as it came, or a constraint names what only the rewritten one has
        return ""
    try:
        rewritten = after.plan(options=replace(after.options, cores_why=""))
    except GateError as error:
        return f"planning with them fails ({error.message})"
    except UsageError:
        # the step that plans says it better
        return ""
    old, new = plan_value(without), plan_value(rewritten)
    more = without.objective == "throughput"
    worse = new < old * (1 - _NOTICED) if more else new > old * (1 + _NOTICED)
    if not worse:
        return ""
    unit = {"throughput": "frames/s", "energy": "µJ"}.get(without.objective, "µs")
    return f"{new:,.4g} {unit} with them, {old:,.4g} {unit} without (predicted)"
