"""Loggers, memory, dimensions, weights and the module's functions."""

from typing import Any

from ._behaviour import plays, plays_function

_NUMPY = {
    "FLOAT": "float32",
    "HALF": "float16",
    "INT8": "int8",
    "INT32": "int32",
    "INT64": "int64",
    "BOOL": "bool",
    "UINT8": "uint8",
}


def emit(double: Any, logger: Any, severity: str, text: str) -> None:
    """One message: kept in the double and given to `logger` as the library gives it."""
    double.messages.append((severity, text))
    kinds = double.factory.classes
    if logger is None:
        return
    level = kinds["ILogger.Severity"].__members__[severity]
    if isinstance(logger, kinds["Logger"]) and type(logger) is kinds["Logger"]:
        logger._s.messages.append((severity, text))
        return
    logger.log(level, text)


@plays("ILogger", "__init__")
def _ilogger(this: Any) -> None:
    this._s.messages = []


@plays("ILogger", "log")
def _ilog(this: Any, severity: Any, msg: str) -> None:
    raise RuntimeError('Tried to call pure virtual function "ILogger::log"')


@plays("Logger", "__init__")
def _logger(this: Any, min_severity: Any) -> None:
    this._s.min_severity = min_severity
    this._s.messages = []


@plays("Logger", "log")
def _log(this: Any, severity: Any, msg: str) -> None:
    this._s.messages.append((severity.name, msg))


@plays("IHostMemory", "get nbytes")
def _nbytes(this: Any) -> int:
    return bytes.__len__(this)


@plays("IHostMemory", "get dtype")
def _host_dtype(this: Any) -> Any:
    raise NotImplementedError("IHostMemory.dtype")


@plays("Dims", "__init__")
def _dims(this: Any, shape: Any = ()) -> None:
    this._s.values = list(shape)


@plays("Dims", "__len__")
def _dims_len(this: Any) -> int:
    return len(this._s.values)


@plays("Dims", "__getitem__")
def _dims_item(this: Any, index: Any) -> Any:
    found = this._s.values[index]
    return tuple(found) if isinstance(index, slice) else found


@plays("Dims", "__iter__")
def _dims_iter(this: Any) -> Any:
    return iter(this._s.values)


@plays("Dims", "__eq__")
def _dims_eq(this: Any, other: Any) -> bool:
    return list(this) == list(other)


@plays("Dims", "__str__")
def _dims_str(this: Any) -> str:
    return str(tuple(this._s.values))


@plays_function("volume")
def _volume(factory: Any, iterable: Any) -> int:
    import math

    return math.prod(iterable) if iterable else 1
