"""A bundle's manifest, ``edgekit.bundle/1`` to ``/3``: its values, the rules of its fields, and
checks that its parts fit together. Start with ``parse``.
"""

from __future__ import annotations

import calendar
import hashlib
import time
from dataclasses import field, replace
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Set, Tuple

from edgekit_device.arrays.classes import class_shape
from edgekit_device.arrays.formats import FORMATS
from edgekit_device.errors import DeviceError
from edgekit_device.protocol import fields
from edgekit_device.protocol.codec import (
    anything,
    app_name,
    array,
    choice,
    digest,
    document,
    fail,
    flag,
    integer,
    mapping,
    member,
    names,
    nullable,
    number,
    parse_json,
    read,
    record,
    records,
    rule_schema,
    shape,
    text,
    with_schema,
)
from edgekit_device.protocol.detection import Options

SCHEMA = "edgekit.bundle/1"
#: Schema of a compiled PyTorch network: it has ``call``, and segments may run on the CPU.
NETWORK_SCHEMA = "edgekit.bundle/2"
#: Schema for several shapes: it may have ``variants``, ``profiles``, ``padding`` and open sizes.
SHAPES_SCHEMA = "edgekit.bundle/3"
SCHEMAS = (SCHEMA, NETWORK_SCHEMA, SHAPES_SCHEMA)
#: The hint about a bundle that another version of edgekit made.
MEND = (
    "make it again with this edgekit: edgekit deploy CONFIG; if edgekit_device on the board is "
    "older, replace it"
)
CPU = "CPU"
#: The devices of segments.
DEVICES = (*fields.DEVICES, CPU)
MODES = ("hybrid", "standalone", "split")
#: The kind of a Python part: its blob names two more, a source file and a state as safetensors.
PYTHON = "python"
BLOB_KINDS = ("engine", "golden", "library", "record", "sample", PYTHON, "source", "state")
MAX_MANIFEST = 64 << 20
_MAX_BYTES = 1 << 42
_VALUE = integer(-(1 << 31), (1 << 31) - 1)
_MAX_REQUIRED_BYTES = 1 << 50
_MOST_CORES = 16
_MOST_COUNTER = (1 << 63) - 1
_MOST_SAMPLES = 4096
_MOST_VARIANTS = 256
_OPEN = -1
# below float32's largest number, 3.4e38
_LARGEST = 3e38
_TENSORRT = "tensorrt"
_VERSION = r"(\d{1,9}(\.\d{1,9}){0,4})?"
_UTC = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"

#: The metrics of accuracy; as the configuration's ``accuracy.metric``.
METRICS = ("cosine", "snr_db", "top1_agreement", "boxes")

#: The metric that needs a head.
BOXES = "boxes"

#: The metric of samples with labels: the share of inputs whose class the first output predicts.
LABELLED = "top1_accuracy"

#: Item size in bytes by NumPy type name: the types that tensors may have.
DTYPES = {
    "bool": 1,
    "int8": 1,
    "uint8": 1,
    "int16": 2,
    "uint16": 2,
    "int32": 4,
    "uint32": 4,
    "int64": 8,
    "uint64": 8,
    "float16": 2,
    "float32": 4,
    "float64": 8,
}

#: Weights may also have types without a NumPy name; their blobs hold the bit patterns.
WEIGHT_DTYPES = dict(DTYPES, bfloat16=2)

#: Opened engines by digest and device.
Engines = Mapping[Tuple[str, str], Any]


_TIME = text(_UTC, "a time as 2027-01-31T12:00:00Z")
_BOARD = mapping(text(), choice("module", "l4t", "tensorrt"), least=3)

#: A weight budget for which TensorRT chooses the bytes of streamed weights that stay on the GPU.
AUTOMATIC = -1
_ROW = array(anything, 4, 4)
_PLACED_ON = choice(CPU, *fields.DEVICES)
_COMPUTED_IN = text()


def _utc(value: Any) -> str:
    found = _TIME(value)
    try:
        # the pattern alone takes the 31st of February
        time.strptime(found, "%Y-%m-%dT%H:%M:%SZ")
    except ValueError:
        fail("", "{!r} is not a valid time".format(found))
    return str(found)


with_schema(_utc, **rule_schema(_TIME))


def unix_seconds(at: str) -> int:
    """Returns a manifest's time in seconds since 1970."""
    return calendar.timegm(time.strptime(at, "%Y-%m-%dT%H:%M:%SZ"))


@document(frozen=True)
class ModelSource:
    """The model that a bundle was built from: its digest, and its origin as text for people."""

    digest: str = member(digest)
    source: str = member(text())


@document(frozen=True)
class Issued:
    """The signer's statement about a release; times are UTC.

    Attributes:
        at: Time of signing.
        counter: Higher than that of each earlier release; None without a counter.
        valid_until: Time after which it is no longer installed; None for no limit.
    """

    at: str = member(_utc)
    counter: Optional[int] = member(integer(1, _MOST_COUNTER), absent=None)
    valid_until: Optional[str] = member(_utc, absent=None)


@document(frozen=True)
class RequiredRuntime:
    """The runtime of the engines: its name, the oldest version and the first version that is too
    new ("": any).
    """

    name: str = member(text())
    # "from" is a word of Python's
    oldest: str = member(text(_VERSION, "a version"), key="from")
    below: str = member(text(_VERSION, "a version"))


@document(frozen=True)
class Requires:
    """A bundle's requirements on a board.

    Attributes:
        backend: Name of the loader's backend.
        loader: Schema of the loader's ``hello``.
        runtime: The runtime of the engines; None if ``boards`` determine it.
        boards: Kinds of boards that the engines run on ("module", "l4t", "tensorrt"); empty for any
            board.
        portable: True if only the module of ``boards`` has to match.
        dla_cores: DLA cores that its segments use.
        cudla: True if it has loadables, which cuDLA runs.
        disk_bytes: Bytes that it needs on disk, with the files that a refit keeps.
        memory_bytes: Bytes of memory for weights, engines and their running contexts.
        cpu: True if ONNX Runtime runs segments on the CPU.
    """

    backend: str = member(text())
    loader: str = member(text())
    runtime: Optional[RequiredRuntime] = member(nullable(record(RequiredRuntime)))
    boards: Tuple[Mapping[str, str], ...] = member(array(_BOARD))
    portable: bool = member(flag)
    dla_cores: Tuple[int, ...] = member(array(integer(0, _MOST_CORES - 1)))
    cudla: bool = member(flag)
    disk_bytes: int = member(integer(0, _MAX_REQUIRED_BYTES))
    memory_bytes: int = member(integer(0, _MAX_REQUIRED_BYTES))
    cpu: bool = member(flag, absent=False)


@document(frozen=True)
class SampleCase:
    """Inputs and the FP32 network's outputs by name, as digests of the arrays' bytes.

    Attributes:
        labels: The correct class of each input of the batch; None without labels.
        variant: Index of the variant whose shapes they have; 0 is the manifest's own.
    """

    inputs: Mapping[str, str] = member(mapping(digest))
    outputs: Mapping[str, str] = member(mapping(digest))
    labels: Optional[Tuple[int, ...]] = member(array(integer(0, _MAX_BYTES)), absent=None)
    variant: int = member(integer(0, _MOST_VARIANTS), absent=0)


@document(frozen=True)
class Samples:
    """Inputs on which accuracy is measured on the board.

    ``source`` is their origin. ``synthetic`` is true if they are generated, so that the figure
    describes the engines alone.

    Attributes:
        least: Smallest value of the metric that passes; None for no gate.
        detection: Selects the detector's objects that the metric "boxes" compares.
    """

    metric: str = member(choice(*METRICS, LABELLED))
    source: str = member(text())
    synthetic: bool = member(flag)
    least: Optional[float] = member(nullable(number(-1e9, 1e9)), key="min")
    detection: Optional[Options] = member(record(Options), absent=None)
    cases: Tuple[SampleCase, ...] = member(records(SampleCase, 1, _MOST_SAMPLES))


@document(frozen=True)
class TensorEntry:
    """An input or output: NumPy type name, static shape, TensorRT format, strides in bytes.

    Attributes:
        shape: Sizes of the axes; -1 for an output's size that depends on input values.
        strides: Bytes, counting an open size as 1.
    """

    name: str = member(text())
    dtype: str = member(choice(*DTYPES))
    shape: Tuple[int, ...] = member(shape(_OPEN))
    format: str = member(text())
    strides: Tuple[int, ...] = member(array(integer(0, _MAX_BYTES)))

    def check(self) -> None:
        """Refuses strides of another rank, and tensors too large for any board."""
        if len(self.strides) != len(self.shape):
            fail("strides", "one stride for each dimension")
        if nbytes(self.dtype, self.shape) > _MAX_BYTES:
            fail("shape", "{} is too large".format(list(self.shape)))


@document(frozen=True)
class SegmentEntry:
    """A run of layers on one device; ``engine`` is a blob's digest.

    On the CPU the blob is an ONNX file with its weights, run by ONNX Runtime, or the record of a
    Python part (``edgekit.python-part/1``), run by PyTorch.

    Attributes:
        index: Its number in running order.
    """

    index: int = member(integer(0, 1 << 20))
    device: str = member(choice(*DEVICES))
    engine: str = member(digest)
    inputs: Tuple[str, ...] = member(names())
    outputs: Tuple[str, ...] = member(names(1))
    layers: Tuple[str, ...] = member(names())

    @property
    def core(self) -> Optional[int]:
        """Number of the DLA core that it runs on or drives; None for the GPU alone."""
        return fields.dla_core(self.device)


@document(frozen=True)
class Lane:
    """The segments of one plan variant in running order, and its share of the frames.

    Attributes:
        share: Share of the frames, 0 to 1.
    """

    share: float = member(number(0, 1))
    segments: Tuple[SegmentEntry, ...] = member(records(SegmentEntry, 1))


@document(frozen=True)
class WeightEntry:
    """A tensor that the stripped engines lack.

    Attributes:
        shape: Sizes of the axes.
    """

    digest: str = member(digest)
    dtype: str = member(choice(*WEIGHT_DTYPES))
    shape: Tuple[int, ...] = member(shape())
    bytes: int = member(integer(0, _MAX_BYTES))
    source: str = member(text())
    transform: str = member(text())

    def check(self) -> None:
        """Refuses a size that does not match shape and type."""
        if self.bytes != nbytes(self.dtype, self.shape):
            what = "{} of {} is not {} bytes".format(list(self.shape), self.dtype, self.bytes)
            fail("bytes", what)


@document(frozen=True)
class BlobEntry:
    """A blob that is not a weight."""

    bytes: int = member(integer(0, _MAX_BYTES))
    kind: str = member(choice(*BLOB_KINDS))


@document(frozen=True)
class IoEntry:
    """An engine's own input or output in its memory layout.

    Attributes:
        shape: Sizes of the axes; -1 for a size that depends on a profile or on input values.
        strides: Bytes along N, C (or vectors of C), H and W, or along each axis for LINEAR; an
            open size counts as 1.
        scale: The value of one step of an INT8 tensor; None if the elements are the values.
    """

    name: str = member(text())
    dtype: str = member(choice(*DTYPES))
    shape: Tuple[int, ...] = member(shape(_OPEN))
    format: str = member(choice(*FORMATS))
    strides: Tuple[int, ...] = member(array(integer(0, _MAX_BYTES)))
    # float32's smallest number above 0 is 1.4e-45
    scale: Optional[float] = member(nullable(number(1e-45, _LARGEST)))

    def check(self) -> None:
        """Refuses a scale if the type is not int8, and an open size if the format is not LINEAR."""
        if self.scale is not None and self.dtype != "int8":
            fail("scale", "only int8 has a scale")
        if _OPEN in self.shape and self.format != "LINEAR":
            fail("shape", "an open size needs the format LINEAR")


@document(frozen=True)
class EngineEntry:
    """The builder's facts about a TensorRT engine.

    Attributes:
        kind: "plan", or "loadable" for cuDLA.
        tensorrt: Four-part version of the TensorRT that built it.
        stripped: True if it lacks its weights.
        version_compatible: True if newer releases may run it.
        lean_embedded: True if it contains the lean runtime, which is host code.
        refit: "identical", "any", "individual" or "none".
        dla_core: The DLA core it was built for; None for the GPU alone. Engines for several cores
            may have the same bytes: the segment determines the core that runs it.
        inputs: Its inputs.
        outputs: Its outputs.
        weights: The manifest's names of weights that have another name in the engine: names that
            the parser generates ("tmp_batch_norm_weight") are different weights in each engine.
        plugins_embedded: True if it contains plugin libraries, which are host code: a runtime
            loads it only with ``engine_host_code_allowed``.
        device_bytes: Bytes of device memory that an execution context needs while it runs, from
            the TensorRT that built it; None if unknown.
    """

    kind: str = member(choice("plan", "loadable"))
    tensorrt: str = member(text(r"\d{1,3}(\.\d{1,5}){2,3}", "a version such as 10.3.0.30"))
    stripped: bool = member(flag)
    version_compatible: bool = member(flag)
    lean_embedded: bool = member(flag)
    refit: str = member(choice("identical", "any", "individual", "none"))
    dla_core: Optional[int] = member(nullable(integer(0, _MOST_CORES - 1)))
    inputs: Tuple[IoEntry, ...] = member(records(IoEntry, by="name"))
    outputs: Tuple[IoEntry, ...] = member(records(IoEntry, by="name"))
    weights: Mapping[str, str] = member(mapping(text()), absent=dict)
    plugins_embedded: bool = member(flag, absent=False)
    device_bytes: Optional[int] = member(integer(0, _MAX_BYTES), absent=None)

    @property
    def portable(self) -> bool:
        """True if a board with another TensorRT may run it: version compatible, and no DLA."""
        return self.version_compatible and self.dla_core is None

    def check(self) -> None:
        """Refuses a loadable without its core."""
        if self.kind == "loadable" and self.dla_core is None:
            fail("dla_core", "a loadable needs its core")


@document(frozen=True)
class PluginEntry:
    """A plugin that engines need, as its creator declares it.

    Attributes:
        operator: The creator's name: the node's operator without its domain.
        version: The creator's version.
        namespace: The creator's namespace.
        library: The digest of its library's blob; None if the board's TensorRT has the plugin or
            another program loads it.
        file: The library's file name, for people.
    """

    operator: str = member(text())
    version: str = member(text())
    namespace: str = member(text())
    library: Optional[str] = member(nullable(digest))
    file: str = member(text(), absent="")

    @property
    def name(self) -> str:
        """Its library's name for people."""
        return self.file or "the library of {}".format(self.operator)


@document(frozen=True)
class MemorySettings:
    """Settings of the GPU's memory; a configuration's ``deploy.memory``.

    Attributes:
        shared: True if engines of one device share the memory that they need while they run.
        persistent_cache: Share of the GPU's persistent L2 cache that all engines use together.
        weight_budget: Bytes of each engine's streamed weights that stay on the GPU; -1 for
            TensorRT's choice, None for all bytes.
    """

    shared: bool = member(flag, absent=True)
    persistent_cache: float = member(number(0, 1), absent=0.0)
    weight_budget: Optional[int] = member(integer(AUTOMATIC, _MAX_BYTES), absent=None)


@document(frozen=True)
class Range:
    """Numbers from ``low`` to ``high``.

    Attributes:
        low: Smallest value.
        high: Largest value.
    """

    low: float = member(number(-_LARGEST, _LARGEST))
    high: float = member(number(-_LARGEST, _LARGEST))

    def check(self) -> None:
        """Refuses an empty range."""
        if self.high < self.low:
            fail("", "{!r} is below {!r}".format(self.high, self.low))


@document(frozen=True)
class GoldenOutput:
    """An expected output: the blob of its bytes, its type and its shape.

    Attributes:
        shape: Sizes of the axes.
    """

    blob: str = member(digest)
    dtype: str = member(text())
    shape: Tuple[int, ...] = member(shape())


@document(frozen=True)
class Tolerance:
    """The allowed deviation of an output.

    Attributes:
        relative: The largest allowed max|a-b| / max|b|.
    """

    relative: float = member(number(0, 1e9))


@document(frozen=True)
class GoldenCase:
    """A golden case: inputs by range and seed, expected outputs, and their allowed deviation.

    Attributes:
        seed: Seed of the random inputs.
        lane: Index of the lane (plan variant) that computes the outputs; None for every lane.
        shapes: Sizes of every input, for a variant with profiles; empty for the variant's own.
    """

    seed: int = member(integer(0, (1 << 63) - 1))
    inputs: Mapping[str, Range] = member(mapping(record(Range)))
    outputs: Mapping[str, GoldenOutput] = member(mapping(record(GoldenOutput)))
    tolerance: Tolerance = member(record(Tolerance))
    lane: Optional[int] = member(integer(0, _MAX_BYTES), absent=None)
    shapes: Mapping[str, Tuple[int, ...]] = member(mapping(shape()), absent=dict)

    @property
    def ranges(self) -> Dict[str, Tuple[float, float]]:
        """(low, high) by input."""
        return {name: (item.low, item.high) for name, item in self.inputs.items()}


@document(frozen=True)
class PlacedLoadable:
    """A loadable of the plan: its DLA core, its layers, and the bytes of each memory pool.

    Attributes:
        core: Number of the DLA core.
        memory: Bytes, by pool.
    """

    core: int = member(fields.core)
    layers: Tuple[str, ...] = member(fields.names)
    memory: Mapping[str, int] = member(
        mapping(fields.count, choice("managed_sram", "local_dram", "global_dram"))
    )


def _placed_layer(value: Any) -> Tuple[str, str, str, int]:
    name, device, precision, segment = _ROW(value)
    return (
        fields.name(name),
        _PLACED_ON(device),
        _COMPUTED_IN(precision),
        fields.count(segment),
    )


with_schema(
    _placed_layer,
    type="array",
    minItems=4,
    items=False,
    prefixItems=(fields.name, _PLACED_ON, _COMPUTED_IN, fields.count),
)


@document(frozen=True)
class PlacementRecord:
    """The plan's layers and loadables, for people and reports; a layer is its name, device,
    precision and segment.
    """

    layers: Tuple[Tuple[str, str, str, int], ...] = member(array(_placed_layer))
    loadables: Tuple[PlacedLoadable, ...] = member(records(PlacedLoadable))


@document(frozen=True)
class ShapeRange:
    """An input's sizes in an optimisation profile.

    Attributes:
        min: Smallest sizes of the axes.
        opt: Sizes that TensorRT optimises for.
        max: Largest sizes of the axes.
    """

    min: Tuple[int, ...] = member(shape())
    opt: Tuple[int, ...] = member(shape())
    max: Tuple[int, ...] = member(shape())

    def check(self) -> None:
        """Refuses sizes of different ranks, or out of order."""
        if not len(self.min) == len(self.opt) == len(self.max):
            fail("", "min, opt and max have different numbers of axes")
        if not (self.holds(self.opt) and _is_ordered(self.min, self.max)):
            fail("", "on each axis min must be at most opt, and opt at most max")

    def holds(self, sizes: Sequence[int]) -> bool:
        """Returns True if these sizes are within the range."""
        return (
            len(sizes) == len(self.min)
            and _is_ordered(self.min, sizes)
            and _is_ordered(sizes, self.max)
        )


def _is_ordered(low: Sequence[int], high: Sequence[int]) -> bool:
    return all(a <= b for a, b in zip(low, high))  # noqa: B905 (Python 3.8)


@document(frozen=True)
class ShapeValues:
    """A shape tensor: an input whose values set sizes. A frame without it uses ``opt``.

    Attributes:
        shape: Shape of the input: one axis, or none.
        min: Smallest values.
        opt: Values that TensorRT optimises for; a static variant takes only these.
        max: Largest values.
    """

    dtype: str = member(choice("int32", "int64"))
    shape: Tuple[int, ...] = member(shape())
    min: Tuple[int, ...] = member(array(_VALUE))
    opt: Tuple[int, ...] = member(array(_VALUE))
    max: Tuple[int, ...] = member(array(_VALUE))

    def check(self) -> None:
        """Refuses a number of values that does not match the shape, and values out of order."""
        count = self.shape[0] if len(self.shape) == 1 else 1
        if len(self.shape) > 1 or {len(self.min), len(self.opt), len(self.max)} != {count}:
            fail("", "min, opt and max have one value for each element of one axis")
        if not (_is_ordered(self.min, self.opt) and _is_ordered(self.opt, self.max)):
            fail("", "expected min <= opt <= max")

    def holds(self, values: Sequence[int]) -> bool:
        """Returns True if these values are within the range."""
        return _is_ordered(self.min, values) and _is_ordered(values, self.max)


#: A range for every input.
ShapeProfile = Mapping[str, ShapeRange]


@document(frozen=True)
class Variant:
    """A bundle's engines and tests for one shape of the inputs, or for a range of shapes.

    Names and types of inputs and outputs are those of the manifest.

    Attributes:
        inputs: Static shapes; with profiles the optimum of the first profile.
        outputs: Shapes of the outputs for these inputs.
        lanes: As in the manifest.
        golden: As in the manifest.
        profiles: Ranges of shapes that it also takes; empty for a static variant.
        values: Shape tensors of a variant with profiles: inputs whose values set sizes.
        load: "start": opened with the bundle; "demand": at the first frame of its shape.
        placement: As in the manifest.
    """

    inputs: Tuple[TensorEntry, ...] = member(records(TensorEntry, 1, by="name"))
    outputs: Tuple[TensorEntry, ...] = member(records(TensorEntry, 1, by="name"))
    lanes: Tuple[Lane, ...] = member(records(Lane, 1))
    golden: Tuple[GoldenCase, ...] = member(records(GoldenCase), absent=())
    profiles: Tuple[ShapeProfile, ...] = member(
        array(mapping(record(ShapeRange), least=1)), absent=()
    )
    load: str = member(choice("start", "demand"), absent="start")
    placement: PlacementRecord = member(record(PlacementRecord), absent=PlacementRecord((), ()))
    values: Mapping[str, ShapeValues] = member(mapping(record(ShapeValues)), absent=dict)

    @property
    def sizes(self) -> Dict[str, Tuple[int, ...]]:
        """The variant's own shape, by input."""
        return {tensor.name: tensor.shape for tensor in self.inputs}

    def find_profile(self, sizes: Mapping[str, Sequence[int]]) -> Optional[int]:
        """Returns the index of the first profile that holds these sizes; None if none does."""
        for index, profile in enumerate(self.profiles):
            if all(limits.holds(sizes[name]) for name, limits in profile.items()):
                return index
        return None


@document(frozen=True)
class CroppedAxis:
    """The cropping of an output whose inputs were padded.

    Attributes:
        axis: The output's axis.
        factor: The output's size along this axis per size 1 of the inputs.
    """

    axis: int = member(integer(0, 15))
    factor: int = member(integer(1, _MAX_BYTES), absent=1)


@document(frozen=True)
class Padding:
    """An axis that several tensors share, such as the batch, along which inputs may be padded up to
    a variant's size. The host proved that cropped outputs equal those without padding.

    Attributes:
        inputs: The axis by input; all have the same size there.
        outputs: The cropping of each output that has the axis.
        value: The value that is appended.
    """

    inputs: Mapping[str, int] = member(mapping(integer(0, 15), least=1))
    outputs: Mapping[str, CroppedAxis] = member(mapping(record(CroppedAxis)))
    value: float = member(number(-_LARGEST, _LARGEST), absent=0.0)


@document(frozen=True)
class Manifest:
    """A checked manifest.

    Attributes:
        backend: "tensorrt", or "reference" for ONNX Runtime on a board's CPU.
        mode: Kind of the engines: hybrid, standalone loadables, or split by device.
        fingerprint: The board that built it: backend, runtime, versions, board.
        stripped: True if weights are stored apart from the engines.
        engines: Facts about TensorRT engines, by digest; empty for another backend.
        plugins: Plugins that must be registered before an engine is loaded.
        rewrites: The digest of the record of rewrites; None without rewrites.
        requires: Requirements on a board; None if the bundle states none.
        samples: Inputs on which accuracy is measured; None without samples.
        issued: The signer's statement: time, counter, validity; None without it.
        call: The digest of the calling convention of a PyTorch network (``edgekit.export/1``);
            None for other networks.
        memory: Settings of the GPU's memory.
        without_golden: True if it was packed without golden vectors, so that no self-test compares
            its outputs; a bundle without golden vectors is refused if this is False.
        profiles: Ranges of shapes that the first variant takes in addition to ``inputs``.
        values: The first variant's shape tensors, as in ``Variant``.
        variants: Further variants; ``inputs``, ``outputs``, ``lanes``, ``golden``, ``profiles``,
            ``values`` and ``placement`` describe the first.
        padding: Axes along which inputs may be padded up to a static variant.
        head: The digest of the head's document, which describes how outputs are decoded
            (``edgekit.head/1``); None without a head.
        digest: SHA-256 of the manifest's bytes.
    """

    name: str = member(app_name)
    backend: str = member(text())
    inputs: Tuple[TensorEntry, ...] = member(records(TensorEntry, 1, by="name"))
    outputs: Tuple[TensorEntry, ...] = member(records(TensorEntry, 1, by="name"))
    lanes: Tuple[Lane, ...] = member(records(Lane, 1))
    weights: Mapping[str, WeightEntry] = member(mapping(record(WeightEntry)))
    blobs: Mapping[str, BlobEntry] = member(mapping(record(BlobEntry), digest))
    golden: Tuple[GoldenCase, ...] = member(records(GoldenCase), default=())
    schema: str = member(choice(*SCHEMAS), default=SCHEMA)
    created_by: Mapping[str, str] = member(mapping(text()), default=dict)
    model: ModelSource = member(record(ModelSource), default=ModelSource("", ""))
    target: str = member(text(), default="")
    power_mode: str = member(text(), default="")
    precision: str = member(text(), default="")
    mode: str = member(choice(*MODES), default="hybrid")
    tensorrt: str = member(text(), default="")
    fingerprint: Mapping[str, str] = member(mapping(text()), default=dict)
    stripped: bool = member(flag, default=False)
    placement: PlacementRecord = member(record(PlacementRecord), default=PlacementRecord((), ()))
    plugins: Tuple[PluginEntry, ...] = member(records(PluginEntry), default=())
    engines: Mapping[str, EngineEntry] = member(mapping(record(EngineEntry), digest), absent=dict)
    rewrites: Optional[str] = member(digest, absent=None)
    requires: Optional[Requires] = member(record(Requires), absent=None)
    samples: Optional[Samples] = member(record(Samples), absent=None)
    issued: Optional[Issued] = member(record(Issued), absent=None)
    without_golden: bool = member(flag, absent=False)
    call: Optional[str] = member(digest, absent=None)
    memory: MemorySettings = member(record(MemorySettings), absent=MemorySettings())
    profiles: Tuple[ShapeProfile, ...] = member(
        array(mapping(record(ShapeRange), least=1)), absent=()
    )
    variants: Tuple[Variant, ...] = member(records(Variant, 0, _MOST_VARIANTS), absent=())
    padding: Tuple[Padding, ...] = member(records(Padding), absent=())
    head: Optional[str] = member(digest, absent=None)
    values: Mapping[str, ShapeValues] = member(mapping(record(ShapeValues)), absent=dict)
    # no member: computed from the manifest's bytes, which cannot contain it
    digest: str = field(default="")

    @property
    def every_variant(self) -> Tuple[Variant, ...]:
        """The manifest's own variant, then the others."""
        own = Variant(
            self.inputs,
            self.outputs,
            self.lanes,
            self.golden,
            self.profiles,
            "start",
            self.placement,
            self.values,
        )
        return (own, *self.variants)

    def select_variant(self, number: int) -> Manifest:
        """Returns the manifest with only this variant and the variant's samples."""
        variant, samples = self.every_variant[number], self.samples
        if samples is not None:
            cases = tuple(
                # the selected variant becomes the manifest's own, number 0
                replace(case, variant=0)
                for case in samples.cases
                if case.variant == number
            )
            samples = replace(samples, cases=cases) if cases else None
        return replace(
            self,
            inputs=variant.inputs,
            outputs=variant.outputs,
            lanes=variant.lanes,
            golden=variant.golden,
            profiles=variant.profiles,
            values=variant.values,
            placement=variant.placement,
            variants=(),
            samples=samples,
        )

    def segments(self) -> List[SegmentEntry]:
        """Returns the segments of every lane of every variant."""
        return [
            segment
            for lanes in (self.lanes, *(variant.lanes for variant in self.variants))
            for lane in lanes
            for segment in lane.segments
        ]

    def sizes(self) -> Dict[str, int]:
        """Returns the size in bytes of every blob of the bundle, weights included, by digest."""
        found = {name: blob.bytes for name, blob in self.blobs.items()}
        found.update({weight.digest: weight.bytes for weight in self.weights.values()})
        return found

    def on_cpu(self) -> List[SegmentEntry]:
        """Returns the segments that run on the CPU, each engine once."""
        return list({s.engine: s for s in self.segments() if s.device == CPU}.values())

    def check(self) -> None:
        """Refuses parts that do not fit together."""
        record_blobs = ((self.rewrites, "rewrites"), (self.call, "call"), (self.head, "head"))
        for blob, name in record_blobs:
            if blob is not None:
                self._blob(blob, name, "record")
        if self.schema == SCHEMA and (self.call is not None or self.on_cpu()):
            fail("schema", "this needs {}".format(NETWORK_SCHEMA))
        if self.schema != SHAPES_SCHEMA and self._has_shapes():
            fail("schema", "this needs {}".format(SHAPES_SCHEMA))
        for place, plugin in enumerate(self.plugins):
            if plugin.library is not None:
                self._blob(plugin.library, "plugins[{}].library".format(place), "library")
        sizes = {name: blob.bytes for name, blob in self.blobs.items()}
        for name, weight in self.weights.items():
            # weights and other blobs are in one store, by digest
            if sizes.setdefault(weight.digest, weight.bytes) != weight.bytes:
                fail("weights." + name[:80], "one digest with two different sizes")
        variants = self.every_variant
        for index, variant in enumerate(variants):
            where = "variants[{}].".format(index - 1) if index else ""
            self._check_variant(variant, where)
            # pairs of at most 257 variants; ranges may overlap, since the first that fits is used
            for at, other in enumerate(variants[:index]):
                if not variant.profiles and not other.profiles and variant.sizes == other.sizes:
                    fail(where + "inputs", "variant {} has the same shapes".format(at))
        for at, padding in enumerate(self.padding):
            self._check_padding(padding, "padding[{}]".format(at))
        self._check_engines()
        if self.requires is not None:
            self._check_requires(self.requires)
        if self.samples is not None:
            for at, sample in enumerate(self.samples.cases):
                where = "samples.cases[{}]".format(at)
                if sample.variant >= len(variants):
                    fail(where + ".variant", "there are {} variants".format(len(variants)))
                self._check_sample(sample, variants[sample.variant], where)

    def _has_shapes(self) -> bool:
        """Returns True if it needs the schema for several shapes."""
        shapes = [tensor.shape for tensor in self.outputs]
        for engine in self.engines.values():
            shapes += [io.shape for io in (*engine.inputs, *engine.outputs)]
        return (
            bool(self.profiles or self.variants or self.padding)
            or any(_OPEN in sizes for sizes in shapes)
            or any(case.variant for case in (self.samples.cases if self.samples else ()))
        )

    def _check_variant(self, variant: Variant, where: str) -> None:
        for mine, first, which in (
            (variant.inputs, self.inputs, "inputs"),
            (variant.outputs, self.outputs, "outputs"),
        ):
            # a frame must fit any variant by its shape alone
            facts = [
                [(tensor.name, tensor.dtype, len(tensor.shape)) for tensor in io]
                for io in (mine, first)
            ]
            if facts[0] != facts[1]:
                fail(where + which, "names, types and numbers of axes differ from the manifest's")
        for at, tensor in enumerate(variant.inputs):
            if _OPEN in tensor.shape:
                fail("{}inputs[{}].shape".format(where, at), "an input's sizes are given")
        for at, profile in enumerate(variant.profiles):
            _same_names(profile, variant.inputs, "{}profiles[{}]".format(where, at))
            for name, sizes in variant.sizes.items():
                found = profile[name]
                if len(found.opt) != len(sizes) or (at == 0 and found.opt != sizes):
                    place = "{}profiles[{}].{}".format(where, at, name[:80])
                    fail(place, "the first profile's optimum is the variant's shape")
        if variant.values and not variant.profiles:
            fail(where + "values", "a static variant has no inputs whose values make sizes")
        for name in variant.values:
            # values of shape tensors are not among a frame's tensors
            if name in variant.sizes:
                fail("{}values.{}".format(where, name[:80]), "this is among the inputs")
        for at, lane in enumerate(variant.lanes):
            self._check_lane(lane, variant, "{}lanes[{}]".format(where, at))
        # shares come from a linear programme and are rounded in JSON
        if abs(sum(lane.share for lane in variant.lanes) - 1) > 1e-6:
            fail(where + "lanes", "shares must add up to 1")
        if self.without_golden == bool(variant.golden):
            fail(
                where + "golden",
                "the bundle has golden vectors, but is marked as without"
                if variant.golden
                else "the bundle has no golden vectors, and is not marked as without",
            )
        for at, case in enumerate(variant.golden):
            self._check_golden(case, variant, "{}golden[{}]".format(where, at))

    def _check_padding(self, padding: Padding, where: str) -> None:
        axes = {tensor.name: len(tensor.shape) for tensor in self.inputs}
        for name, axis in padding.inputs.items():
            if axis >= axes.get(name, 0):
                fail("{}.inputs.{}".format(where, name[:80]), "no input has this name and axis")
        axes = {tensor.name: len(tensor.shape) for tensor in self.outputs}
        for name, crop in padding.outputs.items():
            if crop.axis >= axes.get(name, 0):
                fail("{}.outputs.{}".format(where, name[:80]), "no output has this name and axis")

    def _check_lane(self, lane: Lane, variant: Variant, where: str) -> None:
        # grows in running order, so that a segment reads only what exists by then
        written = {*variant.sizes, *variant.values}
        for index, segment in enumerate(lane.segments):
            at = "{}.segments[{}]".format(where, index)
            if segment.index != index:
                fail(at + ".index", "segments are numbered in running order, from 0")
            kinds = ("engine", PYTHON) if segment.device == CPU else ("engine",)
            self._blob(segment.engine, at + ".engine", *kinds)
            unwritten = [name for name in segment.inputs if name not in written]
            if unwritten:
                fail(at + ".inputs", "no earlier segment writes {!r}".format(unwritten[0][:80]))
            repeated = [name for name in segment.outputs if name in written]
            if repeated:
                fail(at + ".outputs", "{!r} is written twice".format(repeated[0][:80]))
            written.update(segment.outputs)
        lacking = [tensor.name for tensor in variant.outputs if tensor.name not in written]
        if lacking:
            fail(where, "no segment writes the output {!r}".format(lacking[0][:80]))

    def _check_golden(self, case: GoldenCase, variant: Variant, where: str) -> None:
        _same_names(case.inputs, variant.inputs, where + ".inputs")
        _same_names(case.outputs, variant.outputs, where + ".outputs")
        if case.lane is not None and case.lane >= len(variant.lanes):
            fail(where + ".lane", "there are {} lanes".format(len(variant.lanes)))
        if case.shapes:
            _same_names(case.shapes, variant.inputs, where + ".shapes")
            if variant.find_profile(case.shapes) is None:
                fail(where + ".shapes", "no profile of the variant holds these sizes")
        for tensor in variant.outputs:
            found, at = case.outputs[tensor.name], "{}.outputs.{}".format(where, tensor.name[:80])
            # the manifest has the outputs' shapes for the optimum only
            wanted = (_OPEN,) * len(tensor.shape) if case.shapes else tensor.shape
            if found.dtype != tensor.dtype or not matches_shape(found.shape, wanted):
                fail(at, "type and shape differ from the output's")
            self._array(found.blob, tensor.dtype, found.shape, at)

    def _check_engines(self) -> None:
        if not self.engines:
            if self.backend == _TENSORRT:
                fail("engines", "a bundle of TensorRT engines needs this field")
            return
        segments = [segment for segment in self.segments() if segment.device != CPU]
        # engines for several cores may have the same bytes, and so one entry
        cores: Dict[str, Set[Optional[int]]] = {}
        for segment in segments:
            cores.setdefault(segment.engine, set()).add(segment.core)
        unused = sorted(set(self.engines) - set(cores))
        if unused:
            fail("engines." + unused[0], "no segment uses this engine")
        for segment in segments:
            at, entry = "engines." + segment.engine, self.engines.get(segment.engine)
            if entry is None:
                fail("engines", "the engine {} has no entry".format(segment.engine))
            loadable = entry.kind == "loadable"
            if entry.dla_core not in cores[segment.engine] or (loadable and segment.core is None):
                fail(at + ".dla_core", "its segment runs on {}".format(segment.device))
            engine_inputs = {io.name for io in entry.inputs}
            if not set(segment.inputs) <= engine_inputs:
                fail(at, "its segment has other inputs")
            # TensorRT refuses to run with an input that has no address
            if engine_inputs - set(segment.inputs):
                fail(at, "one of its inputs has no source")
            if not set(segment.outputs) <= {io.name for io in entry.outputs}:
                fail(at, "it lacks an output of its segment")

    def _check_requires(self, requires: Requires) -> None:
        if requires.backend != self.backend:
            fail("requires.backend", "the manifest's is {!r}".format(self.backend[:80]))
        used = {segment.core for segment in self.segments()}
        # not the reverse: the reference backend emulates the cores of its segments
        if set(requires.dla_cores) - used:
            fail("requires.dla_cores", "no segment uses this core")
        # a Python part runs in PyTorch and needs no ONNX Runtime
        on_cpu = any(self.blobs[segment.engine].kind == "engine" for segment in self.on_cpu())
        if requires.cpu != on_cpu:
            fail("requires.cpu", "true if ONNX Runtime runs segments on the CPU, and only then")

    def _check_sample(self, case: SampleCase, variant: Variant, where: str) -> None:
        for arrays, tensors, which in (
            (case.inputs, variant.inputs, ".inputs"),
            (case.outputs, variant.outputs, ".outputs"),
        ):
            _same_names(arrays, tensors, where + which)
            for tensor in tensors:
                at = "{}{}.{}".format(where, which, tensor.name[:80])
                if _OPEN in tensor.shape:
                    fail(at, "an output whose size depends on values has no samples")
                self._array(arrays[tensor.name], tensor.dtype, tensor.shape, at)
        assert self.samples is not None
        if self.samples.metric == BOXES and self.head is None:
            fail("samples.metric", "{} needs a head".format(BOXES))
        if (self.samples.metric == LABELLED) != (case.labels is not None):
            fail(where + ".labels", "only the metric {} has labels".format(LABELLED))
        if case.labels is not None:
            found = class_shape(variant.outputs[0].shape)
            if found is None:
                fail(where + ".labels", "the first output is not one class per input")
            rows, classes = found
            if len(case.labels) != rows or any(label >= classes for label in case.labels):
                fail(where + ".labels", "expected {} numbers below {}".format(rows, classes))

    def _blob(self, name: str, where: str, *kinds: str) -> None:
        if name not in self.blobs or self.blobs[name].kind not in kinds:
            fail(where, "no {} blob has this digest".format(" or ".join(kinds)))

    def _array(self, name: str, dtype: str, shape: Tuple[int, ...], where: str) -> None:
        blob = self.blobs.get(name)
        if blob is None or blob.bytes != nbytes(dtype, shape):
            fail(where, "no blob has this digest and size")


def _same_names(given: Iterable[str], tensors: Sequence[TensorEntry], where: str) -> None:
    expected = {tensor.name for tensor in tensors}
    if set(given) != expected:
        fail(where, "expected {}".format(", ".join(sorted(name[:80] for name in expected))))


def matches_shape(found: Sequence[int], wanted: Sequence[int]) -> bool:
    """Returns True if sizes equal the wanted sizes; an open wanted size matches any."""
    pairs = zip(found, wanted)  # noqa: B905 (Python 3.8)
    return len(found) == len(wanted) and all(want in (_OPEN, size) for size, want in pairs)


def parse(data: bytes) -> Manifest:
    """Reads and checks a manifest; check its signature first.

    Raises:
        DeviceError: "manifest.schema" for another schema, "manifest.invalid" for other errors.
    """
    if len(data) > MAX_MANIFEST:
        fail("manifest.json", "{} bytes are too many".format(len(data)))
    document = parse_json(data, "manifest.json")
    schema = document.get("schema") if isinstance(document, dict) else None
    # before the fields: those of another version would give errors that mislead
    if schema not in SCHEMAS:
        raise DeviceError(
            "the bundle's schema is {!r}, but this edgekit_device reads {}".format(
                schema, ", ".join(SCHEMAS)
            ),
            code="manifest.schema",
            where="manifest.json",
            hint=MEND,
        )
    found = read(Manifest, document, "manifest.json", hint=MEND)
    return replace(found, digest=hashlib.sha256(data).hexdigest())


def nbytes(dtype: str, shape: Tuple[int, ...]) -> int:
    """Returns the bytes of a dense tensor of NumPy type ``dtype``; an open size counts as 1."""
    count = WEIGHT_DTYPES[dtype]
    for size in shape:
        count *= abs(size)
    return count
