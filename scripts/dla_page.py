"""The page ``docs/dla-support.md``, made from the rule files and the support database."""

from __future__ import annotations

from collections.abc import Sequence

from dla_database import DlaSupport, OperatorRow, Source, database

from edgekit.dla.explanation import explained
from edgekit.dla.fact_files import FormatFacts, PoolDefault, format_facts, memory_facts
from edgekit.dla.formats import FORMATS, nbytes, strides
from edgekit.dla.guide import guide
from edgekit.dla.memory import default_disputes
from edgekit.dla.rule_files import PRECISIONS, Rule, RuleSource
from edgekit.dla.rules import Rules, load_rules
from edgekit.targets.board import GENERATIONS
from edgekit.text import table_head, table_row

_POOLS = {
    "managed_sram": ("Managed SRAM", "a cache; shared by the loadables of a core"),
    "local_dram": ("Local DRAM", "tensors between a loadable's layers; adds up over loadables"),
    "global_dram": ("Global DRAM", "weights; adds up over loadables"),
}
_EXAMPLE = (1, 3, 480, 645)
# TensorRT of JetPack 6.1 to 6.2.3
_SHOWN = "10.3.0"
_STATUS = {"composed": "several layers", "folded": "no layer"}
_USABLE = {"implicit": "yes, cache", "qdq": "yes, Q/DQ", "none": "no", "unknown": "not known"}
_FIRST = "general"
_NOTHING = "nothing to do"
_INTRODUCTION = """# Layers that run on the DLA

For everyone who wants to know whether a Jetson module has a usable DLA, and which layers it runs.
The [search page](dla-support-search.html) needs no installation: it answers for a module and a
JetPack release, and filters by operator, rule, TensorRT and precision. On a machine with edgekit:

```sh
edgekit explain Softmax
edgekit explain convolution.kernel
```

The first prints an operator, the second one rule. `edgekit check MODEL` applies them to a model.
Data {version} of {date}, made from the files under `dla/` and `targets/`. Numbers name the
[sources](#sources).
"""
_TOOLS = """## The same for other tools

[data/dla-support.json](data/dla-support.json) has everything on this page,
[data/dla-support.schema.json](data/dla-support.schema.json) is its JSON Schema. Within
`edgekit.dla-support/1` fields and values of `status` are only added; none is removed or changes its
meaning. `version` and `digest` change when a fact changes.

```python
import json
from pathlib import Path

database = json.loads(Path("docs/data/dla-support.json").read_text(encoding="utf-8"))
assert database["schema"] == "edgekit.dla-support/1"
for row in database["matrix"]:
    if row["board"] == "jetson-agx-orin-64gb" and row["jetpack"] in ("6.2", "7.2", "7.2.2"):
        print(row["jetpack"], row["usable"], row["int8"])
```

- `matrix`: module and JetPack, with `usable` (null where not known), `int8` (`implicit`, `qdq`,
  `none`, `unknown`), `why`, what to do `instead`, and the rule that refuses.
- `operators`: ONNX operator, TensorRT layers, and `support` by DLA generation, precision and
  release. `status` is `runs`, `limits` (sizes and parameters decide), `disputed`, `composed`
  (several layers, each with its rules), `folded` (no layer) or `never`.
- `rules`: text, limit with value and unit, range of releases, fix, sources, and `dispute` with its
  `sides`: their statements.
- `boards`, `releases`, `sources`: the entries that the others refer to.
"""
_WORDS = """"Disputed" marks rules that the sources leave open or contradict
([disputes](#disputes)): only a board settles them. "A risk" leaves the layer on the DLA and names
the risk. Most rules without "Allowed" are notes: no layer is checked.
"""


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
        fact: PoolDefault = getattr(memory_facts(), pool)
        seen = _size(fact.floor) if fact.floor else "the default"
        disputes = "; ".join(default_disputes(pool).values())
        rows.append((title, holds, _size(fact.default), seen, disputes or "no"))
    return rows


def _formats() -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for name in FORMATS:
        fact = format_facts().formats[name]
        if not fact.types:
            continue
        dtype = fact.types[0]
        example = " and ".join(
            f"{nbytes(_EXAMPLE, dtype, name, generation)}, "
            f"{strides(_EXAMPLE, dtype, name, generation)[2]}"
            for generation in GENERATIONS
        )
        note = "" if dtype == "int8" else f" ({dtype})"
        roles, types = ", ".join(fact.roles), ", ".join(fact.types)
        rows.append((name, types, roles, _padding(fact), example + note))
    return rows


def _padding(fact: FormatFacts) -> str:
    if fact.vector:
        return f"channels to a multiple of {fact.vector}"
    lines = fact.line_bytes
    texts = (f"{size} ({GENERATIONS[generation]})" for generation, size in lines.items())
    same = len(set(lines.values())) == 1
    line = f"lines to {next(iter(lines.values())) if same else ' or '.join(texts)} bytes"
    if not fact.held:
        return line
    held = ", ".join(f"{count} as {stored}" for count, stored in fact.held.items())
    return f"{line}; channels {held}"


def _size(count: int) -> str:
    return f"{count >> 20} MiB"


class _Sources:
    """Numbers for sources, in the order in which the page names them."""

    def __init__(self) -> None:
        self.known: dict[str, str] = {}

    def numbers(self, cited: Sequence[RuleSource | Source]) -> str:
        self.known.update((source.title, source.where) for source in cited)
        order = list(self.known)
        return ", ".join(str(order.index(source.title) + 1) for source in cited)

    def lines(self) -> list[str]:
        return [f"{n}. {title}: {place}" for n, (title, place) in enumerate(self.known.items(), 1)]


def dla_page() -> str:
    """Returns the Markdown page of modules, releases, operators and rules."""
    rules, sources, data = load_rules(), _Sources(), database()
    lines = [
        *_INTRODUCTION.format(version=data.version, date=data.date).splitlines(),
        "",
        "## Does my module have a DLA that my release can use?",
        "",
        *_usable(data),
        "",
        *_TOOLS.splitlines(),
        "",
        "## Operators",
        "",
        *_operators(rules, data, sources),
        "",
        "## Rules",
        "",
        *_WORDS.splitlines(),
        "",
    ]
    for family in sorted(rules.titles, key=lambda name: (name != _FIRST, rules.titles[name])):
        members = [rule for rule in rules if rule.family == family]
        lines += [f"### {rules.titles[family]}", ""]
        lines += table_head(("Rule", "Restriction", "Allowed", "Holds for", "What to do", "Source"))
        members.sort(key=lambda rule: rule.effect == "note")
        for rule in members:
            scope = _scope(rule) or "all"
            todo = "" if rule.fix == _NOTHING else _fix(rule)
            numbers = sources.numbers(rule.source)
            lines.append(table_row((f"`{rule.id}`", rule.text, rule.limit, scope, todo, numbers)))
        lines.append("")
        heads, *facts = fact_rows(family) or [()]
        if facts:
            lines += [*table_head(heads), *(table_row(row) for row in facts), ""]
    lines += ["## Disputes", "", *_disputes(data, sources), ""]
    lines += ["## The guide of TensorRT 10.7, sentence by sentence", "", *_guide(), ""]
    lines += ["## Sources", "", *sources.lines()]
    return "\n".join(lines) + "\n"


def _disputes(data: DlaSupport, sources: _Sources) -> list[str]:
    """The disputed rules with each side's statement and sources."""
    lines = table_head(("Rule", "Sides"))
    for rule in data.rules:
        if rule.dispute:
            said = []
            for side in rule.dispute.sides:
                named = [data.sources[key] for key in side.sources]
                numbers = sources.numbers(named)
                said.append(f"{side.says} [{numbers}]")
            lines.append(table_row((f"`{rule.id}`", "; ".join(said))))
    return lines


def _guide() -> list[str]:
    """Section 13.2 as a table: its sentences, and the rules that hold them."""
    lines = [
        "Section 13.2, shortened, from `dla/guide.yaml`. A rule of this page without a",
        "sentence comes from its other sources.",
        "",
        *table_head(("Section", "The guide", "Rules")),
    ]
    for section in guide():
        for sentence in section.sentences:
            held, why = ", ".join(f"`{name}`" for name in sentence.rules), sentence.why
            rules = f"{held} ({why})" if held and why else held or why
            lines.append(table_row((section.title, sentence.says, rules)))
    return lines


def _fix(rule: Rule) -> str:
    """Returns what to do; for each kind of layer, where that differs."""
    found = explained(rule)
    return "; ".join(f"{fix.case}: {fix.fix}" for fix in found.fixes) or found.fix


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


def _operators(rules: Rules, data: DlaSupport, sources: _Sources) -> list[str]:
    numbers = sources.numbers(rules.matrix_sources)
    lines = [
        f"FP16 and INT8 are for Orin with TensorRT {_SHOWN} (JetPack 6.2); the search page has",
        "the other releases. TensorRT, From and DLA software are NVIDIA's matrix for Orin",
        f"[{numbers}].",
        '"Limits": sizes and parameters decide, by the rules of the families in the row.',
        '"Several layers": TensorRT\'s parser writes them, each with its own rules.',
        "",
        *table_head(
            ("Operator", "FP16", "INT8", "TensorRT", "From", "DLA software", "Rules", "Instead")
        ),
    ]
    return [*lines, *(_operator_row(row, rules) for row in data.operators)]


def _operator_row(row: OperatorRow, rules: Rules) -> str:
    matrix = rules.operators.get(row.operator)
    shown = [
        _STATUS.get(state.status, state.status)
        for precision in PRECISIONS
        for state in row.support
        if (state.generation, state.precision) == ("2.0", precision) and _SHOWN in state.tensorrt
    ]
    if matrix is None:
        families = ", ".join(rules.unlisted[row.operator].families)
        return table_row((row.operator, *shown, "no row", "", "no row", families, ""))
    software = rules.meanings[matrix.dla]
    software += f", from {matrix.dla_since}" if matrix.dla_since else ""
    families = ", ".join(matrix.families)
    exposed = rules.meanings[matrix.trt]
    return table_row((row.operator, *shown, exposed, matrix.since, software, families, matrix.fix))


def _usable(data: DlaSupport) -> list[str]:
    """The JetPack releases by TensorRT, with the modules of the same answers in one column."""
    answers: dict[tuple[str, ...], list[str]] = {}
    for board in data.boards:
        of_board = {row.jetpack: row for row in data.matrix if row.board == board.board}
        found = tuple(
            _USABLE[row.int8] if (row := of_board.get(release.jetpack[0])) else "-"
            for release in data.releases
        )
        if of_board:
            answers.setdefault((str(board.dla_cores), *found), []).append(board.title)
    columns = sorted(answers.items(), key=lambda item: item[1])
    heads = [", ".join(title.removeprefix("NVIDIA Jetson ") for title in t) for _, t in columns]
    lines = [
        "A yes names how INT8 is given: by a calibration cache (the model has no Q/DQ nodes), or",
        'by Q/DQ nodes in the model. "-": the release is not for the module.',
        *_without_jetpack(data),
        *_not_stated(data),
        "",
        *table_head(("JetPack", "Jetson Linux", "TensorRT", *heads, "Remarks")),
        table_row(("DLA cores", "", "", *(found[0] for found, _ in columns), "")),
    ]
    for at, release in enumerate(data.releases, 1):
        lines.append(
            table_row(
                (
                    _span(release.jetpack),
                    _span(release.l4t) or "not known",
                    " or ".join(sorted((*release.also, release.tensorrt)))
                    if release.tensorrt
                    else "not known",
                    *(found[at] for found, _ in columns),
                    release.note,
                )
            )
        )
    return lines


def _without_jetpack(data: DlaSupport) -> list[str]:
    using = {row.board for row in data.matrix}
    return [
        f"{board.title} runs no JetPack; its DLA works with TensorRT {found}."
        for board in data.boards
        if board.board not in using
        for found in [
            ", ".join(
                f"{driven.since} and later" + (f", before {driven.until}" if driven.until else "")
                for driven in board.tensorrt
            )
        ]
    ]


def _not_stated(data: DlaSupport) -> list[str]:
    found: dict[tuple[str, str], list[str]] = {}
    for board in data.boards:
        if board.not_stated is not None:
            row = (board.not_stated.since, board.not_stated.why)
            found.setdefault(row, []).append(board.title.removeprefix("NVIDIA Jetson "))
    return [
        f"TensorRT {since} and the DLA of {' and '.join(titles)}: not stated; {why}."
        for (since, why), titles in found.items()
    ]


def _span(versions: Sequence[str]) -> str:
    return " to ".join(dict.fromkeys((*versions[:1], *versions[-1:])))
