"""A small real bundle, made by hand: one MatMul, its weight stripped, one golden vector."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from edgekit.bundles.manifest import Bundle
from edgekit_device.protocol.manifest import TensorEntry, parse
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
    entry = TensorEntry("x", "float32", (1, _ROWS), "LINEAR", (4 * _ROWS, 4))
    feeds = golden_inputs([entry], 7, {"x": (-1.0, 1.0)})
    providers = ["CPUExecutionProvider"]
    wanted = onnxruntime.InferenceSession(full, providers=providers).run(["y"], feeds)[0]
    golden = (wanted if good else wanted + 1).tobytes()
    blobs = {hashlib.sha256(data).hexdigest(): data for data in (engine, golden)}
    engine_digest, golden_digest = blobs
    manifest = {
        "schema": "edgekit.bundle/1",
        "name": name,
        "created_by": {"edgekit": "0"},
        "backend": "reference",
        "model": {"digest": hashlib.sha256(full).hexdigest(), "source": "hand-made"},
        "target": "jetson-agx-orin-64gb",
        "power_mode": "MAXN",
        "precision": "fp32",
        "mode": "hybrid",
        "tensorrt": "10.3",
        "fingerprint": {
            "backend": "reference",
            "runtime": "onnxruntime",
            "runtime_version": onnxruntime.__version__,
            "machine": "any",
        },
        "inputs": [_tensor("x", (1, _ROWS))],
        "outputs": [_tensor("y", (1, columns))],
        "lanes": [
            {
                "share": 1.0,
                "segments": [
                    {
                        "index": 0,
                        "device": "GPU",
                        "engine": engine_digest,
                        "inputs": ["x"],
                        "outputs": ["y"],
                        "layers": ["matmul"],
                    }
                ],
            }
        ],
        "weights": {
            "W": {
                "digest": weight,
                "dtype": "float32",
                "shape": list(matrix.shape),
                "bytes": matrix.nbytes,
                "source": "W",
                "transform": "none",
            }
        },
        "stripped": True,
        "blobs": {
            engine_digest: {"bytes": len(engine), "kind": "engine"},
            golden_digest: {"bytes": len(golden), "kind": "golden"},
        },
        "golden": [
            {
                "seed": 7,
                "inputs": {"x": {"low": -1.0, "high": 1.0}},
                "outputs": {
                    "y": {"blob": golden_digest, "dtype": "float32", "shape": [1, columns]}
                },
                "tolerance": {"relative": 1e-5},
            }
        ],
        "placement": {"layers": [["matmul", "GPU", "fp32", 0]], "loadables": []},
        "plugins": [],
    }
    text = json.dumps(manifest, sort_keys=True, separators=(",", ":")) + "\n"
    return HandMade(parse(text.encode()), text.encode(), blobs, {weight: matrix}, None, matrix)


def _tensor(name: str, shape: tuple[int, int]) -> dict[str, Any]:
    strides = [4 * shape[1], 4]
    return {
        "name": name,
        "dtype": "float32",
        "shape": list(shape),
        "format": "LINEAR",
        "strides": strides,
    }


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
