"""Reads a bundle manifest strictly: every field is checked before anything else uses it.
Start with ``parse``.
"""

from __future__ import annotations

import calendar
import hashlib
import re
import time
from typing import Any, Dict, List, Mapping, Optional, Sequence, Set, Tuple

from edgekit_device.arrays.deviation import classes_of
from edgekit_device.arrays.formats import FORMATS
from edgekit_device.errors import DeviceError
from edgekit_device.protocol import checks as check
from edgekit_device.protocol.manifest import (
    DTYPES,
    WEIGHT_DTYPES,
    BlobEntry,
    EngineEntry,
    GoldenCase,
    IoEntry,
    Issued,
    Lane,
    Manifest,
    Requires,
    SampleCase,
    Samples,
    SegmentEntry,
    TensorEntry,
    WeightEntry,
    nbytes,
)

SCHEMA = "edgekit.bundle/1"
MAX_MANIFEST = 64 << 20
_MAX_BYTES = 1 << 42
_DEVICES = ("GPU", "DLA0", "DLA1")
_MODES = ("hybrid", "standalone", "split")
_KINDS = ("engine", "golden", "record", "sample")

_FIELDS = (
    "schema", "name", "created_by", "backend", "model", "target", "power_mode", "precision", "mode",
    "tensorrt", "fingerprint", "inputs", "outputs", "lanes", "weights", "stripped", "blobs",
    "golden", "placement", "plugins",
)  # fmt: skip
_OPTIONAL = ("engines", "rewrites", "requires", "samples", "issued")
_BACKEND = "tensorrt"
_ENGINE_KINDS = ("plan", "loadable")
_REFITS = ("identical", "any", "individual", "none")
_ENGINE_FIELDS = (
    "kind", "tensorrt", "stripped", "version_compatible", "lean_embedded", "refit", "dla_core",
    "inputs", "outputs",
)  # fmt: skip
_IO = ("name", "dtype", "shape", "format", "strides", "scale")
_TENSORRT_VERSION = re.compile(r"\d{1,3}(\.\d{1,5}){2,3}\Z")
_MOST_CORES = 16
_MAX_STRIDE = 1 << 42

#: What accuracy is measured in; as the configuration's ``accuracy.metric``.
METRICS = ("cosine", "snr_db", "top1_agreement")

#: The metric of samples with labels: the share of inputs whose class the first output names.
LABELLED = "top1_accuracy"

_REQUIRES = (
    "backend", "loader", "runtime", "boards", "portable", "dla_cores", "cudla", "disk_bytes",
    "memory_bytes",
)  # fmt: skip
_BOARD = ("module", "l4t", "tensorrt")
_BOARD_VERSION = re.compile(r"\d{1,9}(\.\d{1,9}){0,4}\Z")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\Z")
_MAX_REQUIRED_BYTES = 1 << 50
_MOST_COUNTER = (1 << 63) - 1
_MOST_SAMPLES = 4096


def parse(data: bytes) -> Manifest:
    """Reads and checks a manifest; check its signature first.

    Raises:
        DeviceError: "manifest.schema" for another schema, "manifest.invalid" for anything wrong.
    """
    if len(data) > MAX_MANIFEST:
        check.fail("manifest.json", "{} bytes are too many".format(len(data)))
    raw = check.parse_json(data, "manifest.json")
    schema = raw.get("schema") if isinstance(raw, dict) else None
    if schema != SCHEMA:
        raise DeviceError(
            "the bundle's schema is {!r}, this loader reads {}".format(schema, SCHEMA),
            code="manifest.schema",
            where="manifest.json",
            hint="use the loader of the edgekit that made the bundle",
        )
    given = tuple(name for name in _OPTIONAL if name in raw)
    top = check.record(raw, "manifest.json", _FIELDS + given)
    for name in given:
        if top[name] is None:
            check.fail(name, "null: leave it out instead")
    _facts(top)
    inputs = _tensors(top["inputs"], "inputs")
    outputs = _tensors(top["outputs"], "outputs")
    blobs = _blobs(top["blobs"])
    if "rewrites" in top:
        record = blobs.get(check.digest(top["rewrites"], "rewrites"))
        if record is None or record.kind != "record":
            check.fail("rewrites", "no record blob has this digest")
    lanes = _lanes(top["lanes"], blobs, inputs, outputs)
    return Manifest(
        digest=hashlib.sha256(data).hexdigest(),
        name=top["name"],
        backend=top["backend"],
        inputs=inputs,
        outputs=outputs,
        lanes=lanes,
        weights=_weights(top["weights"], blobs),
        blobs=blobs,
        golden=parse_golden(top["golden"], inputs, outputs, blobs, len(lanes)),
        document=top,
        engines=parse_engines(top.get("engines"), lanes, top["backend"]),
        requires=parse_requires(top.get("requires"), lanes, top["backend"]),
        samples=parse_samples(top.get("samples"), inputs, outputs, blobs),
        issued=parse_issued(top.get("issued")),
    )


def _facts(top: Dict[str, Any]) -> None:
    if not check.is_app_name(top["name"]):
        check.fail(
            "name",
            "{!r} cannot name an app".format(str(top["name"])[:80]),
            hint="letters, digits, '.', '_' and '-', at most 64, starting with a letter or digit",
        )
    for name in ("backend", "target", "power_mode", "precision", "tensorrt"):
        check.text(top[name], name)
    if top["mode"] not in _MODES:
        check.fail("mode", "expected one of {}".format(", ".join(_MODES)))
    if not isinstance(top["stripped"], bool):
        check.fail("stripped", "expected true or false")
    model = check.record(top["model"], "model", ("digest", "source"))
    check.digest(model["digest"], "model.digest")
    check.text(model["source"], "model.source")
    for name in ("created_by", "fingerprint"):
        for key, value in _mapping(top[name], name).items():
            check.text(value, "{}.{}".format(name, key[:80]))
    placement = check.record(top["placement"], "placement", ("layers", "loadables"))
    check.array(placement["layers"], "placement.layers")
    check.array(placement["loadables"], "placement.loadables")
    if check.array(top["plugins"], "plugins"):
        check.fail("plugins", "this loader has no plugins")


def _mapping(value: object, where: str) -> Dict[str, Any]:
    if not isinstance(value, dict):
        check.fail(where, "expected an object")
    for key in value:
        check.text(key, where)
    return value


def _dtype(value: object, where: str, known: Mapping[str, int] = DTYPES) -> str:
    if not isinstance(value, str) or value not in known:
        check.fail(where, "{!r} is no tensor type".format(str(value)[:80]))
    return value


def _tensors(value: object, where: str) -> Tuple[TensorEntry, ...]:
    found = []
    for position, item in enumerate(check.array(value, where, 1)):
        at = "{}[{}]".format(where, position)
        entry = check.record(item, at, ("name", "dtype", "shape", "format", "strides"))
        sizes = check.shape(entry["shape"], at + ".shape")
        strides = tuple(
            check.integer(step, at + ".strides", 0, _MAX_BYTES)
            for step in check.array(entry["strides"], at + ".strides")
        )
        if len(strides) != len(sizes):
            check.fail(at + ".strides", "one stride for each dimension")
        dtype = _dtype(entry["dtype"], at + ".dtype")
        if nbytes(dtype, sizes) > _MAX_BYTES:
            check.fail(at + ".shape", "{} is too large".format(list(sizes)))
        name, layout = check.text(entry["name"], at), check.text(entry["format"], at)
        found.append(TensorEntry(name, dtype, sizes, layout, strides))
    check.names([entry.name for entry in found], where)
    return tuple(found)


def _blobs(value: object) -> Dict[str, BlobEntry]:
    found = {}
    for key, item in _mapping(value, "blobs").items():
        entry = check.record(item, "blobs." + check.digest(key, "blobs"), ("bytes", "kind"))
        if entry["kind"] not in _KINDS:
            check.fail("blobs." + key, "expected one of {}".format(", ".join(_KINDS)))
        size = check.integer(entry["bytes"], "blobs." + key, 0, _MAX_BYTES)
        found[key] = BlobEntry(size, entry["kind"])
    return found


def _weights(value: object, blobs: Mapping[str, BlobEntry]) -> Dict[str, WeightEntry]:
    found = {}
    fields = ("digest", "dtype", "shape", "bytes", "source", "transform")
    sizes = {digest: blob.bytes for digest, blob in blobs.items()}
    for key, item in _mapping(value, "weights").items():
        at = "weights." + key[:80]
        entry = check.record(item, at, fields)
        dims, dtype = check.shape(entry["shape"], at), _dtype(entry["dtype"], at, WEIGHT_DTYPES)
        size = check.integer(entry["bytes"], at + ".bytes", 0, _MAX_BYTES)
        if size != nbytes(dtype, dims):
            check.fail(at + ".bytes", "{} of {} is not {} bytes".format(list(dims), dtype, size))
        digest = check.digest(entry["digest"], at)
        if sizes.setdefault(digest, size) != size:
            check.fail(at, "one digest with two sizes")
        source, transform = check.text(entry["source"], at), check.text(entry["transform"], at)
        found[key] = WeightEntry(digest, dtype, dims, size, source, transform)
    return found


def _lanes(
    value: object,
    blobs: Mapping[str, BlobEntry],
    inputs: Tuple[TensorEntry, ...],
    outputs: Tuple[TensorEntry, ...],
) -> Tuple[Lane, ...]:
    found = []
    for number, item in enumerate(check.array(value, "lanes", 1)):
        at = "lanes[{}]".format(number)
        entry = check.record(item, at, ("share", "segments"))
        share = check.number(entry["share"], at + ".share", 0, 1)
        written = {tensor.name for tensor in inputs}
        segments: List[SegmentEntry] = []
        for index, part in enumerate(check.array(entry["segments"], at + ".segments", 1)):
            spot = "{}.segments[{}]".format(at, index)
            segments.append(_segment(part, spot, index, blobs, written))
        lacking = [tensor.name for tensor in outputs if tensor.name not in written]
        if lacking:
            check.fail(at, "no segment writes the output {!r}".format(lacking[0][:80]))
        found.append(Lane(share, tuple(segments)))
    if abs(sum(lane.share for lane in found) - 1) > 1e-6:
        check.fail("lanes", "shares must add up to 1")
    return tuple(found)


def _segment(
    value: object, at: str, index: int, blobs: Mapping[str, BlobEntry], written: Set[str]
) -> SegmentEntry:
    fields = ("index", "device", "engine", "inputs", "outputs", "layers")
    entry = check.record(value, at, fields)
    if check.integer(entry["index"], at + ".index", 0, 1 << 20) != index:
        check.fail(at + ".index", "segments are numbered in running order, from 0")
    if entry["device"] not in _DEVICES:
        check.fail(at + ".device", "expected one of {}".format(", ".join(_DEVICES)))
    engine = check.digest(entry["engine"], at + ".engine")
    if engine not in blobs or blobs[engine].kind != "engine":
        check.fail(at + ".engine", "no engine blob has this digest")
    reads = check.names(entry["inputs"], at + ".inputs")
    writes = check.names(entry["outputs"], at + ".outputs", 1)
    unwritten = [name for name in reads if name not in written]
    if unwritten:
        check.fail(at + ".inputs", "nothing before it writes {!r}".format(unwritten[0][:80]))
    again = [name for name in writes if name in written]
    if again:
        check.fail(at + ".outputs", "{!r} is written twice".format(again[0][:80]))
    written.update(writes)
    layers = check.names(entry["layers"], at + ".layers")
    return SegmentEntry(index, entry["device"], engine, reads, writes, layers)


def parse_engines(value: object, lanes: Tuple[Lane, ...], backend: str) -> Dict[str, EngineEntry]:
    """Reads the field; a bundle of TensorRT engines must have it, with each engine's entry.

    Raises:
        DeviceError: "manifest.invalid".
    """
    if value is None:
        if backend == _BACKEND:
            check.fail("engines", "a bundle of TensorRT engines needs this field")
        return {}
    if not isinstance(value, dict):
        check.fail("engines", "expected an object")
    segments = [segment for lane in lanes for segment in lane.segments]
    used = {segment.engine for segment in segments}
    found = {}
    for key, item in value.items():
        at = "engines." + check.digest(key, "engines")
        if key not in used:
            check.fail(at, "no segment runs this engine")
        found[key] = _engine(item, at)
    cores: Dict[str, Set[Optional[int]]] = {}
    for segment in segments:
        cores.setdefault(segment.engine, set()).add(segment.core)
    for segment in segments:
        entry = found.get(segment.engine)
        if entry is None:
            check.fail("engines", "the engine {} has no entry".format(segment.engine))
        loadable = entry.kind == "loadable"
        if entry.dla_core not in cores[segment.engine] or (loadable and segment.core is None):
            check.fail(
                "engines.{}.dla_core".format(segment.engine),
                "its segment runs on {}".format(segment.device),
            )
        if not set(segment.inputs) <= {io.name for io in entry.inputs}:
            check.fail("engines." + segment.engine, "its segment feeds other inputs")
        if {io.name for io in entry.inputs} - set(segment.inputs):
            check.fail("engines." + segment.engine, "nothing feeds one of its inputs")
        if not set(segment.outputs) <= {io.name for io in entry.outputs}:
            check.fail("engines." + segment.engine, "it lacks an output of its segment")
    return found


def _engine(value: object, at: str) -> EngineEntry:
    more = ("weights",) if isinstance(value, dict) and "weights" in value else ()
    entry = check.record(value, at, _ENGINE_FIELDS + more)
    for name, known in (("kind", _ENGINE_KINDS), ("refit", _REFITS)):
        if entry[name] not in known:
            check.fail("{}.{}".format(at, name), "expected one of {}".format(", ".join(known)))
    version = check.text(entry["tensorrt"], at + ".tensorrt")
    if not _TENSORRT_VERSION.match(version):
        check.fail(at + ".tensorrt", "not a version such as 10.3.0.30")
    for name in ("stripped", "version_compatible", "lean_embedded"):
        if not isinstance(entry[name], bool):
            check.fail("{}.{}".format(at, name), "expected true or false")
    core: Optional[int] = None
    if entry["dla_core"] is not None:
        core = check.integer(entry["dla_core"], at + ".dla_core", 0, _MOST_CORES - 1)
    if entry["kind"] == "loadable" and core is None:
        check.fail(at + ".dla_core", "a loadable needs its core")
    return EngineEntry(
        entry["kind"],
        version,
        entry["stripped"],
        entry["version_compatible"],
        entry["lean_embedded"],
        entry["refit"],
        core,
        _ios(entry["inputs"], at + ".inputs"),
        _ios(entry["outputs"], at + ".outputs"),
        _renamed(entry.get("weights", {}), at + ".weights"),
    )


def _renamed(value: object, at: str) -> Dict[str, str]:
    if not isinstance(value, dict):
        check.fail(at, "expected an object")
    return {check.text(name, at): check.text(key, at) for name, key in value.items()}


def _ios(value: object, at: str) -> Tuple[IoEntry, ...]:
    found = tuple(
        _io(item, "{}[{}]".format(at, position))
        for position, item in enumerate(check.array(value, at))
    )
    check.names([io.name for io in found], at)
    return found


def _io(value: object, at: str) -> IoEntry:
    entry: Dict[str, Any] = check.record(value, at, _IO)
    if entry["dtype"] not in DTYPES:
        check.fail(at + ".dtype", "no tensor type")
    if entry["format"] not in FORMATS:
        check.fail(at + ".format", "expected one of {}".format(", ".join(FORMATS)))
    strides = tuple(
        check.integer(step, at + ".strides", 0, _MAX_STRIDE)
        for step in check.array(entry["strides"], at + ".strides")
    )
    scale: Optional[float] = None
    if entry["scale"] is not None:
        scale = check.number(entry["scale"], at + ".scale", 1e-45, 3e38)
        if entry["dtype"] != "int8":
            check.fail(at + ".scale", "only int8 has a scale")
    return IoEntry(
        check.text(entry["name"], at + ".name"),
        entry["dtype"],
        check.shape(entry["shape"], at + ".shape"),
        entry["format"],
        strides,
        scale,
    )


def parse_golden(
    value: object,
    inputs: Tuple[TensorEntry, ...],
    outputs: Tuple[TensorEntry, ...],
    blobs: Mapping[str, BlobEntry],
    lanes: int,
) -> Tuple[GoldenCase, ...]:
    """Reads the golden cases; every output's blob is there and of the output's size.

    Raises:
        DeviceError: "manifest.invalid".
    """
    found = []
    for number, item in enumerate(check.array(value, "golden")):
        at = "golden[{}]".format(number)
        keys = ["seed", "inputs", "outputs", "tolerance"]
        if isinstance(item, dict) and "lane" in item:
            keys.append("lane")
        entry = check.record(item, at, keys)
        lane = None
        if "lane" in entry:
            lane = check.integer(entry["lane"], at + ".lane", 0, lanes - 1)
        ranges, wanted = {}, {}
        given = check.record(entry["inputs"], at + ".inputs", [tensor.name for tensor in inputs])
        for name, bounds in given.items():
            spot = "{}.inputs.{}".format(at, name[:80])
            pair = check.record(bounds, spot, ("low", "high"))
            low = check.number(pair["low"], spot, -3e38, 3e38)
            ranges[name] = (low, check.number(pair["high"], spot, low, 3e38))
        results = check.record(entry["outputs"], at + ".outputs", [t.name for t in outputs])
        for tensor in outputs:
            spot = "{}.outputs.{}".format(at, tensor.name[:80])
            result = check.record(results[tensor.name], spot, ("blob", "dtype", "shape"))
            digest = check.digest(result["blob"], spot)
            if result["dtype"] != tensor.dtype or result["shape"] != list(tensor.shape):
                check.fail(spot, "type and shape differ from the output's")
            blob = blobs.get(digest)
            if blob is None or blob.bytes != nbytes(tensor.dtype, tensor.shape):
                check.fail(spot, "no blob of this digest and size")
            wanted[tensor.name] = digest
        tolerance = check.record(entry["tolerance"], at + ".tolerance", ("relative",))
        relative = check.number(tolerance["relative"], at + ".tolerance", 0, 1e9)
        seed = check.integer(entry["seed"], at + ".seed", 0, (1 << 63) - 1)
        found.append(GoldenCase(seed, ranges, wanted, relative, lane))
    return tuple(found)


def needs_of(document: Mapping[str, Any]) -> Optional[Requires]:
    """Reads "requires" of a manifest that is checked already; None where it does not say."""
    value = document.get("requires")
    return None if value is None else _requires(value, str(document.get("backend")))


def parse_requires(value: object, lanes: Tuple[Lane, ...], backend: str) -> Optional[Requires]:
    """Reads what a bundle needs of a board; None where it does not say.

    Raises:
        DeviceError: "manifest.invalid".
    """
    if value is None:
        return None
    found = _requires(value, backend)
    if set(found.dla_cores) - {segment.core for lane in lanes for segment in lane.segments}:
        check.fail("requires.dla_cores", "a core that no segment uses")
    return found


def _requires(value: object, backend: str) -> Requires:
    entry = check.record(value, "requires", _REQUIRES)
    if entry["backend"] != backend:
        check.fail("requires.backend", "the manifest's is {!r}".format(backend[:80]))
    runtime: Optional[Tuple[str, str, str]] = None
    if entry["runtime"] is not None:
        required = check.record(entry["runtime"], "requires.runtime", ("name", "from", "below"))
        name = check.text(required["name"], "requires.runtime.name")
        oldest, newest = (
            _version(required[which], "requires.runtime." + which) for which in ("from", "below")
        )
        runtime = (name, oldest, newest)
    boards = []
    for number, item in enumerate(check.array(entry["boards"], "requires.boards")):
        at = "requires.boards[{}]".format(number)
        facts = check.record(item, at, _BOARD)
        boards.append({name: check.text(facts[name], at + "." + name) for name in _BOARD})
    cores = tuple(
        check.integer(core, "requires.dla_cores", 0, _MOST_CORES - 1)
        for core in check.array(entry["dla_cores"], "requires.dla_cores")
    )
    for name in ("portable", "cudla"):
        if not isinstance(entry[name], bool):
            check.fail("requires." + name, "expected true or false")
    return Requires(
        backend=backend,
        loader=check.text(entry["loader"], "requires.loader"),
        runtime=runtime,
        boards=tuple(boards),
        portable=entry["portable"],
        dla_cores=cores,
        cudla=entry["cudla"],
        disk_bytes=check.integer(
            entry["disk_bytes"], "requires.disk_bytes", 0, _MAX_REQUIRED_BYTES
        ),
        memory_bytes=check.integer(
            entry["memory_bytes"], "requires.memory_bytes", 0, _MAX_REQUIRED_BYTES
        ),
    )


def parse_samples(
    value: object,
    inputs: Sequence[TensorEntry],
    outputs: Sequence[TensorEntry],
    blobs: Mapping[str, BlobEntry],
) -> Optional[Samples]:
    """Reads the inputs that travel with the bundle, with what FP32 made of them.

    Raises:
        DeviceError: "manifest.invalid".
    """
    if value is None:
        return None
    entry = check.record(value, "samples", ("metric", "source", "synthetic", "min", "cases"))
    metrics = (*METRICS, LABELLED)
    if entry["metric"] not in metrics:
        check.fail("samples.metric", "expected one of {}".format(", ".join(metrics)))
    labelled = entry["metric"] == LABELLED
    if not isinstance(entry["synthetic"], bool):
        check.fail("samples.synthetic", "expected true or false")
    least: Optional[float] = None
    if entry["min"] is not None:
        least = check.number(entry["min"], "samples.min", -1e9, 1e9)
    cases = check.array(entry["cases"], "samples.cases", 1)
    if len(cases) > _MOST_SAMPLES:
        check.fail("samples.cases", "{} are too many".format(len(cases)))
    found = []
    for number, item in enumerate(cases):
        at = "samples.cases[{}]".format(number)
        case = check.record(item, at, ("inputs", "outputs") + ("labels",) * labelled)
        found.append(
            SampleCase(
                _arrays(case["inputs"], at + ".inputs", inputs, blobs),
                _arrays(case["outputs"], at + ".outputs", outputs, blobs),
                _labels(case["labels"], at + ".labels", outputs) if labelled else None,
            )
        )
    source = check.text(entry["source"], "samples.source")
    return Samples(entry["metric"], source, entry["synthetic"], least, tuple(found))


def parse_issued(value: object) -> Optional[Issued]:
    """Reads when, with which counter and until when a bundle was issued.

    Raises:
        DeviceError: "manifest.invalid".
    """
    if value is None:
        return None
    given = tuple(
        name for name in ("counter", "valid_until") if isinstance(value, dict) and name in value
    )
    entry = check.record(value, "issued", ("at", *given))
    counter, until = entry.get("counter"), entry.get("valid_until")
    if "counter" in given:
        counter = check.integer(counter, "issued.counter", 1, _MOST_COUNTER)
    if "valid_until" in given:
        until = _time(until, "issued.valid_until")
    return Issued(_time(entry["at"], "issued.at"), counter, until)


def _time(value: object, where: str) -> int:
    text = check.text(value, where)
    try:
        found = calendar.timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%SZ"))
    except ValueError:
        found = -1
    if found < 0 or not _TIME.match(text):
        check.fail(where, "expected a time as 2027-01-31T12:00:00Z")
    return found


def _arrays(
    value: object, where: str, tensors: Sequence[TensorEntry], blobs: Mapping[str, BlobEntry]
) -> Dict[str, str]:
    entry = check.record(value, where, [tensor.name for tensor in tensors])
    for tensor in tensors:
        spot = "{}.{}".format(where, tensor.name[:80])
        blob = blobs.get(check.digest(entry[tensor.name], spot))
        if blob is None or blob.bytes != nbytes(tensor.dtype, tensor.shape):
            check.fail(spot, "no blob of this digest and size")
    return entry


def _labels(value: object, where: str, outputs: Sequence[TensorEntry]) -> Tuple[int, ...]:
    found = classes_of(outputs[0].shape)
    if found is None:
        check.fail(where, "the first output is not one class for each input")
    rows, classes = found
    labels = check.array(value, where)
    if len(labels) != rows:
        check.fail(where, "expected {} numbers".format(rows))
    return tuple(check.integer(label, where, 0, classes - 1) for label in labels)


def _version(value: object, where: str) -> str:
    text = check.text(value, where)
    if text and not _BOARD_VERSION.match(text):
        check.fail(where, "{!r} is no version".format(text[:80]))
    return text
