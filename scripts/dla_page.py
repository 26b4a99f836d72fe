"""The page ``docs/dla-support.md``, made from the rule files and the JetPack table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edgekit.dla.formats import FORMATS, nbytes, strides
from edgekit.dla.judge import drives_dla
from edgekit.dla.memory import disputes_of
from edgekit.dla.rules import (
    GENERATIONS,
    PRECISIONS,
    Operator,
    Rule,
    Rules,
    format_facts,
    load_rules,
    memory_facts,
)
from edgekit.targets import loader
from edgekit.targets.jetpack import jetpacks
from edgekit.targets.loader import get
from edgekit.text import table_head, table_row

_POOLS = {
    "managed_sram": ("Managed SRAM", "a cache; shared by the loadables of a core"),
    "local_dram": ("Local DRAM", "tensors between a loadable's layers; adds up over loadables"),
    "global_dram": ("Global DRAM", "weights; adds up over loadables"),
}
_EXAMPLE = (1, 3, 480, 645)
_FIRST = "general"
_NOTHING = "nothing to do"


def fact_rows(family: str) -> list[tuple[str, ...]]:
    """Returns the head and the rows of a family's table; empty if it has none."""
    if family == "memory":
        return [("Pool", "Holds", "Default", "Least seen", "Disputed"), *_memory()]
    if family == "formats":
        size = "x".join(str(side) for side in _EXAMPLE)
        boards = " and ".join(GENERATIONS.values())
        heads = ("Format", "Types", "As", "Padding", f"{size} INT8: bytes, line on {boards}")
        return [heads, *_formats()]
    return []


def _memory() -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for pool, (title, holds) in _POOLS.items():
        fact = memory_facts()[pool]
        seen = _size(fact["floor"]) if "floor" in fact else "the default"
        disputes = "; ".join(disputes_of(pool).values())
        rows.append((title, holds, _size(fact["default"]), seen, disputes or "no"))
    return rows


def _formats() -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for name in FORMATS:
        fact: Mapping[str, Any] = format_facts()["formats"][name]
        if not fact["roles"]:
            continue
        dtype = fact["types"][0]
        example = " and ".join(
            f"{nbytes(_EXAMPLE, dtype, name, generation)}, "
            f"{strides(_EXAMPLE, dtype, name, generation)[2]}"
            for generation in GENERATIONS
        )
        note = "" if dtype == "int8" else f" ({dtype})"
        roles, types = ", ".join(fact["roles"]), ", ".join(fact["types"])
        rows.append((name, types, roles, _padding(fact), example + note))
    return rows


def _padding(fact: Mapping[str, Any]) -> str:
    if "vector" in fact:
        return f"channels to a multiple of {fact['vector']}"
    lines = fact["line_bytes"]
    texts = (f"{size} ({GENERATIONS[generation]})" for generation, size in lines.items())
    same = len(set(lines.values())) == 1
    line = f"lines to {next(iter(lines.values())) if same else ' or '.join(texts)} bytes"
    if "held" not in fact:
        return line
    held = ", ".join(f"{count} as {stored}" for count, stored in fact["held"].items())
    return f"{line}; channels {held}"


def _size(count: int) -> str:
    return f"{count >> 20} MiB"


class _Sources:
    """Numbers for sources, in the order in which the page names them."""

    def __init__(self) -> None:
        self.known: dict[str, str] = {}

    def numbers(self, titles: Sequence[str], places: Sequence[str]) -> str:
        self.known.update(zip(titles, places, strict=True))
        order = list(self.known)
        return ", ".join(str(order.index(title) + 1) for title in titles)

    def lines(self) -> list[str]:
        return [f"{n}. {title}: {place}" for n, (title, place) in enumerate(self.known.items(), 1)]


def dla_page() -> str:
    """Returns the Markdown page of all rules, the operator matrix and the JetPack releases."""
    rules, sources = load_rules(), _Sources()
    lines = [
        "# What runs on the DLA",
        "",
        "Made from the files under `dla/` and `targets/`; do not edit. `edgekit explain ID` prints",
        "one rule, `edgekit explain OPERATOR` one row of the operator matrix. Numbers name the",
        "[sources](#sources).",
        "",
        '"Disputed" marks what the sources leave open or contradict: only a board settles it. A',
        'rule that is "a risk" leaves the layer on the DLA and says what speaks against it.',
        "",
    ]
    for family in sorted(rules.titles, key=lambda name: (name != _FIRST, rules.titles[name])):
        members = [rule for rule in rules if rule.family == family]
        if not members:
            continue
        checked = [rule for rule in members if rule.effect != "note"]
        notes = [rule for rule in members if rule.effect == "note"]
        lines += [f"## {rules.titles[family]}", ""]
        if checked:
            lines += table_head(
                ("Rule", "Restriction", "Allowed", "Holds for", "What to do", "Source")
            )
            lines += [*(_row(rule, sources) for rule in checked), ""]
        lines += [*(_note(rule, sources) for rule in notes), *([""] if notes else [])]
        heads, *facts = fact_rows(family) or [()]
        if facts:
            lines += [*table_head(heads), *(table_row(row) for row in facts), ""]
    lines += ["## The guide of TensorRT 10.7, sentence by sentence", "", *_guide(rules), ""]
    lines += ["## Operators", "", *_operators(rules, sources), ""]
    lines += ["## JetPack releases", "", *_jetpacks(), "", "## Sources", "", *sources.lines()]
    return "\n".join(lines) + "\n"


def _guide(rules: Rules) -> list[str]:
    """Section 13.2 as a table: what it says, and the rules that hold it."""
    lines = [
        "Section 13.2, shortened, from `dla/guide.yaml`. A rule of this page that stands with no",
        "sentence comes from its other sources.",
        "",
        *table_head(("Section", "The guide says", "Rules")),
    ]
    for section, sentence in rules.guide:
        held = ", ".join(f"`{name}`" for name in sentence.get("rules", ()))
        why = str(sentence.get("why", ""))
        lines.append(
            table_row(
                (section, sentence["says"], f"{held} ({why})" if held and why else held or why)
            )
        )
    return lines


def _row(rule: Rule, sources: _Sources) -> str:
    numbers = sources.numbers(rule.sources, rule.places)
    scope, todo = _scope(rule) or "all", _fix(rule)
    return table_row((f"`{rule.id}`", rule.text, rule.limit, scope, todo, numbers))


def _fix(rule: Rule) -> str:
    """Returns what to do; for each kind of layer, where that differs."""
    found = rule.to_json()
    several = [f"{one['for']}: {one['fix']}" for one in found["fixes"]]
    return "; ".join(several) or str(found["fix"])


def _note(rule: Rule, sources: _Sources) -> str:
    scope = _scope(rule)
    where = f" ({scope})" if scope else ""
    numbers = sources.numbers(rule.sources, rule.places)
    todo = "" if rule.fix == _NOTHING else f" What to do: {_fix(rule)}."
    return f"- `{rule.id}`{where}: {rule.text}{todo} [{numbers}]"


def _scope(rule: Rule) -> str:
    parts = []
    if rule.generations != tuple(GENERATIONS):
        parts.append(", ".join(GENERATIONS[g] for g in rule.generations))
    if rule.precisions != PRECISIONS:
        parts.append(", ".join(rule.precisions).upper())
    if rule.since:
        parts.append(f"TensorRT {rule.since} and later")
    if rule.until:
        parts.append(f"before TensorRT {rule.until}")
    if rule.certainty == "disputed":
        parts.append("disputed")
    if rule.effect == "risk":
        parts.append("a risk")
    return "; ".join(parts)


def _operators(rules: Rules, sources: _Sources) -> list[str]:
    numbers = sources.numbers(
        [source["title"] for source in rules.matrix_sources],
        [source["where"] for source in rules.matrix_sources],
    )
    lines = [
        "NVIDIA's matrix for Orin: what TensorRT exposes, and what the DLA software has below it",
        f"[{numbers}].",
        "",
        *table_head(("Operator", "TensorRT", "From", "DLA software", "Rules", "Instead")),
    ]
    return [*lines, *(_operator_row(row, rules) for row in rules.operators.values())]


def _operator_row(row: Operator, rules: Rules) -> str:
    software = rules.meanings[row.dla] + (f", from {row.dla_since}" if row.dla_since else "")
    exposed = rules.meanings[row.trt]
    return table_row((row.name, exposed, row.since, software, ", ".join(row.families), row.fix))


def _jetpacks() -> list[str]:
    """The JetPack releases by TensorRT, with the boards whose DLA it drives."""
    boards = [get(name) for name in loader.names()]
    found = {
        release.versions: (release, [b for b in boards if release in jetpacks(b)])
        for board in boards
        for release in jetpacks(board)
    }
    lines = table_head(("JetPack", "Jetson Linux", "TensorRT", "Drives the DLA of", "Remarks"))
    for release, having in sorted(found.values(), key=lambda item: item[0].versions):
        driven = [b.name for b in having if release.tensorrt and drives_dla(b, release.tensorrt)]
        lines.append(
            table_row(
                (
                    ", ".join(release.versions),
                    ", ".join(release.l4t) or "not known",
                    release.tensorrt or "not known",
                    ", ".join(driven) or ("none" if release.tensorrt else "not known"),
                    release.note,
                )
            )
        )
    return lines
