"""The ``edgekit.plan-table/1``: plans of one network by board, power mode and objective."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

from pydantic import Field

from edgekit.documents import (
    Band,
    Coded,
    Core,
    Count,
    Device,
    Document,
    Figure,
    Fraction,
    Precision,
    Release,
    TargetName,
    omitted,
)
from edgekit.errors import EdgekitError, UsageError
from edgekit.placement.placing import Objective, PlanProof, Unit
from edgekit.placement.plan import Plan, SlackChoice, plan_summary
from edgekit.targets.board import Target
from edgekit_device.protocol.failure import Failure

#: The default objectives of a table.
OBJECTIVES = ("latency", "throughput", "energy")


class TablePlan(PlanProof):
    """The proof of a row's plan, and the plan's use of each device.

    Attributes:
        dla_share: The DLA's share of the devices' working time for a frame, 0 to 1.
    """

    value: Figure | None = Field(description="the objective's, in the unit")
    unit: Unit = Field(description="us, uj or qps")
    slack: Annotated[SlackChoice, Coded()] | None = None
    layers: dict[Device, Count] = Field(description="how many, by device")
    gpu_share: Fraction = Field(description="of the devices' working time for a frame")
    dla_share: Fraction


class TableRow(Document):
    """One plan; figures are null if no layer has a known time, or there is no plan.

    Attributes:
        dla_cores: Numbers of the cores that may be used.
    """

    target: TargetName
    power_mode: str
    precision: Precision
    tensorrt: Release | None = omitted()
    objective: Objective
    dla_cores: list[Core]
    latency_us: Figure | None = None
    throughput_qps: Figure | None = Field(None, description="frames a second")
    energy_uj: Figure | None = None
    gpu_us: Figure | None = None
    bands: dict[str, Band | None] = Field(description="the range of each figure, in its unit")
    plans: dict[str, TablePlan] = Field(description="the plan, by its objective")
    notes: list[str]
    error: Annotated[Failure, Coded()] | None = Field(None, description="why the row has no plan")


class PlanTable(Document):
    """Latency, throughput and energy by board and power mode; all is predicted."""

    schema_: Literal["edgekit.plan-table/1"] = Field(alias="schema")
    clock: Literal["predicted"]
    model: str
    objective: Objective | None = Field(description="of all rows; null: each row has its own")
    rate_hz: Figure | None = Field(description="that energies are of; null: back to back")
    rows: list[TableRow]


def with_plan(row: TableRow, plan: Plan) -> TableRow:
    """Returns a row with the figures and the proof of its plan."""
    summary, busy = plan_summary(plan), plan.frame.busy_us
    figures = plan.predicted.to_json()
    total = sum(us or 0.0 for us in busy.values())
    share = (busy.get("GPU") or 0.0) / total if total else 1.0
    proof = TablePlan(
        value=summary.value,
        unit=summary.unit,
        optimal=plan.optimal,
        bound=plan.bound,
        gap=plan.gap,
        slack=plan.slack,
        extrapolated=list(plan.extrapolated),
        unknown_cost=list(plan.unknown_cost),
        layers=dict(summary.layers),
        loadables=summary.loadables,
        transitions=plan.transitions,
        gpu_share=share,
        dla_share=1.0 - share,
    )
    return row.model_copy(
        update={
            **figures,
            "bands": {key: plan.bands.get(key) for key in figures},
            "plans": {row.objective: proof},
        }
    )


def with_error(row: TableRow, error: EdgekitError) -> TableRow:
    """Returns a row with the reason why it has no plan."""
    found = error.stated()
    why = Failure(found.code, found.message, found.where, found.hint)
    return row.model_copy(update={"error": why})


def without_plan(board: Target, mode: str, precision: str, objective: str, note: str) -> TableRow:
    """Returns a row before its plan is known."""
    return TableRow(
        target=board.name,
        power_mode=mode,
        precision=precision,
        objective=objective,
        dla_cores=[],
        latency_us=None,
        throughput_qps=None,
        energy_uj=None,
        gpu_us=None,
        bands={},
        plans={},
        notes=[note] if note else [],
        error=None,
    )


def table_modes(
    boards: Sequence[Target], modes: Sequence[str], requested: str | None
) -> Iterator[tuple[Target, str, str]]:
    """Yields board, mode and a note on the mode.

    Args:
        boards: The boards.
        modes: Power modes, or "all"; empty for one mode of each board.
        requested: The mode for empty ``modes``, if the board has it; None for the board's default.

    Raises:
        UsageError: "target.mode": no board has the mode, or a board's modes are unknown.
    """
    lacking = [error for board in boards if (error := _missing_mode_error(board, requested))]
    if lacking and not modes and len(lacking) == len(boards):
        raise lacking[0]
    for board in boards:
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
        # a mode of one board, such as 50W, need not exist on the others
        lacks = _missing_mode_error(board, requested) is not None
        mode = board.mode(None if lacks else requested).name
        yield board, mode, f"{name} has no power mode {requested}; {mode} is used" if lacks else ""


def _missing_mode_error(board: Target, mode: str | None) -> UsageError | None:
    """Returns the error if a board lacks a mode, else None."""
    try:
        board.mode(mode)
    except UsageError as error:
        return error
    return None
