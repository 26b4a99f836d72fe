"""A clear no: which device, deadline or limit several networks cannot keep to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from edgekit.errors import GateError
from edgekit.placement._several_routes import Alone
from edgekit.solver import Timetable, Workload, alone_us, best_places

__all__ = ["missed", "nothing_found", "refuse_if_hopeless"]

_SCOPE = " (this is known of each network's own best plans and its groups of layers)"


def _no(message: str, hint: str, **binding: Any) -> GateError:
    error = GateError(message, code="plan.infeasible", hint=hint)
    error.extra["binding"] = binding
    return error


def refuse_if_hopeless(
    workload: Workload, alone: Sequence[Alone], effort: float, seconds: float
) -> float:
    """Returns the share of its time that the busiest device needs, when shared out best.

    Raises:
        GateError: A network alone is too slow, which its own best plan proves, or a device has
            too much to do.
    """
    for number, (chain, own) in enumerate(zip(workload.chains, alone, strict=True)):
        need = min(own.bounds["latency_us"], alone_us(workload, number))
        if chain.deadline_us is not None and need > chain.deadline_us * (1 + 1e-9):
            raise _no(
                f"{chain.name} needs {need / 1e3:.4g} ms even with the whole board to itself; its "
                f"deadline is {chain.deadline_us / 1e3:.4g} ms",
                "give it more time, a lower precision or a faster power mode",
                kind="deadline", network=chain.name, needs_us=need, deadline_us=chain.deadline_us,
            )  # fmt: skip
    whole = workload.hyperperiod_us
    found = best_places(workload, effort=effort, seconds=seconds)
    if found is not None and (whole is None or found[2] <= float(whole)):
        return 0.0 if whole is None else found[1] / float(whole)
    if workload.max_loadables is not None and workload.cores:
        free = replace(workload, max_loadables=None)
        other = best_places(free, effort=effort, seconds=seconds)
        if other is not None and (whole is None or other[1] <= float(whole)):
            raise _no(
                f"{workload.max_loadables} loadables a core are too few for these networks",
                f"raise placement.max_loadables, or give the networks another DLA core{_SCOPE}",
                kind="slots", limit=workload.max_loadables,
            )  # fmt: skip
    if found is None or whole is None:
        raise _no(
            "no placement keeps to what all networks share",
            "loosen pins, pools or placement.gpu", kind="placement",
        )  # fmt: skip
    loads = workload.loads_us(found[0])
    shares = {name: us / float(whole) for name, us in zip(workload.devices, loads, strict=True)}
    full = [name for name, share in shares.items() if share > 1]
    told = ", ".join(f"{name} {share:.0%}" for name, share in shares.items())
    most = f"{max(shares.values()):.0%}"
    least = f"{found[2] / float(whole):.0%}"
    verb = "is" if len(full) == 1 else "are"
    raise _no(
        f"{' and '.join(full)} {verb} {most} busy even when the work is shared out "
        f"best ({told}); at least {least} is needed of a device",
        f"lower the rates, use more DLA cores, a lower precision or a faster power mode{_SCOPE}",
        kind="busy", devices=full, utilisation=shares,
    )  # fmt: skip


def missed(workload: Workload, late: Timetable | None, *, contention: bool) -> GateError:
    """Returns the error for deadlines that hold alone and not together."""
    hint = f"give more time, lower the rates, use more DLA cores or a faster power mode{_SCOPE}"
    if late is None or not late.places:
        return _no("the deadlines cannot all be kept", hint, kind="deadlines")
    told = []
    for number, chain in enumerate(workload.chains):
        latency = late.latency_us(workload, number)
        if chain.deadline_us is not None and latency > chain.deadline_us * (1 + 1e-9):
            told.append((chain.name, latency, chain.deadline_us))
    text = "; ".join(
        f"{name} takes {us / 1e3:.4g} ms, its deadline is {deadline / 1e3:.4g} ms"
        for name, us, deadline in told
    )
    if contention:
        start = "the deadlines hold only without contention for memory: with it "
    elif late.bound > 1:
        start = "the deadlines cannot all be kept; at best "
    else:
        start = "no timetable keeps all deadlines (proved); the best one found misses: "
    return _no(
        f"{start}{text or 'frames pile up'}", hint,
        kind="contention" if contention else "deadlines",
        networks=[
            {"network": name, "latency_us": us, "deadline_us": deadline}
            for name, us, deadline in told
        ],
    )  # fmt: skip


def nothing_found() -> GateError:
    """Returns the error for a search that ended before it found or ruled out anything."""
    return GateError(
        "no timetable was found in time; it is not proved that there is none",
        code="plan.limit",
        hint="use fewer networks, longer deadlines or rates with a shorter common period",
    )
