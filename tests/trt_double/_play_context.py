"""IExecutionContext: runs the plan's ONNX model with ONNX Runtime on what the addresses hold."""

import ctypes
from typing import Any

from ._behaviour import plays
from ._formats import NUMPY, nbytes, pack, strides, unpack
from ._memory import MEMORY
from ._play_base import emit
from ._play_engine import io_of
from ._play_memory import leave, take
from ._play_refit import current_model
from ._value_shapes import by_value


@plays("ICudaEngine", "create_execution_context")
def _create(this: Any, strategy: Any = None, runtime_config: Any = None) -> Any:
    if runtime_config is not None:
        strategy = runtime_config.get_execution_context_allocation_strategy()
    made = this._s.double.factory.new(
        "IExecutionContext",
        engine=this,
        logger=this._s.logger,
        addresses={},
        shapes={},
        profiler=None,
        error_recorder=this._s.error_recorder,
        enqueue_emits_profile=True,
        debug_sync=False,
        name="",
        active_optimization_profile=0,
        pending=[],
        sessions={},
        enqueued=False,
        user_managed=strategy is not None and strategy.name == "USER_MANAGED",
        scratch=0,
        persistent_cache_limit=0,
    )
    this._s.contexts.add(made)
    return made


def _shape_of(this: Any, name: str) -> list[int]:
    return list(this._s.shapes.get(name, io_of(this._s.engine, name)["shape"]))


@plays("IExecutionContext", "set_input_shape")
def _set_shape(this: Any, name: str, shape: Any) -> bool:
    state = this._s
    try:
        one = io_of(state.engine, name)
    except KeyError:
        return False
    given, built = [int(item) for item in shape], one["shape"]
    if len(given) != len(built) or any(b not in (-1, g) for g, b in zip(given, built, strict=True)):
        emit(state.double, state.logger, "ERROR", f"setInputShape: {name} {given} is not {built}")
        return False
    profiles = state.engine._s.facts["profiles"]
    limits = profiles[state.active_optimization_profile].get(name) if profiles else None
    if limits and any(
        not low <= item <= high for item, low, high in zip(given, limits[0], limits[2], strict=True)
    ):
        emit(
            state.double,
            state.logger,
            "ERROR",
            f"setInputShape: {name} {given} is outside its profile",
        )
        return False
    state.shapes[name] = given
    return True


@plays("IExecutionContext", "get_tensor_shape")
def _get_shape(this: Any, name: str) -> Any:
    shape = _shape_of(this, name)
    if -1 in shape and not _unset(this) and not _unsized(this, name):
        shape = _outputs(this)[name]
    return this._s.double.factory.classes["Dims"](shape)


@plays("IExecutionContext", "get_tensor_strides")
def _strides(this: Any, name: str) -> Any:
    one = io_of(this._s.engine, name)
    found = strides(list(_get_shape(this, name)), one["dtype"], one["format"])
    return this._s.double.factory.classes["Dims"](found)


def _unsized(this: Any, name: str) -> bool:
    """Whether the shape depends on values, which nobody knows before the run."""
    import onnx

    model = this._s.engine._s.model
    return -1 in _shape_of(this, name) and name in by_value(onnx.load_model_from_string(model))


def _unset(this: Any) -> list[str]:
    """Inputs whose dynamic shape was not given."""
    return [
        one["name"]
        for one in this._s.engine._s.facts["io"]
        if one["mode"] == "INPUT" and -1 in _shape_of(this, one["name"])
    ]


@plays("IExecutionContext", "infer_shapes")
def _infer(this: Any) -> list[str]:
    return _unset(this)


@plays("IExecutionContext", "get all_binding_shapes_specified", "get all_shape_inputs_specified")
def _specified(this: Any) -> bool:
    return not _unset(this)


@plays("IExecutionContext", "set_optimization_profile_async")
def _set_profile(this: Any, profile_index: int, stream_handle: int) -> bool:
    if not 0 <= profile_index < max(1, len(this._s.engine._s.facts["profiles"])):
        return False
    this._s.active_optimization_profile = profile_index
    this._s.shapes.clear()
    return True


@plays("IExecutionContext", "set_tensor_address")
def _set_address(this: Any, name: str, memory: int) -> bool:
    try:
        io_of(this._s.engine, name)
    except KeyError:
        emit(this._s.double, this._s.logger, "ERROR", f"setTensorAddress: unknown tensor {name}")
        return False
    this._s.addresses[name] = memory
    return True


@plays("IExecutionContext", "get_tensor_address")
def _get_address(this: Any, name: str) -> int:
    return int(this._s.addresses.get(name, 0))


@plays("IExecutionContext", "execute_async_v3")
def _execute(this: Any, stream_handle: int) -> bool:
    state = this._s
    double, facts = state.double, state.engine._s.facts
    missing = [one["name"] for one in facts["io"] if not state.addresses.get(one["name"])]
    if missing or _unset(this):
        double.offend(f"execute_async_v3 without {', '.join(missing or _unset(this))}")
        emit(double, state.logger, "ERROR", f"enqueueV3: address or shape of {missing} is not set")
        return False
    unsized = [one["name"] for one in facts["io"] if _unsized(this, one["name"])]
    if unsized:
        double.offend(f"execute_async_v3 without an output allocator for {', '.join(unsized)}")
        return False
    if not state.engine._s.refitted:
        double.offend("a stripped engine ran before it was refitted")
    if stream_handle in MEMORY.captures:
        if facts.get("dla") or facts.get("dla_core") is not None:
            double.offend("a plan that uses a DLA is captured")
        if not state.enqueued:
            double.offend("the first enqueue of a context is captured")
    state.enqueued = True
    before = len(MEMORY.offences)
    shapes = {one["name"]: list(_get_shape(this, one["name"])) for one in facts["io"]}
    if MEMORY.used:
        for one in facts["io"]:
            size = nbytes(shapes[one["name"]], one["dtype"], one["format"])
            MEMORY.covers(state.addresses[one["name"]], size, f"tensor {one['name']}")
    if len(MEMORY.offences) > before:
        double.violations.extend(MEMORY.offences[before:])
        return False
    if not take(this, stream_handle):
        return False
    addresses = dict(state.addresses)

    def work() -> None:
        try:
            _run(this, addresses, shapes)
        finally:
            leave(this)

    MEMORY.enqueue(stream_handle, work)
    return True


def _session(this: Any) -> Any:
    import onnxruntime as ort

    engine = this._s.engine
    key = id(engine._s.values), len(engine._s.values), engine._s.refitted
    if key not in this._s.sessions:
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 4
        data = current_model(engine)
        this._s.sessions = {
            key: ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        }
    return this._s.sessions[key]


def _outputs(this: Any) -> dict[str, list[int]]:
    """Shapes of all I/O with the inputs' shapes that are set, from a run over zeros."""
    import numpy as np

    session = _session(this)
    feeds, found = {}, {}
    for one in session.get_inputs():
        found[one.name] = _shape_of(this, one.name)
        kind = np.float16 if "16" in one.type else np.int64 if "int64" in one.type else np.float32
        feeds[one.name] = np.zeros(found[one.name], kind)
    names = [one.name for one in session.get_outputs()]
    for name, value in zip(names, session.run(None, feeds), strict=True):
        found[name] = list(value.shape)
    return found


_ORT = {
    "tensor(float)": "float32",
    "tensor(float16)": "float16",
    "tensor(int64)": "int64",
    "tensor(int32)": "int32",
    "tensor(bool)": "bool",
    "tensor(uint8)": "uint8",
    "tensor(int8)": "int8",
}


def _run(this: Any, addresses: dict[str, int], shapes: dict[str, list[int]]) -> None:
    import numpy as np

    session = _session(this)
    facts = {one["name"]: one for one in this._s.engine._s.facts["io"]}
    feeds = {}
    for want in session.get_inputs():
        one, shape = facts[want.name], shapes[want.name]
        raw = ctypes.string_at(addresses[want.name], nbytes(shape, one["dtype"], one["format"]))
        value = unpack(raw, shape, one["dtype"], one["format"])
        if one["dtype"] == "INT8" and _ORT[want.type] != "int8":
            value = value.astype(np.float32) * np.float32(one["scale"])
        feeds[want.name] = value.astype(_ORT[want.type])
    names = [one.name for one in session.get_outputs()]
    for name, value in zip(names, session.run(names, feeds), strict=True):
        one, stored = facts[name], value
        if one["dtype"] == "INT8" and value.dtype != np.int8:
            stored = np.clip(np.rint(value / np.float32(one["scale"])), -128, 127)
        raw = pack(stored.astype(NUMPY[one["dtype"]]), one["dtype"], one["format"])
        ctypes.memmove(addresses[name], raw, len(raw))
    profiler = this._s.profiler
    if profiler is not None:
        if this._s.enqueue_emits_profile:
            _report(this)
        else:
            this._s.pending.append(True)


def _report(this: Any) -> None:
    for layer in this._s.engine._s.facts["layers"]:
        this._s.profiler.report_layer_time(layer["name"], 0.125)


@plays("IExecutionContext", "report_to_profiler")
def _report_to_profiler(this: Any) -> bool:
    if this._s.profiler is None or not this._s.pending:
        return False
    this._s.pending.clear()
    _report(this)
    return True
