"""`trtexec --loadEngine`: runs a plan through the double and tells it as trtexec does.

Order and texts are those of samples/common (sampleEngines.cpp, sampleInference.cpp,
sampleReporting.cpp), as a real session of 10.3 printed them.
"""

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ._formats import nbytes
from ._memory import MEMORY

_STATISTICS = (("percentile(90%)", 90), ("percentile(95%)", 95), ("percentile(99%)", 99))
_TITLES = {
    "latencyMs": "Latency",
    "enqueue": "Enqueue Time",
    "h2dMs": "H2D Latency",
    "computeMs": "GPU Compute Time",
    "d2hMs": "D2H Latency",
}


def infer(
    trt: Any, logger: Any, options: dict[str, list[str]], say: Any, stop: Callable[[str], Exception]
) -> None:
    """Loads the plan, warms up, measures, prints the summary and writes --exportTimes."""

    def value(name: str, default: str) -> str:
        return options.get(name, [default])[0]

    context = _loaded(trt, logger, options, say, stop)
    graph, copies = "--useCudaGraph" in options, "--noDataTransfers" not in options
    stream = MEMORY.stream()
    for one in context._s.engine._s.facts["io"]:
        shape = list(context.get_tensor_shape(one["name"]))
        size = nbytes(shape, one["dtype"], one["format"])
        context.set_tensor_address(one["name"], MEMORY.allocate(size))
        word = "Input" if one["mode"] == "INPUT" else "Output"
        if word == "Input":
            say("I", f"Using random values for input {one['name']}")
        text = "x".join(str(axis) for axis in shape)
        say("I", f"{word} binding for {one['name']} with dimensions {text} is created.")
    if graph and context._s.engine._s.facts["dla"]:
        raise stop("CUDA graphs and DLA offloading are not simultaneously supported.")

    def once() -> float:
        began = time.monotonic()
        if not context.execute_async_v3(stream):
            raise stop("Error occurred during inference")
        MEMORY.flush(stream)
        return (time.monotonic() - began) * 1e3

    warm_ms, seconds = float(value("--warmUp", "200")), float(value("--duration", "3"))
    least, idle_s = int(value("--iterations", "10")), float(value("--idleTime", "0")) / 1e3
    say("I", "Starting inference")
    began, warm = time.monotonic(), 0
    while not warm or time.monotonic() - began < warm_ms / 1e3:
        once()
        warm += 1
    say("I", f"Warmup completed {warm} queries over {warm_ms:g} ms")
    rows: list[dict[str, float]] = []
    began = time.monotonic()
    streams = int(value("--infStreams", "1"))
    while len(rows) < least * streams or time.monotonic() - began < seconds:
        at = (time.monotonic() - began) * 1e3
        rows.append(_row(at, once(), copies))
        time.sleep(idle_s)
    wall_s = time.monotonic() - began
    say("I", f"Timing trace has {len(rows)} queries over {wall_s:g} s")
    _tell(rows, wall_s, say)
    if "--exportTimes" in options:
        Path(value("--exportTimes", "")).write_text(_exported(rows))


def _loaded(trt: Any, logger: Any, options: Any, say: Any, stop: Any) -> Any:
    path = Path(options["--loadEngine"][0])
    if not path.is_file():
        text = "Failed to create engine from model or file.\nEngine set up failed"
        raise stop(f"Error opening engine file: {path}\n{text}")
    began, plan = time.monotonic(), path.read_bytes()
    runtime = trt.Runtime(logger)
    if "--useDLACore" in options:
        runtime.DLA_core = int(options["--useDLACore"][0])
    runtime.engine_host_code_allowed = "--versionCompatible" in options
    engine = runtime.deserialize_cuda_engine(plan)
    if engine is None:
        raise stop("Engine deserialization failed\nGot invalid engine!\nInference set up failed")
    say("I", f"Engine deserialized in {time.monotonic() - began:g} sec.")
    say("I", f"Loaded engine with size: {len(plan) / 2**20:g} MiB")
    return engine.create_execution_context()


def _row(at_ms: float, spent_ms: float, copies: bool) -> dict[str, float]:
    """One iteration, whose work is split into copies and computing."""
    h2d, d2h = (0.03 * spent_ms, 0.01 * spent_ms) if copies else (0.0, 0.0)
    compute = spent_ms - h2d - d2h
    ends = [at_ms, at_ms + h2d, at_ms + h2d + compute, at_ms + spent_ms]
    return {
        "startEnqMs": at_ms,
        "endEnqMs": at_ms + 0.6 * spent_ms,
        "startH2dMs": ends[0],
        "endH2dMs": ends[1],
        "startComputeMs": ends[1],
        "endComputeMs": ends[2],
        "startD2hMs": ends[2],
        "endD2hMs": ends[3],
        "h2dMs": h2d,
        "computeMs": compute,
        "d2hMs": d2h,
        "latencyMs": spent_ms,
    }


def _exported(rows: list[dict[str, float]]) -> str:
    """Six significant digits, spaces around the colons, commas at the lines' beginning."""
    texts = ["{ " + ", ".join(f'"{n}" : {v:g}' for n, v in row.items()) + " }" for row in rows]
    return "[\n  " + "\n, ".join(texts) + "\n]\n"


def _tell(rows: list[dict[str, float]], wall_s: float, say: Any) -> None:
    say("I", "")
    say("I", "=== Trace details ===")
    say("I", "Trace averages of 10 runs:")
    for first in range(0, len(rows) - 9, 10):
        some = rows[first : first + 10]
        means = [sum(row[name] for row in some) / 10 for name in ("computeMs", "latencyMs")]
        enqueue = sum(row["endEnqMs"] - row["startEnqMs"] for row in some) / 10
        say(
            "I",
            f"Average on 10 runs - GPU latency: {means[0]:g} ms - Host latency: "
            f"{means[1]:g} ms (enqueue {enqueue:g} ms)",
        )
    say("I", "")
    say("I", "=== Performance summary ===")
    say("I", f"Throughput: {len(rows) / wall_s:g} qps")
    for name, title in _TITLES.items():
        values = sorted(
            row[name] if name in row else row["endEnqMs"] - row["startEnqMs"] for row in rows
        )
        count, half = len(values), len(values) // 2
        median = values[half] if count % 2 else (values[half - 1] + values[half]) / 2
        text = f"{title}: min = {values[0]:g} ms, max = {values[-1]:g} ms, "
        text += f"mean = {sum(values) / count:g} ms, median = {median:g} ms"
        for word, percent in _STATISTICS:
            above = math.floor((1 - percent / 100) * count)
            text += f", {word} = {values[max(count - 1 - above, 0)]:g} ms"
        say("I", text)
    say("I", f"Total Host Walltime: {wall_s:g} s")
    say("I", f"Total GPU Compute Time: {sum(row['computeMs'] for row in rows) / 1e3:g} s")
    say("I", "Explanations of the performance metrics are printed in the verbose logs.")
    say("I", "")
