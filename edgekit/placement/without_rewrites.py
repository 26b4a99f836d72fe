"""Whether a network is planned better as it came than rewritten."""

from __future__ import annotations

from dataclasses import replace

from edgekit.dla.verdicts import Judgement
from edgekit.errors import GateError, UsageError
from edgekit.network.model import Network
from edgekit.placement.forecast import forecast
from edgekit.placement.placing import PlacementQuery
from edgekit.placement.plan import plan_value
from edgekit.targets.board import Target

# relative: predictions are no finer
_NOTICED = 1e-3


def slower_on_gpu(
    before: tuple[Network, Judgement],
    after: tuple[Network, Judgement],
    target: Target,
    power_mode: str | None,
) -> bool:
    """Returns whether the GPU alone takes longer for the rewritten network (predicted).

    Only then can a plan be better without the rewrites.

    Args:
        before: The network as it came, and its verdicts.
        after: The rewritten one, likewise.
        target: The board.
        power_mode: NVIDIA's name; None is the board's usual mode.
    """
    alone = [forecast(*one, target, power_mode=power_mode) for one in (before, after)]
    if alone[0] is None or alone[1] is None:
        return False
    return alone[1].gpu_only_us > alone[0].gpu_only_us * (1 + _NOTICED)


def better_without(before: PlacementQuery, after: PlacementQuery) -> str:
    """Returns why the network is better planned as it came; empty where it is not.

    What a rewrite writes for the DLA can be slower on the GPU, which matters where the best plan
    stays there. Planning twice takes time, so it is done only where the GPU alone got slower.

    Args:
        before: The network as it came, with the user's constraints.
        after: The rewritten one, with the same constraints.
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
