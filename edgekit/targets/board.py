"""The values of a board: `Target` with its GPU, DLA, memory, power rails and power modes, and the
search for a power mode by NVIDIA's name.
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
from edgekit_device.versions import parse_version, show, strip_zeros

_PREFIX = "MODE_"
SCHEMA = "edgekit.target/1"
NO_CAP = "max"
_KIB = 1024
GENERATIONS = {"1.0": "Xavier", "2.0": "Orin"}  # DLA generations with their modules
PLATFORMS = ("jetson", "drive")
CONTENTION = (
    "gpu_by_dla",
    "dla_by_gpu",
    "dla_by_dla",
    "hybrid_dla_by_gpu",
    "hybrid_dla_by_dla",
)


_positive_or_zero = number(0, 1e15)
_release = text(r"[0-9]{1,9}(\.[0-9]{1,9}){0,3}", "a release such as 10.3")


def _whole(value: object) -> int:
    return int(integer(0, 1 << 40)(value))


def _positive(value: object) -> float:
    found = float(_positive_or_zero(value))
    return found or fail("", "expected a number above zero, found 0")


def _nonempty(value: object) -> str:
    return str(text()(value)) or fail("", "expected a text that is not empty")


def _clock(value: object) -> float | str | None:
    """Returns a clock in MHz, "max" (no cap), or None (unknown)."""
    return value if value is None or value == NO_CAP else _positive(value)


def _clocks(value: object) -> tuple[float | str | None, ...]:
    """Returns a single clock for all cores, or a clock for each core."""
    found: tuple[float, ...]
    if isinstance(value, list):
        found = array(_positive, 1)(value)
        return found
    return (_clock(value),)


_texts = array(_nonempty)
_source = array(_nonempty, 1)
_derived = mapping(_nonempty)


def canonical_release(release: str) -> str:
    """Returns a release in the form of documents, keys and messages: "10.3" for 10.3.0 and 010.3.

    A major release alone is returned unchanged.
    """
    return show(strip_zeros(parse_version(release), 2))


def _canonical(value: object) -> str:
    return canonical_release(str(_release(value)))


def _texts_or_null(value: object) -> tuple[str, ...]:
    """Returns a list of texts; null means not publicly known."""
    found: tuple[str, ...] = () if value is None else _texts(value)
    return found


def _release_or_null(value: object) -> str:
    """Returns a release; null means not publicly known."""
    return "" if value is None else str(_release(value))


@document(frozen=True, eq=False)
class JetPack:
    """JetPack releases that share a TensorRT; a release of DRIVE OS has ``drive_os`` instead.

    Attributes:
        tensorrt: The TensorRT that they bring; empty if not publicly known.
        versions: JetPack versions, oldest first.
        l4t: Jetson Linux versions; empty if not publicly known.
        also: Other releases that sources name instead.
        up_to: The newest TensorRT that can be installed beside it; empty if that is its own.
        note: A further remark.
        socs: Their SoCs; empty in a board's own file.
        source: The source.
        drive_os: A DRIVE OS release.
        dla: True if that supports the DLA.
    """

    tensorrt: str = member(_release_or_null)
    versions: tuple[str, ...] = member(_texts, key="jetpack", absent=())
    l4t: tuple[str, ...] = member(_texts_or_null, absent=())
    also: tuple[str, ...] = member(array(_release), absent=())
    up_to: str = member(_release, absent="")
    note: str = member(_nonempty, absent="")
    socs: tuple[str, ...] = member(_texts, absent=())
    source: tuple[str, ...] = member(_source, absent=())
    drive_os: str = member(_nonempty, absent="")
    dla: bool = member(flag, absent=False)

    @property
    def tensorrt_text(self) -> str:
        """The TensorRT as text: "10.16.1 or 10.16.2" if sources differ; "" if unknown."""
        return " or ".join(self.possible)

    @property
    def possible(self) -> tuple[str, ...]:
        """The TensorRT releases that sources name, oldest first; empty if unknown."""
        return (
            tuple(sorted((*self.also, self.tensorrt), key=parse_version)) if self.tensorrt else ()
        )


@document(frozen=True, eq=False)
class Module:
    """A module: NVIDIA's numbers, its SoC, and NVIDIA's sparse INT8 TOPS of GPU and DLA."""

    numbers: tuple[str, ...] = member(_texts)
    platform: str = member(choice(*PLATFORMS))
    soc: str = member(_nonempty)
    source: tuple[str, ...] = member(_source)
    total_tops: float | None = member(_positive, absent=None)
    super_total_tops: float | None = member(_positive, absent=None)

    def has(self, board_id: str) -> bool:
        """Returns True if a board with this number in its device tree is such a module."""
        return board_id.startswith(self.numbers)


@document(frozen=True, eq=False)
class Software:
    """The software of a board.

    Attributes:
        tensorrt: The TensorRT release assumed without ``--tensorrt``.
        source: The source.
        jetpack_since: The first JetPack of ``targets/_jetpack.yaml`` that is for the board; "" for
            the first that is for its SoC.
        tensorrt_since: The first TensorRT release, if older than all listed releases.
        releases: The board's own releases instead of those of ``targets/_jetpack.yaml``, or None.
    """

    tensorrt: str = member(_canonical)
    source: tuple[str, ...] = member(_source)
    jetpack_since: str = member(_nonempty, absent="")
    tensorrt_since: str = member(_release, absent="")
    releases: tuple[JetPack, ...] | None = member(records(JetPack), absent=None)


@document(frozen=True, eq=False)
class ReleaseRange:
    """TensorRT releases from ``since`` on and before ``until`` (None: no upper limit)."""

    since: str = member(_release)
    until: str | None = member(_release, absent=None)


@document(frozen=True, eq=False)
class UnstatedReleases:
    """TensorRT releases from ``since`` on for which no source states DLA support, and why."""

    since: str = member(_release)
    why: str = member(_nonempty)
    source: tuple[str, ...] = member(_source)


@document(frozen=True, eq=False)
class Dla:
    """The DLA cores of a module; ``cores`` 0 means none and the other fields are zero.

    Attributes:
        cores: Number of cores.
        source: The source.
        generation: "1.0" (Xavier), "2.0" (Orin), "" without a DLA.
        max_mhz: Core clock at MAXN.
        int8_macs_per_clock: Dense multiply-accumulates a clock, one core.
        sram_kib: Managed SRAM per core in KiB.
        sram_shared: All cores share one such SRAM (Xavier).
        tensorrt: The TensorRT releases that support it.
        tensorrt_unstated: Releases for which no source states it; None if there are none.
        derived: Derivations of numbers that no source states, by name.
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
        """The generation whose layouts and sizes are used; without a DLA the newest."""
        return self.generation or max(GENERATIONS)

    @property
    def sram_bytes(self) -> int:
        """Managed SRAM per core (Xavier: shared by all cores)."""
        return self.sram_kib * _KIB

    def check(self) -> None:
        """Refuses cores with missing facts, and facts without cores."""
        needed = ("generation", "max_mhz", "int8_macs_per_clock", "sram_kib", "tensorrt")
        lacks = [name for name in needed if not getattr(self, name)]
        if self.cores and lacks:
            fail("", f"missing: {', '.join(lacks)}")
        if not self.cores and len(lacks) < len(needed):
            fail("", "a board without cores has only a source")


@document(frozen=True, eq=False)
class TargetGpu:
    """The integrated GPU: its name in CUDA and in TensorRT's logs ("Orin"), architecture ("volta",
    "ampere", "blackwell"), SMs, clock and rates.
    """

    name: str = member(_nonempty)
    arch: str = member(_nonempty)
    compute_capability: str = member(_nonempty)
    sms: int = member(_whole)
    max_mhz: float = member(_positive)
    int8_ops_per_clock_per_sm: int = member(_whole)
    fp16_ops_per_clock_per_sm: int = member(_whole)
    source: tuple[str, ...] = member(_source)
    derived: Mapping[str, str] = member(_derived, absent=dict)


@document(frozen=True, eq=False)
class Dram:
    """Memory shared by all devices: type, size in GiB, peak GB per second, and clock in MHz."""

    type: str = member(_nonempty)
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
    """The power of an idle module."""

    idle_watts: float = member(_positive)
    source: tuple[str, ...] = member(_source)
    derived: Mapping[str, str] = member(_derived, absent=dict)


@document(frozen=True, eq=False)
class PowerRails:
    """The power rails that a board measures.

    Attributes:
        total: The rails whose sum is the board's power.
        settle_s: Seconds that a rail lags the load, because its sensor averages.
        devices: The rails of "GPU", "DLA" and "CPU"; on Orin no rail is the DLA's alone.
        inside: Rails that are part of another rail, with that rail; never added to it.
        source: The source.
        derived: Derivations of numbers that no source states, by name.
    """

    total: tuple[str, ...] = member(array(_nonempty, 1))
    settle_s: float = member(_positive)
    devices: Mapping[str, str] = member(
        mapping(_nonempty, choice("GPU", "DLA", "CPU")), absent=dict
    )
    inside: Mapping[str, str] = member(mapping(_nonempty), absent=dict)
    source: tuple[str, ...] = member(_source, default=())
    derived: Mapping[str, str] = member(_derived, absent=dict)


@document(frozen=True, eq=False)
class Contention:
    """A board's own factors of ``targets/costs/contention.yaml``; None: its generation's factor."""

    source: tuple[str, ...] = member(_source)
    gpu_by_dla: float | None = member(_positive, absent=None)
    dla_by_gpu: float | None = member(_positive, absent=None)
    dla_by_dla: float | None = member(_positive, absent=None)
    hybrid_dla_by_gpu: float | None = member(_positive, absent=None)
    hybrid_dla_by_dla: float | None = member(_positive, absent=None)
    derived: Mapping[str, str] = member(_derived, absent=dict)


@document(frozen=True, eq=False)
class WrittenMode:
    """A power mode in a board file.

    Attributes:
        id: NVIDIA's number.
        cpu_cores: Powered cores; None if unknown.
        gpu: Clock in MHz, "max", or None if unknown.
        tpcs: Powered TPCs, of two SMs each.
        emc: Clock of the memory, as ``gpu``.
        dla: Clock of all cores, or a clock for each; empty for a board without a DLA.
        default: The board starts in it.
        super: It needs the super configuration.
        warning: Warning for users of the mode.
    """

    id: int = member(_whole)
    cpu_cores: int | None = member(nullable(_whole))
    gpu: float | str | None = member(_clock)
    tpcs: int = member(_whole)
    emc: float | str | None = member(_clock)
    dla: tuple[float | str | None, ...] = member(_clocks, absent=())
    default: bool = member(flag, absent=False)
    super: bool = member(flag, absent=False)
    warning: str = member(_nonempty, absent="")


@document(frozen=True, eq=False)
class DisputedFact:
    """A fact of a board on which sources differ: edgekit's value and the other."""

    what: str = member(_nonempty)
    ours: str = member(_nonempty)
    other: str = member(_nonempty)
    source: tuple[str, ...] = member(_source)


@document(frozen=True, eq=False)
class BoardFile:
    """A file ``targets/NAME.yaml``; each section names its sources.

    Attributes:
        title: Full name.
        module: The module.
        software: Its software.
        dla: Its DLA cores.
        gpu: Its GPU.
        dram: Its memory.
        power: Its idle power.
        power_modes: Power modes by NVIDIA's name.
        power_modes_source: The source of the power modes.
        power_modes_derived: Derivations of the power modes' numbers, by name.
        rails: Its power rails; None if unknown.
        contention: Its own factors; None if all are those of its DLA generation.
        disputed: Facts on which sources differ.
        assumed: General assumptions about the board.
        sources: The file's own sources by key.
    """

    schema: str = member(choice(SCHEMA))
    title: str = member(_nonempty)
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
    assumed: str = member(_nonempty, absent="")
    sources: Mapping[str, str] = member(mapping(_nonempty), absent=dict)

    def check(self) -> None:
        """Refuses a source that no list defines, and clocks for another number of cores."""
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
            # some modes have one clock for each core (Orin NX 16GB at 10W)
            if self.dla.cores and len(mode.dla) not in {1, self.dla.cores}:
                fail(f"power_modes.{name}.dla", f"one clock, or one per core ({self.dla.cores})")


@document(frozen=True, eq=False)
class SourcesFile:
    """``targets/_sources.yaml``: the sources by their keys."""

    sources: Mapping[str, str] = member(mapping(_nonempty))


@cache
def shared_sources() -> Mapping[str, str]:
    """Returns the sources of the boards by their keys."""
    return read_document(SourcesFile, data_folder("targets") / "_sources.yaml").sources


@document(frozen=True, eq=False)
class PowerMode:
    """An nvpmodel mode; clocks are in MHz and resolved (never "no cap").

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
    """A board of ``targets/NAME.yaml``.

    Attributes:
        name: File name without its ending, for example "jetson-agx-orin-64gb".
        title: Full name.
        compute_capability: For example "8.7".
        tensorrt: The TensorRT version assumed without ``--tensorrt`` (Orin 10.3, Xavier 8.5.2).
        idle_watts: Power of the idle module in watts.
        platform: "jetson" or "drive".
        rails: Its power rails; None if unknown.
        contention: Its own factors of devices that slow each other down, by the names of
            ``targets/costs/contention.yaml``; a missing factor is its DLA generation's.
        file: Its file with all other facts; each fact there names its source.
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
        """Returns why its GPU lacks a compute capability of at least ``least``; "" if it has it."""
        own = self.compute_capability
        if not least or parse_version(own) >= parse_version(least):
            return ""
        return f"the GPU of {self.name} has compute capability {own}, and it needs {least}"

    def mode(self, name: str | None = None) -> PowerMode:
        """Returns a power mode by NVIDIA's name, with or without ``MODE_``, in any case.

        Without a name: MAXN if the board has it, otherwise the default mode. Raises UsageError if
        there is no such mode.
        """
        return find_mode(self, name)


def _plain_mode_name(name: str) -> str:
    return name.strip().upper().replace(" ", "_").removeprefix(_PREFIX)


def find_mode(target: Target, name: str | None = None) -> PowerMode:
    """Returns the power mode called ``name``.

    ``MODE_`` in front is optional and case does not matter ("mode_30w" is "30W"; "MAXN SUPER", as
    some tools print it, is "MAXN_SUPER"). Without a name: MAXN if the board has it, otherwise the
    board's default mode.

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
    # imported only for the error: quick commands find their mode
    from difflib import get_close_matches

    near = get_close_matches(_plain_mode_name(name), list(modes), n=1, cutoff=0.4)
    guess = f"did you mean {near[0]}? " if near else ""
    raise UsageError(
        f"unknown power mode {name!r}",
        code="target.mode",
        where=target.name,
        hint=f"{guess}this board's modes are {', '.join(modes)}",
    )
