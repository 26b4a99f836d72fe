"""Selectors: ``site=a,kind!=xavier,canary``, all of which a board must fulfil."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import translate

from edgekit._listed import listed
from edgekit.errors import UsageError
from edgekit.fleet._types import Member

__all__ = ["parse_selector", "select"]

_TERM = re.compile(
    r"""\s*(?P<absent>!)?\s*(?P<key>[A-Za-z0-9_][A-Za-z0-9._/-]*)\s*
    (?:(?P<sign>!=|==?)\s*(?:"(?P<quoted>(?:[^"\\]|\\["\\])*)"|(?P<plain>[^,"]*?)))?\s*(?:,|$)""",
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Term:
    """One condition; ``pattern`` None asks whether the label is there at all."""

    key: str
    wanted: bool
    pattern: re.Pattern[str] | None

    def fits(self, labels: Mapping[str, str]) -> bool:
        """Whether a board of these labels (its name among them) is meant."""
        value = labels.get(self.key)
        met = value is not None and (self.pattern is None or bool(self.pattern.fullmatch(value)))
        return met is self.wanted


def parse_selector(text: str) -> tuple[Term, ...]:
    """Reads ``KEY=VALUE``, ``KEY!=VALUE``, ``KEY`` (has it) and ``!KEY`` (has not), with commas.

    ``*`` and ``?`` in a value stand for any letters; a value in double quotes is taken as it is,
    with commas and stars. The label ``name`` is the board's name.

    Raises:
        UsageError: It is something else.
    """
    terms, at = [], 0
    while at < len(text):
        found = _TERM.match(text, at)
        if found is None or (found["absent"] and found["sign"]):
            raise UsageError(
                f"{text!r} selects nothing that edgekit understands, from {text[at:]!r} on",
                code="fleet.selector",
                hint="--select 'site=a,kind!=xavier,!spare'; quotes take a value as it is: "
                'site="a,b"',
            )
        pattern = None
        if found["quoted"] is not None:
            pattern = re.compile(re.escape(re.sub(r"\\(.)", r"\1", found["quoted"])))
        elif found["sign"]:
            # brackets are letters here: only * and ? stand for others
            plain = found["plain"].strip().replace("[", "[[]")
            pattern = re.compile(translate(plain))
        wanted = found["sign"] != "!=" and not found["absent"]
        terms.append(Term(found["key"], wanted, pattern))
        at = found.end()
    return tuple(terms)


def select(members: Iterable[Member], text: str | None) -> tuple[Member, ...]:
    """Returns the boards that ``text`` selects, all without one.

    Raises:
        UsageError: "fleet.selector": it cannot be read; "fleet.nothing-selected", with the labels
            that there are.
    """
    every = tuple(members)
    if not text:
        return every
    terms = parse_selector(text)
    chosen = tuple(
        member
        for member in every
        if all(term.fits({**member.labels, "name": member.name}) for term in terms)
    )
    if not chosen:
        raise UsageError(
            f"--select {text!r} fits none of {len(every)} boards",
            code="fleet.nothing-selected",
            hint=f"labels there: {_known(every)}",
        )
    return chosen


def _known(members: Iterable[Member]) -> str:
    values: dict[str, set[str]] = {}
    for member in members:
        for key, value in member.labels.items():
            values.setdefault(key, set()).add(value)
    told = []
    for key in sorted(values):
        words = sorted(value for value in values[key] if value)
        told.append(f"{key}={listed(words, 6)}" if words else key)
    return "; ".join(told[:20]) or "none (boards can be selected by name=...)"
