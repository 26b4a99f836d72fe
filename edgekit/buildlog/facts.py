"""A build log as facts: layers, loadables, fallbacks and memory, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgekit.dla.verdicts import MemoryNeed


_ALL_ON_GPU = (
    "All dla layers are falling back to GPU",
    "no layer in the network can run on DLA",
)


@dataclass(frozen=True, slots=True)
class LogLayer:
    """A layer as the builder prints it; ``kind`` is empty if the wording has none."""

    name: str
    kind: str = ""


@dataclass(frozen=True, slots=True)
class LogLoadable:
    """A subgraph that the builder compiled for the DLA.

    Attributes:
        name: As printed, for example ``{ForeignNode[conv1...fc]}``.
        first: Its first layer; empty if the log cut it off.
        last: Its last layer (the first when it has one).
        layers: Its layers by the log's names, empty if the log lists none.
        exact: Whether ``layers`` is the builder's own list of this subgraph; otherwise it is what
            the list of layers that the DLA could run holds between the first and the last.
        pools: Memory in bytes, or None if the log gives none.
    """

    name: str
    first: str
    last: str
    layers: tuple[str, ...] = ()
    exact: bool = False
    pools: MemoryNeed | None = None

    def to_json(self) -> dict[str, Any]:
        """Returns plain values."""
        return {
            "name": self.name,
            "first": self.first,
            "last": self.last,
            "layers": list(self.layers),
            "exact": self.exact,
            "pools": self.pools.to_json() if self.pools else None,
        }


@dataclass(frozen=True, slots=True)
class Fallback:
    """A layer that the builder sent from the DLA to the GPU.

    Attributes:
        layer: The log's name.
        kind: TensorRT's layer type, empty if the wording has none.
        cause: "unsupported", "validation" (the DLA's compiler refused) or "slots" (too many
            subgraphs on the core).
        words: The builder's reasons, without the layer's name; may be empty.
        line: Line of the log, from 1.
    """

    layer: str
    kind: str
    cause: str
    words: tuple[str, ...]
    line: int

    def to_json(self) -> dict[str, Any]:
        """Returns plain values."""
        return {
            "layer": self.layer,
            "kind": self.kind,
            "cause": self.cause,
            "words": list(self.words),
            "line": self.line,
        }


@dataclass(frozen=True, eq=False)
class BuildLog:
    """What a build log says; of several builds in one log, the last that reports placement.

    Attributes:
        tensorrt: Release, for example "10.3.0"; empty if the log does not say.
        model: File that was built, empty if unknown.
        device: The board's GPU as printed ("Orin"), empty if unknown.
        compute_capability: For example "8.7", empty if unknown.
        dla_core: The core requested, or None.
        requested_dla: Whether the build requested a DLA; None if the log does not say.
        precisions: Of "fp32", "fp16", "int8", ... those allowed; empty if unknown.
        pinned: What the user pinned to devices ("Layer Device Types"), as printed.
        loadables: Subgraphs that really went to the DLA, in the order of the log.
        capable: Layers that the DLA could run, before the limit on subgraphs.
        gpu_layers: Layers that the builder put on the GPU.
        dla_section: Whether it has a list of layers on the DLA, which may be empty.
        fallbacks: Layers refused, in the order of the log.
        accepted: (subgraphs offloaded, subgraphs tried), or None.
        pool_limits: Pools that the build was given, or None.
        pool_total: Pools that the accepted subgraphs need together, or None.
        counts: Layers after each of the builder's steps, by the step's name.
        errors: Lines of severity E, at most some hundred.
        notes: Lines about the DLA as a whole.
        builds: Builds found in the log.
        lines: Lines read.
        recognised: Lines that only TensorRT writes; 0 means that this is no build log.
        cut: More was found than is kept.
    """

    tensorrt: str = ""
    model: str = ""
    device: str = ""
    compute_capability: str = ""
    dla_core: int | None = None
    requested_dla: bool | None = None
    precisions: tuple[str, ...] = ()
    pinned: str = ""
    loadables: tuple[LogLoadable, ...] = ()
    capable: tuple[str, ...] = ()
    gpu_layers: tuple[LogLayer, ...] = ()
    dla_section: bool = False
    fallbacks: tuple[Fallback, ...] = ()
    accepted: tuple[int, int] | None = None
    pool_limits: MemoryNeed | None = None
    pool_total: MemoryNeed | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    errors: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    builds: int = 0
    lines: int = 0
    recognised: int = 0
    cut: bool = False

    @property
    def all_on_gpu(self) -> str:
        """The line that says that no layer goes to the DLA; empty if there is none."""
        if self.requested_dla is False or self.loadables:
            return ""
        said = (note for note in self.notes if any(words in note for words in _ALL_ON_GPU))
        return next(said, "")

    @property
    def none_on_dla(self) -> bool:
        """Whether both lists are there, and the DLA's is empty for a reason that no line gives."""
        nothing = not (self.loadables or self.capable or self.fallbacks or self.all_on_gpu)
        listed = self.dla_section and bool(self.gpu_layers)
        return nothing and listed and self.requested_dla is None

    @property
    def evidence(self) -> str:
        """What the log proves: "placement", "capability", "refusals" or "none".

        "placement": which layers went to the DLA. "capability": which could, but not which did
        (the log ends before). "refusals": only the layers that were refused.
        """
        if self.loadables or (self.accepted is not None and self.accepted[0] == 0):
            return "placement"
        if self.capable:
            return "capability"
        if self.all_on_gpu or (self.gpu_layers and (self.fallbacks or self.requested_dla)):
            return "placement"
        if self.none_on_dla:
            return "placement"
        return "refusals" if self.fallbacks else "none"

    def to_json(self) -> dict[str, Any]:
        """Returns plain values."""
        return {
            "schema": "edgekit.buildlog/1",
            "tensorrt": self.tensorrt,
            "model": self.model,
            "device": self.device,
            "compute_capability": self.compute_capability,
            "dla_core": self.dla_core,
            "asked_dla": self.requested_dla,
            "precisions": list(self.precisions),
            "pinned": self.pinned,
            "evidence": self.evidence,
            "loadables": [loadable.to_json() for loadable in self.loadables],
            "capable": list(self.capable),
            "gpu_layers": [{"name": la.name, "kind": la.kind} for la in self.gpu_layers],
            "dla_section": self.dla_section,
            "fallbacks": [fallback.to_json() for fallback in self.fallbacks],
            "accepted": list(self.accepted) if self.accepted else None,
            "pool_limits": self.pool_limits.to_json() if self.pool_limits else None,
            "pool_total": self.pool_total.to_json() if self.pool_total else None,
            "counts": dict(self.counts),
            "errors": list(self.errors),
            "notes": list(self.notes),
            "builds": self.builds,
            "lines": self.lines,
            "cut": self.cut,
        }
