"""The board's ``bench`` through the real zipapp: what it measures with, and what surrounds it."""

from __future__ import annotations

import io
import json
import os
import subprocess
import time
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

from edgekit_device.arrays.npz import write_npz
from edgekit_device.benchmark.command import do_bench
from edgekit_device.board import power
from edgekit_device.board.samples import Monitor
from edgekit_device.commands import make_parser
from edgekit_device.errors import DeviceError
from edgekit_device.runtime.model import Model
from edgekit_device.store.root import Root
from tests.edgekit_device.device_board import BoardFolder, Refused, bench_option
from tests.processes import processes


def test_a_bench_says_what_it_ran_with_and_what_the_board_did(
    board: BoardFolder, installed: str
) -> None:
    frames = np.random.default_rng(3).normal(size=(4, 1, 3, 8, 8)).astype(np.float32)
    given = {
        "warmup_ms": 1,
        "duration_s": 0.1,
        "iterations": 7,
        "streams": 2,
        "graph": True,
        "spin": True,
        "transfers": True,
        "sleep_ms": 1,
        "idle_ms": 60,
        "monitor_ms": 20,
    }
    options = ("--app", "toy", "--threads=1", "--inputs", bench_option(**given))
    found = board.command("bench", *options, stdin=write_npz({"x": frames}))
    assert found["settings"] == {**given, "threads": 1, "data": "given", "batch": 1}
    runtime = found["runtime"]
    assert runtime["library"] == "onnxruntime"
    assert (runtime["flags"]["graph"], runtime["flags"]["spin"]) == (False, None)
    assert "graph, spin" in runtime["notes"][-1]
    assert set(found["phases_ms"].values()) == {None}
    assert min(one["iterations"] for one in found["streams"]) >= 7
    assert len(found["samples_ms"]) == found["iterations"]
    assert found["cold"]["open_ms"] > 0 < found["cold"]["first_ms"]
    assert found["memory"]["peak_rss_bytes"] >= found["memory"]["rss_bytes"] > 0
    assert found["memory"]["gpu_total_bytes"] is None
    monitor = found["monitor"]
    assert all(sample["t_s"] < 0 for sample in monitor["idle"])
    assert (monitor["schema"], monitor["interval_ms"]) == ("edgekit.monitor/1", 20)
    assert found["trtexec"] is None


def test_inputs_of_another_shape_are_refused(board: BoardFolder, installed: str) -> None:
    with pytest.raises(Refused) as caught:
        board.raw(
            "bench",
            "--app",
            "toy",
            "--inputs",
            stdin=write_npz({"x": np.zeros((2, 3, 8, 8), np.float32)}),
        )
    assert caught.value.code == "input.shape"
    with pytest.raises(Refused) as caught:
        board.raw("bench", "--app", "toy", bench_option(streams=0))
    assert caught.value.code == "bench.streams"


def test_stages_come_before_the_answer(board: BoardFolder, installed: str) -> None:
    how = bench_option(warmup_ms=10, duration_s=0.02, iterations=1, profile=True)
    lines = board.raw("bench", "--app", "toy", "--progress", how).splitlines()
    stages = [json.loads(line) for line in lines[:-1]]
    names = ["open", "warm-up", "measure", "pipelined", "layers"]
    assert [one["stage"] for one in stages] == names
    assert [one["left_s"] for one in stages] == [0.03, 0.03, 0.02, 0.02, None]
    assert json.loads(lines[-1])["schema"] == "edgekit.device.bench/1"


class Watcher:
    """In the sampler's place; notes what is called between frames."""

    said: ClassVar[list[str]] = []

    def __init__(self, interval_ms: int, **known: Any) -> None:
        self.said[:] = []

    def start(self) -> None:
        self.said.append("start")

    def warming(self) -> None:
        self.said.append("warming")

    def mark(self) -> None:
        self.said.append("mark")

    def stop(self) -> Monitor:
        self.said.append("stop")
        return Monitor()


@pytest.mark.parametrize("fails", [False, True])
def test_the_board_is_watched_idle_warming_up_and_measured(
    board: BoardFolder, installed: str, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    monkeypatch.setattr("edgekit_device.benchmark.command.Sampler", Watcher)
    monkeypatch.setattr(
        power, "PowerTools", lambda file: SimpleNamespace(mode=lambda: None, clocks=lambda: None)
    )
    run_lane = Model.run_lane

    def counted(self: Model, lane: int, inputs: Any, record: Any = None, number: int = 0) -> Any:
        Watcher.said.append("warm" if record is None else "frame")
        if fails and record is not None:
            raise DeviceError("no", code="engine.failed")
        return run_lane(self, lane, inputs, record, number)

    monkeypatch.setattr(Model, "run_lane", counted)
    how = bench_option(warmup_ms=1, duration_s=0, iterations=3, monitor_ms=20)
    argv = ["bench", "--app", "toy", how]
    arguments = make_parser().parse_args(argv)
    Watcher.said[:] = []
    if fails:
        with pytest.raises(DeviceError):
            do_bench(Root(board.root), arguments, io.BytesIO())
        assert Watcher.said[-2:] == ["frame", "stop"]
        return
    assert do_bench(Root(board.root), arguments, io.BytesIO()).monitor == Monitor()
    said = "".join(one[0] for one in Watcher.said if one not in ("warm",))
    assert said == "swmfffs"
    assert Watcher.said.count("stop") == 1
    assert Watcher.said[1] == "warming"


def test_what_watches_the_board_goes_with_the_host(board: BoardFolder, installed: str) -> None:
    argv = board.argv(
        "bench",
        "--app",
        "toy",
        "--watch-stdin=0",
        bench_option(duration_s=600, monitor_ms=50, streams=2),
    )
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin
    assert process.stdout
    until = time.monotonic() + 120
    while not (watching := _watching(process.pid)) and time.monotonic() < until:
        os.sched_yield()
    assert len(watching) == 1
    process.stdin.close()
    assert process.wait(120.0) == 143
    process.stdout.close()
    while _watching(process.pid) and time.monotonic() < until:
        os.sched_yield()
    assert _watching(process.pid) == []


def _watching(pid: int) -> list[int]:
    """Processes that sample for the process ``pid``."""
    return [
        one
        for one, words in processes().items()
        if "board.sampling" in (line := " ".join(words)) and f'"process": {pid}' in line
    ]
