"""Refits an engine without weights and makes the full plan, which the release stores so that later
loads need no refit.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from edgekit_device.errors import DeviceError, listed, map_os_errors
from edgekit_device.files import is_owned, map_file, read_owned, trusted_owners, write_durably
from edgekit_device.protocol import fields
from edgekit_device.protocol.codec import (
    choice,
    digest,
    document,
    dump,
    member,
    nullable,
    parse_json,
    read,
    text,
)
from edgekit_device.store.root import sha256
from edgekit_device.tensorrt.bindings import ErrorListener
from edgekit_device.tensorrt.weights import named_weights

if TYPE_CHECKING:
    import numpy as np


# TensorRT's Refitter takes weights by name. If the module has OnnxParserRefitter (10.0 and later,
# not in the lean runtime), that reads an ONNX file; otherwise ``tensorrt.weights`` does.


# DataType's names by arrays' types; BF16 is given as uint16 bit patterns
_TYPES = {
    "float32": "FLOAT",
    "float16": "HALF",
    "int8": "INT8",
    "int32": "INT32",
    "int64": "INT64",
    "bool": "BOOL",
    "uint8": "UINT8",
    "uint16": "BF16",
}

# the importer's conversions of types that TensorRT lacks, by the engine's type if it reports it
# (WeightsContext.cpp of onnx-tensorrt; UINT8 became INT32 before 10.10, INT64 before 10.0)
_CAST = {
    ("float64", "FLOAT"): "float32",
    ("int64", "INT32"): "int32",
    ("uint8", "INT32"): "int32",
    ("float64", None): "float32",
    ("int64", None): "int32",
    ("uint8", None): "int32",
}
_FOLDER = "refitted"
_SCHEMA = "edgekit.refitted/1"


@document(frozen=True)
class RefitWeight:
    """A weight that a refit can set; both are None if the release does not report them (before
    10.0).

    Attributes:
        dtype: NumPy's name of its type, or "bfloat16".
        count: Number of its values.
    """

    dtype: Optional[str] = member(nullable(text()))
    count: Optional[int] = member(nullable(fields.count))


def refit_weights(trt: Any, engine: Any, where: str = "") -> Dict[str, RefitWeight]:
    """Returns the weights that a refit can set, by name.

    Raises:
        DeviceError: "engine.not-refittable".
    """
    listener = ErrorListener(trt)
    refitter = _refitter(trt, engine, listener, where)
    # BF16 comes back as "uint16" here and gets its own name below
    names = {number: name for name, number in _TYPES.items()}
    found: Dict[str, RefitWeight] = {}
    for name in refitter.get_all_weights():
        kind, count = _prototype(refitter, name)
        dtype = None if kind is None else names.get(kind, kind.lower())
        found[str(name)] = RefitWeight("bfloat16" if kind == "BF16" else dtype, count)
    return found


def refit(
    trt: Any,
    engine: Any,
    source: Union[Mapping[str, np.ndarray], Path],
    *,
    where: str = "",
) -> List[str]:
    """Refits an engine.

    Args:
        trt: The engine's module.
        engine: The engine; runs that began before keep the old weights.
        source: Arrays by name (names that the engine lacks are ignored; bfloat16 as uint16 bit
            patterns), or an ONNX file. The caller ensures that these are the weights that the plan
            was built with: REFIT_IDENTICAL with other weights gives undefined results.
        where: The place in messages.

    Returns:
        The names that were set.

    Raises:
        DeviceError: "engine.not-refittable", "refit.mismatch" (with all faults), "refit.failed",
            or an error of ``named_weights``.
    """
    listener = ErrorListener(trt)
    refitter = _refitter(trt, engine, listener, where)
    wanted = [str(name) for name in refitter.get_all_weights()]
    keep: List[Any] = []
    if not isinstance(source, Path):
        _set_weights(trt, refitter, listener, wanted, source, keep, where)
    elif hasattr(trt, "OnnxParserRefitter"):
        _set_from_file(trt, refitter, listener, source, where)
    else:
        with map_os_errors(str(source)):
            model = map_file(source)
        _set_weights(
            trt,
            refitter,
            listener,
            wanted,
            named_weights(model, source.parent, wanted),
            keep,
            where,
        )
    missing = [str(name) for name in refitter.get_missing_weights()]
    if missing:
        raise _mismatch(["{!r} is missing".format(name[:80]) for name in missing], where)
    listener.forget()
    if not refitter.refit_cuda_engine():
        raise listener.error("TensorRT cannot refit the engine", "refit.failed", where)
    del keep
    if hasattr(refitter, "release_refit_resources"):
        refitter.release_refit_resources()
    return wanted


def full_plan(
    trt: Any, engine: Any, *, lean: bool = False, compatible: bool = False, where: str = ""
) -> bytes:
    """Serialises an engine with its weights; since 10.14 it stays refittable.

    Args:
        trt: The engine's module.
        engine: The engine.
        lean: True if its plan embeds a lean runtime; the new plan then does, too.
        compatible: True if the engine is version compatible.
        where: The place in messages.

    Raises:
        DeviceError: "refit.failed" if TensorRT does not serialise it.
    """
    if not hasattr(engine, "create_serialization_config"):
        plan = engine.serialize()  # before 10.0: always with weights
    else:
        flags = trt.SerializationFlag
        config = engine.create_serialization_config()
        config.clear_flag(flags.EXCLUDE_WEIGHTS)
        # it is undocumented if an engine keeps BuilderFlag.EXCLUDE_LEAN_RUNTIME
        if compatible and not lean:
            config.set_flag(flags.EXCLUDE_LEAN_RUNTIME)
        # without it a plan with weights is not refittable again (since 10.14)
        if hasattr(flags, "INCLUDE_REFIT"):
            config.set_flag(flags.INCLUDE_REFIT)
        plan = engine.serialize_with_config(config)
    if plan is None:
        raise DeviceError(
            "TensorRT failed to serialise the refitted engine", code="refit.failed", where=where
        )
    return bytes(memoryview(plan))


def _refitter(trt: Any, engine: Any, listener: ErrorListener, where: str) -> Any:
    try:
        refitter = trt.Refitter(engine, listener.logger)
    except Exception as error:  # pybind11 raises if the factory returns no object
        listener.lines.append(("ERROR", str(error)))
        refitter = None
    # an engine that is not refittable may give an object and only log an error
    if refitter is None or any("ERROR" in severity for severity, _ in listener.lines):
        raise listener.error(
            "the engine cannot be refitted",
            "engine.not-refittable",
            where,
            "build it with strip or refit",
        )
    refitter.error_recorder = listener.recorder
    return refitter


def _set_from_file(
    trt: Any, refitter: Any, listener: ErrorListener, path: Path, where: str
) -> None:
    listener.forget()
    parser = trt.OnnxParserRefitter(refitter, listener.logger)
    if parser.refit_from_file(str(path)):
        return
    parser_errors = [str(parser.get_error(i).desc()) for i in range(int(parser.num_errors))]
    listener.lines.extend(("ERROR", text) for text in parser_errors)
    raise listener.error(
        "the ONNX file does not fit the engine",
        "refit.mismatch",
        where or str(path),
        "give the file that the engine was built from",
    )


def _set_weights(
    trt: Any,
    refitter: Any,
    listener: ErrorListener,
    wanted: Sequence[str],
    arrays: Mapping[str, np.ndarray],
    keep: List[Any],
    where: str,
) -> None:
    faults = []
    for name in wanted:
        if name not in arrays:
            continue  # weights that are really needed are reported as missing afterwards
        array, kind, fault = _fit_array(refitter, name, arrays[name])
        if fault:
            faults.append(fault)
            continue
        listener.forget()
        try:
            weights = make_weights(trt, array, kind)
        except Exception as error:  # the bindings raise an error for types that the release lacks
            faults.append("{!r}: TensorRT rejects {} here ({})".format(name[:80], kind, error))
            continue
        # TensorRT reads the memory when it refits, not now
        keep += [array, weights]
        if not refitter.set_named_weights(name, weights):
            message = listener.error("it is rejected", "refit.mismatch").message
            faults.append("{!r}: {}".format(name[:80], message))
    if faults:
        missing = [str(name) for name in refitter.get_missing_weights() if name not in arrays]
        faults += ["{!r} is missing".format(name[:80]) for name in missing]
        raise _mismatch(faults, where)


def _fit_array(refitter: Any, name: str, array: np.ndarray) -> Tuple[np.ndarray, str, str]:
    """Returns the array in the engine's type, its DataType's name, and its fault or ""."""
    import numpy as np

    kind, count = _prototype(refitter, name)
    given = str(array.dtype)
    cast = _CAST.get((given, kind))
    if cast is not None:
        array = _clamp(array, cast)
    found = _TYPES.get(str(array.dtype), given)
    # before 10.0 the release does not report the engine's type; set_named_weights then checks the
    # count
    if kind is not None and (found, array.size) != (kind, count):
        return (
            array,
            "",
            "{!r} is {} of {}, but the engine needs {} of {}".format(
                name[:80], array.size, found, count, kind
            ),
        )
    # TensorRT gets the address alone and reads in C order
    return np.ascontiguousarray(array), found, ""


def _clamp(array: np.ndarray, dtype: str) -> np.ndarray:
    """Returns the array as another type, clamped to its range as in the importer."""
    import numpy as np

    kind = np.dtype(dtype)
    info: Any = np.iinfo(kind) if kind.kind == "i" else np.finfo(kind)
    # only to a smaller type: int32 holds every uint8
    if array.dtype.itemsize > kind.itemsize:
        array = np.clip(array, info.min, info.max)
    return array.astype(kind)


def _prototype(refitter: Any, name: str) -> Tuple[Any, Any]:
    """Returns DataType's name and count of the engine's weight; (None, None) before 10.0."""
    if not hasattr(refitter, "get_weights_prototype"):
        return None, None
    prototype = refitter.get_weights_prototype(name)
    return str(prototype.dtype.name), int(prototype.size)


def make_weights(trt: Any, array: np.ndarray, kind: str) -> Any:
    """Returns TensorRT's Weights over an array's memory; ``kind`` is DataType's name."""
    if kind != "BF16":
        return trt.Weights(array)
    # NumPy has no bfloat16, so the type is given beside the address
    return trt.Weights(trt.DataType.BF16, array.ctypes.data, array.size)


def _mismatch(faults: Sequence[str], where: str) -> DeviceError:
    return DeviceError(
        "weights do not fit the engine: {}".format(listed(faults, between="; ")),
        code="refit.mismatch",
        where=where,
        hint="the weights need the names, types and counts of the stripped ones",
    )


@document(frozen=True)
class RefittedPlan:
    """The record of a full plan: digests of the stripped and the full plan, and flavour and version
    of the runtime that loads it.
    """

    engine: str = member(digest)
    tensorrt: str = member(text())
    plan: str = member(digest)
    schema: str = member(choice(_SCHEMA), default=_SCHEMA)


def read_full_plan(release: Path, engine: str, tensorrt: str) -> Optional[bytes]:
    """Returns the full plan of an engine, hashed again; None if there is no matching plan.

    Args:
        release: The release's folder.
        engine: The stripped engine's digest.
        tensorrt: Flavour and version of the module that would load it.
    """
    folder = release / _FOLDER
    try:
        owners = trusted_owners(release)
        # lstat: a link could lead to files of another account
        if not is_owned(os.lstat(str(folder)), owners):
            return None
        facts = read_owned(folder / (_plan_stem(engine, tensorrt) + ".json"), owners)
        plan = read_owned(folder / (_plan_stem(engine, tensorrt) + ".plan"), owners)
        if facts is None or plan is None:
            return None
        record = read(RefittedPlan, parse_json(bytes(facts), "refitted"))
    except (OSError, DeviceError):
        return None
    # the digest also detects a file that was cut off or damaged
    return plan if record == RefittedPlan(engine, tensorrt, sha256(plan)) else None


def write_full_plan(release: Path, engine: str, tensorrt: str, plan: bytes) -> None:
    """Writes a full plan into the release.

        releases/<id>/refitted/<engine's digest>.<flavour>.plan
        releases/<id>/refitted/<engine's digest>.<flavour>.json

    The second is the record (``RefittedPlan``). It is written last, so that a plan without a record
    is incomplete.

    No signature covers these files: they are made on this board. So a plan is used only if none
    but root, this user and the release's owner can have written it, and it never runs embedded
    code (it is stored without the lean runtime, and host code stays forbidden). An account that
    can write as the release's owner can also replace the loader.

    Raises:
        DeviceError: "board.disk-full" and other errors of the disk.
    """
    folder = release / _FOLDER
    stem = _plan_stem(engine, tensorrt)
    record = RefittedPlan(engine, tensorrt, sha256(plan))
    with map_os_errors(str(folder)):
        folder.mkdir(exist_ok=True)
        folder.chmod(0o700)  # whatever the umask
        for name, data in (
            (stem + ".plan", plan),
            (stem + ".json", dump(record)),
        ):
            write_durably(folder / name, data)
            (folder / name).chmod(0o600)


def _plan_stem(engine: str, tensorrt: str) -> str:
    # a plan for each flavour; another version's plan is overwritten
    return "{}.{}".format(engine, tensorrt.partition(" ")[0])
