"""Published times of networks by part: the optimum of each is that of every placement tried."""

from __future__ import annotations

import itertools

import pytest

from edgekit.solver.optimiser import minimise
from edgekit.solver.problem import Border, Cost, Goal, Mode, PlacementProblem, Transfer

# Milliseconds by part on GPU and DLA of AGX Xavier in FP16; for GoogLeNet also the milliseconds
# that leaving the DLA and the GPU costs after each part:
# github.com/ismetdagli/HaX-CoNN, src/z3_solver_multi_dnn.py, commit 87f5f25e.
GOOGLENET = (
    (0.35, 0.15, 0.20, 0.11, 0.12, 0.13, 0.15, 0.19, 0.12, 0.20),
    (0.75, 0.34, 0.45, 0.37, 0.31, 0.33, 0.31, 0.35, 0.27, 0.36),
)
LEAVING_DLA = (0.0735, 0.064, 0.0672, 0.0561, 0.0484, 0.0466, 0.0452, 0.0463, 0.0505)
LEAVING_GPU = (0.0199, 0.028, 0.0097, 0.0407, 0.0279, 0.0362, 0.0372, 0.0277, 0.0428)
ALEXNET = (
    (0.15, 0.06, 0.22, 0.08, 0.16, 0.70, 0.32, 0.10),
    (0.41, 0.20, 0.45, 0.22, 0.41, 1.91, 0.68, 0.13),
)
Table = tuple[tuple[float, ...], tuple[float, ...]]


def chain(table: Table, leaving: Table, slots: int | None) -> PlacementProblem:
    """Returns parts in a row on a GPU and a core; moves are the GPU's work."""
    nothing = Cost((0.0, 0.0, 0.0))
    gpu, dla = table
    borders = tuple(
        Border(
            v,
            (v + 1,) if v + 1 < len(gpu) else (),
            tuple(
                Transfer(frozenset({(source, 1 - source)}), (Cost((leaving[source][v], 0.0, 0.0)),))
                for source in (0, 1)
                if v + 1 < len(gpu)
            ),
            output=v + 1 == len(gpu),
        )
        for v in range(len(gpu))
    )
    costs = tuple((Cost((a, 0.0, 0.0)), Cost((0.0, b, 0.0))) for a, b in zip(gpu, dla, strict=True))
    return PlacementProblem(
        ("GPU", "DLA0"), (Mode(0), Mode(1)), costs, borders, (None, nothing), max_loadables=slots
    )


def least(table: Table, leaving: Table, slots: int | None, objective: str) -> float:
    """Returns the least value of all placements."""
    found = []
    for devices in itertools.product((0, 1), repeat=len(table[0])):
        runs = [device for device, _ in itertools.groupby(devices)]
        if slots is not None and sum(runs) > slots:
            continue
        loads = [0.0, 0.0]
        for v, device in enumerate(devices):
            loads[device] += table[device][v]
            if v and devices[v - 1] != device:
                loads[0] += leaving[devices[v - 1]][v - 1]
        found.append({"latency": sum(loads), "period": max(loads), "gpu_time": loads[0]}[objective])
    return min(found)


@pytest.mark.parametrize("objective", ["latency", "period", "gpu_time"])
@pytest.mark.parametrize("slots", [None, 1, 2])
@pytest.mark.parametrize(
    ("table", "leaving"),
    [(GOOGLENET, (LEAVING_GPU, LEAVING_DLA)), (ALEXNET, ((0.0,) * 7, (0.0,) * 7))],
    ids=["googlenet", "alexnet"],
)
def test_published_times_have_the_optimum_of_all_placements(
    table: Table, leaving: Table, slots: int | None, objective: str
) -> None:
    problem = chain(table, leaving, slots)
    found = minimise(problem, Goal.of(problem, objective))
    assert found.placing is not None
    assert found.placing.value == pytest.approx(least(table, leaving, slots, objective), rel=1e-4)
    assert found.placing.value - found.bound <= 1e-4 * found.placing.value


def test_one_frame_of_googlenet_is_fastest_on_the_gpu_and_many_frames_use_both() -> None:
    problem = chain(GOOGLENET, (LEAVING_GPU, LEAVING_DLA), 1)
    one = minimise(problem, Goal.of(problem, "latency")).placing
    many = minimise(problem, Goal.of(problem, "period")).placing
    assert one is not None
    assert many is not None
    assert one.value == pytest.approx(1.72)
    assert set(many.modes) == {0, 1}
    assert many.value < 1.4
