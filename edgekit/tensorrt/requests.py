"""Build requests, the document that a host sends to a board (`edgekit.build.request/1`): an entry
per engine with its part of the model, devices, precisions, and the types and formats of its inputs
and outputs.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.dla.formats import shared_with_gpu, vector_format
from edgekit.dla.memory import pool_limits
from edgekit.errors import BuildError
from edgekit.files import forget_pages
from edgekit.network.model import Layer, Model, Network
from edgekit.network.protos import reads
from edgekit.network.writing import save
from edgekit.placement.segments import Segment, SegmentedPlan
from edgekit.tensorrt.plugin_library import PluginLibraries
from edgekit.tensorrt.releases import release
from edgekit_device.build.request import (
    Attempt,
    BuildJobRequest,
    EngineSpec,
    GoldenSpec,
    IoSpec,
    LaneSpec,
    LayerSpec,
    NetworkSpec,
    ProfileShapes,
    ProfileValues,
    request_digest,
)
from edgekit_device.build.settings import Setting
from edgekit_device.files import map_file
from edgekit_device.protocol.codec import document, write

if TYPE_CHECKING:
    from edgekit.network.ranges import Profile, Values
    from edgekit.placement.plan import PlacedLayer, PlannedLoadable
    from edgekit.targets.board import Target


# Types and formats of engines' inputs and outputs.
#
# A loadable reads and writes INT8 or FP16 in the DLA's formats only. A tensor between a GPU engine
# and a loadable has the same type on both sides and, if the GPU has the format too, the same
# format, so that no reformat is needed (INT8 in CHW32). Formats by type and side: NVIDIA's guides
# "DLA runtime configuration" and, for the GPU, "I/O Formats".


_MODEL = "model.onnx"


@dataclass(frozen=True, slots=True)
class BorderTensor:
    """An input or output of engines.

    Attributes:
        dtype: NumPy type name.
        on_dla: Format in loadables that read or write it; empty if none does.
        scale: Its scale if it is INT8.
    """

    dtype: str
    on_dla: str = ""
    scale: float | None = None

    def format_on(self, device: str) -> str:
        """Returns the format on a device, "GPU" or a DLA core.

        The GPU uses the DLA's format if it supports it; otherwise the loader packs and unpacks.
        """
        if device != "GPU":
            return self.on_dla
        shared = self.on_dla and shared_with_gpu(self.on_dla, self.dtype)
        return self.on_dla if shared else "LINEAR"


def border_tensors(
    network: Network,
    cuts: Sequence[Segment],
    loadables: Sequence[PlannedLoadable],
    precisions: Mapping[str, str],
    scales: Mapping[str, float] | None,
    types: Mapping[str, str],
) -> dict[str, BorderTensor]:
    """Returns type and format of every tensor that the cuts read or write.

    Args:
        network: The layer graph.
        cuts: Segments in running order.
        loadables: The plan's loadables, with their formats.
        precisions: Precision by layer.
        scales: INT8 scale by tensor; None if the types in the model count (strong typing).
        types: NumPy type by tensor, from the model.

    Raises:
        BuildError: "build.border": a loadable would have to exchange a type that no DLA has.
    """
    chosen = {frozenset(x.layers): x.formats for x in loadables}
    touching = _touching_precisions(network, precisions)
    found: dict[str, BorderTensor] = {}
    for part in cuts:
        if part.device == "GPU":
            continue
        formats = chosen.get(frozenset(part.layers), {})
        # loadables decide first: a GPU engine can take their types and formats, not the reverse
        for name in (*part.outputs, *part.inputs):
            if name not in found:
                found[name] = _dla_formats(name, part, formats, touching, scales, types)
    for part in cuts:
        for name in (*part.inputs, *part.outputs):
            found.setdefault(name, BorderTensor(types[name]))
    return found


def _touching_precisions(network: Network, precisions: Mapping[str, str]) -> dict[str, set[str]]:
    """Returns the precisions of the layers that read or write each tensor, views included."""
    found: dict[str, set[str]] = {}
    for layer in network.layers:
        for name in (*layer.inputs, *layer.outputs):
            for each in {name, network.views.get(name, name)}:
                found.setdefault(each, set()).add(precisions.get(layer.name, "fp16"))
    return found


def _dla_formats(
    name: str,
    cut: Segment,
    formats: Mapping[str, str],
    touching: Mapping[str, set[str]],
    scales: Mapping[str, float] | None,
    types: Mapping[str, str],
) -> BorderTensor:
    if types[name] not in ("float32", "float16") or (scales is None and types[name] == "float32"):
        raise BuildError(
            f"the tensor is {types[name]}, but a loadable on {cut.device} takes only INT8 or FP16",
            code="build.border",
            where=name,
            hint="let TensorRT convert it (build.mode: hybrid), or pin its layer to the GPU",
        )
    scales = scales or {}
    # a tensor that an FP16 layer reads or writes, too, has the type that both sides can take
    int8 = touching.get(name, set()) == {"int8"} and name in scales and types[name] == "float32"
    dtype = "int8" if int8 else "float16"
    chosen = formats.get(name) or vector_format(dtype)
    return BorderTensor(dtype, chosen, float(scales[name]) if int8 else None)


@document(frozen=True, eq=False)
class RequestedEngine:
    """One engine to build.

    Attributes:
        key: Its name in the request.
        kind: "plan" (an engine of TensorRT) or "loadable" (for cuDLA).
        device: "GPU", or the DLA core that it drives.
        model: The ONNX model that it is built from.
        layers: Its layers in graph order, with device and precision.
        inputs: Its inputs, with the plan's types.
        outputs: Its outputs, with the plan's types.
        profiles: Its optimisation profiles; empty for a single shape.
        values: Ranges of the values of inputs that hold sizes, in each profile.
    """

    key: str
    kind: str
    device: str
    model: Model
    layers: tuple[LayerSpec, ...]
    inputs: tuple[IoSpec, ...]
    outputs: tuple[IoSpec, ...]
    profiles: tuple[Profile, ...] = ()
    values: Values = field(default_factory=dict)


@document(frozen=True, eq=False)
class RequestedLane:
    """The engines of a plan variant in running order, and its share of the frames."""

    share: float
    engines: tuple[RequestedEngine, ...]


def requested_lanes(
    plan: SegmentedPlan, mode: str, scales: Mapping[str, float] | None
) -> tuple[RequestedLane, ...]:
    """Returns the engines of a plan.

    A hybrid engine is the whole network, and TensorRT cuts it by device types; standalone and
    split builds have an engine for each segment of the plan.

    Args:
        plan: The placement, and the model that the board builds from: plain, or with Q/DQ nodes
            for a strongly typed release.
        mode: "hybrid", "standalone" or "split".
        scales: INT8 scale by tensor, empty without INT8; None if the model has the types.

    Raises:
        BuildError: "build.cores" (a hybrid plan on two cores) or "build.border".
    """
    make = _whole_engine if mode == "hybrid" else _segment_engines
    return tuple(
        RequestedLane(share.share, make(number, plan, scales))
        for number, share in enumerate(plan.plan.plans)
    )


def _whole_engine(
    number: int, plan: SegmentedPlan, scales: Mapping[str, float] | None
) -> tuple[RequestedEngine, ...]:
    network, placed = plan.network, plan.plan.plans[number].layers
    cores = sorted({layer.device for layer in placed} - {"GPU"})
    if len(cores) > 1:
        raise BuildError(
            f"a hybrid engine uses one DLA core, but the plan uses {len(cores)} in a frame",
            code="build.cores",
            where=f"plan {number}",
            hint="use one engine per core (build.mode: split), or one core in placement.dla_cores",
        )

    def tensors(names: Sequence[str]) -> tuple[IoSpec, ...]:
        # TensorRT reads and writes the model's types, in its own linear format
        facts = (network.tensors[name] for name in names)
        return tuple(IoSpec(t.name, t.dtype, tuple(t.shape)) for t in facts)

    of = {layer.name: layer for layer in placed}
    layers = tuple(_layer(layer, of[layer.name]) for layer in network.layers)
    engine = RequestedEngine(
        f"lane{number}",
        "plan",
        cores[0] if cores else "GPU",
        plan.model,
        layers,
        tensors(network.inputs),
        tensors(network.outputs),
    )
    return (engine,)


def _layer(layer: Layer, placed: PlacedLayer) -> LayerSpec:
    return LayerSpec(
        name=layer.name,
        builder_name=layer.builder_name,
        nodes=tuple(layer.nodes),
        kind=layer.kind,
        device="GPU" if placed.device == "GPU" else "DLA",
        precision=placed.precision,
    )


def _segment_engines(
    number: int, plan: SegmentedPlan, scales: Mapping[str, float] | None
) -> tuple[RequestedEngine, ...]:
    graph, network, placed = plan.graph, plan.network, plan.plan.plans[number].layers
    cuts = plan.variants[number]
    borders = border_tensors(
        network,
        cuts,
        [loadable for loadable in plan.plan.loadables if loadable.plan == number],
        {layer.name: layer.precision for layer in placed},
        scales,
        {name: graph.dtype(name) for name in graph.activations()},
    )
    of = {layer.name: layer for layer in placed}
    engines = []
    for index, part in enumerate(cuts):
        own = set(part.layers)

        def tensors(names: Sequence[str], device: str = part.device) -> tuple[IoSpec, ...]:
            return tuple(
                IoSpec(
                    name,
                    borders[name].dtype,
                    tuple(graph.shape(name)),
                    (borders[name].format_on(device),),
                    borders[name].scale,
                )
                for name in names
            )

        engines.append(
            RequestedEngine(
                f"lane{number}.segment{index}",
                "plan" if part.device == "GPU" else "loadable",
                part.device,
                _model_part(plan.model, part),
                tuple(_layer(x, of[x.name]) for x in network.layers if x.name in own),
                tensors(part.inputs),
                tensors(part.outputs),
            )
        )
    return tuple(engines)


def _model_part(model: Model, part: Segment) -> Model:
    """Returns a segment as a separate model, with the nodes that compute its constants."""
    names = {node.name for node in part.nodes}
    waiting = [*part.nodes]
    while waiting:
        for read in reads(waiting.pop()):
            constant = model.graph.derived.get(read)
            if constant is not None and constant.name not in names:
                names.add(constant.name)
                waiting.append(constant)
    return model.cut(names, part.inputs, part.outputs)


def range_lane(
    model: Model,
    networks: Sequence[Network],
    profiles: Sequence[Profile],
    placed: Sequence[PlacedLayer] = (),
    values: Values | None = None,
) -> RequestedLane:
    """Returns a lane of a single GPU engine for a range of shapes.

    Args:
        model: The network with its open axes, plain or with its types.
        networks: The same network at several shapes of the range: an axis of an input or output
            that differs is open.
        profiles: The ranges.
        placed: Layers of the first network whose precision the engine must have; layers that only
            compute with variable sizes are not among them.
        values: Ranges of values of further inputs, which hold sizes.
    """
    first = networks[0]
    there = {node.name for node in model.proto.graph.node}
    of = {layer.name: layer for layer in placed}
    own = (_layer(layer, of[layer.name]) for layer in first.layers if layer.name in of)
    kept = (replace(item, nodes=tuple(n for n in item.nodes if n in there)) for item in own)
    layers = tuple(item for item in kept if item.nodes)

    def tensors(names: Sequence[str]) -> tuple[IoSpec, ...]:
        found = []
        for name in names:
            shapes = [network.tensors[name].shape for network in networks]
            sizes = (set(axis) for axis in zip(*shapes, strict=True))
            shape = tuple(next(iter(axis)) if len(axis) == 1 else -1 for axis in sizes)
            found.append(IoSpec(name, first.tensors[name].dtype, shape))
        return tuple(found)

    values = values or {}
    held = (IoSpec(name, r.dtype, r.shape) for name, r in values.items())
    engine = RequestedEngine(
        "range",
        "plan",
        "GPU",
        model,
        layers,
        (*tensors(first.inputs), *held),
        tensors(first.outputs),
        tuple(profiles),
        values,
    )
    return RequestedLane(1.0, (engine,))


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """How to call the builder.

    Attributes:
        tensorrt: The plan's TensorRT release: "10.3".
        typing: "weak" (precision flags and a calibration cache) or "strong" (types in the model).
        precisions: "fp16" and "int8" as far as the plan uses them; empty if strongly typed.
        constraints: Precision constraints of layers: "prefer", "obey" or "none".
        pools: Bytes by memory pool of a DLA, by TensorRT's names.
        settings: Other settings of the builder, by kind of engine.
        calibration: The calibration cache's text; None without a cache.
        refit_individual: Weights to mark as refittable one by one.
        timing_cache: True if the board keeps a timing cache and uses it for the next build.
        dla: The DLA generation of the loadables' layouts, "1.0" or "2.0".
    """

    tensorrt: str
    typing: str
    precisions: tuple[str, ...] = ()
    constraints: str = "prefer"
    pools: Mapping[str, int] | None = None
    settings: Mapping[str, tuple[Setting, ...]] = field(default_factory=dict)
    calibration: str | None = None
    refit_individual: tuple[str, ...] = ()
    timing_cache: bool = True
    dla: str = "2.0"


@document(frozen=True, eq=False)
class BuildRequest:
    """A request and its blobs by SHA-256 (hex); models are memory-mapped files."""

    job: BuildJobRequest
    blobs: Mapping[str, bytes | memoryview]

    @cached_property
    def document(self) -> dict[str, object]:
        """The request as JSON document."""
        return dict(write(self.job))

    @cached_property
    def digest(self) -> str:
        """SHA-256 (hex) of the request's canonical JSON."""
        return request_digest(self.document)

    def with_attempts(self, attempts: Mapping[str, Sequence[Attempt]]) -> BuildRequest:
        """Returns the same request with only these attempts, by kind."""

        def remaining_attempts(engine: EngineSpec) -> EngineSpec:
            kept = tuple(x for x in engine.attempts if x in attempts[engine.kind])
            return replace(engine, attempts=kept)

        engines = tuple(remaining_attempts(engine) for engine in self.job.engines)
        return BuildRequest(replace(self.job, engines=engines), self.blobs)


def build_request(
    name: str,
    lanes: Sequence[RequestedLane],
    options: BuildOptions,
    *,
    network: NetworkSpec,
    golden: Sequence[GoldenSpec] = (),
    attempts: Mapping[str, Sequence[Attempt]],
    plugins: PluginLibraries | None = None,
) -> BuildRequest:
    """Returns the request that builds lanes of engines on a board.

    An engine's inputs and outputs have types that the release supports; the loader converts them
    from and to the network's types.

    Args:
        name: The application's name.
        lanes: The engines.
        options: How to call the builder.
        network: The network's inputs and outputs.
        golden: Inputs for the built engines, by seed and range.
        attempts: Builder flags to try in this order, by engine kind ("plan", "loadable").
        plugins: Plugins to register before a model is parsed; None without plugins.

    Raises:
        ModelError: A model cannot be written.
    """
    on = release(options.tensorrt)
    plugins = plugins or PluginLibraries()
    blobs: dict[str, bytes | memoryview] = dict(plugins.libraries)

    def keep(data: bytes | memoryview) -> str:
        digest = hashlib.sha256(data).hexdigest()
        blobs[digest] = data
        forget_pages(data)
        return digest

    calibration = options.calibration
    cache = keep(calibration.encode()) if calibration is not None else None
    # a model that several engines share is serialised and hashed once
    files: dict[int, tuple[str, dict[str, str]]] = {}

    def spec(engine: RequestedEngine) -> EngineSpec:
        if id(engine.model) not in files:
            found = {file: keep(data) for file, data in _files(engine.model).items()}
            files[id(engine.model)] = found.pop(_MODEL), found
        model, data = files[id(engine.model)]
        dla = engine.device != "GPU"
        return EngineSpec(
            key=engine.key,
            kind=engine.kind,
            model=model,
            device=engine.device,
            # DLA standalone mode refuses GPU fallback
            gpu_fallback=dla and engine.kind == "plan",
            typing=options.typing,
            precisions=options.precisions,
            layers=engine.layers,
            inputs=tuple(replace(x, dtype=on.dtype(x.dtype)) for x in engine.inputs),
            outputs=tuple(replace(x, dtype=on.dtype(x.dtype)) for x in engine.outputs),
            calibration=cache,
            pools=(options.pools or {}) if dla else {},
            constraints=options.constraints if options.typing == "weak" else "none",
            # TensorRT opens no loadable, so a loadable cannot be refitted
            refit_individual=options.refit_individual if engine.kind == "plan" else (),
            profiles=tuple(
                {name: ProfileShapes(r.min, r.opt, r.max) for name, r in profile.items()}
                for profile in engine.profiles
            ),
            values=tuple(
                {name: ProfileValues(r.min, r.opt, r.max) for name, r in engine.values.items()}
                for _ in (engine.profiles if engine.values else ())
            ),
            attempts=tuple(attempts[engine.kind]),
            data=data,
            settings=options.settings.get(engine.kind, ()),
        )

    job = BuildJobRequest(
        name=name,
        tensorrt=options.tensorrt,
        timing_cache=options.timing_cache,
        lanes=tuple(LaneSpec(x.share, tuple(e.key for e in x.engines)) for x in lanes),
        network=network,
        golden=tuple(golden),
        engines=tuple(spec(engine) for lane in lanes for engine in lane.engines),
        dla=options.dla,
        plugins=plugins.entries,
    )
    return BuildRequest(job, blobs)


def _files(model: Model) -> dict[str, memoryview]:
    """Returns a model's ONNX file, and the external data of a large model.

    They are memory maps of unnamed files, whose disk space is freed with them.
    """
    with tempfile.TemporaryDirectory(prefix="edgekit-") as folder:
        save(model, Path(folder, _MODEL))
        return {path.name: map_file(path) for path in sorted(Path(folder).iterdir())}


def memory_pools(
    target: Target,
    given: Mapping[str, int],
    predicted: Mapping[str, int],
) -> dict[str, int]:
    """Returns the memory pools of a DLA in bytes, by TensorRT's names.

    The plan's need is a prediction: a loadable gets TensorRT's default if that is more.

    Args:
        target: The board.
        given: The user's limits by DLA pool ("managed_sram"); they are used unchanged.
        predicted: The need of the plan's largest loadable, by DLA pool.
    """
    limits: dict[str, int] = write(pool_limits(target))
    return {
        f"DLA_{name.upper()}": given.get(name) or max(limit, predicted.get(name, 0))
        for name, limit in limits.items()
    }
