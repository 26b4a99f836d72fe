"""The facts of a build log: layers, loadables, fallbacks and memory."""

from __future__ import annotations

from collections.abc import Mapping

from edgekit.dla.verdicts import MemoryNeed
from edgekit_device.protocol import fields
from edgekit_device.protocol.codec import (
    array,
    choice,
    document,
    flag,
    long_text,
    mapping,
    member,
    nullable,
    record,
    records,
)

_POOLS = nullable(record(MemoryNeed))

_ALL_ON_GPU = (
    "All dla layers are falling back to GPU",
    "no layer in the network can run on DLA",
)


@document(frozen=True)
class LogLayer:
    """A layer as printed by the builder; ``kind`` is empty if the log does not name it."""

    name: str = member(long_text)
    kind: str = member(long_text, default="")


@document(frozen=True)
class LogLoadable:
    """A subgraph that the builder compiled for the DLA.

    Attributes:
        name: As printed, for example ``{ForeignNode[conv1...fc]}``.
        first: The first layer; empty if the log is truncated there.
        last: The last layer (equal to the first for a single layer).
        layers: The layers by the log's names, empty if the log lists none.
        exact: True if ``layers`` is the builder's own list of this subgraph; otherwise it has the
            layers between the first and the last in the list of DLA-capable layers.
        pools: Memory in bytes, or None if the log gives none.
    """

    name: str = member(long_text)
    first: str = member(long_text)
    last: str = member(long_text)
    layers: tuple[str, ...] = member(array(long_text), default=())
    exact: bool = member(flag, default=False)
    pools: MemoryNeed | None = member(_POOLS, default=None)


@document(frozen=True)
class Fallback:
    """A layer that the builder moved from the DLA to the GPU.

    Attributes:
        layer: The log's name.
        kind: TensorRT's layer type, empty if the log does not name it.
        cause: "unsupported", "validation" (the DLA compiler refused it) or "slots" (too many
            subgraphs on the core).
        words: The builder's reasons, without the layer's name; may be empty.
        line: Line of the log, from 1.
    """

    layer: str = member(long_text)
    kind: str = member(long_text)
    cause: str = member(choice("unsupported", "validation", "slots"))
    words: tuple[str, ...] = member(array(long_text))
    line: int = member(fields.count)


@document(frozen=True, eq=False, kw_only=True)
class BuildLog:
    """An ``edgekit.buildlog/1``: the facts of a build log. If a log has several builds, the last
    build that reports placement counts.

    Attributes:
        tensorrt: TensorRT release, for example "10.3.0"; empty if unknown.
        model: The built model file, empty if unknown.
        device: The board's GPU as printed ("Orin"), empty if unknown.
        compute_capability: For example "8.7", empty if unknown.
        dla_core: The requested core, or None.
        requested_dla: True if the build requested a DLA; None if unknown.
        precisions: The allowed precisions ("fp32", "fp16", "int8", ...); empty if unknown.
        pinned: The user's device pins ("Layer Device Types"), as printed.
        loadables: Subgraphs that were placed on the DLA, in the order of the log.
        capable: Layers that the DLA could run, before the limit on subgraphs.
        gpu_layers: Layers that the builder put on the GPU.
        dla_section: True if the log has a list of layers on the DLA (the list may be empty).
        fallbacks: Refused layers in the order of the log.
        accepted: (subgraphs offloaded, subgraphs tried), or None.
        pool_limits: The build's memory pool limits, or None.
        pool_total: Memory that all accepted subgraphs need, or None.
        counts: Number of layers after each builder step, by the step's name.
        errors: Lines of severity E, at most some hundred.
        notes: Lines about the DLA as a whole.
        profiles: Notes that TensorRT prints for every profile with a range.
        builds: Number of builds in the log.
        evidence: The log's evidence: "placement": the layers on the DLA; "capability": the layers
            that the DLA could run, but not the placement (the log ends before); "refusals": only
            the refused layers; "none". Derived from the other attributes.
        lines: Number of lines read.
        recognised: Number of lines that only TensorRT writes; 0 means that this is no build log.
        cut: True if entries were dropped because of a size limit.
    """

    schema: str = member(choice("edgekit.buildlog/1"), default="edgekit.buildlog/1")
    tensorrt: str = member(long_text, default="")
    model: str = member(long_text, default="")
    device: str = member(long_text, default="")
    compute_capability: str = member(long_text, default="")
    dla_core: int | None = member(nullable(fields.count), default=None)
    requested_dla: bool | None = member(nullable(flag), key="asked_dla", default=None)
    precisions: tuple[str, ...] = member(array(long_text), default=())
    pinned: str = member(long_text, default="")
    evidence: str = member(choice("placement", "capability", "refusals", "none"), default="none")
    loadables: tuple[LogLoadable, ...] = member(records(LogLoadable), default=())
    capable: tuple[str, ...] = member(array(long_text), default=())
    gpu_layers: tuple[LogLayer, ...] = member(records(LogLayer), default=())
    dla_section: bool = member(flag, default=False)
    fallbacks: tuple[Fallback, ...] = member(records(Fallback), default=())
    accepted: tuple[int, int] | None = member(nullable(array(fields.count, 2, 2)), default=None)
    pool_limits: MemoryNeed | None = member(_POOLS, default=None)
    pool_total: MemoryNeed | None = member(_POOLS, default=None)
    counts: Mapping[str, int] = member(mapping(fields.count), default=dict)
    errors: tuple[str, ...] = member(array(long_text), default=())
    notes: tuple[str, ...] = member(array(long_text), default=())
    builds: int = member(fields.count, default=0)
    lines: int = member(fields.count, default=0)
    cut: bool = member(flag, default=False)
    recognised: int = 0
    profiles: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "evidence", self._evidence())

    @property
    def all_on_gpu(self) -> str:
        """The line that reports that no layer goes to the DLA; empty if there is none."""
        if self.requested_dla is False or self.loadables:
            return ""
        said = (note for note in self.notes if any(words in note for words in _ALL_ON_GPU))
        return next(said, "")

    @property
    def none_on_dla(self) -> bool:
        """True if both lists are present and the DLA's is empty without a stated reason."""
        nothing = not (self.loadables or self.capable or self.fallbacks or self.all_on_gpu)
        listed = self.dla_section and bool(self.gpu_layers)
        return nothing and listed and self.requested_dla is None

    def _evidence(self) -> str:
        # no subgraph accepted: the whole network is on the GPU
        if self.loadables or (self.accepted is not None and self.accepted[0] == 0):
            return "placement"
        if self.capable:
            return "capability"
        if self.all_on_gpu or (self.gpu_layers and (self.fallbacks or self.requested_dla)):
            return "placement"
        if self.none_on_dla:
            return "placement"
        return "refusals" if self.fallbacks else "none"
