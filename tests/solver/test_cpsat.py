"""OR-Tools: missing, it is one clear error; a Ctrl-C ends a search at once; nothing else solves."""

import signal
import subprocess
import sys

import pytest

from edgekit.errors import EnvironmentLack
from edgekit.solver.optimiser import minimise
from edgekit.solver.problem import Goal
from edgekit.solver.program import Expression, Program
from tests.solver.cases import pooled_problem

SEARCH = """
import signal
from edgekit.dla.judge import judge
from edgekit.network.lowering.layers import layers
from edgekit.network.zoo import builtin
from edgekit.placement.placing import place
from edgekit.placement.plan import Options
from edgekit.targets.loader import get

# a shell's background job has it ignored, and so has all that it starts
signal.signal(signal.SIGINT, signal.default_int_handler)
board = get("jetson-agx-orin-64gb")
network = layers(builtin("light_inception_v1", 0))
verdicts = judge(network, board, precision="fp16")
options = Options(objective="period", dla_cores=(0, 1))


def on_bound(value, bound):
    print(value, bound, flush=True)


place(network, verdicts, board, precision="fp16", options=options, on_bound=on_bound)
print("done", flush=True)
"""


def test_missing_ortools_is_reported(monkeypatch):
    monkeypatch.setitem(sys.modules, "ortools.linear_solver.pywraplp", None)
    monkeypatch.setitem(sys.modules, "ortools.sat.python.cp_model", None)
    problem = pooled_problem(3, 10, 45.0, 2)
    with pytest.raises(EnvironmentLack) as caught:
        minimise(problem, Goal.of(problem, "latency"))
    assert caught.value.code == "solver.missing"
    assert "pip install" in caught.value.hint


@pytest.mark.whole
@pytest.mark.slow
def test_ctrl_c_ends_a_search_and_nothing_is_left():
    with subprocess.Popen(
        [sys.executable, "-c", SEARCH], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        value, bound = map(float, first.split())
        assert value >= bound
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=300)
    assert "done" not in rest, errors
    assert errors.strip().endswith("KeyboardInterrupt")


def test_what_nothing_fulfils_is_proved_infeasible():
    program = Program()
    one, other = (program.variable(1.0, integer=True) for _ in range(2))
    program.row(Expression({one: 2.0, other: 2.0}), low=1.0, high=1.0)
    assert program.solve().values is None
    assert program.solve().bound == float("inf")
    program.row(Expression({one: 1.0}), low=2.0)
    assert program.relax().bound == float("inf")
