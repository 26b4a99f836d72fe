"""The page ``docs/dla-support.md``, made from the rule files."""

from __future__ import annotations

from collections.abc import Iterable

from edgekit.dla._rule import GENERATIONS, PRECISIONS, Operator, Rule
from edgekit.dla._rules import load_rules

__all__ = ["docs_page"]

_BOARDS = {"1.0": "Xavier", "2.0": "Orin"}
_STATUS = {
    "native": "yes",
    "reconstruction": "express it with others",
    "rfe": "no",
    "folded": "computed at build time",
}


def docs_page() -> str:
    """Returns the Markdown page of all rules and the operator matrix."""
    rules = load_rules()
    lines = [
        "# What runs on the DLA",
        "",
        "Made from the files under `dla/`; do not edit. `edgekit explain ID` prints one rule.",
        '"Disputed" marks what the sources leave open or contradict; a board settles it.',
        "",
    ]
    for family, title in rules.titles.items():
        members = [rule for rule in rules if rule.family == family]
        if not members:
            continue
        lines += [f"## {title}", "", "| Rule | Restriction | Holds for | What to do | Source |"]
        lines += ["|---|---|---|---|---|", *(_row(rule) for rule in members), ""]
    lines += ["## Operators", "", *_operators(rules.operators.values())]
    return "\n".join(lines) + "\n"


def _row(rule: Rule) -> str:
    text = f"{rule.text} ({rule.limit})" if rule.limit else rule.text
    cells = [f"`{rule.id}`", text, _scope(rule), rule.fix, "; ".join(rule.sources)]
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def _scope(rule: Rule) -> str:
    parts = []
    if rule.generations != GENERATIONS:
        parts.append(", ".join(_BOARDS[g] for g in rule.generations))
    if rule.precisions != PRECISIONS:
        parts.append(", ".join(rule.precisions).upper())
    if rule.since:
        parts.append(f"TensorRT {rule.since} and later")
    if rule.until:
        parts.append(f"before TensorRT {rule.until}")
    if rule.certainty == "disputed":
        parts.append("disputed")
    if rule.effect == "note":
        parts.append("not checked")
    return "; ".join(parts) or "all"


def _operators(operators: Iterable[Operator]) -> list[str]:
    lines = [
        "NVIDIA's matrix for Orin: what TensorRT exposes, and what the DLA software has below it.",
        "",
        "| Operator | TensorRT | From | DLA software | Rules | Instead |",
        "|---|---|---|---|---|---|",
    ]
    for row in operators:
        software = _STATUS[row.dla] + (f" from {row.dla_since}" if row.dla_since else "")
        cells = [row.name, _STATUS[row.trt], row.since, software, ", ".join(row.families), row.fix]
        lines.append(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |")
    return lines
