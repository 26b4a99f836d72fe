"""CP-SAT's process: what goes wrong there is one clear error here, and nothing stays behind."""

import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from edgekit.errors import EnvironmentLack
from edgekit.solver.cpsat import process as process_module
from edgekit.solver.cpsat.process import run_worker


def test_the_worker_is_retained_and_a_failed_task_does_not_end_it():
    with pytest.raises(EnvironmentLack) as caught:
        run_worker("steps", {"nothing": 1}, seconds=5)
    assert caught.value.code == "solver.failed"
    first = process_module._running[0].process.pid
    with pytest.raises(EnvironmentLack, match="KeyError"):
        run_worker("no such task", {}, seconds=5)
    assert process_module._running[0].process.pid == first
    assert not any("ortools" in name for name in sys.modules)


def test_a_killed_worker_is_an_error_and_the_next_call_has_a_new_one():
    with pytest.raises(EnvironmentLack):
        run_worker("steps", {}, seconds=5)
    process = process_module._running[0].process
    os.kill(process.pid, signal.SIGSTOP)  # so that it takes the question and cannot answer
    killer = threading.Timer(0.1, process.kill)
    killer.start()
    with pytest.raises(EnvironmentLack) as caught:
        run_worker("steps", {}, seconds=5)
    killer.join()
    assert caught.value.code == "solver.stopped"
    assert "status -9" in caught.value.message
    with pytest.raises(EnvironmentLack) as caught:
        run_worker("steps", {}, seconds=5)
    assert caught.value.code == "solver.failed"


def test_a_worker_that_hangs_is_killed(monkeypatch):
    with pytest.raises(EnvironmentLack):
        run_worker("steps", {}, seconds=5)
    process = process_module._running[0].process
    os.kill(process.pid, signal.SIGSTOP)
    monkeypatch.setattr(process_module, "GRACE_S", 0.1)
    with pytest.raises(EnvironmentLack) as caught:
        run_worker("steps", {}, seconds=0.1)
    assert caught.value.code == "solver.stopped"
    assert process.poll() == -signal.SIGKILL


def test_missing_ortools_is_reported(tmp_path, monkeypatch):
    (tmp_path / "ortools.py").write_text("raise ImportError('not here')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    process_module.stop_worker()
    try:
        with pytest.raises(EnvironmentLack) as caught:
            run_worker("steps", {}, seconds=5)
    finally:
        process_module.stop_worker()  # the next one finds OR-Tools again
    assert caught.value.code == "solver.missing"
    assert "pip install" in caught.value.hint


def test_the_worker_ends_with_whoever_started_it():
    """Amid a search, however that one ended; it does not wait for its own answer."""
    code = (
        "import os, sys, threading\n"
        "from edgekit.solver.cpsat import process\n"
        "worker = process._Worker()\n"
        "print(worker.process.pid, flush=True)\n"
        "sys.stdin.readline()\n"
        "os._exit(1)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.communicate("go\n", timeout=30)
    assert _ended(pid)


def test_ctrl_c_leaves_no_process(monkeypatch):
    with pytest.raises(EnvironmentLack):
        run_worker("steps", {}, seconds=5)
    process = process_module._running[0].process

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(process_module._Worker, "exchange", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_worker("steps", {}, seconds=5)
    assert process.poll() is not None
    assert not process_module._running


def test_the_worker_does_not_load_highs():
    code = (
        "import sys, json\n"
        "from edgekit.solver.cpsat import makespan_model, running_order_model, timetable_model\n"
        "from edgekit.solver.cpsat import worker\n"
        "print(json.dumps([n for n in sys.modules if n.startswith(('highspy', 'ortools'))]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert json.loads(done.stdout) == []


def _ended(pid: int) -> bool:
    """Whether the process is gone, or dead and not yet collected, within ten seconds."""
    until = time.monotonic() + 10
    while time.monotonic() < until:
        try:
            with open(f"/proc/{pid}/stat") as file:
                if file.read().rsplit(")", 1)[1].split()[0] == "Z":
                    return True
        except FileNotFoundError:
            return True
        os.sched_yield()
    return False
