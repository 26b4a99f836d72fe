"""Device memory of engines and contexts: what a context needs while it runs, whose it is, streamed
weights and the persistent L2 cache.
"""

import threading
from typing import Any

from ._behaviour import plays
from ._memory import MEMORY
from ._play_base import emit

ALIGNED = 256  # cudaDeviceProp::textureAlignment and cudaMalloc's own
_A_LAYER = 512  # bytes that a layer of the double needs while it runs
_STREAMS = 1024  # bytes more that a context needs while weights are streamed to it


def need_of(engine: Any) -> int:
    """Bytes that a context of the engine needs while it runs."""
    given = engine._s.double.settings.device_memory
    if given is not None:
        return int(given)
    size = _A_LAYER * len(engine._s.facts["layers"])
    budget = vars(engine._s).get("weight_budget")
    return size + (_STREAMS if budget is not None and budget < streamable(engine) else 0)


def streamable(engine: Any) -> int:
    """Bytes of weights that can be streamed: none unless it was built so."""
    import onnx

    if "WEIGHT_STREAMING" not in engine._s.facts["flags"]:
        return 0
    model = onnx.load_model_from_string(engine._s.model)
    return sum(len(one.raw_data) for one in model.graph.initializer)


@plays("ICudaEngine", "get device_memory_size", "get device_memory_size_v2")
def _need(this: Any) -> int:
    return need_of(this)


@plays("ICudaEngine", "get streamable_weights_size")
def _streamable(this: Any) -> int:
    return streamable(this)


@plays("ICudaEngine", "get weight_streaming_scratch_memory_size")
def _scratch(this: Any) -> int:
    return _STREAMS if streamable(this) else 0


@plays("ICudaEngine", "get_weight_streaming_automatic_budget")
def _automatic(this: Any) -> int:
    return streamable(this) // 2


@plays("ICudaEngine", "get weight_streaming_budget_v2")
def _budget(this: Any) -> int:
    return int(vars(this._s).get("weight_budget", streamable(this)))


@plays("ICudaEngine", "set weight_streaming_budget_v2")
def _set_budget(this: Any, value: int) -> None:
    state = this._s
    whole = streamable(this)
    contexts = len(state.contexts)
    if not whole or value < 0 or contexts:
        why = "a context is active" if contexts else f"{value} of {whole} bytes"
        state.double.offend(f"weight_streaming_budget_v2: {why}")
        emit(state.double, state.logger, "ERROR", f"setWeightStreamingBudgetV2: {why}")
        return
    state.weight_budget = min(value, whole)


@plays("ICudaEngine", "create_execution_context_without_device_memory")
def _bare(this: Any) -> Any:
    made = this.create_execution_context()
    made._s.user_managed = True
    return made


@plays("IExecutionContext", "set_device_memory")
def _set_memory(this: Any, memory: int, size: int) -> None:
    state = this._s
    if not state.user_managed:
        state.double.offend("set_device_memory for a context that has memory of its own")
    if memory % ALIGNED:
        state.double.offend(f"set_device_memory: {memory:#x} is not aligned")
    need = need_of(state.engine)
    if size < need:
        state.double.offend(f"set_device_memory: {size} bytes of {need}")
        emit(state.double, state.logger, "ERROR", f"setDeviceMemoryV2: {size} bytes of {need}")
        return
    state.scratch = memory


@plays("IExecutionContext", "set device_memory")
def _set_address(this: Any, value: int) -> None:
    _set_memory(this, value, need_of(this._s.engine))


@plays("IExecutionContext", "get device_memory")
def _get_address(this: Any) -> int:
    return int(this._s.scratch)


@plays("IExecutionContext", "set persistent_cache_limit")
def _set_cache(this: Any, value: int) -> None:
    if value > MEMORY.persistent_cache:
        this._s.double.offend(f"persistent_cache_limit: {value} of {MEMORY.persistent_cache} bytes")
    this._s.persistent_cache_limit = value


def take(this: Any, stream: int) -> bool:
    """Notes that a context begins to run on ``stream``; False where its memory forbids it."""
    state = this._s
    running = MEMORY.running.get(id(state))
    if running is not None and running[3] != threading.get_ident():
        state.double.offend("a context is used by two threads at once")
    start = end = 0
    if state.user_managed:
        need = need_of(state.engine)
        if need and not state.scratch:
            state.double.offend("execute_async_v3 of a context without device memory")
            return False
        start, end = state.scratch, state.scratch + need
        if MEMORY.used and need and (MEMORY.space(start) or 0) < need:
            state.double.offend(f"the context's device memory is smaller than {need} bytes")
            return False
        for first, last, where, _ in list(MEMORY.running.values()):
            if where != stream and start < last and first < end:
                state.double.offend("two contexts run at once in the same device memory")
    if stream not in MEMORY.captures:  # what a graph holds runs when that is launched
        MEMORY.running[id(state)] = (start, end, stream, threading.get_ident())
    return True


def leave(this: Any) -> None:
    """Notes that its run has ended."""
    MEMORY.running.pop(id(this._s), None)
