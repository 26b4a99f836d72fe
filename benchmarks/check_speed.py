"""How fast ``edgekit check`` is: as a process, with the number of nodes, and with large weights.

    python benchmarks/check_speed.py [--runs 15] [--only process|nodes|memory] [--limit RATIO]

Prints four things that CI can hold against limits:

* the whole process beside a Python that only loads the same file and infers its shapes, run
  alternately, in processor seconds of the user; the ratio of the medians. With ``--limit`` it is
  measured up to five times and the exit status is 1 if it is above the limit each time;
* time over nodes, from 100 to 10,000: the cost of a node must not grow;
* the peak memory of checking a model whose external weights are 2 GB, in FP32 and in FP16 behind
  Cast nodes.

The other times are wall-clock seconds on this machine and depend on its other work; the ratio
hardly does.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import onnx
from onnx import TensorProto, helper

TARGET = "jetson-agx-orin-64gb"
# the least work of any checker: the measure of the project's first promise
BASELINE = "import sys, onnx; m = onnx.load(sys.argv[1]); onnx.shape_inference.infer_shapes(m)"
# the kernel's own count for this process alone: rusage also counts the parent that started it
PEAK = """
import contextlib, io, sys
from edgekit.cli.main import main
with contextlib.redirect_stdout(io.StringIO()):
    try: main(sys.argv[1:])
    except SystemExit as end: assert not end.code, end.code
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""
# other work of the machine can disturb one measurement of the ratio, hardly every one
TRIES = 5
SIZES = (100, 300, 1000, 3000, 10_000)
GIB = 1 << 30


def main() -> int:
    """Measures and prints; returns the exit status."""
    parser = argparse.ArgumentParser(description="Measures edgekit check.")
    parser.add_argument("--runs", type=int, default=15, help="processes of each kind")
    parser.add_argument("--only", choices=("process", "nodes", "memory"))
    parser.add_argument("--limit", type=float, help="of the ratio that process measures")
    chosen = parser.parse_args()
    status = 0
    with tempfile.TemporaryDirectory() as folder:
        # modules compiled and knowledge read once, as for anybody who runs it a second time
        os.environ["EDGEKIT_CACHE"] = str(Path(folder, "cache"))
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        for name, measure in (
            ("process", compare_processes),
            ("nodes", measure_chains),
            ("memory", measure_memory),
        ):
            if chosen.only not in (None, name):
                continue
            if measure is not compare_processes or chosen.limit is None:
                measure(Path(folder), chosen.runs)
            elif not any(
                compare_processes(Path(folder), chosen.runs) <= chosen.limit for _ in range(TRIES)
            ):
                print(f"above {chosen.limit} in each of {TRIES} tries")
                status = 1
    return status


def compare_processes(folder: Path, runs: int) -> float:
    """Compares whole processes on light_resnet50 and returns the ratio."""
    light = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    model = str(light / "light_resnet50.onnx")
    commands = ([sys.executable, "-c", BASELINE, model], check_command(model))
    for command in commands:
        wall_seconds(command)
    pairs = [tuple(processor_seconds(command) for command in commands) for _ in range(runs)]
    plain, ours = (float(statistics.median(times)) for times in zip(*pairs, strict=True))
    print(f"onnx.load and infer_shapes  {plain:7.3f} s of the processor (median of {runs})")
    print(f"edgekit check               {ours:7.3f} s, {ours / plain:.2f} times as much")
    return ours / plain


def measure_chains(folder: Path, runs: int) -> None:
    """Measures chains of convolutions and activations of growing length."""
    base = None
    for size in SIZES:
        path = folder / f"chain{size}.onnx"
        onnx.save(make_chain(size), path)
        seconds = min(wall_seconds(check_command(str(path))) for _ in range(max(2, runs // 5)))
        base = seconds if base is None else base
        more = (seconds - base) / (size - SIZES[0]) * 1e6 if size > SIZES[0] else 0.0
        print(f"{size:6} nodes  {seconds:7.3f} s  {more:6.0f} µs a node above {SIZES[0]}")


def measure_memory(folder: Path, runs: int) -> None:
    """Measures the peak memory of checking 2 GiB of external weights (a sparse file)."""
    for kind in ("FP32", "FP16"):
        path = folder / f"large{kind}.onnx"
        onnx.save(make_large(folder / "large.data", 2 * GIB, half=kind == "FP16"), path)
        seconds = wall_seconds(check_command(str(path)))
        requested = [sys.executable, "-c", PEAK, *check_command(str(path))[3:]]
        done = subprocess.run(requested, capture_output=True, text=True, check=True)
        peak = int(done.stdout) / 1024
        print(f"2 GiB of {kind} weights       {seconds:7.3f} s  {peak:.0f} MiB at most")


def check_command(model: str) -> list[str]:
    """Returns the command that checks a model."""
    return [sys.executable, "-m", "edgekit", "check", model, "--target", TARGET]


def processor_seconds(command: list[str]) -> float:
    """Runs a command and returns its user-mode processor seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    wall_seconds(command)
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before


def wall_seconds(command: list[str]) -> float:
    """Runs a command and returns its seconds.

    Raises:
        CalledProcessError: It failed.
    """
    began = time.perf_counter()
    quiet = subprocess.DEVNULL
    subprocess.run(command, stdout=quiet, stderr=quiet, check=True)
    return time.perf_counter() - began


def make_chain(count: int) -> onnx.ModelProto:
    """Returns a network of ``count`` nodes: convolution, ReLU, convolution, addition, ..."""
    made: list[onnx.NodeProto] = []
    last, skip = "x", "x"
    for index in range(count):
        name, kind = f"n{index}", index % 4
        if kind in (0, 2):
            made.append(helper.make_node("Conv", [last, "w"], [name], name, pads=[1, 1, 1, 1]))
        elif kind == 1:
            made.append(helper.make_node("Relu", [last], [name], name))
        else:
            made.append(helper.make_node("Add", [last, skip], [name], name))
            skip = name
        last = name
    shape = [1, 8, 16, 16]
    weights = helper.make_tensor("w", TensorProto.FLOAT, [8, 8, 3, 3], [0.01] * 576)
    return make_model(made, shape, last, [weights])


def make_large(data: Path, total: int, *, half: bool = False) -> onnx.ModelProto:
    """Returns a network of convolutions whose weights fill ``data``; ``half``: FP16, each cast."""
    channels, side, size = 2048, 4, 2 if half else 4
    each = channels * channels * side * side * size
    with data.open("wb") as file:
        file.truncate(total)
    made, stubs, last = [], [], "x"
    for index in range(total // each):
        name = f"w{index}"
        stub = TensorProto(
            name=name,
            dims=[channels, channels, side, side],
            data_location=TensorProto.EXTERNAL,
            data_type=TensorProto.FLOAT16 if half else TensorProto.FLOAT,
        )
        for key, value in (("location", data.name), ("offset", index * each), ("length", each)):
            stub.external_data.add(key=key, value=str(value))
        stubs.append(stub)
        if half:
            made.append(helper.make_node("Cast", [name], [f"c{index}"], to=TensorProto.FLOAT))
            name = f"c{index}"
        made.append(
            helper.make_node("Conv", [last, name], [f"n{index}"], f"n{index}", pads=[1, 1, 2, 2])
        )
        last = f"n{index}"
    return make_model(made, [1, channels, 8, 8], last, stubs)


def make_model(
    made: list[onnx.NodeProto], shape: list[int], last: str, constants: list[TensorProto]
) -> onnx.ModelProto:
    """Returns the model around nodes that keep the shape of their one input ``x``."""
    graph = helper.make_graph(
        made,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(last, TensorProto.FLOAT, shape)],
        constants,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


if __name__ == "__main__":
    sys.exit(main())
