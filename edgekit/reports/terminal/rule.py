"""The text of ``edgekit explain``: a rule, a family of rules or an operator."""

from __future__ import annotations

from edgekit.dla.explanation import (
    Explained,
    ExplainedFamily,
    ExplainedOperator,
    ExplainedRule,
    Family,
)
from edgekit.reports.text import WIDTH, Page
from edgekit.targets.board import GENERATIONS

_EFFECTS = {
    "refuse": "a layer that breaks it stays on the GPU",
    "risk": "a layer that breaks it is allowed, but may fail on the board",
    "note": "not checked layer by layer",
}
_COLUMN = 14
_MATRIX = "Support by Orin's DLA in NVIDIA's operator matrix"


def rule_text(found: Explained, *, width: int = WIDTH, colour: bool = False) -> str:
    """Returns a rule, a family of rules or an operator with its row of NVIDIA's matrix as text.

    Args:
        found: From ``edgekit.dla.explanation.explain``.
        width: Columns.
        colour: True for escape sequences.
    """
    page = Page(width, colour=colour)
    if isinstance(found, ExplainedFamily):
        return _family(page, found)
    if isinstance(found, ExplainedRule):
        title, text, rows = found.id, found.text, _rule(found)
    else:
        title, text, rows = f"ONNX {found.operator}", _MATRIX, _operator(found)
    page.add(title, style="bold")
    page.add(text, indent=2)
    page.add()
    for name, value in rows:
        if value:
            page.add(f"{name:<{_COLUMN}}{value}", indent=2, hang=_COLUMN)
    for number, source in enumerate(found.sources):
        name = "" if number else "source"
        page.add(f"{name:<{_COLUMN}}{source.title}", indent=2, hang=_COLUMN)
        if source.where:
            page.add(source.where, indent=2 + _COLUMN, style="dim")
    if isinstance(found, ExplainedOperator) and found.family_rules is not None:
        page.add()
        return _family(page, found.family_rules)
    return str(page)


def _family(page: Page, found: Family) -> str:
    page.add(found.title, style="bold")
    for rule in found.rules:
        page.add(rule.id, indent=2, style="bold")
        page.add(rule.text + (f" ({rule.limit})" if rule.limit else ""), indent=4)
    return str(page)


def _rule(rule: ExplainedRule) -> list[tuple[str, str]]:
    everywhere = "*" in rule.kinds or not rule.kinds
    return [
        ("limit", rule.limit),
        ("layers", "all" if everywhere else ", ".join(rule.kinds)),
        ("holds for", "; ".join(_scope(rule))),
        ("effect", _EFFECTS[rule.effect]),
        ("certainty", _certainty(rule.certainty)),
        *_rule_fixes(rule),
    ]


def _rule_fixes(rule: ExplainedRule) -> list[tuple[str, str]]:
    """Returns the fix, or a fix for each kind of layer; ``check`` gives the first that fits."""
    several = [f"{fix.case}: {fix.fix}" for fix in rule.fixes]
    found = [("" if number else "fix", text) for number, text in enumerate(several or [rule.fix])]
    if rule.effect == "refuse" and not rule.network:
        found.append(
            ("rewrite", "`edgekit check MODEL --layer NAME` shows whether a rewrite applies")
        )
    return found


def _scope(rule: ExplainedRule) -> list[str]:
    parts = [
        " and ".join(f"DLA {name} ({GENERATIONS[name]})" for name in rule.generations),
        " and ".join(name.upper() for name in rule.precisions),
    ]
    since, until = rule.since, rule.until
    if since and until:
        parts.append(f"TensorRT {since} up to, not including, {until}")
    elif since:
        parts.append(f"TensorRT {since} and later")
    elif until:
        parts.append(f"TensorRT before {until}")
    else:
        parts.append("every TensorRT with DLA")
    return [part for part in parts if part]


def _certainty(word: str) -> str:
    if word == "disputed":
        return (
            "disputed: sources are silent or contradict each other; only a test on a board "
            "can decide"
        )
    return word


def _operator(row: ExplainedOperator) -> list[tuple[str, str]]:
    return [
        ("TensorRT", f"{row.text}{_since(row.since)}"),
        ("DLA software", f"{row.dla_software_text}{_since(row.dla_software_since)}"),
        ("check", row.verdict),
        ("rules", ", ".join(row.rules)),
        ("fix", row.fix),
    ]


def _since(version: str | None) -> str:
    return f", from {version}" if version else ""
