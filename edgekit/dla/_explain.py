"""A rule, or what NVIDIA's matrix says of an operator, by name and offline."""

from __future__ import annotations

from typing import Any

from edgekit.dla._rules import load_rules
from edgekit.errors import UsageError

__all__ = ["explain"]


def explain(name: str) -> dict[str, Any]:
    """Returns what is known of a rule ("convolution.kernel") or an ONNX operator ("HardSwish").

    A rule comes with text, limit, fix, sources and when it holds (see ``Rule.to_json``); an
    operator with its row of the matrix (``Operator.to_json``), what the row means in words and the
    ids of the rules that judge its layers. Case does not matter.

    Raises:
        UsageError: There is neither such a rule nor such an operator (code ``rule.unknown``).
    """
    known = load_rules()
    wanted = name.strip().lower()
    for rule_id, rule in known.rules.items():
        if rule_id.lower() == wanted:
            return rule.to_json()
    for operator in known.operators:
        if operator.lower() == wanted:
            return _operator(operator)
    from difflib import get_close_matches

    names = {key.lower(): key for key in (*known.rules, *known.operators)}
    near = [names[key] for key in get_close_matches(wanted, names, n=3, cutoff=0.6)]
    raise UsageError(
        f"unknown rule {name!r}",
        code="rule.unknown",
        where=name,
        hint=f"did you mean {' or '.join(near)}?"
        if near
        else "`check` prints the rules' ids; an ONNX operator's name (HardSwish) will do, too",
    )


def _operator(name: str) -> dict[str, Any]:
    known = load_rules()
    row = known.operators[name]
    return {
        **row.to_json(),
        "text": known.meanings[row.trt],
        "dla_software_text": known.meanings[row.dla],
        "rules": [r.id for r in known if r.family in row.families and r.effect != "note"],
        "source": "; ".join(source["title"] for source in known.matrix_sources),
        "sources": [dict(source) for source in known.matrix_sources],
    }
