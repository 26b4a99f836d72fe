"""Reads an ``edgekit.monitor/1`` document from a board: what is not of its form is left out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from typing import Any

__all__ = [
    "SCHEMA",
    "number_of",
    "rails_of",
    "samples_of",
    "unknown_release",
    "with_release_warning",
]

SCHEMA = "edgekit.monitor/1"


def samples_of(monitor: Mapping[str, Any], name: str = "samples") -> list[Mapping[str, Any]]:
    """Returns the samples called "samples" or "idle" that have a time, in its order."""
    value = monitor.get(name)
    listed = value if isinstance(value, Sequence) and not isinstance(value, str) else ()
    found = [
        one for one in listed if isinstance(one, Mapping) and number_of(one, "t_s") is not None
    ]
    return sorted(found, key=lambda one: float(one["t_s"]))


def rails_of(sample: Mapping[str, Any]) -> dict[str, float]:
    """Returns the power of each rail in milliwatts, as it was when the sample was taken."""
    group = sample.get("rails_mw")
    return dict(_readings(group)) if isinstance(group, Mapping) else {}


def number_of(group: Mapping[str, Any], key: str) -> float | None:
    """Returns a finite number, or None."""
    value = group.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if isfinite(value) else None


def with_release_warning(monitor: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the document, whose "warnings" say once that its Jetson Linux is not known."""
    warning, said = unknown_release(monitor), monitor.get("warnings")
    warnings = list(said) if isinstance(said, Sequence) and not isinstance(said, str) else []
    more = [warning] if warning and warning not in warnings else []
    return {**monitor, "warnings": [*warnings, *more]}


def unknown_release(monitor: Mapping[str, Any]) -> str:
    """Returns a warning where the board's Jetson Linux is none that ``targets/`` knows, or ""."""
    from edgekit.targets import jetpack_of_l4t

    facts = monitor.get("facts")
    l4t = facts.get("l4t") if isinstance(facts, Mapping) else None
    if not isinstance(l4t, str) or not l4t or jetpack_of_l4t(l4t):
        return ""
    return (
        f"Jetson Linux {l4t[:40]!r} is none that edgekit knows (targets/_jetpack.yaml): "
        "what its monitors say is read as the nearest release's"
    )


def _readings(group: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for name, values in group.items():
        now = number_of(values, "now") if isinstance(values, Mapping) else None
        if isinstance(name, str) and now is not None:
            yield name, now
