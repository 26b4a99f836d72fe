"""Whether heads of detectors are decoded on a GPU as on the CPU, and how long both take.

    python benchmarks/gpu_detection.py

Needs a GPU and CuPy. Each line is a kind of head on random raw maps of a 640x640 input: objects on
the CPU (NumPy), how many differ on the GPU (CuPy), and the shortest time of either, suppression
included. Exit status 1 if an object differs.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from edgekit_device.detection.detect import detect
from edgekit_device.detection.head import (
    AnchorHead,
    DistanceHead,
    Head,
    Level,
    PointHead,
    PriorHead,
    PriorLevel,
    QueryHead,
)
from edgekit_device.detection.results import Found
from edgekit_device.protocol.detection import Options

_SIZE, _CLASSES, _STRIDES, _BATCH = 640, 80, (8, 16, 32), 2
_OPTIONS = Options(score=0.9, iou=0.5)
_REPEATS = 5
_NEAR = 1e-2  # pixels, and for scores 1e-4


def _levels(**maps: str) -> tuple[Level, ...]:
    return tuple(
        Level(stride, **{kind: f"{name}{stride}" for kind, name in maps.items()})
        for stride in _STRIDES
    )


def _make_maps(channels: Mapping[str, int]) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    return {
        f"{name}{stride}": (
            random.normal(0, 2, (_BATCH, count, _SIZE // stride, _SIZE // stride))
        ).astype(np.float32)
        for stride in _STRIDES
        for name, count in channels.items()
    }


def _cases() -> dict[str, tuple[Head, dict[str, np.ndarray]]]:
    random = np.random.default_rng(1)
    both = _levels(boxes="b", scores="s")
    masks = DistanceHead(
        _levels(boxes="b", scores="s", extra="m"), 16, prototypes="p", prototype_stride=4
    )
    prototypes = random.normal(0, 1, (_BATCH, 32, _SIZE // 4, _SIZE // 4)).astype(np.float32)
    anchors = tuple(
        tuple((float(stride * k), float(stride * k * 1.5)) for k in (2, 4, 6))
        for stride in _STRIDES
    )
    priors = tuple(
        PriorLevel(f"b{s}", f"s{s}", ((s / 2, s / 2, 4.0 * s, 4.0 * s),), (float(s), float(s)))
        for s in _STRIDES
    )
    prior = PriorHead(priors, (0.1, 0.1, 0.2, 0.2), "sigmoid", (1.0, 1.0))
    query = QueryHead("l", "q", "sigmoid", True, (_SIZE, _SIZE))
    queries = {
        "l": random.normal(0, 2, (_BATCH, 300, _CLASSES)).astype(np.float32),
        "q": random.normal(0, 2, (_BATCH, 300, 4)).astype(np.float32),
    }
    plain = _make_maps({"b": 64, "s": _CLASSES})
    masked = {**_make_maps({"b": 64, "s": _CLASSES, "m": 32}), "p": prototypes}
    point = PointHead(_levels(boxes="b", scores="s", objectness="o"), True)
    made = {
        "distance": (Head("YOLOv8", tuple(plain), distance=DistanceHead(both, 16)), plain),
        "distance, masks": (Head("YOLOv8", tuple(masked), distance=masks), masked),
    }
    maps = _make_maps({"b": 3 * (5 + _CLASSES)})
    made["anchor"] = Head("v5", tuple(maps), anchor=AnchorHead(_levels(boxes="b"), anchors)), maps
    maps = _make_maps({"b": 4, "s": _CLASSES, "o": 1})
    made["point"] = Head("YOLOX", tuple(maps), point=point), maps
    maps = _make_maps({"b": 4, "s": _CLASSES})
    made["prior"] = Head("RetinaNet", tuple(maps), prior=prior), maps
    made["query"] = Head("RT-DETR", tuple(queries), query=query), queries
    return made


def _is_different(left: Found, right: Found) -> bool:
    near = np.allclose(left.box, right.box, atol=_NEAR, rtol=1e-4)
    masks = (left.mask is None) == (right.mask is None)
    if left.mask is not None and right.mask is not None:
        masks = bool((left.mask != right.mask).mean() < 1e-3)
    return (
        not (near and masks and left.number == right.number) or abs(left.score - right.score) > 1e-4
    )


def main() -> int:
    """Compares and times every kind; returns the exit status."""
    import cupy

    failed = 0
    for kind, (head, maps) in _cases().items():
        gpu = {name: cupy.asarray(value) for name, value in maps.items()}
        seconds = {}
        for place, given in (("CPU", maps), ("GPU", gpu)):
            times = []
            for _ in range(_REPEATS):
                start = time.perf_counter()
                found = detect(head, given, _OPTIONS)
                times.append(time.perf_counter() - start)
            seconds[place] = min(times)
            if place == "CPU":
                expected = found
        wrong = 0
        for wanted, got in zip(expected, found, strict=True):
            if len(wanted) != len(got):
                wrong += abs(len(wanted) - len(got))
            else:
                wrong += sum(_is_different(*pair) for pair in zip(wanted, got, strict=True))
        failed += wrong
        print(
            f"{kind:16} {sum(map(len, expected)):4} objects in {_BATCH} frames, {wrong} differ; "
            f"CPU {1e3 * seconds['CPU']:.1f} ms, GPU {1e3 * seconds['GPU']:.1f} ms"
        )
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
