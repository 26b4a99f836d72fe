"""The double refuses what the documents forbid about device memory of contexts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.trt_double._memory import MEMORY
from tests.trt_double.double_toys import setup

MANAGED = ["8.6.1", "10.3.0", "10.7.0", "10.16.1", "11.4.0"]


@pytest.fixture(autouse=True)
def _memory() -> Any:
    MEMORY.reset()
    yield
    MEMORY.reset()


def bare(on: Any, engine: Any) -> Any:
    """A context without memory, its tensors bound to new device memory."""
    kinds = getattr(on.trt, "ExecutionContextAllocationStrategy", None)
    if kinds is None:
        context = engine.create_execution_context_without_device_memory()
    else:
        context = engine.create_execution_context(kinds.USER_MANAGED)
    for name, shape in (("x", (1, 3, 8, 8)), ("y", (1, 5))):
        nbytes = int(np.prod(shape)) * 4
        assert context.set_tensor_address(name, MEMORY.allocate(nbytes))
    return context


def lend(context: Any, address: int, nbytes: int) -> None:
    if hasattr(context, "set_device_memory"):
        context.set_device_memory(address, nbytes)
    else:
        context.device_memory = address


def need(engine: Any) -> int:
    return int(getattr(engine, "device_memory_size_v2", None) or engine.device_memory_size)


@pytest.mark.parametrize("version", MANAGED)
def test_a_context_without_memory_needs_some_before_it_runs(version: str) -> None:
    on = setup(version)
    engine = on.runtime().deserialize_cuda_engine(on.plan())
    context, stream = bare(on, engine), MEMORY.stream()
    assert need(engine) > 0
    assert not context.execute_async_v3(stream)
    assert on.violations == ["execute_async_v3 of a context without device memory"]
    on.trt._double.violations.clear()
    lend(context, MEMORY.allocate(need(engine)), need(engine))
    assert context.execute_async_v3(stream)
    MEMORY.flush(stream)
    assert on.violations == []


def test_memory_of_another_size_or_place_is_an_offence() -> None:
    on = setup("10.3.0")
    engine = on.runtime().deserialize_cuda_engine(on.plan())
    context, nbytes = bare(on, engine), need(engine)
    address = MEMORY.allocate(2 * nbytes)
    context.set_device_memory(address, nbytes - 1)
    context.set_device_memory(address + 8, nbytes)
    engine.create_execution_context().set_device_memory(address, nbytes)
    assert on.violations == [
        f"set_device_memory: {nbytes - 1} bytes of {nbytes}",
        f"set_device_memory: {address + 8:#x} is not aligned",
        "set_device_memory for a context that has memory of its own",
    ]
    on.trt._double.violations.clear()
    context.set_device_memory(MEMORY.allocate(nbytes - 256), nbytes)  # smaller than it is said
    assert not context.execute_async_v3(MEMORY.stream())
    assert "the context's device memory" in on.violations[0]


def test_two_contexts_share_memory_only_one_after_the_other() -> None:
    on = setup("10.3.0")
    engine = on.runtime().deserialize_cuda_engine(on.plan())
    first, second = bare(on, engine), bare(on, engine)
    one, other = MEMORY.stream(), MEMORY.stream()
    address = MEMORY.allocate(need(engine))
    for context in (first, second):
        context.set_device_memory(address, need(engine))
    assert first.execute_async_v3(one)
    MEMORY.flush(one)
    assert second.execute_async_v3(other)
    assert on.violations == []
    assert first.execute_async_v3(one)
    assert on.violations == ["two contexts run at once in the same device memory"]


def test_a_budget_needs_streamed_weights_and_no_context() -> None:
    on = setup("10.7.0")
    engine = on.runtime().deserialize_cuda_engine(on.plan())
    assert engine.streamable_weights_size == 0
    engine.weight_streaming_budget_v2 = 100
    assert on.violations == ["weight_streaming_budget_v2: 100 of 0 bytes"]
    on = setup("10.7.0", "WEIGHT_STREAMING", typed=True)
    engine = on.runtime().deserialize_cuda_engine(on.plan())
    whole = engine.streamable_weights_size
    assert engine.weight_streaming_budget_v2 == whole > 0
    before = need(engine)
    engine.weight_streaming_budget_v2 = 64
    assert engine.weight_streaming_budget_v2 == 64
    assert need(engine) == before + engine.weight_streaming_scratch_memory_size
    engine.weight_streaming_budget_v2 = 2 * whole
    assert engine.weight_streaming_budget_v2 == whole
    context = engine.create_execution_context()
    engine.weight_streaming_budget_v2 = 64
    assert on.violations == ["weight_streaming_budget_v2: a context is active"]
    assert context is not None
    on.trt._double.violations.clear()


def test_more_persistent_cache_than_the_gpu_has_is_an_offence() -> None:
    on = setup("8.6.1")
    context = on.runtime().deserialize_cuda_engine(on.plan()).create_execution_context()
    context.persistent_cache_limit = MEMORY.persistent_cache
    assert on.violations == []
    context.persistent_cache_limit = MEMORY.persistent_cache + 1
    assert len(on.violations) == 1
