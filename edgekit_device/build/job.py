"""The job "build": builds a request's engines and runs the golden cases on them.

Work with TensorRT or CUDA runs in a child process (``build.attempt``): this process must not load
CUDA, which does not survive a fork.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from edgekit_device.board.identity import fingerprint
from edgekit_device.build.attempt import CRASHED, BuilderLog, run_isolated
from edgekit_device.build.engine import EngineBuild
from edgekit_device.build.inspection import strides
from edgekit_device.build.request import (
    BuildJobRequest,
    BuildResult,
    EngineResult,
    EngineSpec,
    GoldenRun,
    NetworkTensor,
    StoredTensor,
    read_request,
)
from edgekit_device.errors import DeviceError
from edgekit_device.jobs.job import JobContext
from edgekit_device.processes import Report
from edgekit_device.protocol.codec import records, take
from edgekit_device.protocol.manifest import (
    BlobEntry,
    EngineEntry,
    IoEntry,
    Lane,
    Manifest,
    SegmentEntry,
    ShapeValues,
    TensorEntry,
)
from edgekit_device.runtime.golden import golden_inputs
from edgekit_device.runtime.model import open_model
from edgekit_device.tensorrt.bindings import find_fault, find_module
from edgekit_device.tensorrt.plugins import load_plugins
from edgekit_device.tensorrt.runtimes import start_runtime
from edgekit_device.trust.bundle import BundleFiles, Checked
from edgekit_device.versions import agree, parse_version


def run(context: JobContext) -> BuildResult:
    """Runs the job, as ``build``."""
    return build(context, read_request(context.request))


def build(context: JobContext, request: BuildJobRequest) -> BuildResult:
    """Builds the request's engines; engines, logs and outputs are stored as blobs.

    Raises:
        DeviceError: "build.request"; "plugin.*"; "build.failed" if no attempt at an engine
            succeeded; "build.*" if no other attempt could help; "blob.*"; "board.*".
        JobCancelled: It was cancelled; only blobs are left, which a collection removes.
    """
    _need_blobs(context, request)
    board = fingerprint(context.root.folder)
    notes: List[str] = []
    # before any engine: a TensorRT that cannot start fails here in seconds
    version = run_isolated(context, lambda _: _start_tensorrt(context))
    if not agree(parse_version(request.tensorrt), parse_version(version)):
        notes.append("planned for TensorRT {}, built with {}".format(request.tensorrt, version))
    builds = EngineBuild(context, request, board)
    # before any engine, since a library that crashes would look like a failed build
    if request.plugins:
        _try_plugins(context, builds)
    built: Dict[str, EngineResult] = {}
    built_keys: Dict[str, str] = {}
    for spec in request.engines:
        # between two engines; within an engine the child is watched
        context.check_cancelled()
        # lanes of the same plan may share engines
        spec_text = repr(replace(spec, key=""))
        if spec_text in built_keys:
            built[spec.key] = replace(built[built_keys[spec_text]], key=spec.key)
            continue
        built_keys[spec_text] = spec.key
        built[spec.key] = builds.engine(spec, notes)
    golden = _run_golden(context, request, built, board, notes)
    return BuildResult(
        request=request.digest,
        fingerprint=board,
        tensorrt=board["tensorrt"] or built[request.engines[0].key].tensorrt,
        engines=tuple(built[spec.key] for spec in request.engines),
        golden=golden,
        notes=tuple(notes),
    )


def _need_blobs(context: JobContext, request: BuildJobRequest) -> None:
    needed = {}
    for spec in request.engines:
        at = "engines[{}]".format(spec.key)
        needed.update({digest: at for digest in (spec.model, *spec.data.values())})
        if spec.calibration is not None:
            needed[spec.calibration] = at
    for plugin in request.plugins:
        if plugin.library is not None:
            needed[plugin.library] = "plugins[{}]".format(plugin.operator)
    missing = context.root.store.missing(needed)
    if missing:
        raise DeviceError(
            "{} blobs of the request are missing on the board".format(len(missing)),
            code="blob.missing",
            where=needed[missing[0]],
            hint="run the same command again; missing blobs are sent",
        )


def _start_tensorrt(context: JobContext) -> str:
    """Starts TensorRT and returns its version."""
    trt = find_module("full")
    if trt is None or not hasattr(trt, "Builder"):
        raise DeviceError(
            "TensorRT's Python package cannot be used here: {}".format(
                find_fault("full") or "it contains no builder"
            ),
            code="build.no-tensorrt",
            hint="install python3-libnvinfer on the board",
        )
    start_runtime(trt, context.root.folder)
    return str(trt.__version__)


def _try_plugins(context: JobContext, builds: EngineBuild) -> None:
    """Loads the plugins in a child, which a library may crash, before the first engine."""
    context.progress("loading plugins", 0, 0)

    def work(_: Report) -> None:
        trt = find_module("full")
        load_plugins(trt, BuilderLog(trt, context.log).logger, builds.plugins(), "plugins")

    try:
        run_isolated(context, work)
    except DeviceError as error:
        if error.code != CRASHED:
            raise
        raise DeviceError(
            "the process that loads the plugins' libraries died: {}".format(
                error.message.rpartition(": ")[2]
            ),
            code="plugin.crashed",
            where="plugins",
            hint="look at the code that a library runs when it is opened: constructors of static "
            "objects, and the libraries that it was linked against",
        ) from error


def _run_golden(
    context: JobContext,
    request: BuildJobRequest,
    built: Mapping[str, EngineResult],
    board: Mapping[str, str],
    notes: List[str],
) -> Tuple[GoldenRun, ...]:
    if not request.golden:
        return ()
    # the full plan runs without a refit; without one the weights are not on this board
    bare = [engine.key for engine in built.values() if engine.stripped and engine.full is None]
    if bare:
        notes.append(
            "golden vectors were not run: the weights of {} are missing here".format(
                ", ".join(bare)
            )
        )
        return ()
    context.progress("golden vectors", 0, len(request.golden))
    store = context.root.store
    files = BundleFiles(
        where=request.name,
        manifest=b"",
        signature=None,
        blobs=store,
        root=context.root,
        release=None,
    )

    def work(on_progress: Report) -> Tuple[GoldenRun, ...]:
        return run_golden(request, built, files, board, context.store)

    try:
        # an answer of the child is JSON: read as strictly as a host's document
        found: Tuple[GoldenRun, ...] = take(records(GoldenRun), run_isolated(context, work))
    except DeviceError as error:
        if error.code == "job.cancelled":
            raise
        raise DeviceError(
            "the engines were built, but fail to run: {}".format(error.message),
            code="build.golden",
            where=error.where or request.name,
            hint=error.hint,
        ) from error
    context.progress("golden vectors", len(request.golden), len(request.golden))
    return found


def run_golden(
    request: BuildJobRequest,
    engines: Mapping[str, EngineResult],
    files: BundleFiles,
    fingerprint: Mapping[str, str],
    store: Callable[[bytes], str],
) -> Tuple[GoldenRun, ...]:
    """Runs every golden case on its lane, or on each lane.

    Args:
        request: The request.
        engines: The result's entries by engine key.
        files: The source of the blobs.
        fingerprint: The board's fingerprint.
        store: Stores an output and returns its digest.

    Raises:
        DeviceError: Errors of the loader.
    """
    checked = _make_checked(request, engines, files, fingerprint)
    # once for all cases: engines load for seconds
    model = open_model(checked)
    found = []
    for case in request.golden:
        inputs = golden_inputs(checked.manifest.inputs, case.seed, case.ranges, case.shapes)
        lanes: Sequence[Optional[int]] = [case.lane]
        # a case without a lane is compared on every lane, since their engines differ
        if case.lane is None and len(request.lanes) > 1:
            lanes = range(len(request.lanes))
        for lane in lanes:
            outputs = model.run_lane(lane or 0, inputs)
            entry = {}
            for tensor in checked.manifest.outputs:
                array = outputs[tensor.name]
                entry[tensor.name] = StoredTensor(
                    store(array.tobytes()), str(array.dtype), array.shape
                )
            found.append(GoldenRun(case.seed, lane, entry, case.shapes))
    return tuple(found)


def _make_checked(
    request: BuildJobRequest,
    engines: Mapping[str, EngineResult],
    files: BundleFiles,
    fingerprint: Mapping[str, str],
) -> Checked:
    """Returns the built engines with their weights as a bundle that counts as checked."""
    specs = {spec.key: spec for spec in request.engines}
    lanes = []
    blobs: Dict[str, BlobEntry] = {}
    entries: Dict[str, EngineEntry] = {}
    for lane in request.lanes:
        segments = []
        for index, key in enumerate(lane.engines):
            built, spec = engines[key], specs[key]
            # the full plan has its weights, so the loader needs no refit
            digest = built.full or built.engine
            size = built.full_bytes or built.bytes
            blobs[digest] = BlobEntry(size, "engine")
            entries[digest] = _engine_entry(spec, built)
            segments.append(
                SegmentEntry(
                    index,
                    spec.device,
                    digest,
                    tuple(io.name for io in spec.inputs),
                    tuple(io.name for io in spec.outputs),
                    tuple(layer.name for layer in spec.layers),
                )
            )
        lanes.append(Lane(lane.share, tuple(segments)))
    store = files.blobs
    for plugin in request.plugins:
        if plugin.library is not None:
            # the loader checks the size of every blob that a manifest lists
            blobs[plugin.library] = BlobEntry(len(store.read(plugin.library)), "library")
    manifest = Manifest(
        digest=request.digest,
        name=request.name,
        backend="tensorrt",
        inputs=_tensor_entries(request.network.inputs),
        outputs=_tensor_entries(request.network.outputs),
        lanes=tuple(lanes),
        weights={},
        blobs=blobs,
        # this board's own, which the loader compares with the board
        fingerprint=dict(fingerprint),
        engines=entries,
        plugins=request.plugins,
        values={
            io.name: ShapeValues(
                io.dtype,
                io.shape,
                spec.values[0][io.name].min,
                spec.values[0][io.name].opt,
                spec.values[0][io.name].max,
            )
            for spec in request.engines
            for io in spec.inputs
            if spec.values and io.name in spec.values[0]
        },
    )
    # just built here: as trusted as a signed bundle
    return Checked(files, manifest, signer="this board")


def _engine_entry(spec: EngineSpec, built: EngineResult) -> EngineEntry:
    return EngineEntry(
        kind=spec.kind,
        tensorrt=built.tensorrt,
        # the full plan runs here, whatever the request's plan lacks
        stripped=False,
        version_compatible=built.version_compatible,
        lean_embedded=built.lean_embedded,
        refit="none",
        dla_core=spec.dla_core,
        inputs=_io_entries(built, "input"),
        outputs=_io_entries(built, "output"),
        plugins_embedded=built.plugins_embedded,
    )


def _io_entries(built: EngineResult, mode: str) -> Tuple[IoEntry, ...]:
    return tuple(
        IoEntry(io.name, io.dtype, io.shape, io.format, io.strides, io.scale)
        for io in built.io
        if io.mode == mode
    )


def _tensor_entries(tensors: Sequence[NetworkTensor]) -> Tuple[TensorEntry, ...]:
    return tuple(
        TensorEntry(io.name, io.dtype, io.shape, "LINEAR", strides(io.shape, io.dtype, "LINEAR"))
        for io in tensors
    )
