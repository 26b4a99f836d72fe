"""OnnxParser: a real ONNX model becomes a network, or errors as IParserError tells them."""

from pathlib import Path
from typing import Any

from ._behaviour import plays
from ._onnx_layers import SUPPORTED, Importer
from ._onnx_weights import refit_weights
from ._play_base import emit
from ._play_network import dtype_name, new_tensor
from ._play_plugins import without_plugins
from ._value_shapes import make_shapes


@plays("OnnxParser", "__init__")
def _parser(this: Any, network: Any, logger: Any) -> None:
    this._s.network = network
    this._s.logger = logger
    this._s.errors = []
    # NvOnnxParser.h from 10.0 on: kNATIVE_INSTANCENORM is on by default
    this._s.flags = int(this._s.double.build >= (10,))
    this._s.config = None
    if network._s.layers:
        this._s.double.offend("OnnxParser was made for a network that has layers already")


@plays("OnnxParser", "get num_errors")
def _num_errors(this: Any) -> int:
    return len(this._s.errors)


@plays("OnnxParser", "get_error")
def _get_error(this: Any, index: int) -> Any:
    if 0 <= index < len(this._s.errors):
        return this._s.errors[index]
    emit(this._s.double, this._s.logger, "ERROR", f"vector::_M_range_check: __n ({index})")
    return None


@plays("OnnxParser", "clear_errors")
def _clear_errors(this: Any) -> None:
    this._s.errors.clear()


@plays("OnnxParser", "set_flag")
def _set_flag(this: Any, flag: Any) -> None:
    this._s.flags |= 1 << int(flag)


@plays("OnnxParser", "clear_flag")
def _clear_flag(this: Any, flag: Any) -> None:
    this._s.flags &= ~(1 << int(flag))


@plays("OnnxParser", "get_flag")
def _get_flag(this: Any, flag: Any) -> bool:
    return bool(this._s.flags & (1 << int(flag)))


@plays("OnnxParser", "supports_operator")
def _supports(_this: Any, op_name: str) -> bool:
    return op_name in SUPPORTED


@plays("OnnxParser", "get_used_vc_plugin_libraries")
def _vc_plugins(this: Any) -> list[str]:
    """The library of the plugins that the parser made (ImporterContext::addUsedVCPluginLibrary)."""
    own = this._s.network._s.plugins
    plugins = any(
        one._s.kind_name == "PLUGIN_V2" and one._s.outputs[0]._s.name not in own
        for one in this._s.network._s.layers
    )
    name = f"libnvinfer_vc_plugin.so.{this._s.double.build[0]}"
    return [f"/usr/lib/aarch64-linux-gnu/{name}"] if plugins else []


@plays("OnnxParser", "parse")
def _parse(this: Any, model: Any, path: Any = None) -> bool:
    import onnx

    if this._s.network._s.layers or this._s.errors:
        text = "ModelImporter.cpp:1170: Parse was called with a non-empty network definition"
        emit(this._s.double, this._s.logger, "ERROR", text)
        return False
    data = bytes(memoryview(model))
    try:
        loaded = onnx.load_model_from_string(data)
        if path is not None:
            _external(loaded, Path(path).parent)
    except Exception as error:
        return _fail(
            this, "MODEL_DESERIALIZE_FAILED", "parse", f"Failed to parse the ONNX model ({error})"
        )
    return _take(this, loaded)


@plays("OnnxParser", "parse_from_file")
def _parse_file(this: Any, model: str) -> bool:
    import onnx

    if this._s.network._s.layers:
        text = "model->ByteSizeLong() == 0: A model was previously parsed!"
        return _fail(this, "MODEL_DESERIALIZE_FAILED", "deserializeOnnxModel", text)
    path = Path(model)
    if not path.is_file():
        # TensorRT for RTX 1.7, of the 11 family, looks for the file before it reads it
        code = "INVALID_VALUE" if this._s.double.build >= (11,) else "MODEL_DESERIALIZE_FAILED"
        return _fail(this, code, "parseFromFile", f"Failed to open file: {model}")
    try:
        loaded = onnx.load(path)
    except Exception as error:
        return _fail(
            this, "MODEL_DESERIALIZE_FAILED", "parseFromFile", f"Failed to parse {model} ({error})"
        )
    return _take(this, loaded)


def _external(model: Any, folder: Path) -> None:
    from onnx.external_data_helper import load_external_data_for_model

    load_external_data_for_model(model, str(folder))


def _fail(this: Any, code: str, func: str, text: str, node: Any = None, index: int = -1) -> bool:
    kinds = this._s.double.factory.classes
    error = this._s.double.factory.new(
        "ParserError",
        code=kinds["ErrorCode"].__members__.get(
            code, kinds["ErrorCode"].__members__["INTERNAL_ERROR"]
        ),
        desc=text,
        file="ModelImporter.cpp",
        func=func,
        line=1,
        node=index,
        node_name="" if node is None else node.name,
        node_operator="" if node is None else node.op_type,
    )
    this._s.errors.append(error)
    emit(this._s.double, this._s.logger, "ERROR", f"ModelImporter.cpp:1: ERROR: {text}")
    return False


for _fact in ("code", "desc", "file", "func", "line", "node", "node_name", "node_operator"):

    def _read(this: Any, _fact: str = _fact) -> Any:
        return vars(this._s)[_fact]

    plays("ParserError", _fact)(_read)


def _take(this: Any, model: Any) -> bool:
    """Fills the network from `model`; False with errors where a node has no importer."""
    from onnx import numpy_helper, shape_inference

    model, plugins = without_plugins(this._s.double, model)
    for index, node in enumerate(model.graph.node):
        if node.op_type not in SUPPORTED or node.domain not in ("", "ai.onnx"):
            text = (
                f"In node {index} with name: {node.name} and operator: {node.op_type} "
                '(checkFallbackPluginImporter): creator && "Plugin not found, are '
                'the plugin name, version, and namespace correct?"'
            )
            code = "INVALID_NODE" if this._s.double.build >= (10,) else "UNSUPPORTED_NODE"
            return _fail(this, code, "checkFallbackPluginImporter", text, node, index)
    network = this._s.network
    inferred = shape_inference.infer_shapes(model)
    graph = inferred.graph
    known = {
        one.name: one.type.tensor_type for one in (*graph.input, *graph.value_info, *graph.output)
    }
    network._s.model = model
    network._s.plugins = plugins
    network._s.weights = dict(refit_weights(model, this._s.double.build))
    network._s.name = graph.name
    inits = {one.name: numpy_helper.to_array(one).shape for one in graph.initializer}

    def tensor(name: str) -> Any:
        if name in network._s.tensors:
            return network._s.tensors[name]
        kind = known.get(name)
        shape = (
            [d.dim_value if d.HasField("dim_value") else -1 for d in kind.shape.dim] if kind else []
        )
        if name in inits:
            shape = list(inits[name])
        return new_tensor(network, name, dtype_name(kind.elem_type if kind else 1), shape)

    shaping = make_shapes(model)
    for one in graph.input:
        if one.name not in inits:
            network._s.inputs.append(tensor(one.name))
            network._s.inputs[-1]._s.is_shape_tensor = one.name in shaping
    types = this._s.double.factory.classes["LayerType"].__members__
    for made in Importer(graph, plugins).layers:
        layer = this._s.double.factory.new(
            "ILayer",
            name=made.name,
            metadata=made.metadata,
            type=types.get(made.kind, types["IDENTITY"]),
            inputs=[tensor(name) for name in made.inputs],
            outputs=[tensor(name) for name in made.outputs],
            precision=None,
            output_types={},
            node=made.node,
            kind_name=made.kind,
            network_layers=network._s.layers,
        )
        network._s.layers.append(layer)
    for one in graph.output:
        network._s.outputs.append(tensor(one.name))
    emit(this._s.double, this._s.logger, "VERBOSE", f"Network has {len(network._s.layers)} layers")
    return True
