"""``edgekit.monitor/1``: power, temperatures, clocks, load and memory over time, from a board or a
log of tegrastats (docs/monitoring.md). The host reads the document with these classes, too.
"""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional, Tuple

from edgekit_device.protocol import fields
from edgekit_device.protocol.codec import (
    amount,
    array,
    choice,
    document,
    flag,
    mapping,
    member,
    nullable,
    record,
    records,
    text,
)

SCHEMA = "edgekit.monitor/1"

_READING = nullable(fields.reading)
_TEXT = nullable(text())
_COUNTS = mapping(fields.count)
_SENTENCES = array(text(most=1 << 16))


@document(frozen=True)
class RailPower:
    """Power of a rail in milliwatts.

    Attributes:
        now: Power at the time of the sample.
        average: The sensor's own mean.
        peak: The sensor's own maximum.
    """

    now: float = member(amount)
    average: Optional[float] = member(nullable(amount), absent=None, as_given=True)
    peak: Optional[float] = member(nullable(amount), absent=None, as_given=True)


@document(frozen=True)
class EngineLoad:
    """An engine (GR3D is the GPU); ``mhz`` has a clock for each of its clusters."""

    on: Optional[bool] = member(nullable(flag), absent=None, as_given=True)
    percent: Optional[float] = member(_READING, absent=None, as_given=True)
    mhz: Tuple[float, ...] = member(array(fields.reading), absent=(), as_given=True)


@document(frozen=True)
class CpuCore:
    """A core of the CPU."""

    percent: Optional[float] = member(_READING, absent=None, as_given=True)
    mhz: Optional[float] = member(_READING, absent=None, as_given=True)


@document(frozen=True)
class MemoryUse:
    """Memory or swap.

    Attributes:
        largest_free_blocks: Number of free blocks of the largest size.
    """

    used_bytes: Optional[float] = member(_READING, absent=None, as_given=True)
    total_bytes: Optional[float] = member(_READING, absent=None, as_given=True)
    cached_bytes: Optional[float] = member(_READING, absent=None)
    largest_free_blocks: Optional[int] = member(nullable(fields.count), absent=None)
    largest_free_block_bytes: Optional[float] = member(_READING, absent=None)


@document(frozen=True)
class TranslationLoad:
    """Load of a Denver core's code translation (MTS)."""

    foreground_percent: float = member(fields.reading)
    background_percent: float = member(fields.reading)


@document(frozen=True)
class OtherFacts:
    """Throttling, rarer memories, and the load of the measuring process.

    Attributes:
        process_percent: Load of the measuring process in percent of a core.
        iram: Memory of the audio processor.
        mts: Load of code translation.
        cooling: State by cooling device; only states other than 0.
        overcurrent_events: Number of over-current events since the board's start.
    """

    process_percent: Optional[float] = member(_READING, absent=None)
    iram: Optional[MemoryUse] = member(nullable(record(MemoryUse)), absent=None)
    mts: Optional[TranslationLoad] = member(nullable(record(TranslationLoad)), absent=None)
    cooling: Optional[Mapping[str, float]] = member(nullable(mapping(fields.reading)), absent=None)
    overcurrent_events: Optional[Mapping[str, int]] = member(nullable(_COUNTS), absent=None)


@document(frozen=True)
class Sample:
    """A sample of the board.

    Attributes:
        t_s: Seconds since the first measured frame; negative before.
        wall: Unix seconds.
        rails_mw: Power by rail.
        temperatures_c: Degrees Celsius by thermal zone.
        engines: Load and clock by engine.
        cpu: The cores; None for a core that is off.
        clocks_hz: Hertz by clock.
        runtime_status: By DLA core: "active" or "suspended".
        ram: Memory in use.
        swap: Swap in use.
        other: Rarer facts.
    """

    t_s: float = member(amount)
    wall: Optional[float] = member(_READING, absent=None, as_given=True)
    rails_mw: Mapping[str, RailPower] = member(mapping(record(RailPower)), absent=dict)
    temperatures_c: Mapping[str, float] = member(mapping(amount), absent=dict)
    engines: Mapping[str, EngineLoad] = member(mapping(record(EngineLoad)), absent=dict)
    cpu: Tuple[Optional[CpuCore], ...] = member(array(nullable(record(CpuCore))), absent=())
    clocks_hz: Mapping[str, float] = member(mapping(fields.reading), absent=dict)
    runtime_status: Mapping[str, str] = member(mapping(text()), absent=dict)
    ram: Optional[MemoryUse] = member(nullable(record(MemoryUse)), absent=None)
    swap: Optional[MemoryUse] = member(nullable(record(MemoryUse)), absent=None)
    other: Optional[OtherFacts] = member(nullable(record(OtherFacts)), absent=None)

    def rails(self) -> Dict[str, float]:
        """Returns the power of each rail in milliwatts."""
        return {name: rail.now for name, rail in self.rails_mw.items()}


@document(frozen=True)
class MonitorFacts:
    """Facts that stay the same while a board is sampled; None if unknown.

    Attributes:
        module: The device tree's model.
        board_id: The module's part number.
        l4t: Release of Jetson Linux.
        machine: The processor's architecture, such as "aarch64".
        dla_cores: Number of DLA cores.
        clock_caps_hz: The highest clocks that the power mode allows the DLA.
        sampler_percent: The sampler's own load, in percent of a core.
    """

    module: Optional[str] = member(_TEXT, absent=None, as_given=True)
    board_id: Optional[str] = member(_TEXT, absent=None, as_given=True)
    l4t: Optional[str] = member(_TEXT, absent=None, as_given=True)
    machine: Optional[str] = member(_TEXT, absent=None)
    dla_cores: Optional[int] = member(nullable(fields.count), absent=None)
    clock_caps_hz: Optional[Mapping[str, float]] = member(
        nullable(mapping(fields.reading)), absent=None
    )
    sampler_percent: Optional[float] = member(_READING, absent=None)


@document(frozen=True)
class LiveSample(Sample):
    """A line of the board's command ``sample``: a sample and news since the previous line.

    Attributes:
        sources: The samples' sources: tegrastats, sysfs, proc.
        interval_ms: Milliseconds between two samples; only in the first line.
        facts: The board's facts; only in the first line.
        power_mode: The mode's name; read every ten seconds.
        warnings: All warnings so far, if there is a new one.
        unknown: Count by unknown field, if there is a new one.
    """

    sources: Tuple[str, ...] = member(array(text()), absent=(), as_given=True)
    interval_ms: Optional[float] = member(_READING, absent=None)
    facts: Optional[MonitorFacts] = member(nullable(record(MonitorFacts)), absent=None)
    power_mode: Optional[str] = member(_TEXT, absent=None)
    warnings: Optional[Tuple[str, ...]] = member(nullable(_SENTENCES), absent=None)
    unknown: Optional[Mapping[str, int]] = member(nullable(_COUNTS), absent=None)

    @classmethod
    def of(cls, sample: Sample, **news: Any) -> "LiveSample":
        """Returns the line of a sample with fields of news."""
        return cls(**dict(vars(sample), **news))


@document(frozen=True)
class Monitor:
    """Samples of the measurement, and of the idle time before it.

    Attributes:
        interval_ms: Milliseconds between two samples.
        sources: The samples' sources: tegrastats, sysfs, proc.
        started_at: Unix seconds.
        samples: The samples from the warm-up on.
        idle: The samples before the warm-up.
        busy_from_s: Start of the load, as ``t_s``; None if no idle time was sampled.
        facts: Facts that stay the same.
        unknown: Count by unknown field.
        warnings: Sentences.
        log: The file of a log that was read; "" for a board's own samples.
    """

    schema: str = member(choice(SCHEMA), absent=SCHEMA, as_given=True)
    interval_ms: Optional[float] = member(_READING, absent=None, as_given=True)
    sources: Tuple[str, ...] = member(array(text()), absent=(), as_given=True)
    started_at: Optional[float] = member(_READING, absent=None, as_given=True)
    samples: Tuple[Sample, ...] = member(records(Sample), absent=(), as_given=True)
    idle: Tuple[Sample, ...] = member(records(Sample), absent=(), as_given=True)
    busy_from_s: Optional[float] = member(nullable(amount), absent=None, as_given=True)
    facts: MonitorFacts = member(record(MonitorFacts), absent=MonitorFacts(), as_given=True)
    unknown: Mapping[str, int] = member(_COUNTS, absent=dict, as_given=True)
    warnings: Tuple[str, ...] = member(_SENTENCES, absent=(), as_given=True)
    log: str = member(text(), absent="")
