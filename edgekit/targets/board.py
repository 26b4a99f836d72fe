"""The values of a board: `Target` with its GPU, DLA, memory, power rails and power modes, and
finding a power mode by NVIDIA's name for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from functools import cache

from edgekit.errors import UsageError
from edgekit.knowledge import data_folder, read_document
from edgekit_device.protocol import fields
from edgekit_device.protocol.codec import (
    array,
    choice,
    document,
    fail,
    flag,
    integer,
    mapping,
    member,
    nullable,
    number,
    record,
    records,
    text,
)
from edgekit_device.versions import parse_version, show, without_zeros

_PREFIX = "MODE_"
SCHEMA = "edgekit.target/1"
NO_CAP = "max"
_KIB = 1024
GENERATIONS = {"1.0": "Xavier", "2.0": "Orin"}  # of the DLA, with its modules
PLATFORMS = ("jetson", "drive")
CONTENTION = (
    "gpu_by_dla", "dla_by_gpu", "dla_by_dla", "hybrid_dla_by_gpu", "hybrid_dla_by_dla",
)  # fmt: skip


_positive_or_zero = number(0, 1e15)


def _whole(value: object) -> int:
    return int(integer(0, 1 << 40)(value))


def _positive(value: object) -> float:
    found = float(_positive_or_zero(value))
    return found or fail("", "expected a number above zero, found 0")


def _named(value: object) -> str:
    return str(text()(value)) or fail("", "expected a text that is not empty")


def _clock(value: object) -> float | str | None:
    """A clock in MHz, "max" (no cap), or null (unknown)."""
    return value if value is None or value == NO_CAP else _positive(value)


def _clocks(value: object) -> tuple[float | str | None, ...]:
    """A clock for all cores, or one for each."""
    found: tuple[float, ...]
    if isinstance(value, list):
        found = array(_positive, 1)(value)
        return found
    return (_clock(value),)


_release = text(r"[0-9]{1,9}(\.[0-9]{1,9}){0,3}", "a release such as 10.3")
_texts = array(_named)
_source = array(_named, 1)
_derived = mapping(_named)


def one_spelling(release: str) -> str:
    """Returns a release as documents, keys and messages have it: "10.3" for 10.3.0 and 010.3.

    A major release alone stays alone.
    """
    return show(without_zeros(parse_version(release), 2))


def _usual(value: object) -> str:
    return one_spelling(str(_release(value)))


def _listed(value: object) -> tuple[str, ...]:
    """A list of texts; null is what is not publicly known."""
    found: tuple[str, ...] = () if value is None else _texts(value)
    return found


def _known(value: object) -> str:
    """A release; null is what is not publicly known."""
    return "" if value is None else str(_release(value))


@document(frozen=True, eq=False)
class JetPack:
    """JetPack releases that share a TensorRT; a release of DRIVE OS has ``drive_os`` instead.

    Attributes:
        tensorrt: The TensorRT that they bring; empty where not publicly known.
        versions: JetPack versions, oldest first.
        l4t: Jetson Linux versions; empty where not publicly known.
        also: Other releases that sources name instead.
        up_to: The newest TensorRT that can be installed beside it; empty where that is its own.
        note: What else is to know of them.
        socs: What they are for; empty in a board's own file.
        source: Where that is from.
        drive_os: A DRIVE OS release.
        dla: Whether that supports the DLA.
    """

    tensorrt: str = member(_known)
    versions: tuple[str, ...] = member(_texts, key="jetpack", absent=())
    l4t: tuple[str, ...] = member(_listed, absent=())
    also: tuple[str, ...] = member(array(_release), absent=())
    up_to: str = member(_release, absent="")
    note: str = member(_named, absent="")
    socs: tuple[str, ...] = member(_texts, absent=())
    source: tuple[str, ...] = member(_source, absent=())
    drive_os: str = member(_named, absent="")
    dla: bool = member(flag, absent=False)

    @property
    def tensorrt_text(self) -> str:
        """The TensorRT as people read it: "10.16.1 or 10.16.2" where sources differ, or ""."""
        return " or ".join(self.possible)

    @property
    def possible(self) -> tuple[str, ...]:
        """The TensorRT releases that sources name, oldest first; empty where none is known."""
        return tuple(sorted((*self.also, self.tensorrt))) if self.tensorrt else ()


@document(frozen=True, eq=False)
class Module:
    """A module: NVIDIA's numbers, its SoC, and NVIDIA's sparse INT8 TOPS of GPU and DLA."""

    numbers: tuple[str, ...] = member(_texts)
    platform: str = member(choice(*PLATFORMS))
    soc: str = member(_named)
    source: tuple[str, ...] = member(_source)
    total_tops: float | None = member(_positive, absent=None)
    super_total_tops: float | None = member(_positive, absent=None)

    def has(self, board_id: str) -> bool:
        """Whether a board whose device tree gives this number is one."""
        return board_id.startswith(self.numbers)


@document(frozen=True, eq=False)
class Software:
    """What runs on a board.

    Attributes:
        tensorrt: The TensorRT release assumed without ``--tensorrt``.
        source: Where that is from.
        jetpack_since: The first JetPack of ``targets/_jetpack.yaml`` that is for the board; "" for
            the first that is for its SoC.
        tensorrt_since: The first TensorRT release, where it is older than all listed ones.
        releases: The board's own releases instead of those of ``targets/_jetpack.yaml``, or None.
    """

    tensorrt: str = member(_usual)
    source: tuple[str, ...] = member(_source)
    jetpack_since: str = member(_named, absent="")
    tensorrt_since: str = member(_release, absent="")
    releases: tuple[JetPack, ...] | None = member(records(JetPack), absent=None)


@document(frozen=True, eq=False)
class ReleaseRange:
    """TensorRT releases from ``since`` up to, without, ``until`` (None: all newer ones)."""

    since: str = member(_release)
    until: str | None = member(_release, absent=None)


@document(frozen=True, eq=False)
class UnstatedReleases:
    """TensorRT releases from ``since`` on of which no source states the DLA, and why."""

    since: str = member(_release)
    why: str = member(_named)
    source: tuple[str, ...] = member(_source)


@document(frozen=True, eq=False)
class Dla:
    """The DLA cores of a module; ``cores`` 0 means none and the other fields are zero.

    Attributes:
        cores: Number of cores.
        source: Where that is from.
        generation: "1.0" (Xavier), "2.0" (Orin), "" where there is none.
        max_mhz: Core clock at MAXN.
        int8_macs_per_clock: Dense multiply-accumulates a clock, one core.
        sram_kib: Managed SRAM per core in KiB.
        sram_shared: All cores share one such SRAM (Xavier).
        tensorrt: The TensorRT releases that support it.
        tensorrt_unstated: Releases of which no source says it; None for no such ones.
        derived: How numbers were derived that no source states, by their names.
    """

    cores: int = member(integer(0, fields.CORES))
    source: tuple[str, ...] = member(_source)
    generation: str = member(choice(*GENERATIONS), absent="")
    max_mhz: float = member(_positive, absent=0.0)
    int8_macs_per_clock: int = member(_whole, absent=0)
    sram_kib: int = member(_whole, absent=0)
    sram_shared: bool = member(flag, absent=False)
    tensorrt: tuple[ReleaseRange, ...] = member(records(ReleaseRange, 1), absent=())
    tensorrt_unstated: UnstatedReleases | None = member(record(UnstatedReleases), absent=None)
    derived: Mapping[str, str] = member(_derived, absent=dict)

    @property
    def layouts(self) -> str:
        """The generation whose layouts and sizes count: the newest without a DLA."""
        return self.generation or max(GENERATIONS)

    @property
    def sram_bytes(self) -> int:
        """Managed SRAM per core (Xavier: shared by all cores)."""
        return self.sram_kib * _KIB

    def check(self) -> None:
        """Refuses cores of which something is missing, and facts of no cores."""
        needed = ("generation", "max_mhz", "int8_macs_per_clock", "sram_kib", "tensorrt")
        lacks = [name for name in needed if not getattr(self, name)]
        if self.cores and lacks:
            fail("", f"missing: {', '.join(lacks)}")
        if not self.cores and len(lacks) < len(needed):
            fail("", "a board without cores has a source and nothing else")


@document(frozen=True, eq=False)
class TargetGpu:
    """The integrated GPU: its name in CUDA and in TensorRT's logs ("Orin"), architecture ("volta",
    "ampere", "blackwell"), SMs, clock and rates.
    """

    name: str = member(_named)
    arch: str = member(_named)
    compute_capability: str = member(_named)
    sms: int = member(_whole)
    max_mhz: float = member(_positive)
    int8_ops_per_clock_per_sm: int = member(_whole)
    fp16_ops_per_clock_per_sm: int = member(_whole)
    source: tuple[str, ...] = member(_source)
    derived: Mapping[str, str] = member(_derived, absent=dict)


@document(frozen=True, eq=False)
class Dram:
    """Memory shared by all devices: its type, GiB, peak GB a second, and clock in MHz."""

    type: str = member(_named)
    gib: int = member(_whole)
    gb_per_second: float = member(_positive)
    emc_mhz: float = member(_positive)
    source: tuple[str, ...] = member(_source)
    derived: Mapping[str, str] = member(_derived, absent=dict)

    @property
    def bytes(self) -> int:
        """Its size in bytes."""
        return self.gib << 30

    @property
    def bytes_per_second(self) -> float:
        """Its peak bandwidth."""
        return self.gb_per_second * 1e9


@document(frozen=True, eq=False)
class PowerDraw:
    """What a module draws while nothing runs."""

    idle_watts: float = member(_positive)
    source: tuple[str, ...] = member(_source)
    derived: Mapping[str, str] = member(_derived, absent=dict)


@document(frozen=True, eq=False)
class PowerRails:
    """The power rails that a board measures.

    Attributes:
        total: The rails whose sum is the board's draw.
        settle_s: Seconds that a rail lags the load, for its sensor averages.
        devices: The rail that "GPU", "DLA" and "CPU" draw from; none on Orin is the DLA's alone.
        inside: Rails that are a part of another one, and of which; never added to it.
        source: Where that is from.
        derived: How numbers were derived that no source states, by their names.
    """

    total: tuple[str, ...] = member(array(_named, 1))
    settle_s: float = member(_positive)
    devices: Mapping[str, str] = member(mapping(_named, choice("GPU", "DLA", "CPU")), absent=dict)
    inside: Mapping[str, str] = member(mapping(_named), absent=dict)
    source: tuple[str, ...] = member(_source, default=())
    derived: Mapping[str, str] = member(_derived, absent=dict)


@document(frozen=True, eq=False)
class Contention:
    """A board's own factors of ``targets/costs/contention.yaml``; None for its generation's."""

    source: tuple[str, ...] = member(_source)
    gpu_by_dla: float | None = member(_positive, absent=None)
    dla_by_gpu: float | None = member(_positive, absent=None)
    dla_by_dla: float | None = member(_positive, absent=None)
    hybrid_dla_by_gpu: float | None = member(_positive, absent=None)
    hybrid_dla_by_dla: float | None = member(_positive, absent=None)
    derived: Mapping[str, str] = member(_derived, absent=dict)


@document(frozen=True, eq=False)
class WrittenMode:
    """A power mode as a board file has it.

    Attributes:
        id: NVIDIA's number.
        cpu_cores: Powered cores; None where unknown.
        gpu: Clock in MHz, "max", or None where unknown.
        tpcs: Powered TPCs, of two SMs each.
        emc: Clock of the memory, as ``gpu``.
        dla: Clock of all cores, or one for each; empty for a board without a DLA.
        default: The board starts in it.
        super: It needs the super configuration.
        warning: What a user of the mode is told.
    """

    id: int = member(_whole)
    cpu_cores: int | None = member(nullable(_whole))
    gpu: float | str | None = member(_clock)
    tpcs: int = member(_whole)
    emc: float | str | None = member(_clock)
    dla: tuple[float | str | None, ...] = member(_clocks, absent=())
    default: bool = member(flag, absent=False)
    super: bool = member(flag, absent=False)
    warning: str = member(_named, absent="")


@document(frozen=True, eq=False)
class DisputedFact:
    """A fact of a board of which sources say different things: ours and the other."""

    what: str = member(_named)
    ours: str = member(_named)
    other: str = member(_named)
    source: tuple[str, ...] = member(_source)


@document(frozen=True, eq=False)
class BoardFile:
    """A file ``targets/NAME.yaml``; each section names its sources.

    Attributes:
        title: Full name for people.
        module: The module.
        software: What runs on it.
        dla: Its DLA cores.
        gpu: Its GPU.
        dram: Its memory.
        power: What it draws.
        power_modes: By NVIDIA's name.
        power_modes_source: Where these are from.
        power_modes_derived: How numbers of them were derived, by their names.
        rails: Its power rails; None where they are not known.
        contention: Its own factors; None where all are those of its DLA generation.
        disputed: Of what sources say different things.
        assumed: What is assumed of the board in general.
        sources: Sources of its own, by key.
    """

    schema: str = member(choice(SCHEMA))
    title: str = member(_named)
    module: Module = member(record(Module))
    software: Software = member(record(Software))
    dla: Dla = member(record(Dla))
    gpu: TargetGpu = member(record(TargetGpu))
    dram: Dram = member(record(Dram))
    power: PowerDraw = member(record(PowerDraw))
    power_modes: Mapping[str, WrittenMode] = member(mapping(record(WrittenMode), least=1))
    power_modes_source: tuple[str, ...] = member(_source)
    power_modes_derived: Mapping[str, str] = member(_derived, absent=dict)
    rails: PowerRails | None = member(record(PowerRails), absent=None)
    contention: Contention | None = member(record(Contention), absent=None)
    disputed: tuple[DisputedFact, ...] = member(records(DisputedFact), absent=())
    assumed: str = member(_named, absent="")
    sources: Mapping[str, str] = member(mapping(_named), absent=dict)

    def check(self) -> None:
        """Refuses a source that no list explains, and clocks of another number of cores."""
        named = {
            "module.source": self.module.source,
            "software.source": self.software.source,
            "dla.source": self.dla.source,
            "gpu.source": self.gpu.source,
            "dram.source": self.dram.source,
            "power.source": self.power.source,
            "power_modes_source": self.power_modes_source,
            "rails.source": self.rails.source if self.rails else (),
            "contention.source": self.contention.source if self.contention else (),
        }
        known = {*shared_sources(), *self.sources}
        for place, keys in named.items():
            for key in keys:
                if key not in known:
                    fail(
                        place,
                        f"{key!r} is no source of targets/_sources.yaml or of this file's sources",
                    )
        for name, mode in self.power_modes.items():
            if self.dla.cores and len(mode.dla) not in {1, self.dla.cores}:
                fail(f"power_modes.{name}.dla", f"one clock, or one per core ({self.dla.cores})")


@document(frozen=True, eq=False)
class SourcesFile:
    """``targets/_sources.yaml``: the sources by their keys."""

    sources: Mapping[str, str] = member(mapping(_named))


@cache
def shared_sources() -> Mapping[str, str]:
    """Returns the sources of the boards by their keys."""
    return read_document(SourcesFile, data_folder("targets") / "_sources.yaml").sources


@document(frozen=True, eq=False)
class PowerMode:
    """One nvpmodel mode; a clock is MHz, already resolved (never "no cap").

    ``gpu_sms`` counts the SMs that are not power-gated; ``memory_share`` is the DRAM clock
    relative to the module's highest.
    """

    name: str
    id: int
    cpu_cores: int
    gpu_mhz: float
    gpu_sms: int
    dla_mhz: tuple[float, ...]
    memory_share: float
    default: bool
    warning: str = ""


@document(frozen=True, eq=False)
class Target:
    """A board as ``targets/NAME.yaml`` describes it.

    Attributes:
        name: File name without its ending, for example "jetson-agx-orin-64gb".
        title: Full name for people.
        compute_capability: For example "8.7".
        tensorrt: The TensorRT version assumed without ``--tensorrt`` (Orin 10.3, Xavier 8.5.2).
        idle_watts: What the module draws while nothing runs.
        platform: "jetson" or "drive".
        rails: Its power rails; None where they are not known.
        contention: Its own factors of devices that slow each other down, by the names of
            ``targets/costs/contention.yaml``; a factor that it lacks is its DLA generation's.
        file: Its file, for anything else; each fact there names its source.
    """

    name: str
    title: str
    compute_capability: str
    dla: Dla
    gpu: TargetGpu
    dram: Dram
    power_modes: Mapping[str, PowerMode]
    tensorrt: str
    idle_watts: float
    platform: str
    file: BoardFile
    rails: PowerRails | None = None
    contention: Mapping[str, float] = field(default_factory=dict)

    def lacking_capability(self, least: str) -> str:
        """Returns why its GPU is not enough for what needs a compute capability; "" if it is."""
        own = self.compute_capability
        if not least or parse_version(own) >= parse_version(least):
            return ""
        return f"the GPU of {self.name} has compute capability {own}, and it needs {least}"

    def mode(self, name: str | None = None) -> PowerMode:
        """Returns a power mode by NVIDIA's name, with or without ``MODE_``, in any case.

        Without a name the first of MAXN or the default mode. UsageError when unknown.
        """
        return find_mode(self, name)


def _plain_mode_name(name: str) -> str:
    return name.strip().upper().replace(" ", "_").removeprefix(_PREFIX)


def find_mode(target: Target, name: str | None = None) -> PowerMode:
    """Returns the power mode called ``name``.

    ``MODE_`` in front is optional and case does not matter ("mode_30w" is "30W"; "MAXN SUPER", as
    some tools print it, is "MAXN_SUPER"). Without a name: MAXN where the board has it, otherwise
    the mode the board starts in.

    Raises:
        UsageError: The board has no such mode (code ``target.mode``).
    """
    modes = target.power_modes
    if name is None:
        default = next((m for m in modes.values() if m.default), next(iter(modes.values())))
        return modes.get("MAXN", default)
    found = modes.get(_plain_mode_name(name))
    if found is not None:
        return found
    from difflib import get_close_matches

    near = get_close_matches(_plain_mode_name(name), list(modes), n=1, cutoff=0.4)
    guess = f"did you mean {near[0]}? " if near else ""
    raise UsageError(
        f"unknown power mode {name!r}",
        code="target.mode",
        where=target.name,
        hint=f"{guess}this board's modes are {', '.join(modes)}",
    )
