"""Calibration beside onnxruntime.quantization: time, peak memory, and whether the scales agree.

    python benchmarks/calibration.py [--net light_resnet50] [--images 64] [--bins 2048] [--default]

Each calibrator runs in a process of its own, one after the other, on the same model file and the
same images (seeded random ones). edgekit measures for all four methods in its run; ONNX Runtime's
entropy and min-max calibrators run one each. Compared are

* seconds from the model file to the scales (``import`` is not counted), and processor seconds;
* the process's peak memory (VmHWM);
* min-max scales: max(|min|, |max|) / 127 as float32, equal or not;
* entropy: how far the clipping magnitudes of each tensor lie apart, in bins of ONNX Runtime's
  histogram.

ONNX Runtime's calibrator is asked for 2048 bins: with its default of 128 bins for 128 levels there
is a single candidate, the whole range, so that it returns min-max under another name. ``--default``
runs it with that default too.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description="Compares calibrators.")
    parser.add_argument("--net", default="light_resnet50")
    parser.add_argument("--images", type=int, default=64)
    parser.add_argument("--bins", type=int, default=2048)
    parser.add_argument("--default", action="store_true", help="ONNX Runtime's 128 bins too")
    parser.add_argument(
        "--run", nargs=3, metavar=("KIND", "FOLDER", "BINS"), help=argparse.SUPPRESS
    )
    chosen = parser.parse_args()
    if chosen.run:
        kind, folder, bins = chosen.run
        print(json.dumps(run(kind, Path(folder), int(bins))))
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder, chosen.net, chosen.images)
        print(f"{chosen.net}, {chosen.images} images")
        ours = child("edgekit", folder, 0)
        tell("edgekit, all four methods", ours, ours)
        minmax = child("minmax", folder, 0)
        tell("onnxruntime min-max", minmax, ours)
        compare_minmax(ours["minmax"], minmax["ranges"])
        for bins in [chosen.bins] + [128] * chosen.default:
            theirs = child("entropy", folder, bins)
            tell(f"onnxruntime entropy, {bins} bins", theirs, ours)
            compare_entropy(ours, theirs["ranges"], bins)


def prepare(folder: Path, net: str, images: int) -> None:
    """Writes the network and the images."""
    from edgekit.network import builtin, save, synthetic_inputs

    model = builtin(net, 0)
    save(model, folder / "model.onnx")
    samples = [next(iter(feed.values())) for feed in synthetic_inputs(model, images)]
    np.save(folder / "images.npy", np.stack(samples))


def child(kind: str, folder: Path, bins: int) -> dict[str, Any]:
    """Runs one calibrator in its own process."""
    done = subprocess.run(
        [sys.executable, __file__, "--run", kind, str(folder), str(bins)],
        stdout=subprocess.PIPE, check=True, text=True,
    )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def run(kind: str, folder: Path, bins: int) -> dict[str, Any]:
    """Runs in the child: calibrates, and adds times and peak."""
    images = np.load(folder / "images.npy", mmap_mode="r")
    work: Callable[[], dict[str, Any]]
    if kind == "edgekit":
        from edgekit import network, quantize

        def work() -> dict[str, Any]:
            model = network.load(folder / "model.onnx")
            name = model.proto.graph.input[0].name
            ranges = quantize.measure(model, ({name: np.array(image)} for image in images))
            return {method: dict(values) for method, values in ranges.amax.items()}
    else:
        from onnxruntime.quantization import calibrate

        def work() -> dict[str, Any]:
            # it says what it does on stdout
            calibrator = calibrate.create_calibrator(
                folder / "model.onnx",
                None,
                str(folder / "augmented.onnx"),
                calibrate.CalibrationMethod.Entropy
                if kind == "entropy"
                else calibrate.CalibrationMethod.MinMax,
                extra_options={"num_bins": bins} if kind == "entropy" else {},
            )
            name = calibrator.infer_session.get_inputs()[0].name
            calibrator.collect_data(Reader(name, images))
            data = calibrator.compute_data()
            return {"ranges": {
                name: [float(np.min(v.range_value[0])), float(np.max(v.range_value[1]))]
                for name, v in data.items()
            }}  # fmt: skip

    began, used = time.perf_counter(), time.process_time()
    found = work()
    seconds, processor = time.perf_counter() - began, time.process_time() - used
    status = Path("/proc/self/status").read_text()
    peak = next(int(line.split()[1]) for line in status.splitlines() if "VmHWM" in line)
    return {"seconds": seconds, "processor": processor, "peak_kib": peak, **found}


class Reader:
    """Hands out images one by one, as onnxruntime.quantization wants them."""

    def __init__(self, name: str, images: np.ndarray) -> None:
        self._feeds = ({name: np.array(image)} for image in images)

    def get_next(self) -> dict[str, np.ndarray] | None:
        """Returns the next inputs, None at the end."""
        return next(self._feeds, None)


def tell(what: str, found: dict[str, Any], ours: dict[str, Any]) -> None:
    """Prints times and peak, and how many times edgekit's they are."""
    times = found["seconds"] / ours["seconds"]
    peak = found["peak_kib"] / ours["peak_kib"]
    print(f"{what:<30} {found['seconds']:7.1f} s ({times:5.2f}x)  {found['processor']:7.1f} s of "
          f"processor  {found['peak_kib'] / 1024:8.0f} MiB ({peak:5.2f}x)", flush=True)  # fmt: skip


def compare_minmax(ours: dict[str, float], theirs: dict[str, list[float]]) -> None:
    """Prints how many min-max scales are equal."""
    names = sorted(set(ours) & set(theirs))
    equal = sum(np.float32(ours[n] / 127) == np.float32(top(theirs[n]) / 127) for n in names)
    print(f"  min-max scales: {equal} of {len(names)} equal to the bit")


def compare_entropy(ours: dict[str, Any], theirs: dict[str, list[float]], bins: int) -> None:
    """Prints how far the entropy thresholds are from each other."""
    names = sorted(set(ours["entropy"]) & set(theirs))
    away = [
        abs(ours["entropy"][n] - top(theirs[n])) / max(2 * ours["minmax"][n] / bins, 1e-38)
        for n in names
    ]
    whole = sum(top(theirs[n]) >= ours["minmax"][n] * (1 - 1e-6) for n in names)
    print(f"  entropy: {sum(a <= 1.001 for a in away)} of {len(names)} within one bin "
          f"(1/{bins // 2} of the range), the farthest {max(away):.2f} bins away; "
          f"{whole} of theirs are the whole range")  # fmt: skip


def top(pair: list[float]) -> float:
    """Returns the magnitude of a range."""
    return max(abs(pair[0]), abs(pair[1]))


if __name__ == "__main__":
    main()
