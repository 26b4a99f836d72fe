"""All rewrites as a list."""

from __future__ import annotations

from typing import Any

from edgekit.rewriting.engine.opset import RAISED, RAISED_REASON
from edgekit.rewriting.graph import APPROXIMATE
from edgekit.rewriting.rules.order import REWRITES


def rewrite_list() -> list[dict[str, Any]]:
    """Returns name, reason, operators and kind of every rewrite, sorted by name, exact ones first.

    Each has ``name`` (for ``rewrite.enable`` and ``disable``), ``reason``, ``operators`` (ONNX
    operators that it begins at), ``approximate`` (it changes results and is off unless allowed by
    name) and ``enabling`` (it is also tried where it only opens the way for others). Raising the
    opset, which comes before all of them, is one of the list and begins at no operator.
    """
    rows = [
        {
            "name": item.name,
            "reason": item.reason,
            "operators": list(item.operators),
            "approximate": item.name.startswith(APPROXIMATE),
            "enabling": item.enabling,
        }
        for item in REWRITES
    ]
    rows.append(
        {
            "name": RAISED,
            "reason": RAISED_REASON,
            "operators": [],
            "approximate": False,
            "enabling": True,
        }
    )
    return sorted(rows, key=lambda row: (row["approximate"], row["name"]))
