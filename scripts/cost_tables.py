"""The tables of docs/cost-model.md and docs/data/predictions.csv, from ``targets/costs``."""

from __future__ import annotations

import csv
import io
import re
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from fit_costs import (
    FITTED,
    LIMITS,
    Anchor,
    Spread,
    cost_data,
    current_constants,
    describe,
    error_spreads,
    family,
    left_out_errors,
    ratios,
    read_anchors,
    relative_errors,
)

from edgekit.placement.costs.constants import contention_constants, extrapolation, model_errors
from edgekit.placement.costs.model import contention_factors, slowdown
from edgekit.placement.costs.reformat import reformat_constants
from edgekit.targets.board import shared_sources
from edgekit.targets.loader import get

__all__ = ["cost_page", "predictions"]

PAGE = Path(__file__).parent.parent / "docs" / "cost-model.md"


def cost_page() -> str:
    """Returns the page with its tables written anew; its text is written by hand."""
    text = PAGE.read_text(encoding="utf-8")
    rows, found = _predict_rows()
    for name, table in (
        ("summary", _summary(rows, found)),
        ("networks", _left_out(rows, 0)),
        ("boards", _left_out(rows, 1)),
        ("signs", _signs(rows)),
        ("automatic", _automatic(rows, found)),
        ("sealed", _sealed()),
        ("bands", _bands(rows)),
        ("constants", _constants()),
        ("pairs", _pairs()),
        ("energies", _energies()),
        ("reformats", _reformats()),
        ("sources", _sources()),
    ):
        before, _, rest = text.partition(f"<!-- {name} -->\n")
        _, _, after = rest.partition(f"<!-- end {name} -->")
        text = f"{before}<!-- {name} -->\n{table}<!-- end {name} -->{after}"
    return text


def predictions() -> str:
    """Returns every measured row beside its prediction as CSV: times in us, errors in percent.

    A row of a sealed scoring has its time as predicted at that scoring, and no error by other
    constants: it was in no fit then.
    """
    rows, found = _predict_rows()
    by_network, by_board = left_out_errors(rows, 0), left_out_errors(rows, 1)
    text = io.StringIO()
    written = csv.writer(text, lineterminator="\n")
    written.writerow(
        (
            "kind",
            "row",
            "predicted_us",
            "measured_us",
            "error_percent",
            "error_percent_without_network",
            "error_percent_without_board",
            "source",
        )
    )
    for row, error, *apart in zip(rows, found, by_network, by_board, strict=True):
        percents = ("" if share is None else f"{100 * share:+.1f}" for share in (error, *apart))
        written.writerow(
            (
                "published",
                " ".join(describe(row).split()),
                f"{(1 + error) * row.us:.0f}",
                f"{row.us:.0f}",
                *percents,
                row.row["source"],
            )
        )
    for number in range(len(cost_data("sealed")["scored"])):
        for scored, error in _sealed_round(number):
            written.writerow(
                (
                    f"sealed, scoring {number + 1}",
                    scored["row"],
                    f"{scored['predicted_us']:.0f}",
                    f"{scored['us']:.0f}",
                    f"{100 * error:+.1f}",
                    "",
                    "",
                    "",
                )
            )
    return text.getvalue()


@cache
def _predict_rows() -> tuple[list[Anchor], list[float]]:
    """Returns the published rows and their errors, which take seconds to predict."""
    rows = read_anchors()
    return rows, relative_errors(rows, current_constants())


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _summary(rows: Sequence[Anchor], found: Sequence[float]) -> str:
    words = {
        "fitted": "networks, by the constants as they are",
        "without_network": "networks, by constants fitted without their family",
        "without_board": "networks, by constants fitted without their board",
        "automatic": "networks that TensorRT placed by itself",
        "operations": "single operations",
    }
    lines = [
        (
            words[kind],
            str(some.rows),
            f"{some.median:.1f} %",
            f"{some.most_of:.1f} %",
            f"{some.sizes[-1]:.1f} %",
            str(some.far),
        )
        for kind, some in error_spreads(rows, found).items()
    ]
    head = ("error of", "rows", "median", "90 % within", "at most", "off by over 2")
    return _table(head, lines)


def _constants() -> str:
    rows: list[tuple[str, ...]] = []
    for device, kinds in (
        ("gpu", cost_data("devices")["gpu"]),
        ("dla", cost_data("devices")["dla"]),
    ):
        for kind, constants in kinds.items():
            if "all constants" in str(constants["source"]):
                rows.append((f"{device} {kind}", "all", "as ampere", "assumed"))
                continue
            for name, value in constants.items():
                if name != "source" and not name.endswith("note"):
                    origin = _origin(name, constants["source"])
                    if origin == "fitted":
                        origin = _fitted(device, kind, name, value)
                    text = str(value)
                    if isinstance(value, dict):
                        text = ", ".join(f"{key} {item}" for key, item in value.items())
                    rows.append((f"{device} {kind}", f"`{name}`", text, origin))
    return _table(("device", "constant", "value", "where from"), rows)


def _origin(name: str, source: dict[str, Any]) -> str:
    if name in source:
        return str(source[name])
    for how in ("fitted", "assumed"):
        if any(name in re.split(r"[ ,.]+", str(item)) for item in source.get(how, ())):
            return how
    raise ValueError(f"{name} has no source")


def _fitted(family: str, kind: str, name: str, value: Any) -> str:
    """Returns "fitted", by type where only some are, and where the fit stopped at a limit."""
    of_fit = {*FITTED.get(family, ()), *FITTED[f"{family}.{kind}"]}
    of_fit |= {"broken"} if kind == "ampere" else set()  # the one board with such rows
    said = []
    for part, number in value.items() if isinstance(value, dict) else [("", value)]:
        how = "fitted" if f"{name}.{part}".rstrip(".") in of_fit else "assumed"
        if how == "fitted" and number in LIMITS[name]:
            how += " (at its limit)"
        said.append(f"{part} {how}".strip())
    return ", ".join(said)


def _sources() -> str:
    data = cost_data("anchors")
    used = _table(
        ("source", "where from"), [(f"`{name}`", text) for name, text in data["sources"].items()]
    )
    return (
        f"{used}\n{len(data['excluded'])} more published figures were found and not used, before "
        "any figure was compared\nwith the model. `targets/costs/anchors.yaml` lists them with "
        "the reasons (`excluded`).\n"
    )


def _pairs() -> str:
    data = contention_constants()
    rows: list[tuple[str, ...]] = []
    for pair in data.pairs:
        board, hybrid = pair.board, pair.hybrid
        extra = contention_factors(get(board)) if board else data.extra[pair.generation]
        on_core = pair.device == "dla"
        factor = slowdown(extra, on_core, pair.cores, bool(pair.gpus), hybrid=hybrid)
        beside = ["the GPU"] if pair.gpus else []
        cores = {(False, 1): "one core", (False, 2): "two cores", (True, 1): "the other core"}
        beside += [cores[on_core, pair.cores]] if pair.cores else []
        where = board or {"1.0": "jetson-agx-xavier", "2.0": "an Orin"}[pair.generation]
        what = f" ({pair.what})" if pair.what else ""
        rows.append(
            (
                ("a core" if on_core else "the GPU"),
                " and ".join(beside),
                "hybrid" if hybrid else "one device",
                f"{where}{what}",
                f"{100 / pair.slowdown:.0f} %",
                f"{100 / factor:.0f} %",
                f"`{pair.source}`",
            )
        )
    head = ("device", "beside", "DLA engine", "board", "keeps, published", "predicted", "source")
    known = {**shared_sources(), **data.sources}
    used = dict.fromkeys(pair.source for pair in data.pairs)
    sources = [(f"`{name}`", known[name]) for name in used]
    return f"{_table(head, rows)}\n{_table(('source', 'where from'), sources)}"


def _energies() -> str:
    data = cost_data("energies")
    rows: list[tuple[str, ...]] = []
    for row in data["rows"]:
        anchor, rate = Anchor({**row, "us": 1.0}), row.get("rate_hz")
        model = replace(anchor.model(current_constants()), rate_hz=rate)
        names = ("GPU", "DLA0")
        us = anchor.predict(current_constants())
        loads = (us, 0.0) if row["device"] == "GPU" else (0.0, us)
        # without the addition for concurrent work: one engine runs at a time
        watts = [model.watts(name, "") for name in names]
        found = sum(load * w for load, w in zip(loads, watts, strict=True)) / 1e3
        if rate:
            found += model.idle_uj(loads) / 1e3 - 1e3 * anchor.target.idle_watts / rate
        said = row["over_idle_mj"] if rate else row["mj"]
        rows.append(
            (
                " ".join(describe(anchor).split()),
                f"{rate}/s, over idle" if rate else "back to back",
                f"{said:.1f} mJ",
                f"{found:.1f} mJ",
                f"`{row['source']}`",
            )
        )
    sources = [(f"`{name}`", text) for name, text in data["sources"].items()]
    head = ("row", "rate", "published", "predicted", "source")
    return f"{_table(head, rows)}\n{_table(('source', 'where from'), sources)}"


def _reformats() -> str:
    data = reformat_constants()
    rows = [
        (pair.replace(">", " to "), f"{count:g}", f"{fitted} %", f"{held} %")
        for pair, (count, fitted, held) in data.errors.items()
    ]
    total = (
        "all",
        str(data.kernels),
        f"{data.median_percent} %",
        f"{data.median_percent_held_out} %",
    )
    head = ("layouts", "kernels", "median error", "held out by shape")
    return _table(head, [*rows, total])


def _bands(rows: Sequence[Anchor]) -> str:
    found = ratios(rows)
    lines: list[tuple[str, ...]] = []
    for name, (low, high) in model_errors().bands.items():
        measured, _ = found[name]
        half = len(measured) // 2
        shares = (
            f"{100 * sum(low <= ratio <= high for ratio in some) / half:.0f} %"
            for some in (measured[:half], measured[half:])
        )
        lines.append((name.replace("_", " "), str(half), f"{low}", f"{high}", *shares))
    low, high = extrapolation().band
    lines.append(("extrapolated", "0", f"{low}", f"{high}", "", ""))
    head = ("what", "rows", "low", "high", "inside, without their network", "without their board")
    return _table(head, lines)


def _left_out(rows: Sequence[Anchor], which: int) -> str:
    """Returns the errors of each network, or board, by constants fitted without it."""
    groups: dict[str, list[float]] = {}
    for row, error in zip(rows, left_out_errors(rows, which), strict=True):
        if error is not None and not row.is_operation:
            key = row.row["target"] if which else family(row.row["network"])
            groups.setdefault(key, []).append(error)
    groups["all"] = [error for some in list(groups.values()) for error in some]
    lines = []
    for name, some in groups.items():
        spread, middle = Spread(some), sorted(some)[len(some) // 2]
        lines.append(
            (
                name,
                str(spread.rows),
                f"{100 * middle:+.0f} %",
                f"{spread.median:.0f} %",
                f"{spread.most_of:.0f} %",
                f"{spread.sizes[-1]:.0f} %",
                str(spread.far),
            )
        )
    head = (
        "board" if which else "network",
        "rows",
        "median",
        "median size",
        "90 % within",
        "at most",
        "off by over 2",
    )
    return _table(head, lines)


def _signs(rows: Sequence[Anchor]) -> str:
    """Returns whether the GPU's times are too long or too short, by board and precision."""
    errors_by_board: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for row, *both in zip(rows, left_out_errors(rows, 0), left_out_errors(rows, 1), strict=True):
        if row.row["device"] == "GPU" and row.is_fitted and not row.is_operation:
            where = (row.row["target"], row.row["precision"])
            errors_by_board.setdefault(where, []).append((both[0] or 0.0, both[1] or 0.0))
    lines = [
        (
            *where,
            str(len(some)),
            *(f"{100 * statistics.median(errors[i] for errors in some):+.0f} %" for i in (0, 1)),
            *(f"{100 * sum(errors[i] > 0 for errors in some) / len(some):.0f} %" for i in (0, 1)),
        )
        for where, some in sorted(errors_by_board.items())
    ]
    head = (
        "board",
        "precision",
        "rows",
        "median without its network",
        "without its board",
        "too long without its network",
        "without its board",
    )
    return _table(head, lines)


def _automatic(rows: Sequence[Anchor], found: Sequence[float]) -> str:
    lines = [
        (
            " ".join(describe(row).split()),
            f"{(1 + error) * row.us:.0f}",
            f"{row.us:.0f}",
            f"{100 * error:+.1f} %",
        )
        for row, error in zip(rows, found, strict=True)
        if "side" in row.row
    ]
    return _table(("row", "predicted us", "measured us", "error"), lines)


def _sealed_round(number: int) -> list[tuple[dict[str, Any], float]]:
    rows = cost_data("sealed")["scored"][number]["rows"]
    return [(row, row["predicted_us"] / row["us"] - 1) for row in rows]


def _sealed() -> str:
    bands = model_errors().bands
    rounds = [_sealed_round(number) for number in range(len(cost_data("sealed")["scored"]))]
    return "".join(_round_table(number, scored, bands) for number, scored in enumerate(rounds, 1))


def _round_table(
    number: int,
    scored: Sequence[tuple[dict[str, Any], float]],
    bands: Mapping[str, tuple[float, float]],
) -> str:
    inside = []
    for row, error in scored:
        device, precision = row["row"].split()[-2:]
        kind = "all" if device in ("ALL", "AUTO") else f"{device[:3].lower()}_{precision}"
        low, high = bands[kind]
        inside.append(low <= 1 / (1 + error) <= high)
    spread = Spread([error for _, error in scored])
    return (
        f"- Scoring {number}, {spread.rows} rows: {spread}.\n"
        f"  {sum(inside)} of them ({100 * sum(inside) / spread.rows:.0f} %) are in the 80 % band.\n"
    )
