"""The child of check_plugin.py: registers CustomPool as a board does, then parses and builds the
example's network.

Arguments: the wheels' folder; "python", "none" or the C++ plugin's path. Its last line is JSON.
"""

# TensorRT's classes are known only when it runs
# mypy: disallow-subclassing-any=False

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

from _parser_wheels import import_module_from

from edgekit_device.errors import DeviceError
from edgekit_device.protocol.manifest import PluginEntry
from edgekit_device.tensorrt.plugins import load_plugins, plugin_files

trt: Any = import_module_from(Path(sys.argv[1]))
MODEL = Path(__file__).resolve().parents[1] / "examples" / "plugin" / "lenet.onnx"
NAME, VERSION, NAMESPACE = "CustomPool", "1", "edgekit"
FIELDS = ("kernel", "stride", "padding")


class Pool(trt.IPluginV3, trt.IPluginV3OneCore, trt.IPluginV3OneBuild, trt.IPluginV3OneRuntime):
    """The plugin as a builder without a GPU needs it: without computation."""

    def __init__(self, pairs: dict[str, list[int]]) -> None:
        trt.IPluginV3.__init__(self)
        trt.IPluginV3OneCore.__init__(self)
        trt.IPluginV3OneBuild.__init__(self)
        trt.IPluginV3OneRuntime.__init__(self)
        self.pairs = pairs
        self.num_outputs = 1
        self.plugin_name, self.plugin_version, self.plugin_namespace = NAME, VERSION, NAMESPACE

    def get_capability_interface(self, kind: Any) -> Pool:
        return self

    def clone(self) -> Pool:
        return Pool(self.pairs)

    def get_output_data_types(self, inputs: Any) -> list[Any]:
        return [inputs[0]]

    def get_output_shapes(self, inputs: Any, shape_inputs: Any, builder: Any) -> list[Any]:
        made = trt.DimsExprs(inputs[0])
        sums = trt.DimensionOperation.SUM
        for axis in range(2):
            kernel, stride, padding = (self.pairs[name][axis] for name in FIELDS)
            room = builder.operation(
                sums, inputs[0][2 + axis], builder.constant(2 * padding - kernel)
            )
            steps = builder.operation(
                trt.DimensionOperation.FLOOR_DIV, room, builder.constant(stride)
            )
            made[2 + axis] = builder.operation(sums, steps, builder.constant(1))
        return [made]

    def supports_format_combination(self, pos: int, ends: Any, inputs: int) -> bool:
        linear = ends[pos].desc.format == trt.TensorFormat.LINEAR
        return bool(linear and ends[pos].desc.type == ends[0].desc.type)

    def configure_plugin(self, inputs: Any, outputs: Any) -> None:
        pass

    def on_shape_change(self, inputs: Any, outputs: Any) -> None:
        pass

    def set_tactic(self, tactic: int) -> None:
        pass

    def enqueue(self, *arguments: Any) -> None:
        raise NotImplementedError

    def attach_to_context(self, context: Any) -> Pool:
        return self.clone()

    def get_fields_to_serialize(self) -> Any:
        return fields(self.pairs)


class Creator(trt.IPluginCreatorV3One):
    def __init__(self) -> None:
        trt.IPluginCreatorV3One.__init__(self)
        self.name, self.plugin_version, self.plugin_namespace = NAME, VERSION, NAMESPACE
        self.field_names = fields({name: [] for name in FIELDS})

    def create_plugin(self, name: str, given: Any, phase: Any) -> Pool:
        return Pool({field.name: np.array(field.data).tolist() for field in given})


def fields(pairs: dict[str, list[int]]) -> Any:
    """Returns plugin fields of INT32."""
    kind = trt.PluginFieldType.INT32
    return trt.PluginFieldCollection(
        [trt.PluginField(name, np.array(pair, np.int32), kind) for name, pair in pairs.items()]
    )


def main(which: str) -> dict[str, Any]:
    """Returns the results of registry, parser and builder."""
    logger = trt.Logger(trt.Logger.ERROR)
    registry = trt.get_plugin_registry()
    creator = Creator()
    if which == "python":
        registry.register_creator(creator, NAMESPACE)
    found: dict[str, Any] = {"version": trt.__version__, "refused": ""}
    library = which if which not in ("python", "none") else None
    entry = PluginEntry(NAME, VERSION, NAMESPACE, library)
    try:
        files = plugin_files([entry], lambda path: Path(path).read_bytes())
        load_plugins(trt, logger, files)
    except DeviceError as error:
        found["refused"] = error.code
    found["registered"] = registry.get_creator(NAME, VERSION, NAMESPACE) is not None
    builder = trt.Builder(logger)
    network = builder.create_network(0)
    parser = trt.OnnxParser(network, logger)
    found["parsed"] = parser.parse(MODEL.read_bytes())
    if not found["parsed"]:
        return {**found, "error": parser.get_error(0).desc()}
    layers = [network.get_layer(i) for i in range(network.num_layers)]
    (layer,) = (candidate for candidate in layers if candidate.name == "p1")
    found |= {"kind": layer.type.name, "shape": list(layer.get_output(0).shape)}
    plan = builder.build_serialized_network(network, builder.create_builder_config())
    return {**found, "plan_bytes": plan.nbytes if plan is not None else 0}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[2])))
