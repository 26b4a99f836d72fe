"""A small network, and builds of it through the double."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from tests.trt_double import double


@cache
def toy(op: str = "Relu", typed: str = "float32") -> bytes:
    """Conv, BatchNormalization, `op`; global pool, flatten and Gemm: an ONNX file's bytes."""
    rng = np.random.default_rng(3)
    element = helper.np_dtype_to_tensor_dtype(np.dtype(typed))

    def weight(name: str, *shape: int, least: float = -0.5) -> Any:
        return numpy_helper.from_array((rng.random(shape) + least).astype(typed), name)

    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], "conv", pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["a", "g", "b", "m", "v"], ["n"], "bn"),
        helper.make_node(op, ["n"], ["r"], "act"),
        helper.make_node("GlobalAveragePool", ["r"], ["p"], "pool"),
        helper.make_node("Flatten", ["p"], ["f"], "flat"),
        helper.make_node("Gemm", ["f", "fw", "fb"], ["y"], "fc", transB=1),
    ]
    weights = [weight("w", 4, 3, 3, 3), *(weight(name, 4, least=0.5) for name in "gbmv")]
    weights += [weight("fw", 5, 4), weight("fb", 5)]
    return _model(nodes, weights, element, "y", [1, 5])


@cache
def dla_toy() -> bytes:
    """Two layers that a DLA runs: float32 [1, 3, 8, 8] to [1, 4, 8, 8]."""
    rng = np.random.default_rng(4)
    weight = numpy_helper.from_array(rng.random((4, 3, 3, 3)).astype(np.float32) - 0.5, "w")
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], "conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["y"], "act"),
    ]
    return _model(nodes, [weight], TensorProto.FLOAT, "y", [1, 4, 8, 8])


def _model(nodes: Any, weights: Any, element: int, output: str, shape: list[int]) -> bytes:
    graph = helper.make_graph(
        nodes,
        "toy",
        [helper.make_tensor_value_info("x", element, [1, 3, 8, 8])],
        [helper.make_tensor_value_info(output, element, shape)],
        weights,
    )
    opset = [helper.make_opsetid("", 17)]
    return bytes(helper.make_model(graph, opset_imports=opset, ir_version=8).SerializeToString())


@dataclass
class Setup:
    """A module of the double with a parsed network, ready for a build."""

    trt: Any
    logger: Any
    builder: Any
    network: Any
    config: Any

    @property
    def violations(self) -> list[str]:
        return list(self.trt._double.violations)

    @property
    def logged(self) -> list[str]:
        return [text for _, text in self.trt._double.messages]

    def plan(self) -> Any:
        return self.builder.build_serialized_network(self.network, self.config)

    def layer(self, name: str) -> Any:
        layers = (self.network.get_layer(i) for i in range(self.network.num_layers))
        return next(one for one in layers if one.name == name)

    def runtime(self, core: int | None = None) -> Any:
        made = self.trt.Runtime(self.logger)
        if core is not None:
            made.DLA_core = core
        return made


def setup(
    version: str, *flags: str, dla: bool = False, model: bytes | None = None, typed: bool = False
) -> Setup:
    """Builder, network of `model` (strongly `typed`) and config with builder flags by name; the
    DLA as default.
    """
    trt = double.module(version)
    logger = trt.Logger(trt.Logger.VERBOSE)
    builder = trt.Builder(logger)
    kinds = trt.NetworkDefinitionCreationFlag.__members__
    batch = 1 << int(kinds["EXPLICIT_BATCH"]) if "EXPLICIT_BATCH" in kinds else 0
    strong = 1 << int(kinds["STRONGLY_TYPED"]) if typed else 0
    network = builder.create_network(batch | strong)
    assert trt.OnnxParser(network, logger).parse(model or toy())
    config = builder.create_builder_config()
    for flag in flags:
        config.set_flag(trt.BuilderFlag.__members__[flag])
    if dla:
        config.default_device_type = trt.DeviceType.DLA
        config.DLA_core = 0
    return Setup(trt, logger, builder, network, config)
