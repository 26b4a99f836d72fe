"""Checks the cost model on the published measurements, or fits its constants on them.

scripts/fit_costs.py            print every row with its error
scripts/fit_costs.py --write    leave every network and every board out of a fit once, and keep the
                                results in targets/costs/left_out.yaml and error.yaml (minutes)
scripts/fit_costs.py --fit      fit the constants, print them (edit devices.yaml, contention.yaml)
scripts/fit_costs.py --unseal   score the sealed rows that were not scored before, once, and keep
                                the results

Sealed rows (the rule is in targets/costs/anchors.yaml) are left out of everything but --unseal.
"""

from __future__ import annotations

import argparse
import copy
import hashlib
import math
import re
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from edgekit.targets.loader import get

sys.path.insert(0, str(Path(__file__).parent))

import anchor_classifiers as classifiers
from anchor_detectors import (
    centerpoint,
    retinanet,
    ssd_resnet34,
    yolov3,
    yolov5s,
    yolov7,
    yolov8,
    yolox,
)
from anchor_detr import detr, detr_loadables
from anchor_networks import (
    alexnet,
    convolution,
    gemms,
    googlenet,
    products,
    resnet,
    resnet50,
    ssd_mobilenet,
)
from anchor_yolo11 import yolo11, yolo26, yolov10

from edgekit.dla.judge import judge
from edgekit.dla.verdicts import LoadableCandidate
from edgekit.knowledge import read_knowledge
from edgekit.network.model import Network
from edgekit.placement.costs.constants import (
    DeviceConstants,
    DlaConstants,
    GpuConstants,
    contention_constants,
    costs_file,
    layer_kinds,
)
from edgekit.placement.costs.kernel_costs import (
    ON_CHIP,
    dla_time,
    dla_works,
    gpu_time,
    gpu_works,
)
from edgekit.placement.costs.model import CostModel, slowdown
from edgekit.placement.costs.regions import find_regions
from edgekit.placement.forecast import PlacementTimer
from edgekit.placement.kernels import LayerKernel, fuse
from edgekit.targets.board import PowerMode, Target

NETWORKS: dict[str, Callable[..., Network]] = {
    "alexnet": alexnet,
    "centerpoint": centerpoint,
    "fcn_resnet18": classifiers.fcn_resnet18,
    "googlenet": googlenet,
    "mixnet_l": partial(classifiers.mixnet, "l"),
    "mixnet_m": partial(classifiers.mixnet, "m"),
    "mixnet_s": partial(classifiers.mixnet, "s"),
    "mobilenet": classifiers.mobilenet,
    "mobilenetv3_large": partial(classifiers.mobilenetv3, "large"),
    "mobilenetv3_small": partial(classifiers.mobilenetv3, "small"),
    "resnet101": partial(resnet, 101),
    "resnet152": partial(resnet, 152),
    "resnet18": classifiers.resnet18,
    "resnet34": classifiers.resnet34,
    "resnet34_backbone": classifiers.resnet34_backbone,
    "retinanet": retinanet,
    "retinanet_resnet34": classifiers.retinanet_resnet34,
    "ssd_mobilenet": ssd_mobilenet,
    "ssd_resnet34": ssd_resnet34,
    "vit_b32": classifiers.vit_b32,
}
FITTED = {
    "gpu.volta": [
        "launch_us", "floor_us", "light_floor_us", "efficiency.int8", "efficiency.fp16",
        "depthwise", "depth_us", "out_half", "depth_half",
    ],
    "gpu.ampere": [
        "launch_us", "floor_us", "light_floor_us", "efficiency.int8", "efficiency.fp16",
        "efficiency.fp32", "depthwise", "depth_us", "out_half", "depth_half",
    ],
    "gpu": [
        "memory", "cache_speedup", "tile_exponent", "clock_exponent", "overlap", "groups",
    ],
    "dla.1.0": ["memory", "efficiency.int8", "efficiency.fp16"],
    "dla.2.0": ["memory", "efficiency.int8", "efficiency.fp16"],
    "dla": [
        "operation_us", "grouped_atom.int8", "grouped_atom.fp16", "channel_half", "overlap",
    ],
    "contention.1.0": ["gpu_by_dla", "dla_by_gpu"],
    "contention.2.0": ["gpu_by_dla", "dla_by_gpu", "dla_by_dla"],
}  # fmt: skip
COSTS = Path(__file__).parent.parent / "targets" / "costs"
DEVICES, SEALED, LEFT_OUT = (COSTS / f"{name}.yaml" for name in ("devices", "sealed", "left_out"))
OPERATIONS = (
    "op_pairs",
    "dla_ops",
    "dla_ops_1",
)  # sources that timed single operations, not networks
SEALED_HEAD = """\
schema: edgekit.costs/1
# Written by scripts/fit_costs.py --unseal; the rows took no part in any fit. Each is scored
# once, by the constants whose SHA-256 stands before it, in the order of anchors.yaml.
scored:
"""
FEWEST = 5  # rows that a device and precision needs for a band of its own
LIMITS = {
    "launch_us": (0.3, 5),
    "floor_us": (2, 20),
    "light_floor_us": (2, 15),
    "memory": (0.15, 0.85),
    "efficiency": (0.15, 0.95),
    "cache_speedup": (1, 4),
    "tile_exponent": (0.1, 1),
    "clock_exponent": (0.5, 1),
    "depthwise": (0.005, 0.4),
    "groups": (0.05, 1),
    "depth_us": (0.2, 20),
    "out_half": (0.5, 200),
    "depth_half": (0.5, 500),
    "overlap": (1, 8),
    "operation_us": (0.3, 4),
    "grouped_atom": (8, 1024),
    "channel_half": (0.5, 80),
    "gpu_by_dla": (0.01, 1),
    "dla_by_gpu": (0.01, 1),
    "dla_by_dla": (0.01, 0.5),
    "broken": (1, 8),
}
# The expected value of a constant before any row is read, and its logarithmic spread (1 unless
# named): constants that the rows do not decide stay near it, and no fold of a cross-validation
# begins with values from the rows that it leaves out.
EXPECTED = {
    "gpu": {
        "launch_us": 2,
        "floor_us": 11,
        "light_floor_us": 7,
        "efficiency": 0.7,
        "depthwise": 0.04,
        "depth_us": 5,
        "out_half": 20,
        "depth_half": 50,
        "memory": 0.6,
        "cache_speedup": 1.5,
        "tile_exponent": 0.8,
        "clock_exponent": 0.95,
        "overlap": 2,
        "groups": 0.8,
    },
    "dla": {
        "memory": 0.28,
        "efficiency": 0.6,
        "operation_us": 1.5,
        "grouped_atom": 64,
        "channel_half": 10,
        "overlap": 3,
    },
    "contention": {"gpu_by_dla": 0.13, "dla_by_gpu": 0.2, "dla_by_dla": 0.06},
}
SPREAD = {
    "overlap": 0.5,
    "launch_us": 0.5,
    "memory": 0.4,
    "efficiency": 0.4,
    "tile_exponent": 0.5,
    "clock_exponent": 0.3,
}
NOISE = 0.12  # relative error that a published time is expected to have
FAR = 0.25  # logarithmic error beyond which a row's pull grows no further
STEPS = 30
REMEMBERED = 64  # times of a group of kernels by different constants


@cache
def cost_data(name: str) -> dict[str, Any]:
    """Returns ``targets/costs/NAME.yaml`` as it is written, rows and sources included."""
    found: dict[str, Any] = read_knowledge(costs_file(name))
    return found


def make_network(row: Mapping[str, Any], batch: int | None = None) -> Network:
    """Returns the network of an anchor row, with another batch where one is given."""
    many = batch or row.get("batch", 1)
    name = row["network"]
    if name == "detr":
        return detr()
    if name == "gemms":
        return gemms(row["rows"], row["count"])
    if name == "products":
        return products(row["rows"], row["columns"])
    if name in ("convolution", "depthwise"):
        return convolution(*row["shape"])
    if name.startswith("yolo11"):
        size, classes = row["size"][0], row.get("classes", 80)
        return yolo11(name.removeprefix("yolo11"), size, many, classes)
    if name.startswith("yolo26"):
        size, classes = row["size"][0], row.get("classes", 80)
        return yolo26(name.removeprefix("yolo26"), size, many, classes)
    if name.startswith("yolov10"):
        return yolov10(name.removeprefix("yolov10"), row["size"][0], many)
    if name.startswith("yolov8"):
        return yolov8(name.removeprefix("yolov8"), row["size"][0], many)
    if name.startswith("yolox"):
        return yolox(name.removeprefix("yolox"), row["size"][0], many, row.get("classes", 80))
    if name.startswith("reduceformer"):
        return classifiers.reduceformer(name.rpartition("_")[2], row["size"][0], many)
    if name in ("yolov3", "yolov5s", "yolov7"):
        made = {"yolov3": yolov3, "yolov5s": yolov5s, "yolov7": yolov7}
        return made[name](row["size"][0], many)
    if name.startswith("resnet50"):
        height, width = row.get("size", (224, 224))
        return resnet50(many, height, width, head=name == "resnet50")
    own = {"classes": row["classes"]} if "classes" in row else {}
    return NETWORKS[name](many, *row.get("size", ()), **own)


def power_mode(row: Mapping[str, Any], target: Target) -> PowerMode:
    """Returns a row's power mode, with the clocks that it sets itself."""
    mode = target.mode(row["mode"])
    clocks = row.get("clocks", {})
    return replace(
        mode,
        gpu_mhz=clocks.get("gpu", mode.gpu_mhz),
        dla_mhz=tuple(clocks.get("dla", mhz) for mhz in mode.dla_mhz),
        memory_share=clocks.get("memory_share", mode.memory_share),
    )


def find_loadables(
    row: Mapping[str, Any], network: Network, target: Target
) -> list[tuple[str, ...]]:
    """Returns the loadables that TensorRT made by itself, or that edgekit's rules give it."""
    names = [layer.name for layer in network.layers]
    if row["network"] == "detr":
        return detr_loadables(network, row["precision"])
    if row["network"] == "resnet50":
        return [tuple(names[:-2]), (names[-1],)]  # its mean over pixels is the GPU's
    groups = judge(network, target, precision=row["precision"]).candidates
    return [group.layers for group in groups if group.retained]


class Anchor:
    """A row with its networks and their kernels, which do not change while constants do."""

    def __init__(self, row: Mapping[str, Any]) -> None:
        self.row = row
        self.us = float(row["us"])
        self.is_operation = row.get("source") in OPERATIONS
        self.is_fitted = "checked" not in row
        self.target = get(row["target"])
        self.mode = power_mode(row, self.target)
        self.parts = [self._part("GPU" if "side" in row else row["device"], None)]
        if row["device"] == "ALL":
            cores = [f"DLA{core}" for core in range(self.target.dla.cores)]
            self.parts = [self._part("GPU", None)]
            self.parts += [self._part(core, row["dla_batch"]) for core in cores]
        self.loadables = find_loadables(row, self.parts[0][2], self.target) if "side" in row else []
        self.reformats_us = 0.0
        if "linear" in row:
            self.reformats_us = self._reformats_us(
                self.model(current_constants()), self.parts[0][2]
            )

    def _part(
        self, device: str, batch: int | None
    ) -> tuple[str, int, Network, tuple[LayerKernel, ...]]:
        network = make_network(self.row, batch)
        rules = layer_kinds().fusion
        kernels = fuse(network, rules.heads, rules.tails, lambda _: None)
        return device, batch or self.row.get("batch", 1), network, kernels

    def predict(self, constants: Mapping[str, Any] | None = None) -> float:
        """Returns the model's time in microseconds, by the files' constants if none are given."""
        constants = constants or current_constants()
        model = self.model(constants)
        if "side" in self.row:
            return self._automatic(model)
        return self.whole([self._part_us(model, *part) for part in self.parts], constants)

    def model(self, constants: Mapping[str, Any]) -> CostModel:
        """Returns the cost model of the row's board, mode and precision."""
        return CostModel(
            self.target, self.mode, self.row["precision"], frozenset(), parse_constants(constants)
        )

    @staticmethod
    def _part_us(
        model: CostModel,
        device: str,
        batch: int,
        network: Network,
        kernels: tuple[LayerKernel, ...],
    ) -> float:
        if device == "GPU":
            return PlacementTimer(network, model, {}).gpu_only_us
        return sum(model.kernel_us(network, kernel, device) for kernel in kernels)

    def whole(self, parts_us: Iterable[float], constants: Mapping[str, Any]) -> float:
        """Returns the row's time from the kernels' times of its parts, which share the DRAM."""
        generation = self.target.dla.generation
        extra = constants["contention"].get(generation)
        extra = extra and {**extra, **self.target.contention}
        cores = sum(part[0] != "GPU" for part in self.parts)
        rate = 0.0
        for (device, batch, _, kernels), kernels_us in zip(self.parts, parts_us, strict=True):
            time = kernels_us + self.row.get("builder_us", 0) * len(kernels) + self.reformats_us
            if device != "GPU":
                time += constants["dla"][generation]["launch_us"]
            if len(self.parts) == 1:
                return float(time)
            on_core = device != "GPU"
            time *= slowdown(extra, on_core, cores - on_core, on_core)
            rate += batch / time
        return 1 / rate

    def _reformats_us(self, model: CostModel, network: Network) -> float:
        """Returns the GPU's time from linear tensors of a type to a DLA's and back."""
        precision = self.row["precision"]
        inside = (precision, "CHW32" if precision == "int8" else "CHW16")
        outside = (self.row["linear"], "LINEAR")
        inputs = [model.reformat_us(network.tensors[n], outside, inside) for n in network.inputs]
        outputs = [model.reformat_us(network.tensors[n], inside, outside) for n in network.outputs]
        return sum(inputs) + sum(outputs)

    def _automatic(self, model: CostModel) -> float:
        """Returns the time of one side, or of both, with the loadables that TensorRT made."""
        ((_, _, network, _),) = self.parts
        remaining = [LoadableCandidate(group, retained=True) for group in self.loadables]
        found = PlacementTimer(network, model, {}).forecast(remaining)
        gpu_us = found.auto_us - found.dla_us
        return {"GPU": gpu_us, "DLA": found.dla_us, "both": found.auto_us}[self.row["side"]]


def family(network: str) -> str:
    """Returns the family of a network: its name up to the first number."""
    found = re.match(r"yolox|\D+\d*", network)
    assert found is not None
    return found[0]


def is_sealed(number: int, row: Mapping[str, Any]) -> bool:
    """Whether a row, the ``number``-th of the file, is left for the end, by that file's rule."""
    rule = cost_data("anchors")["sealing"]
    name = f"edgekit anchors {family(row['network'])} {row['target']}"
    chosen = int.from_bytes(hashlib.sha256(name.encode()).digest(), "big") % rule["one_in"] == 0
    return bool(chosen and number >= rule["known_rows"])


def read_anchors() -> list[Anchor]:
    """Returns the published rows that may be looked at."""
    data = cost_data("anchors")
    last = data["sealing"]["known_rows"] if data["sealing"]["gathering"] else len(data["rows"])
    rows = enumerate(data["rows"][:last])
    return [Anchor(row) for number, row in rows if not is_sealed(number, row)]


def unseal() -> str:
    """Returns the file of sealed rows, with those that it lacks scored at its end.

    Raises:
        SystemExit: All were scored before, or rows are still being gathered.
    """
    data = cost_data("anchors")
    if data["sealing"]["gathering"]:
        raise SystemExit("rows are still being gathered: anchors.yaml, sealing.gathering")
    before = SEALED.read_text(encoding="utf-8") if SEALED.exists() else SEALED_HEAD
    sealed = [row for number, row in enumerate(data["rows"]) if is_sealed(number, row)]
    rows = [Anchor(row) for row in sealed[before.count("predicted_us: ") :]]
    if not rows:
        raise SystemExit("there is no new sealed row: sealed rows are scored once")
    lines = [f"  - constants: {hashlib.sha256(DEVICES.read_bytes()).hexdigest()}", "    rows:"]
    for row, error in zip(rows, relative_errors(rows, current_constants()), strict=True):
        said = f"row: {' '.join(describe(row).split())!r}, us: {row.us:g}"
        lines.append(f"      - {{{said}, predicted_us: {row.us * (1 + error):.1f}}}")
    return before + "\n".join(lines) + "\n"


def current_constants() -> dict[str, Any]:
    """Returns the constants that a fit begins with and a prediction uses."""
    return {**cost_data("devices"), "contention": contention_constants().extra}


def parse_constants(constants: Mapping[str, Any]) -> DeviceConstants:
    """Returns the constants of devices as the cost model takes them."""
    return DeviceConstants(
        gpu={kind: _parse_family("gpu", data) for kind, data in constants["gpu"].items()},
        dla={kind: _parse_family("dla", data) for kind, data in constants["dla"].items()},
    )


def _parse_family(family: str, data: Mapping[str, Any]) -> Any:
    kind = GpuConstants if family == "gpu" else DlaConstants
    return kind(**{name: value for name, value in data.items() if name != "source"})


def relative_errors(rows: Sequence[Anchor], constants: Mapping[str, Any]) -> list[float]:
    """Returns predicted over measured, minus one, by row."""
    return [row.predict(constants) / row.us - 1 for row in rows]


class RowWorks:
    """The work of rows on devices, as arrays: predicts all rows at once for any constants."""

    def __init__(self, rows: Sequence[Anchor]) -> None:
        self.rows = rows
        self.log_us = np.log([row.us for row in rows])
        self.fitted = np.array([row.is_fitted for row in rows])
        self._starts: list[int] = []
        self._fixed: list[float] = []  # reformats between kernels, whose times are fitted elsewhere
        found: dict[tuple[str, str, str], list[tuple[int, Any, Any]]] = {}
        part = 0
        for row in rows:
            self._starts.append(part)
            model = row.model(current_constants())
            for device, _, network, kernels in row.parts:
                for key, *entry in _kernel_works(model, device, network, kernels):
                    found.setdefault(key, []).append((part, *entry))
                clock = PlacementTimer(network, model, {}) if device == "GPU" else None
                self._fixed.append(clock.between_us if clock else 0.0)
                part += 1
        self._parts = part
        # rows that take more than the kernels of one part
        self._beyond = [
            i
            for i, row in enumerate(rows)
            if len(row.parts) > 1 or row.parts[0][0] != "GPU" or "builder_us" in row.row
        ]
        self._groups = {key: _Group(entries) for key, entries in found.items()}

    def predict(self, constants: Mapping[str, Any]) -> Any:
        """Returns the rows' times in microseconds."""
        us = np.array(self._fixed)
        for (family, kind, precision), group in self._groups.items():
            times = group.cached_times(
                family, precision, _parse_family(family, constants[family][kind])
            )
            us += np.bincount(group.parts, times, self._parts)
        found = us[self._starts]
        for i in self._beyond:
            row, start = self.rows[i], self._starts[i]
            found[i] = row.whole(us[start : start + len(row.parts)], constants)
        return found


class _Group:
    def __init__(self, entries: Sequence[tuple[int, Any, Any]]) -> None:
        self.parts = np.array([part for part, _, _ in entries])
        number: dict[Any, int] = {}  # many kernels of a network are alike
        self._of = np.array([number.setdefault(work, len(number)) for _, work, _ in entries])
        self._works = _arrays(list(number))
        self._gone = [i for i, (_, _, inside) in enumerate(entries) if inside == 0]
        self._fused = [i for i, (_, _, inside) in enumerate(entries) if inside not in (0, None)]
        self._inside = _arrays([entries[i][2] for i in self._fused])
        self._known: dict[str, Any] = {}

    def cached_times(self, family: str, precision: str, data: Any) -> Any:
        """Returns the times by some constants; most constants concern few groups of a fit."""
        key = repr(vars(data))
        if key not in self._known:
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            self._known[key] = self.times(family, precision, data)
        return self._known[key]

    def times(self, family: str, precision: str, data: Any) -> Any:
        time = gpu_time if family == "gpu" else dla_time
        us = np.array(time(self._works, precision, data))[self._of]
        us[self._gone] = 0
        if self._fused:
            inside = time(self._inside, precision, data)
            us[self._fused] = np.minimum(us[self._fused], inside)
        return us


def _arrays(works: Sequence[Any]) -> Any:
    names = works[0]._fields if works else ()
    return SimpleNamespace(**{n: np.array([getattr(work, n) for work in works]) for n in names})


def _kernel_works(
    model: CostModel, device: str, network: Network, kernels: Sequence[LayerKernel]
) -> Iterator[tuple[tuple[str, str, str], Any, Any]]:
    """Yields family, kind and precision, a kernel's work, and the rest in a fused part."""
    target, mode = model.target, model.mode
    saved = find_regions(model, network, {}).saved_us if device == "GPU" else {}
    for kernel in kernels:
        layer = network.layers[kernel.layers[0]]
        precision = model.layer_precision(layer, device)
        if device == "GPU":
            form = model.formats(network, kernel, device)[0]
            data = model.constants.gpu[target.gpu.arch]
            for _, work in gpu_works(network, kernel, precision, form, target, mode, data):
                inside: Any = None
                if kernel.layers[0] in saved:
                    inside = work._replace(**ON_CHIP) if layer.macs else 0
                yield ("gpu", target.gpu.arch, precision), work, inside
        else:
            generation = str(target.dla.generation)
            dla = model.constants.dla[generation]
            for _, own in dla_works(network, kernel, precision, 0, target, mode, dla):
                yield ("dla", generation, precision), own, None


def _names() -> list[tuple[str, str]]:
    return [(group, name) for group, names in FITTED.items() for name in names]


def _set_logs(constants: dict[str, Any], x: Any) -> None:
    for name, value in zip(_names(), x, strict=True):
        for holder, key in _places(constants, *name):
            holder[key] = math.exp(value)


def _limits(side: int) -> Any:
    return np.log([LIMITS[name.split(".")[0]][side] for _, name in _names()])


def row_weights(rows: Sequence[Anchor]) -> Any:
    """Returns the rows' weights: rows of one network and setting share the weight of one row."""
    keys = [
        (
            *(row.row[name] for name in ("network", "target", "mode", "precision", "device")),
            row.is_operation,
        )
        for row in rows
    ]
    many = Counter(keys)
    return np.array([(0.5 if key[-1] else 1.0) / math.sqrt(many[key]) for key in keys])


def fit(
    works: RowWorks, inside: Any, start: Mapping[str, Any], first: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Returns constants fitted on some rows (Levenberg and Marquardt on logarithmic errors).

    Args:
        works: All rows.
        inside: By row, whether it counts.
        start: Constants, of which those that are not fitted stay.
        first: Where to begin, at the expected values if None.
    """
    constants = copy.deepcopy(dict(start))
    expected = np.log(
        [EXPECTED[group.partition(".")[0]][name.partition(".")[0]] for group, name in _names()]
    )
    low, high = _limits(0), _limits(1)
    spread = np.array([SPREAD.get(name.split(".")[0], 1.0) for _, name in _names()])
    counts = (row_weights(works.rows) / NOISE)[inside]
    pairs = [pair for pair in contention_constants().pairs if not pair.hybrid]

    def residuals(x: Any) -> Any:
        _set_logs(constants, x)
        of_rows = (np.log(works.predict(constants)) - works.log_us)[inside]
        of_pairs = [
            slowdown(
                constants["contention"][p.generation], p.device == "dla", p.cores, bool(p.gpus)
            )
            / p.slowdown
            for p in pairs
        ]
        return np.concatenate([of_rows, np.log(of_pairs)])

    weight = np.concatenate([counts, np.full(len(pairs), 1 / NOISE)]) ** 2

    def size(r: Any, x: Any) -> float:
        a = np.abs(r)
        of_rows = np.where(a < FAR, a * a / 2, FAR * (a - FAR / 2))
        return float((weight * of_rows).sum() + (((x - expected) / spread) ** 2).sum() / 2)

    x = expected
    if first is not None:
        begin = copy.deepcopy(dict(first))
        x = np.log([next(held[key] for held, key in _places(begin, *name)) for name in _names()])
    x = np.clip(x, low, high)
    r = residuals(x)
    best, damping = size(r, x), 1e-2
    for _ in range(STEPS):
        slopes = np.empty((len(r), len(x)))
        for j in range(len(x)):
            d = 1e-3 if x[j] + 1e-3 <= high[j] else -1e-3
            y = x.copy()
            y[j] += d
            slopes[:, j] = (residuals(y) - r) / d
        pull = weight * np.where(np.abs(r) < FAR, 1, FAR / np.maximum(np.abs(r), 1e-9))
        curve = slopes.T @ (slopes * pull[:, None]) + np.diag(1 / spread**2)
        slope = slopes.T @ (pull * r) + (x - expected) / spread**2
        gain = 0.0
        for _ in range(6):
            free = ~(((x <= low + 1e-9) & (slope > 0)) | ((x >= high - 1e-9) & (slope < 0)))
            inner = curve[np.ix_(free, free)]
            step = np.zeros_like(x)
            step[free] = -np.linalg.solve(inner + damping * np.diag(np.diag(inner)), slope[free])
            y = np.clip(x + np.clip(step, -0.5, 0.5), low, high)
            again = residuals(y)
            now = size(again, y)
            if now < best - 1e-9:
                gain, x, r, best = best - now, y, again, now
                damping = max(damping / 5, 1e-5)
                break
            damping *= 5
        if gain < 1e-4 * max(1.0, best):
            break
    _set_logs(constants, x)
    return constants


def predict_left_out(
    works: RowWorks, start: Mapping[str, Any], key: Callable[[Anchor], str]
) -> Any:
    """Returns each row's time by constants that were fitted without all rows of its key."""
    found = np.zeros(len(works.rows))
    keys = np.array([key(row) for row in works.rows])
    fitted = fit(works, works.fitted, start)
    for name in sorted(set(keys)):
        left = keys == name
        found[left] = works.predict(fit(works, works.fitted & ~left, start, fitted))[left]
    return found


def _places(
    constants: dict[str, Any], group: str, name: str
) -> Iterator[tuple[dict[str, Any], str]]:
    """Yields the places of a constant; a whole family's is in each of its kinds."""
    name_of_family, _, kind = group.partition(".")
    family_constants = constants[name_of_family]
    for holder in [family_constants[kind]] if kind else family_constants.values():
        outer, _, inner = name.partition(".")
        yield (holder[outer], inner) if inner else (holder, outer)


def describe(anchor: Anchor) -> str:
    """Returns a row in words."""
    row = anchor.row
    shape = [f"batch {row['batch']}"] if "batch" in row else []
    shape += [f"{row['size'][0]}x{row['size'][1]}"] if "size" in row else []
    shape += [f"{row['rows']} rows"] if "rows" in row else []
    shape += ["x".join(map(str, row["shape"]))] if "shape" in row else []
    shape += [f"{row['classes']} classes"] if "classes" in row else []
    shape += (
        [{"both": "automatic DLA"}.get(row["side"], f"automatic DLA, {row['side']} side")]
        if ("side" in row)
        else []
    )
    own = " own clocks" if "clocks" in row else ""
    what = " ".join((row["network"], *shape))
    where = f"{row['target']} {row['mode']}{own} {row['device']} {row['precision']}"
    return f"{what:30} {where}"


def main() -> None:
    """Prints the table; see the module's text."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--fit", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--unseal", action="store_true")
    options = parser.parse_args()
    if options.unseal:
        SEALED.write_text(unseal(), encoding="utf-8")
        print(SEALED.read_text(encoding="utf-8"))
        return
    rows = read_anchors()
    constants: Mapping[str, Any] = current_constants()
    if options.fit:
        constants = fit_all(rows)
        for group, names in FITTED.items():
            values = {n: next(h[k] for h, k in _places(constants, group, n)) for n in names}
            print(group, {n: float(f"{value:.3g}") for n, value in values.items()})
        print("broken", [kind["broken"] for kind in constants["gpu"].values()])
    found = relative_errors(rows, constants)
    for anchor, error in zip(rows, found, strict=True):
        print(f"{describe(anchor):86} {anchor.us:>8.0f} us {100 * error:+6.1f} %")
    if options.write:
        LEFT_OUT.write_text(left_out_file(rows), encoding="utf-8")
        cost_data.cache_clear()
        (COSTS / "error.yaml").write_text(error_file(rows, found), encoding="utf-8")
    print(summary(rows, found))


def fit_all(rows: Sequence[Anchor]) -> dict[str, Any]:
    """Returns constants fitted on all rows, and then a DLA's breaks in a transformer's part."""
    whole = [row for row in rows if "side" not in row.row]
    works = RowWorks(whole)
    constants = fit(works, works.fitted, current_constants())
    concurrent = [row for row in rows if row.row.get("side") == "GPU"]

    def size(broken: float) -> float:
        for kind in constants["gpu"].values():
            kind["broken"] = broken
        return max(abs(math.log(row.predict(constants) / row.us)) for row in concurrent)

    low, high = LIMITS["broken"]
    best = min((low + 0.1 * step for step in range(round(10 * (high - low)) + 1)), key=size)
    size(round(best, 1))
    return constants


def left_out_file(rows: Sequence[Anchor]) -> str:
    """Returns ``targets/costs/left_out.yaml``; every network and every board is left out once."""
    whole = [row for row in rows if "side" not in row.row]
    works = RowWorks(whole)
    by_network = predict_left_out(
        works, current_constants(), lambda row: family(row.row["network"])
    )
    by_board = predict_left_out(works, current_constants(), lambda row: row.row["target"])
    lines = [
        "schema: edgekit.costs/1",
        "# Written by scripts/fit_costs.py --write; do not edit. Microseconds predicted for each",
        "# open row of anchors.yaml, in its order, by constants fitted without all rows of its",
        "# network family, and without all rows of its board. What TensorRT placed by itself",
        "# (device AUTO) has none.",
        "us:",
    ]
    number = 0
    for row in rows:
        if "side" in row.row:
            lines.append("  - []")
            continue
        lines.append(f"  - [{by_network[number]:.1f}, {by_board[number]:.1f}]")
        number += 1
    return "\n".join(lines) + "\n"


def left_out_errors(rows: Sequence[Anchor], which: int) -> list[float | None]:
    """Returns predicted over measured, minus one, left out by network (0) or board (1)."""
    found = cost_data("left_out")["us"]
    return [us[which] / row.us - 1 if us else None for row, us in zip(rows, found, strict=True)]


class Spread:
    """How large some errors are, in percent."""

    def __init__(self, found: Sequence[float]) -> None:
        self.sizes = sorted(100 * abs(error) for error in found)
        self.rows = len(self.sizes)
        self.median = statistics.median(self.sizes)
        self.most_of = self.sizes[max(0, math.ceil(0.9 * self.rows) - 1)]
        self.far = sum(not 0.5 <= 1 + error <= 2 for error in found)

    def __str__(self) -> str:
        return (
            f"median {self.median:.1f} %, 90 % within {self.most_of:.1f} %, at most "
            f"{self.sizes[-1]:.1f} %, {self.far} off by more than a factor of 2"
        )

    def yaml(self) -> str:
        """Returns it as an entry of ``error.yaml``."""
        return (
            f"{{rows: {self.rows}, median_percent: {self.median:.1f}, "
            f"of_90_percent: {self.most_of:.1f}, max_percent: {self.sizes[-1]:.1f}}}"
        )


def error_spreads(rows: Sequence[Anchor], found: Sequence[float]) -> dict[str, Spread]:
    """Returns the errors of networks as fitted and left out, and of rows never left out.

    Those of networks are of the same rows: single operations, and networks that TensorRT placed by
    itself, are separate.
    """

    def of(found_errors: Sequence[float | None], kind: str) -> Spread:
        return Spread(
            [
                error
                for row, error in zip(rows, found_errors, strict=True)
                if error is not None and _kind(row) == kind
            ]
        )

    return {
        "fitted": of(found, "network"),
        "without_network": of(left_out_errors(rows, 0), "network"),
        "without_board": of(left_out_errors(rows, 1), "network"),
        "automatic": of(found, "automatic"),
        "operations": of(found, "operation"),
    }


def _kind(row: Anchor) -> str:
    if row.is_operation:
        return "operation"
    return "automatic" if "side" in row.row else "network"


def summary(rows: Sequence[Anchor], found: Sequence[float]) -> str:
    """Returns medians and the largest error, in words."""
    by = error_spreads(rows, found)
    return (
        f"{by['fitted'].rows} rows of networks: {by['fitted']}. "
        f"By constants fitted without the row's network: {by['without_network']}. "
        f"By constants fitted without its board: {by['without_board']}.\n"
        f"{by['automatic'].rows} of what TensorRT placed by itself: {by['automatic']}.\n"
        f"{by['operations'].rows} operations that were timed alone: {by['operations']}"
    )


def error_file(rows: Sequence[Anchor], found: Sequence[float]) -> str:
    """Returns ``targets/costs/error.yaml``."""
    lines = [
        "schema: edgekit.costs/1",
        "# Written by scripts/fit_costs.py --write; do not edit. Errors of networks by the",
        "# constants as they are, and by constants fitted without a row's network or board;",
        "# automatic: what TensorRT placed by itself; operations: what was timed alone. bands:",
        "# measured over predicted; 80 % of the rows lie inside, each by constants fitted without",
        "# its network, and without its board. rows_of: open rows by device and precision; without",
        "# any, a prediction is extrapolated.",
        *(f"{name}: {spread.yaml()}" for name, spread in error_spreads(rows, found).items()),
        "bands:",
    ]
    for name, (measured, counts) in sorted(ratios(rows).items()):
        if len(measured) >= 2 * FEWEST:
            low, high = error_band(measured, counts)
            lines.append(f"  {name}: [{low:.2f}, {high:.2f}]")
    lines.append("rows_of:")
    lines += [f"  {name}: {count}" for name, count in sorted(count_rows(rows).items())]
    return "\n".join(lines) + "\n"


def count_rows(rows: Sequence[Anchor]) -> Counter[str]:
    """Returns the rows by device family, kind and precision."""
    found: Counter[str] = Counter()
    for row in rows:
        side = row.row.get("side", row.row["device"])
        precision = row.row["precision"]
        if side == "GPU" or side in ("ALL", "both"):
            found[f"gpu {row.target.gpu.arch} {precision}"] += 1
        if side != "GPU":
            found[f"dla {row.target.dla.generation} {precision}"] += 1
    return found


def ratios(rows: Sequence[Anchor]) -> dict[str, tuple[list[float], list[float]]]:
    """Returns measured over predicted, left out by network and by board, and the weight of each.

    Of all rows of networks and by device and precision; rows of one network and setting share the
    weight of one row.
    """
    groups: dict[str, tuple[list[float], list[float]]] = {}
    counts = row_weights(rows) ** 2
    for which in (0, 1):
        for row, error, count in zip(rows, left_out_errors(rows, which), counts, strict=True):
            if error is None or row.is_operation:
                continue
            names = ["all"]
            if row.row["device"] != "ALL":
                kind = "gpu" if row.row["device"] == "GPU" else "dla"
                names.append(f"{kind}_{row.row['precision']}")
            for name in names:
                measured, counted = groups.setdefault(name, ([], []))
                measured.append(1 / (1 + error))
                counted.append(float(count))
    return groups


def error_band(measured: Sequence[float], counts: Sequence[float]) -> tuple[float, float]:
    """Returns an interval of ratios with 80 % inside, rounded outwards, with 1 inside.

    At most a tenth is below and above, in numbers and in weight. Few ratios are all
    inside: of n, floor((n + 1) / 10) - 1 are left out at either end (split conformal prediction).
    """
    order = sorted(zip(measured, counts, strict=True))
    allowed = max(0, (len(order) + 1) // 10 - 1)
    tenth = sum(counts) / 10

    def end(values: Sequence[tuple[float, float]]) -> float:
        left = 0.0
        for number, (value, count) in enumerate(values):
            left += count
            if number >= allowed or left > tenth:
                return value
        return values[-1][0]

    low, high = end(order), end(order[::-1])
    return min(1.0, math.floor(100 * low) / 100), max(1.0, math.ceil(100 * high) / 100)


if __name__ == "__main__":
    main()
