"""A bundle for several shapes: a convolution with open axes, as static buckets with loadables of
their own and as one engine with profiles, all of the same stripped weights.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from edgekit.bundles.manifest import Bundle
from edgekit.bundles.pack import finish
from edgekit_device.protocol.manifest import (
    SHAPES_SCHEMA,
    BlobEntry,
    CroppedAxis,
    GoldenCase,
    GoldenOutput,
    Lane,
    Manifest,
    ModelSource,
    Padding,
    PlacedLoadable,
    PlacementRecord,
    Range,
    SegmentEntry,
    ShapeRange,
    TensorEntry,
    Tolerance,
    Variant,
    WeightEntry,
)
from edgekit_device.runtime.golden import golden_inputs
from tests.bundles.bundle_toys import _stub

RANGES = {"x": (-1.0, 1.0)}
Shape = tuple[int, ...]


def weights(seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        "w": rng.normal(size=(4, 3, 3, 3)).astype(np.float32),
        "b": rng.normal(size=4).astype(np.float32),
    }


def _model(shape: Sequence[int | str], *, stripped: bool, seed: int) -> bytes:
    output = [shape[0], 4, *shape[2:]]
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], "conv", pads=[1] * 4),
        helper.make_node("Relu", ["c"], ["y"], "relu"),
    ]
    held = [
        _stub(name, value) if stripped else numpy_helper.from_array(value, name)
        for name, value in weights(seed).items()
    ]
    graph = helper.make_graph(
        nodes,
        "engine",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, output)],
        held,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    return bytes(model.SerializeToString(deterministic=True))


def expected(x: np.ndarray, seed: int = 0) -> np.ndarray:
    """What the network with its weights answers."""
    import onnxruntime as ort

    data = _model(x.shape, stripped=False, seed=seed)
    session = ort.InferenceSession(data, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(["y"], {"x": x})[0])


def frame(*shape: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)


def _tensor(name: str, shape: Shape) -> TensorEntry:
    strides, step = [], 4
    for size in reversed(shape):
        strides.insert(0, step)
        step *= size
    return TensorEntry(name, "float32", shape, "LINEAR", tuple(strides))


def ranged(low: Shape, best: Shape, high: Shape) -> dict[str, ShapeRange]:
    """A profile of "x"."""
    return {"x": ShapeRange(low, best, high)}


class VariantToys:
    """Makes variants and keeps their blobs."""

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        self.values: dict[str, bytes] = {}
        self.kinds: dict[str, str] = {}

    def add(self, data: bytes, kind: str) -> str:
        digest = hashlib.sha256(data).hexdigest()
        self.values[digest], self.kinds[digest] = data, kind
        return digest

    def golden(self, seed: int, shape: Shape, *, shapes: bool = False) -> GoldenCase:
        x = golden_inputs([_tensor("x", shape)], seed, RANGES)["x"]
        y = expected(x, self.seed)
        output = GoldenOutput(self.add(y.tobytes(), "golden"), "float32", y.shape)
        return GoldenCase(
            seed,
            {"x": Range(*RANGES["x"])},
            {"y": output},
            Tolerance(1e-5),
            shapes={"x": shape} if shapes else {},
        )

    def variant(
        self, shape: Shape, *, device: str = "DLA0", load: str = "start", loadables: int = 0
    ) -> Variant:
        """A static variant."""
        data = _model(shape, stripped=True, seed=self.seed)
        segment = SegmentEntry(0, device, self.add(data, "engine"), ("x",), ("y",), ("conv",))
        placed = PlacementRecord((), (PlacedLoadable(0, ("conv",), {}),) * loadables)
        return Variant(
            (_tensor("x", shape),),
            (_tensor("y", (shape[0], 4, *shape[2:])),),
            (Lane(1.0, (segment,)),),
            (self.golden(3, shape),),
            load=load,
            placement=placed,
        )

    def profiled(self, *profiles: Mapping[str, ShapeRange]) -> Variant:
        """A variant on the GPU with profiles, and golden cases at each minimum and maximum."""
        data = _model(["n", 3, "h", "w"], stripped=True, seed=self.seed)
        segment = SegmentEntry(0, "GPU", self.add(data, "engine"), ("x",), ("y",), ("conv",))
        shape = profiles[0]["x"].opt
        golden = [self.golden(3, shape)]
        for one in profiles:
            golden += [self.golden(4, size, shapes=True) for size in (one["x"].min, one["x"].max)]
        return Variant(
            (_tensor("x", shape),),
            (_tensor("y", (shape[0], 4, *shape[2:])),),
            (Lane(1.0, (segment,)),),
            tuple(golden),
            profiles,
        )

    def manifest(self, first: Variant, *others: Variant, **more: Any) -> Manifest:
        entries = {}
        for name, array in weights(self.seed).items():
            data = array.tobytes()
            digest = hashlib.sha256(data).hexdigest()
            entries[name] = WeightEntry(digest, "float32", array.shape, len(data), name, "none")
        return Manifest(
            name="sizes",
            backend="reference",
            inputs=first.inputs,
            outputs=first.outputs,
            lanes=first.lanes,
            golden=first.golden,
            profiles=first.profiles,
            placement=first.placement,
            weights=entries,
            blobs={d: BlobEntry(len(v), self.kinds[d]) for d, v in self.values.items()},
            model=ModelSource("0" * 64, "toy"),
            schema=SHAPES_SCHEMA,
            stripped=True,
            variants=others,
            **more,
        )

    def bundle(self, first: Variant, *others: Variant, **more: Any) -> Bundle:
        values = {
            hashlib.sha256(array.tobytes()).hexdigest(): array
            for array in weights(self.seed).values()
        }
        return finish(self.manifest(first, *others, **more), dict(self.values), dict(values))


def buckets(seed: int = 0, **more: Any) -> Bundle:
    """8 x 8 and 8 x 12 on the DLA, the second on demand; 4 to 16 and 17 to 32 on the GPU."""
    toys = VariantToys(seed)
    return toys.bundle(
        toys.variant((1, 3, 8, 8)),
        toys.variant((1, 3, 8, 12), load="demand"),
        toys.profiled(
            ranged((1, 3, 4, 4), (1, 3, 10, 10), (1, 3, 16, 16)),
            ranged((1, 3, 17, 17), (1, 3, 20, 20), (1, 3, 32, 32)),
        ),
        **more,
    )


def many(count: int, *, load: str, loadables: int = 0) -> Bundle:
    """So many static variants on DLA0, of which all but the first load as ``load`` says."""
    toys = VariantToys()
    made = [
        toys.variant((1, 3, 8, 8 + n), load=load if n else "start", loadables=loadables)
        for n in range(count)
    ]
    return toys.bundle(*made)


def batches() -> Bundle:
    """A batch of 4, up to which smaller ones are padded, and one of 2."""
    toys = VariantToys()
    first, second = toys.variant((4, 3, 8, 8)), toys.variant((2, 3, 8, 8))
    padding = Padding({"x": 0}, {"y": CroppedAxis(0)})
    return toys.bundle(first, second, padding=(padding,))
