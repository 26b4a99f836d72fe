"""The ``edgekit.monitor/1`` document: what a board, or a log of tegrastats, says of power,
temperatures, clocks, load and memory over time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field, ValidationError

from edgekit.documents import Number, OpenDocument, fault_words
from edgekit.errors import BoardError
from edgekit.targets.jetpack import jetpack_of_l4t

SCHEMA = "edgekit.monitor/1"


class RailPower(OpenDocument):
    """Power of a rail in milliwatts: when the sample was taken, and as its sensor sums it up."""

    now: Number
    average: Number | None = None
    peak: Number | None = None


class EngineLoad(OpenDocument):
    """An engine (GR3D is the GPU); ``mhz`` has a clock for each of its clusters."""

    on: bool | None = None
    percent: Number | None = None
    mhz: list[Number] = Field([])


class CpuCore(OpenDocument):
    """A core of the CPU."""

    percent: Number | None = None
    mhz: Number | None = None


class MemoryUse(OpenDocument):
    """Memory or swap."""

    used_bytes: Number | None = None
    total_bytes: Number | None = None


class OtherFacts(OpenDocument):
    """What slows a board down, and the measuring process's own load in percent of a core."""

    process_percent: Number | None = None
    cooling: dict[str, Number] | None = None
    overcurrent_events: dict[str, int] | None = None


class Sample(OpenDocument):
    """A look at the board, ``t_s`` seconds after the first measured frame."""

    t_s: Number
    wall: Number | None = Field(None, description="Unix seconds")
    rails_mw: dict[str, RailPower] = Field({})
    temperatures_c: dict[str, Number] = Field({})
    engines: dict[str, EngineLoad] = Field({})
    cpu: list[CpuCore | None] = Field([], description="null: a core that is off")
    clocks_hz: dict[str, Number] = Field({})
    runtime_status: dict[str, str] = Field({})
    ram: MemoryUse | None = None
    swap: MemoryUse | None = None
    other: OtherFacts | None = None

    def rails(self) -> dict[str, float]:
        """Returns the power of each rail in milliwatts."""
        return {name: rail.now for name, rail in self.rails_mw.items()}


class MonitorFacts(OpenDocument):
    """What does not change while it is sampled."""

    module: str | None = None
    l4t: str | None = None
    clock_caps_hz: dict[str, Number] | None = None


class LiveSample(Sample):
    """A line of the board's command ``sample``: a sample, and what is new since the last one."""

    sources: list[str] = Field([])
    interval_ms: Number | None = None
    facts: MonitorFacts = MonitorFacts()
    power_mode: str | None = None
    warnings: list[str] = Field([])
    unknown: dict[str, int] = Field({})


class Monitor(OpenDocument):
    """Samples of the measurement, and of the time before it, when nothing of ours ran ("idle")."""

    schema_: str = Field(SCHEMA, alias="schema")
    interval_ms: Number | None = None
    sources: list[str] = Field([])
    started_at: Number | None = None
    samples: list[Sample] = Field([])
    idle: list[Sample] = Field([])
    busy_from_s: Number | None = Field(None, description="when the load began, as t_s")
    facts: MonitorFacts = MonitorFacts()
    unknown: dict[str, int] = Field({}, description="how often fields came that are not known")
    warnings: list[str] = Field([])
    log: str = Field("", description="the file that it was read from")


def check_sample(line: Mapping[str, Any], board: str) -> None:
    """Refuses a line of the board's command ``sample`` that is no ``LiveSample``.

    Raises:
        BoardError: "board.protocol".
    """
    try:
        LiveSample.model_validate(line)
    except ValidationError as error:
        raise BoardError(
            f"the board's sample is not valid: {fault_words(error)}",
            code="board.protocol",
            where=board,
            hint="use the same version of edgekit_device and edgekit",
        ) from None


def rails_of(sample: Mapping[str, Any]) -> dict[str, float]:
    """Returns the power of each rail in milliwatts, of a sample as a board or a log has it."""
    return {name: rail["now"] for name, rail in (sample.get("rails_mw") or {}).items()}


def with_release_warning(document: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a document with "facts" and "warnings", which say once that the Jetson Linux is none
    that ``targets/`` knows.
    """
    warning = _unknown_release((document.get("facts") or {}).get("l4t"))
    warnings = list(document.get("warnings") or ())
    more = [warning] if warning and warning not in warnings else []
    return {**document, "warnings": [*warnings, *more]}


def _unknown_release(l4t: str | None) -> str:
    if not l4t or jetpack_of_l4t(l4t):
        return ""
    return (
        f"Jetson Linux {l4t[:40]!r} is unknown to edgekit (targets/_jetpack.yaml): its "
        "monitors are read as those of the nearest release"
    )
