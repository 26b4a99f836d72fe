"""The engines: built by this machine for the reference backend, or by the boards that will run
them, as a job whose result is cached.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from edgekit.deployment.answers import protocol_error
from edgekit.deployment.requirements import (
    board_kind,
    check_runs,
    has_module,
    no_module,
    require_kind,
)
from edgekit.error_document import FinishedStep
from edgekit.errors import EnvironmentLack, GateError, UsageError
from edgekit.network.model import Model
from edgekit.parsing.nvidia import ParserResult
from edgekit.pipeline.context import Context, computed
from edgekit.pipeline.steps.accuracy import accuracy, approximations, artefacts, build_key
from edgekit.pipeline.steps.board_job import fetch_blobs, run_board_job
from edgekit.pipeline.steps.buckets import gpu_profiles, network_sizes, networks_at_ends
from edgekit.pipeline.steps.build_request import (
    check_board,
    check_opaque,
    make_build_request,
    request_without_known_failures,
    requested_engines,
)
from edgekit.pipeline.steps.load import open_model, requested_shapes, translate_qdq, user_model
from edgekit.pipeline.steps.method import plan_scales
from edgekit.pipeline.steps.plan import plan
from edgekit.pipeline.steps.plugin_libraries import required_libraries
from edgekit.pipeline.steps.rewrite import judgement, network
from edgekit.pipeline.steps.variants import (
    bucket_accuracy,
    built_buckets,
    built_range_context,
    gpu_range_context,
)
from edgekit.placement.buckets import (
    OWN,
    START,
    accuracy_words,
    shape_text,
)
from edgekit.placement.translation import float_note
from edgekit.reference.accuracy import Accuracy
from edgekit.reference.open_axes import build_open
from edgekit.removed import FormerDict
from edgekit.tensorrt.built import BoardBuild, BoardEngine
from edgekit.tensorrt.comparison import BuiltComparison, compare_build
from edgekit.tensorrt.plugin_library import PluginLibraries
from edgekit.text import counted, listed
from edgekit_device.build.request import RESULT_SCHEMA, BuildResult
from edgekit_device.protocol import fields
from edgekit_device.protocol.codec import (
    array,
    choice,
    document,
    member,
    record,
    records,
    text,
    write,
)

if TYPE_CHECKING:
    from edgekit.deployment.client import BoardClient
    from edgekit.network.ranges import Profile, Values
    from edgekit.pipeline.steps.deploy import ConnectedBoards
    from edgekit.reference.artefacts import Artefacts, Weight
    from edgekit.tensorrt.artefacts import BoardGolden
    from edgekit.tensorrt.requests import BuildRequest
    from edgekit_device.board.probe import Probe
    from edgekit_device.protocol.manifest import Manifest


# differences from the plan in a note, and in the error of ``build.strict``
_SHOWN, _REFUSED = 5, 10
_REFERENCE_RANGE = (
    "the engine of the whole range is FP32 in the reference backend, and in no accuracy figure; on "
    "a board TensorRT builds it with profiles in the configuration's precision, INT8 calibrated at "
    "the best shape"
)


@document(frozen=True, eq=False)
class BuiltPlan:
    """Engines and their facts.

    Attributes:
        key: The identity of the build.
        artefacts: The engines and the weights that they lack.
        golden: Their outputs on the machine that built them, as ``read_golden`` returns it; None if
            this machine can run them.
        comparison: The plan compared with the build; None for the reference.
        board: The board that built them; empty for this machine.
        job: The board's job; empty for this machine.
        result: The result of the board's job; None for this machine.
        notes: Notes for the user on the board's build.
        variants: The builds for the other shapes of a range.
    """

    key: str
    artefacts: Artefacts
    golden: tuple[BoardGolden, ...] | None = None
    comparison: BuiltComparison | None = None
    board: str = ""
    job: str = ""
    result: BuildResult | None = None
    notes: tuple[str, ...] = ()
    variants: tuple[BuiltVariant, ...] = ()


@dataclass(frozen=True, eq=False)
class BuiltVariant:
    """The build for another shape of a range, or for the range.

    Attributes:
        context: The configuration of that shape; of the range, of its best shape on the GPU.
        built: The build.
        load: "start" or "demand": when a board opens it.
        profiles: The ranges that it takes; empty for a single shape.
        values: Ranges of values of further inputs, which hold sizes.
    """

    context: Context
    built: BuiltPlan
    load: str = START
    profiles: tuple[Profile, ...] = ()
    values: Values = dataclasses.field(default_factory=dict)


@document(frozen=True)
class BuildRecord:
    """The cache's record of a board's build."""

    result: BuildResult = member(record(BuildResult))
    board: str = member(text())
    job: str = member(text())


@document(frozen=True)
class BuiltSegment:
    """A segment of a build: the part ``share`` of the frames goes through its lane.

    Attributes:
        lane: Index of the segment's plan.
        share: Part of the frames that go through the plan, 0 to 1.
        index: The segment's number in running order.
    """

    lane: int = member(fields.count)
    share: float = member(fields.share)
    index: int = member(fields.count)
    device: str = member(fields.device)
    engine: str = member(text())
    layers: tuple[str, ...] = member(array(text()))
    inputs: tuple[str, ...] = member(array(text()))
    outputs: tuple[str, ...] = member(array(text()))


@document(frozen=True)
class Build(FormerDict):
    """``edgekit.build/1``: the engines of a configuration.

    Attributes:
        backend: "reference" or "tensorrt".
        weights: Number of weights that the engines lack.
        accuracy: The error of the built network against FP32.
        boards: The builds of boards; none if this machine built.
        notes: For people.
        parser: The result of NVIDIA's own parser, if it was run.
        figures: The accuracy in one line, for people; not in JSON.
    """

    steps: tuple[FinishedStep, ...] = member(records(FinishedStep))
    backend: str = member(text())
    segments: tuple[BuiltSegment, ...] = member(records(BuiltSegment))
    weights: int = member(fields.count)
    accuracy: Accuracy = member(record(Accuracy))
    boards: tuple[BoardBuild, ...] = member(records(BoardBuild))
    notes: tuple[str, ...] = member(array(text(most=1 << 18)))
    parser: ParserResult | None = member(record(ParserResult), absent=None)
    schema: str = member(choice("edgekit.build/1"), default="edgekit.build/1")
    figures: str = field(default="", compare=False)


def built_segments(built: Artefacts) -> tuple[BuiltSegment, ...]:
    """Returns the build, segment by segment."""
    return tuple(
        BuiltSegment(lane, share, s.index, s.device, s.engine, s.layers, s.inputs, s.outputs)
        for lane, (share, segments) in enumerate(built.lanes)
        for s in segments
    )


def board_builds(builds: Sequence[BuiltPlan]) -> tuple[BoardBuild, ...]:
    """Returns the builds of boards, compared with the plan."""
    return tuple(_board_build(built, built.result) for built in builds if built.result is not None)


def _board_build(built: BuiltPlan, result: BuildResult) -> BoardBuild:
    names = [item.name for item in dataclasses.fields(BoardEngine)]
    engines = (
        BoardEngine(**{name: getattr(engine, name) for name in names}) for engine in result.engines
    )
    return BoardBuild(
        built.board,
        built.job,
        result.fingerprint,
        result.tensorrt,
        tuple(engines),
        built.comparison,
        result.notes,
    )


# The builds of a configuration, one for each kind of board.


@computed("backend", "build.backend", "deploy")
def backend_for(context: Context, boards: ConnectedBoards) -> str:
    """Returns "reference" or "tensorrt".

    Boards are connected if the backend is not known without them.

    Raises:
        EnvironmentLack: "build.no-tensorrt": no board has the TensorRT that is required.
    """
    if context.backend:
        return context.backend
    requested = context.file.build.backend
    if requested == "reference" or (requested == "auto" and not context.file.deploy.boards):
        return "reference"
    if not context.file.deploy.boards:
        raise EnvironmentLack(
            "the tensorrt backend needs a board with TensorRT, and none is configured",
            code="build.no-tensorrt",
            where=context.config.document.where(("build", "backend")),
            hint="add one under deploy.boards, or use build.backend: reference",
        )
    clients = boards.clients()
    have = [client for client in clients if has_module(boards.probe(client))]
    # a configuration has one backend: a bundle of engines would not run on the other board
    if have and (lacking := [c.name for c in clients if c not in have]):
        raise EnvironmentLack(
            f"{have[0].name} supports the tensorrt backend, but {lacking[0]} does not",
            code="build.no-tensorrt",
            where=lacking[0],
            hint="edgekit doctor lists the missing software; or use build.backend: reference",
        )
    if not have and requested == "tensorrt":
        raise no_module(clients[0].name)
    return "tensorrt" if have else "reference"


def every_build(context: Context, boards: ConnectedBoards) -> list[BuiltPlan]:
    """Returns the different builds, in the order of the boards; a single one by this machine.

    Args:
        context: The configuration with its plan.
        boards: Its boards.
    """
    if backend_for(context, boards) == "reference":
        return [_reference_build(context)]
    every = (build_for(context, boards, client) for client in boards.clients())
    # equal boards have builds of equal keys
    return list({built.key: built for built in every}.values())


def build_for(context: Context, boards: ConnectedBoards, client: BoardClient) -> BuiltPlan:
    """Returns the build that a board runs: its own, or that of an equal board.

    Raises:
        BoardError: The board differs from the planned one, or its build failed.
        EnvironmentLack: The board lacks a requirement of the engines.
    """
    if backend_for(context, boards) == "reference":
        return _reference_build(context)
    return _build_of_kind(context, boards, _board_kind(boards, client))


@computed()
def _reference_build(context: Context) -> BuiltPlan:
    check_opaque(context, on_board=False)
    own = BuiltPlan(build_key(context), artefacts(context))
    return _with_variants(
        context, own, _reference_build, gpu_range_context(context), _reference_range
    )


@computed()
def _build_of_kind(context: Context, boards: ConnectedBoards, kind: tuple[str, ...]) -> BuiltPlan:
    client = next(board for board in boards.clients() if _board_kind(boards, board) == kind)
    return _with_variants(
        context,
        build_on(context, client, boards.probe(client)),
        lambda other: _build_of_kind(other, boards, kind),
        built_range_context(context),
        lambda rest, profiles, values: build_on(
            rest, client, boards.probe(client), profiles, values
        ),
    )


def _with_variants(
    context: Context,
    own: BuiltPlan,
    build: Callable[[Context], BuiltPlan],
    rest: Context | None,
    build_range: Callable[[Context, Sequence[Profile], Values], BuiltPlan],
) -> BuiltPlan:
    """Returns a build with those of the other shapes of a range; itself without a range.

    Args:
        context: The configuration.
        own: Its build.
        build: Builds another shape.
        rest: The context of the engine of the whole range; None without one.
        build_range: Builds that engine.
    """
    listed = built_buckets(context)
    if not listed:
        return own
    variants = [
        BuiltVariant(shape.context, build(shape.context), shape.bucket.load)
        for shape in listed[1:]
        if shape.bucket.engine == OWN
    ]
    profiles, values = gpu_profiles(context), requested_shapes(context).values
    if rest is not None:
        made = build_range(rest, profiles, values)
        variants.append(BuiltVariant(rest, made, START, profiles, values))
    notes = [
        f"shape {shape_text(network_sizes(variant.context))}: {note}"
        for variant in variants
        for note in variant.built.notes
        if not variant.profiles
    ]
    # the engine of the range names itself in its notes
    notes += [note for variant in variants if variant.profiles for note in variant.built.notes]
    parts = [
        [
            variant.built.key,
            variant.load,
            [dict(p) for p in variant.profiles],
            *([dict(variant.values)] if variant.values else []),
        ]
        for variant in variants
    ]
    return dataclasses.replace(
        own,
        key=context.cache.key("variants", own.key, parts),
        variants=tuple(variants),
        notes=(*own.notes, *notes),
    )


def _reference_range(context: Context, profiles: Sequence[Profile], values: Values) -> BuiltPlan:
    """Returns this machine's build of a range of shapes."""
    networks_at_ends(context, profiles, values)  # raises if the network cannot take them
    opened = open_model(context, profiles, values)
    made = build_open(opened, [layer.name for layer in plan(context).layers])
    key = context.cache.key("open", sorted(made.engines), sorted(made.values))
    return BuiltPlan(key, made)


def _board_kind(boards: ConnectedBoards, client: BoardClient) -> tuple[str, ...]:
    return board_kind(boards.probe(client).fingerprint) or (client.name,)


def check_bundle(boards: ConnectedBoards, client: BoardClient, manifest: Manifest) -> None:
    """Refuses a bundle of TensorRT engines that were built on another kind of board.

    Raises:
        BoardError: "deploy.other-board".
        EnvironmentLack: The board lacks a requirement of the engines.
    """
    # ONNX files run on any board
    if manifest.backend == "reference":
        return
    probe = boards.probe(client)
    require_kind(client.name, probe, manifest.fingerprint)
    check_runs(client.name, probe, manifest.engines)


def build_on(
    context: Context,
    client: BoardClient,
    probe: Probe,
    profiles: Sequence[Profile] = (),
    values: Values | None = None,
) -> BuiltPlan:
    """Builds a configuration's engines on a board, or reads an earlier build from the cache.

    Args:
        context: The configuration with its plan.
        client: The board.
        probe: The board's facts.
        profiles: The ranges of the engine that takes them all; empty for the plan's engines.
        values: Ranges of values of its inputs that hold sizes.

    Raises:
        BoardError: The board differs from the planned one ("board.other-tensorrt",
            "board.no-dla"), or the build failed.
        EnvironmentLack: The board lacks a requirement of the engines.
        GateError: "build.differs": ``build.strict``, and the build differs from the plan.
    """
    from edgekit.tensorrt.artefacts import read_artefacts, read_golden

    check_board(context, client, probe)
    libraries = required_libraries(context, client, probe)
    request, lanes = make_build_request(
        context, plugins=libraries, profiles=profiles, values=values
    )
    kind = board_kind(probe.fingerprint) or (client.name,)
    # without the attempts: a failure learned since does not make it another build
    key = context.cache.key("board-build", request.digest, list(kind))
    record = None if context.force else context.cache.find(BuildRecord, "board-build", key)
    if record is not None and not context.cache.has_blobs(_blob_digests(record.result)):
        record = None  # the cache's blobs were deleted
    if record is None:
        context.session.fresh.add("build")
        # attempts known to fail on such a board are skipped; it counts as the same build
        tried = (
            request
            if context.force
            else request_without_known_failures(context, probe, request, profiles)
        )
        record = run_build_job(context, client, tried)
        _record_outcomes(context, probe, tried, record.result)
        context.cache.keep("board-build", key, record)
    result, cache = record.result, context.cache

    def fetch(digests: Iterable[str]) -> dict[str, bytes]:
        return {digest: cache.blob(digest) for digest in digests}

    logs = {
        engine.key: cache.blob(engine.log).decode("utf-8", "replace") for engine in result.engines
    }
    made = read_artefacts(request, result, lanes, fetch, context.cache.store_array)
    notes, comparison = list(made.notes), None
    if not profiles:  # an engine of a range has no planned layers
        comparison = compare_build(
            network(context), judgement(context), plan(context), lanes, result, logs
        )
        if context.file.build.strict and comparison.differences:
            raise _difference_error(client, comparison)
        notes += _first_few(comparison.differences, _SHOWN)
    return BuiltPlan(
        key,
        made,
        tuple(read_golden(result, fetch)),
        comparison,
        record.board,
        record.job,
        result,
        tuple(f"{client.name}: {note}" for note in notes),
    )


def _first_few(texts: Sequence[str], most: int) -> list[str]:
    more = len(texts) - most
    left = [f"and {counted(more, 'more difference')} (--json has all)"]
    return [*texts[:most], *(left if more > 0 else [])]


def convert_weights(
    context: Context, built: BuiltPlan, other: Model
) -> tuple[Mapping[str, Weight], Mapping[str, np.ndarray]]:
    """Returns another model's weights in the form of a board's engines.

    Raises:
        UsageError: "refit.identical": the engines only take the weights that they were built with;
            "refit.fixed": some of the weights that differ are constant in them.
        DataError: "refit.mismatch": the other model has other names.
    """
    from edgekit.tensorrt.artefacts import read_artefacts, unchangeable_weights

    assert built.result is not None, "requested although a board built the engines"
    unchangeable = sorted({engine.refit for engine in built.result.engines} & {"identical", "none"})
    if unchangeable:
        raise UsageError(
            "the engines accept only the weights they were built with",
            code="refit.identical",
            where=context.config.document.where(("build", "refit")),
            hint="build with build.refit: any (slower: fewer fusions)",
        )
    plugins = PluginLibraries(built.artefacts.plugins, built.artefacts.libraries)
    request, lanes = make_build_request(context, other=other, plugins=plugins)
    keep = context.cache.store_array
    # only the weights of this result are used: the engines on the boards stay
    made = read_artefacts(request, built.result, lanes, lambda digests: {}, keep)
    # the engines' own weights: every weight that differs from them must be refittable
    own = requested_engines(context)
    fixed = unchangeable_weights(own, lanes, built.result.engines)
    if fixed or any(entry.refit == "none" for entry in made.entries.values()):
        raise UsageError(
            f"the engines cannot change {listed(fixed, _SHOWN) or 'some weights'}",
            code="refit.fixed",
            where=context.config.document.where(("build", "refit")),
            hint="build engines from the other file with edgekit build, or build with "
            "build.refit: any, which accepts most weights",
        )
    return made.weights, made.values


def run_build_job(context: Context, client: BoardClient, request: BuildRequest) -> BuildRecord:
    """Runs the job and copies its result to this machine."""
    job, result = run_board_job(context, client, "build", request.document, request.blobs)
    if not isinstance(result, BuildResult):
        raise protocol_error(
            f"the result of job {job} is not a {RESULT_SCHEMA} document", client.name
        )
    fetch_blobs(context, client, _blob_digests(result))
    return BuildRecord(result, client.name, job)


def _record_outcomes(
    context: Context, probe: Probe, request: BuildRequest, result: BuildResult
) -> None:
    """Stores the outcomes of the build's attempts on such boards."""
    from edgekit.tensorrt.outcomes import outcomes_file, record_outcome

    file = outcomes_file(context.cache.folder)
    requested = {engine.key: engine for engine in request.job.engines}
    for made in result.engines:
        engine = requested[made.key]
        if engine.settings:
            continue  # the flags may be the cause of the failure
        kind = engine.kind
        if kind == "plan" and engine.device != "GPU":
            kind = "plan DLA"
        record_outcome(file, probe.fingerprint, kind, made.attempts)


def _blob_digests(result: BuildResult) -> list[str]:
    """Returns the blobs of a build to copy; the unstripped plans stay on the board."""
    found = [x for engine in result.engines for x in (engine.engine, engine.inspector, engine.log)]
    # the board's outputs become the bundle's golden vectors: the reference rounds otherwise
    found += [x.digest for case in result.golden for x in case.outputs.values()]
    return [digest for digest in dict.fromkeys(found) if digest]


def _difference_error(client: BoardClient, comparison: BuiltComparison) -> GateError:
    differences = comparison.differences
    error = GateError(
        f"the build differs from the plan in {counted(len(differences), 'way')}",
        code="build.differs",
        where=client.name,
        hint="accept it with build.strict: false",
    )
    error.details = tuple(_first_few(differences, _REFUSED))
    error.extra["built"] = write(comparison)
    return error


def note_groups(context: Context, builds: Sequence[BuiltPlan]) -> dict[str, list[str]]:
    """Returns the notes by subject: "accuracy", "run", "plan", "build"."""
    about = [output.message for output in accuracy(context).nonfinite]
    about += [
        f"shape {shape_text(bucket.bucket.shapes)}: {accuracy_words(bucket.bucket.accuracy)}"
        # the first bucket's accuracy is the build's own
        for bucket in built_buckets(context)[1:]
        if bucket.bucket.accuracy is not None
    ]
    about += _range_accuracy(context, builds[0])
    scales = plan_scales(context)
    about += scales.warnings if scales else ()
    build = [*artefacts(context).notes, *(note for built in builds for note in built.notes)]
    if context.file.build.version_compatible is True and not builds[0].board:
        build.append(
            "build.version_compatible is ignored: the reference backend builds no TensorRT plan"
        )
    about += [approximation.note for approximation in approximations(context)]
    if context.file.model.builtin is not None:
        about.append(
            "the network's weights are random: accuracy only shows how closely the "
            "target's numerics follow FP32"
        )
    if translate_qdq(context) is not None:
        about.append(float_note(user_model(context)))
    placed = plan(context)
    notes = [*placed.notes]
    if placed.baselines.get("tensorrt_auto") == placed.predicted:
        notes.append("TensorRT's automatic placement is equally good for this objective")
    return {"accuracy": about, "run": [*context.session.notes], "plan": notes, "build": build}


def _range_accuracy(context: Context, built: BuiltPlan) -> list[str]:
    """Returns notes on the accuracy of the engine of a range; none without such an engine."""
    if not built.board:
        return [] if gpu_range_context(context) is None else [_REFERENCE_RANGE]
    rest = built_range_context(context)
    if rest is None or rest.file.precision != "int8":
        return []
    figures = bucket_accuracy(rest)
    shape = shape_text(network_sizes(rest))
    return [
        f"the engine of the range is INT8, calibrated at {shape}: there {accuracy_words(figures)}; "
        "at other sizes it is not measured"
    ]


def build_notes(context: Context, builds: Sequence[BuiltPlan]) -> list[str]:
    """Returns notes on the result for the user."""
    groups = note_groups(context, builds).values()
    return list(dict.fromkeys(note for group in groups for note in group))
