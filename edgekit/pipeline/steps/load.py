"""A configuration's model, loaded once and cached; its import by the board's parser; the user's
INT8 scales; and the layers that stay in FP16.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.config.schema import AUTO
from edgekit.dla.float_layers import FloatLayers
from edgekit.dla.judge import judge, release_notes
from edgekit.dla.scales import LEVELS
from edgekit.errors import DataError, GateError, ModelError
from edgekit.network.expressions import parse_size
from edgekit.network.functions import UserFunction
from edgekit.network.layer_names import layers_named
from edgekit.network.left_modules import with_left_modules
from edgekit.network.loading.load import canonical, file_inputs, file_metadata, load
from edgekit.network.loading.opaque import left_notes
from edgekit.network.loading.open_axes import load_open
from edgekit.network.loading.validation import input_shapes
from edgekit.network.lowering.layers import layers
from edgekit.network.model import Model, Network
from edgekit.network.plugins import HINT as FUNCTION_HINT
from edgekit.network.plugins import OutputForm, Plugin, check_used, function_failure
from edgekit.network.ranges import Profile, ShapeRequest, is_ranged, static_shapes
from edgekit.network.shape_requests import refuse_outside_export, shape_request
from edgekit.network.source import is_function
from edgekit.network.zoo import builtin
from edgekit.parsing.nvidia import ParserResult, ask_parser
from edgekit.parsing.table import AFTER_REWRITES, AS_GIVEN, Parse, parse_check
from edgekit.pipeline.cache import StoredModel, json_digest, load_model, path_identity, store_model
from edgekit.pipeline.context import Context, computed
from edgekit.placement.cuts import cuts
from edgekit.placement.forecast import make_timer
from edgekit.placement.translation import is_typed, translate, translate_typed, typed_note
from edgekit.quantize.caches import CalibrationCache, load_cache, make_cache
from edgekit.quantize.qdq.to_implicit import Translated, has_qdq
from edgekit.text import counted
from edgekit_device.detection.head import Head
from edgekit_device.protocol.detection import Options

if TYPE_CHECKING:
    from edgekit.config.schema import DetectionSection, PluginSection
    from edgekit.pytorch.document import Exported


@computed("model")
def export_torch(context: Context) -> Exported | None:
    """Exports a PyTorch network for the board's release, with a note; None for other models."""
    section = context.file.model
    if not section.is_torch:
        return None
    from edgekit.pytorch.export import export

    file = None if section.pt2 is None else context.config.resolve(section.pt2)
    context.update(0, 0, "exporting the PyTorch network")
    found = export(
        section.python if file is None else file,
        release=context.tensorrt,
        inputs=section.inputs,
        exporter=section.exporter,
        trust=section.trust,
        leave=section.leave,
    )
    context.note(found.words(), *found.notes)
    return found


@computed("calibration.data")
def picture_sizes(context: Context) -> tuple[tuple[int, int], ...]:
    """Returns height and width of the calibration images; () if the data are not images."""
    data = context.file.calibration.data
    if data is None or is_function(data):
        return ()
    from edgekit.quantize.data.images import image_sizes
    from edgekit.quantize.data.lists import images_at

    return tuple(image_sizes(images_at(context.config.resolve(data))))


@computed("model", picture_sizes)
def requested_shapes(context: Context) -> ShapeRequest:
    """Returns the configuration's sizes for the model's inputs, and notes them.

    Raises:
        ModelError: As raised by ``network.shape_requests.shape_request``.
    """
    section, made = context.file.model, export_torch(context)
    if made is not None and not (section.shapes or section.dimensions):
        # without sizes of the configuration the network keeps all sizes that it was exported for
        section = section.model_copy(update={"dimensions": made.dimensions})
    # fixed sizes need not be compared with the inputs, for which the file is read
    plain = not (is_ranged(section) or section.values)
    if plain and not (made is not None and made.dimensions):
        return ShapeRequest(static_shapes(section))
    path = _model_file(context)
    inputs = _load_builtin(context, []).proto.graph.input if path is None else file_inputs(path)
    request = shape_request(section, inputs, picture_sizes(context))
    if made is not None and made.dimensions:
        refuse_outside_export(request, inputs, made.dimensions, context.file.model)
    context.note(*request.notes)
    # the network that is loaded first is then also the first bucket
    return request.led_by_bucket()


def _model_file(context: Context) -> Path | None:
    """Returns the ONNX file, for a PyTorch network the exported file; None if built-in."""
    made = export_torch(context)
    if made is not None:
        return Path(made.file)
    section = context.file.model
    return None if section.onnx is None else context.config.resolve(section.onnx)


@computed(requested_shapes, "detection.classes")
def load_head(context: Context) -> Head | None:
    """Returns the head that decodes the network's outputs; None without ``model.head``.

    Raises:
        GateError: "head.unknown": edgekit does not know the head.
        DataError: "head.unreadable", "head.invalid", "head.classes": errors of a file.
    """
    given = context.file.model.head
    if given is None:
        return None
    from edgekit.detection.files import read_class_names, read_head
    from edgekit.detection.recognise import recognise
    from edgekit.detection.recognised import Unlike

    path, where = _model_file(context), context.config.document.where
    if given == AUTO:
        # the whole network: the head's layers, which show its family, come after the cut
        whole = _read_model(context, [])
        metadata = {} if path is None else file_metadata(path)
        context.update(0, 0, "recognising the head")

        def known() -> Head:
            found = recognise(whole, metadata)
            if isinstance(found, Unlike):
                raise GateError(
                    f"no known head: the nearest is {found.family}, but {found.differs}",
                    code="head.unknown",
                    where=where(("model", "head")),
                    hint="give the head's document (model.head: head.json), or cut the network "
                    "with model.outputs and decode its outputs yourself",
                )
            return found.head

        # kept, since recognition proves a head by running it
        head = context.stored(Head, "head", known, whole.digest, metadata)
    else:
        head = read_head(context.config.resolve(given))
    classes = context.file.detection.classes
    if classes is not None:
        names = read_class_names(
            context.config.resolve(classes) if isinstance(classes, str) else classes
        )
        if head.classes and len(names) != len(head.classes):
            raise DataError(
                f"{counted(len(names), 'name')} for {_classes_text(head)}",
                code="head.classes",
                where=where(("detection", "classes")),
                hint="give a name for each class, in the model's order",
            )
        head = replace(head, classes=tuple(names))
    context.note(head_note(head))
    return head


def detection_options(context: Context) -> Options:
    """Returns the configuration's options for the objects that are kept."""
    return options_from_section(context.file.detection)


def options_from_section(section: DetectionSection) -> Options:
    """Returns which objects a section keeps."""
    return Options(section.score, section.iou, section.most, section.agnostic)


def head_note(head: Head) -> str:
    """Returns the note on the head that decodes the network's outputs, in a line."""
    line = f"head: {head.family}, {_classes_text(head)}, decoded after the network (NumPy)"
    return f"{line}; {head.assumed}" if head.assumed else line


def _classes_text(head: Head) -> str:
    if head.text_line is not None:
        return counted(len(head.text_line.characters), "character")
    if head.text_map is not None:
        return "text"
    number = len(head.classes)
    return f"{number} class{'es' * (number > 1)}" if number else "classes without names"


@computed(requested_shapes, "cut_by", "detection.classes")
def cut_outputs(context: Context) -> list[str]:
    """Returns the tensors that the network is cut at; none if it is whole.

    Raises:
        GateError: "cut.none": no cut pays; "head.unknown".
    """
    section = context.file.model
    if section.outputs:
        return section.outputs
    head = load_head(context)
    if head is not None:
        context.note(cut_note(head.outputs))
        return list(head.outputs)
    if section.cut is None:
        return []
    whole = _read_model(context, [])
    board, precision = context.target, context.file.precision
    network = layers(whole, context.tensorrt)
    judgement = judge(network, board, precision=precision, tensorrt=context.tensorrt)
    clock = make_timer(network, judgement, board, power_mode=context.file.power_mode)
    found = cuts(network, judgement, clock, whole, objective=context.cut_for)
    if not found:
        raise GateError(
            f"no cut pays in {context.cut_for}: none beats the GPU alone and TensorRT's own "
            "placement",
            code="cut.none",
            where=context.config.document.where(("model", "cut")),
            hint="leave 'cut' out; or name the tensors (model.outputs)"
            + ", or choose the placement.objective gpu_time" * (context.cut_for != "gpu_time"),
        )
    outputs = list(found[0].outputs)
    context.note(cut_note(outputs))
    return outputs


def cut_note(outputs: Iterable[str]) -> str:
    """Returns the note on the network's cut, as a configuration has it."""
    return f"the network is cut: model.outputs: [{', '.join(outputs)}]"


@computed(cut_outputs)
def _load_cut(context: Context) -> Model:
    return _read_model(context, cut_outputs(context))


def _read_model(context: Context, outputs: list[str]) -> Model:
    section, request = context.file.model, requested_shapes(context)
    path = _model_file(context)
    if path is not None:
        made = export_torch(context)
        loaded = load(
            path,
            shapes=request.optimum,
            batch=section.batch,
            outputs=outputs or None,
            plugins=user_plugins(context),
            values=request.fixed,
        )
        context.note(*loaded.notes)
        # `export` has already left the modules out of a PyTorch network
        if section.leave and made is None:
            loaded = with_left_modules(loaded, section.leave)[0]
            context.note(*left_notes(loaded.graph))
        return loaded if made is None else replace(loaded, source=made.source)
    model = _load_builtin(context, outputs)
    # its sizes are fixed: other sizes or an unknown input are errors as for a file
    input_shapes(model.proto.graph.input, request.optimum, section.batch)
    plugins = user_plugins(context)
    check_used(plugins, model.proto)
    return replace(model, plugins=plugins) if plugins else model


def _load_builtin(context: Context, outputs: list[str]) -> Model:
    section, cache = context.file.model, context.cache
    assert section.builtin is not None, "the schema requires a source of the model"
    key = cache.key("builtin", section.builtin, section.seed, outputs)
    stored = None if context.force else cache.find(StoredModel, "builtin", key)
    model = load_model(cache, stored) if stored else None
    if model is None:
        context.update(0, 0, "filling the built-in network")
        model = builtin(section.builtin, section.seed)
        if outputs:
            model = canonical(
                model.proto, None, outputs=outputs, source=model.source, weights=model.weights
            )
        stored = store_model(cache, model)
        cache.keep("builtin", key, stored)
        # from now on the weights are memory maps of the cache, not memory
        model = load_model(cache, stored) or model
    return model


def open_model(
    context: Context,
    profiles: Sequence[Profile],
    values: Collection[str] = (),
    path: Path | None = None,
) -> Model:
    """Returns the network's file with its open axes, for an engine of a range of shapes.

    Args:
        context: The configuration.
        profiles: The ranges.
        values: Inputs whose values vary: they stay inputs.
        path: A file with other weights; the configuration's if None.

    Raises:
        ModelError: The file cannot be read.
    """
    path = path or _model_file(context)
    assert path is not None, "a built-in network has no open axes"
    fixed = {n: v for n, v in requested_shapes(context).fixed.items() if n not in values}
    return load_open(path, profiles, cut_outputs(context) or None, fixed)


@computed(_load_cut, "target", "tensorrt")
def user_model(context: Context) -> Model:
    """Returns the user's model; its plugins run in types that the release can provide.

    Raises:
        ModelError: "model.plugin": a plugin takes only INT8, and gets floats.
    """
    model = _load_cut(context)
    if not any(plugin.formats for plugin in model.plugins):
        return model
    plugins = tuple(_without_int8(context, plugin, model) for plugin in model.plugins)
    return model if plugins == model.plugins else replace(model, plugins=plugins)


def _without_int8(context: Context, plugin: Plugin, model: Model) -> Plugin:
    """Returns a plugin without its INT8 formats if the network's types give it floats.

    A strongly typed network has INT8 only between its Q and DQ nodes, and a plugin beside those
    that edgekit writes gets floats (guide, "Q/DQ Interaction with Plugins").
    """
    from edgekit.tensorrt.releases import release

    graph, tensorrt, floats = model.graph, context.tensorrt, plugin.float_formats
    # a weakly typed builder itself reformats to a type that the plugin takes
    if floats == plugin.formats or "weak" in release(tensorrt).typings:
        return plugin
    nodes = [node for node in graph.nodes() if graph.plugin(node) is plugin]
    # the file's own Q/DQ nodes, or an INT8 input, bring INT8 to the plugin
    if not nodes or any(graph.dtype(name) == "int8" for node in nodes for name in node.reads()):
        return plugin
    if not floats:
        raise ModelError(
            f"the plugin {plugin.title} takes INT8 alone, but TensorRT {tensorrt} is strongly "
            "typed and gives it floats: INT8 is only between the Q and DQ nodes of the file",
            code="model.plugin",
            where=plugin.where,
            hint="if it takes floats, too, declare fp16 or fp32 (formats); else put its node "
            "between a QuantizeLinear and a DequantizeLinear of the file, with the scales as "
            "attributes",
        )
    return replace(plugin, formats=floats)


def user_plugins(context: Context) -> tuple[Plugin, ...]:
    """Returns the user's own plugins.

    Raises:
        ModelError: "model.plugin": the module of a function does not exist.
    """
    return tuple(
        _make_plugin(context, number, section)
        for number, section in enumerate(context.file.model.plugins)
    )


def _make_plugin(context: Context, number: int, section: PluginSection) -> Plugin:
    place, given = ("model", "plugins", number), section.model_fields_set
    where = context.config.document.where
    domain, _, operator = section.operator.rpartition("::")
    function = None
    if section.python is not None:
        function = UserFunction(
            section.python,
            module_folders(context),
            function_failure,
            hint=FUNCTION_HINT,
            about="the error is in the function of model.plugins; call it by itself to see more",
        )
    outputs = []
    for index, output in enumerate(section.outputs):
        sizes = tuple(s if isinstance(s, int) else parse_size(s) for s in output.shape)
        at = (*place, "outputs", index, "shape")
        outputs.append(
            OutputForm(sizes, output.type, tuple(where((*at, n)) for n in range(len(sizes))))
        )
    return Plugin(
        operator,
        domain or None,
        # None leaves it to the file's nodes, which may request another than the section's default
        version=section.version if "version" in given else None,
        namespace=section.namespace if "namespace" in given else None,
        function=function,
        outputs=tuple(outputs),
        formats=tuple(section.formats),
        where=where(place),
    )


def module_folders(context: Context) -> list[Path]:
    """Returns the folders that are searched for modules of functions before Python's path."""
    return list(dict.fromkeys([context.config.folder.absolute(), Path().absolute()]))


@computed(user_model, "target", "tensorrt", "precision")
def translate_qdq(context: Context) -> Translated | None:
    """Returns the translation of a Q/DQ model.

    If TensorRT reads Q/DQ nodes on the DLA, plan and reference build use it; the board builds from
    the Q/DQ model itself.
    """
    precision = context.file.precision
    if is_typed(context.target, context.tensorrt, precision):
        found, note = translate_typed(user_model(context), context.tensorrt)
    else:
        found, note = translate(user_model(context), context.target, context.tensorrt, precision)
    context.note(*([note] if note else []))
    return found


def source(context: Context) -> Model:
    """Returns the user's model, or the translation of a Q/DQ model."""
    found = translate_qdq(context)
    return user_model(context) if found is None else found.model


@computed(translate_qdq)
def needs_qdq_nodes(context: Context) -> bool:
    """Returns True if the network gets Q/DQ nodes before its build: strongly typed INT8."""
    typed = is_typed(context.target, context.tensorrt, context.file.precision)
    if not typed or has_qdq(source(context)):
        return False
    if translate_qdq(context) is None:
        context.note(typed_note(context.tensorrt))
    return True


@computed(translate_qdq, "calibration")
def given_scales(context: Context) -> CalibrationCache | None:
    """Returns the INT8 scales that the user gave; None if they are measured, or not needed.

    A cache wins over the scales of a Q/DQ model.
    """
    cache, found = context.file.calibration.cache, translate_qdq(context)
    if context.file.precision != "int8":
        return None
    if cache is not None:
        return load_cache(context.config.resolve(cache))
    return None if found is None else make_cache(found.scales, context.tensorrt)


@computed(given_scales)
def verdict_inputs(context: Context) -> tuple[str, ...]:
    """Returns the inputs of a verdict in addition to the network."""
    section, found = context.file.calibration, translate_qdq(context)
    scales = ""
    if section.cache:
        scales = f"{path_identity(context.config.resolve(section.cache))} {section.missing}"
    elif found is not None:
        # the plain model does not depend on the scales
        scales = json_digest(dict(found.scales))
    typed = ("Q/DQ",) if needs_qdq_nodes(context) else ()
    # the types that a plugin runs in, and the cost of the reformats beside it
    formats = [
        [plugin.title, *plugin.formats] for plugin in user_model(context).plugins if plugin.formats
    ]
    own = (json_digest(formats),) if formats else ()
    return context.file.target, context.file.precision, context.tensorrt, scales, *typed, *own


def known_magnitudes(context: Context) -> tuple[Mapping[str, float], ...]:
    """Returns the largest magnitudes, measured or from a calibration cache."""
    if context.measured is not None:
        return context.measured.amax
    given = given_scales(context)
    if context.file.calibration.cache is None or given is None:
        return ()
    return ({name: scale * LEVELS for name, scale in given.scales.items()},)


# Layers stay in FP16 in an INT8 build if the user, the model or the accuracy gate requires it,
# and if values of different range meet.


def fp16_layers(
    context: Context, network: Network, *, strict: bool = False, gate: bool = True
) -> frozenset[str]:
    """Returns the names of ``float_layers``; arguments and errors likewise."""
    return float_layers(context, network, strict=strict, gate=gate).names


def float_layers(
    context: Context, network: Network, *, strict: bool = False, gate: bool = True
) -> FloatLayers:
    """Returns the layers of a network that stay in FP16.

    Args:
        context: The configuration.
        network: The original network, or the rewritten network.
        strict: True if every glob of the configuration must match a layer.
        gate: True to include the layers of the accuracy gate.

    Raises:
        UsageError: A glob matches no layer.
    """
    if context.file.precision != "int8":
        return FloatLayers()
    globs, names = _fp16_requested(context, gate)
    chosen = layers_named(
        network, globs, where="calibration.fp16_layers", strict=strict
    ) | layers_named(network, names, strict=False)
    if translate_qdq(context):  # its layers run in the types of the Q/DQ nodes
        return FloatLayers(chosen)
    # tensors of much different magnitude that would share a scale keep their layer in FP16
    return FloatLayers.of(network, known_magnitudes(context), chosen)


def fp16_choice(context: Context, *, gate: bool = True) -> list[Any]:
    """Returns the identity of the choice of FP16 layers; ``gate`` as for ``fp16_layers``."""
    globs, names = _fp16_requested(context, gate)
    return [*globs, sorted(names)]


def _fp16_requested(context: Context, gate: bool) -> tuple[list[str], list[str]]:
    """Returns the configuration's globs; and names of nodes and layers."""
    found = translate_qdq(context)
    nodes = () if found is None else found.fp16_nodes
    kept = context.fp16_by_gate if gate else ()
    return context.file.calibration.fp16_layers, [*nodes, *kept]


# The import of the model by the parser of the board's TensorRT; a model that it refuses is not
# calibrated, placed or built.


def parser_input(context: Context) -> Model:
    """Returns the model that the board's parser gets, before the rewrites.

    It is the translation of a Q/DQ model, unless TensorRT builds from the Q/DQ model itself.
    The rewrites need not be waited for: they write only operators that every release imports.
    """
    typed = is_typed(context.target, context.tensorrt, context.file.precision)
    return user_model(context) if typed else source(context)


@computed(translate_qdq)
def parse(context: Context, release: str = "") -> Parse:
    """Returns the result of ``release``'s parser for the model; the planned release if empty."""
    model = parser_input(context)
    return parse_check(
        model.graph,
        release or context.tensorrt,
        context.target,
        plugins=[plugin.name for plugin in context.file.model.plugins],
        model=AS_GIVEN if model is user_model(context) else AFTER_REWRITES,
        traces=user_model(context).traces,
    )


@computed(translate_qdq, "parser")
def nvidia_parser_result(context: Context) -> ParserResult | None:
    """Returns the result of NVIDIA's own parser for the model, and notes it; None if not requested.

    Raises:
        UsageError: "parser.missing".
        BuildError: NVIDIA's parser gives no answer.
    """
    if not context.file.parser:
        return None
    context.update(0, 0, "asking NVIDIA's parser")
    word = ask_parser(parser_input(context))
    context.note(word.note(parse(context)))
    return word


def note_parse(context: Context) -> None:
    """Notes that the board cannot parse the model, for a step that works without TensorRT."""
    found = parse(context)
    if not found.ok:
        error = found.refusal()
        context.note(f"{error.message}; what to do: {error.hint}")


def require_parse(context: Context, release: str = "") -> None:
    """Refuses a model that the parser does not import; NVIDIA's own parser adds its result.

    Adds notes for the user on the planned release.

    Args:
        context: The configuration.
        release: The board's own TensorRT, if it was requested; the planned release if empty.

    Raises:
        GateError: "model.parse".
        UsageError: "parser.missing".
        BuildError: NVIDIA's parser gives no answer.
    """
    context.note(*release_notes(context.target, context.tensorrt))
    found = parse(context, release)
    if not found.ok:
        raise found.refusal()
    nvidia_parser_result(context)
