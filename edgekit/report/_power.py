"""Power, temperatures, clocks and energy of a measurement, from the bench's monitor document."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

__all__ = ["POINTS", "power_of", "thinned"]

POINTS = 240
"""Points of a line that a page's width can show; the bench document keeps every sample."""


def power_of(bench: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Returns what the report says of power, or None where no monitor ran.

    Args:
        bench: The ``edgekit.bench/1`` document with "monitor", "power" and "energy", each of
            which may be missing.

    Returns:
        ``series``: groups ("rails_mw", "temperatures_c", "load_percent", "clocks_mhz") of lines
        {"name", "min", "mean", "max", "points": [[seconds, value]]}; ``energy``, ``settings`` (the
        power mode and clocks) and ``monitor`` (interval, sources, warnings) as the bench has them.
    """
    if not bench:
        return None
    monitor, energy, settings = bench.get("monitor"), bench.get("energy"), bench.get("power")
    if not (monitor or energy or settings):
        return None
    samples = (monitor or {}).get("samples") or ()
    return {
        "clock": bench["clock"],
        "monitor": {
            "interval_ms": monitor.get("interval_ms"),
            "sources": list(monitor.get("sources") or ()),
            "samples": len(samples),
            "idle_samples": len(monitor.get("idle") or ()),
            "facts": dict(monitor.get("facts") or {}),
            "unknown": len(monitor.get("unknown") or ()),
            "warnings": list(monitor.get("warnings") or ()),
        }
        if monitor
        else None,
        "series": _series(samples),
        "energy": dict(energy) if energy else None,
        "settings": dict(settings) if settings else None,
    }


def _series(samples: Sequence[Mapping[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    groups: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for sample in samples:
        when = sample.get("t_s")
        if not isinstance(when, int | float):
            continue
        for group, name, value in _values(sample):
            if isinstance(value, int | float) and not isinstance(value, bool):
                groups.setdefault(group, {}).setdefault(name, []).append((float(when), value))
    return {
        group: [_line(name, points) for name, points in lines.items()]
        for group, lines in groups.items()
    }


def _values(sample: Mapping[str, Any]) -> Iterable[tuple[str, str, Any]]:
    for name, rail in (sample.get("rails_mw") or {}).items():
        yield "rails_mw", name, rail.get("now")
    for name, value in (sample.get("temperatures_c") or {}).items():
        yield "temperatures_c", name, value
    for name, engine in (sample.get("engines") or {}).items():
        yield "load_percent", name, engine.get("percent")
        for number, clock in enumerate(engine.get("mhz") or ()):
            yield "clocks_mhz", name if number == 0 else f"{name} {number}", clock
    cores = [core.get("percent") for core in sample.get("cpu") or () if core]
    known = [core for core in cores if isinstance(core, int | float)]
    if known:
        yield "load_percent", "CPU", sum(known) / len(known)
    for name, hertz in (sample.get("clocks_hz") or {}).items():
        if isinstance(hertz, int | float):
            yield "clocks_mhz", name, hertz / 1e6


def _line(name: str, points: Sequence[tuple[float, float]]) -> dict[str, Any]:
    values = [value for _, value in points]
    return {
        "name": name, "min": min(values), "mean": sum(values) / len(values), "max": max(values),
        "points": thinned(points),
    }  # fmt: skip


def thinned(points: Sequence[tuple[float, float]], most: int = POINTS) -> list[list[float]]:
    """Returns at most ``most`` points: the lowest and the highest of each stretch, in time order.

    Averages would hide the peaks that a reader looks for.
    """
    if len(points) <= most:
        return [list(point) for point in points]
    stretches = most // 2
    kept: list[list[float]] = []
    for number in range(stretches):
        part = points[number * len(points) // stretches : (number + 1) * len(points) // stretches]
        pair = {min(part, key=lambda point: point[1]), max(part, key=lambda point: point[1])}
        kept += [list(point) for point in sorted(pair)]
    return kept
