"""Device memory of TensorRT's engines: shared by those that take turns, the caller's, streamed
weights, the persistent L2 cache, and how CUDA loads kernels.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import edgekit_device
from edgekit_device.benchmark.command import describe_runtime
from edgekit_device.benchmark.measure import bench
from edgekit_device.benchmark.settings import BenchSettings
from edgekit_device.cuda.driver import Cuda
from edgekit_device.errors import DeviceError
from edgekit_device.protocol.manifest import (
    BlobEntry,
    Lane,
    MemorySettings,
    SegmentEntry,
)
from edgekit_device.protocol.memory import memory_need
from edgekit_device.runtime.model import Model, open_model
from edgekit_device.trust.bundle import Checked
from tests.edgekit_device.tensorrt.here import Here
from tests.edgekit_device.tensorrt.toys import (
    MemoryBlobs,
    agrees,
    checked,
    entry,
    network,
    plan,
    random_input,
    reference,
)
from tests.trt_double._memory import MEMORY
from tests.trt_double._play_memory import need_of

VERSIONS = ["8.6.1", "10.3.0", "10.7.0", "11.4.0"]
LIMIT_S = 20.0


def larger() -> onnx.ModelProto:
    """The toy with two layers more, other weights, and "z" in the place of "y"."""
    model = network(seed=1)
    nodes = model.graph.node
    nodes[-1].output[0] = "f2"
    nodes.add(op_type="Relu", name="more", input=["f2"], output=["r2"])
    nodes.add(op_type="Sigmoid", name="most", input=["r2"], output=["z"])
    model.graph.output[0].name = "z"
    return model


def pair(version: str, second: str = "GPU", **settings: Any) -> Checked:
    """A bundle of two engines of "x": the toy on the GPU gives "y", the larger one "z"."""
    bundle = checked(plan(version), entry(version))
    on_dla = second != "GPU"
    data = plan(version, model=larger(), dla=on_dla)
    digest = hashlib.sha256(data).hexdigest()
    before = bundle.manifest
    (first,) = before.lanes[0].segments
    (out,) = before.engines[first.engine].outputs
    about = entry(version, dla_core=0 if on_dla else None, outputs=(replace(out, name="z"),))
    manifest = replace(
        before,
        lanes=(Lane(1.0, (first, SegmentEntry(1, second, digest, ("x",), ("z",), ("more",)))),),
        outputs=(*before.outputs, replace(before.outputs[0], name="z")),
        engines={**before.engines, digest: about},
        blobs={**before.blobs, digest: BlobEntry(len(data), "engine")},
        memory=MemorySettings(**settings),
    )
    blobs = bundle.files.blobs
    assert isinstance(blobs, MemoryBlobs)
    files = replace(bundle.files, blobs=MemoryBlobs({**blobs.values, digest: data}))
    return Checked(files, manifest, bundle.signer)


def measured(bundle: Checked) -> Checked:
    """The bundle with what its builder saw of the contexts' memory."""
    model = open_model(bundle)
    sizes = {key[0]: engine.facts.context_bytes for key, engine in model.engines.items()}
    engines = {
        digest: replace(about, device_bytes=sizes[digest])
        for digest, about in bundle.manifest.engines.items()
    }
    return replace(bundle, manifest=replace(bundle.manifest, engines=engines))


def expect(outputs: Mapping[str, np.ndarray], x: np.ndarray) -> None:
    import onnxruntime as ort

    session = ort.InferenceSession(larger().SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(outputs["y"], reference(network(), x), rtol=1e-5)
    np.testing.assert_allclose(outputs["z"], session.run(["z"], {"x": x})[0], rtol=1e-5)


def contexts(model: Model) -> list[Any]:
    return [slot.context for engine in model.engines.values() for slot in engine._slots]


def places(model: Model) -> list[int]:
    """Where each context was told that its memory is; 0 for one that has its own."""
    return [context._s.scratch for context in contexts(model)]


class OnGpu:
    """A tensor of another library on the GPU."""

    def __init__(self, nbytes: int, offset: int = 0, **changes: Any) -> None:
        self.address = MEMORY.allocate(nbytes + offset) + offset
        self.__cuda_array_interface__ = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (self.address, False),
            "version": 3,
            "strides": None,
            **changes,
        }


@pytest.fixture
def meeting(here: Here) -> Iterator[threading.Barrier]:
    """Two threads meet after each has enqueued a run, so that both run at once."""
    met, original = threading.Barrier(2, timeout=LIMIT_S), Cuda.record
    events: dict[int, int] = {}

    def record(self: Cuda, event: int, stream: int = 0) -> None:
        original(self, event, stream)
        ident = threading.get_ident()
        events[ident] = events.get(ident, 0) + 1
        if events[ident] == 2:  # the event after the first engine's work
            met.wait()

    with here.monkeypatch.context() as patch:
        patch.setattr(Cuda, "record", record)
        yield met


@pytest.mark.few(2)
@pytest.mark.parametrize("version", VERSIONS)
def test_engines_of_one_device_share_a_block_as_large_as_the_larger_needs(
    here: Here, version: str
) -> None:
    here.has(version)
    model = open_model(pair(version))
    for seed in range(3):
        expect(model({"x": random_input(seed)}), random_input(seed))
    needs = [need_of(context._s.engine) for context in contexts(model)]
    assert needs[0] < needs[1]
    (place,) = set(places(model))
    assert MEMORY.space(place) == max(needs)
    assert all(context._s.user_managed for context in contexts(model))


def test_one_engine_has_tensorrts_own_memory(here: Here) -> None:
    here.has("10.3.0")
    model = open_model(checked(plan("10.3.0"), entry("10.3.0")))
    model({"x": random_input()})
    assert places(model) == [0]
    assert [engine.facts.context_memory for engine in model.engines.values()] == ["own"]


def test_a_bundle_may_forbid_sharing(here: Here) -> None:
    here.has("10.3.0")
    model = open_model(pair("10.3.0", shared=False))
    expect(model({"x": random_input()}), random_input())
    assert places(model) == [0, 0]


def test_engines_of_two_devices_have_memory_of_their_own(here: Here) -> None:
    here.has("10.3.0")
    bundle = pair("10.3.0", "DLA0")
    model = open_model(bundle)
    frames = [{"x": random_input(seed)} for seed in range(6)]
    for frame, found in zip(frames, model.stream(frames), strict=True):
        expect(found, frame["x"])
    # nobody to share with on either device
    assert places(model) == [0, 0]
    need = memory_need(measured(bundle).manifest)
    assert set(need.contexts) == {"GPU", "DLA0"}
    given = OnGpu(need.device_memory)
    model = open_model(measured(bundle), device_memory=given)
    for frame, found in zip(frames, model.stream(frames), strict=True):
        expect(found, frame["x"])
    gpu, dla = sorted(places(model))
    assert {gpu, dla} >= {given.address}
    assert dla - gpu in need.contexts.values()


def test_a_cuda_graph_keeps_the_memory_of_its_contexts(here: Here) -> None:
    here.has("10.3.0")
    model = open_model(pair("10.3.0"))
    frames = [{"x": random_input(seed)} for seed in range(2)]
    found = bench(model, frames, BenchSettings(0.0, 0.0, 4, graph=True))
    assert found.iterations == 4
    expect(model(frames[0]), frames[0]["x"])
    bundle = measured(pair("10.3.0"))
    given = OnGpu(memory_need(bundle.manifest).device_memory)
    with pytest.raises(DeviceError) as caught:
        bench(open_model(bundle, device_memory=given), frames, BenchSettings(0, 0, 4, graph=True))
    assert caught.value.code == "memory.small"


@pytest.mark.usefixtures("meeting")
def test_threads_that_run_at_once_have_a_context_and_a_block_each(here: Here) -> None:
    here.has("10.3.0")
    model = open_model(pair("10.3.0"))
    inputs = [random_input(seed) for seed in range(2)]
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda x: model({"x": x}), inputs))
    for x, outputs in zip(inputs, found, strict=True):
        expect(outputs, x)
    first = next(iter(model.engines.values()))
    one, other = first._slots
    assert one.context is not other.context
    assert one.context._s.scratch != other.context._s.scratch


@pytest.mark.few(2)
@pytest.mark.parametrize("version", VERSIONS)
def test_the_callers_memory_is_used_and_threads_take_turns(here: Here, version: str) -> None:
    here.has(version)
    bundle = measured(pair(version))
    given = OnGpu(memory_need(bundle.manifest).device_memory)
    model = open_model(bundle, device_memory=given)
    inputs = [random_input(seed) for seed in range(12)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda x: model({"x": x}), inputs))
    for x, outputs in zip(inputs, found, strict=True):
        expect(outputs, x)
    assert set(places(model)) == {given.address}
    # who waits for the memory needs no context of its own
    assert len(contexts(model)) == 2


def test_too_little_memory_is_refused_with_what_is_needed(here: Here) -> None:
    here.has("10.3.0")
    bundle = measured(pair("10.3.0"))
    need = memory_need(bundle.manifest).device_memory
    with pytest.raises(DeviceError) as caught:
        open_model(bundle, device_memory=OnGpu(need - 1))
    assert caught.value.code == "memory.small"
    assert f"{need:,}" in caught.value.message
    assert f"{need:,} on GPU" in caught.value.hint


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: np.zeros(4096, np.uint8), "ndarray is no tensor on the GPU"),
        (lambda: OnGpu(1 << 16, strides=(2,)), "not contiguous"),
        (lambda: OnGpu(1 << 16, 8), "no multiple of 256"),
    ],
)
def test_what_is_no_memory_for_contexts_is_refused(here: Here, make: Any, why: str) -> None:
    here.has("10.3.0")
    with pytest.raises(DeviceError, match=why) as caught:
        open_model(pair("10.3.0"), device_memory=make())
    assert caught.value.code == "memory.invalid"


def test_a_plan_alone_takes_memory_cache_and_budget(here: Here, tmp_path: Path) -> None:
    here.has("10.7.0")
    file = tmp_path / "toy.plan"
    file.write_bytes(plan("10.7.0", ["WEIGHT_STREAMING"]))
    given = OnGpu(1 << 16)
    model = edgekit_device.load_plan(
        file, device_memory=given, persistent_cache=0.5, weight_budget=64
    )
    agrees(model)
    facts = model.engine.facts
    assert (facts.context_memory, facts.weight_budget_bytes) == ("shared", 64)
    assert facts.persistent_cache_bytes == MEMORY.persistent_cache // 2
    (slot,) = model.engine._slots
    assert slot.context._s.scratch == given.address
    assert slot.context.persistent_cache_limit == MEMORY.persistent_cache // 2


@pytest.mark.parametrize(("asked", "gets"), [(64, 64), (0, 0), (1 << 40, None), (-1, "half")])
def test_the_budget_of_streamed_weights_is_set_before_the_first_context(
    here: Here, asked: int, gets: Any
) -> None:
    here.has("10.7.0")
    bundle = checked(plan("10.7.0", ["WEIGHT_STREAMING"]), entry("10.7.0"))
    manifest = replace(bundle.manifest, memory=MemorySettings(weight_budget=asked))
    model = open_model(replace(bundle, manifest=manifest))
    (engine,) = model.engines.values()
    whole = engine._loaded.engine.streamable_weights_size
    wanted = {None: whole, "half": whole // 2}.get(gets, gets)
    assert engine.facts.weight_budget_bytes == wanted
    agrees(model)
    assert model.notes == ()


@pytest.mark.parametrize(
    ("version", "why"), [("8.6.1", "older than 10.1"), ("10.3.0", "without weight streaming")]
)
def test_a_budget_without_effect_is_noted(here: Here, version: str, why: str) -> None:
    here.has(version)
    bundle = checked(plan(version), entry(version))
    manifest = replace(bundle.manifest, memory=MemorySettings(weight_budget=64))
    (note,) = open_model(replace(bundle, manifest=manifest)).notes
    assert why in note


def test_the_engines_divide_the_persistent_cache(here: Here) -> None:
    here.has("10.3.0")
    model = open_model(pair("10.3.0", persistent_cache=1.0))
    assert [c.persistent_cache_limit for c in contexts(model)] == [MEMORY.persistent_cache // 2] * 2
    (first, _) = model.engines.values()
    # the sum must stay below the device's, so that a further context has none
    assert first._make(0).context.persistent_cache_limit == 0


def test_a_gpu_without_a_persistent_cache_is_noted(here: Here) -> None:
    here.has("8.6.1")
    MEMORY.persistent_cache = 0
    model = open_model(pair("8.6.1", persistent_cache=0.5))
    (note,) = model.notes
    assert "no such cache" in note
    assert {context.persistent_cache_limit for context in contexts(model)} == {0}


@pytest.mark.parametrize(("asked", "found"), [(None, "lazy"), ("EAGER", "eager")])
def test_kernels_are_loaded_lazily_unless_the_user_decides(
    here: Here, asked: str | None, found: str
) -> None:
    here.has("10.3.0")
    if asked is None:
        here.monkeypatch.delenv("CUDA_MODULE_LOADING", raising=False)
    else:
        here.monkeypatch.setenv("CUDA_MODULE_LOADING", asked)
    MEMORY.module_loading = 0
    model = open_model(pair("10.3.0", persistent_cache=0.5))
    flags = describe_runtime(model, BenchSettings(0.0, 0.0, 1), 0).flags
    assert flags is not None
    assert flags["module_loading"] == found
    assert flags["context_memory"] == "shared"
    assert flags["context_bytes"] == tuple(need_of(c._s.engine) for c in contexts(model))
    assert flags["persistent_cache_bytes"] == MEMORY.persistent_cache // 4
    assert flags["weight_budget_bytes"] is None


def test_a_driver_that_does_not_say_how_it_loads_kernels(here: Here) -> None:
    import sys

    here.has("10.3.0")
    here.monkeypatch.delattr(sys.modules["cuda.bindings.driver"], "cuModuleGetLoadingMode")
    model = open_model(pair("10.3.0"))
    flags = describe_runtime(model, BenchSettings(0.0, 0.0, 1), 0).flags
    assert flags is not None
    assert flags["module_loading"] is None
