"""Fits the time of reformat kernels on the measured ones and prints the error by pair of layouts.

scripts/fit_reformat.py            fit, cross-validate by tensor shape, print
scripts/fit_reformat.py --write    and keep the constants in targets/costs/reformat.yaml

Least absolute relative error by reweighted least squares. A Gemm's rows are a batch that the
strides do not show; DETR, which most rows come from, has 100 and 850, so each group of rows with an
unknown batch gets 1, 100 or 850, whichever fits best.

Thin data: the rates of a type in any pair of layouts are fitted first. A pair's own rate stays
within a factor of ``SPAN`` of the general rates and is drawn to these by ``PULL``. Where fewer than
``LEAST`` kernels spend ``NOISE_US`` in it, by the rates of any pair, it is not fitted at all.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from reformat_rows import Row, read_rows

BATCHES = (1, 100, 850)
SPAN = 5.0  # times the rate of any pair, and its part
PULL = 0.03  # of a kernel that spends all its time there
NOISE_US = 1.5  # a tenth of a launch, which is how well one is predicted
LEAST = 2  # kernels that it takes to fit a constant
FASTEST = 1.0  # us per megabyte: no memory of the chip, caches included, is beyond 1 TB/s
FOLDS = 5
GOAL = Path(__file__).parent.parent / "targets" / "costs" / "reformat.yaml"

Name = tuple[str, ...]
Features = Mapping[Name, float]
Constants = dict[Name, float]

LAUNCH = ("launch",)


def by_class(row: Row, batch: int) -> Features:
    """Returns launch, bytes read and bytes written, by classes, types and alignment."""
    lines = "aligned" if row.aligned else "unaligned"
    pair = (row.source[1], row.goal[1], lines)
    return {
        LAUNCH: 1.0,
        ("read", *pair, row.source[0]): batch * row.read / 1e6,
        ("written", *pair, row.goal[0]): batch * row.written / 1e6,
    }


def by_type(row: Row, batch: int) -> Features:
    """Returns launch, bytes read and bytes written, whatever the layouts."""
    return {
        LAUNCH: 1.0,
        ("read", row.source[0]): batch * row.read / 1e6,
        ("written", row.goal[0]): batch * row.written / 1e6,
    }


def general(name: Name) -> Name:
    """Returns the name that a constant of :func:`by_class` has in :func:`by_type`."""
    return (name[0], name[-1]) if len(name) > 2 else name


def solve(
    rows: Sequence[Row],
    batches: Sequence[int],
    features: Callable[..., Features],
    around: Constants | None = None,
) -> Constants:
    """Returns the constants with the least absolute relative error.

    Args:
        rows, batches: The kernels.
        features: The factor of each constant in each kernel.
        around: The rates of any pair, which the constants keep to; none: they are fitted
            themselves.
    """
    found = [features(row, batch) for row, batch in zip(rows, batches, strict=True)]
    names = sorted({name for row in found for name in row})
    place = {name: i for i, name in enumerate(names)}
    matrix = np.zeros((len(rows), len(names)))
    for line, row in enumerate(found):
        for name, value in row.items():
            matrix[line, place[name]] = value / rows[line].us
    low, high = np.full(len(names), FASTEST), np.full(len(names), np.inf)
    square, right = np.zeros((len(names), len(names))), np.zeros(len(names))
    for name, i in place.items():
        if around and name != LAUNCH:
            rate = around[general(name)]
            span = SPAN if len(name) > 2 else 1.0
            low[i], high[i] = rate / span, rate * span
            square[i, i], right[i] = PULL / rate**2, PULL / rate
    weights = np.ones(len(rows))
    values = low.copy()
    for _ in range(6):
        weighted = matrix * weights[:, None]
        values = _descend(
            weighted.T @ weighted + square, weighted.T @ weights + right, values, low, high
        )
        weights = 1 / np.sqrt(np.maximum(abs(matrix @ values - 1), 0.02))
    return dict(zip(names, map(float, values), strict=True))


def _descend(
    square: np.ndarray, right: np.ndarray, values: np.ndarray, low: np.ndarray, high: np.ndarray
) -> np.ndarray:
    scale = np.diag(square) + 1e-12
    for _ in range(300):
        most = 0.0
        for j in range(len(values)):
            new = min(high[j], max(low[j], values[j] - (square[j] @ values - right[j]) / scale[j]))
            most = max(most, abs(new - values[j]) * math.sqrt(scale[j]))
            values[j] = new
        if most < 1e-5:
            break
    return values


def fit(rows: Sequence[Row], batches: Sequence[int]) -> tuple[Constants, Constants]:
    """Returns the constants of pairs that enough was measured of, and those of any pair."""
    coarse = solve(rows, batches, by_type)
    received: dict[Name, int] = defaultdict(int)
    for row, batch in zip(rows, batches, strict=True):
        for name, size in by_class(row, batch).items():
            received[name] += size * coarse[general(name)] >= NOISE_US
    thin = {name for name, kernels in received.items() if kernels < LEAST and name != LAUNCH}

    def known(row: Row, batch: int) -> Features:
        found = by_class(row, batch)
        return {general(n) if n in thin else n: size for n, size in found.items()}

    fine = solve(rows, batches, known, coarse)
    return {name: us for name, us in fine.items() if len(name) != 2}, coarse


def predict(fine: Constants, coarse: Constants, features: Features) -> float:
    """Returns microseconds; a pair without a constant takes the constant of any pair."""
    return sum(fine.get(n, coarse.get(general(n), 0.0)) * size for n, size in features.items())


def guess_batches(rows: Sequence[Row]) -> list[int]:
    """Returns each row's batch, which is found in turns with the constants."""
    chosen: dict[Hashable, int] = {row.unknown: 100 for row in rows if row.unknown}
    for _ in range(6):
        batches = [chosen.get(row.unknown, 1) if row.unknown else 1 for row in rows]
        constants = solve(rows, batches, by_class)  # free: drawn to a rate, it draws the batches
        before = dict(chosen)
        for group in chosen:
            members = [row for row in rows if row.unknown == group]

            chosen[group] = min(BATCHES, key=partial(_loss, members, constants))
        if chosen == before:
            break
    return batches


def _loss(rows: Sequence[Row], constants: Constants, batch: int) -> float:
    times = ((predict(constants, {}, by_class(row, batch)), row.us) for row in rows)
    return sum(abs(math.log(time / measured)) for time, measured in times)


def held_out(rows: Sequence[Row], batches: Sequence[int]) -> list[float]:
    """Returns relative errors of each fold of shapes by constants fitted on the others."""
    shapes = sorted({row.geometry for row in rows})
    folds = {shape: number % FOLDS for number, shape in enumerate(shapes)}
    errors = [0.0] * len(rows)
    for fold in range(FOLDS):
        inside = [i for i, row in enumerate(rows) if folds[row.geometry] != fold]
        constants = fit([rows[i] for i in inside], [batches[i] for i in inside])
        for i in set(range(len(rows))) - set(inside):
            time = predict(*constants, by_class(rows[i], batches[i]))
            errors[i] = time / rows[i].us - 1
    return errors


def summary(errors: Sequence[float]) -> str:
    """Returns median and 90 % quantile of absolute relative errors in percent."""
    sizes = sorted(100 * abs(error) for error in errors)
    return (
        f"median {statistics.median(sizes):.1f} %, 90 % below {sizes[int(0.9 * len(sizes))]:.0f} %"
    )


def text(
    fine: Constants, coarse: Constants, fitted: float, cross: float, table: Sequence[str]
) -> str:
    """Returns ``targets/costs/reformat.yaml``."""
    lines = [
        "schema: edgekit.costs/1",
        "# Written by scripts/fit_reformat.py --write; do not edit. Reformat kernels of a GPU:",
        "# launch_us + megabytes read * read + megabytes written * written, by the layout classes",
        "# (left>entered), whether lines are multiples of 16 elements, and type.",
        "# Classes: LINEAR; DLA (linear, lines of 64 bytes); CHW (vectors of channels, plane by",
        "# plane); HWC (channels last). What a pair lacks was measured too little or not at all",
        "# and takes what it does in any pair; no rate is further from that than a factor of 5.",
        'source: "github.com/yyshin-katech/embedded-ai-quantization-guide (MIT), commit c042cb1: '
        'verbose build logs of an AGX Orin 64 GB at MAXN, TensorRT 10.3"',
        f"kernels: {len(read_rows())}",
        f"median_percent: {fitted:.1f}",
        f"median_percent_held_out: {cross:.1f}",
        "measured_on: {dram_bytes_per_second: 204.8e+9, gpu_mhz: 1300.5, gpu_sms: 16}",
        f"launch_us: {fine[LAUNCH]:.2f}",
        "us_per_megabyte_of_any_pair:",
    ]
    for what in ("read", "written"):
        rates = {name[1]: us for name, us in coarse.items() if name[0] == what}
        lines.append(f"  {what}: {_inline(rates)}")
    lines.append("us_per_megabyte:")
    nested: dict[str, dict[str, dict[str, dict[str, float]]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(dict))
    )
    for name, value in fine.items():
        if name != LAUNCH:
            what, source, goal, aligned, dtype = name
            nested[f"{source}>{goal}"][aligned][what][dtype] = value
    for pair, tables in sorted(nested.items()):
        lines.append(f"  {pair}:")
        for aligned, sides in sorted(tables.items()):
            parts = [f"{what}: {_inline(rates)}" for what, rates in sorted(sides.items())]
            lines.append(f"    {aligned}: {{{', '.join(parts)}}}")
    lines.append("errors:  # kernels, median percent fitted, median percent held out by shape")
    return "\n".join((*lines, *table)) + "\n"


def _inline(rates: Mapping[str, float]) -> str:
    return f"{{{', '.join(f'{dtype}: {us:.2f}' for dtype, us in sorted(rates.items()))}}}"


def error_table(rows: Sequence[Row], errors: Sequence[float], cross: Sequence[float]) -> list[str]:
    """Returns a line of errors for each pair of classes."""
    members: dict[str, list[int]] = defaultdict(list)
    for i, row in enumerate(rows):
        members[f"{row.source[1]}>{row.goal[1]}"].append(i)
    lines = []
    for pair, inside in sorted(members.items()):
        own, apart = (
            statistics.median(abs(100 * found[i]) for i in inside) for found in (errors, cross)
        )
        lines.append(f"  {pair}: [{len(inside)}, {own:.1f}, {apart:.1f}]")
    return lines


def main() -> None:
    """Fits and prints; see the module's text."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    rows = read_rows()
    batches = guess_batches(rows)
    fine, coarse = fit(rows, batches)
    pairs = list(zip(rows, batches, strict=True))
    errors = [predict(fine, coarse, by_class(row, batch)) / row.us - 1 for row, batch in pairs]
    plain = [predict(coarse, coarse, by_type(row, batch)) / row.us - 1 for row, batch in pairs]
    cross = held_out(rows, batches)
    by_pair: dict[tuple[str, str], list[int]] = defaultdict(list)
    for i, row in enumerate(rows):
        by_pair[row.formats].append(i)
    for (source, goal), members in sorted(by_pair.items()):
        fitted, apart = ([found[i] for i in members] for found in (errors, cross))
        print(f"{source:16} -> {goal:16} {len(members):4}  fitted {summary(fitted)}")
        print(f"{'':42}held out {summary(apart)}")
    large = [i for i, row in enumerate(rows) if batches[i] * (row.read + row.written) > 1e6]
    print(f"{len(rows)} kernels, {len(fine) + len(coarse) - 1} constants: {summary(errors)}")
    print(f"held out by shape: {summary(cross)}; by size and type alone: {summary(plain)}")
    print(f"{len(large)} of more than a megabyte: {summary([errors[i] for i in large])}")
    if options.write:
        own, other = (statistics.median(abs(100 * e) for e in some) for some in (errors, cross))
        table = error_table(rows, errors, cross)
        GOAL.write_text(text(fine, coarse, own, other, table), encoding="utf-8")


if __name__ == "__main__":
    main()
