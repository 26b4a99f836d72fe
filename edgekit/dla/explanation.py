"""A rule, a family of rules or an operator in words, by name and offline: ``explain``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgekit.dla.rules import (
    Operator,
    Rules,
    load_rules,
)
from edgekit.errors import UsageError

_NOT_EXPOSED, _COMPOSED = "operators.not_exposed", "operators.composed"
_KIND, _PLUGIN = "general.kind", "general.plugin"
_NO_ROW = "not in the matrix"
_CLOSE = 0.75


def explain(name: str) -> dict[str, Any]:
    """Returns what is known of a rule, a family of rules or an ONNX operator.

    A rule ("convolution.kernel") comes with text, limit, fix, sources and when it holds (see
    ``Rule.to_json``); a family ("pooling") with its rules; an operator ("HardSwish") with its row
    of the matrix (``Operator.to_json``), what the row means in words, the ids of the rules that
    judge its layers, and what ``check`` makes of it. Case does not matter. An operator whose name a
    family has too ("lrn") comes with ``family_rules``, that family; one without a row that rules
    name ("Pow") with these rules.

    Raises:
        UsageError: There is no such rule, family or operator (code ``rule.unknown``), or it is an
            ONNX operator that the matrix has no row for (code ``operator.unlisted``).
    """
    known = load_rules()
    wanted = name.strip().lower()
    for rule_id, rule in known.rules.items():
        if rule_id.lower() == wanted:
            return rule.to_json()
    for operator in known.operators:
        if operator.lower() == wanted:
            found = _operator(known, known.operators[operator])
            same = {"family_rules": _family(known, wanted)} if wanted in known.titles else {}
            return {**found, **same}
    for operator, row in known.unlisted.items():
        if operator.lower() == wanted:
            return _unlisted(known, operator, row)
    if wanted in known.titles:
        return _family(known, wanted)
    raise _unknown(known, name)


def _family(known: Rules, family: str) -> dict[str, Any]:
    rules = [{"id": r.id, "text": r.text, "limit": r.limit} for r in known if r.family == family]
    return {"family": family, "title": known.titles[family], "rules": rules}


def _operator(known: Rules, row: Operator) -> dict[str, Any]:
    verdict, rules = _decided(known, row)
    return {
        **row.to_json(),
        "text": known.meanings[row.trt],
        "dla_software_text": known.meanings[row.dla],
        "verdict": verdict,
        "rules": rules,
        "source": "; ".join(source["title"] for source in known.matrix_sources),
        "sources": [dict(source) for source in known.matrix_sources],
    }


def _unlisted(known: Rules, name: str, row: Mapping[str, list[str]]) -> dict[str, Any]:
    judging = [r.id for r in known if r.family in row["families"] and r.effect != "note"]
    no_row = Operator(name, "", "", "", "", tuple(row["families"]), False, "", True, "")
    return {
        **no_row.to_json(),
        "tensorrt": None,
        "dla_software": None,
        "text": _NO_ROW,
        "dla_software_text": _NO_ROW,
        "verdict": (
            f"the rules decide ({', '.join(row['rules'])}); the matrix does not list this operator"
        ),
        "rules": list(dict.fromkeys((*row["rules"], *judging))),
        "source": "; ".join(source["title"] for source in known.matrix_sources),
        "sources": [dict(source) for source in known.matrix_sources],
    }


def _decided(known: Rules, row: Operator) -> tuple[str, list[str]]:
    """What ``check`` makes of an operator, and the rules that decide."""
    rules = [r.id for r in known if r.family in row.families and r.effect != "note"]
    if row.settled_by:
        text = f"the rule {row.settled_by} decides, not the matrix"
        return text, list(dict.fromkeys((row.settled_by, *rules)))
    if row.trt == "folded":
        return "computed when the engine is built, so there is no layer to judge", rules
    if row.trt == "native":
        return "the rules decide", rules
    if row.composed:
        text = (
            "TensorRT's parser writes it as several layers, and the rules judge each; if all are "
            f"allowed, it runs on the DLA, disputed ({_COMPOSED})"
        )
        return text, [*(rules or [_KIND]), _COMPOSED]
    if rules:
        text = (
            "the rules decide; if they allow its layer, it runs on the DLA, disputed, because "
            f"the matrix says otherwise ({_NOT_EXPOSED})"
        )
        return text, [*rules, _NOT_EXPOSED]
    return "the DLA has no layer for it", [_KIND, _PLUGIN]


def _unknown(known: Rules, name: str) -> UsageError:
    from difflib import get_close_matches

    wanted = name.strip()
    if wanted in _onnx_operators():
        return UsageError(
            f"NVIDIA's operator matrix does not list the ONNX operator {wanted}",
            code="operator.unlisted",
            where=wanted,
            hint="to check the layers that TensorRT's parser writes for it: edgekit check MODEL "
            "--layer NODE",
        )
    names = {
        key.lower(): key for key in (*known.rules, *known.operators, *known.unlisted, *known.titles)
    }
    near = [names[key] for key in get_close_matches(wanted.lower(), names, n=3, cutoff=_CLOSE)]
    return UsageError(
        f"unknown rule {name!r}",
        code="rule.unknown",
        where=name,
        hint=f"did you mean {' or '.join(near)}?"
        if near
        else (
            "give a rule's id as printed by `edgekit check`, an ONNX operator such as HardSwish, "
            f"or a family ({', '.join(sorted(known.titles))})"
        ),
    )


def _onnx_operators() -> frozenset[str]:
    """The operators of the ONNX standard; only needed for a name that is known nowhere else."""
    from onnx import defs

    return frozenset(schema.name for schema in defs.get_all_schemas() if not schema.domain)
