"""The view of power, temperatures, load and clocks beside a measurement, and of its energy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edgekit.report import _charts as charts
from edgekit.report import _text as text
from edgekit.report._view_verdict import clock_tag

__all__ = ["power_view"]

_GROUPS = (
    ("rails_mw", "Power by rail", "mW"), ("temperatures_c", "Temperature", "°C"),
    ("load_percent", "Load", "%"), ("clocks_mhz", "Clocks", "MHz"),
)  # fmt: skip
_BASELINES = {
    "idle": "over idle is what a rail takes more than it took before the warm-up",
    "floor": "no idle time was sampled: what a rail takes more than at its lowest in the "
    "measurement",
}
_REST = {"floor": ("Lowest", "Over its lowest")}


def power_view(power: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Returns charts with their tables, and the energy of an inference by rail."""
    if not power:
        return None
    found = [
        _chart(title, unit, power["series"][group])
        for group, title, unit in _GROUPS
        if power["series"].get(group)
    ]
    return {
        "clock": clock_tag(power["clock"]),
        "charts": found,
        "title": "Power and temperature" if _on_board(power) else "Beside the measurement",
        "energy": _energy(power["energy"]),
        "facts": _facts(power),
        "warnings": [text.clean(one) for one in (power["monitor"] or {}).get("warnings", ())],
    }


def _on_board(power: Mapping[str, Any]) -> bool:
    """Whether there is power or a temperature; a PC's monitor has its load alone."""
    return bool(power["energy"] or {"rails_mw", "temperatures_c"} & set(power["series"]))


def _chart(title: str, unit: str, series: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    from markupsafe import Markup

    times = [t for one in series for t, _ in one["points"]]
    begin, end = min(times), max(times)
    top = _round_up(max(one["max"] for one in series))
    label = f"{title} in {unit} from {begin:.3g} to {end:.3g} s"
    return {
        "title": title, "unit": unit, "top": text.significant(top),
        "begin": f"{text.significant(round(begin, 2))} s",
        "end": f"{text.significant(round(end, 2))} s",
        "middle": "the dashed upright is the first measured frame" if begin < 0 < end else "",
        "chart": Markup(charts.lines(series, (begin, end), top, label)),
        "rows": [
            {
                "css": f"net{number % charts.LINES}",
                "dash": number >= charts.LINES, "name": text.clean(one["name"]),
                "min": text.significant(one["min"]), "mean": text.significant(one["mean"]),
                "max": text.significant(one["max"]),
            }
            for number, one in enumerate(series)
        ],
    }  # fmt: skip


def _round_up(value: float) -> float:
    """Returns 1, 2, 2.5, 4, 5 or 8 times a power of ten, not below ``value``."""
    power = 1.0
    while power * 10 <= value:
        power *= 10
    while power > value > 0:
        power /= 10
    steps = (1, 2, 2.5, 4, 5, 8, 10)
    return next((power * step for step in steps if power * step >= value), 10 * power)


def _energy(energy: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if not energy:
        return None
    rails = energy.get("by_rail") or {}
    total = energy.get("total")
    rows = [_rail(name, rail) for name, rail in rails.items()]
    if isinstance(total, Mapping):
        rows.append(_rail("All rails", total) | {"own": True})
    return {
        "clock": clock_tag(str(energy.get("clock") or "")),
        "rows": rows,
        "rest": _REST.get(str(energy.get("baseline")), ("Idle", "Over idle")),
        "baseline": _BASELINES.get(str(energy.get("baseline")), ""),
    }


def _rail(name: str, rail: Mapping[str, Any]) -> dict[str, Any]:
    def milliwatts(key: str) -> str:
        value = rail.get(key)
        return text.ABSENT if value is None else f"{text.significant(value)} mW"

    return {
        "name": text.clean(name), "mean": milliwatts("mean_mw"), "idle": milliwatts("idle_mw"),
        "energy": text.energy(rail.get("uj_per_inference")),
        "over": text.energy(rail.get("over_idle_uj")), "own": False,
    }  # fmt: skip


def _facts(power: Mapping[str, Any]) -> list[dict[str, str]]:
    monitor, settings = power["monitor"] or {}, power["settings"] or {}
    mode = settings.get("mode")
    rows = [
        ("Power mode", ", ".join(f"{_name(v)} {k}" for k, v in mode.items() if v is not None)
         if isinstance(mode, Mapping) else mode),
        ("Clocks locked", _yes(settings.get("locked"))),
        ("Settings restored", _yes(settings.get("restored"))),
        ("Sampled by", ", ".join(map(str, monitor.get("sources") or ()))),
        ("Every", f"{monitor['interval_ms']:g} ms" if monitor.get("interval_ms") else None),
        ("Samples", f"{monitor['samples']:,}, after {monitor['idle_samples']:,} while idle"
         if monitor.get("idle_samples") else monitor.get("samples")),
        ("Fields not known", monitor.get("unknown") or None),
    ]  # fmt: skip
    return [
        {"name": name, "value": text.clean(value)}
        for name, value in rows
        if value not in (None, "")
    ]


def _name(value: Any) -> Any:
    return value.get("name", value) if isinstance(value, Mapping) else value


def _yes(value: Any) -> str | None:
    return {True: "yes", False: "no"}.get(value)
