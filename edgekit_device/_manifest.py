"""The bundle manifest: read strictly, every field checked before anything else uses it."""

from __future__ import annotations

import hashlib
from typing import Any, Dict, List, Mapping, Set, Tuple

from . import _checks as check
from ._errors import DeviceError
from ._manifest_engines import parse_engines
from ._manifest_golden import parse_golden
from ._manifest_health import parse_issued, parse_requires, parse_samples
from ._types import (
    DTYPES,
    WEIGHT_DTYPES,
    BlobEntry,
    Lane,
    Manifest,
    SegmentEntry,
    TensorEntry,
    WeightEntry,
    nbytes,
)

__all__ = ["MAX_MANIFEST", "SCHEMA", "parse"]

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
