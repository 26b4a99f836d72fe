"""A build request, ``edgekit.build.request/1``, of which every field is checked before the build.
Also the result of a successful attempt, and the build's result, ``edgekit.build.result/1``.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace
from typing import Any, Dict, List, Mapping, Optional, Tuple

from edgekit_device.build.settings import Setting
from edgekit_device.protocol import fields
from edgekit_device.protocol.codec import (
    array,
    choice,
    digest,
    document,
    fail,
    flag,
    integer,
    long_text,
    mapping,
    member,
    names,
    nullable,
    number,
    read,
    record,
    records,
    shape,
    text,
)
from edgekit_device.protocol.manifest import DTYPES, PluginEntry, Range

SCHEMA = "edgekit.build.request/1"
RESULT_SCHEMA = "edgekit.build.result/1"
_MAX_SEED = (1 << 63) - 1
_MAX_BYTES = 1 << 44
_VALUE = integer(-(1 << 31), (1 << 31) - 1)
_ENUM = text(r"[A-Z][A-Z0-9_]{0,63}", "a name of a TensorRT enum")
# also a folder's name, so without separators
_KEY = text(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", "a valid name for an engine")
# a name alone: the file is written into the model's folder
_FILE = text(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}", "a valid name for a file next to the model")
_SIZE = integer(0, _MAX_BYTES)


@document(frozen=True)
class NetworkTensor:
    """An input or output of the network.

    Attributes:
        shape: Static sizes of the axes; for an engine with profiles the first profile's optimum.
            -1 for an output's size that depends on input values.
    """

    name: str = member(text())
    dtype: str = member(choice(*DTYPES))
    shape: Tuple[int, ...] = member(shape(-1))


@document(frozen=True)
class NetworkSpec:
    """The network's inputs and outputs."""

    inputs: Tuple[NetworkTensor, ...] = member(records(NetworkTensor, 1, by="name"))
    outputs: Tuple[NetworkTensor, ...] = member(records(NetworkTensor, 1, by="name"))


@document(frozen=True)
class IoSpec:
    """An input or output of an engine.

    Attributes:
        name: The ONNX tensor's name.
        dtype: NumPy's name of the type that the engine reads or writes ("int8").
        shape: Static sizes; -1 for a size that a profile sets.
        formats: Allowed names of trt.TensorFormat; if empty, TensorRT chooses.
        scale: Value of one step of an INT8 tensor (real = scale * integer); None without a scale.
    """

    name: str = member(text())
    dtype: str = member(choice(*DTYPES))
    shape: Tuple[int, ...] = member(shape(-1))
    formats: Tuple[str, ...] = member(names(rule=_ENUM), default=())
    scale: Optional[float] = member(nullable(number(0.0, 3.4e38)), default=None)


@document(frozen=True)
class LayerSpec:
    """A layer of the plan: its ONNX nodes, its device ("GPU" or "DLA") and its precision."""

    name: str = member(text())
    builder_name: str = member(text())
    nodes: Tuple[str, ...] = member(names())
    kind: str = member(text())
    device: str = member(fields.device_kind)
    precision: str = member(fields.precision)


@document(frozen=True)
class Attempt:
    """A set of builder flags, by TensorRT's names, and the features that a build with it loses."""

    flags: Tuple[str, ...] = member(names(rule=_ENUM))
    gives_up: str = member(text())


@document(frozen=True)
class ProfileShapes:
    """The shapes of an input in an optimisation profile; TensorRT checks their order.

    Attributes:
        min: Smallest sizes of the axes.
        opt: Sizes that TensorRT optimises for.
        max: Largest sizes of the axes.
    """

    min: Tuple[int, ...] = member(shape())
    opt: Tuple[int, ...] = member(shape())
    max: Tuple[int, ...] = member(shape())


@document(frozen=True)
class ProfileValues:
    """The values of a shape tensor (an input whose values set shapes) in an optimisation profile.

    Attributes:
        min: Smallest values.
        opt: Values that TensorRT optimises for.
        max: Largest values.
    """

    min: Tuple[int, ...] = member(array(_VALUE))
    opt: Tuple[int, ...] = member(array(_VALUE))
    max: Tuple[int, ...] = member(array(_VALUE))


@document(frozen=True)
class EngineSpec:
    """An engine to build.

    Attributes:
        model: Digest of an ONNX file in the board's store.
        device: "GPU", or the DLA core that the engine drives.
        calibration: Digest of a calibration cache.
        pools: Bytes of each memory pool of a DLA, by name.
        refit_individual: Names of the weights that are marked refittable one by one.
        attempts: Sets of flags, tried in order until an engine builds, loads and refits.
        profiles: Optimisation profiles: sizes of inputs with open sizes in the model.
        values: For each profile, the values of shape tensors; empty without these.
        data: Digests of the model's external data files, by file name.
        settings: Further settings of the builder, applied in this order.
    """

    key: str = member(_KEY)
    kind: str = member(choice("plan", "loadable"))
    model: str = member(digest)
    device: str = member(fields.device)
    gpu_fallback: bool = member(flag)
    typing: str = member(choice("weak", "strong"))
    precisions: Tuple[str, ...] = member(names(rule=fields.precision))
    layers: Tuple[LayerSpec, ...] = member(records(LayerSpec, by="name"))
    inputs: Tuple[IoSpec, ...] = member(records(IoSpec, 1, by="name"))
    outputs: Tuple[IoSpec, ...] = member(records(IoSpec, 1, by="name"))
    calibration: Optional[str] = member(nullable(digest))
    pools: Mapping[str, int] = member(mapping(integer(0, _MAX_BYTES), _ENUM))
    constraints: str = member(choice("prefer", "obey", "none"))
    refit_individual: Tuple[str, ...] = member(names())
    profiles: Tuple[Mapping[str, ProfileShapes], ...] = member(
        array(mapping(record(ProfileShapes), least=1))
    )
    attempts: Tuple[Attempt, ...] = member(records(Attempt, 1))
    data: Mapping[str, str] = member(mapping(digest, _FILE), absent=dict)
    values: Tuple[Mapping[str, ProfileValues], ...] = member(
        array(mapping(record(ProfileValues), least=1)), absent=()
    )
    settings: Tuple[Setting, ...] = member(records(Setting), absent=())

    @property
    def dla_core(self) -> Optional[int]:
        """The DLA core that the engine drives; None for the GPU alone."""
        return fields.dla_core(self.device)

    @property
    def standalone(self) -> bool:
        """True if the result is a DLA loadable, which TensorRT's runtimes cannot load."""
        return self.kind == "loadable"

    @property
    def editable_cache(self) -> bool:
        """True if the timing cache is editable: its entries can be read and changed."""
        flags = (setting for setting in self.settings if setting.kind == "flag")
        return any(
            flag_setting.name == "EDITABLE_TIMING_CACHE" and flag_setting.number
            for flag_setting in flags
        )


@document(frozen=True)
class GoldenSpec:
    """A golden case to run on the built engines.

    Attributes:
        seed: Seed of the random inputs.
        lane: Index of the lane; None for every lane.
        shapes: Sizes of inputs that differ from the network's, by name, for engines with profiles.
    """

    seed: int = member(integer(0, _MAX_SEED))
    inputs: Mapping[str, Range] = member(mapping(record(Range)))
    lane: Optional[int] = member(nullable(integer(0, _MAX_BYTES)))
    shapes: Mapping[str, Tuple[int, ...]] = member(mapping(shape()), absent=dict)

    @property
    def ranges(self) -> Dict[str, Tuple[float, float]]:
        """(low, high) by input."""
        return {name: (item.low, item.high) for name, item in self.inputs.items()}


@document(frozen=True)
class LaneSpec:
    """Engines in running order, and their share of the frames.

    Attributes:
        share: Share of the frames, 0 to 1.
    """

    share: float = member(fields.share)
    engines: Tuple[str, ...] = member(names(1))


@document(frozen=True)
class BuildJobRequest:
    """A checked request.

    Attributes:
        dla: The DLA generation whose layouts loadables have: "1.0" (Xavier) or "2.0" (Orin).
        plugins: Plugins that must be registered before the model is parsed.
        digest: SHA-256 of the canonical JSON.
    """

    name: str = member(text())
    tensorrt: str = member(text())
    timing_cache: bool = member(flag)
    lanes: Tuple[LaneSpec, ...] = member(records(LaneSpec, 1))
    network: NetworkSpec = member(record(NetworkSpec))
    golden: Tuple[GoldenSpec, ...] = member(records(GoldenSpec))
    engines: Tuple[EngineSpec, ...] = member(records(EngineSpec, 1, by="key"))
    dla: str = member(choice("1.0", "2.0"), absent="2.0")
    plugins: Tuple[PluginEntry, ...] = member(records(PluginEntry), absent=())
    schema: str = member(choice(SCHEMA), default=SCHEMA)
    digest: str = field(default="")

    def check(self) -> None:
        """Refuses parts that do not fit together."""
        keys = {engine.key for engine in self.engines}
        for position, lane in enumerate(self.lanes):
            for key in lane.engines:
                if key not in keys:
                    at = "lanes[{}].engines".format(position)
                    fail(at, "no engine is named {!r}".format(key[:80]))
        inputs = {tensor.name for tensor in self.network.inputs}
        for position, case in enumerate(self.golden):
            at = "golden[{}]".format(position)
            if set(case.inputs) != inputs:
                fail(at + ".inputs", "expected {}".format(", ".join(sorted(inputs))))
            if case.lane is not None and case.lane >= len(self.lanes):
                fail(at + ".lane", "there are {} lanes".format(len(self.lanes)))
            if not set(case.shapes) <= inputs:
                fail(at + ".shapes", "expected {}".format(", ".join(sorted(inputs))))


@document(frozen=True)
class TimingCacheUse:
    """A build's use of the board's timing cache; empty if it used none.

    Attributes:
        entries_bytes_before: Bytes of the cache's file before the build.
        after: Bytes of the file after the build; 0 if TensorRT returned no cache.
        reused: True if TensorRT used the file.
    """

    entries_bytes_before: Optional[int] = member(_SIZE, absent=None)
    after: Optional[int] = member(_SIZE, absent=None)
    reused: Optional[bool] = member(flag, absent=None)


@dataclass
class BuiltEngine:
    """The result of a successful attempt.

    Attributes:
        data: The plan or the loadable.
        flags: Builder flags that were set, without those that the release lacks.
        settings: TensorRT's values of the request's settings, by key.
        can_run_on_dla: The builder's answer by the plan's layer name; empty for the GPU alone.
        unmapped: Names of builder layers without a layer of the plan.
        notes: Sentences about dropped settings and irregularities.
        plugins_embedded: True if the plan contains libraries of plugins.
    """

    data: bytes
    flags: Tuple[str, ...] = ()
    settings: Dict[str, str] = field(default_factory=dict)
    can_run_on_dla: Dict[str, bool] = field(default_factory=dict)
    unmapped: List[str] = field(default_factory=list)
    timing_cache: TimingCacheUse = field(default_factory=TimingCacheUse)
    notes: List[str] = field(default_factory=list)
    plugins_embedded: bool = False


@document(frozen=True)
class BuiltTensor:
    """An input or output of an engine on this board.

    Attributes:
        shape: Sizes of the axes; -1 for an open size.
        strides: Strides in bytes; empty if a size is open.
        scale: The value of one step of an INT8 tensor; None if the elements are the values.
    """

    name: str = member(text())
    mode: str = member(choice("input", "output"))
    dtype: str = member(text())
    shape: Tuple[int, ...] = member(shape(-1))
    format: str = member(text())
    strides: Tuple[int, ...] = member(array(integer(0, _MAX_BYTES)))
    scale: Optional[float] = member(nullable(number(0.0, 1e38)))


@document(frozen=True)
class BuiltWeight:
    """A weight that a refit sets.

    Attributes:
        dtype: NumPy's name of its type, or "bfloat16"; "" if unknown.
        shape: Its shape; None if the model has no weight of that name.
        count: Number of its values.
    """

    dtype: str = member(text())
    shape: Optional[Tuple[int, ...]] = member(nullable(shape()))
    count: int = member(_SIZE)


@document(frozen=True)
class InspectedLayer:
    """A layer as the inspector describes it; type and device are "" in a build without details.

    Attributes:
        device: "GPU" or "DLA".
    """

    name: str = member(long_text)
    type: str = member(text())
    device: str = member(choice("", *fields.DEVICE_KINDS))


@document(frozen=True)
class AttemptResult:
    """The outcome of an attempt at an engine.

    Attributes:
        flags: The attempt's requested flags.
        error: The message of its failure; None for a success.
        code: The failure's code; None for a success, "" from a board that does not send it.
    """

    flags: Tuple[str, ...] = member(array(text()))
    ok: bool = member(flag)
    seconds: float = member(number(0.0, 1e9))
    error: Optional[str] = member(nullable(long_text))
    code: Optional[str] = member(nullable(text()), absent="")


@document(frozen=True)
class EngineResult:
    """An engine of the result.

    Attributes:
        full: Digest of the full, refitted plan; None if ``engine`` already has its weights.
        dla_core: Number of the DLA core that it was built for; None without a DLA.
        attempt: Index of the request's attempt that succeeded.
        attempts: The outcomes of all attempts up to that attempt.
        weights: Weights by the name that a refit takes.
        reformats: Names of layers that reformat an input or output of the engine.
        inspector: Digest of the inspector's JSON.
        log: Digest of the builder's log.
        plugins_embedded: True if the plan contains libraries of plugins.
        device_bytes: Bytes of device memory that a context needs while it runs; None for a
            loadable.
        settings: TensorRT's values of the request's settings, by key: "2", "FAST", "on".
    """

    key: str = member(_KEY)
    kind: str = member(text())
    engine: str = member(digest)
    full: Optional[str] = member(nullable(digest))
    bytes: int = member(_SIZE)
    full_bytes: Optional[int] = member(nullable(_SIZE))
    tensorrt: str = member(text())
    flags: Tuple[str, ...] = member(array(text()))
    stripped: bool = member(flag)
    version_compatible: bool = member(flag)
    lean_embedded: bool = member(flag)
    refit: str = member(text())
    dla_core: Optional[int] = member(nullable(fields.core))
    weights: Mapping[str, BuiltWeight] = member(mapping(record(BuiltWeight)))
    io: Tuple[BuiltTensor, ...] = member(records(BuiltTensor))
    can_run_on_dla: Mapping[str, bool] = member(mapping(flag))
    unmapped: Tuple[str, ...] = member(array(text()))
    layers: Tuple[InspectedLayer, ...] = member(records(InspectedLayer))
    reformats: Tuple[str, ...] = member(array(long_text))
    inspector: Optional[str] = member(nullable(digest))
    log: str = member(digest)
    timing_cache: TimingCacheUse = member(record(TimingCacheUse))
    attempt: int = member(integer(0, 1 << 20))
    attempts: Tuple[AttemptResult, ...] = member(records(AttemptResult), default=())
    seconds: float = member(number(0.0, 1e9), default=0.0)
    plugins_embedded: bool = member(flag, absent=False)
    device_bytes: Optional[int] = member(_SIZE, absent=None)
    settings: Mapping[str, str] = member(mapping(text()), absent=dict)


@document(frozen=True)
class StoredTensor:
    """A tensor whose bytes are in the store.

    Attributes:
        shape: Sizes of the axes.
    """

    digest: str = member(digest)
    dtype: str = member(text())
    shape: Tuple[int, ...] = member(shape())


@document(frozen=True)
class GoldenRun:
    """A golden case that was run.

    Attributes:
        seed: Seed of the random inputs.
        lane: Index of the lane that was run; None if the request has a single lane and the case
            names none.
        shapes: The case's shapes.
    """

    seed: int = member(integer(0, _MAX_SEED))
    lane: Optional[int] = member(nullable(integer(0, 63)))
    outputs: Mapping[str, StoredTensor] = member(mapping(record(StoredTensor)))
    shapes: Mapping[str, Tuple[int, ...]] = member(mapping(shape()), absent=dict)


@document(frozen=True)
class BuildResult:
    """``edgekit.build.result/1``; ``request`` is the request's digest."""

    request: str = member(digest)
    fingerprint: Mapping[str, str] = member(mapping(text()))
    tensorrt: str = member(text())
    engines: Tuple[EngineResult, ...] = member(records(EngineResult))
    golden: Tuple[GoldenRun, ...] = member(records(GoldenRun))
    notes: Tuple[str, ...] = member(array(text(most=1 << 18)))
    schema: str = member(choice(RESULT_SCHEMA), default=RESULT_SCHEMA)


def request_digest(document: Mapping[str, object]) -> str:
    """Returns the SHA-256 of the request's canonical JSON (keys sorted, no spaces, ASCII)."""
    # the host computes the same digest from its request: every byte of the form counts
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def read_request(document: Any) -> BuildJobRequest:
    """Checks a request.

    Raises:
        DeviceError: "build.request", about the first field that is wrong.
    """
    hint = "use the same version of edgekit_device and edgekit"
    found = read(BuildJobRequest, document, "request", code="build.request", hint=hint)
    return replace(found, digest=request_digest(document))
