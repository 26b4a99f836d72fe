"""Checks the cost model on the published measurements, or fits its constants on them.

scripts/fit_costs.py            print every row with its error
scripts/fit_costs.py --write    and keep the summary in targets/costs/error.yaml
scripts/fit_costs.py --fit      search better constants and print them (edit devices.yaml)
scripts/fit_costs.py --unseal   score the sealed rows, once, and keep what comes out

Sealed rows (the rule stands in targets/costs/anchors.yaml) are left out of everything but --unseal.
"""

from __future__ import annotations

import argparse
import copy
import hashlib
import math
import re
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import anchor_classifiers as classifiers
from anchor_detectors import (
    centerpoint,
    retinanet,
    ssd_resnet34,
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

from edgekit import targets
from edgekit.dla import LoadableCandidate
from edgekit.network import Network
from edgekit.placement._costs import CostModel, cost_data
from edgekit.placement._costs_regions import regions_of
from edgekit.placement._forecast import Clock
from edgekit.placement._kernels import Kernel, fuse
from edgekit.targets import PowerMode, Target

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
OPERATIONS = ("op_pairs", "dla_ops")  # sources of single operations, timed alone
FITTED = {
    "gpu.volta": [
        "launch_us",
        "floor_us",
        "efficiency.int8",
        "efficiency.fp16",
        "grouped",
        "depth_us",
    ],
    "gpu.ampere": [
        "launch_us",
        "floor_us",
        "depth_us",
        "efficiency.int8",
        "efficiency.fp16",
        "broken",
    ],
    "gpu": ["memory", "cache_speedup", "tile_exponent", "clock_exponent"],
    "dla.1.0": ["memory", "efficiency.fp16"],
    "dla.2.0": ["operation_us", "grouped_atom", "memory", "efficiency.int8"],
}
COSTS = Path(__file__).parent.parent / "targets" / "costs"
DEVICES, SEALED = COSTS / "devices.yaml", COSTS / "sealed.yaml"
FEWEST = 5  # rows that a device and precision needs for a band of its own
LIMITS = {
    "launch_us": (1, 5), "floor_us": (4, 25), "memory": (0.2, 0.7), "efficiency": (0.2, 0.9),
    "cache_speedup": (1, 2), "tile_exponent": (0.1, 1), "clock_exponent": (0.3, 1),
    "broken": (1, 8), "depth_us": (1, 20),
    "grouped": (0.01, 0.4), "operation_us": (0.5, 2), "grouped_atom": (32, 1024),
}  # fmt: skip


def network_of(row: Mapping[str, Any], batch: int | None = None) -> Network:
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
        return yolo26(name.removeprefix("yolo26"), row["size"][0], many)
    if name.startswith("yolov10"):
        return yolov10(name.removeprefix("yolov10"), row["size"][0], many)
    if name.startswith("yolov8"):
        return yolov8(name.removeprefix("yolov8"), row["size"][0], many)
    if name.startswith("yolox"):
        return yolox(name.removeprefix("yolox"), row["size"][0], many, row.get("classes", 80))
    if name.startswith("reduceformer"):
        return classifiers.reduceformer(name.rpartition("_")[2], row["size"][0], many)
    if name in ("yolov5s", "yolov7"):
        return {"yolov5s": yolov5s, "yolov7": yolov7}[name](row["size"][0], many)
    if name.startswith("resnet50"):
        height, width = row.get("size", (224, 224))
        return resnet50(many, height, width, head=name == "resnet50")
    own = {"classes": row["classes"]} if "classes" in row else {}
    return NETWORKS[name](many, *row.get("size", ()), **own)


def mode_of(row: Mapping[str, Any], target: Target) -> PowerMode:
    """Returns a row's power mode, with the clocks that it sets itself."""
    mode = target.mode(row["mode"])
    clocks = row.get("clocks", {})
    return replace(
        mode,
        gpu_mhz=clocks.get("gpu", mode.gpu_mhz),
        dla_mhz=tuple(clocks.get("dla", mhz) for mhz in mode.dla_mhz),
        memory_share=clocks.get("memory_share", mode.memory_share),
    )


class Anchor:
    """A row with its networks and their kernels, which do not change while constants do."""

    def __init__(self, row: Mapping[str, Any]) -> None:
        self.row = row
        self.us = float(row["us"])
        self.held_out = bool(row.get("held_out"))
        self.is_operation = row.get("source") in OPERATIONS
        self.target = targets.get(row["target"])
        self.mode = mode_of(row, self.target)
        self.parts = [self._part("GPU" if "side" in row else row["device"], None)]
        if row["device"] == "ALL":
            cores = [f"DLA{core}" for core in range(self.target.dla.cores)]
            self.parts = [self._part("GPU", None)]
            self.parts += [self._part(core, row["dla_batch"]) for core in cores]

    def _part(self, device: str, batch: int | None) -> tuple[str, int, Network, tuple[Kernel, ...]]:
        network = network_of(self.row, batch)
        rules = cost_data("kinds")["fusion"]
        kernels = fuse(network, rules["heads"], rules["tails"], lambda _: None)
        return device, batch or self.row.get("batch", 1), network, kernels

    def predict(self, constants: Mapping[str, Any]) -> float:
        """Returns the model's time in microseconds."""
        precision = self.row["precision"]
        model = CostModel(self.target, self.mode, precision, frozenset(), constants)
        if "side" in self.row:
            return self._automatic(model)
        rate = 0.0
        for device, batch, network, kernels in self.parts:
            time = sum(model.kernel_us(network, kernel, device) for kernel in kernels)
            time += model.launch_us() if device != "GPU" else 0.0
            time += self.row.get("builder_us", 0) * len(kernels)
            time -= sum(regions_of(model, network, {}).saved_us.values()) * (device == "GPU")
            time += self._reformats_us(model, network) if "linear" in self.row else 0.0
            rate += (batch if len(self.parts) > 1 else 1) / time
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
        if self.row["network"] == "detr":
            groups = detr_loadables(network, self.row["precision"])
        else:
            names = [layer.name for layer in network.layers]
            groups = [tuple(names[:-2]), (names[-1],)]  # its mean over pixels is the GPU's
        kept = [LoadableCandidate(group, kept=True) for group in groups]
        found = Clock(network, model, {}).forecast(kept)
        gpu_us = found.auto_us - found.dla_us
        return {"GPU": gpu_us, "DLA": found.dla_us, "both": found.auto_us}[self.row["side"]]


def family(network: str) -> str:
    """Returns the family of a network: its name up to the first number."""
    found = re.match(r"yolox|\D+\d*", network)
    assert found is not None
    return found[0]


def is_sealed(number: int, row: Mapping[str, Any]) -> bool:
    """Whether a row, the ``number``-th of the file, is left for the end: the rule stands there."""
    rule = cost_data("anchors")["sealing"]
    name = f"edgekit anchors {family(row['network'])} {row['target']}"
    chosen = int.from_bytes(hashlib.sha256(name.encode()).digest(), "big") % rule["one_in"] == 0
    return chosen and number >= rule["known_rows"]


def anchors() -> list[Anchor]:
    """Returns the published rows that may be looked at."""
    data = cost_data("anchors")
    last = data["sealing"]["known_rows"] if data["sealing"]["gathering"] else len(data["rows"])
    rows = enumerate(data["rows"][:last])
    return [Anchor(row) for number, row in rows if not is_sealed(number, row)]


def unseal() -> str:
    """Returns the sealed rows with their errors as a file, of which there is only the first one.

    Raises:
        SystemExit: They were scored before, or rows are still being gathered.
    """
    data = cost_data("anchors")
    if SEALED.exists():
        raise SystemExit(f"{SEALED.name} exists: sealed rows are scored once")
    if data["sealing"]["gathering"]:
        raise SystemExit("rows are still being gathered: anchors.yaml, sealing.gathering")
    rows = [Anchor(row) for number, row in enumerate(data["rows"]) if is_sealed(number, row)]
    lines = [
        "schema: edgekit.costs/1",
        "# Written once by scripts/fit_costs.py --unseal; the rows took no part in any fit.",
        "# predicted_us: by the constants whose SHA-256 is given.",
        f"constants: {hashlib.sha256(DEVICES.read_bytes()).hexdigest()}",
        "rows:",
    ]
    for row, error in zip(rows, errors(rows, cost_data("devices")), strict=True):
        said = f"row: {' '.join(describe(row).split())!r}, us: {row.us:g}"
        lines.append(f"  - {{{said}, predicted_us: {row.us * (1 + error):.1f}}}")
    return "\n".join(lines) + "\n"


def errors(rows: Sequence[Anchor], constants: Mapping[str, Any]) -> list[float]:
    """Returns predicted over measured, minus one, by row."""
    return [row.predict(constants) / row.us - 1 for row in rows]


def fit(rows: Sequence[Anchor]) -> dict[str, Any]:
    """Coordinate descent on the logarithmic errors; rows that a constant does not touch rest."""
    constants = copy.deepcopy(dict(cost_data("devices")))

    def sizes() -> list[float]:
        return [abs(math.log(1 + error)) ** 1.5 for error in errors(rows, constants)]

    best = sum(sizes())
    step = 1.3
    while step > 1.02:
        better = False
        for group, names in FITTED.items():
            for name in names:
                places = list(_places(constants, group, name))
                low, high = LIMITS[name.split(".")[0]]
                for factor in (step, 1 / step):
                    before = [holder[key] for holder, key in places]
                    for (holder, key), value in zip(places, before, strict=True):
                        holder[key] = min(high, max(low, value * factor))
                    now = sum(sizes())
                    if now < best - 1e-9:
                        best, better = now, True
                        continue
                    for (holder, key), value in zip(places, before, strict=True):
                        holder[key] = value
        if not better:
            step = 1 + (step - 1) / 2
    return constants


def _places(
    constants: dict[str, Any], group: str, name: str
) -> Iterator[tuple[dict[str, Any], str]]:
    """Yields where a constant stands; that of a whole family stands in each of its kinds."""
    family, _, kind = group.partition(".")
    for holder in [constants[family][kind]] if kind else constants[family].values():
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
    return f"{what:30} {where}{' (held out)' if anchor.held_out else ''}"


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
    rows = anchors()
    constants: Mapping[str, Any] = cost_data("devices")
    if options.fit:
        constants = fit([row for row in rows if not row.held_out])
        for group, names in FITTED.items():
            values = {n: next(h[k] for h, k in _places(constants, group, n)) for n in names}
            print(group, {n: round(value, 4) for n, value in values.items()})
    found = errors(rows, constants)
    for anchor, error in zip(rows, found, strict=True):
        print(f"{describe(anchor):86} {anchor.us:>8.0f} us {100 * error:+6.1f} %")
    print(summary(rows, found))
    if options.write:
        (COSTS / "error.yaml").write_text(error_file(rows, found), encoding="utf-8")


def summary(rows: Sequence[Anchor], found: Sequence[float]) -> str:
    """Returns medians and the largest factor, in words."""
    said = []
    for what, operations in (
        ("rows of networks", False),
        ("operations that a builder timed", True),
    ):
        some = [(r, e) for r, e in zip(rows, found, strict=True) if r.is_operation == operations]
        sizes = [100 * abs(error) for _, error in some]
        held = [100 * abs(error) for row, error in some if row.held_out]
        far = sum(not 0.5 <= 1 + error <= 2 for _, error in some)
        said.append(
            f"{len(sizes)} {what}: median {statistics.median(sizes):.1f} %, at most "
            f"{max(sizes):.1f} %; {len(held)} held out: median {statistics.median(held):.1f} %; "
            f"{far} off by more than a factor of 2"
        )
    return ".\n".join(said)


def error_file(rows: Sequence[Anchor], found: Sequence[float]) -> str:
    """Returns ``targets/costs/error.yaml``."""
    sizes, held, timed = [], [], []
    for row, error in zip(rows, found, strict=True):
        (timed if row.is_operation else sizes).append(100 * abs(error))
        held += [100 * abs(error)] * (row.held_out and not row.is_operation)
    lines = [
        "schema: edgekit.costs/1",
        "# Written by scripts/fit_costs.py --write; do not edit. bands: measured over predicted;",
        "# 80 % of the rows or more lie inside, all of them where there are fewer than 19; rows",
        "# that the constants were not fitted on included.",
        "# operations: what a builder timed alone, no run of a network.",
        f"rows: {len(sizes)}",
        f"held_out: {len(held)}",
        f"median_percent: {statistics.median(sizes):.1f}",
        f"median_percent_held_out: {statistics.median(held):.1f}",
        f"max_percent: {max(sizes):.1f}",
        f"operations: {{rows: {len(timed)}, median_percent: {statistics.median(timed):.1f}, "
        f"max_percent: {max(timed):.1f}}}",
        "bands:",
    ]
    for name, found_in in sorted(ratios(rows, found).items()):
        if len(found_in) >= FEWEST:
            low, high = band(found_in)
            lines.append(f"  {name}: [{low:.2f}, {high:.2f}]")
    return "\n".join(lines) + "\n"


def ratios(rows: Sequence[Anchor], found: Sequence[float]) -> dict[str, list[float]]:
    """Returns measured over predicted, of all rows and by device and precision."""
    groups: dict[str, list[float]] = {"all": []}
    for row, error in zip(rows, found, strict=True):
        ratio = 1 / (1 + error)
        groups["all"].append(ratio)
        side = row.row.get("side", row.row["device"])
        if side not in ("ALL", "both"):
            kind = "gpu" if side == "GPU" else "dla"
            groups.setdefault(f"{kind}_{row.row['precision']}", []).append(ratio)
    return groups


def band(measured: Sequence[float]) -> tuple[float, float]:
    """Returns a conservative 80 % interval of ratios, rounded outwards, with 1 inside.

    Of n rows and one more like them, at most a tenth lies below the k-th smallest for
    k = floor((n + 1) / 10) (split conformal prediction). Below 9 rows there is no such k; the
    smallest and the largest are taken, which hold the next row with (n - 1) / (n + 1) only.
    """
    order = sorted(measured)
    outside = max(0, (len(order) + 1) // 10 - 1)
    low, high = order[outside], order[-1 - outside]
    return min(1.0, math.floor(100 * low) / 100), max(1.0, math.ceil(100 * high) / 100)


if __name__ == "__main__":
    main()
