"""The builder's network: parsed from ONNX, its inputs and outputs set as requested, and the plan's
layers found in it by name, by metadata and by the layers that read them.
"""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from edgekit_device.build.request import EngineSpec, IoSpec, LayerSpec
from edgekit_device.errors import DeviceError, listed, map_os_errors
from edgekit_device.tensorrt.plugins import PluginFile, load_plugins

#: NumPy's names by trt.DataType's; types that NumPy lacks have the manifest's names.
DTYPE_OF_TENSORRT = {
    "FLOAT": "float32",
    "HALF": "float16",
    "INT8": "int8",
    "INT32": "int32",
    "INT64": "int64",
    "BOOL": "bool",
    "UINT8": "uint8",
    "BF16": "bfloat16",
}

_NAMES = {numpy: name for name, numpy in DTYPE_OF_TENSORRT.items()}

# formats of a loadable's tensors: NVIDIA's guide, "DLA runtime configuration"
_STANDALONE: Mapping[Tuple[str, str], Tuple[str, ...]] = {
    ("input", "float16"): ("DLA_LINEAR", "DLA_HWC4", "CHW16"),
    ("input", "int8"): ("DLA_LINEAR", "DLA_HWC4", "CHW32"),
    ("output", "float16"): ("DLA_LINEAR", "CHW16"),
    ("output", "int8"): ("DLA_LINEAR", "CHW32"),
}
# the largest step of a symmetric range, as trtexec sets it
_INT8_MAX = 127.0
_METADATA = re.compile(r"\[ONNX Layer: (.*)\]", re.DOTALL)
_BRANCH = re.compile(r" \| .* \| .* \(If\)\Z", re.DOTALL)
_SEPARATORS = re.compile("[\x1e\x1f]")
_SUFFIX = re.compile(r"_\d+\Z")
_INSIDE = "(Unnamed Layer*"  # prefix of the names of tensors that are not ONNX tensors

#: Layers around a loop or a conditional, by the kind of the plan's layer that contains them. DLAs
#: do not support these layers, nor the layers inside, which get the same device.
_FLOW: Mapping[str, str] = {
    "TRIP_LIMIT": "LOOP",
    "RECURRENCE": "LOOP",
    "ITERATOR": "LOOP",
    "LOOP_OUTPUT": "LOOP",
    "CONDITION": "CONDITION",
    "CONDITIONAL_INPUT": "CONDITION",
    "CONDITIONAL_OUTPUT": "CONDITION",
}

#: Layers without their own work: the builder merges them into others.
_CARRIED = ("CONSTANT", "SHUFFLE", "SQUEEZE", "UNSQUEEZE", "IDENTITY", "CAST")


def create(trt: Any, builder: Any, spec: EngineSpec) -> Any:
    """Returns an empty network of the release's kind: explicit batch, strongly typed.

    Raises:
        DeviceError: "build.typing": the release has no networks of the request's kind.
    """
    _check_typing(trt, spec)
    flags = 0
    # removed in 11.0, where every network has an explicit batch and is strongly typed
    creation_flags = trt.NetworkDefinitionCreationFlag
    if hasattr(creation_flags, "EXPLICIT_BATCH"):
        flags |= 1 << int(creation_flags.EXPLICIT_BATCH)
    if spec.typing == "strong" and hasattr(creation_flags, "STRONGLY_TYPED"):
        flags |= 1 << int(creation_flags.STRONGLY_TYPED)
    return builder.create_network(flags)


def _check_typing(trt: Any, spec: EngineSpec) -> None:
    release = getattr(trt, "__version__", "")
    # the precision flags were removed in 11.0, with weakly typed networks
    if spec.typing == "weak" and not hasattr(trt.BuilderFlag, "FP16"):
        raise DeviceError(
            "the request is for a weakly typed network, but every network of TensorRT {} is "
            "strongly typed".format(release),
            code="build.typing",
            where=spec.key,
            hint="plan for this board's TensorRT (tensorrt: in the YAML file, or --tensorrt): the "
            "model then has its types and its Q/DQ nodes",
        )


def parse(
    trt: Any,
    network: Any,
    logger: Any,
    model: Path,
    key: str,
    *,
    native: bool = False,
    plugins: Sequence[PluginFile] = (),
) -> Any:
    """Parses an ONNX file into the network.

    Args:
        trt: TensorRT's module.
        network: The empty network.
        logger: The builder's logger.
        model: The file; its external data is in the same folder.
        key: The engine's key, for messages.
        native: True if normalisations must not be plugins, as in version compatible plans
            (OnnxParserFlag.NATIVE_INSTANCENORM in NvOnnxParser.h).
        plugins: Plugins that the model needs beside TensorRT's own.

    Returns:
        The parser, which must live as long as the network: it owns the weights' memory.

    Raises:
        DeviceError: "build.parser", with every error of the parser; as ``load_plugins``.
    """
    # before parsing: the parser asks the registry for a creator of each unknown operator
    load_plugins(trt, logger, plugins, key)
    parser = trt.OnnxParser(network, logger)
    if native and hasattr(getattr(trt, "OnnxParserFlag", None), "NATIVE_INSTANCENORM"):
        parser.set_flag(trt.OnnxParserFlag.NATIVE_INSTANCENORM)
    if not parser.parse_from_file(str(model)) or parser.num_errors:
        errors = [_parser_error(parser.get_error(n)) for n in range(parser.num_errors)]
        hint = (
            "`edgekit check` shows nodes that the release lacks; `edgekit rewrite` may replace them"
        )
        if any("Plugin not found" in error for error in errors):
            hint = (
                "name the operator in model.plugins, with its library or its source; the node's "
                "plugin_version and plugin_namespace must be the creator's"
            )
        raise DeviceError(
            "TensorRT cannot read the model: {}".format(
                listed(errors, between="; ") or "its parser gives no reason"
            ),
            code="build.parser",
            where=key,
            hint=hint,
        )
    return parser


def _parser_error(error: Any) -> str:
    text = " ".join(str(error.desc()).split())
    # node_name and node_operator exist since 10.0
    name = str(error.node_name()) if hasattr(error, "node_name") else ""
    operator = str(error.node_operator()) if hasattr(error, "node_operator") else ""
    if name or operator:
        place = "node {!r} ({})".format(name, operator) if operator else "node {!r}".format(name)
    else:
        place = "node {}".format(error.node()) if error.node() >= 0 else "the file"
    return "{}: {} ({})".format(place, text, error.code().name)


def io_faults(spec: EngineSpec, scales: Mapping[str, float]) -> List[str]:
    """Returns the faults of a loadable's inputs and outputs, before the build."""
    if not spec.standalone:
        return []
    faults = []
    for mode, tensors in (("input", spec.inputs), ("output", spec.outputs)):
        for io in tensors:
            legal = _STANDALONE.get((mode, io.dtype))
            if legal is None:
                faults.append(
                    "{} {!r} is {}, but a loadable supports only float16 and int8".format(
                        mode, io.name, io.dtype
                    )
                )
            elif len(io.formats) != 1 or io.formats[0] not in legal:
                faults.append(
                    "{} {!r} ({}) needs one format of {}, not {}".format(
                        mode, io.name, io.dtype, ", ".join(legal), ", ".join(io.formats) or "none"
                    )
                )
            if io.dtype == "int8" and spec.typing == "weak" and _find_scale(io, scales) is None:
                faults.append("{} {!r} is int8 and has no scale".format(mode, io.name))
    return faults


def set_io(trt: Any, network: Any, spec: EngineSpec, scales: Mapping[str, float]) -> None:
    """Sets types, formats and ranges of the network's inputs and outputs.

    An INT8 tensor without Q/DQ layers gets the range +-127 * scale, as trtexec sets it from the
    calibration cache (setTensorScalesFromCalibration in samples/common/sampleEngines.cpp).

    Raises:
        DeviceError: "build.io", with every mismatch.
    """
    faults: List[str] = []
    for mode, count, get, wanted in (
        ("input", network.num_inputs, network.get_input, spec.inputs),
        ("output", network.num_outputs, network.get_output, spec.outputs),
    ):
        found = {}
        for n in range(count):
            tensor = get(n)
            found[tensor.name] = tensor
        names = {io.name for io in wanted}
        faults += ["the model has no {} {!r}".format(mode, n) for n in sorted(names - set(found))]
        faults += [
            "the model's {} {!r} is not in the request".format(mode, n)
            for n in sorted(set(found) - names)
        ]
        for io in wanted:
            if io.name in found:
                _set_tensor(trt, found[io.name], io, mode, spec.typing == "weak", scales, faults)
    if faults:
        raise DeviceError(
            "; ".join(faults),
            code="build.io",
            where=spec.key,
            hint="the request and the model are from different plans, or this release does not "
            "support the types: run `edgekit build` again",
        )


def _set_tensor(
    trt: Any,
    tensor: Any,
    io: IoSpec,
    mode: str,
    weak: bool,
    scales: Mapping[str, float],
    faults: List[str],
) -> None:
    shape = tuple(tensor.shape)
    if len(shape) != len(io.shape) or any(
        # -1 on either side: a size that a profile sets
        have not in (-1, want) and want != -1
        for have, want in zip(shape, io.shape)  # noqa: B905
    ):
        faults.append(
            "{} {!r} is {} instead of {}".format(mode, io.name, list(shape), list(io.shape))
        )
    if tensor.dtype.name != _NAMES.get(io.dtype):
        if weak and hasattr(trt.DataType, _NAMES.get(io.dtype, "")):
            tensor.dtype = getattr(trt.DataType, _NAMES[io.dtype])
        else:
            # a strongly typed network has the model's types
            have = DTYPE_OF_TENSORRT.get(tensor.dtype.name, tensor.dtype.name)
            faults.append("{} {!r} is {} instead of {}".format(mode, io.name, have, io.dtype))
    mask = 0
    for name in io.formats:
        if hasattr(trt.TensorFormat, name):
            mask |= 1 << int(getattr(trt.TensorFormat, name))
        else:
            faults.append("{} {!r}: this release has no format {}".format(mode, io.name, name))
    if mask:
        tensor.allowed_formats = mask
    scale = _find_scale(io, scales)
    if weak and io.dtype == "int8" and scale is not None:
        tensor.set_dynamic_range(-_INT8_MAX * scale, _INT8_MAX * scale)


def _find_scale(io: IoSpec, scales: Mapping[str, float]) -> Any:
    # the request's own scale first: a border between segments has the scale of both sides
    scale = io.scale if io.scale is not None else scales.get(io.name)
    return scale if scale else None


def model_file(folder: Path, model: Path, data: Mapping[str, Path]) -> Path:
    """Returns a path of the model in the folder of its external data.

    Raises:
        DeviceError: "board.disk-full" and the like.
    """
    file = folder / "model.onnx"
    with map_os_errors(str(folder)):
        folder.mkdir(parents=True, exist_ok=True)
        # all attempts at an engine use the same folder
        if not file.exists():
            try:
                # no copy of a large model, if the store is on the same file system
                os.link(str(model), str(file))
            except OSError:
                shutil.copyfile(str(model), str(file))
        for name, source in data.items():
            # a copy: ONNX readers refuse external data through hard and symbolic links
            if not (folder / name).exists():
                shutil.copyfile(str(source), str(folder / name))
    return file


@dataclass(frozen=True, eq=False)
class BuilderLayer:
    """A layer of an INetworkDefinition: its facts, and the layer object."""

    index: int
    name: str
    kind: str
    nodes: Tuple[str, ...]
    inputs: Tuple[str, ...]
    outputs: Tuple[str, ...]
    layer: Any


@dataclass
class MappedLayers:
    """The mapping between the builder's layers and the plan's layers.

    Attributes:
        layers: The builder's layers, in its order.
        ours: The plan's layer by the builder layer's index.
        parts: The plan's layer by the index of an unnamed layer that does part of its node's work.
        device: "GPU" or "DLA" by index, also for inserted layers.
        unmapped: Names of builder layers whose device is unknown.
        lost: Names of the plan's layers with ONNX nodes but without a builder layer.
    """

    layers: List[BuilderLayer]
    ours: Dict[int, LayerSpec] = field(default_factory=dict)
    parts: Dict[int, LayerSpec] = field(default_factory=dict)
    device: Dict[int, str] = field(default_factory=dict)
    unmapped: List[str] = field(default_factory=list)
    lost: List[str] = field(default_factory=list)

    def work(self) -> Dict[str, List[BuilderLayer]]:
        """Returns the builder's layers that do the work of each layer of the plan, by its name.

        These are the layers of its own kind; if there are none, all except layers that a fusion
        absorbs.
        """
        found: Dict[str, List[BuilderLayer]] = {}
        for index, spec in self.ours.items():
            found.setdefault(spec.name, []).append(self.layers[index])
        kinds = {spec.name: spec.kind for spec in self.ours.values()}
        for name, own in found.items():
            same = [layer for layer in own if layer.kind == kinds[name]]
            found[name] = same or [x for x in own if x.kind not in _CARRIED] or own
        return found

    def exact(self) -> Dict[str, List[BuilderLayer]]:
        """Returns ``work``, but only layers of the same kind as the plan's layer."""
        kinds = {spec.name: spec.kind for spec in self.ours.values()}
        found = ((name, own) for name, own in self.work().items())
        return {name: own for name, own in found if all(x.kind == kinds[name] for x in own)}


def read_layers(network: Any) -> List[BuilderLayer]:
    """Reads an INetworkDefinition's layers."""
    found = []
    for index in range(network.num_layers):
        layer = network.get_layer(index)
        inputs = [layer.get_input(n) for n in range(layer.num_inputs)]
        outputs = [layer.get_output(n) for n in range(layer.num_outputs)]
        found.append(
            BuilderLayer(
                index=index,
                name=layer.name,
                kind=layer.type.name,
                # 8.5 has no metadata
                nodes=tuple(_metadata_nodes(getattr(layer, "metadata", "") or "")),
                # an omitted optional input is None
                inputs=tuple(tensor.name for tensor in inputs if tensor is not None),
                outputs=tuple(tensor.name for tensor in outputs if tensor is not None),
                layer=layer,
            )
        )
    return found


def map_layers(layers: Sequence[BuilderLayer], specs: Sequence[LayerSpec]) -> MappedLayers:
    """Finds the plan's layer and the device of every builder layer.

    onnx-tensorrt names a layer like its ONNX node, with "_N" appended if the name was taken;
    since 8.6 the layer's metadata have "[ONNX Layer: NODE]", several separated by the control
    characters 1E and 1F. For a node of several layers it may name only the first: a Gemm's bias
    addition and products with alpha and beta have neither (onnxOpImporters.cpp). TensorRT's own
    names of the tensors between them show that they belong together: "(Unnamed Layer* 9)
    [Matrix Multiply]_output". Other inserted layers (constants, shuffles) get the device of
    their readers.
    """
    mapped = MappedLayers(list(layers))
    by_node: Dict[str, List[LayerSpec]] = {}
    by_name: Dict[str, LayerSpec] = {}
    for spec in specs:
        for node in spec.nodes:
            by_node.setdefault(node, []).append(spec)
        by_name.setdefault(spec.name, spec)
        by_name.setdefault(spec.builder_name, spec)
    taken: Dict[str, int] = {}
    for layer in layers:
        candidates = _candidates(layer, by_node, by_name)
        if candidates:
            mapped.ours[layer.index] = _choose_layer(layer, candidates, taken)
    mapped.parts = _map_parts(mapped)
    # a layer that has its own layer in the plan comes last and wins
    mapped.device = {
        index: spec.device for own in (mapped.parts, mapped.ours) for index, spec in own.items()
    }
    flow_kinds = {layer.index: _FLOW[layer.kind] for layer in layers if layer.kind in _FLOW}
    mapped.device.update(dict.fromkeys(flow_kinds, "GPU"))
    _assign_inserted(mapped)
    mapped.unmapped = [layer.name for layer in layers if layer.index not in mapped.device]
    mapped_names = {spec.name for spec in mapped.ours.values()}
    # the parser does not name any layer after an ONNX Loop
    mapped_names |= {spec.name for spec in specs if spec.kind in flow_kinds.values()}
    # the builder inserts layers without nodes itself, later
    mapped.lost = [spec.name for spec in specs if spec.nodes and spec.name not in mapped_names]
    return mapped


def _candidates(
    layer: BuilderLayer, by_node: Dict[str, List[LayerSpec]], by_name: Dict[str, LayerSpec]
) -> List[LayerSpec]:
    # metadata first: the parser names a further layer of node "n" "n_5", and another node of the
    # model may have that name
    if layer.nodes:
        return [spec for node in layer.nodes for spec in by_node.get(node, ())]
    if layer.name in by_node:
        return by_node[layer.name]
    if layer.name in by_name:
        return [by_name[layer.name]]
    # 8.5 has no metadata: the layer has its node's name, and a number that the parser appended
    return by_node.get(_SUFFIX.sub("", layer.name), [])


def _choose_layer(layer: BuilderLayer, specs: List[LayerSpec], taken: Dict[str, int]) -> LayerSpec:
    """Returns the next of a node's several plan layers that has the builder layer's kind."""
    if len(specs) == 1:
        return specs[0]
    # the builder turns arithmetic with a constant into a scale layer
    kinds = {layer.kind, "SCALE"} if layer.kind == "ELEMENTWISE" else {layer.kind}
    same = [spec for spec in specs if spec.kind in kinds] or specs
    free = [spec for spec in same if not taken.get(spec.name)]
    # in order: the parser adds a node's layers in the order in which the plan lists them
    found = (free or same)[0]
    # a layer of another kind (an inserted constant) does not use up the plan's layer
    if found.kind in kinds:
        taken[found.name] = taken.get(found.name, 0) + 1
    return found


def _map_parts(mapped: MappedLayers) -> Dict[int, LayerSpec]:
    """Finds the plan's layers of unnamed layers that compute, by the tensors inside nodes."""
    plan_layers = dict(mapped.ours)
    without_work = (*_CARRIED, *_FLOW)
    unnamed = [
        x for x in mapped.layers if x.index not in plan_layers and x.kind not in without_work
    ]
    writer = {name: layer.index for layer in mapped.layers for name in layer.outputs}
    # the first reader; tensors inside a node have only one
    reader: Dict[str, int] = {}
    for layer in mapped.layers:
        for name in layer.inputs:
            reader.setdefault(name, layer.index)

    def take(layer: BuilderLayer, names: Iterable[str], other: Dict[str, int]) -> None:
        found = [other[n] for n in names if n.startswith(_INSIDE) and other.get(n) in plan_layers]
        if found and layer.index not in plan_layers:
            plan_layers[layer.index] = plan_layers[max(found)]

    for layer in unnamed:  # after named layers
        take(layer, layer.inputs, writer)
    for layer in reversed(unnamed):  # before named layers, or before layers found above
        take(layer, layer.outputs, reader)
    return {
        layer.index: plan_layers[layer.index] for layer in unnamed if layer.index in plan_layers
    }


def _assign_inserted(mapped: MappedLayers) -> None:
    """Gives inserted layers the device of their readers, else of the layers that they read."""
    readers: Dict[str, List[int]] = {}
    writer: Dict[str, int] = {}
    for layer in mapped.layers:
        for name in layer.inputs:
            readers.setdefault(name, []).append(layer.index)
        for name in layer.outputs:
            writer[name] = layer.index
    assigned = -1
    # one round is enough for most: readers come later in the builder's order. A layer that gets its
    # writer's device may itself have inserted layers before it.
    while len(mapped.device) > assigned:
        assigned = len(mapped.device)
        for layer in reversed(mapped.layers):
            after = (index for name in layer.outputs for index in readers.get(name, ()))
            _assign_device(mapped, layer, after)
        for layer in mapped.layers:
            _assign_device(mapped, layer, (writer[name] for name in layer.inputs if name in writer))


def _assign_device(mapped: MappedLayers, layer: BuilderLayer, others: Iterable[int]) -> None:
    if layer.index in mapped.device:
        return
    device: Optional[str] = next((mapped.device[i] for i in others if i in mapped.device), None)
    if device is not None:
        mapped.device[layer.index] = device


def _metadata_nodes(metadata: str) -> Iterable[str]:
    for part in _SEPARATORS.split(metadata):
        match = _METADATA.search(part)
        if match:
            # for a node in a branch TensorRT 11 adds " | GRAPH (then_branch) | NODE (If)"
            yield _BRANCH.sub("", match.group(1))
