"""The checks of the rule files, compiled: they find the facts of a layer that break a rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from edgekit_device.protocol.codec import fail

_MANY = (tuple, list)
_LARGE = 1e30
_SIDES = frozenset({"kernel", "stride", "pads", "dilation", "window", "inner_scales"})
_WORDS = {
    "range": "{0[0]}..{0[1]}",
    "outside": "not {0[0]}..{0[1]}",
    "at_most": "at most {0}",
    "at_least": "at least {0}",
    "not_equal": "not {0}",
    "equal": "{0}",
    "whole": "whole numbers",
}
_RANGES = frozenset({"range", "outside"})
_LISTS = frozenset({"in", "not_in"})


class Facts(dict[str, Any]):
    """Facts for checks, by the names in rule files: those of a layer, a network, a release or a
    loadable.
    """


class RuleFailure(NamedTuple):
    """A broken rule: the fact with its value, the limit, and the value alone, as texts."""

    found: str
    limit: str
    value: str = ""


_Test = Callable[[Facts], RuleFailure | None]


class Check:
    """A check of a rule file: ``{of: FACT, OPERATOR: LIMIT}``.

    A fact is one value or several (the sides of a kernel); an operator holds if it holds for each
    value, and a fact that a layer does not have breaks no rule. ``{any: [...]}``, ``{all:
    [...]}`` and ``{never: true}`` combine checks.

    Attributes:
        limit: The limit as text; empty for a check that combines others.
        span: The two ends of a range that the check allows or excludes, or None.
        listed: Single values that the check allows.
        parts: The checks that it combines.
    """

    __slots__ = ("_test", "limit", "listed", "parts", "span")

    def __init__(
        self,
        test: _Test,
        limit: str = "",
        *,
        span: tuple[int, int] | None = None,
        listed: tuple[tuple[int, ...], ...] = (),
        parts: tuple[Check, ...] = (),
    ) -> None:
        self._test = test
        self.limit = limit
        self.span = span
        self.listed = listed
        self.parts = parts

    def __call__(self, facts: Facts) -> RuleFailure | None:
        """Returns the failure of the check; None if it holds."""
        return self._test(facts)


def _in_range(value: Any, limit: Any) -> bool:
    return bool(limit[0] <= value <= limit[1])


_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
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


def show(value: Any) -> str:
    """Returns a value as text: 33x1 for sizes, RELU for names."""
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


def compile_check(value: Any) -> Check:
    """Returns the compiled check of a rule file's value: a rule of the codec.

    Raises:
        DeviceError: The check has no known form.
    """
    if not isinstance(value, dict):
        fail("", f"expected a check, found {value!r}")
    # refuses every layer for which the rule holds
    if value == {"never": True}:
        return Check(lambda facts: RuleFailure(str(facts.get("kind")), "", str(facts.get("kind"))))
    if len(value) == 1 and isinstance(parts := next(iter(value.values())), list):
        if "any" in value:
            return _any(tuple(map(compile_check, parts)))
        if "all" in value:
            return _all(tuple(map(compile_check, parts)))
    fact, names = value.get("of"), [key for key in value if key != "of"]
    if not isinstance(fact, str) or len(names) != 1:
        fail("", f"not a check: {value!r}")
    name, bound = names[0], value[names[0]]
    if name == "below" and isinstance(bound, str):
        return _below(fact, bound)
    if name == "one_of" and isinstance(bound, list):
        return _one_of(fact, tuple(map(tuple, bound)))
    if name not in _OPERATORS:
        fail("", f"unknown operator {name!r} in {value!r}")
    if name in _RANGES and not (isinstance(bound, list) and len(bound) == 2):
        fail("", f"{name} takes the two ends of a range, not {bound!r}")
    if name in _LISTS and not isinstance(bound, list):
        fail("", f"{name} takes a list of values, not {bound!r}")
    return _compare_each(fact, name, bound)


def _any(parts: tuple[Check, ...]) -> Check:
    def test(facts: Facts) -> RuleFailure | None:
        # if all alternatives fail, the first failure is reported
        first = None
        for part in parts:
            failure = part(facts)
            if failure is None:
                return None
            first = first or failure
        return first

    return Check(test, parts=parts)


def _all(parts: tuple[Check, ...]) -> Check:
    return Check(lambda facts: next((f for f in (p(facts) for p in parts) if f), None), parts=parts)


def _one_of(fact: str, listed: tuple[tuple[int, ...], ...]) -> Check:
    def test(facts: Facts) -> RuleFailure | None:
        value = facts[fact]
        if value is None or tuple(value) in listed:
            return None
        return RuleFailure(f"{fact} {show(value)}", "", show(value))

    return Check(test, listed=listed)


def _limit_words(name: str, bound: Any) -> str:
    if name in _LISTS:
        listed = ", ".join(show(item) for item in bound)
        return listed if name == "in" else f"none of {listed}"
    shown = bound if isinstance(bound, list) else show(bound)
    return _WORDS[name].format(shown)


def _compare_each(fact: str, name: str, written: Any) -> Check:
    holds, words = _OPERATORS[name], _limit_words(name, written)
    # a rule is checked on every layer: membership in constant time
    bound = frozenset(written) if name in _LISTS else written

    def test(facts: Facts) -> RuleFailure | None:
        value = facts[fact]
        if value is None:
            return None
        if isinstance(value, _MANY):
            wrong = tuple(dict.fromkeys(item for item in value if not holds(item, bound)))
            if not wrong:
                return None
            # the sides of a window belong together; for a list of tensors the wrong values suffice
            shown = show(value) if fact in _SIDES else ", ".join(show(item) for item in wrong)
        elif holds(value, bound):
            return None
        else:
            shown = show(value)
        return RuleFailure(f"{fact.replace('_', ' ')} {shown}", words, shown)

    return Check(test, words, span=tuple(written) if name in _RANGES else None)


def _below(fact: str, other: str) -> Check:
    def test(facts: Facts) -> RuleFailure | None:
        value, bound = facts[fact], facts[other]
        if value is None or bound is None:
            return None
        # pads: begin and end of each side of the kernel
        if all(item < bound[index % len(bound)] for index, item in enumerate(value)):
            return None
        words = f"less than the {other.replace('_', ' ')} {show(bound)}"
        return RuleFailure(f"{fact} {show(value)}", words, show(value))

    return Check(test)
