"""Compares edgekit's cost with that of work that no tool can leave out, on the same machine at the
same time: ratios, which depend little on the machine and on its other work.

    python benchmarks/ratios.py [--only rewrite|plan|transfer|load|release|call|trace] [--runs 9]

Both sides of a ratio run in turns, RUNS times each; the ratio of their medians must not be above
its limit, in one of three tries. Exit status 1 when one is. ``check`` has its own, of whole
processes: ``benchmarks/check_speed.py --only process --limit``.

The script starts itself again with ``_MEMORY``: both sides then take their memory from one heap of
huge pages that keeps what is freed. A virtual machine may take tens of microseconds to map a page
of 4 KiB, and one minute later a tenth; without this, ratios of equal code differed by a factor of
two.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import onnx
import onnxruntime

import edgekit_device
from benchmarks.rewriting import residual, shuffle
from benchmarks.transfer import Sending
from edgekit.benchmark.trace.chrome import HOST, EventArgs, TraceProcess
from edgekit.benchmark.trace.sources import PreparedSource, read_trace, write_trace
from edgekit.bundles.files import write
from edgekit.dla.judge import judge
from edgekit.network.lowering.layers import layers
from edgekit.network.model import Model
from edgekit.placement.forecast import forecast
from edgekit.placement.placing import place
from edgekit.rewriting.rewrite import rewrite
from edgekit.targets.loader import get
from edgekit_device.release.releases import stage
from edgekit_device.runtime.refit import refit_release
from edgekit_device.store.root import Root
from tests.boards.bundles import hand_made
from tests.edgekit_device.device_board import frames, run_command

_BOARD = get("jetson-agx-orin-64gb")
_TRIES = 3
_COLUMNS = 1 << 20  # of a weight of 16 rows: 64 MiB
# Python's own allocator would unmap its arenas; 2 TiB are never free, so glibc trims nothing
_MEMORY = {
    "PYTHONMALLOC": "malloc",
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(1 << 41),
    "MALLOC_TOP_PAD_": str(64 << 20),
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
}

Work = Callable[[], object]


@dataclass(frozen=True)
class Ratio:
    """A limit of edgekit's time as a multiple of another program's time.

    Attributes:
        sides: Makes both, in a folder: edgekit's work, and the work that it is compared with.
        against: The name of the latter.
        limit: Of the ratio.
        clock: Which seconds count: the processor's, but where other processes work, too.
    """

    sides: Callable[[Path], contextlib.AbstractContextManager[tuple[Work, Work]]]
    against: str
    limit: float
    clock: Callable[[], float] = time.process_time


@contextlib.contextmanager
def _rewriting(folder: Path) -> Iterator[tuple[Work, Work]]:
    model = shuffle(500).model()

    def ours() -> object:
        return rewrite(
            model, _BOARD, precision="fp16", cost=lambda net, judged: forecast(net, judged, _BOARD)
        )

    yield ours, _inference(model, 100)


@contextlib.contextmanager
def _placing(folder: Path) -> Iterator[tuple[Work, Work]]:
    model = residual(500).model()
    network = layers(model)
    judgement = judge(network, _BOARD, precision="fp16")
    yield lambda: place(network, judgement, _BOARD, precision="fp16"), _inference(model, 50)


def _inference(model: Model, times: int) -> Work:
    """Returns the inference of all shapes, so often that it can be timed."""

    def infer() -> None:
        for _ in range(times):
            onnx.shape_inference.infer_shapes(model.proto)

    return infer


@contextlib.contextmanager
def _loading(folder: Path) -> Iterator[tuple[Work, Work]]:
    bundle = write(hand_made(columns=_COLUMNS), folder / "net.ekb", stripped=False)
    yield lambda: edgekit_device.load(bundle, trust_unsigned=True), lambda: _hash(bundle)


@contextlib.contextmanager
def _loading_a_release(folder: Path) -> Iterator[tuple[Work, Work]]:
    """Of a release that was refitted, as applications load it."""
    made = hand_made(columns=_COLUMNS)
    bundle = write(made, folder / "net.ekb", stripped=False)
    root = Root(folder / "root")
    root.folder.mkdir(mode=0o700)
    run_command(root, ["receive"], io.BytesIO(frames({**made.blobs, **made.weights})))
    release = stage(root, made.manifest_bytes, None, trust_unsigned=True).release
    place = root.app("net").release(release)
    refit_release(root, root.app("net"), place)
    yield lambda: edgekit_device.load(place), lambda: _hash(bundle)


def _hash(file: Path) -> None:
    digest = hashlib.sha256()
    with file.open("rb") as opened:
        while chunk := opened.read(1 << 20):
            digest.update(chunk)


@contextlib.contextmanager
def _calling(folder: Path) -> Iterator[tuple[Work, Work]]:
    made = hand_made(columns=1 << 16)
    bundle = write(made, folder / "net.ekb", stripped=False)
    model = edgekit_device.load(bundle, trust_unsigned=True, threads=1)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    alone = onnxruntime.InferenceSession(_full_engine(made), options, ["CPUExecutionProvider"])
    inputs = {"x": np.ones((1, 16), np.float32)}

    def ours() -> None:
        for _ in range(1000):
            model(inputs)

    def theirs() -> None:
        for _ in range(1000):
            alone.run(["y"], inputs)

    yield ours, theirs


def _full_engine(made: Any) -> bytes:
    """Returns the bundle's engine with its weight inside."""
    from onnx import numpy_helper

    engine = next(d for d, blob in made.manifest.blobs.items() if blob.kind == "engine")
    proto = onnx.ModelProto.FromString(bytes(made.blobs[engine]))
    proto.graph.initializer[0].CopyFrom(numpy_helper.from_array(made.matrix, "W"))
    data: bytes = proto.SerializeToString()
    return data


@contextlib.contextmanager
def _sending(folder: Path) -> Iterator[tuple[Work, Work]]:
    with Sending(folder, 100 * 10**6) as sending:
        yield sending.ours, sending.plain_channel


@contextlib.contextmanager
def _reading_a_trace(folder: Path) -> Iterator[tuple[Work, Work]]:
    """Of 1,000 frames with 20 layers each."""
    process = TraceProcess(1, "a board", "board-measured", 1)
    for frame in range(1000):
        start = 1_000_000 * frame
        process.add(HOST, "frame", start, start + 900_000, "frame", EventArgs(frame=frame))
        for layer in range(20):
            begin = start + 40_000 * layer
            process.add(
                "GPU",
                f"conv_{layer}",
                begin,
                begin + 30_000,
                "layer",
                EventArgs(
                    layer=f"conv_{layer}",
                    nodes=[f"conv_{layer}"],
                    device="GPU",
                    precision="fp16",
                    segment=0,
                    measured_us=30.0,
                ),
            )
    path = folder / "trace.json"
    write_trace(path, [PreparedSource("net", [process])], name="net")
    yield lambda: read_trace(path), lambda: json.loads(path.read_bytes())


RATIOS = {
    "rewrite": Ratio(_rewriting, "100 inferences of all shapes", 1.4),
    "plan": Ratio(_placing, "50 inferences of all shapes", 1.0),
    "transfer": Ratio(
        _sending, "`cat` and `sync` behind a plain channel of paramiko's", 2.5, time.monotonic
    ),
    "load": Ratio(_loading, "reading and hashing the bundle once", 5.0),
    "release": Ratio(_loading_a_release, "reading and hashing its bundle once", 5.0),
    "call": Ratio(_calling, "ONNX Runtime alone", 1.6),
    "trace": Ratio(_reading_a_trace, "`json.loads` of the same file", 4.0),
}


def main() -> int:
    """Measures and prints; returns the exit status."""
    parser = argparse.ArgumentParser(description="Compare edgekit's cost with limits.")
    parser.add_argument("--only", choices=tuple(RATIOS))
    parser.add_argument("--runs", type=int, default=9)
    given = parser.parse_args()
    if not _MEMORY.items() <= os.environ.items():
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **_MEMORY})
    above = [
        name
        for name, ratio in RATIOS.items()
        if given.only in (None, name) and not _check_ratio(name, ratio, given.runs)
    ]
    if above:
        print(f"above the limit in each of {_TRIES} tries: {', '.join(above)}")
    return 1 if above else 0


def _check_ratio(name: str, ratio: Ratio, runs: int) -> bool:
    with tempfile.TemporaryDirectory() as folder, ratio.sides(Path(folder)) as (ours, theirs):
        for side in (ours, theirs):
            side()  # the first time it imports and fills caches
        for _ in range(_TRIES):
            pairs = [
                (_time_work(theirs, ratio.clock), _time_work(ours, ratio.clock))
                for _ in range(runs)
            ]
            plain, own = (statistics.median(times) for times in zip(*pairs, strict=True))
            print(
                f"{name:9} {own:.3f} s, {own / plain:.2f} times {ratio.against} ({plain:.3f} s), "
                f"at most {ratio.limit}",
                flush=True,
            )
            if own / plain <= ratio.limit:
                return True
    return False


def _time_work(work: Work, clock: Callable[[], float]) -> float:
    began = clock()
    work()
    return clock() - began


if __name__ == "__main__":
    sys.exit(main())
