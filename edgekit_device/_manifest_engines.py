"""The manifest's "engines": what a TensorRT engine is and how its inputs and outputs lie."""

from __future__ import annotations

import re
from typing import Any, Dict, Optional, Set, Tuple

from . import _checks as check
from ._packing import FORMATS
from ._types import DTYPES, EngineEntry, IoEntry, Lane

__all__ = ["parse_engines"]

_BACKEND = "tensorrt"
_KINDS = ("plan", "loadable")
_REFITS = ("identical", "any", "individual", "none")
_FIELDS = (
    "kind", "tensorrt", "stripped", "version_compatible", "lean_embedded", "refit", "dla_core",
    "inputs", "outputs",
)  # fmt: skip
_IO = ("name", "dtype", "shape", "format", "strides", "scale")
_VERSION = re.compile(r"\d{1,3}(\.\d{1,5}){2,3}\Z")
_MOST_CORES = 16
_MAX_STRIDE = 1 << 42


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
    entry = check.record(value, at, _FIELDS + more)
    for name, known in (("kind", _KINDS), ("refit", _REFITS)):
        if entry[name] not in known:
            check.fail("{}.{}".format(at, name), "expected one of {}".format(", ".join(known)))
    version = check.text(entry["tensorrt"], at + ".tensorrt")
    if not _VERSION.match(version):
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
