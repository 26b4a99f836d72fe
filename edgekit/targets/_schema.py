"""Typed reading of a board file: every wrong or missing fact is named with its place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from edgekit.errors import DataError

__all__ = ["Section", "resolve_sources"]

_NO_CAP = "max"


class Section:
    """One mapping of a board file and where it stands."""

    def __init__(self, values: Mapping[str, Any], path: str, place: str = "") -> None:
        self._values = values
        self._path = path
        self._place = place

    def fail(self, key: str, expected: str) -> NoReturn:
        """Raises the DataError for ``key``."""
        place = f"{self._place}.{key}" if self._place else key
        found = repr(self._values[key]) if key in self._values else "nothing"
        raise DataError(
            f"{place} is {found}, expected {expected}",
            code="target.invalid",
            where=self._path,
            hint="see the files under targets/ for the form",
        )

    def names(self) -> Iterable[str]:
        """Returns the keys in file order."""
        return [str(key) for key in self._values]

    def has(self, key: str) -> bool:
        """Says whether ``key`` is given at all."""
        return key in self._values

    def is_null(self, key: str) -> bool:
        """Says whether the fact is written down as unknown."""
        return key in self._values and self._values[key] is None

    def section(self, key: str) -> Section:
        """Returns the mapping under ``key``."""
        value = self._values.get(key)
        if not isinstance(value, Mapping) or not value:
            self.fail(key, "a mapping")
        return Section(value, self._path, f"{self._place}.{key}" if self._place else key)

    def text(self, key: str) -> str:
        """Returns a non-empty text."""
        value = self._values.get(key)
        if not isinstance(value, str) or not value:
            self.fail(key, "a text")
        return value

    def whole(self, key: str) -> int:
        """Returns a whole number of at least zero."""
        value = self._values.get(key)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            self.fail(key, "a whole number")
        return value

    def number(self, key: str) -> float:
        """Returns a number above zero."""
        value = self._values.get(key)
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not value > 0:
            self.fail(key, "a number above zero")
        return float(value)

    def numbers(self, key: str, cap: float) -> tuple[float, ...]:
        """Returns one or several clocks; "max" (no cap) and null (unknown) become ``cap``."""
        value = self._values.get(key, _NO_CAP)
        if value is None or value == _NO_CAP:
            return (cap,)
        items = value if isinstance(value, list) else [value]
        if not items or not all(type(i) in (int, float) and i > 0 for i in items):
            self.fail(key, f"a clock in MHz, a list of them or {_NO_CAP!r}")
        return tuple(float(item) for item in items)

    def texts(self, key: str) -> tuple[str, ...]:
        """Returns a list of texts, not empty."""
        value = self._values.get(key)
        if not isinstance(value, list) or not value or not all(type(i) is str for i in value):
            self.fail(key, "a list of texts")
        return tuple(value)

    def text_by_text(self, key: str) -> dict[str, str]:
        """Returns a mapping of texts to texts; empty when absent."""
        value = self._values.get(key, {})
        if not isinstance(value, Mapping) or not all(
            type(one) is str for pair in value.items() for one in pair
        ):
            self.fail(key, "a mapping of texts")
        return dict(value)

    def releases(self, key: str) -> None:
        """Checks a list of ``{since, until}`` (until is exclusive and may be left out)."""
        value = self._values.get(key)
        rows = value if isinstance(value, list) else []
        if not rows or not all(_is_release_range(row) for row in rows):
            self.fail(key, 'a list of {since: "8.4", until: "10.8"}')

    def flag(self, key: str) -> bool:
        """Returns a truth value, false when absent."""
        value = self._values.get(key, False)
        if not isinstance(value, bool):
            self.fail(key, "true or false")
        return value


def _is_release_range(row: object) -> bool:
    if not isinstance(row, Mapping) or "since" not in row or set(row) - {"since", "until"}:
        return False
    return all(isinstance(version, str) for version in row.values())


def resolve_sources(facts: Mapping[str, Any], shared: frozenset[str], path: str) -> None:
    """Checks that every section names sources and that each of them is listed.

    Raises:
        DataError: A section without a source, or a source that no list explains.
    """
    own = facts.get("sources", {})
    known = shared | frozenset(own if isinstance(own, Mapping) else ())
    rails = ("rails",) if "rails" in facts else ()
    for key in ("module", "software", "dla", "gpu", "dram", *rails):
        section = facts.get(key)
        named = section.get("source") if isinstance(section, Mapping) else None
        _check(named, known, f"{key}.source", path)
    _check(facts.get("power_modes_source"), known, "power_modes_source", path)


def _check(named: object, known: frozenset[str], place: str, path: str) -> None:
    keys = named if isinstance(named, list) else [named]
    missing = [str(key) for key in keys if key not in known]
    if not keys or missing:
        raise DataError(
            f"{place} is {named!r}, expected a list of known sources",
            code="target.invalid",
            where=path,
            hint="add the source to targets/_sources.yaml or to a `sources:` block of this file",
        )
