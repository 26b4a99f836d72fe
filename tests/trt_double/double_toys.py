"""A small network, and builds of it through the double."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from tests.edgekit_device.tensorrt.toys import network
from tests.trt_double import double


@cache
def toy() -> bytes:
    """The small network of the loader's tests: an ONNX file's bytes."""
    return bytes(network().SerializeToString())


@cache
def dla_toy() -> bytes:
    """Two layers that a DLA runs: float32 [1, 3, 8, 8] to [1, 4, 8, 8]."""
    rng = np.random.default_rng(4)
    weight = numpy_helper.from_array(rng.random((4, 3, 3, 3)).astype(np.float32) - 0.5, "w")
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], "conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["y"], "act"),
    ]
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, channels, 8, 8])
        for name, channels in (("x", 3), ("y", 4))
    ]
    graph = helper.make_graph(nodes, "toy", ends[:1], ends[1:], [weight])
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
