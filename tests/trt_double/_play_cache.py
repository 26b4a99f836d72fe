"""Timing caches and the calibrators' base."""

import hashlib
from typing import Any

from ._behaviour import plays
from ._play_base import emit

_MAGIC = b"edgekit test timing cache\n"


def host_memory(double: Any, data: bytes) -> Any:
    """`data` as the IHostMemory of the module."""
    return double.factory.classes["IHostMemory"](data)


@plays("IBuilderConfig", "create_timing_cache")
def _create_cache(this: Any, serialized_timing_cache: Any) -> Any:
    data = bytes(memoryview(serialized_timing_cache))
    if data and not data.startswith(_MAGIC):
        text = "Failed to deserialize timing cache. Returning an empty timing cache."
        emit(this._s.double, this._s.logger, "WARNING", text)
        data = b""
    head, _, body = data.removeprefix(_MAGIC).partition(b"\n")
    entries = set(body.decode().split()) if data else set()
    return this._s.double.factory.new("ITimingCache", entries=entries, made_by=head.decode())


@plays("IBuilderConfig", "set_timing_cache")
def _set_cache(this: Any, cache: Any, ignore_mismatch: bool) -> bool:
    double = this._s.double
    if cache._s.made_by not in ("", _device(double)) and not ignore_mismatch:
        emit(
            double,
            this._s.logger,
            "WARNING",
            "The timing cache was made with another TensorRT or GPU",
        )
        return False
    this._s.timing_cache = cache
    return True


@plays("IBuilderConfig", "get_timing_cache")
def _get_cache(this: Any) -> Any:
    return this._s.timing_cache


@plays("ITimingCache", "serialize")
def _serialize(this: Any) -> Any:
    body = "\n".join(sorted(this._s.entries)).encode()
    return host_memory(this._s.double, _MAGIC + _device(this._s.double).encode() + b"\n" + body)


@plays("ITimingCache", "combine")
def _combine(this: Any, input_cache: Any, ignore_mismatch: bool) -> bool:
    if input_cache._s.made_by != this._s.made_by and not ignore_mismatch:
        return False
    this._s.entries |= input_cache._s.entries
    return True


@plays("ITimingCache", "reset")
def _reset(this: Any) -> bool:
    this._s.entries.clear()
    return True


def time_layers(config: Any, layers: list[Any], *, may_time: bool = True) -> int:
    """Fills the config's cache with an entry per layer; how many had to be timed anew.

    Without `may_time` the cache stays as it is.
    """
    if config._s.timing_cache is None:
        return len(layers)
    known = config._s.timing_cache._s.entries
    fresh = {hashlib.sha256(one._s.name.encode()).hexdigest()[:16] for one in layers} - known
    if may_time:
        known |= fresh
    return len(fresh)


def _device(double: Any) -> str:
    return ".".join(map(str, double.build))


@plays("IInt8Calibrator", "__init__")
def _calibrator(this: Any) -> None:
    this._s.algorithm = this._s.kind


@plays(
    "IInt8Calibrator",
    "get_batch",
    "get_batch_size",
    "read_calibration_cache",
    "write_calibration_cache",
)
def _pure(this: Any, **_named: Any) -> Any:
    raise RuntimeError("Tried to call pure virtual function of a calibrator")


@plays("IProgressMonitor", "__init__")
@plays("IErrorRecorder", "__init__")
@plays("IProfiler", "__init__")
@plays("IStreamReader", "__init__")
@plays("IStreamReaderV2", "__init__")
def _plain(this: Any) -> None:
    return None
