"""Calibration beside onnxruntime.quantization, and the calibration methods beside each other.

    python benchmarks/calibration.py [--net light_resnet50] [--images 64] [--bins 2048] [--default]
    python benchmarks/calibration.py [--images 16] [--tests 16] --methods [NET ...]

Each calibrator runs in a process of its own, one after the other, on the same model file and the
same images (seeded random ones). edgekit measures for all four methods in its run; ONNX Runtime's
entropy and min-max calibrators run one each. Compared are

* seconds from the model file to the scales (``import`` is not counted), and processor seconds;
* the process's peak memory (VmHWM);
* min-max scales: max(|min|, |max|) / 127 as float32, equal or not;
* entropy: the distance of the clipping magnitudes of each tensor, in bins of ONNX Runtime's
  histogram.

ONNX Runtime's calibrator is asked for 2048 bins: with its default of 128 bins for 128 levels there
is a single candidate, the whole range, so that it returns min-max under another name. ``--default``
runs it with that default too.

``--methods`` prints for each network the SNR against FP32 of its INT8 plan for Jetson AGX Orin,
emulated on this CPU, by calibration method, on inputs that ``auto`` has not seen (``--tests``);
the choice of ``auto``, and its distance below the best: as ``auto`` compares them (the mean of the
inputs' RMS errors), and by the pooled SNR that ``edgekit run`` reports (the mean square over all
inputs), on these inputs and on those that were measured. A network is a built-in one (weights and
inputs are random), ``digits`` (examples/digits, trained here on scikit-learn's digits) or an ONNX
file with the size of its images, ``cls.onnx:48x192``, which gets parts of scikit-learn's two
photographs, from -1 to 1. All built-in networks and ``digits`` when none is named.

Seen on two x86 cores:

    light_resnet50, 64 images
    edgekit, all four methods         24.8 s ( 1.00x)     38.6 s of processor       649 MiB ( 1.00x)
    onnxruntime min-max                7.5 s ( 0.30x)     13.7 s of processor       663 MiB ( 1.02x)
      min-max scales: 177 of 177 equal to the bit
    onnxruntime entropy, 2048 bins   162.0 s ( 6.54x)    180.9 s of processor     10246 MiB (15.78x)
      entropy: 177 of 177 within one bin (1/1024 of the range), the farthest 0.00 bins away;
      2 of theirs are the whole range

    light_resnet50, 16 images
    edgekit, all four methods         14.7 s ( 1.00x)     11.5 s of processor       593 MiB ( 1.00x)
    onnxruntime min-max                6.6 s ( 0.45x)      5.7 s of processor       633 MiB ( 1.07x)
      min-max scales: 176 of 176 equal to the bit
    onnxruntime entropy, 2048 bins   199.9 s (13.64x)    133.9 s of processor      2841 MiB ( 4.79x)
      entropy: 174 of 176 within one bin (1/1024 of the range), the farthest 958.00 bins away;
      3 of theirs are the whole range
    onnxruntime entropy, 128 bins     14.4 s ( 0.98x)     13.1 s of processor      2840 MiB ( 4.79x)
      entropy: 7 of 176 within one bin (1/64 of the range), the farthest 31.94 bins away;
      176 of theirs are the whole range

The 16 images were measured beside other work: there the ratios of processor time are most reliable.
The two tensors that are far away have 16000 values each: edgekit keeps the whole range of tensors
of fewer than 16384 values, for with fewer than eight values a bin a divergence measures noise. ONNX
Runtime's ``collect_data`` was called once for all images: called several times, it takes its bins
from the first call's range.

``--images 16 --tests 64 --methods``, in dB: each method, the choice of ``auto``, how far that is
below the best, the same by pooled SNRs, the same on the measured inputs, and on how many inputs
they were compared (* with 24 other inputs, not 64):

    Network             entropy  minmax percentile   mse       auto below pooled measured inputs
    digits                 33.4    33.4       33.4  33.4    entropy  0.00   0.00     0.00      8
    ch_ppocr_cls_v2.0       7.1     6.3        9.9   9.5 percentile  0.00   0.31     0.00     64
    ch_PP-OCRv4_rec        10.9     9.3       11.6   9.0 percentile  0.00   0.00     0.00     16
    light_bvlc_alexnet     18.9    20.4       22.6  21.6 percentile  0.00   0.00     0.00     16
    light_densenet121*     19.3    19.1       14.1  13.9     minmax  0.13   0.00     0.00     32
    light_inception_v1     14.6    20.7       21.4  21.1        mse  0.32   0.28     0.00     16
    light_inception_v2*    17.6    20.6       20.1  21.0        mse  0.00   0.18     0.00     31
    light_resnet50*        18.6    16.8       18.0  17.9        mse  0.77   0.75     0.00     16
    light_shufflenet       10.9    14.3       14.8  14.7 percentile  0.00   0.04     0.00     32
    light_squeezenet       15.9    14.2       16.0  14.8    entropy  0.10   0.00     5.02     64
    light_vgg19*           16.7    20.0       18.7  19.3     minmax  0.00   0.00     2.05      8
    light_zfnet512*        15.5    21.8       23.0  23.4 percentile  0.49   0.55     0.00     54

digits and the two PP-OCR networks (of rapidocr-onnxruntime 1.4.4) are trained. On light_squeezenet
one measured input makes the 5 dB. The standard error of a gap between two methods is 0.3 to 1.5 dB
on the ``light`` networks, by pooled SNRs up to 2.8 dB. The rows of digits, cls, densenet121,
squeezenet and zfnet512 were measured after ties went to the measured inputs, the others before.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from edgekit.reference.method import MethodChoice


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
    parser.add_argument("--tests", type=int, default=16, help="other inputs, with --methods")
    parser.add_argument("--methods", nargs="*", metavar="NET", help="compare the methods")
    chosen = parser.parse_args()
    if chosen.methods is not None:
        compare_methods(chosen.methods, chosen.images, chosen.tests)
        return
    if chosen.run:
        kind, folder, bins = chosen.run
        print(json.dumps(calibrate(kind, Path(folder), int(bins))))
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder, chosen.net, chosen.images)
        print(f"{chosen.net}, {chosen.images} images")
        ours = run_child("edgekit", folder, 0)
        report("edgekit, all four methods", ours, ours)
        minmax = run_child("minmax", folder, 0)
        report("onnxruntime min-max", minmax, ours)
        compare_minmax(ours["minmax"], minmax["ranges"])
        for bins in [chosen.bins] + [128] * chosen.default:
            theirs = run_child("entropy", folder, bins)
            report(f"onnxruntime entropy, {bins} bins", theirs, ours)
            compare_entropy(ours, theirs["ranges"], bins)


def compare_methods(nets: list[str], images: int, tests: int) -> None:
    """Prints the table of methods."""
    from edgekit.network.source import BUILTIN_NAMES
    from edgekit.quantize.calibration.histograms import METHODS

    print(f"SNR in dB, emulated, on {tests} inputs without any other use")
    print(
        "| ".join(
            [
                "",
                "network ",
                *(f"{method} " for method in METHODS),
                "auto ",
                "below the best ",
                "pooled ",
                "pooled, measured ",
                "inputs ",
                "seconds |",
            ]
        )
    )
    below = []
    with tempfile.TemporaryDirectory() as name:
        for net in nets or [*BUILTIN_NAMES, "digits"]:
            found, choice, seconds = snr_by_method(net, images, tests, Path(name))
            method = choice.method
            below.append([max(snr.values()) - snr[method] for snr in found])
            cells = [
                Path(net.partition(":")[0]).stem,
                *(f"{found[0][method]:.1f}" for method in METHODS),
                method,
                *(f"{value:.2f}" for value in below[-1]),
                str(choice.inputs),
                f"{seconds:.1f}",
            ]
            print("| " + " | ".join(cells) + " |", flush=True)
    worst = np.max(below, axis=0)
    print(
        f"{len(below)} networks: at most {worst[0]:.2f} dB below the best; pooled {worst[1]:.2f}, "
        f"on the inputs measured {worst[2]:.2f}"
    )


def snr_by_method(
    net: str, images: int, tests: int, folder: Path
) -> tuple[list[Mapping[str, float]], MethodChoice, float]:
    """Returns SNRs by method, the choice and its processor seconds.

    The SNRs are those that ``auto`` compares, on inputs that it has not seen; and the pooled ones
    that ``edgekit run`` reports, on these inputs and on those that were measured.
    """
    from edgekit.config.loader import open_config
    from edgekit.network.synthetic import synthetic_inputs
    from edgekit.pipeline.cache import Cache
    from edgekit.pipeline.pipeline import Pipeline
    from edgekit.pipeline.steps.calibrate import (
        calibration_inputs,
        compute_scales,
        ranges,
        with_measured_ranges,
    )
    from edgekit.pipeline.steps.method import method_choice
    from edgekit.pipeline.steps.plan import plan
    from edgekit.pipeline.steps.rewrite import model, network
    from edgekit.placement.segments import cut_segments
    from edgekit.quantize.data.load import load_data
    from edgekit.reference.method import HeldOutInput, MethodErrors
    from edgekit_device.runtime.deviation import Deviation, worst_measures

    path, data, test = make_inputs(net, images, tests, folder)
    calibration = {"count": images, "data": data and str(data)}
    part: dict[str, Any] = {}
    if data is not None:
        import onnx

        value = onnx.load(path, load_external_data=False).graph.input[0]
        part = {"shapes": {value.name: [1, *np.load(data, mmap_mode="r").shape[1:]]}}
    config = open_config(path, target="jetson-agx-orin-64gb", model=part, calibration=calibration)
    with Pipeline(config, cache=Cache(folder / "cache")) as pipeline:
        context = with_measured_ranges(pipeline.context)
        placed = plan(context)
        began = time.process_time()
        chosen = method_choice(context)
        seconds = time.process_time() - began
        assert chosen is not None
        # far from the seed and the numbers of those before
        fresh = list(
            synthetic_inputs(model(context), tests, 1000)
            if test is None
            else load_data(test, model(context))
        )
        segments = cut_segments(model(context), network(context), placed)
        compared = []
        for inputs in (fresh, list(calibration_inputs(context))):
            errors = MethodErrors(
                segments,
                lambda own, method: compute_scales(context, own, method, placed.scale_binding),
                context.file.accuracy.scores,
                len(inputs),
                context.update,
            )
            errors.add([HeldOutInput(feed, ranges(context), held_out=True) for feed in inputs])
            compared.append(errors)
    pooled = [
        {
            method: float(
                worst_measures([Deviation.join_all(each) for each in outputs.values()]).snr_db
                or 999.0
            )
            for method, outputs in errors.by_output.items()
        }
        for errors in compared
    ]
    return [compared[0].choice().snr_db, *pooled], chosen, seconds


def make_inputs(
    net: str, images: int, tests: int, folder: Path
) -> tuple[str, Path | None, Path | None]:
    """Returns the model, calibration data and test inputs; None for synthetic ones."""
    if net != "digits" and ".onnx" not in net:
        return f"builtin:{net}", None, None
    path, _, size = net.partition(":")
    rng = np.random.default_rng(0)
    # auto compares on 64 at most
    count = images + 64 + tests
    if net == "digits":
        from sklearn.datasets import load_digits

        sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "digits"))
        import network

        drawn = load_digits()
        x = (drawn.images[:, None] / 16).astype(np.float32)
        order = rng.permutation(len(x))
        params = network.train(
            network.initial(0),
            x[order[count:]],
            drawn.target[order[count:]],
            epochs=20,
            rate=3e-3,
            seed=0,
        )
        path = str(folder / "digits.onnx")
        network.export(params, Path(path))
        every = x[order[:count]]
    else:
        from sklearn.datasets import load_sample_images

        height, width = map(int, size.split("x"))
        photos = load_sample_images().images
        every = np.empty((count, 3, height, width), np.float32)
        for index in range(count):
            photo = photos[index % len(photos)]
            top, left = (
                int(rng.integers(0, full - part + 1))
                for full, part in zip(photo.shape, (height, width), strict=False)
            )
            part = photo[top : top + height, left : left + width]
            every[index] = part.transpose(2, 0, 1) / 127.5 - 1
    data, test = folder / f"{Path(path).stem}.npy", folder / f"{Path(path).stem}-test.npy"
    np.save(data, every[:-tests])
    np.save(test, every[-tests:])
    return path, data, test


def prepare(folder: Path, net: str, images: int) -> None:
    """Writes the network and the images."""
    from edgekit.network.synthetic import synthetic_inputs
    from edgekit.network.writing import save
    from edgekit.network.zoo import builtin

    model = builtin(net, 0)
    save(model, folder / "model.onnx")
    samples = [next(iter(feed.values())) for feed in synthetic_inputs(model, images)]
    np.save(folder / "images.npy", np.stack(samples))


def run_child(kind: str, folder: Path, bins: int) -> dict[str, Any]:
    """Runs one calibrator in its own process."""
    done = subprocess.run(
        [sys.executable, __file__, "--run", kind, str(folder), str(bins)],
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def calibrate(kind: str, folder: Path, bins: int) -> dict[str, Any]:
    """Runs in the child: calibrates, and adds times and peak."""
    images = np.load(folder / "images.npy", mmap_mode="r")
    work: Callable[[], dict[str, Any]]
    if kind == "edgekit":
        from edgekit.network.loading.load import load
        from edgekit.quantize.calibration.measure import measure

        def work() -> dict[str, Any]:
            model = load(folder / "model.onnx")
            name = model.proto.graph.input[0].name
            ranges = measure(model, ({name: np.array(image)} for image in images))
            return {method: dict(values) for method, values in ranges.amax.items()}
    else:
        from onnxruntime.quantization import calibrate

        def work() -> dict[str, Any]:
            # it prints its progress on stdout
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
            return {
                "ranges": {
                    name: [float(np.min(v.range_value[0])), float(np.max(v.range_value[1]))]
                    for name, v in data.items()
                }
            }

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


def report(what: str, found: dict[str, Any], ours: dict[str, Any]) -> None:
    """Prints times and peak, and how many times edgekit's they are."""
    times = found["seconds"] / ours["seconds"]
    peak = found["peak_kib"] / ours["peak_kib"]
    print(
        f"{what:<30} {found['seconds']:7.1f} s ({times:5.2f}x)  {found['processor']:7.1f} s of "
        f"processor  {found['peak_kib'] / 1024:8.0f} MiB ({peak:5.2f}x)",
        flush=True,
    )


def compare_minmax(ours: dict[str, float], theirs: dict[str, list[float]]) -> None:
    """Prints how many min-max scales are equal."""
    names = sorted(set(ours) & set(theirs))
    equal = sum(np.float32(ours[n] / 127) == np.float32(magnitude(theirs[n]) / 127) for n in names)
    print(f"  min-max scales: {equal} of {len(names)} equal to the bit")


def compare_entropy(ours: dict[str, Any], theirs: dict[str, list[float]], bins: int) -> None:
    """Prints how far the entropy thresholds are from each other."""
    names = sorted(set(ours["entropy"]) & set(theirs))
    away = [
        abs(ours["entropy"][n] - magnitude(theirs[n])) / max(2 * ours["minmax"][n] / bins, 1e-38)
        for n in names
    ]
    whole = sum(magnitude(theirs[n]) >= ours["minmax"][n] * (1 - 1e-6) for n in names)
    print(
        f"  entropy: {sum(a <= 1.001 for a in away)} of {len(names)} within one bin "
        f"(1/{bins // 2} of the range), the farthest {max(away):.2f} bins away; "
        f"{whole} of theirs are the whole range"
    )


def magnitude(pair: list[float]) -> float:
    """Returns the magnitude of a range."""
    return max(abs(pair[0]), abs(pair[1]))


if __name__ == "__main__":
    main()
