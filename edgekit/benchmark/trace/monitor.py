"""A board's monitor as counters of a trace: power, temperature, clocks, load, memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from edgekit.benchmark.energy import number_of, rails_of, samples_of
from edgekit.benchmark.measurement import BOARD_MEASURED, CPU_MEASURED, CPU_PLACE
from edgekit.benchmark.trace.chrome import TraceProcess, nanoseconds

_MOST = 200_000


def _all(monitor: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return (samples_of(monitor, "idle") + samples_of(monitor))[:_MOST]


def monitor_process(
    measurement: Mapping[str, Any], *, pid: int, early_us: float = 0.0, what: str = "monitors"
) -> list[TraceProcess]:
    """Makes the process of the counters; none where nothing was sampled.

    Args:
        measurement: A bench document or the loader's; or just {"monitor": ...}.
        pid: Process number.
        early_us: How much earlier than its first segment the trace begins.
        what: Who sampled; a trace may hold what several have.

    It is aligned where the measurement says when the frames that the trace shows began
    ("events_start_s"); else it begins with its first sample, and says so.
    """
    monitor = measurement.get("monitor")
    samples = _all(monitor) if isinstance(monitor, Mapping) else []
    if not samples:
        return []
    clock = str(measurement.get("clock") or BOARD_MEASURED)
    place = CPU_PLACE if clock == CPU_MEASURED else "the board"
    process = TraceProcess(pid, f"{what} of {place}", clock, None)
    first = float(samples[0]["t_s"])
    shown = number_of(measurement, "events_start_s")
    zero = first if shown is None else shown - early_us / 1e6
    if shown is None:
        process.label = "not aligned with the frames: the whole measurement, from its first sample"
    process.label = process.label or "the loader's clock, as the frames alone"
    _add(process, samples, zero)
    return [process]


def monitor_wall(monitor: Mapping[str, Any]) -> float | None:
    """Returns the Unix time of ``t_s`` 0; None if no sample knows it."""
    for sample in _all(monitor):
        wall = number_of(sample, "wall")
        if wall is not None:
            return wall - float(sample["t_s"])
    return None


def frames_wall(measurement: Mapping[str, Any]) -> float | None:
    """Returns the Unix time of the first shown segment; None if it is not known."""
    monitor, shown = measurement.get("monitor"), number_of(measurement, "events_start_s")
    wall = monitor_wall(monitor) if isinstance(monitor, Mapping) else None
    return None if wall is None or shown is None else wall + shown


def _add(process: TraceProcess, samples: list[Mapping[str, Any]], zero_s: float) -> None:
    """Adds a counter for every rail, temperature, engine and clock.

    Counters are steps: the value before the trace's 0 is the one that holds there.
    """
    before: dict[str, float] = {}
    begun = False
    for sample in samples:
        at = nanoseconds(1e6 * (float(sample["t_s"]) - zero_s))
        values = dict(_values(sample))
        if at < 0:
            before |= values
            continue
        if not begun and at > 0:
            for name, value in before.items():
                process.count(name, 0, {"value": value})
        begun = True
        for name, value in values.items():
            process.count(name, at, {"value": value})
    if not begun:
        for name, value in before.items():
            process.count(name, 0, {"value": value})


def _group(sample: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    group = sample.get(name)
    return group if isinstance(group, Mapping) else {}


def _values(sample: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for rail, power in rails_of(sample).items():
        yield f"power {rail} (mW)", power
    temperatures = _group(sample, "temperatures_c")
    for name in temperatures:
        value = number_of(temperatures, name)
        if value is not None:
            yield f"temperature {name} (C)", value
    for name, engine in _group(sample, "engines").items():
        if isinstance(engine, Mapping):
            yield from _engine(str(name), engine)
    clocks = _group(sample, "clocks_hz")
    for name in clocks:
        value = number_of(clocks, name)
        if value is not None:
            yield f"clock {name} (MHz)", value / 1e6
    for name, status in _group(sample, "runtime_status").items():
        yield f"{name} active", float(status == "active")
    for name in ("ram", "swap"):
        used = number_of(_group(sample, name), "used_bytes")
        if used is not None:
            yield f"{name} used (MiB)", used / (1 << 20)
    cores = sample.get("cpu")
    loads = [
        load
        for core in (cores if isinstance(cores, list) else ())
        if isinstance(core, Mapping) and (load := number_of(core, "percent")) is not None
    ]
    if loads:
        yield "CPU load (%)", sum(loads) / len(loads)


def _engine(name: str, engine: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    percent = number_of(engine, "percent")
    if percent is not None:
        yield f"{name} load (%)", percent
    mhz = engine.get("mhz")
    clocks = [v for v in (mhz if isinstance(mhz, list) else ()) if isinstance(v, int | float)]
    if clocks:
        yield f"{name} clock (MHz)", float(max(clocks))
    if isinstance(engine.get("on"), bool):
        yield f"{name} on", float(engine["on"])
