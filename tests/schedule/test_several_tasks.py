"""A plan as tasks: they add up, and each comes after what it needs."""

import pytest

from edgekit.schedule.own_plans import plan_route
from edgekit.solver.evaluation import evaluate
from edgekit.solver.problem import OUTSIDE, Border, Cost, Goal, Mode, PlacementProblem, Transfer

TO_DLA, TO_GPU, IO = 5.0, 7.0, 3.0


def problem():
    """Four nodes in a row on the GPU or a core; what the last hand-over takes is the core's."""
    into = Transfer(frozenset({(0, 1)}), (Cost((TO_DLA, 0, 0)),))
    out = Transfer(frozenset({(1, 0)}), (Cost((TO_GPU, 0, 0)),))
    last = Transfer(frozenset({(1, 0)}), (Cost((0, IO, 0)),))
    borders = [Border(OUTSIDE, (0,), (into,))]
    borders += [Border(v, (v + 1,), (into, out)) for v in range(3)]
    borders.append(Border(3, (), (last,), output=True))
    return PlacementProblem(
        ("GPU", "DLA1"),
        (Mode(0), Mode(1)),
        tuple((Cost((10.0 + v, 0, 0)), Cost((0, 20.0 + v, 0))) for v in range(4)),
        tuple(borders),
        (None, Cost((0, 2.0, 0))),
    )


@pytest.mark.parametrize(
    ("modes", "devices"),
    [
        ((0, 0, 0, 0), (0,)),
        ((0, 1, 1, 0), (0, 2, 0)),
        ((1, 0, 0, 1), (0, 2, 0, 2)),
        ((1, 1, 1, 1), (0, 2)),
    ],
)
def test_tasks_add_up_in_the_order_of_the_nodes(modes, devices):
    placing = evaluate(problem(), modes, Goal.of(problem(), "latency"))
    route, nodes = plan_route(problem(), placing, ("GPU", "DLA0", "DLA1"))
    assert sum(task.work_us for task in route.tasks) == pytest.approx(placing.value)
    assert [v for row in nodes for v in row] == [0, 1, 2, 3]
    changes = [
        t.device
        for n, t in enumerate(route.tasks)
        if not n or t.device != route.tasks[n - 1].device
    ]
    assert tuple(changes) == devices
    gpu = sum(task.work_us for task in route.tasks if task.device == 0)
    assert gpu == pytest.approx(placing.load_us[0])
    assert route.loadables == (0, 0, devices.count(2))


def test_reformats_between_two_loadables_are_the_gpus_own_task():
    """The first node feeds a loadable only through the GPU, which has nothing else to do."""
    to_core = Transfer(frozenset({(1, 2)}), (Cost((TO_DLA, 0, 0, 0)),))
    two = PlacementProblem(
        ("GPU", "DLA0", "DLA1"),
        (Mode(0), Mode(1), Mode(2)),
        ((None, Cost((0, 20.0, 0, 0)), None), (None, None, Cost((0, 0, 30.0, 0)))),
        (Border(0, (1,), (to_core,)),),
        (None, Cost((0, 2.0, 0, 0)), Cost((0, 0, 2.0, 0))),
    )
    placing = evaluate(two, (1, 2), Goal.of(two, "latency"))
    route, nodes = plan_route(two, placing, two.devices)
    reported = [(task.device, task.work_us) for task in route.tasks]
    assert reported == [(1, 22.0), (0, TO_DLA), (2, 32.0)]
    assert nodes == ((0,), (), (1,))
    assert [task.last < task.first for task in route.tasks] == [False, True, False]
