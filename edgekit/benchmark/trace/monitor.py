"""A board's monitor as counters of a trace: power, temperature, clocks, load, memory."""

from __future__ import annotations

from collections.abc import Iterator

from edgekit.benchmark.measurement import BOARD_MEASURED, CPU_MEASURED, CPU_PLACE
from edgekit.benchmark.trace.chrome import TraceProcess, nanoseconds
from edgekit_device.board.samples import EngineLoad, Monitor, Sample
from edgekit_device.protocol.fields import Clock

_MOST = 200_000


def _all_samples(monitor: Monitor | None) -> list[Sample]:
    samples = [*monitor.idle, *monitor.samples] if monitor else []
    return sorted(samples, key=lambda sample: sample.t_s)[:_MOST]


def monitor_process(
    monitor: Monitor | None,
    *,
    pid: int,
    clock: Clock = BOARD_MEASURED,
    shown_s: float | None = None,
    what: str = "monitors",
) -> list[TraceProcess]:
    """Makes the process of the counters; no process without samples.

    Args:
        monitor: The samples.
        pid: Process number.
        clock: The measurement's clock.
        shown_s: Start of the trace, as the samples' ``t_s``; None if unknown: it then begins with
            the first sample, and a label notes this.
        what: Name of the sampler; a trace may have samples of several samplers.
    """
    samples = _all_samples(monitor)
    if not samples:
        return []
    place = CPU_PLACE if clock == CPU_MEASURED else "the board"
    process = TraceProcess(pid, f"{what} of {place}", clock, None)
    process.label = "edgekit_device's clock, as for single frames"
    if shown_s is None:
        process.label = "not aligned with the frames: begins at the first sample"
    _add(process, samples, float(samples[0].t_s) if shown_s is None else shown_s)
    return [process]


def monitor_wall(monitor: Monitor | None) -> float | None:
    """Returns the Unix time of ``t_s`` 0; None if no sample has it."""
    return next(
        (sample.wall - sample.t_s for sample in _all_samples(monitor) if sample.wall is not None),
        None,
    )


def _add(process: TraceProcess, samples: list[Sample], zero_s: float) -> None:
    """Adds a counter for every rail, temperature, engine and clock.

    Counters are steps: at the trace's 0 the last earlier value applies.
    """
    before: dict[str, float] = {}
    begun = False
    for sample in samples:
        at = nanoseconds(1e6 * (float(sample.t_s) - zero_s))
        values = dict(_values(sample))
        if at < 0:
            # a counter keeps its value until its next sample
            before |= values
            continue
        if not begun and at > 0:
            for name, value in before.items():
                process.count(name, 0, value)
        begun = True
        for name, value in values.items():
            process.count(name, at, value)
    if not begun:
        for name, value in before.items():
            process.count(name, 0, value)


def _values(sample: Sample) -> Iterator[tuple[str, float]]:
    for rail, power in sample.rails().items():
        yield f"power {rail} (mW)", float(power)
    for name, value in sample.temperatures_c.items():
        yield f"temperature {name} (C)", float(value)
    for name, engine in sample.engines.items():
        yield from _engine(name, engine)
    for name, value in sample.clocks_hz.items():
        yield f"clock {name} (MHz)", value / 1e6
    for name, status in sample.runtime_status.items():
        yield f"{name} active", float(status == "active")
    for name, use in (("ram", sample.ram), ("swap", sample.swap)):
        if use and use.used_bytes is not None:
            yield f"{name} used (MiB)", use.used_bytes / (1 << 20)
    loads = [core.percent for core in sample.cpu if core and core.percent is not None]
    if loads:
        yield "CPU load (%)", sum(loads) / len(loads)


def _engine(name: str, engine: EngineLoad) -> Iterator[tuple[str, float]]:
    if engine.percent is not None:
        yield f"{name} load (%)", float(engine.percent)
    if engine.mhz:
        yield f"{name} clock (MHz)", float(max(engine.mhz))
    if engine.on is not None:
        yield f"{name} on", float(engine.on)
