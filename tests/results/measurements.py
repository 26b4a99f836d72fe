"""Bench documents made by hand."""

import random

from edgekit.benchmark.document import Bench


def bench(samples, **changes):
    """The measurement of these latencies, ms; ``changes`` are of its JSON."""
    return Bench.model_validate(bench_json(samples, **changes))


def bench_json(samples, *, name="net", board=("remote", "lab"), clock="board-measured", **changes):
    """An edgekit.bench/1 of these latencies, ms."""
    ordered = sorted(samples)
    count = len(ordered)
    document = {
        "schema": "edgekit.bench/1",
        "name": name,
        "clock": clock,
        "kind": "measured",
        "backend": "tensorrt",
        "iterations": count,
        "latency_ms": {
            "min": ordered[0],
            "mean": sum(ordered) / count,
            "median": ordered[count // 2],
            "p99": ordered[min(count * 99 // 100, count - 1)],
            "max": ordered[-1],
        },
        "throughput_qps": 1000 * count / sum(ordered),
        "samples_ms": list(samples),
        "verdict": {"status": "VALID", "reasons": [], "unchecked": []},
        "target": "jetson-agx-orin-64gb",
        "power_mode": "MAXN",
        "precision": "int8",
        "settings": {"streams": 1, "graph": False, "spin": False},
        "runtime": {"library": "libnvinfer.so.10", "flags": {"threads": 0}},
        "board": {"kind": board[0], "name": board[1], "note": ""},
        "environment": {"machine": "aarch64"},
    }
    return document | changes


def energy(uj):
    """The "energy" of a document: so many microjoules an inference."""
    return {
        "by_rail": {},
        "baseline": None,
        "window_s": [0.0, 1.0],
        "samples": 9,
        "idle_samples": 0,
        "clock": "board-measured",
        "notes": [],
        "total": {"mean_mw": 1.0, "median_mw": 1.0, "uj_per_inference": uj, "rails": ["VIN"]},
    }


def times(count, middle, *, seed, spread=0.01, memory=0.0):
    """Latencies around ``middle``: an AR(1) of coefficient ``memory``, relative deviation
    ``spread``."""
    source = random.Random(seed)
    state, found = source.gauss(0, 1), []
    for _ in range(count):
        found.append(middle * (1 + spread * state))
        state = memory * state + (1 - memory**2) ** 0.5 * source.gauss(0, 1)
    return found
