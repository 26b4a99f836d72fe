"""Refitter and Weights."""

from typing import Any

from ._behaviour import plays
from ._onnx_weights import set_refit_weights
from ._plan_facts import digest
from ._play_base import emit

_DTYPES = {
    "float32": "FLOAT",
    "float16": "HALF",
    "int8": "INT8",
    "int32": "INT32",
    "int64": "INT64",
    "bool": "BOOL",
    "uint8": "UINT8",
}

_RAW = {"BF16": "uint16"}  # types without a NumPy equivalent, by size


def current_model(engine: Any) -> bytes:
    """The engine's ONNX with the weights it was refitted with."""
    import onnx

    if not engine._s.values:
        return bytes(engine._s.model)
    model = onnx.load_model_from_string(engine._s.model)
    set_refit_weights(model, engine._s.values, engine._s.plan_version)
    return bytes(model.SerializeToString())


@plays("Weights", "__init__")
def _weights(this: Any, type: Any = None, ptr: int = 0, count: int = 0, a: Any = None) -> None:
    import ctypes

    import numpy as np

    kinds = this._s.double.factory.classes["DataType"].__members__
    if a is not None:
        if not isinstance(a, np.ndarray):
            raise TypeError("Weights(a: numpy.ndarray)")
        if not a.flags.c_contiguous:
            this._s.double.offend("Weights of an array that is not contiguous")
        this._s.array = a.ravel()
        name = _DTYPES.get(str(a.dtype))
        if name not in kinds:  # what the bindings say (utils.cpp, "type(py::dtype const&)")
            kind = f"{a.dtype.kind}{a.dtype.itemsize * 8}"
            raise ValueError(f"Could not implicitly convert NumPy data type: {kind} to TensorRT.")
        this._s.dtype = kinds[name]
        return
    this._s.dtype = type
    plain = {name: key for key, name in _DTYPES.items()}.get(
        type.name, _RAW.get(type.name, "uint8")
    )
    size = count * np.dtype(plain).itemsize
    this._s.array = np.frombuffer(ctypes.string_at(ptr, size) if ptr else b"", plain)
    this._s.count = count


@plays("Weights", "get size")
def _size(this: Any) -> int:
    return int(vars(this._s).get("count") or this._s.array.size)


@plays("Weights", "get nbytes")
def _nbytes(this: Any) -> int:
    return int(this._s.array.nbytes)


@plays("Weights", "numpy")
def _numpy(this: Any) -> Any:
    return this._s.array


@plays("Weights", "__len__")
def _len(this: Any) -> int:
    return _size(this)


@plays("Refitter", "__init__")
def _refitter(this: Any, engine: Any, logger: Any) -> None:
    this._s.engine, this._s.logger = engine, logger
    this._s.given = {}
    this._s.error_recorder = None
    this._s.max_threads = 1
    this._s.weights_validation = True
    if engine._s.facts["refit"] == "none":
        emit(
            this._s.double,
            logger,
            "ERROR",
            "3: [refit.cpp::createInferRefitter_INTERNAL::1209] Error Code 3: API Usage Error "
            "(Parameter check failed at: "
            "optimizer/std/refit.cpp::createInferRefitter_INTERNAL::1209, condition: "
            "e.isRefittable()",
        )
        raise TypeError("pybind11::init(): factory function returned nullptr")


def _prototypes(this: Any) -> dict[str, Any]:
    found: dict[str, Any] = this._s.engine._s.facts["weights"]
    return found


@plays("Refitter", "get_all_weights")
def all_names(this: Any) -> list[str]:
    """Names of the weights that can be refitted."""
    return sorted(_prototypes(this))


@plays("Refitter", "get_missing_weights")
def _missing(this: Any) -> list[str]:
    if this._s.engine._s.refitted:
        return []
    return sorted(set(_prototypes(this)) - set(this._s.given))


@plays("Refitter", "get_weights_prototype")
def _prototype(this: Any, weights_name: str) -> Any:
    import math

    double, one = this._s.double, _prototypes(this).get(weights_name)
    kind = double.factory.classes["Weights"]
    types = double.factory.classes["DataType"].__members__
    if one is None:
        emit(double, this._s.logger, "ERROR", f"IRefitter: no weights {weights_name}")
        return kind(types["FLOAT"], 0, 0)
    return kind(types[_DTYPES[one["dtype"]]], 0, math.prod(one["shape"]))


@plays("Refitter", "set_named_weights")
def set_named(this: Any, name: str, weights: Any, location: Any = None) -> bool:
    """Takes weights for the next refit; False where they differ from the prototype."""
    import math

    double, one = this._s.double, _prototypes(this).get(name)
    if not isinstance(weights, double.factory.classes["Weights"]):
        weights = double.factory.classes["Weights"](weights)
    if one is None:
        emit(double, this._s.logger, "ERROR", f"IRefitter::setNamedWeights: unknown weights {name}")
        return False
    if weights.size != math.prod(one["shape"]) or weights.dtype.name != _DTYPES[one["dtype"]]:
        emit(
            double,
            this._s.logger,
            "ERROR",
            f"IRefitter::setNamedWeights: {name} differs from its prototype",
        )
        return False
    # a view on the caller's memory until refit_cuda_engine, as in TensorRT
    this._s.given[name] = weights._s.array
    return True


@plays("Refitter", "refit_cuda_engine")
def _refit(this: Any) -> bool:
    double, engine = this._s.double, this._s.engine
    missing = _missing(this)
    if missing:
        emit(double, this._s.logger, "ERROR", f"Missing weights: {', '.join(missing)}")
        return False
    for name, array in this._s.given.items():
        one = engine._s.facts["weights"][name]
        value = array.reshape(one["shape"]).copy()
        if engine._s.facts["refit"] == "identical" and digest(value) != one["digest"]:
            double.offend(f"REFIT_IDENTICAL with other weights: {name}")
        engine._s.values[name] = value
    this._s.given.clear()
    engine._s.refitted = True
    return True


@plays("Refitter", "release_refit_resources")
def _release(_this: Any) -> bool:
    return True
