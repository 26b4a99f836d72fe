"""IExecutionContext: runs the plan's ONNX model with ONNX Runtime on what the addresses hold."""

import ctypes
from typing import Any

from ._behaviour import plays
from ._formats import NUMPY, nbytes, pack, strides, unpack
from ._memory import MEMORY
from ._play_base import emit
from ._play_engine import io_of, on_host
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
        allocators={},
    )
    if not this._s.facts.get("profile_sharing", True) and this._s.facts["profiles"]:
        # "For the first execution context created for an engine, profile 0 is implicitly chosen"
        taken = {one._s.active_optimization_profile for one in this._s.contexts}
        made._s.active_optimization_profile = -1 if taken else 0
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
    if state.active_optimization_profile < 0:
        text = "setInputShape: no optimization profile is set in this context"
        emit(state.double, state.logger, "ERROR", text)
        return False
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
        shape = _outputs(this).get(name, shape)
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
    """Inputs whose dynamic shape was not given, or on the host their values."""
    return [
        one["name"]
        for one in this._s.engine._s.facts["io"]
        if one["mode"] == "INPUT"
        and (
            -1 in _shape_of(this, one["name"])
            or (on_host(this._s.engine, one["name"]) and one["name"] not in this._s.addresses)
        )
    ]


@plays("IExecutionContext", "infer_shapes")
def _infer(this: Any) -> list[str]:
    return _unset(this)


@plays("IExecutionContext", "set_optimization_profile_async")
def _set_profile(this: Any, profile_index: int, stream_handle: int) -> bool:
    if not 0 <= profile_index < max(1, len(this._s.engine._s.facts["profiles"])):
        return False
    engine = this._s.engine._s
    others = [one for one in engine.contexts if one is not this]
    if not engine.facts.get("profile_sharing", True) and any(
        one._s.active_optimization_profile == profile_index for one in others
    ):
        text = f"setOptimizationProfileAsync: profile {profile_index} is another context's"
        emit(this._s.double, this._s.logger, "ERROR", text)
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


@plays("IOutputAllocator", "__init__")
def _allocator(this: Any) -> None:
    return None


@plays("IExecutionContext", "set_output_allocator")
def _set_allocator(this: Any, name: str, output_allocator: Any) -> bool:
    one = next((one for one in this._s.engine._s.facts["io"] if one["name"] == name), None)
    if one is None or one["mode"] != "OUTPUT":
        emit(this._s.double, this._s.logger, "ERROR", f"setOutputAllocator: {name} is no output")
        return False
    this._s.allocators[name] = output_allocator
    return True


@plays("IExecutionContext", "execute_async_v3")
def _execute(this: Any, stream_handle: int) -> bool:
    state = this._s
    double, facts = state.double, state.engine._s.facts
    missing = [
        one["name"]
        for one in facts["io"]
        if not state.addresses.get(one["name"]) and one["name"] not in state.allocators
    ]
    if missing or _unset(this):
        double.offend(f"execute_async_v3 without {', '.join(missing or _unset(this))}")
        emit(double, state.logger, "ERROR", f"enqueueV3: address or shape of {missing} is not set")
        return False
    unsized = [one["name"] for one in facts["io"] if _unsized(this, one["name"])]
    if lacking := [name for name in unsized if name not in state.allocators]:
        double.offend(f"execute_async_v3 without an output allocator for {', '.join(lacking)}")
        return False
    if unsized and stream_handle in MEMORY.captures:
        double.offend("a run whose outputs are allocated meanwhile is captured")
        return False
    if not state.engine._s.refitted:
        double.offend("a stripped engine ran before it was refitted")
    if stream_handle in MEMORY.captures:
        if facts.get("dla") or facts.get("dla_core") is not None:
            double.offend("a plan that uses a DLA is captured")
        if not state.enqueued:
            double.offend("the first enqueue of a context is captured")
    state.enqueued = True
    shapes = {one["name"]: list(_get_shape(this, one["name"])) for one in facts["io"]}
    if not _placed(this, shapes, unsized):
        return False
    if not take(this, stream_handle):
        return False
    addresses = dict(state.addresses)
    if unsized:  # the host waits for the sizes
        MEMORY.flush(stream_handle)
        try:
            return _run(this, addresses, shapes)
        finally:
            leave(this)

    def work() -> None:
        try:
            _run(this, addresses, shapes)
        finally:
            leave(this)

    MEMORY.enqueue(stream_handle, work)
    return True


def _placed(this: Any, shapes: dict[str, list[int]], unsized: list[str]) -> bool:
    """Whether every tensor lies where it fits: on the device, or on the host if it makes shapes."""
    state, before = this._s, len(MEMORY.offences)
    for one in state.engine._s.facts["io"] if MEMORY.used else ():
        if one["name"] in unsized:
            continue
        address = state.addresses[one["name"]]
        if not on_host(state.engine, one["name"]):
            size = nbytes(shapes[one["name"]], one["dtype"], one["format"])
            MEMORY.covers(address, size, f"tensor {one['name']}")
        elif MEMORY.space(address) is not None and address not in MEMORY.host:
            MEMORY.offend(f"tensor {one['name']} of the host lies on the device")
    state.double.violations.extend(MEMORY.offences[before:])
    return len(MEMORY.offences) == before


def _allocated(this: Any, name: str, shape: list[int], size: int) -> int:
    """Where an output goes whose size is known now: what its allocator says."""
    double, allocator = this._s.double, this._s.allocators[name]
    size = max(size, 1)  # "Always positive, even for an empty tensor" (NvInferRuntime.h)
    given = (name, this._s.addresses.get(name, 0), size, 256)
    if double.build >= (10,) and hasattr(allocator, "reallocate_output_async"):
        address = allocator.reallocate_output_async(*given, 0)
    else:
        address = allocator.reallocate_output(*given)
    if not address or (MEMORY.used and not MEMORY.covers(address, size, f"output {name}")):
        emit(double, this._s.logger, "ERROR", f"the allocator has no memory for {name}")
        return 0
    allocator.notify_shape(name, double.factory.classes["Dims"](shape))
    return int(address)


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
    facts = {one["name"]: one for one in this._s.engine._s.facts["io"]}
    feeds, found = {}, {}
    for one in session.get_inputs():
        found[one.name] = _shape_of(this, one.name)
        kind = _ORT[one.type]
        feeds[one.name] = np.zeros(found[one.name], kind)
        if on_host(this._s.engine, one.name):
            size = nbytes(found[one.name], facts[one.name]["dtype"], "LINEAR")
            raw = ctypes.string_at(this._s.addresses[one.name], size)
            values = np.frombuffer(raw, NUMPY[facts[one.name]["dtype"]])
            feeds[one.name] = values.reshape(found[one.name]).astype(kind)
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


def _run(this: Any, addresses: dict[str, int], shapes: dict[str, list[int]]) -> bool:
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
        if name in this._s.allocators:
            addresses[name] = _allocated(this, name, list(value.shape), len(raw))
            if not addresses[name]:
                return False
        ctypes.memmove(addresses[name], raw, len(raw))
    profiler = this._s.profiler
    if profiler is not None:
        if this._s.enqueue_emits_profile:
            _report(this)
        else:
            this._s.pending.append(True)
    return True


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
