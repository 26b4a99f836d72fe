"""A small network as ONNX, and requests that build it, for the tests of builds."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from edgekit_device.build.request import EngineSpec, read_request
from edgekit_device.jobs.job import JobContext, job_context
from edgekit_device.store.root import Root

#: ONNX nodes of the toy that a plan puts on a DLA, in order, and those it leaves on the GPU.
ON_DLA = ("conv1", "relu1", "conv2", "relu2")
ON_GPU = ("pool", "flatten", "fc")
KINDS = {
    "conv1": "CONVOLUTION",
    "relu1": "ACTIVATION",
    "conv2": "CONVOLUTION",
    "relu2": "ACTIVATION",
    "pool": "REDUCE",
    "flatten": "SHUFFLE",
    "fc": "MATRIX_MULTIPLY",
}
BOARD = {
    "machine": "aarch64",
    "module": "NVIDIA Jetson AGX Orin",
    "l4t": "36.4.3",
    "tensorrt": "",
    "cuda": "12.6",
    "compute_capability": "8.7",
    "dla_compiler": "",
}


def _model(
    nodes: Sequence[onnx.NodeProto],
    ends: Mapping[str, Sequence[int | str]],
    weights: Sequence[onnx.TensorProto] = (),
    typed: str = "float32",
    domain: str = "",
) -> bytes:
    """The file of a network; ``ends`` are the shapes of its input and of its output."""
    element = helper.np_dtype_to_tensor_dtype(np.dtype(typed))
    taken, given = (helper.make_tensor_value_info(n, element, s) for n, s in ends.items())
    graph = helper.make_graph(list(nodes), "toy", [taken], [given], list(weights))
    opsets = [helper.make_opsetid("", 17), *([helper.make_opsetid(domain, 1)] if domain else [])]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    return bytes(model.SerializeToString())


@cache
def toy_onnx(*, whole: bool = True, typed: str = "float32") -> bytes:
    """Two convolutions with ReLU; behind them, when ``whole``, pool, flatten and Gemm."""
    rng = np.random.default_rng(7)

    def weight(name: str, *shape: int) -> onnx.TensorProto:
        return numpy_helper.from_array((rng.standard_normal(shape) / 4).astype(typed), name)

    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c1"], "conv1", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c1"], ["r1"], "relu1"),
        helper.make_node("Conv", ["r1", "w2", "b2"], ["c2"], "conv2", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c2"], ["r2"], "relu2"),
    ]
    weights = [weight("w1", 8, 3, 3, 3), weight("b1", 8), weight("w2", 8, 8, 3, 3), weight("b2", 8)]
    if not whole:
        return _model(nodes, {"x": [1, 3, 8, 8], "r2": [1, 8, 8, 8]}, weights, typed)
    nodes += [
        helper.make_node("GlobalAveragePool", ["r2"], ["p"], "pool"),
        helper.make_node("Flatten", ["p"], ["f"], "flatten"),
        helper.make_node("Gemm", ["f", "w3", "b3"], ["y"], "fc", transB=1),
    ]
    weights += [weight("w3", 5, 8), weight("b3", 5)]
    return _model(nodes, {"x": [1, 3, 8, 8], "y": [1, 5]}, weights, typed)


def outside_onnx(folder: Path) -> tuple[bytes, bytes]:
    """The toy whose weights lie in weights.bin: the model and that file."""
    folder.mkdir()
    onnx.save_model(
        onnx.load_model_from_string(toy_onnx()),
        folder / "model.onnx",
        save_as_external_data=True,
        location="weights.bin",
        size_threshold=0,
    )
    return (folder / "model.onnx").read_bytes(), (folder / "weights.bin").read_bytes()


def index_onnx() -> bytes:
    """INT64 in and out: a cast to float32 and the place of the greatest along axis 1."""
    nodes = [
        helper.make_node("Cast", ["x"], ["f"], "cast", to=TensorProto.FLOAT),
        helper.make_node("ArgMax", ["f"], ["y"], "argmax", axis=1, keepdims=0),
    ]
    return _model(nodes, {"x": [1, 6, 4], "y": [1, 4]}, typed="int64")


def plugin_onnx() -> bytes:
    """RoiAlign, which TensorRT's parser makes a plugin of."""
    boxes = [
        numpy_helper.from_array(np.float32([[0, 0, 4, 4]]), "boxes"),
        numpy_helper.from_array(np.int64([0]), "batch"),
    ]
    node = helper.make_node(
        "RoiAlign", ["x", "boxes", "batch"], ["y"], "roi", output_height=2, output_width=2
    )
    return _model([node], {"x": [1, 3, 8, 8], "y": [1, 3, 2, 2]}, boxes)


def cache_text(
    version: int = 100300, names: Sequence[str] = ("x", "r1", "r2", "p", "f", "y")
) -> bytes:
    """A calibration cache: one scale for all tensors."""
    digits = struct.pack(">f", 0.05).hex().lstrip("0")
    lines = [f"TRT-{version}-EntropyCalibration2", *(f"{name}: {digits}" for name in names)]
    return ("\n".join(lines) + "\n").encode()


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def io(name: str, shape: Sequence[int], dtype: str = "float32", **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "dtype": dtype,
        "shape": list(shape),
        "formats": [],
        "scale": None,
        **more,
    }


def ends(
    x: Sequence[int], y: Sequence[int], dtype: str = "float32"
) -> dict[str, list[dict[str, Any]]]:
    """The network of a request: its one input and its one output."""
    sides = {"inputs": ("x", x), "outputs": ("y", y)}
    return {
        side: [{"name": name, "dtype": dtype, "shape": list(shape)}]
        for side, (name, shape) in sides.items()
    }


def layer(name: str, device: str, precision: str = "int8", kind: str = "") -> dict[str, Any]:
    return {
        "name": name,
        "builder_name": name,
        "nodes": [name],
        "kind": kind or KINDS[name],
        "device": device,
        "precision": precision,
    }


def engine(key: str = "lane0", **more: Any) -> dict[str, Any]:
    """A hybrid engine of the whole toy on DLA0, in INT8 by a cache."""
    layers = [layer(n, "DLA") for n in ON_DLA] + [layer(n, "GPU", "fp16") for n in ON_GPU]
    return {
        "key": key,
        "kind": "plan",
        "model": sha(toy_onnx()),
        "data": {},
        "device": "DLA0",
        "gpu_fallback": True,
        "typing": "weak",
        "precisions": ["fp16", "int8"],
        "layers": layers,
        "inputs": [io("x", [1, 3, 8, 8])],
        "outputs": [io("y", [1, 5])],
        "calibration": sha(cache_text()),
        "pools": {"DLA_MANAGED_SRAM": 1 << 20},
        "constraints": "prefer",
        "refit_individual": [],
        "profiles": [],
        "attempts": [{"flags": [], "gives_up": ""}],
        **more,
    }


def loadable(key: str = "lane0", **more: Any) -> dict[str, Any]:
    """A loadable of the toy's DLA part."""
    given: dict[str, Any] = {
        "kind": "loadable",
        "model": sha(toy_onnx(whole=False)),
        "gpu_fallback": False,
        "layers": [layer(n, "DLA") for n in ON_DLA],
        "inputs": [io("x", [1, 3, 8, 8], "int8", formats=["DLA_HWC4"], scale=0.05)],
        "outputs": [io("r2", [1, 8, 8, 8], "int8", formats=["CHW32"], scale=0.05)],
        **more,
    }
    return engine(key, **given)


def strong(**more: Any) -> dict[str, Any]:
    """The hybrid engine for a strongly typed release: types stand in the model."""
    given: dict[str, Any] = {
        "model": sha(toy_onnx(typed="float16")),
        "typing": "strong",
        "precisions": [],
        "constraints": "none",
        "calibration": None,
        "inputs": [io("x", [1, 3, 8, 8], "float16")],
        "outputs": [io("y", [1, 5], "float16")],
        **more,
    }
    return engine(**given)


def request(*engines: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    engines = engines or (engine(),)
    return {
        "schema": "edgekit.build.request/1",
        "name": "toy",
        "tensorrt": "10.3",
        "timing_cache": True,
        "lanes": [{"share": 1.0, "engines": [one["key"] for one in engines]}],
        "network": ends([1, 3, 8, 8], [1, 5]),
        "golden": [],
        "engines": [dict(one) for one in engines],
        **more,
    }


def spec(document: Mapping[str, Any]) -> EngineSpec:
    """One engine, through the reader of requests."""
    return read_request(request(document)).engines[0]


@contextmanager
def job(folder: Path, document: Mapping[str, Any]) -> Iterator[JobContext]:
    """A job's context on a board whose store has all blobs of the toys."""
    own = folder / "root" / "jobs" / "0123456789abcdef"
    own.mkdir(parents=True)
    with job_context(Root(folder / "root"), own, json.loads(json.dumps(document))) as context:
        for data in (
            toy_onnx(),
            toy_onnx(whole=False),
            toy_onnx(typed="float16"),
            cache_text(),
        ):
            context.store(data)
        yield context


def own_plugin_onnx(typed: str = "float32", **attributes: Any) -> bytes:
    """A ReLU, then ``acme::MyOp``, which leaves shape and type as they are."""
    nodes = [
        helper.make_node("Relu", ["x"], ["r"], "relu"),
        helper.make_node("MyOp", ["r"], ["y"], "mine", domain="acme", **attributes),
    ]
    return _model(nodes, {"x": [1, 3, 8, 8], "y": [1, 3, 8, 8]}, typed=typed, domain="acme")


def own_plugin(version: str, library: bytes | None, **more: Any) -> dict[str, Any]:
    """The request that builds ``own_plugin_onnx`` on the GPU; ``more`` is of the plugin."""
    strongly = version.startswith("11")
    typed = "float16" if strongly else "float32"
    layers = [layer("relu", "GPU", "fp16", "ACTIVATION"), layer("mine", "GPU", "fp16", "PLUGIN_V2")]
    given = engine(
        device="GPU",
        gpu_fallback=False,
        model=sha(own_plugin_onnx(typed)),
        layers=layers,
        typing="strong" if strongly else "weak",
        precisions=[] if strongly else ["fp16"],
        constraints="none" if strongly else "prefer",
        calibration=None,
        pools={},
        inputs=[io("x", [1, 3, 8, 8], typed)],
        outputs=[io("y", [1, 3, 8, 8], typed)],
    )
    digest = None if library is None else sha(library)
    mine = {"operator": "MyOp", "version": "1", "namespace": "", "library": digest, **more}
    golden = [{"seed": 3, "inputs": {"x": {"low": -1.0, "high": 1.0}}, "lane": None}]
    return request(
        given, plugins=[mine], network=ends([1, 3, 8, 8], [1, 3, 8, 8], typed), golden=golden
    )
