"""The page ``docs/rewrites.md``, made from the rewrites and ``dla/reconstruction.yaml``."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from edgekit.dla.rule_files import Reconstruction, ReconstructionFile
from edgekit.knowledge import data_folder, read_document
from edgekit.rewriting.engine.opset import RAISED
from edgekit.rewriting.graph import Rewrite
from edgekit.rewriting.rules.order import REWRITES

_MOST_OPERATORS = 12
_SHOWN_OPERATORS = 8
_HEAD = """# All rewrites

For anyone who wants to know which rewrite helps an operator, or that none does.
[rewriting.md](rewriting.md) is the guide to their use.

```sh
edgekit rewrite --list
```

- *Replaces*: ONNX operators at which the rewrite begins.
- *Exact*: yes, or the largest difference between the two functions' values. A rewrite that is not
  exact is off unless you allow it by name.
- *Opens the way*: also tried where it changes no verdict by itself, and taken back where no other
  rewrite follows.

`{raised}` comes first where a model's opset is below 13
([rewriting.md](rewriting.md#when-it-is-applied)).

This page is made from `edgekit/rewriting/rules/` and `dla/reconstruction.yaml` by
`scripts/make_docs.py`; do not edit it.
"""
_MARKED = """NVIDIA's operator matrix marks these ([dla-support.md](dla-support.md#operators)).
"""
_WITHOUT = (
    "A DLA has no layer for these, or only in some releases, and its layers have no exact form."
)


def rewrites_page() -> str:
    """Returns the Markdown page of all rewrites and of the operators and forms they are for."""
    known = read_document(ReconstructionFile, data_folder("dla") / "reconstruction.yaml")
    lines = [_HEAD.format(raised=RAISED)]
    for title, items in _groups().items():
        lines += [f"## {title}", ""]
        lines += [_cells(("Rewrite", "Replaces", "Reason", "Exact", "Opens the way")), _rule(5)]
        lines += [_cells(_row(item)) for item in items]
        lines.append("")
    lines += ["## NVIDIA's operators to be expressed with others", "", _MARKED]
    lines += _answers("Operator", known.operators.items())
    lines += ["", "## Other forms that a DLA refuses", ""]
    lines += _answers("Form", ((row.form, row) for row in known.forms))
    lines += ["", "## Operators without a form", "", _WITHOUT, ""]
    lines += [_cells(("Operator", "Why")), _rule(2)]
    lines += [_cells((name, _sentence(why))) for name, why in known.without.items()]
    return "\n".join(lines) + "\n"


def _groups() -> dict[str, list[Rewrite]]:
    """Returns the rewrites by their module's docstring, sorted by name."""
    found: dict[str, list[Rewrite]] = {}
    for item in REWRITES:
        module = sys.modules[item.at.__module__]
        title = (module.__doc__ or "").partition("\n")[0].rstrip(".")
        found.setdefault(title, []).append(item)
    return {
        title: sorted(items, key=lambda item: (item.approximate, item.name))
        for title, items in found.items()
    }


def _row(item: Rewrite) -> Sequence[str]:
    exact = "yes"
    if item.deviation is not None:
        exact = f"no: by at most {item.deviation:g}"
    opens = "yes" if item.enabling else ""
    begins = ", ".join(item.operators)
    if len(item.operators) > _MOST_OPERATORS:
        rest = len(item.operators) - _SHOWN_OPERATORS
        begins = f"{', '.join(item.operators[:_SHOWN_OPERATORS])} and {rest} more"
    return f"`{item.name}`", begins, _sentence(item.reason), exact, opens


def _answers(head: str, rows: Iterable[tuple[str, Reconstruction]]) -> list[str]:
    lines = [_cells((head, "Rewrites", "Limits, NVIDIA's way, or why none")), _rule(3)]
    for name, row in rows:
        without = "by hand" if row.by_hand else "none"
        named = ", ".join(f"`{item}`" for item in row.rewrites) or without
        said = row.why_not or row.by_hand or row.but
        lines.append(_cells((_sentence(name), named, _sentence(said))))
    return lines


def _sentence(text: str) -> str:
    # a formula stays as it is
    formula = "(" in text.partition(" ")[0]
    return text if formula else text[:1].upper() + text[1:]


def _cells(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"


def _rule(columns: int) -> str:
    return f"|{'---|' * columns}"
