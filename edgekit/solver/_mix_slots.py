"""A mix whose plans share the slots of their cores: which of the known plans to load, and where."""

from __future__ import annotations

from collections.abc import Sequence

from edgekit.solver._highs import Expression, Program
from edgekit.solver._mix_master import Column, Lane, loads_of, speeds_of

__all__ = ["sharing"]

NOTHING = 1e-7
NODES = 2_000

Chosen = tuple[Column, "int | None", float]


def sharing(lanes: Sequence[Lane], columns: Sequence[Column], slots: int) -> list[Chosen]:
    """Returns plans with the core and the rate (frames a microsecond) of each.

    Args:
        lanes: The cores.
        columns: The plans to choose from.
        slots: Loadables that a core can hold, of all plans together.
    """
    options: list[tuple[Column, int | None]] = []
    for column in columns:
        cores = lanes[column.lane].cores if column.slots(lanes) else ()
        options += [(column, core) for core in cores or (None,)]
    picked = _solve(lanes, options, slots)
    # Once more without the others: a basic solution needs no more plans than there are devices.
    return _solve(lanes, [(column, core) for column, core, _ in picked], None)


def _solve(
    lanes: Sequence[Lane],
    options: Sequence[tuple[Column, int | None]],
    slots: int | None,
) -> list[Chosen]:
    if not options:
        return []
    unit = sum(loads_of(lanes, options[0][0]))
    program = Program()
    rates = [program.variable(cost=-1.0) for _ in options]
    shared = len(lanes[0].shared)
    own = [[us / unit for us in loads_of(lanes, column)] for column, _ in options]
    sets = speeds_of(lanes)
    times = [program.variable() for _ in sets]
    program.row(Expression(dict.fromkeys(times, 1.0)), high=1.0)

    def within(used: Expression, device: int) -> None:
        for time, speeds in zip(times, sets, strict=True):
            used.add(time, -speeds[device])
        program.row(used, high=0.0)

    for number, device in enumerate(lanes[0].shared):
        used = {f: load[number] for f, load in zip(rates, own, strict=True)}
        within(Expression(used), device)
    for core in (core for lane in lanes for core in lane.cores):
        on_core = [i for i, (_, where) in enumerate(options) if where == core]
        loads = {rates[i]: own[i][shared + options[i][0].lane] for i in on_core}
        within(Expression(loads), core)
        if slots is None:
            continue
        taken = Expression()
        for i in on_core:
            loaded = program.variable(1.0, integer=True)
            taken.add(loaded, float(options[i][0].slots(lanes)))
            most = 1.0 / max(own[i])  # frames in the time of the busiest device
            program.row(Expression({rates[i]: 1.0, loaded: -most}), high=0.0)
        program.row(taken, high=float(slots))
    values = program.solve(nodes=NODES).values
    if values is None:
        return []
    return [
        (column, core, values[f] / unit)
        for f, (column, core) in zip(rates, options, strict=True)
        if values[f] > NOTHING
    ]
