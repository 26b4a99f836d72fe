"""From training to deployed INT8 bundles: scikit-learn's digits on a Jetson, emulated on a CPU.

    python examples/digits/train.py

trains a small convolutional network and takes it to INT8 in three ways: calibrated by edgekit on
training images, quantised to Q/DQ nodes by ONNX Runtime, and trained with rounding (QAT) and
exported with Q/DQ nodes. Each goes through ``edgekit run`` to edgekit's own board on loopback and
classifies the held-out images there. Exit code 1 if one gets more than 1 % fewer right than FP32.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

# the matrices are small: threads would only wait for each other
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import network
import numpy as np
import onnx
import onnxruntime as ort
from sklearn.datasets import load_digits

import edgekit
import edgekit_device

HERE = Path(__file__).resolve().parent
HELD_OUT = 450
CALIBRATION = 128
TOLERANCE = 0.01
Images = np.ndarray


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=HERE / "out", help="folder for all files")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=20)
    options = parser.parse_args()
    out = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    # the board and its releases stay in this folder too
    os.environ.setdefault("EDGEKIT_CACHE", str(out / "cache"))

    (x, labels), (test, truth) = split(options.seed)
    params = network.train(
        network.initial(options.seed),
        x,
        labels,
        epochs=options.epochs,
        rate=3e-3,
        seed=options.seed,
    )
    files = {kind: out / f"{kind}.onnx" for kind in ("digits", "digits-qdq", "digits-qat")}
    network.export(params, files["digits"])
    np.savez(out / "calibration.npz", x=x[:CALIBRATION])
    np.savez(out / "test.npz", x=test, labels=truth)
    quantise(files["digits"], files["digits-qdq"], x[:CALIBRATION])
    scales = ranges(params, x)
    finer = network.train(
        params, x, labels, epochs=3, rate=3e-4, seed=options.seed + 1, scales=scales
    )
    network.export_qdq(finer, scales, files["digits-qat"])

    rows = [("FP32, ONNX Runtime", top1(in_float(files["digits"]), test, truth))]
    names = {
        "digits": "INT8, calibrated by edgekit (PTQ)",
        "digits-qdq": "INT8, Q/DQ by ONNX Runtime (PTQ)",
        "digits-qat": "INT8, Q/DQ from training (QAT)",
    }
    for kind, title in names.items():
        rows.append((title, top1(deployed(kind, files[kind], out), test, truth)))
    return show(rows)


def split(seed: int) -> tuple[tuple[Images, np.ndarray], tuple[Images, np.ndarray]]:
    """Returns images [n, 1, 8, 8] from 0 to 1 with labels, to train on and held out."""
    digits = load_digits()
    images = (digits.images / 16).astype(np.float32)[:, None]
    order = np.random.default_rng(seed).permutation(len(images))
    test, rest = order[:HELD_OUT], order[HELD_OUT:]
    return (images[rest], digits.target[rest]), (images[test], digits.target[test])


def ranges(params: network.Params, x: Images) -> Mapping[str, float]:
    """Returns INT8 scales of the tensors rounded in training: the largest magnitude / 127."""
    _, tensors = network.forward(params, x)
    return {name: float(np.abs(tensors[name]).max() / 127) for name in network.ROUNDED}


def quantise(plain: Path, target: Path, x: Images) -> None:
    """Writes a Q/DQ model by onnxruntime.quantization: symmetric, INT8, weights per channel."""
    from onnxruntime import quantization as q

    class Reader(q.CalibrationDataReader):
        def __init__(self) -> None:
            self.images: Iterator[Images] = iter(x)

        def get_next(self) -> dict[str, np.ndarray] | None:
            image = next(self.images, None)
            return None if image is None else {"x": image[None]}

    # it recommends a preparation that a network of eight nodes does not need
    logging.getLogger().setLevel(logging.ERROR)
    q.quantize_static(
        onnx.load(plain),
        target,
        Reader(),
        quant_format=q.QuantFormat.QDQ,
        per_channel=True,
        activation_type=q.QuantType.QInt8,
        weight_type=q.QuantType.QInt8,
        extra_options={"ActivationSymmetric": True, "WeightSymmetric": True},
    )


def in_float(path: Path) -> Callable[[Images], np.ndarray]:
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    return lambda image: np.asarray(session.run(["logits"], {"x": image})[0])


def deployed(name: str, model: Path, out: Path) -> Callable[[Images], np.ndarray]:
    """Runs all of edgekit's steps, and loads the release on the board."""
    print(f"edgekit run: {name}", flush=True)
    edgekit.run(
        HERE / "digits.yaml",
        name=name,
        model={"onnx": str(model)},
        calibration={"data": str(out / "calibration.npz"), "count": CALIBRATION},
        out=out / name,
    )
    board = Path(os.environ["EDGEKIT_CACHE"]) / "board"
    found = edgekit_device.load(board / "apps" / name)
    return lambda image: np.asarray(found({"x": image})["logits"])


def top1(run: Callable[[Images], np.ndarray], test: Images, truth: np.ndarray) -> float:
    found = np.array([run(image[None]).argmax() for image in test])
    return float(np.mean(found == truth))


def show(rows: list[tuple[str, float]]) -> int:
    (_, wanted), *others = rows
    print(f"\n{HELD_OUT} held-out images, INT8 emulated on this CPU by the reference backend:\n")
    print(f"{'':36}{'top-1':>8}{'against FP32':>16}")
    for title, share in rows:
        print(f"{title:36}{share:8.2%}{share - wanted:+16.2%}")
    lost = max(wanted - share for _, share in others)
    print(f"\n{'within' if lost <= TOLERANCE else 'NOT within'} {TOLERANCE:.0%} of FP32")
    return 0 if lost <= TOLERANCE else 1


if __name__ == "__main__":
    sys.exit(main())
