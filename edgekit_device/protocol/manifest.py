"""The values that a checked bundle manifest is read into."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, Mapping, Optional, Tuple

#: Item size in bytes by NumPy type name: the types that tensors may have.
DTYPES = {
    "bool": 1, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4,
    "int64": 8, "uint64": 8, "float16": 2, "float32": 4, "float64": 8,
}  # fmt: skip

#: Weights may also have types that NumPy has no name for; their blobs hold the bit patterns.
WEIGHT_DTYPES = dict(DTYPES, bfloat16=2)

#: Opened engines by digest and device.
Engines = Mapping[Tuple[str, str], Any]


@dataclass(frozen=True)
class Issued:
    """What the maker of a bundle says of this release of it; times are seconds since 1970.

    Attributes:
        at: When it was signed.
        counter: Higher than that of each release before; None without.
        valid_until: When it is no longer to be installed; None for never.
    """

    at: int
    counter: Optional[int]
    valid_until: Optional[int]


@dataclass(frozen=True)
class Requires:
    """What a bundle needs of a board.

    Attributes:
        backend: Of the loader's backends.
        loader: Schema of the loader's ``hello``.
        runtime: Name, oldest version and version from which on it is too new ("": none) of what
            runs the engines; None where ``boards`` say it.
        boards: Kinds of boards that the engines run on ("module", "l4t", "tensorrt"); none for any.
        portable: Whether only the module counts of these.
        dla_cores: DLA cores that its segments use.
        cudla: Whether it has loadables, which cuDLA runs.
        disk_bytes: Bytes that it takes on disk, with what a refit keeps.
        memory_bytes: Bytes of its weights and engines in memory.
    """

    backend: str
    loader: str
    runtime: Optional[Tuple[str, str, str]]
    boards: Tuple[Mapping[str, str], ...]
    portable: bool
    dla_cores: Tuple[int, ...]
    cudla: bool
    disk_bytes: int
    memory_bytes: int


@dataclass(frozen=True)
class SampleCase:
    """Inputs and the FP32 network's outputs by name, as digests of the arrays' bytes.

    ``labels`` are the right classes, one for each of the batch; None without labels.
    """

    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    labels: Optional[Tuple[int, ...]] = None


@dataclass(frozen=True)
class Samples:
    """Inputs on which accuracy is measured on the board.

    ``source`` says where they are from; ``synthetic`` that they are generated, so that the
    figure describes the engines alone. ``least`` is what the value must reach, None for no gate.
    """

    metric: str
    source: str
    synthetic: bool
    least: Optional[float]
    cases: Tuple[SampleCase, ...]


@dataclass(frozen=True)
class TensorEntry:
    """An input or output: NumPy type name, static shape, TensorRT format, strides in bytes."""

    name: str
    dtype: str
    shape: Tuple[int, ...]
    format: str
    strides: Tuple[int, ...]


@dataclass(frozen=True)
class SegmentEntry:
    """A run of layers on one device; ``engine`` is a blob's digest."""

    index: int
    device: str
    engine: str
    inputs: Tuple[str, ...]
    outputs: Tuple[str, ...]
    layers: Tuple[str, ...]

    @property
    def core(self) -> Optional[int]:
        """Number of the DLA core that it runs on, or drives; None for the GPU alone."""
        return int(self.device[len("DLA") :]) if self.device.startswith("DLA") else None


@dataclass(frozen=True)
class Lane:
    """The segments of one plan variant in running order and the share of frames it takes."""

    share: float
    segments: Tuple[SegmentEntry, ...]


@dataclass(frozen=True)
class WeightEntry:
    """A tensor that the stripped engines lack."""

    digest: str
    dtype: str
    shape: Tuple[int, ...]
    bytes: int
    source: str
    transform: str


@dataclass(frozen=True)
class BlobEntry:
    """A blob that is not a weight: "engine", "golden", "record", "sample"."""

    bytes: int
    kind: str


@dataclass(frozen=True)
class IoEntry:
    """An engine's own input or output, as it lies in memory.

    ``strides`` are bytes along N, C (or vectors of C), H and W, or along each axis for LINEAR;
    ``scale`` is the value of one step of an INT8 tensor, None where the elements are the values.
    """

    name: str
    dtype: str
    shape: Tuple[int, ...]
    format: str
    strides: Tuple[int, ...]
    scale: Optional[float]


@dataclass(frozen=True)
class EngineEntry:
    """What the builder said of a TensorRT engine.

    Attributes:
        kind: "plan", or "loadable" for cuDLA.
        tensorrt: Four-part version of the TensorRT that built it.
        stripped: Whether it lacks its weights.
        version_compatible: Whether newer releases may run it.
        lean_embedded: Whether it carries the lean runtime, which is code of its own.
        refit: "identical", "any", "individual" or "none".
        dla_core: The DLA core it was built for; None for the GPU alone. Bytes built for several
            cores may be the same: where it runs is the segment's to say.
        inputs: Its inputs.
        outputs: Its outputs.
        weights: Names in the manifest of weights that it calls otherwise: names that a parser
            makes up ("tmp_batch_norm_weight") are other weights in each engine.
    """

    kind: str
    tensorrt: str
    stripped: bool
    version_compatible: bool
    lean_embedded: bool
    refit: str
    dla_core: Optional[int]
    inputs: Tuple[IoEntry, ...]
    outputs: Tuple[IoEntry, ...]
    weights: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class GoldenCase:
    """Inputs by range and seed, expected outputs by blob, tolerance as max|a-b| / max|b|.

    ``lane`` says which lane (plan variant) gives them; None: every one.
    """

    seed: int
    ranges: Mapping[str, Tuple[float, float]]
    outputs: Mapping[str, str]
    relative: float
    lane: Optional[int] = None


@dataclass(frozen=True)
class Manifest:
    """A checked manifest. ``document`` is the JSON as it came, ``digest`` its bytes' SHA-256.

    ``engines`` holds what only TensorRT's engines have, by digest; ``requires``, ``samples``
    and ``issued`` are None in a bundle without.
    """

    digest: str
    name: str
    backend: str
    inputs: Tuple[TensorEntry, ...]
    outputs: Tuple[TensorEntry, ...]
    lanes: Tuple[Lane, ...]
    weights: Mapping[str, WeightEntry]
    blobs: Mapping[str, BlobEntry]
    golden: Tuple[GoldenCase, ...]
    document: Mapping[str, Any]
    engines: Mapping[str, EngineEntry] = field(default_factory=dict)
    requires: Optional[Requires] = None
    samples: Optional[Samples] = None
    issued: Optional[Issued] = None

    def sizes(self) -> Dict[str, int]:
        """Bytes by digest of every blob that the bundle needs, weights included."""
        found = {digest: blob.bytes for digest, blob in self.blobs.items()}
        found.update({weight.digest: weight.bytes for weight in self.weights.values()})
        return found


def nbytes(dtype: str, shape: Tuple[int, ...]) -> int:
    """Bytes of a dense tensor of NumPy type ``dtype``."""
    count = WEIGHT_DTYPES[dtype]
    for size in shape:
        count *= size
    return count
