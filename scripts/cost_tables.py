"""The tables of docs/cost-model.md, from the data under ``targets/costs``."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from fit_costs import FITTED, LIMITS, Anchor, anchors, describe, errors, ratios, summary

from edgekit.placement._costs import cost_data

__all__ = ["cost_page"]

PAGE = Path(__file__).parent.parent / "docs" / "cost-model.md"


def cost_page() -> str:
    """Returns the page with its tables written anew; its text is written by hand."""
    text = PAGE.read_text(encoding="utf-8")
    rows = anchors()
    found = errors(rows, cost_data("devices"))
    for name, table in (
        ("constants", _constants()),
        ("sources", _sources()),
        ("reformats", _reformats()),
        ("bands", _bands(rows, found)),
        ("errors", _errors(rows, found)),
    ):
        before, _, rest = text.partition(f"<!-- {name} -->\n")
        _, _, after = rest.partition(f"<!-- end {name} -->")
        text = f"{before}<!-- {name} -->\n{table}<!-- end {name} -->{after}"
    return text


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _constants() -> str:
    rows: list[tuple[str, ...]] = []
    for family, kinds in (
        ("gpu", cost_data("devices")["gpu"]),
        ("dla", cost_data("devices")["dla"]),
    ):
        for kind, constants in kinds.items():
            for name, value in constants.items():
                if name != "source" and not name.endswith("note"):
                    origin = _origin(name, constants["source"])
                    if origin == "fitted":
                        origin = _fitted(family, kind, name, value)
                    rows.append((f"{family} {kind}", f"`{name}`", _value(value), origin))
    return _table(("device", "constant", "value", "where from"), rows)


def _origin(name: str, source: dict[str, Any]) -> str:
    if name in source:
        return str(source[name])
    for how in ("fitted", "assumed"):
        if any(name in re.split(r"[ ,.]+", str(item)) for item in source.get(how, ())):
            return how
    if any("all constants" in str(item) for item in source.get("assumed", ())):
        return "assumed, as ampere"
    raise ValueError(f"{name} has no source")


def _fitted(family: str, kind: str, name: str, value: Any) -> str:
    """Returns "fitted", by type where only some are, and where the fit stopped at a limit."""
    of_fit = {*FITTED.get(family, ()), *FITTED[f"{family}.{kind}"]}
    said = []
    for part, number in value.items() if isinstance(value, dict) else [("", value)]:
        how = "fitted" if f"{name}.{part}".rstrip(".") in of_fit else "assumed"
        if how == "fitted" and number in LIMITS[name]:
            how += " (at its limit)"
        said.append(f"{part} {how}".strip())
    return ", ".join(said)


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {item}" for key, item in value.items())
    return str(value)


def _sources() -> str:
    data = cost_data("anchors")
    used = "".join(f"- `{name}`: {text}\n" for name, text in data["sources"].items())
    left = [f"- {item['what']} ({item['source']}): {item['reason']}\n" for item in data["excluded"]]
    head = "Found and not used, before any of it was compared with the model:"
    return f"{used}\n{head}\n\n{''.join(left)}"


def _reformats() -> str:
    data = cost_data("reformat")
    rows = [
        (pair.replace(">", " to "), str(count), f"{fitted} %", f"{held} %")
        for pair, (count, fitted, held) in data["errors"].items()
    ]
    total = ("all", str(data["kernels"]), f"{data['median_percent']} %",
             f"{data['median_percent_held_out']} %")  # fmt: skip
    head = ("layouts", "kernels", "median error", "held out by shape")
    return _table(head, [*rows, total])


def _bands(rows: Sequence[Anchor], found: Sequence[float]) -> str:
    measured = ratios(rows, found)
    lines: list[tuple[str, ...]] = []
    for name, (low, high) in cost_data("error")["bands"].items():
        some = measured[name]
        inside = sum(low <= ratio <= high for ratio in some)
        share = f"{100 * inside / len(some):.0f} %"
        lines.append((name.replace("_", " "), str(len(some)), f"{low}", f"{high}", share))
    return _table(("what", "rows", "low", "high", "inside"), lines)


def _errors(rows: Sequence[Anchor], found: Sequence[float]) -> str:
    lines: list[tuple[str, ...]] = []
    for row, error in zip(rows, found, strict=True):
        lines.append(
            (
                " ".join(describe(row).replace(" (held out)", "").split()),
                f"{(1 + error) * row.us:.0f}",
                f"{row.us:.0f}",
                f"{100 * error:+.1f} %",
                "held out" if row.held_out else "fitted",
                row.row["source"],
            )
        )
    head = ("row", "predicted us", "measured us", "error", "used", "source")
    return f"{summary(rows, found)}.\n\n{_table(head, lines)}"
