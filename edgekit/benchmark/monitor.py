"""The ``edgekit.monitor/1`` document: what a board, or a log of tegrastats, says of power,
temperatures, clocks, load and memory over time.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, ValidationError

from edgekit.documents import Document, Number, fault_words, omitted
from edgekit.errors import BoardError
from edgekit.targets.jetpack import jetpack_of_l4t
from edgekit_device.protocol.failure import Failed
from edgekit_device.protocol.serving import ServingStatus

SCHEMA = "edgekit.monitor/1"


class RailPower(Document):
    """Power of a rail in milliwatts: when the sample was taken, and as its sensor sums it up."""

    now: Number
    average: Number | None = None
    peak: Number | None = None


class EngineLoad(Document):
    """An engine (GR3D is the GPU); ``mhz`` has a clock for each of its clusters."""

    on: bool | None = None
    percent: Number | None = None
    mhz: list[Number] = Field([])


class CpuCore(Document):
    """A core of the CPU."""

    percent: Number | None = None
    mhz: Number | None = None


class MemoryUse(Document):
    """Memory or swap."""

    used_bytes: Number | None = None
    total_bytes: Number | None = None
    cached_bytes: Number | None = None
    largest_free_blocks: int | None = None
    largest_free_block_bytes: Number | None = None


class TranslationLoad(Document):
    """Load of a Denver core's code translation (MTS)."""

    foreground_percent: Number
    background_percent: Number


class OtherFacts(Document):
    """What slows a board down, and the measuring process's own load in percent of a core."""

    process_percent: Number | None = None
    iram: MemoryUse | None = None
    mts: TranslationLoad | None = None
    cooling: dict[str, Number] | None = None
    overcurrent_events: dict[str, int] | None = None


class Sample(Document):
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


class MonitorFacts(Document):
    """What does not change while it is sampled."""

    module: str | None = None
    board_id: str | None = None
    l4t: str | None = Field(None, description="release of Jetson Linux")
    machine: str | None = None
    dla_cores: int | None = None
    clock_caps_hz: dict[str, Number] | None = None
    sampler_percent: Number | None = Field(None, description="the sampler's own load, of a core")


class LiveSample(Sample):
    """A line of the board's command ``sample``: a sample, and what is new since the last one."""

    sources: list[str] = Field([])
    interval_ms: Number | None = None
    facts: MonitorFacts = MonitorFacts()
    power_mode: str | None = None
    warnings: list[str] = Field([])
    unknown: dict[str, int] = Field({})


class Monitor(Document):
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


class ShownSample(Sample):
    """A sample; the first one has the time between two."""

    interval_ms: Number | None = omitted()


class ShownApp(Document):
    """An application of the board."""

    current: str | None = Field(description="the release that serves")
    deployment: str | None = Field(description="state of its newest deployment")
    serving: ServingStatus | Failed | None = Field(description="what its server says")


class Top(Document):
    """A board as it is now."""

    schema_: Literal["edgekit.top/1"] = Field(alias="schema")
    board: str
    target: str | None = Field(description="null: the board's module is not known")
    connection: str | None = Field(description="why the connection was cut; null: it is there")
    power_mode: str | None
    warnings: list[str]
    unknown: dict[str, int] = Field(description="how often fields came that are not known")
    sources: list[str]
    facts: MonitorFacts
    total_mw: Number | None = Field(description="null: not all rails of the total were read")
    sample: ShownSample
    apps: dict[str, ShownApp]


def live_sample(line: object, board: str) -> LiveSample:
    """Returns a line of the board's command ``sample``.

    Raises:
        BoardError: "board.protocol": it is none.
    """
    try:
        return LiveSample.model_validate(line)
    except ValidationError as error:
        raise BoardError(
            f"the board's sample is not valid: {fault_words(error)}",
            code="board.protocol",
            where=board,
            hint="use the same version of edgekit_device and edgekit",
        ) from None


def with_release_warning(warnings: list[str], l4t: str | None) -> list[str]:
    """Returns the warnings, with one where ``targets/`` does not know the Jetson Linux."""
    if not l4t or jetpack_of_l4t(l4t):
        return warnings
    warning = (
        f"Jetson Linux {l4t[:40]!r} is unknown to edgekit (targets/_jetpack.yaml): its "
        "monitors are read as those of the nearest release"
    )
    return warnings if warning in warnings else [*warnings, warning]
