"""A small network, plans of it from TensorRT's double, and bundles around them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from edgekit_device.protocol.manifest import (
    NETWORK_SCHEMA,
    BlobEntry,
    EngineEntry,
    IoEntry,
    Lane,
    Manifest,
    SegmentEntry,
    TensorEntry,
    WeightEntry,
)
from edgekit_device.store.root import Root
from edgekit_device.trust.bundle import BundleFiles, Checked
from tests.trt_double import double
from tests.trt_double._onnx_weights import refit_weights

SHAPE = (1, 3, 8, 8)


def network(batch: int | str = 1, seed: int = 0) -> onnx.ModelProto:
    """Conv, BatchNormalization, Relu, GlobalAveragePool, Flatten, Gemm: "x" to "y"."""
    rng = np.random.default_rng(seed)

    def weight(name: str, *shape: int, low: float = -1.0) -> onnx.TensorProto:
        values = rng.uniform(low, 1.0, shape).astype(np.float32)
        return numpy_helper.from_array(values, name)

    nodes = [
        helper.make_node("Conv", ["x", "conv_w"], ["c"], "conv", pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["c", "s", "b", "m", "v"], ["n"], "norm"),
        helper.make_node("Relu", ["n"], ["r"], "relu"),
        helper.make_node("GlobalAveragePool", ["r"], ["p"], "pool"),
        helper.make_node("Flatten", ["p"], ["f"], "flat"),
        helper.make_node("Gemm", ["f", "fc_w", "fc_b"], ["y"], "fc"),
    ]
    graph = helper.make_graph(
        nodes,
        "toy",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, *SHAPE[1:]])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, 5])],
        [
            weight("conv_w", 4, 3, 3, 3),
            weight("s", 4),
            weight("b", 4),
            weight("m", 4),
            weight("v", 4, low=0.1),
            weight("fc_w", 4, 5),
            weight("fc_b", 5),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    model.ir_version = 8
    return model


def reference(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    """What ONNX Runtime makes of it."""
    import onnxruntime as ort

    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(["y"], {"x": x})[0])


def agrees(model: Any, net: onnx.ModelProto | None = None) -> None:
    """Holds a model's outputs against ONNX Runtime's of ``net``, by default the toy."""
    x = random_input()
    np.testing.assert_allclose(model({"x": x})["y"], reference(net or network(), x), rtol=1e-5)


def plan(
    version: str,
    flags: Sequence[str] = (),
    *,
    model: onnx.ModelProto | None = None,
    dla: bool = False,
    formats: Mapping[str, tuple[str, str, float | None]] | None = None,
    profiles: Sequence[tuple[Any, Any, Any]] = (),
    values: Mapping[str, tuple[Any, Any, Any]] | None = None,
    shared: bool = True,
) -> bytes:
    """Builds a plan with the double of ``version``.

    ``formats`` are type, format and scale by tensor; ``profiles`` are min, opt and max of "x", and
    ``values`` of inputs that make shapes; ``shared`` profiles serve several contexts.
    """
    trt = double.module(version)
    logger = trt.Logger(trt.Logger.VERBOSE)
    builder = trt.Builder(logger)
    old = int(version.split(".", maxsplit=1)[0]) < 10
    creation = trt.NetworkDefinitionCreationFlag
    creates = 1 << int(creation.EXPLICIT_BATCH) if old else 0
    if "WEIGHT_STREAMING" in flags:  # in strongly typed networks alone
        creates = 1 << int(creation.STRONGLY_TYPED)
    net = builder.create_network(creates)
    parser = trt.OnnxParser(net, logger)
    assert parser.parse((model or network()).SerializeToString())
    config = builder.create_builder_config()
    for flag in flags:
        config.set_flag(getattr(trt.BuilderFlag, flag))
    if dla:
        config.default_device_type = trt.DeviceType.DLA
        config.DLA_core = 0
        config.set_flag(trt.BuilderFlag.GPU_FALLBACK)
        config.set_flag(trt.BuilderFlag.FP16)
    for tensor in (net.get_input(0), net.get_output(0)):
        if tensor.name in (formats or {}):
            _ask(trt, tensor, *(formats or {})[tensor.name])
    if any(kind == "INT8" for kind, _, _ in (formats or {}).values()):
        config.set_flag(trt.BuilderFlag.INT8)
        for layer in map(net.get_layer, range(net.num_layers)):
            for output in map(layer.get_output, range(layer.num_outputs)):
                output.set_dynamic_range(-8.0, 8.0)
    for low, best, high in profiles or ([(SHAPE,) * 3] if values else []):
        profile = builder.create_optimization_profile()
        profile.set_shape("x", low, best, high)
        for name, limits in (values or {}).items():
            profile.set_shape_input(name, *limits)
        config.add_optimization_profile(profile)
    if old and shared:
        config.set_preview_feature(trt.PreviewFeature.PROFILE_SHARING_0806, True)
    made = builder.build_serialized_network(net, config)
    assert made is not None, trt._double.messages[-3:]
    assert trt._double.violations == []
    return bytes(memoryview(made))


def _ask(trt: Any, tensor: Any, kind: str, format: str, scale: float | None) -> None:
    tensor.dtype = getattr(trt.DataType, kind)
    tensor.allowed_formats = 1 << int(getattr(trt.TensorFormat, format))
    if scale is not None:
        tensor.set_dynamic_range(-127 * scale, 127 * scale)


X = IoEntry("x", "float32", SHAPE, "LINEAR", (768, 256, 32, 4), None)
Y = IoEntry("y", "float32", (1, 5), "LINEAR", (20, 4), None)


def entry(version: str, **changes: Any) -> EngineEntry:
    """An engine's entry of the manifest; float32 in and out on the GPU unless told otherwise."""
    facts: dict[str, Any] = {
        "kind": "plan",
        "tensorrt": full_version(version),
        "stripped": False,
        "version_compatible": False,
        "lean_embedded": False,
        "refit": "none",
        "dla_core": None,
        "inputs": (X,),
        "outputs": (Y,),
    }
    return EngineEntry(**{**facts, **changes})


def full_version(version: str) -> str:
    """The four parts that the double's plans of a release carry."""
    return ".".join(map(str, double.module(version)._double.build))


class _MemoryBlob:
    def __init__(self, data: bytes) -> None:
        self._data = data

    def read(self, size: int) -> tuple[bytes, str]:
        return self._data, hashlib.sha256(self._data).hexdigest()


class MemoryBlobs:
    """Blobs in memory."""

    def __init__(self, values: Mapping[str, bytes]) -> None:
        self.values = values

    def has(self, digest: str) -> bool:
        return digest in self.values

    def read(self, digest: str) -> memoryview:
        return memoryview(self.values[digest])

    def extent(self, digest: str) -> Any:
        return _MemoryBlob(self.values[digest])


def checked(
    data: bytes,
    about: EngineEntry,
    *,
    weights: Mapping[str, np.ndarray] | None = None,
    signer: str | None = "tests",
    fingerprint: Mapping[str, str] | None = None,
    root: Root | None = None,
    release: Path | None = None,
) -> Checked:
    """A checked bundle of one engine on the GPU."""
    blobs = {hashlib.sha256(data).hexdigest(): data}
    engine = next(iter(blobs))
    entries = {}
    for name, array in (weights or {}).items():
        raw = array.tobytes()
        digest = hashlib.sha256(raw).hexdigest()
        blobs[digest] = raw
        entries[name] = WeightEntry(digest, str(array.dtype), array.shape, len(raw), name, "")
    device = "GPU" if about.dla_core is None else f"DLA{about.dla_core}"
    segment = SegmentEntry(0, device, engine, ("x",), ("y",), ("conv",))
    manifest = Manifest(
        digest="0" * 64,
        name="toy",
        backend="tensorrt",
        inputs=(TensorEntry("x", "float32", SHAPE, "LINEAR", (768, 256, 32, 4)),),
        outputs=(TensorEntry("y", "float32", (1, 5), "LINEAR", (20, 4)),),
        lanes=(Lane(1.0, (segment,)),),
        weights=entries,
        blobs={engine: BlobEntry(len(data), "engine")},
        fingerprint=dict(fingerprint or {}),
        engines={engine: about},
    )
    files = BundleFiles(
        "the toy",
        b"",
        None,
        MemoryBlobs(blobs),
        root,
        release,
    )
    return Checked(files, manifest, signer)


def with_cpu_segment(bundle: Checked) -> Checked:
    """The bundle with a segment on the CPU after the engine: "z" is "y" and 1."""
    graph = helper.make_graph(
        [helper.make_node("Add", ["y", "one"], ["z"], "add")],
        "after",
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 5])],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, [1, 5])],
        [numpy_helper.from_array(np.ones(5, np.float32), "one")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    data, before = model.SerializeToString(), bundle.manifest
    digest = hashlib.sha256(data).hexdigest()
    (first,) = before.lanes[0].segments
    segment = SegmentEntry(1, "CPU", digest, ("y",), ("z",), ("after",))
    manifest = replace(
        before,
        schema=NETWORK_SCHEMA,
        lanes=(Lane(1.0, (first, segment)),),
        outputs=(replace(before.outputs[0], name="z"),),
        blobs={**before.blobs, digest: BlobEntry(len(data), "engine")},
    )
    blobs = bundle.files.blobs
    assert isinstance(blobs, MemoryBlobs)
    files = replace(bundle.files, blobs=MemoryBlobs({**blobs.values, digest: data}))
    return Checked(files, manifest, bundle.signer)


def weights_of(model: onnx.ModelProto, version: str) -> dict[str, np.ndarray]:
    """Weights by refit name, by the double's own rules."""
    return dict(refit_weights(model, double.module(version)._double.build))


def random_input(seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 1, SHAPE).astype(np.float32)
