"""Checks the CUDA half of a bench on a real GPU; no TensorRT is needed.

    python benchmarks/cuda_events.py [--json FILE]

Each check runs in a process of its own for each way to call the driver (cuda-python, ctypes), since
how a process waits is settled once. A kernel that counts nanoseconds on the GPU's own clock takes
the place of TensorRT's engine, so that the right times of events are known. Checked: events around
kernels and pinned copies, their places in time, a graph's replay, waiting spinning and blocked (by
the processor time that it takes), memory, and a whole bench, both ways (``benchmark.measure``).
Exit status 1 when a check fails. Where it ran: docs/not-yet-on-hardware.md.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.cuda_stand_in import Kernel, stand_in
from edgekit_device.benchmark.events import EventPairs
from edgekit_device.benchmark.measure import bench
from edgekit_device.benchmark.settings import BenchSettings
from edgekit_device.cuda.driver import Cuda, CudaGraph, choose_wait, open_cuda, wait_mode
from edgekit_device.cuda.memory import BufferPool
from edgekit_device.errors import DeviceError
from edgekit_device.protocol.codec import write

_MS = 2.0
_FRAMES = 60
_COPY = 256 << 20
_SLACK_S = 50e-6  # how well the GPU's clock and the host's are known to each other


def kernels(cuda: Cuda) -> dict[str, Any]:
    """Events around a kernel of known length, one and many."""
    kernel, stream, marks = Kernel(cuda), cuda.stream(), EventPairs(cuda)
    kernel.launch(stream, _MS)

    def run(number: int, ms: float) -> None:
        first, last = marks.pair("compute")
        cuda.record(first, stream)
        kernel.launch(stream, ms)
        cuda.record(last, stream)
        cuda.synchronize(stream)
        marks.frame(number)

    for number in range(_FRAMES):
        run(number, _MS)
    before = time.perf_counter()
    run(_FRAMES, 20.0)
    after = time.perf_counter()
    (span,) = marks.read(1)
    reported = [frame["compute"] for frame in marks.frames[:-1]]
    median = float(np.median(reported))
    late = span.start - before
    return {
        "ok": abs(median / _MS - 1) < 0.02
        and late > -_SLACK_S
        and span.start + span.ms / 1e3 < after + _SLACK_S,
        "asked_ms": _MS,
        "median_ms": median,
        "min_ms": min(reported),
        "max_ms": max(reported),
        "span_starts_after_us": late * 1e6,
        "span_ends_before_us": (after - span.start - span.ms / 1e3) * 1e6,
    }


def copies(cuda: Cuda) -> dict[str, Any]:
    """Events around copies of pinned memory, beside the same from memory that is not pinned."""
    stream, marks = cuda.stream(), EventPairs(cuda)
    pinned, device = BufferPool(cuda, pinned=True).take(_COPY), BufferPool(cuda).take(_COPY)
    loose = np.ones(_COPY, np.uint8)
    pinned.array()[:] = 7
    cuda.observe(marks)
    for number, source in enumerate([pinned.ptr] * 5 + [loose.ctypes.data] * 5):
        cuda.copy(device.ptr, source, _COPY, "h2d", stream)
        if source == pinned.ptr:
            cuda.copy(pinned.ptr, device.ptr, _COPY, "d2h", stream)
        cuda.synchronize(stream)
        marks.frame(number)
    cuda.observe(None)
    marks.read()
    there = min(frame["h2d"] for frame in marks.frames[1:5])
    back = min(frame["d2h"] for frame in marks.frames[1:5])
    slow = min(frame["h2d"] for frame in marks.frames[6:])
    rates = [_COPY / ms / 1e6 for ms in (there, back, slow)]
    retained = bool((pinned.array() == 7).all())
    return {
        "ok": retained and rates[0] > rates[2] and 1 < rates[0] < 1000,
        "h2d_gb_s": rates[0],
        "d2h_gb_s": rates[1],
        "h2d_not_pinned_gb_s": rates[2],
    }


def graph(cuda: Cuda) -> dict[str, Any]:
    """100 short kernels one by one and as a graph: the same work in less of the host's time."""
    kernel, stream = Kernel(cuda), cuda.stream()

    def work() -> None:
        for _ in range(100):
            kernel.launch(stream, 0.0)

    work()
    cuda.synchronize(stream)
    start = kernel.count()
    replayed = CudaGraph(cuda, stream, work)
    idle = kernel.count() == start  # a capture runs no kernel
    enqueue: list[float] = []
    launch: list[float] = []
    for _ in range(50):
        for call, spent in ((work, enqueue), (replayed.launch, launch)):
            began = time.perf_counter()
            call()
            spent.append((time.perf_counter() - began) * 1e6)
            cuda.synchronize(stream)
    done = kernel.count() - start
    refused = ""
    try:
        CudaGraph(cuda, stream, lambda: cuda.synchronize(stream))
    except DeviceError as error:
        refused = error.message
    kernel.launch(stream, 0.0)  # the stream takes work again
    cuda.synchronize(stream)
    found = float(np.median(enqueue)), float(np.median(launch))
    return {
        "ok": idle and done == 50 * 2 * 100 and bool(refused) and found[1] < found[0],
        "enqueue_us": found[0],
        "launch_us": found[1],
        "kernels": done,
        "refused": refused,
    }


def memory(cuda: Cuda) -> dict[str, Any]:
    """Free memory before and after an allocation."""
    before, total = cuda.memory()
    place = cuda.malloc(1 << 30)
    after, _ = cuda.memory()
    cuda.free(place)
    return {"ok": before - after == 1 << 30, "total_bytes": total, "taken_bytes": before - after}


def bench_stand_in(cuda: Cuda) -> dict[str, Any]:
    """A bench of an imitated engine, in every way; its frames come out right, too."""
    found: dict[str, Any] = {"ok": True}
    model = stand_in(cuda, _MS)
    frames = [{"x": np.full(model.inputs[0].shape, n, np.float32)} for n in range(3)]
    for frame in frames:
        found["ok"] &= bool(np.array_equal(model(frame)["y"], frame["x"] * 2))
    plain = BenchSettings(50.0, 0.5, 10)
    ways = {
        "as callers run it": plain,
        "two streams": replace(plain, streams=2),
        "graph": replace(plain, graph=True),
        "no transfers": replace(plain, transfers=False),
        "graph, no transfers": replace(plain, graph=True, transfers=False),
    }
    for name, settings in ways.items():
        reported = bench(model, frames, settings)
        assert reported.phases_ms is not None
        assert reported.latency_ms is not None
        phases = {k: v["median"] for k, v in reported.phases_ms.items() if v is not None}
        compute = phases["compute"]
        alone = reported.streams is None
        good = abs(compute / _MS - 1) < 0.05 if alone else compute >= _MS * 0.98
        copied = "h2d" in phases and "d2h" in phases
        found["ok"] &= good and copied == settings.transfers
        found[name] = {
            "median_ms": reported.latency_ms["median"],
            "p999_ms": reported.latency_ms["p999"],
            "qps": reported.throughput_qps,
            **phases,
        }
    return found


def measure_wait(wanted: str) -> dict[str, Any]:
    """The processor's time in a wait of 200 ms, with the wait asked for before CUDA is opened."""
    if wanted != "auto":
        choose_wait(wanted == "spin")
    cuda = open_cuda()
    kernel, stream = Kernel(cuda), cuda.stream()
    kernel.launch(stream, 1.0)
    cuda.synchronize(stream)
    kernel.launch(stream, 200.0)
    began, used = time.perf_counter(), time.thread_time()
    cuda.synchronize(stream)
    wall, busy = time.perf_counter() - began, time.thread_time() - used
    latencies = []
    for _ in range(300):
        start = time.perf_counter()
        kernel.launch(stream, 0.2)
        cuda.synchronize(stream)
        latencies.append((time.perf_counter() - start) * 1e3 - 0.2)
    reported, share = wait_mode(cuda), busy / wall
    good = {"spin": share > 0.8, "blocking": share < 0.2}.get(wanted, True)
    late = "taken"
    try:
        choose_wait(wanted != "spin")
    except DeviceError as error:
        late = error.message
    return {
        "ok": good and reported == wanted,
        "says": reported,
        "busy_share": share,
        "overhead_us": float(np.median(latencies)) * 1e3,
        "asked_when_open": late,
        "then": wait_mode(cuda),
    }


CHECKS: dict[str, Callable[[Cuda], dict[str, Any]]] = {
    "kernels": kernels,
    "copies": copies,
    "graph": graph,
    "memory": memory,
    "whole": bench_stand_in,
}


def main() -> int:
    """Runs every check in each way; prints and returns whether all were good."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="write the figures there")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--way", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        if given.way == "ctypes":  # None makes the imports fail, whatever is installed
            sys.modules.update({"cuda.bindings.driver": None, "cuda.cuda": None})  # type: ignore[dict-item]
        kind, _, wanted = given.one.partition(":")
        answer = measure_wait(wanted) if wanted else CHECKS[kind](open_cuda())
        print(json.dumps({**answer, "device": write(open_cuda().facts())}))
        return 0
    found: dict[str, Any] = {}
    for way in ("python", "ctypes"):
        for check in [*CHECKS, "wait:auto", "wait:spin", "wait:blocking"]:
            argv = [sys.executable, __file__, "--one", check, "--way", way]
            done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
            lines = done.stdout.splitlines()
            answer = json.loads(lines[-1]) if lines else {"ok": False, "error": done.stderr[-1500:]}
            found[f"{way}, {check}"] = answer
            print(f"{way}, {check}: {json.dumps(answer)}", flush=True)
    if given.json:
        given.json.write_text(json.dumps(found, indent=1))
    return 0 if all(answer["ok"] for answer in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
