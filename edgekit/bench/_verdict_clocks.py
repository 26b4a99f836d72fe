"""What the board's own state says: power mode, clocks of what was used, throttling."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from edgekit._listed import counted
from edgekit.errors import UsageError

if TYPE_CHECKING:
    from edgekit.bench._verdict import Judged, Measured
    from edgekit.targets import PowerMode

__all__ = ["judge", "measured_mode", "unjudged"]

_LOCK = "edgekit bench CONFIG --lock-clocks"
_HELD = (
    "they were held (--lock-clocks): see that neither heat, current nor another program moved them"
)
_COOL = (
    "cool the board (fan, heat sink, rest) or choose a lower power mode with --power-mode; for "
    "over-current, a stronger supply"
)


def judge(measured: Measured, judged: Judged) -> None:
    """Judges a board; nothing of this says anything of a PC."""
    _mode(measured, judged)
    _dla_clock(measured, judged)
    _moved(measured, judged)
    _throttled(measured, judged)


def unjudged(measured: Measured, judged: Judged) -> None:
    """Tells of a board whose processor imitated it: its mode and clocks decide nothing there."""
    if name := measured_mode(measured.facts):
        planned = f"; the plan is for {measured.power_mode}" if measured.power_mode else ""
        judged.unseen(
            f"power mode and clocks: the reference backend ran on the board's CPU (in {name}"
            f"{planned})"
        )


def measured_mode(facts: Mapping[str, Any]) -> str | None:
    """Returns the power mode while it was measured, by nvpmodel's name; None where none is told."""
    mode = ((facts.get("power") or {}).get("mode") or {}).get("during") or {}
    return str(mode["name"]) if mode.get("name") else None


def _mode(measured: Measured, judged: Judged) -> None:
    """The mode must be the one that the plan is for: that is what its times are compared with."""
    name = measured_mode(measured.facts)
    if name is None:
        judged.unseen("power mode: nvpmodel told none")
        return
    found, planned = _known(measured, name), _known(measured, measured.power_mode)
    wanted = planned.name if planned else _plain(measured.power_mode)
    if not wanted or _plain(name) == _plain(wanted):
        return
    what = f"measured in power mode {_plain(name)}"
    if found is not None and found.default:
        what += ", in which this board starts"
    message = f"{what}; the plan is for {wanted}"
    if found is not None and found.warning:
        message += f" ({found.warning})"
    judged.no(
        "bench.power-mode", message, _plain(name), wanted,
        f"edgekit bench CONFIG --power-mode {wanted}, or set power_mode: {_plain(name)} in the "
        "configuration and plan for it", option=f"--power-mode {wanted}",
    )  # fmt: skip


def _dla_clock(measured: Measured, judged: Judged) -> None:
    cores = sorted(name for name in measured.devices if name.startswith("DLA"))
    planned = _known(measured, measured.power_mode)
    if not cores or planned is None or not planned.dla_mhz:
        return
    share = measured.limit("dla_clock_share")
    for core in cores:
        number = int(core[3:] or 0)
        wanted = planned.dla_mhz[min(number, len(planned.dla_mhz) - 1)]
        found = _dla_mhz(measured, number)
        if found is None:
            judged.unseen(f"clock of {core}: neither tegrastats nor sysfs told it")
        elif found < share * wanted:
            judged.no(
                "bench.dla-clock",
                f"{core} ran at {found:.0f} MHz, {wanted:g} MHz belong to {planned.name}",
                found, share * wanted,
                # jetson_clocks does not hold a DLA's clock
                _way_to(planned.name, measured), by="dla_clock_share"
            )  # fmt: skip


def _way_to(mode: str, measured: Measured) -> str:
    """How the DLA gets a mode's clock: the mode decides it, and nothing else."""
    name = measured_mode(measured.facts)
    if name is None or _plain(name) != _plain(mode):
        return f"edgekit bench CONFIG --power-mode {mode}: the power mode decides a DLA's clock"
    return (
        f"the board is in {name} as planned: see whether heat or current slows it down, and the "
        "DLA's cap in /etc/nvpmodel.conf"
    )


def _dla_mhz(measured: Measured, core: int) -> float | None:
    """Highest clock that was seen, otherwise the cap, otherwise the mode's; None where unknown."""
    seen = [mhz for sample in measured.watched() for mhz in _clocks(sample, f"DLA{core}")]
    if seen:
        return max(seen)
    facts = (measured.facts.get("monitor") or {}).get("facts") or {}
    during = ((measured.facts.get("power") or {}).get("clocks") or {}).get("during") or {}
    told = (during.get(f"dla{core}_core") or {}).get("current")
    for hertz in (told, (facts.get("clock_caps_hz") or {}).get(f"dla{core}_core")):
        if isinstance(hertz, int | float) and hertz > 0:
            return hertz / 1e6
    mode = _known(measured, measured_mode(measured.facts) or "")
    return mode.dla_mhz[min(core, len(mode.dla_mhz) - 1)] if mode and mode.dla_mhz else None


def _moved(measured: Measured, judged: Judged) -> None:
    samples, span = measured.watched(), measured.limit("clock_span")
    for device in (*sorted(measured.devices), "EMC"):
        seen = [min(one) for sample in samples if (one := _clocks(sample, device))]
        if len(seen) < 2:
            judged.unseen(f"clock of {device} while it was measured: no monitor told it")
            continue
        low, high = min(seen), max(seen)
        if low < (1 - span) * high:
            judged.no(
                "bench.clocks-moved",
                f"the clock of {device} moved between {low:.0f} and {high:.0f} MHz while it was "
                "measured",
                low, (1 - span) * high, _steadier(measured, device), by="clock_span"
            )  # fmt: skip


def _steadier(measured: Measured, device: str) -> str:
    if device.startswith("DLA"):  # jetson_clocks leaves it alone
        return (
            "cool the board; jetson_clocks does not hold a DLA's clock, the power mode decides it"
        )
    return _HELD if (measured.facts.get("power") or {}).get("locked") else _LOCK


def _throttled(measured: Measured, judged: Judged) -> None:
    samples = measured.watched()
    others = [other for one in samples if isinstance(other := one.get("other"), Mapping)]
    states = [other["cooling"] for other in others if isinstance(other.get("cooling"), Mapping)]
    counts = [
        other["overcurrent_events"]
        for other in others
        if isinstance(other.get("overcurrent_events"), Mapping)
    ]
    on = sorted({name for state in states for name, value in state.items() if _above(value, 0)})
    if on:
        judged.no(
            "bench.throttled", f"slowed down for its heat: {', '.join(on)}",
            sum(any(_above(value, 0) for value in state.values()) for state in states), 0, _COOL,
        )  # fmt: skip
    events = sum(
        max(counts[-1].get(name, before) - before, 0) for name, before in _numbers(counts[:1])
    )
    if events:
        judged.no(
            "bench.throttled",
            f"slowed down {counted(events, 'time')} for too much current",
            events,
            0,
            _COOL,
        )
    if not states and not counts:
        judged.unseen("throttling: the board shows neither cooling states nor over-current events")


def _numbers(counts: Iterable[Mapping[str, Any]]) -> list[tuple[str, int]]:
    return [(name, n) for one in counts for name, n in one.items() if isinstance(n, int)]


def _clocks(sample: Mapping[str, Any], device: str) -> list[float]:
    """Clocks of a device in MHz in one sample; one that is off has none."""
    names = {"GPU": "GR3D", "EMC": "EMC"}
    engine = (sample.get("engines") or {}).get(names.get(device, f"NV{device}")) or {}
    found = list(engine.get("mhz") or ())
    rates = sample.get("clocks_hz") or {}
    key = "emc" if device == "EMC" else f"{device.lower()}_core"
    if not found and isinstance(rates.get(key), int | float):
        found = [rates[key] / 1e6]
    return [float(mhz) for mhz in found if _above(mhz, 0)]


def _above(value: object, bound: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > bound


def _known(measured: Measured, name: str) -> PowerMode | None:
    if measured.target is None or not name:
        return None
    try:
        return measured.target.mode(name)
    except UsageError:
        return None  # one that the customer has added to nvpmodel.conf


def _plain(name: str) -> str:
    return name.strip().upper().replace(" ", "_").removeprefix("MODE_")
