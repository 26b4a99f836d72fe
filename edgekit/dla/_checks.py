"""The declarative checks of the rule files, compiled to functions.

A check is a mapping: ``{of: FACT, OPERATOR: LIMIT}``. A fact is one value or several (the sides of
a kernel); an operator holds when it holds for each of them, and a fact that a layer does not have
breaks no rule. ``{any: [...]}``, ``{all: [...]}`` and ``{never: true}`` combine checks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

__all__ = ["OPERATORS", "Check", "Failure", "compile_check", "limit_of", "show"]


class Failure(NamedTuple):
    """What broke a rule: the fact with its value, the limit, and the value alone, as texts."""

    found: str
    limit: str
    value: str = ""


Facts = Mapping[str, Any]
Check = Callable[[Facts], Failure | None]
_MANY = (tuple, list)
_LARGE = 1e30
_SIDES = frozenset({"kernel", "stride", "pads", "dilation", "window", "inner_scales"})


def _in_range(value: Any, limit: Any) -> bool:
    return bool(limit[0] <= value <= limit[1])


OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "range": _in_range,
    "outside": lambda value, limit: not _in_range(value, limit),
    "in": lambda value, limit: value in limit,
    "not_in": lambda value, limit: value not in limit,
    "equal": lambda value, limit: bool(value == limit),
    "not_equal": lambda value, limit: bool(value != limit),
    "at_most": lambda value, limit: bool(value <= limit),
    "at_least": lambda value, limit: bool(value >= limit),
    "whole": lambda value, limit: (float(value) == int(value)) is limit,
}
_WORDS = {
    "range": "{0[0]}..{0[1]}", "outside": "not {0[0]}..{0[1]}", "at_most": "at most {0}",
    "at_least": "at least {0}", "not_equal": "not {0}", "equal": "{0}", "whole": "whole numbers",
}  # fmt: skip


def show(value: Any) -> str:
    """A value as people write it: 33x1 for sizes, RELU for names."""
    if isinstance(value, _MANY):
        distinct = list(dict.fromkeys(value))
        if not all(isinstance(item, (int, float)) for item in distinct):
            return ", ".join(show(item) for item in distinct)
        return "x".join(show(item) for item in value)
    if isinstance(value, float):
        if abs(value) > _LARGE:
            return "unbounded"
        return f"{value:g}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def compile_check(spec: Mapping[str, Any], limit: str = "") -> Check:
    """Compiles one check of a rule file.

    Args:
        spec: The check as read.
        limit: What to call the limit; made from the check when empty.

    Raises:
        ValueError: The check has no known form.
    """
    if "never" in spec:
        return lambda facts: Failure(str(facts.get("kind")), limit, str(facts.get("kind")))
    if "any" in spec:
        parts = [compile_check(part, limit) for part in spec["any"]]
        return lambda facts: _any(parts, facts)
    if "all" in spec:
        parts = [compile_check(part, limit) for part in spec["all"]]
        return lambda facts: next((f for f in (p(facts) for p in parts) if f), None)
    return _simple(spec, limit)


def limit_of(spec: Mapping[str, Any]) -> str:
    """The limit of a simple check as people write it; empty for a combined one."""
    names = [key for key in spec if key != "of"]
    if "of" not in spec or len(names) != 1 or names[0] not in OPERATORS:
        return ""
    return _words(names[0], spec[names[0]])


def _any(parts: list[Check], facts: Facts) -> Failure | None:
    first = None
    for part in parts:
        failure = part(facts)
        if failure is None:
            return None
        first = first or failure
    return first


def _simple(spec: Mapping[str, Any], limit: str) -> Check:
    names = [key for key in spec if key != "of"]
    if len(names) != 1 or "of" not in spec:
        raise ValueError(f"not a check: {dict(spec)!r}")
    fact, name = str(spec["of"]), names[0]
    bound = spec[name]
    if name == "below":
        return _below(fact, str(bound), limit)
    if name == "one_of":
        wanted = [tuple(item) for item in bound]
        return lambda facts: (
            Failure(f"{fact} {show(facts[fact])}", limit, show(facts[fact]))
            if facts[fact] is not None and tuple(facts[fact]) not in wanted
            else None
        )
    if name not in OPERATORS:
        raise ValueError(f"unknown operator {name!r} in {dict(spec)!r}")
    if isinstance(bound, list) and name in {"in", "not_in"}:
        bound = frozenset(bound)
    words = limit or _words(name, spec[name])
    return _each(fact, OPERATORS[name], bound, words)


def _words(name: str, bound: Any) -> str:
    if name in {"in", "not_in"}:
        listed = ", ".join(show(item) for item in bound)
        return listed if name == "in" else f"none of {listed}"
    shown = bound if isinstance(bound, list) else show(bound)
    return _WORDS[name].format(shown)


def _each(fact: str, holds: Callable[[Any, Any], bool], bound: Any, words: str) -> Check:
    def check(facts: Facts) -> Failure | None:
        value = facts[fact]
        if value is None:
            return None
        if isinstance(value, _MANY):
            wrong = tuple(dict.fromkeys(item for item in value if not holds(item, bound)))
            if not wrong:
                return None
            # the sides of a window belong together; of a list of tensors the wrong ones are enough
            shown = show(value) if fact in _SIDES else ", ".join(show(item) for item in wrong)
        elif holds(value, bound):
            return None
        else:
            shown = show(value)
        return Failure(f"{fact.replace('_', ' ')} {shown}", words, shown)

    return check


def _below(fact: str, other: str, limit: str) -> Check:
    def check(facts: Facts) -> Failure | None:
        value, bound = facts[fact], facts[other]
        if value is None or bound is None:
            return None
        # pads: begin and end of each side of the kernel
        if all(item < bound[index % len(bound)] for index, item in enumerate(value)):
            return None
        words = limit or f"less than the {other.replace('_', ' ')} {show(bound)}"
        return Failure(f"{fact} {show(value)}", words, show(value))

    return check
