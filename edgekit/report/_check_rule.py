"""``edgekit explain`` for people: a rule, a family of rules, or a row of the operator matrix."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgekit.dla import GENERATIONS
from edgekit.report._page import WIDTH, Page

__all__ = ["rule_text"]

_EFFECTS = {
    "refuse": "a layer that breaks it stays on the GPU",
    "risk": "a layer that breaks it is allowed, but may fail on the board",
    "note": "not checked layer by layer",
}
_COLUMN = 12
_MATRIX = "Whether a DLA of Orin runs it, by NVIDIA's operator matrix"


def rule_text(found: Mapping[str, Any], *, width: int = WIDTH, colour: bool = False) -> str:
    """Returns what ``edgekit.dla.explain`` found as text.

    Args:
        found: A rule, a family of them, or an operator with its row of NVIDIA's matrix.
        width: Columns.
        colour: Whether to use escape sequences.
    """
    page = Page(width, colour=colour)
    if "family" in found and "id" not in found:
        return _family(page, found)
    rule = "id" in found
    page.add(found["id"] if rule else f"ONNX {found['operator']}", style="bold")
    page.add(found["text"] if rule else _MATRIX, indent=2)
    page.add()
    for name, value in _rule(found) if rule else _operator(found):
        if value:
            page.add(f"{name:<{_COLUMN}}{value}", indent=2, hang=_COLUMN)
    for number, source in enumerate(found.get("sources") or [{"title": found["source"]}]):
        name = "" if number else "source"
        page.add(f"{name:<{_COLUMN}}{source['title']}", indent=2, hang=_COLUMN)
        if source.get("where"):
            page.add(source["where"], indent=2 + _COLUMN, style="dim")
    if "family_rules" in found:
        page.add()
        return _family(page, found["family_rules"])
    return str(page)


def _family(page: Page, found: Mapping[str, Any]) -> str:
    page.add(found["title"], style="bold")
    for rule in found["rules"]:
        page.add(rule["id"], indent=2, style="bold")
        page.add(rule["text"] + (f" ({rule['limit']})" if rule["limit"] else ""), indent=4)
    return str(page)


def _rule(rule: Mapping[str, Any]) -> list[tuple[str, str]]:
    everywhere = "*" in rule["kinds"] or not rule["kinds"]
    return [
        ("limit", rule["limit"]),
        ("layers", "all" if everywhere else ", ".join(rule["kinds"])),
        ("holds for", "; ".join(_scope(rule))),
        ("effect", _EFFECTS.get(rule["effect"], rule["effect"])),
        ("certainty", _certainty(rule["certainty"])),
        *_fixes(rule),
    ]


def _fixes(rule: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Returns the fix, or one for each kind of layer, as ``check`` gives the first that fits."""
    several = [f"{one['for']}: {one['fix']}" for one in rule["fixes"]]
    found = [
        ("" if number else "fix", text) for number, text in enumerate(several or [rule["fix"]])
    ]
    if rule["effect"] == "refuse" and not rule["network"]:
        found.append(
            ("rewrite", "`edgekit check MODEL --layer NAME` names it, where one does this")
        )
    return found


def _scope(rule: Mapping[str, Any]) -> list[str]:
    parts = [
        " and ".join(f"DLA {name} ({GENERATIONS[name]})" for name in rule["generations"]),
        " and ".join(name.upper() for name in rule["precisions"]),
    ]
    since, until = rule["since"], rule["until"]
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
        return "disputed: sources are silent or contradict each other; a board settles it"
    return word


def _operator(row: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [
        ("TensorRT", f"{row['text']}{_since(row['since'])}"),
        ("below it", f"{row['dla_software_text']}{_since(row['dla_software_since'])}"),
        ("check", row["verdict"]),
        ("rules", ", ".join(row["rules"])),
        ("fix", row["fix"]),
    ]


def _since(version: str | None) -> str:
    return f", from {version}" if version else ""
