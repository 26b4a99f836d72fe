"""A small real bundle, made by hand: one MatMul, its weight stripped, one golden vector."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from edgekit.bundles.manifest import Bundle
from edgekit.bundles.pack import finish
from edgekit_device.protocol.manifest import (
    BlobEntry,
    GoldenCase,
    GoldenOutput,
    Lane,
    Manifest,
    ModelSource,
    PlacementRecord,
    Range,
    SegmentEntry,
    TensorEntry,
    Tolerance,
    WeightEntry,
)
from edgekit_device.runtime.golden import golden_inputs

__all__ = ["HandMade", "hand_made"]

_ROWS = 16


@dataclass(frozen=True, eq=False)
class HandMade(Bundle):
    """A bundle and the matrix that it multiplies with."""

    matrix: np.ndarray = field(default_factory=lambda: np.empty(0))

    @property
    def payload_bytes(self) -> int:
        """Bytes of all blobs and weights."""
        return self.full_bytes - len(self.manifest_bytes)


def hand_made(
    name: str = "net", seed: int = 0, columns: int = 64, *, good: bool = True
) -> HandMade:
    """Makes the bundle of ``y = x @ W`` with W of [16, columns] from ``seed``.

    With ``good`` False its golden vector is wrong, so that the self-test fails.
    """
    matrix = np.random.default_rng(seed).standard_normal((_ROWS, columns)).astype(np.float32)
    weight = hashlib.sha256(matrix.tobytes()).hexdigest()
    engine, full = _engine(matrix, stripped=True), _engine(matrix, stripped=False)
    x = TensorEntry("x", "float32", (1, _ROWS), "LINEAR", (4 * _ROWS, 4))
    y = TensorEntry("y", "float32", (1, columns), "LINEAR", (4 * columns, 4))
    feeds = golden_inputs([x], 7, {"x": (-1.0, 1.0)})
    providers = ["CPUExecutionProvider"]
    wanted = onnxruntime.InferenceSession(full, providers=providers).run(["y"], feeds)[0]
    golden = (wanted if good else wanted + 1).tobytes()
    blobs = {hashlib.sha256(data).hexdigest(): data for data in (engine, golden)}
    engine_digest, golden_digest = blobs
    case = GoldenCase(
        7,
        {"x": Range(-1.0, 1.0)},
        {"y": GoldenOutput(golden_digest, "float32", y.shape)},
        Tolerance(1e-5),
    )
    manifest = Manifest(
        name=name,
        backend="reference",
        inputs=(x,),
        outputs=(y,),
        lanes=(Lane(1.0, (SegmentEntry(0, "GPU", engine_digest, ("x",), ("y",), ("matmul",)),)),),
        weights={"W": WeightEntry(weight, "float32", matrix.shape, matrix.nbytes, "W", "none")},
        blobs={
            engine_digest: BlobEntry(len(engine), "engine"),
            golden_digest: BlobEntry(len(golden), "golden"),
        },
        golden=(case,),
        model=ModelSource(hashlib.sha256(full).hexdigest(), "hand-made"),
        target="jetson-agx-orin-64gb",
        power_mode="MAXN",
        precision="fp32",
        tensorrt="10.3",
        fingerprint={
            "backend": "reference",
            "runtime": "onnxruntime",
            "runtime_version": onnxruntime.__version__,
            "machine": "any",
        },
        stripped=True,
        placement=PlacementRecord((("matmul", "GPU", "fp32", 0),), ()),
    )
    made = finish(manifest, blobs, {weight: matrix})
    return HandMade(made.manifest, made.manifest_bytes, blobs, {weight: matrix}, None, matrix)


def _engine(matrix: np.ndarray, *, stripped: bool) -> bytes:
    tensor = numpy_helper.from_array(matrix, "W")
    if stripped:
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        where = tensor.external_data.add()
        where.key, where.value = "location", "stripped"
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "W"], ["y"], name="matmul")],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, _ROWS])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, matrix.shape[1]])],
        [tensor],
    )
    opset = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=8)
    data: bytes = onnx.ModelProto.SerializeToString(model)
    return data
