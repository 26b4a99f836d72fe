"""The comparison of plans with and without rewrites."""

from __future__ import annotations

from dataclasses import replace

from edgekit.dla.verdicts import Judgement
from edgekit.errors import GateError, UsageError
from edgekit.network.model import Network
from edgekit.placement.forecast import forecast
from edgekit.placement.placing import PlacementQuery
from edgekit.placement.plan import plan_value
from edgekit.targets.board import Target

# relative: the resolution of predictions
_NOTICED = 1e-3


def slower_on_gpu(
    before: tuple[Network, Judgement],
    after: tuple[Network, Judgement],
    target: Target,
    power_mode: str | None,
) -> bool:
    """Returns True if the GPU alone takes longer for the rewritten network (predicted).

    Only then can a plan be better without the rewrites.

    Args:
        before: The original network and its verdicts.
        after: The rewritten network and its verdicts.
        target: The board.
        power_mode: NVIDIA's name; None is the board's usual mode.
    """
    alone = [forecast(*form, target, power_mode=power_mode) for form in (before, after)]
    if alone[0] is None or alone[1] is None:
        return False
    return alone[1].gpu_only_us > alone[0].gpu_only_us * (1 + _NOTICED)


def better_without(before: PlacementQuery, after: PlacementQuery) -> str:
    """Returns why the plan of the original network is better; empty if it is not.

    A rewrite for the DLA can be slower on the GPU, which matters if the best plan uses the GPU.
    Planning twice takes time, so it is done only if the GPU alone got slower.

    Args:
        before: The original network, with the user's constraints.
        after: The rewritten network, with the same constraints.
    """
    if not slower_on_gpu(
        (before.network, before.judgement),
        (after.network, after.judgement),
        before.target,
        before.power_mode,
    ):
        return ""
    try:
        without = before.plan(options=replace(before.options, cores_why=""))
    except (GateError, UsageError):
        # the original cannot be planned, or a constraint names layers of the rewritten network only
        return ""
    try:
        rewritten = after.plan(options=replace(after.options, cores_why=""))
    except GateError as error:
        return f"planning with them fails ({error.message})"
    except UsageError:
        # the planning step has the better message
        return ""
    old, new = plan_value(without), plan_value(rewritten)
    more = without.objective == "throughput"
    worse = new < old * (1 - _NOTICED) if more else new > old * (1 + _NOTICED)
    if not worse:
        return ""
    unit = {"throughput": "frames/s", "energy": "µJ"}.get(without.objective, "µs")
    return f"{new:,.4g} {unit} with them, {old:,.4g} {unit} without (predicted)"
