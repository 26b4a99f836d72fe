"""A rule, a family of rules or an operator in words, by name and offline: ``explain``."""

from __future__ import annotations

import re

from edgekit.dla.rule_files import Operator, Rule, RuleSource, UnlistedOperator, join_titles
from edgekit.dla.rules import Rules, load_rules
from edgekit.errors import UsageError
from edgekit.removed import FormerDict
from edgekit_device.protocol.codec import (
    array,
    choice,
    document,
    flag,
    long_text,
    member,
    nullable,
    record,
    records,
)

_NOT_EXPOSED, _COMPOSED = "operators.not_exposed", "operators.composed"
_KIND, _PLUGIN = "general.kind", "general.plugin"
_NO_ROW = "not in the matrix"
_CLOSE = 0.75
_OPERATOR = "an ONNX operator with a fix in the matrix"
_OPERATORS_FIX = "see `edgekit explain OPERATOR`"
_FACT = re.compile(r"\{(\w+)\}")
# words for these facts in a fix without a layer
_UNKNOWN = {
    "int8": "use INT8 (of a build in FP16), ",
    "layer": "that layer",
    "pool": "trtexec --memPoolSize",
    "pool_steps": "at most 8x8, or such pools in a row (`edgekit check MODEL` names them)",
    "reduced_window": "H x W",
    "smaller": "a smaller batch or input size",
    "window": "height x width of the window",
}


@document(frozen=True)
class CaseFix:
    """The fix in a case, which ``case`` describes in words."""

    case: str = member(long_text, key="for")
    fix: str = member(long_text)


@document(frozen=True, kw_only=True)
class ExplainedRule(FormerDict):
    """An ``edgekit.rule/1``: a rule, and when it holds.

    Attributes:
        id: Stable identifier, for example "convolution.kernel".
        family: The family of rules.
        text: The restriction in one sentence.
        limit: The limit; empty if it is part of the text.
        fix: The fix if none of ``fixes`` is for the layer.
        fixes: Fixes for certain cases; the first that fits counts.
        source: Titles of the sources in one text.
        sources: The sources.
        certainty: "certain", or "disputed" if the sources are silent or disagree.
        effect: "refuse", "risk" (allowed, but unsure) or "note" (not checked on a layer).
        network: True if it holds for the network as a whole.
        kinds: Layer types that it holds for; "*" is all.
        generations: DLA generations that it holds for.
        precisions: Precisions of the layer that it holds for.
        since: First TensorRT release that it holds for, or None.
        until: First TensorRT release that it no longer holds for, or None.
    """

    schema: str = member(choice("edgekit.rule/1"), default="edgekit.rule/1")
    id: str = member(long_text)
    family: str = member(long_text)
    text: str = member(long_text)
    limit: str = member(long_text)
    fix: str = member(long_text)
    fixes: tuple[CaseFix, ...] = member(records(CaseFix))
    source: str = member(long_text)
    sources: tuple[RuleSource, ...] = member(records(RuleSource))
    certainty: str = member(choice("certain", "disputed"))
    effect: str = member(choice("refuse", "risk", "note"))
    network: bool = member(flag)
    kinds: tuple[str, ...] = member(array(long_text))
    generations: tuple[str, ...] = member(array(long_text))
    precisions: tuple[str, ...] = member(array(long_text))
    since: str | None = member(nullable(long_text))
    until: str | None = member(nullable(long_text))


@document(frozen=True)
class ListedRule:
    """A rule in the list of its family."""

    id: str = member(long_text)
    text: str = member(long_text)
    limit: str = member(long_text)


@document(frozen=True)
class Family:
    """The rules of a family."""

    family: str = member(long_text)
    title: str = member(long_text)
    rules: tuple[ListedRule, ...] = member(records(ListedRule))


@document(frozen=True)
class ExplainedFamily(Family, FormerDict):
    """An ``edgekit.family/1``."""

    schema: str = member(choice("edgekit.family/1"), default="edgekit.family/1")


@document(frozen=True, kw_only=True)
class ExplainedOperator(FormerDict):
    """An ``edgekit.operator/1``: an ONNX operator with its row of NVIDIA's matrix.

    Attributes:
        operator: Its name.
        tensorrt: Support in TensorRT: "native", "reconstruction", "rfe" or "folded"; None
            without a row.
        since: First TensorRT release; None if no release is known to lack it.
        dla_software: Support in the DLA software below TensorRT, in the same words.
        dla_software_since: First DLA software; None if none is known to lack it.
        families: Rule families that judge its layers.
        composed: True if TensorRT's parser writes several layers, which the rules judge.
        fix: NVIDIA's alternative.
        settled_by: The rule that decides instead of the row, or None.
        text: Meaning of ``tensorrt``.
        dla_software_text: Meaning of ``dla_software``.
        verdict: The verdict of ``check``.
        rules: The rules that judge its layers.
        source: Titles of the matrix's sources in one text.
        sources: The matrix's sources.
        family_rules: The family of the same name; None if there is none.
    """

    schema: str = member(choice("edgekit.operator/1"), default="edgekit.operator/1")
    operator: str = member(long_text)
    tensorrt: str | None = member(nullable(long_text))
    since: str | None = member(nullable(long_text))
    dla_software: str | None = member(nullable(long_text))
    dla_software_since: str | None = member(nullable(long_text))
    families: tuple[str, ...] = member(array(long_text))
    composed: bool = member(flag)
    fix: str = member(long_text)
    settled_by: str | None = member(nullable(long_text))
    text: str = member(long_text)
    dla_software_text: str = member(long_text)
    verdict: str = member(long_text)
    rules: tuple[str, ...] = member(array(long_text))
    source: str = member(long_text)
    sources: tuple[RuleSource, ...] = member(records(RuleSource))
    family_rules: Family | None = member(nullable(record(Family)), absent=None)


Explained = ExplainedRule | ExplainedOperator | ExplainedFamily


def explain(name: str) -> Explained:
    """Returns the known facts about a rule, a family of rules or an ONNX operator.

    Case does not matter. An operator with the same name as a family ("lrn") includes that family;
    an operator without a row that rules name ("Pow") includes these rules.

    Raises:
        UsageError: There is no such rule, family or operator (code ``rule.unknown``), or it is an
            ONNX operator that the matrix has no row for (code ``operator.unlisted``).
    """
    known = load_rules()
    wanted = name.strip().lower()
    for rule_id, rule in known.rules.items():
        if rule_id.lower() == wanted:
            return explained(rule)
    for operator in known.operators:
        if operator.lower() == wanted:
            return _explain_operator(known, known.operators[operator])
    for operator, row in known.unlisted.items():
        if operator.lower() == wanted:
            return _explain_unlisted(known, operator, row)
    if wanted in known.titles:
        return ExplainedFamily(wanted, known.titles[wanted], _list_family(known, wanted))
    raise _unknown_name(known, name)


def explained(rule: Rule) -> ExplainedRule:
    """Returns the parts of a rule that are shown to users."""
    return ExplainedRule(
        id=rule.id,
        family=rule.family,
        text=rule.text,
        limit=rule.limit,
        fix=_generic_fix(rule.fix),
        fixes=tuple(_list_fixes(rule)),
        source=join_titles(rule.source),
        sources=rule.source,
        certainty=rule.certainty,
        effect=rule.effect,
        network=rule.network,
        kinds=rule.kinds,
        generations=rule.generations,
        precisions=rule.precisions,
        since=rule.since,
        until=rule.until,
    )


def _list_fixes(rule: Rule) -> list[CaseFix]:
    """Returns the fixes of ``check`` by case; the first that fits a layer counts."""
    found = [CaseFix(way.of, _generic_fix(way.fix)) for way in rule.ways]
    if rule.operator_fix:
        found.insert(0, CaseFix(_OPERATOR, _OPERATORS_FIX))
    return [*found, CaseFix("all other cases", _generic_fix(rule.fix))] if found else []


def _generic_fix(fix: str) -> str:
    """Returns a fix without a layer: words replace values that ``check`` computes from a layer."""
    return _FACT.sub(lambda fact: _UNKNOWN[fact[1]], fix)


def _list_family(known: Rules, family: str) -> tuple[ListedRule, ...]:
    return tuple(
        ListedRule(rule.id, rule.text, rule.limit) for rule in known if rule.family == family
    )


def _explain_operator(known: Rules, row: Operator) -> ExplainedOperator:
    verdict, rules = _decide_operator(known, row)
    family = row.name.lower()
    same = None
    if family in known.titles:
        same = Family(family, known.titles[family], _list_family(known, family))
    return ExplainedOperator(
        operator=row.name,
        tensorrt=row.trt,
        since=row.since or None,
        dla_software=row.dla,
        dla_software_since=row.dla_since or None,
        families=row.families,
        composed=row.composed,
        fix=row.fix,
        settled_by=row.settled_by or None,
        text=known.meanings[row.trt],
        dla_software_text=known.meanings[row.dla],
        verdict=verdict,
        rules=tuple(rules),
        family_rules=same,
        source=join_titles(known.matrix_sources),
        sources=known.matrix_sources,
    )


def _explain_unlisted(known: Rules, name: str, row: UnlistedOperator) -> ExplainedOperator:
    judging = [r.id for r in known if r.family in row.families and r.effect != "note"]
    return ExplainedOperator(
        operator=name,
        tensorrt=None,
        since=None,
        dla_software=None,
        dla_software_since=None,
        families=row.families,
        composed=False,
        fix="",
        settled_by=None,
        text=_NO_ROW,
        dla_software_text=_NO_ROW,
        verdict=(
            f"the rules decide ({', '.join(row.rules)}); the matrix does not list this operator"
        ),
        rules=tuple(dict.fromkeys((*row.rules, *judging))),
        source=join_titles(known.matrix_sources),
        sources=known.matrix_sources,
    )


def _decide_operator(known: Rules, row: Operator) -> tuple[str, list[str]]:
    """Returns the verdict of ``check`` on an operator, and the rules that decide."""
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
            f"the matrix contradicts ({_NOT_EXPOSED})"
        )
        return text, [*rules, _NOT_EXPOSED]
    return "the DLA has no layer for it", [_KIND, _PLUGIN]


def _unknown_name(known: Rules, name: str) -> UsageError:
    # slow imports that only an unknown name needs
    from difflib import get_close_matches

    from onnx import defs

    wanted = name.strip()
    if any(schema.name == wanted and not schema.domain for schema in defs.get_all_schemas()):
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
