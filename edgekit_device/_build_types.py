"""The values of a build: the request as it was checked, and what one attempt gave."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Optional, Tuple

__all__ = [
    "Attempt",
    "BuildRequest",
    "Built",
    "EngineSpec",
    "GoldenSpec",
    "IoSpec",
    "LaneSpec",
    "LayerSpec",
]


@dataclass(frozen=True)
class IoSpec:
    """An input or output of one engine.

    Attributes:
        name: The ONNX tensor's name.
        dtype: NumPy's name of the type that the engine reads or writes ("int8").
        shape: Static; -1 where a profile says the size.
        formats: Names of trt.TensorFormat that are allowed; empty leaves it to TensorRT.
        scale: Value of one step of an INT8 tensor (real = scale * integer); None where there is
            none.
    """

    name: str
    dtype: str
    shape: Tuple[int, ...]
    formats: Tuple[str, ...] = ()
    scale: Optional[float] = None


@dataclass(frozen=True)
class LayerSpec:
    """A layer of the plan: its ONNX nodes, its device ("GPU" or "DLA") and its precision."""

    name: str
    builder_name: str
    nodes: Tuple[str, ...]
    kind: str
    device: str
    precision: str


@dataclass(frozen=True)
class Attempt:
    """One set of builder flags, by TensorRT's names, and what is lost when it is the one."""

    flags: Tuple[str, ...]
    gives_up: str


@dataclass(frozen=True)
class EngineSpec:
    """One engine to build; see ``edgekit.build.request/1`` in docs/architecture.md.

    ``model`` is an ONNX file's digest; ``data`` those of the files that it keeps weights in.
    """

    key: str
    kind: str
    model: str
    data: Mapping[str, str]
    device: str
    gpu_fallback: bool
    typing: str
    precisions: Tuple[str, ...]
    layers: Tuple[LayerSpec, ...]
    inputs: Tuple[IoSpec, ...]
    outputs: Tuple[IoSpec, ...]
    calibration: Optional[str]
    pools: Mapping[str, int]
    constraints: str
    optimization_level: Optional[int]
    refit_individual: Tuple[str, ...]
    profiles: Tuple[Mapping[str, Mapping[str, Tuple[int, ...]]], ...]
    attempts: Tuple[Attempt, ...]
    trtexec: Tuple[Tuple[str, ...], ...]

    @property
    def dla_core(self) -> Optional[int]:
        """The DLA core that the engine drives, None on the GPU alone."""
        return int(self.device[3:]) if self.device.startswith("DLA") else None

    @property
    def standalone(self) -> bool:
        """Whether a DLA loadable comes out, which no TensorRT runtime can load."""
        return self.kind == "loadable"


@dataclass(frozen=True)
class GoldenSpec:
    """A golden case to run on the built engines; ``lane`` None means every lane."""

    seed: int
    ranges: Mapping[str, Tuple[float, float]]
    lane: Optional[int]


@dataclass(frozen=True)
class LaneSpec:
    """Engines in running order and the share of frames that they take."""

    share: float
    engines: Tuple[str, ...]


@dataclass(frozen=True)
class BuildRequest:
    """A checked request; ``digest`` is its canonical JSON's SHA-256."""

    digest: str
    name: str
    backend: str
    tensorrt: str
    timing_cache: bool
    lanes: Tuple[LaneSpec, ...]
    inputs: Tuple[IoSpec, ...]
    outputs: Tuple[IoSpec, ...]
    golden: Tuple[GoldenSpec, ...]
    engines: Tuple[EngineSpec, ...]


@dataclass
class Built:
    """What one successful attempt gave.

    Attributes:
        data: The plan or the loadable.
        flags: Builder flags that were set, without those that the release lacks.
        can_run_on_dla: Builder's verdict by our layer's name; empty on the GPU alone.
        unmapped: Builder layers that stand for no layer of ours, by name.
        timing_cache: {"entries_bytes_before", "after", "reused"}.
        inspector: The inspector's JSON text where the builder's own tool wrote one already.
        version: TensorRT's, where the builder's own tool said it.
        notes: What was dropped or is odd, for people.
    """

    data: bytes
    flags: Tuple[str, ...] = ()
    can_run_on_dla: Dict[str, bool] = field(default_factory=dict)
    unmapped: List[str] = field(default_factory=list)
    timing_cache: Dict[str, Any] = field(default_factory=dict)
    inspector: Optional[str] = None
    version: str = ""
    notes: List[str] = field(default_factory=list)
