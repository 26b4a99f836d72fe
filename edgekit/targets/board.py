"""The values of a board: `Target` with its GPU, DLA, memory, power rails and power modes, and
finding a power mode by NVIDIA's name for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from edgekit.errors import UsageError

_PREFIX = "MODE_"
GENERATIONS = {"1.0": "Xavier", "2.0": "Orin"}  # of the DLA, with its modules
PLATFORMS = ("jetson", "drive")
CONTENTION = (
    "gpu_by_dla", "dla_by_gpu", "dla_by_dla", "hybrid_dla_by_gpu", "hybrid_dla_by_dla",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Dla:
    """The DLA cores of a module; ``cores`` 0 means none and the other fields are zero.

    Attributes:
        cores: Number of cores.
        generation: "1.0" (Xavier), "2.0" (Orin), "" where there is none.
        max_mhz: Core clock at MAXN.
        int8_macs_per_clock: Dense multiply-accumulates a clock, one core.
        sram_bytes: Managed SRAM per core (Xavier: shared by all cores).
    """

    cores: int
    generation: str
    max_mhz: float
    int8_macs_per_clock: int
    sram_bytes: int


@dataclass(frozen=True, slots=True)
class TargetGpu:
    """The integrated GPU: architecture ("volta", "ampere", "blackwell"), SMs, clock."""

    arch: str
    sms: int
    max_mhz: float
    int8_ops_per_clock_per_sm: int
    fp16_ops_per_clock_per_sm: int


@dataclass(frozen=True, slots=True)
class Dram:
    """Memory shared by all devices: bytes and peak bandwidth in bytes a second."""

    bytes: int
    bytes_per_second: float


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class PowerRails:
    """The power rails that a board measures.

    Attributes:
        total: The rails whose sum is the board's draw.
        devices: The rail that "GPU", "DLA" and "CPU" draw from; none on Orin is the DLA's alone.
        inside: Rails that are a part of another one, and of which; never added to it.
        settle_s: Seconds that a rail lags the load, for its sensor averages.
    """

    total: tuple[str, ...]
    devices: Mapping[str, str]
    inside: Mapping[str, str]
    settle_s: float


@dataclass(frozen=True, eq=False)
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
        facts: The raw YAML, for anything else; each fact there names its source.
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
    facts: Mapping[str, object]
    rails: PowerRails | None = None
    contention: Mapping[str, float] = field(default_factory=dict)

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
