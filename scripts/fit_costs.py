"""Checks the cost model on the published measurements, or fits its constants on them.

scripts/fit_costs.py            print every row with its error
scripts/fit_costs.py --write    and keep the summary in targets/costs/error.yaml
scripts/fit_costs.py --fit      search better constants and print them (edit devices.yaml)
"""

from __future__ import annotations

import argparse
import copy
import math
import statistics
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from anchor_networks import googlenet, resnet50, ssd_mobilenet

from edgekit import targets
from edgekit.network import Network
from edgekit.placement._costs import CostModel, cost_data
from edgekit.placement._kernels import fuse

FITTED = {
    "gpu.volta": [
        "launch_us",
        "floor_us",
        "memory",
        "efficiency.int8",
        "efficiency.fp16",
        "grouped",
    ],
    "gpu.ampere": ["launch_us", "floor_us", "memory", "efficiency.int8", "efficiency.fp16"],
    "dla.1.0": ["memory", "efficiency.fp16"],
    "dla.2.0": ["operation_us", "grouped_atom", "memory", "efficiency.int8", "efficiency.fp16"],
}
LIMITS = {
    "launch_us": (1, 5), "floor_us": (4, 25), "memory": (0.2, 0.85), "efficiency": (0.2, 0.9),
    "grouped": (0.01, 0.4), "operation_us": (0.5, 2), "grouped_atom": (32, 1024),
}  # fmt: skip


def network_of(row: Mapping[str, Any]) -> Network:
    """Returns the network of an anchor row."""
    batch = row.get("batch", 1)
    if row["network"] == "googlenet":
        return googlenet(batch)
    if row["network"] == "ssd_mobilenet":
        return ssd_mobilenet(batch)
    height, width = row.get("size", (224, 224))
    return resnet50(batch, height, width, head=row["network"] == "resnet50")


def predict(row: Mapping[str, Any], network: Network, constants: Mapping[str, Any]) -> float:
    """Returns the model's time for an anchor row in microseconds."""
    target = targets.get(row["target"])
    model = CostModel(target, target.mode(row["mode"]), row["precision"], frozenset(), constants)
    rules = cost_data("kinds")["fusion"]
    kernels = fuse(network, rules["heads"], rules["tails"], lambda _: None)
    total = sum(model.kernel_us(network, kernel, row["device"]) for kernel in kernels)
    return total + (model.launch_us() if row["device"] != "GPU" else 0.0)


def errors(
    rows: list[tuple[Mapping[str, Any], Network]], constants: Mapping[str, Any]
) -> list[float]:
    """Returns predicted over measured, minus one, by row."""
    return [predict(row, network, constants) / row["us"] - 1 for row, network in rows]


def fit(rows: list[tuple[Mapping[str, Any], Network]]) -> dict[str, Any]:
    """Coordinate descent on the squared logarithmic errors."""
    constants = copy.deepcopy(dict(cost_data("devices")))

    def loss() -> float:
        return sum(math.log(1 + e) ** 2 for e in errors(rows, constants))

    best = loss()
    step = 1.3
    while step > 1.01:
        better = False
        for group, names in FITTED.items():
            family, kind = group.split(".", 1)
            for name in names:
                holder, key = constants[family][kind], name
                if "." in name:
                    outer, key = name.split(".")
                    holder = holder[outer]
                low, high = LIMITS[name.split(".")[0]]
                for factor in (step, 1 / step):
                    before = holder[key]
                    holder[key] = min(high, max(low, before * factor))
                    now = loss()
                    if now < best - 1e-9:
                        best, better = now, True
                    else:
                        holder[key] = before
        if not better:
            step = 1 + (step - 1) / 2
    return constants


def main() -> None:
    """Prints the table; see the module's text."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--fit", action="store_true")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    rows = [(row, network_of(row)) for row in cost_data("anchors")["rows"]]
    constants: Mapping[str, Any] = cost_data("devices")
    if options.fit:
        constants = fit(rows)
        for group, names in FITTED.items():
            family, kind = group.split(".", 1)
            print(group, {n.split(".")[0]: constants[family][kind][n.split(".")[0]] for n in names})
    found = errors(rows, constants)
    for (row, _), error in zip(rows, found, strict=True):
        what = f"{row['network']} batch {row.get('batch', 1)} {row.get('size', '')}"
        where = f"{row['target']} {row['mode']} {row['device']} {row['precision']}"
        print(f"{what:36} {where:44} {row['us']:>8} us {100 * error:+6.1f} %")
    sizes = [100 * abs(error) for error in found]
    print(f"{len(sizes)} rows: median {statistics.median(sizes):.1f} %, at most {max(sizes):.1f} %")
    if options.write:
        path = Path(__file__).parent.parent / "targets" / "costs" / "error.yaml"
        head = path.read_text(encoding="utf-8").split("rows:")[0]
        path.write_text(
            f"{head}rows: {len(sizes)}\nmedian_percent: {statistics.median(sizes):.1f}\n"
            f"max_percent: {max(sizes):.1f}\n",
            encoding="utf-8",
        )


if __name__ == "__main__":
    main()
