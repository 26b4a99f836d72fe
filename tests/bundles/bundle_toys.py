"""Small builds made by hand, and bundles of them: engines are stripped ONNX models."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper

from edgekit.bundles.manifest import Bundle, Golden, golden_inputs
from edgekit.bundles.pack import pack
from edgekit.dla.verdicts import MemoryNeed
from edgekit.network.model import Model, Network, Tensor
from edgekit.placement.plan import PlacedLayer, Plan, PlannedLoadable, PredictedCost, Share
from edgekit.reference.artefacts import Artefacts, EngineSegment, Weight
from edgekit.reference.weights import weight_digest

RANGES = {"x": (-1.0, 1.5)}
SHAPES: dict[str, tuple[int, ...]] = {
    "x": (1, 3, 8, 8),
    "t": (1, 8, 8, 8),
    "u": (1, 8, 8, 8),
    "v": (1, 8, 8, 8),
    "y": (1, 10),
}


def values(seed: int = 0) -> dict[str, np.ndarray]:
    """The weights' values; ``q`` is INT8 as a quantised build has it."""
    rng = np.random.default_rng(seed)
    return {
        "../w": rng.normal(size=(8, 3, 3, 3)).astype(np.float32),
        "b": rng.normal(size=(8,)).astype(np.float32),
        "q": rng.integers(-127, 128, (8, 8, 1, 1)).astype(np.int8),
        "scale": np.full(8, 0.01, np.float32),
        "g": rng.normal(size=(512, 10)).astype(np.float32),
    }


def _stub(name: str, array: np.ndarray) -> onnx.TensorProto:
    tensor = onnx.TensorProto(name=name, data_type=helper.np_dtype_to_tensor_dtype(array.dtype))
    tensor.dims.extend(array.shape)
    tensor.data_location = onnx.TensorProto.EXTERNAL
    pairs = {"location": "stripped", "offset": "0", "length": str(array.nbytes)}
    for key, value in pairs.items():
        tensor.external_data.add(key=key, value=value)
    return tensor


def engine(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[str],
    outputs: Sequence[str],
    weights: Mapping[str, np.ndarray],
) -> bytes:
    """A stripped engine."""
    used = dict.fromkeys(n for node in nodes for n in node.input if n in weights)
    graph = helper.make_graph(
        list(nodes),
        "engine",
        [helper.make_tensor_value_info(n, 1, list(SHAPES[n])) for n in inputs],
        [helper.make_tensor_value_info(n, 1, list(SHAPES[n])) for n in outputs],
        [_stub(name, weights[name]) for name in used],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    data: bytes = model.SerializeToString(deterministic=True)
    return data


def parts(weights: Mapping[str, np.ndarray]) -> dict[str, tuple[str, list[str], list[str], bytes]]:
    """Three segments: t and u on a DLA each, both read by y on the GPU."""
    node = helper.make_node
    first = [
        node("Conv", ["x", "../w", "b"], ["c"], "conv1", pads=[1] * 4),
        node("Relu", ["c"], ["t"], "relu1"),
    ]
    second = [
        node("DequantizeLinear", ["q", "scale"], ["qf"], "dq", axis=0),
        node("Conv", ["t", "qf"], ["u"], "conv2"),
    ]
    third = [
        node("Add", ["t", "u"], ["v"], "add"),
        node("Flatten", ["v"], ["f"], "flat"),
        node("MatMul", ["f", "g"], ["y"], "fc"),
    ]
    return {
        "s0": ("DLA0", ["x"], ["t"], engine(first, ["x"], ["t"], weights)),
        "s1": ("DLA1", ["t"], ["u"], engine(second, ["t"], ["u"], weights)),
        "s2": ("GPU", ["t", "u"], ["y"], engine(third, ["t", "u"], ["y"], weights)),
    }


def artefacts(seed: int = 0) -> Artefacts:
    """The three segments as one lane."""
    weights = values(seed)
    segments, engines = [], {}
    for index, (name, (device, reads, writes, data)) in enumerate(parts(weights).items()):
        digest = hashlib.sha256(data).hexdigest()
        engines[digest] = data
        segments.append(EngineSegment(index, device, (name,), tuple(reads), tuple(writes), digest))
    entries = {
        n: Weight(n, n.strip("./"), "none", weight_digest(a), str(a.dtype), a.shape)
        for n, a in weights.items()
    }
    return Artefacts(
        backend="reference",
        lanes=((1.0, tuple(segments)),),
        engines=engines,
        weights=entries,
        values={weight_digest(array): array for array in weights.values()},
        fingerprint={"backend": "reference", "runtime": "onnxruntime"},
    )


def network() -> Network:
    """Only what a bundle reads of it: inputs and outputs."""
    tensors = {name: Tensor(name, SHAPES[name], "float32") for name in ("x", "y")}
    return Network("toy", (), tensors, ("x",), ("y",))


def plan() -> Plan:
    """A plan that agrees with the segments."""
    placed = tuple(
        PlacedLayer(name, (name,), device, "int8", index, 1.0, 1.0)
        for index, (name, device) in enumerate((("s0", "DLA0"), ("s1", "DLA1"), ("s2", "GPU")))
    )
    predicted = PredictedCost(1.0, 1.0, 1.0, 1.0)
    return Plan(
        target="jetson-agx-orin-64gb",
        power_mode="MAXN",
        precision="int8",
        tensorrt="10.3",
        layers=placed,
        loadables=(PlannedLoadable(0, ("s0",), MemoryNeed(4096, 4096, 4096)),),
        pools={},
        transitions=2,
        predicted=predicted,
        objective="latency",
        optimal=True,
        bound=1.0,
        gap=0.0,
        plans=(Share(1.0, placed),),
        baselines={},
        model_error="",
    )


def expected(seed: int, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What the unstripped build answers: weights inside, ONNX Runtime alone."""
    weights = values(seed)
    tensors = dict(inputs)
    for _, reads, writes, data in parts(weights).values():
        model = onnx.ModelProto.FromString(data)
        for tensor in model.graph.initializer:
            name = tensor.name
            tensor.Clear()
            tensor.CopyFrom(onnx.numpy_helper.from_array(weights[name], name))
        session = ort.InferenceSession(
            model.SerializeToString(), providers=["CPUExecutionProvider"]
        )
        results = session.run(list(writes), {name: tensors[name] for name in reads})
        tensors.update(zip(writes, results, strict=True))
    return {"y": tensors["y"]}


def golden(seed: int = 0) -> list[Golden]:
    """Two golden vectors of the unstripped build."""
    cases = []
    for number in (7, 8):
        inputs = golden_inputs(network(), number, RANGES)
        cases.append(Golden(number, RANGES, expected(seed, inputs), 1e-5))
    return cases


def toy_model(seed: int = 0) -> Model:
    """A model by name only; packing reads its digest and source."""
    digest = hashlib.sha256(f"toy {seed}".encode()).hexdigest()
    return Model(onnx.ModelProto(), {}, digest, f"toy-{seed}.onnx")


def toy_bundle(seed: int = 0, name: str = "toy", **more: Any) -> Bundle:
    """The toy, packed; ``more`` is what else ``pack`` takes."""
    return pack(
        name=name,
        model=toy_model(seed),
        network=network(),
        plan=plan(),
        artefacts=artefacts(seed),
        golden=golden(seed),
        mode="split",
        **more,
    )


def document_of(bundle: Bundle) -> dict[str, Any]:
    """The manifest as it stands in manifest.json."""
    found: dict[str, Any] = json.loads(bundle.manifest_bytes)
    return found
