"""The build that a configuration requests of a board: options that are wrong on any board, missing
features of the board, and the request itself.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from edgekit.deployment.requirements import (
    require_cores,
    require_cudla,
    require_numpy,
    require_release,
    tensorrt_release,
)
from edgekit.dla.precision import build_precisions
from edgekit.errors import ConfigError, EnvironmentLack, ModelError, Problem, UsageError
from edgekit.network.graph import PLUGIN
from edgekit.network.loading.opaque import (
    before_opaque,
    left_notes,
    opaque_notes,
    plugin_notes,
)
from edgekit.network.lowering import kinds
from edgekit.network.model import Model
from edgekit.pipeline.steps.buckets import network_sizes, networks_at_ends
from edgekit.pipeline.steps.calibrate import calibration_inputs
from edgekit.pipeline.steps.load import (
    fp16_layers,
    open_model,
    require_parse,
    source,
    translate_qdq,
)
from edgekit.pipeline.steps.method import plan_scales, typed_model
from edgekit.pipeline.steps.plan import plan, segments
from edgekit.pipeline.steps.plugin_sections import check_libraries
from edgekit.pipeline.steps.rewrite import model, network
from edgekit.placement.segments import cut_segments
from edgekit.quantize.caches import make_cache
from edgekit.quantize.qdq.to_implicit import has_qdq
from edgekit.quantize.scales import scales_in
from edgekit.reference.open_axes import golden_shapes
from edgekit.targets.releases import supports_dla
from edgekit_device.protocol.manifest import AUTOMATIC, MemorySettings, Range

if TYPE_CHECKING:
    from edgekit.config.schema import BuildSection
    from edgekit.deployment.client import BoardClient
    from edgekit.network.ranges import Profile, Values
    from edgekit.pipeline.context import Context
    from edgekit.tensorrt.options import Decision, RequestedBuild
    from edgekit.tensorrt.plugin_library import PluginLibraries
    from edgekit.tensorrt.requests import BuildRequest, RequestedLane
    from edgekit.tensorrt.settings import SettingValue
    from edgekit_device.board.probe import Probe
    from edgekit_device.build.request import Attempt, GoldenSpec


def make_build_request(
    context: Context,
    *,
    other: Model | None = None,
    plugins: PluginLibraries | None = None,
    profiles: Sequence[Profile] = (),
    values: Values | None = None,
) -> tuple[BuildRequest, tuple[RequestedLane, ...]]:
    """Returns the request for a board's build, and its engines.

    Args:
        context: The configuration.
        other: Other weights in the same network; the configuration's own model if None.
        plugins: The libraries that a board must load for it; None for none.
        profiles: The ranges of the engine on the GPU that takes them all; empty for the plan's
            engines, of a single shape.
        values: Ranges of values of its inputs that hold sizes.

    Raises:
        ConfigError: Keys that exclude each other, with the reason and its source.
    """
    from edgekit.tensorrt.requests import BuildOptions, build_request, memory_pools
    from edgekit_device.build.request import NetworkSpec, NetworkTensor

    file = context.file
    decision = _decide_build(context, profiles)
    context.note(*decision.notes)
    strong = decision.typing == "strong"
    values = values or {}
    opened = _range_model(context, profiles, values, strong) if profiles else None
    if opened is None:
        lanes = _requested_lanes(context, strong, other)
    else:
        lanes = _range_lanes(context, opened, profiles, values, strong)
    used = {layer.precision for share in plan(context).plans for layer in share.layers}
    # the plan is of the network without its Q/DQ nodes
    if opened is not None and has_qdq(opened):
        used.add("int8")  # TensorRT reads Q/DQ nodes only then
    individual = file.build.refit if isinstance(file.build.refit, list) else []
    options = BuildOptions(
        tensorrt=context.tensorrt,
        typing=decision.typing,
        precisions=() if strong else build_precisions(used),
        constraints=file.build.constraints,
        pools=memory_pools(context.target, file.placement.pool_limits or {}, plan(context).pools),
        settings=decision.settings,
        calibration=None if strong else _calibration_cache(context, opened),
        refit_individual=tuple(individual),
        timing_cache=file.build.timing_cache,
        dla=context.target.dla.layouts,
    )
    net = network(context)

    def network_tensors(names: Sequence[str]) -> tuple[NetworkTensor, ...]:
        tensors = (net.tensors[name] for name in names)
        return tuple(NetworkTensor(t.name, t.dtype, tuple(t.shape)) for t in tensors)

    request = build_request(
        file.name,
        lanes,
        options,
        network=NetworkSpec(network_tensors(net.inputs), network_tensors(net.outputs)),
        golden=_golden_specs(context, len(lanes), profiles),
        attempts=_attempts(decision),
        plugins=plugins,
    )
    return request, lanes


def request_without_known_failures(
    context: Context, probe: Probe, request: BuildRequest, profiles: Sequence[Profile] = ()
) -> BuildRequest:
    """Returns a request without the attempts that failed before on such boards."""
    from edgekit.tensorrt.outcomes import outcomes_file, without_known_failures

    decision = without_known_failures(
        _decide_build(context, profiles),
        outcomes_file(context.cache.folder),
        probe.fingerprint,
        dla=bool(plan(context).dla_cores),
    )
    context.note(*decision.notes)
    return request.with_attempts(_attempts(decision))


def requested_engines(context: Context) -> tuple[RequestedLane, ...]:
    """Returns the engines of a board's build alone."""
    return _requested_lanes(context, _decide_build(context).typing == "strong", None)


def _decide_build(context: Context, profiles: Sequence[Profile] = ()) -> Decision:
    from edgekit.tensorrt.options import decide

    net = network(context)
    # the types of the tensors, and of the quantized weights
    codes = (layer.params.get("weight_codes", "") for layer in net.layers)
    types = {*(tensor.dtype for tensor in net.tensors.values()), *codes}
    request = requested_build(
        context,
        dla=not profiles and bool(plan(context).dla_cores),  # a range is the GPU's
        plugins=any(layer.kind == kinds.PLUGIN for layer in net.layers),
        types=types,
    )
    if profiles and translate_qdq(context) is not None:
        request = replace(request, qdq=True)  # the file's own nodes: they are not removed
    return decide(replace(request, dynamic=bool(profiles), profiles=len(profiles)))


def _range_model(
    context: Context, profiles: Sequence[Profile], values: Values, strong: bool
) -> Model:
    """Returns the network with open axes, on strongly typed releases with its types."""
    from edgekit.quantize.qdq.to_explicit import to_open_qdq

    opened = open_model(context, profiles, values)
    if not strong or context.file.precision == "fp32" or has_qdq(opened):
        return opened
    net, scales = network(context), plan_scales(context)
    known = {} if scales is None else scales.scales
    typed = to_open_qdq(opened, net, known, fp16_layers=fp16_layers(context, net))
    if typed is None:
        context.note(
            "the engine of the range is FP32: its types need opset 13 in the file (export it again)"
        )
    return typed or opened


def _range_lanes(
    context: Context, opened: Model, profiles: Sequence[Profile], values: Values, strong: bool
) -> tuple[RequestedLane, ...]:
    """Returns the engine of a range; the sizes that vary are those that differ at its ends."""
    from edgekit.tensorrt.requests import range_lane

    networks = networks_at_ends(context, profiles, values)
    # without INT8 TensorRT chooses the precisions
    weak_int8 = not strong and context.file.precision == "int8" and not has_qdq(opened)
    placed = plan(context).layers if weak_int8 else ()
    return (range_lane(opened, networks, profiles, placed, values),)


def _calibration_cache(context: Context, opened: Model | None) -> str | None:
    """Returns the calibration cache of a weakly typed build; None without scales.

    Args:
        context: The configuration.
        opened: The network of a range with its open axes: the cache has only its tensors.
    """
    found = plan_scales(context)
    if found is None or (opened is not None and has_qdq(opened)):
        return None
    scales = found.scales if opened is None else scales_in(opened.proto.graph, found.scales)
    return make_cache(scales, context.tensorrt).text


def _requested_lanes(
    context: Context, strong: bool, other: Model | None
) -> tuple[RequestedLane, ...]:
    from edgekit.tensorrt.requests import requested_lanes

    scales = plan_scales(context)
    # a strongly typed network has its scales in its own Q/DQ nodes
    given = None if strong else (scales.scales if scales else {})
    types = strong and context.file.precision != "fp32"
    given_model = typed_model(context, other) if types else other or model(context)
    parts = segments(context)
    # a model with Q/DQ nodes or a refit's weights is cut in the same places
    if given_model is not parts.model:
        parts = cut_segments(given_model, network(context), plan(context))
    return requested_lanes(parts, context.file.build.mode, given)


def requested_build(
    context: Context, *, dla: bool, plugins: bool = False, types: Collection[str] = ()
) -> RequestedBuild:
    """Returns the build that a configuration requests of TensorRT.

    Args:
        context: The configuration.
        dla: True if the plan uses a DLA.
        plugins: True if the network has layers that are plugins.
        types: Types of the network; those that need a flag have it.
    """
    from edgekit.tensorrt.options import RequestedBuild
    from edgekit.tensorrt.releases import release
    from edgekit.tensorrt.settings import setting_rows

    build, document = context.file.build, context.config.document
    refit: Any = tuple(build.refit) if isinstance(build.refit, list) else build.refit
    paths = [("tensorrt",), ("precision",), ("model",), ("model", "shapes"), ("build", "mode")]
    paths += [("build", key) for key in setting_rows()]
    typings = release(context.tensorrt).typings
    strong = build.typing == "strong" or "weak" not in typings
    return RequestedBuild(
        target=context.file.target,
        tensorrt=context.tensorrt,
        mode=build.mode,
        dla=dla,
        precision=context.file.precision,
        # if the network has types, the model gets Q/DQ nodes for the board
        qdq="weak" not in typings,
        strip=build.strip,
        refit=refit,
        version_compatible=build.version_compatible,
        lean=build.lean,
        hardware_compatible=build.hardware_compatible,
        typing=build.typing,
        weight_streaming=build.weight_streaming,
        settings=_setting_values(build, () if strong else types),
        plugins=plugins,
        places={".".join(path): document.where(path) for path in paths if document.knows(path)},
    )


def _setting_values(build: BuildSection, types: Collection[str]) -> dict[str, SettingValue]:
    """Returns the settings of TensorRT's builder from the section and the network's types.

    TensorRT's own defaults are left out.
    """
    from edgekit.tensorrt.settings import FEATURE, setting_rows

    fields = type(build).model_fields
    found: dict[str, SettingValue] = {}
    for key, row in setting_rows().items():
        value = getattr(build, key)
        if value is not None and (row.kind == FEATURE or value != fields[key].default):
            found[key] = value
        elif value is None and set(row.types) & set(types):
            found[key] = True
    return found


def _attempts(decision: Decision) -> dict[str, list[Attempt]]:
    from edgekit_device.build.request import Attempt

    kinds = {"plan": decision.plans, "loadable": decision.loadables}
    return {kind: [Attempt(x.flags, x.gives_up) for x in tried] for kind, tried in kinds.items()}


def _golden_specs(context: Context, lanes: int, profiles: Sequence[Profile]) -> list[GoldenSpec]:
    from edgekit.bundles.manifest import GOLDEN_SEED, golden_ranges
    from edgekit_device.build.request import GoldenSpec

    spans = golden_ranges(next(iter(calibration_inputs(context))))
    ranges = {name: Range(low, high) for name, (low, high) in spans.items()}
    if profiles:
        return [
            GoldenSpec(GOLDEN_SEED, ranges, None, other)
            for other in golden_shapes(profiles, network_sizes(context))
        ]
    # plans that share the frames place layers differently, so each rounds in its own way
    numbers: list[int | None] = [None] if lanes == 1 else [*range(lanes)]
    return [GoldenSpec(GOLDEN_SEED, ranges, number) for number in numbers]


def check_requested(context: Context) -> None:
    """Refuses, before the plan, settings of the section ``build`` that no engine can have.

    It does not depend on who builds: the target and the TensorRT release are known without a board.

    Raises:
        ConfigError: As raised by ``decide``.
    """
    from edgekit.tensorrt.options import decide

    if _set_keys(context):
        # no layer may be placed on a DLA
        decide(requested_build(context, dla=False, plugins=bool(context.file.model.plugins)))


def check_planned(context: Context, profiles: Sequence[Profile] = ()) -> None:
    """Refuses settings of the section ``build`` that the plan's engines cannot have, and notes the
    settings that are dropped.

    Args:
        context: The configuration.
        profiles: As in ``make_build_request``.

    Raises:
        ConfigError: As raised by ``decide``.
    """
    keys = _set_keys(context)
    if not keys:
        return
    # settings that edgekit chooses are noted when TensorRT builds
    dropped = _decide_build(context, profiles).dropped
    context.note(*(setting.why for setting in dropped if setting.key in keys))


def _set_keys(context: Context) -> list[str]:
    """Returns the keys of ``build`` about engines whose values are not the defaults.

    A mode alone is refused by the plan.
    """
    from edgekit.tensorrt.settings import setting_rows

    given = context.file.build.model_dump(exclude_defaults=True)
    return [key for key in setting_rows() if key in given]


def check_build_options(context: Context) -> None:
    """Refuses at once settings that TensorRT cannot combine, if a board may build with it.

    Raises:
        ConfigError: With each pair of keys that exclude each other, the reason and its source.
        DataError: "plugin.*": a plugin's library that the board cannot load.
    """
    if not _may_use_tensorrt(context):
        return
    from edgekit.tensorrt.options import decide
    from edgekit.tensorrt.releases import release
    from edgekit.tensorrt.runtime_settings import dropped_settings, runtime_rows

    on = release(context.tensorrt)
    dropped = dropped_settings(memory_settings(context), on, context.target)
    context.note(*dropped)
    document = context.config.document
    # cores that are not configured are used if possible
    names_dla = document.knows(("placement", "dla_cores"))
    driven = names_dla or supports_dla(context.target, context.tensorrt)
    dla = bool(context.file.placement.dla_cores and context.target.dla.cores and driven)
    decide(requested_build(context, dla=dla, plugins=bool(context.file.model.plugins)))
    build, memory = context.file.build, context.file.deploy.memory
    lack = runtime_rows()["weight_budget"].why_unsupported(on, context.target)
    if memory.weights_mib is not None and not build.weight_streaming and not lack:
        context.note(
            "deploy.memory.weights_mib has no effect: the engines keep their weights on the GPU "
            "without build.weight_streaming"
        )
    check_libraries(context)


def memory_settings(context: Context) -> MemorySettings:
    """Returns the GPU memory settings of a board for its build."""
    memory = context.file.deploy.memory
    weights = memory.weights_mib
    if isinstance(weights, int):
        weights <<= 20
    budget = AUTOMATIC if weights == "auto" else weights
    return MemorySettings(memory.shared, float(memory.persistent_cache), budget)


def check_cuda_graph(context: Context) -> None:
    """Refuses a bench by CUDA graph of a plan that uses a DLA, before any build.

    The reference backend has no graphs at all; it refuses them, too, as the board would.

    Raises:
        ConfigError: "bench.graph".
    """
    if not context.file.bench.graph:
        return
    cores = sorted(plan(context).dla_cores)
    if cores:
        raise ConfigError(
            [
                Problem(
                    f"a CUDA graph cannot contain work on {' and '.join(cores)}",
                    context.config.document.where(("bench", "graph")),
                    "measure without --graph (bench.graph), or plan for the GPU alone "
                    "(placement.dla_cores: [])",
                )
            ],
            code="bench.graph",
        )


def check_opaque(context: Context, *, on_board: bool | None = None) -> None:
    """Refuses opaque layers that cannot run, and notes the plugins that a board must have.

    Both happen before any build.

    Args:
        context: The configuration.
        on_board: True if a board builds; by the configuration if None.

    Raises:
        EnvironmentLack: "build.opaque": this machine would have to run them.
        ModelError: "model.opaque": no layer precedes them; "model.shape_unknown": a bundle's
            outputs have fixed shapes.
    """
    came = source(context)
    opaque = came.graph.opaque
    if not opaque:
        return
    on_board = _may_use_tensorrt(context) if on_board is None else on_board
    if not (on_board or came.graph.only_on_board):
        return
    first = next(iter(opaque if on_board else came.graph.only_on_board))
    if left := left_notes(came.graph):
        raise UsageError(
            f"a build holds the whole network; {left[0]}",
            code="build.left",
            where="model.leave",
            hint="edgekit.compile(...) builds the parts around them, or give no leave",
        )
    ends = before_opaque(came).graph.outputs
    flags = " ".join(f"--outputs {name}" for name in ends)
    cut = f"cut the network before it with model.outputs: [{', '.join(ends)}] ({flags})"
    if not on_board:
        needs = "".join(f"; {text}" for text in plugin_notes(came.graph))
        compute = ""
        if opaque[first] == PLUGIN:
            compute = "compute it here with a function (model.plugins, python: module:function), "
        raise EnvironmentLack(
            f"node {first!r} needs TensorRT, and no board builds{needs}",
            code="build.opaque",
            where=came.source,
            hint=f"add one under deploy.boards, {compute}or {cut}",
        )
    # a bundle's manifest states shapes, and a client allocates its outputs by them
    open_outputs = [name for name in came.graph.outputs if name in came.graph.unknown]
    if open_outputs:
        raise ModelError(
            f"the shape of output {open_outputs[0]!r} is only known at run time, but a "
            "bundle needs fixed output shapes",
            code="model.shape_unknown",
            where=came.source,
            hint=f"set it with model.shapes if it is always the same, or {cut}",
        )
    for note in opaque_notes(came.graph):
        context.announce(note)


def functions_only(context: Context) -> str:
    """Returns why this machine's build cannot be a bundle; "" if it can.

    A bundle of the reference backend has ONNX files alone: its board runs no Python of the user's.
    """
    came = source(context).graph
    nodes = [name for name in came.opaque if name not in came.only_on_board]
    if not nodes or _may_use_tensorrt(context):
        return ""
    plugin = came.plugin(came.node(nodes[0]))
    spec = plugin.function.spec if plugin is not None and plugin.function is not None else ""
    return (
        f"a bundle of the reference backend cannot contain {spec}, which computes node {nodes[0]!r}"
    )


def check_bundled(context: Context) -> None:
    """Refuses a bundle of a network that this machine runs with functions of the user's.

    Raises:
        EnvironmentLack: "bundle.plugin".
    """
    if why := functions_only(context):
        raise EnvironmentLack(
            why,
            code="bundle.plugin",
            where=source(context).source,
            hint="edgekit build and edgekit run work without a bundle, and edgekit plan --report "
            "FILE writes a page; to deploy, add a board with TensorRT under deploy.boards",
        )


def check_names(context: Context) -> None:
    """Refuses names of weights that the built (rewritten) network does not have.

    Raises:
        ConfigError: "build.refit", with similar names.
    """
    named = context.file.build.refit
    if not isinstance(named, list) or not _may_use_tensorrt(context):
        return

    known = model(context).weights
    problems = []
    for number, name in enumerate(named):
        if name not in known:
            near = get_close_matches(name, known, n=3, cutoff=0.5) or sorted(known)[:5]
            message = f"the built network has no weight {name!r}"
            place = context.config.document.where(("build", "refit", number))
            problems.append(Problem(message, place, f"it has {', '.join(near)}"))
    if problems:
        raise ConfigError(problems, code="build.refit")


def _may_use_tensorrt(context: Context) -> bool:
    """Returns True if a board may build with TensorRT, by the configuration."""
    backend = context.file.build.backend
    return backend == "tensorrt" or (backend == "auto" and bool(context.file.deploy.boards))


def check_board(context: Context, client: BoardClient, probe: Probe) -> None:
    """Refuses a board that the plan is not made for, or that lacks something the engines need.

    Args:
        context: The configuration.
        client: The board.
        probe: The board's facts.

    Raises:
        BoardError: "board.other-tensorrt": another release than planned; "board.no-dla":
            the plan uses DLA cores that its TensorRT does not support.
        EnvironmentLack: "board.no-numpy", "board.no-cudla".
        GateError: "model.parse": the parser of the board's own TensorRT refuses the model.
    """
    check_software(context, client, probe)
    require_parse(context, tensorrt_release(probe))
    dla = plan(context).dla_cores
    if dla:
        require_cores(client.name, probe, context.target, dla)
    build = context.file.build
    # in a hybrid engine TensorRT drives the DLA; loadables are run with cuDLA
    if dla and build.mode != "hybrid":
        require_cudla(client.name, probe, f"build.mode: {build.mode} builds DLA loadables")


def check_software(context: Context, client: BoardClient, probe: Probe) -> None:
    """Refuses a board independently of the model; arguments and errors as in ``check_board``."""
    require_numpy(client.name, probe)
    require_release(client.name, probe, context.tensorrt)
    build = context.file.build
    if build.mode == "standalone":
        require_cudla(client.name, probe, "build.mode: standalone builds DLA loadables")
