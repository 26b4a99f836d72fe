"""Boards and power modes beside each other; each row is one plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from edgekit.errors import GateError, UsageError

if TYPE_CHECKING:
    from edgekit.pipeline._work import Work
    from edgekit.placement import Plan
    from edgekit.targets import Target

__all__ = ["plan_table"]

SCHEMA = "edgekit.plan-table/1"
OBJECTIVES = ("latency", "throughput", "energy")
METRICS = ("latency_us", "throughput_qps", "energy_uj", "gpu_us")


def plan_table(
    work: Work,
    *,
    modes: Sequence[str] = (),
    targets: Sequence[str] = (),
    objective: str | None = None,
    power_mode: str | None = None,
) -> dict[str, Any]:
    """Returns an ``edgekit.plan-table/1``: latency, throughput and energy by board and mode.

    Args:
        work: The configuration; its board and mode hold where none are named.
        modes: Power modes, or "all".
        targets: Boards.
        objective: Of the plans; None: a row for each of latency, throughput and energy.
        power_mode: The mode of the boards that have it, where no modes are named; None: the
            configuration's.

    Raises:
        UsageError: An unknown board, or a mode that none of the boards has.
        GateError: No row has a plan. A row without one has an ``error``.
    """
    pairs = list(_pairs(work, modes, targets, power_mode or work.file.power_mode))
    objectives = [objective] if objective else list(OBJECTIVES)
    rows, failures = [], []
    for number, (board, mode, note) in enumerate(pairs):
        for step, aim in enumerate(objectives):
            row: dict[str, Any] = {
                "target": board.name, "power_mode": mode, "precision": work.file.precision,
                "objective": aim, "dla_cores": [], **dict.fromkeys(METRICS),
                "bands": {}, "plans": {}, "notes": [note] if note else [], "error": None,
            }  # fmt: skip
            rows.append(row)
            done = number * len(objectives) + step
            work.update(done, len(pairs) * len(objectives), f"{board.name} {mode}, {aim}")
            try:
                row["power_mode"] = board.mode(mode).name
                plan = _plan(work, board, row["power_mode"], aim, row)
            except (GateError, UsageError) as error:
                if isinstance(error, UsageError) and error.code != "target.mode":
                    raise
                failures.append(error)
                row["error"] = error.to_json()["error"]
                break
            values = plan.predicted.to_json()
            for metric in METRICS:
                row[metric] = values[metric]
                row["bands"][metric] = plan.bands.get(metric)
            row["plans"][aim] = _proof(plan)
    if failures and all(row["error"] for row in rows):
        raise failures[0]
    return {
        "schema": SCHEMA,
        "clock": "predicted",
        "model": work.source.source,
        "objective": objective,
        "rows": rows,
    }


def _pairs(
    work: Work, modes: Sequence[str], targets: Sequence[str], asked: str | None
) -> Iterator[tuple[Target, str, str]]:
    """Yields board, mode and what is to be said of the mode."""
    from edgekit import targets as boards

    found_on = [boards.get(name) for name in dict.fromkeys(targets) or (work.file.target,)]
    lacking = [error for board in found_on if (error := _lack(board, asked))]
    if lacking and not modes and len(lacking) == len(found_on):
        raise lacking[0]
    for board in found_on:
        name = board.name
        if list(modes) == ["all"]:
            if not board.power_modes:
                raise UsageError("its power modes are not known", where=name, code="target.mode")
            found = list(board.power_modes)
        else:
            found = list(modes)
        if found:
            yield from ((board, mode, "") for mode in dict.fromkeys(found))
            continue
        lacks = _lack(board, asked) is not None
        mode = board.mode(None if lacks else asked).name
        yield board, mode, f"{name} has no power mode {asked}: {mode} instead" if lacks else ""


def _lack(board: Target, mode: str | None) -> UsageError | None:
    """Returns the error where a board does not have a mode."""
    try:
        board.mode(mode)
    except UsageError as error:
        return error
    return None


def _plan(work: Work, board: Target, mode: str, objective: str, row: dict[str, Any]) -> Plan:
    placement = work.file.placement
    cores = [core for core in placement.dla_cores if core < board.dla.cores]
    other = work.variant(
        target=board.name, power_mode=mode,
        placement={"objective": objective, "dla_cores": cores},
    )  # fmt: skip
    other.explains = False
    row["dla_cores"] = cores
    row["tensorrt"] = other.tensorrt
    return other.plan


def _proof(plan: Plan) -> dict[str, Any]:
    from edgekit.placement import frame_times, plan_summary

    kept = ("value", "unit", "optimal", "bound", "gap", "extrapolated", "layers", "loadables",
            "transitions")  # fmt: skip
    summary = plan_summary(plan)
    busy = frame_times(plan)["busy_us"]
    total = sum(busy.values())
    share = busy.get("GPU", 0.0) / total if total else 1.0
    return {**{key: summary[key] for key in kept}, "gpu_share": share, "dla_share": 1.0 - share}
