"""Reads a build request strictly: nothing is built before every field was checked. Also the values
of a build: engines, attempts, layers, inputs and outputs, and what one attempt gave.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Optional, Tuple

from edgekit_device.errors import DeviceError
from edgekit_device.protocol import checks as check
from edgekit_device.protocol.manifest import DTYPES

PRECISIONS = ("fp32", "fp16", "int8")
_ENUM = re.compile(r"[A-Z][A-Z0-9_]{0,63}\Z")

SCHEMA = "edgekit.build.request/1"

_FIELDS = (
    "schema", "name", "backend", "tensorrt", "timing_cache", "lanes", "network", "golden",
    "engines",
)  # fmt: skip
_ENGINE = (
    "key", "kind", "model", "data", "device", "gpu_fallback", "typing", "precisions", "layers",
    "inputs", "outputs", "calibration", "pools", "constraints", "optimization_level",
    "refit_individual", "profiles", "attempts", "trtexec",
)  # fmt: skip

# what a request may leave out: outside data of large models, commands that are not used
_ABSENT: Dict[str, Any] = {"data": {}, "trtexec": []}
_FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}\Z")
_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")
_DEVICE = re.compile(r"GPU\Z|DLA[0-9]\Z")
_PLACEHOLDER = re.compile(r"=\{([a-z_]+)\}\Z")

#: The placeholders of an argument template.
_PLACEHOLDERS = frozenset({"model", "engine", "calibration", "timing_cache", "layer_info"})
_MAX_SEED = (1 << 63) - 1
_MAX_BYTES = 1 << 44

#: Linux takes no longer argument (MAX_ARG_STRLEN, with its end).
_MAX_ARGUMENT = (1 << 17) - 1


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
    """One engine to build; see ``edgekit.build.request/1`` in docs/board-protocol.md.

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
class BuildJobRequest:
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
class BuiltEngine:
    """What one successful attempt gave.

    Attributes:
        data: The plan or the loadable.
        flags: Builder flags that were set, without those that the release lacks.
        can_run_on_dla: Builder's verdict by our layer's name; empty on the GPU alone.
        unmapped: Builder layers that stand for no layer of ours, by name.
        timing_cache: {"entries_bytes_before", "after", "reused"}.
        inspector: The inspector's JSON text where the builder's own tool wrote one already.
        version: TensorRT's, where the builder's own tool said it.
        notes: What was dropped or is irregular, as sentences.
    """

    data: bytes
    flags: Tuple[str, ...] = ()
    can_run_on_dla: Dict[str, bool] = field(default_factory=dict)
    unmapped: List[str] = field(default_factory=list)
    timing_cache: Dict[str, Any] = field(default_factory=dict)
    inspector: Optional[str] = None
    version: str = ""
    notes: List[str] = field(default_factory=list)


def layers(value: Any, where: str) -> Tuple[LayerSpec, ...]:
    """The plan's layers, of different names."""
    fields = ("name", "builder_name", "nodes", "kind", "device", "precision")
    layers = []
    for n, item in enumerate(check.array(value, where)):
        at = "{}[{}]".format(where, n)
        found = check.record(item, at, fields)
        layers.append(
            LayerSpec(
                name=check.text(found["name"], at + ".name"),
                builder_name=check.text(found["builder_name"], at + ".builder_name"),
                nodes=check.names(found["nodes"], at + ".nodes"),
                kind=check.text(found["kind"], at + ".kind"),
                device=choice(found["device"], at + ".device", ("GPU", "DLA")),
                precision=choice(found["precision"], at + ".precision", PRECISIONS),
            )
        )
    if len({layer.name for layer in layers}) != len(layers):
        check.fail(where, "two layers have one name")
    return tuple(layers)


def tensors(value: Any, where: str) -> Tuple[IoSpec, ...]:
    """The network's inputs or outputs: static, unformatted."""
    found = []
    for n, item in enumerate(check.array(value, where, 1)):
        at = "{}[{}]".format(where, n)
        fields = check.record(item, at, ("name", "dtype", "shape"))
        found.append(
            IoSpec(
                check.text(fields["name"], at + ".name"),
                choice(fields["dtype"], at + ".dtype", tuple(DTYPES)),
                check.shape(fields["shape"], at + ".shape"),
            )
        )
    return _different(found, where)


def ios(value: Any, where: str) -> Tuple[IoSpec, ...]:
    """An engine's inputs or outputs."""
    found = []
    for n, item in enumerate(check.array(value, where, 1)):
        at = "{}[{}]".format(where, n)
        fields = check.record(item, at, ("name", "dtype", "shape", "formats", "scale"))
        scale = fields["scale"]
        found.append(
            IoSpec(
                name=check.text(fields["name"], at + ".name"),
                dtype=choice(fields["dtype"], at + ".dtype", tuple(DTYPES)),
                shape=_open_shape(fields["shape"], at + ".shape"),
                formats=enums(fields["formats"], at + ".formats"),
                scale=None if scale is None else check.number(scale, at + ".scale", 0.0, 3.4e38),
            )
        )
    return _different(found, where)


def _different(found: List[IoSpec], where: str) -> Tuple[IoSpec, ...]:
    if len({item.name for item in found}) != len(found):
        check.fail(where, "two tensors have one name")
    return tuple(found)


def _open_shape(value: Any, where: str) -> Tuple[int, ...]:
    return tuple(check.integer(size, where, -1, 1 << 40) for size in check.array(value, where))


def flag(value: Any, where: str) -> bool:
    """A bool."""
    if not isinstance(value, bool):
        check.fail(where, "expected true or false")
    return value


def choice(value: Any, where: str, known: Tuple[str, ...]) -> str:
    """One of ``known``."""
    found = check.text(value, where)
    if found not in known:
        check.fail(where, "{!r} is none of {}".format(found[:80], ", ".join(known)))
    return found


def choices(value: Any, where: str, known: Tuple[str, ...]) -> Tuple[str, ...]:
    """Different ones of ``known``."""
    return tuple(choice(item, where, known) for item in check.names(value, where))


def enums(value: Any, where: str) -> Tuple[str, ...]:
    """Names as members of TensorRT's enums have them."""
    found = check.names(value, where)
    for name in found:
        if not _ENUM.match(name):
            check.fail(where, "{!r} is no name of a TensorRT enum".format(name[:80]))
    return found


def request_digest(document: Mapping[str, Any]) -> str:
    """SHA-256 of the request's canonical JSON (keys sorted, no spaces, ASCII)."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def read_request(document: Any) -> BuildJobRequest:
    """Checks a request.

    Raises:
        DeviceError: "build.request", about the first field that is wrong.
    """
    try:
        return _request(document)
    except DeviceError as error:
        raise DeviceError(
            error.message,
            code="build.request",
            where=error.where,
            hint=error.hint or "the host and the board's loader are of different versions?",
        ) from error


def _request(document: Any) -> BuildJobRequest:
    found = check.record(document, "request", _FIELDS)
    if found["schema"] != SCHEMA:
        check.fail("schema", "expected {!r}, found {!r}".format(SCHEMA, found["schema"]))
    backend = choice(found["backend"], "backend", ("tensorrt", "trtexec"))
    engines = tuple(
        _engine(item, "engines[{}]".format(position), backend)
        for position, item in enumerate(check.array(found["engines"], "engines", 1))
    )
    keys = [engine.key for engine in engines]
    if len(set(keys)) != len(keys):
        check.fail("engines", "two engines have one key")
    lanes = tuple(
        _lane(item, "lanes[{}]".format(position), keys)
        for position, item in enumerate(check.array(found["lanes"], "lanes", 1))
    )
    network = check.record(found["network"], "network", ("inputs", "outputs"))
    inputs = tensors(network["inputs"], "network.inputs")
    golden = tuple(
        _golden(item, "golden[{}]".format(position), [i.name for i in inputs], len(lanes))
        for position, item in enumerate(check.array(found["golden"], "golden"))
    )
    return BuildJobRequest(
        digest=request_digest(found),
        name=check.text(found["name"], "name"),
        backend=backend,
        tensorrt=check.text(found["tensorrt"], "tensorrt"),
        timing_cache=flag(found["timing_cache"], "timing_cache"),
        lanes=lanes,
        inputs=inputs,
        outputs=tensors(network["outputs"], "network.outputs"),
        golden=golden,
        engines=engines,
    )


def _engine(value: Any, where: str, backend: str) -> EngineSpec:
    if not isinstance(value, dict):
        check.fail(where, "expected an object")
    found = check.record(dict(_ABSENT, **value), where, _ENGINE)
    key = check.text(found["key"], where + ".key")
    if not _KEY.match(key):
        check.fail(where + ".key", "{!r} cannot name an engine".format(key[:80]))
    where = "engines[{}]".format(key)
    device = check.text(found["device"], where + ".device")
    if not _DEVICE.match(device):
        check.fail(where + ".device", "{!r} is not GPU or DLA0 to DLA9".format(device[:80]))
    attempts = tuple(
        _attempt(item, "{}.attempts[{}]".format(where, n))
        for n, item in enumerate(check.array(found["attempts"], where + ".attempts", 1))
    )
    commands = tuple(
        _command(item, "{}.trtexec[{}]".format(where, n))
        for n, item in enumerate(check.array(found["trtexec"], where + ".trtexec"))
    )
    if backend == "trtexec" and len(commands) != len(attempts):
        check.fail(where + ".trtexec", "one command is needed for each attempt")
    level = found["optimization_level"]
    calibration = found["calibration"]
    return EngineSpec(
        key=key,
        kind=choice(found["kind"], where + ".kind", ("plan", "loadable")),
        model=check.digest(found["model"], where + ".model"),
        data=_data(found["data"], where + ".data"),
        device=device,
        gpu_fallback=flag(found["gpu_fallback"], where + ".gpu_fallback"),
        typing=choice(found["typing"], where + ".typing", ("weak", "strong")),
        precisions=choices(found["precisions"], where + ".precisions", PRECISIONS),
        layers=layers(found["layers"], where + ".layers"),
        inputs=ios(found["inputs"], where + ".inputs"),
        outputs=ios(found["outputs"], where + ".outputs"),
        calibration=(
            None if calibration is None else check.digest(calibration, where + ".calibration")
        ),
        pools=_pools(found["pools"], where + ".pools"),
        constraints=choice(
            found["constraints"], where + ".constraints", ("prefer", "obey", "none")
        ),
        optimization_level=(
            None if level is None else check.integer(level, where + ".optimization_level", 0, 5)
        ),
        refit_individual=check.names(found["refit_individual"], where + ".refit_individual"),
        profiles=tuple(
            _profile(item, "{}.profiles[{}]".format(where, n))
            for n, item in enumerate(check.array(found["profiles"], where + ".profiles"))
        ),
        attempts=attempts,
        trtexec=commands,
    )


def _data(value: Any, where: str) -> Dict[str, str]:
    if not isinstance(value, dict):
        check.fail(where, "expected an object")
    for name in value:
        if not _FILE.match(name):
            check.fail(where, "{!r} cannot name a file beside the model".format(name[:80]))
    return {name: check.digest(blob, where) for name, blob in value.items()}


def _pools(value: Any, where: str) -> Dict[str, int]:
    if not isinstance(value, dict):
        check.fail(where, "expected an object")
    enums(sorted(value), where)
    return {
        name: check.integer(size, "{}.{}".format(where, name), 0, _MAX_BYTES)
        for name, size in value.items()
    }


def _profile(value: Any, where: str) -> Dict[str, Dict[str, Tuple[int, ...]]]:
    if not isinstance(value, dict) or not value:
        check.fail(where, "expected an object of at least one input")
    found = {}
    for name, sizes in value.items():
        at = "{}[{}]".format(where, name)
        fields = check.record(sizes, at, ("min", "opt", "max"))
        found[name] = {which: check.shape(fields[which], at) for which in ("min", "opt", "max")}
    return found


def _attempt(value: Any, where: str) -> Attempt:
    found = check.record(value, where, ("flags", "gives_up"))
    flags = enums(found["flags"], where + ".flags")
    return Attempt(flags, check.text(found["gives_up"], where + ".gives_up"))


def _command(value: Any, where: str) -> Tuple[str, ...]:
    found = tuple(check.array(value, where, 1))
    for item in found:
        # names of thousands of layers stand in one argument
        if not isinstance(item, str):
            check.text(item, where)
        if len(item.encode("utf-8", "surrogatepass")) > _MAX_ARGUMENT:
            check.fail(where, "an argument is longer than any that a program can be given")
        unknown = sorted(set(_PLACEHOLDER.findall(item)) - _PLACEHOLDERS)
        if unknown:
            check.fail(where, "unknown placeholder {{{}}}".format(unknown[0]))
        if "\0" in item:
            check.fail(where, "an argument has a zero byte")
    return found


def _lane(value: Any, where: str, keys: List[str]) -> LaneSpec:
    found = check.record(value, where, ("share", "engines"))
    used = check.names(found["engines"], where + ".engines", 1)
    for key in used:
        if key not in keys:
            check.fail(where + ".engines", "there is no engine {!r}".format(key[:80]))
    return LaneSpec(check.number(found["share"], where + ".share", 0.0, 1.0), used)


def _golden(value: Any, where: str, inputs: List[str], lanes: int) -> GoldenSpec:
    found = check.record(value, where, ("seed", "inputs", "lane"))
    ranges = check.record(found["inputs"], where + ".inputs", inputs)
    read = {}
    for name, span in ranges.items():
        at = "{}.inputs[{}]".format(where, name)
        low_high = check.record(span, at, ("low", "high"))
        read[name] = (_finite(low_high["low"], at), _finite(low_high["high"], at))
    lane = found["lane"]
    return GoldenSpec(
        check.integer(found["seed"], where + ".seed", 0, _MAX_SEED),
        read,
        None if lane is None else check.integer(lane, where + ".lane", 0, lanes - 1),
    )


def _finite(value: Any, where: str) -> float:
    return check.number(value, where, -3.4e38, 3.4e38)
