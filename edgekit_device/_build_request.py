"""Reads a build request strictly: nothing is built before every field was checked."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any, Dict, List, Mapping, Tuple

from . import _build_request_parts as part
from . import _checks as check
from ._build_types import (
    Attempt,
    BuildRequest,
    EngineSpec,
    GoldenSpec,
    LaneSpec,
)
from ._errors import DeviceError

__all__ = ["SCHEMA", "read_request", "request_digest"]

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
#: What an argument template may ask for.
_PLACEHOLDERS = frozenset({"model", "engine", "calibration", "timing_cache", "layer_info"})
_MAX_SEED = (1 << 63) - 1
_MAX_BYTES = 1 << 44
#: Linux takes no longer argument (MAX_ARG_STRLEN, with its end).
_MAX_ARGUMENT = (1 << 17) - 1


def request_digest(document: Mapping[str, Any]) -> str:
    """SHA-256 of the request's canonical JSON (keys sorted, no spaces, ASCII)."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def read_request(document: Any) -> BuildRequest:
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


def _request(document: Any) -> BuildRequest:
    found = check.record(document, "request", _FIELDS)
    if found["schema"] != SCHEMA:
        check.fail("schema", "expected {!r}, found {!r}".format(SCHEMA, found["schema"]))
    backend = part.choice(found["backend"], "backend", ("tensorrt", "trtexec"))
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
    inputs = part.tensors(network["inputs"], "network.inputs")
    golden = tuple(
        _golden(item, "golden[{}]".format(position), [i.name for i in inputs], len(lanes))
        for position, item in enumerate(check.array(found["golden"], "golden"))
    )
    return BuildRequest(
        digest=request_digest(found),
        name=check.text(found["name"], "name"),
        backend=backend,
        tensorrt=check.text(found["tensorrt"], "tensorrt"),
        timing_cache=part.flag(found["timing_cache"], "timing_cache"),
        lanes=lanes,
        inputs=inputs,
        outputs=part.tensors(network["outputs"], "network.outputs"),
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
        kind=part.choice(found["kind"], where + ".kind", ("plan", "loadable")),
        model=check.digest(found["model"], where + ".model"),
        data=_data(found["data"], where + ".data"),
        device=device,
        gpu_fallback=part.flag(found["gpu_fallback"], where + ".gpu_fallback"),
        typing=part.choice(found["typing"], where + ".typing", ("weak", "strong")),
        precisions=part.choices(found["precisions"], where + ".precisions", part.PRECISIONS),
        layers=part.layers(found["layers"], where + ".layers"),
        inputs=part.ios(found["inputs"], where + ".inputs"),
        outputs=part.ios(found["outputs"], where + ".outputs"),
        calibration=(
            None if calibration is None else check.digest(calibration, where + ".calibration")
        ),
        pools=_pools(found["pools"], where + ".pools"),
        constraints=part.choice(
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
    part.enums(sorted(value), where)
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
    flags = part.enums(found["flags"], where + ".flags")
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
