"""A broken rule in words: the message, and the fix that fits the layer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from edgekit.dla._checks import Failure, show
from edgekit.dla._rule import Operator, Rule
from edgekit.dla._types import Reason

__all__ = ["reason_of"]


class _Words(Mapping[str, str]):
    """The facts of a layer as texts, for the braces of the rule files."""

    def __init__(self, facts: Mapping[str, Any], value: str) -> None:
        self._facts = facts
        self._value = value

    def __getitem__(self, name: str) -> str:
        return self._value if name == "value" else show(self._facts[name])

    def __iter__(self) -> Any:
        return iter(self._facts)

    def __len__(self) -> int:
        return len(self._facts)


def reason_of(
    rule: Rule,
    failure: Failure,
    facts: Mapping[str, Any],
    row: Operator | None = None,
    against: Iterable[str] = (),
) -> Reason:
    """Returns why a layer is refused or unsure, in the rule's own words.

    Args:
        rule: The rule that is broken.
        failure: What its check says.
        facts: Of the layer, or of the network for a rule of the whole network.
        row: The operator's row of NVIDIA's matrix, if it has one.
        against: Titles of the sources that the rule's own contradict.
    """
    words = _Words(facts, failure.value)
    found = rule.found.format_map(words) if rule.found else failure.found
    limit = rule.limit or failure.limit
    message = f"{rule.text.rstrip('.')}: {found}"
    if not rule.brief:
        message += f", allowed: {limit}"
    fix, mends = _fix(rule, facts, row)
    fix = fix.format_map(words)
    source = "; ".join(dict.fromkeys((*against, *rule.sources)))
    return Reason(rule.id, message, found, limit, source, fix, mends)


def _fix(rule: Rule, facts: Mapping[str, Any], row: Operator | None) -> tuple[str, bool]:
    if rule.operator_fix and row is not None and row.fix:
        return row.fix, row.mends
    for way in rule.ways:
        if way.when(facts) is None:
            return way.fix, way.mends
    return rule.fix, rule.mends
