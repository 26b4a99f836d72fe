"""Variants of TensorRT engines: a static plan on a DLA beside one of the GPU with profiles."""

from __future__ import annotations

import gc
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from edgekit_device.benchmark.command import planned_shape
from edgekit_device.errors import DeviceError
from edgekit_device.protocol.manifest import (
    SHAPES_SCHEMA,
    BlobEntry,
    IoEntry,
    Lane,
    SegmentEntry,
    ShapeRange,
    TensorEntry,
    Variant,
)
from edgekit_device.runtime.model import open_model
from edgekit_device.trust.bundle import Checked
from tests.edgekit_device.tensorrt.here import Here
from tests.edgekit_device.tensorrt.test_sizes import non_zero
from tests.edgekit_device.tensorrt.toys import (
    SHAPE,
    MemoryBlobs,
    checked,
    entry,
    network,
    plan,
    random_input,
    reference,
    weights_of,
)
from tests.trt_double._memory import MEMORY

REST = SHAPE[1:]
RANGES = [(2, 3, 4), (6, 8, 8)]


def _sizes(batches: tuple[int, int, int]) -> tuple[Any, ...]:
    return tuple((batch, *REST) for batch in batches)


def both(version: str, *, load: str = "start", stripped: bool = False, dla: bool = True) -> Checked:
    """A batch of 1 on DLA0, and 2 to 4 and 6 to 8 on the GPU."""
    flags = ["STRIP_PLAN", "REFIT"] if stripped else []
    kind = "any" if stripped else "none"
    weights = weights_of(network(), version) if stripped else None
    first = plan(version, flags, dla=dla)
    about = entry(version, stripped=stripped, refit=kind, dla_core=0 if dla else None)
    bundle = checked(first, about, weights=weights)
    ranged = plan(version, flags, model=network("n"), profiles=[_sizes(one) for one in RANGES])
    io = entry(
        version,
        stripped=stripped,
        refit=kind,
        inputs=(IoEntry("x", "float32", (-1, *REST), "LINEAR", (), None),),
        outputs=(IoEntry("y", "float32", (-1, 5), "LINEAR", (), None),),
    )
    other = checked(ranged, io)
    (digest,) = other.manifest.engines
    shape = (RANGES[0][1], *REST)
    variant = Variant(
        (TensorEntry("x", "float32", shape, "LINEAR", (768, 256, 32, 4)),),
        (TensorEntry("y", "float32", (shape[0], 5), "LINEAR", (20, 4)),),
        (Lane(1.0, (SegmentEntry(0, "GPU", digest, ("x",), ("y",), ("conv",)),)),),
        profiles=tuple({"x": ShapeRange(*_sizes(one))} for one in RANGES),
        load=load,
    )
    before, blobs = bundle.manifest, bundle.files.blobs
    assert isinstance(blobs, MemoryBlobs)
    manifest = replace(
        before,
        schema=SHAPES_SCHEMA,
        variants=(variant,),
        without_golden=True,
        engines={**before.engines, digest: io},
        blobs={**before.blobs, digest: BlobEntry(len(ranged), "engine")},
    )
    manifest.check()
    files = replace(bundle.files, blobs=MemoryBlobs({**blobs.values, digest: ranged}))
    return Checked(files, manifest, bundle.signer)


def _batch(size: int) -> np.ndarray:
    return np.concatenate([random_input(seed) for seed in range(size)])


@pytest.mark.few(5)
@pytest.mark.parametrize("load", ["start", "demand"])
@pytest.mark.parametrize(
    ("version", "stripped"),
    [("8.6.1", False), ("10.3.0", False), ("10.3.0", True), ("10.7.0", True), ("11.4.0", True)],
)
def test_a_frame_runs_on_the_plan_of_its_shape(
    here: Here, version: str, load: str, stripped: bool
) -> None:
    here.has(version)
    model = open_model(both(version, load=load, stripped=stripped, dla=version != "11.4.0"))
    assert len(model.engines) == (2 if load == "start" else 1)
    for size in (1, 4, 2, 8, 1, 6):
        x = _batch(size)
        found = model({"x": x})["y"]
        np.testing.assert_allclose(found, reference(network("n"), x), rtol=1e-5)
    frames = [_batch(size) for size in (1, 3, 7, 1, 2)]
    for x, results in zip(frames, model.stream({"x": x} for x in frames), strict=True):
        np.testing.assert_allclose(results["y"], reference(network("n"), x), rtol=1e-5)
    assert len(model.engines) == 2
    for size in (5, 9):
        with pytest.raises(DeviceError, match="no variant of the model takes") as caught:
            model({"x": _batch(size)})
        assert caught.value.code == "input.shape"


def test_results_of_every_shape_stay_on_the_gpu(here: Here) -> None:
    here.has("10.3.0")
    model = open_model(both("10.3.0"))
    for size in (1, 4, 7):
        x = _batch(size)
        found = model.on_gpu({"x": x})["y"]
        assert found.shape == (size, 5)
        np.testing.assert_allclose(found.numpy(), reference(network("n"), x), rtol=1e-5)


def test_a_shape_that_was_not_planned_is_not_measured(here: Here) -> None:
    here.has("10.3.0")
    model = open_model(both("10.3.0"))
    for size, variant in ((1, 0), (4, 1), (6, 1)):
        found = planned_shape(model, {"x": (size, *REST)}, [])
        assert (found.variant, found.sizes) == (variant, {"x": (size, *REST)})
    assert planned_shape(model, {}, [{"x": _batch(3)}]).variant == 1
    for shapes, frames in (
        ({"x": (5, *REST)}, []),
        ({"x": (3, *REST)}, [{"x": _batch(2)}]),
        ({"z": (1,)}, []),
    ):
        with pytest.raises(DeviceError) as caught:
            planned_shape(model, shapes, frames)
        assert caught.value.code == "bench.shape"


@pytest.mark.parametrize("data", ["sizes", "values"])
def test_a_model_that_is_dropped_gives_its_memory_back_at_once(here: Here, data: str) -> None:
    here.has("10.3.0")
    if data == "sizes":
        model = open_model(both("10.3.0", load="demand"))
        frames = [_batch(size) for size in (1, 4)]
    else:
        y = IoEntry("y", "float32", (4, -1), "LINEAR", (), None)
        model = open_model(checked(plan("10.3.0", model=non_zero()), entry("10.3.0", outputs=(y,))))
        frames = [random_input()]
    gc.collect()
    gc.disable()
    try:
        for x in frames:
            model({"x": x})
        assert list(model.stream({"x": x} for x in frames))
        assert MEMORY.blocks
        del model
        assert not MEMORY.blocks
    finally:
        gc.enable()
