"""The command ``bench``: measures a release on its samples or golden frames while it samples the
board's state; adds memory, runtime settings and times of single layers.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    BinaryIO,
    Callable,
    Dict,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
)

from edgekit_device.arrays.npz import read_npz, receive_npz
from edgekit_device.arrays.onnx_file import EngineFacts, read_engine
from edgekit_device.benchmark.measure import bench, find_cuda
from edgekit_device.benchmark.measurement import (
    ColdStart,
    Fact,
    Flag,
    MeasuredNode,
    MeasuredSettings,
    Measurement,
    MemoryTaken,
    Stage,
    UsedRuntime,
)
from edgekit_device.benchmark.settings import BenchSettings, parse_settings
from edgekit_device.benchmark.statistics import median
from edgekit_device.benchmark.trtexec import cross_check
from edgekit_device.board.monitor import Sampler
from edgekit_device.board.power import held_power
from edgekit_device.board.samples import Monitor
from edgekit_device.cuda.driver import choose_wait, open_cuda, wait_mode
from edgekit_device.errors import DeviceError
from edgekit_device.protocol.codec import write
from edgekit_device.protocol.manifest import TensorEntry
from edgekit_device.release.releases import check_release, need_ready
from edgekit_device.runtime.golden import golden_inputs, make_frame
from edgekit_device.runtime.model import Model, open_model
from edgekit_device.runtime.refit import need_numpy
from edgekit_device.store.root import Root
from edgekit_device.tensorrt.runtimes import EngineRuntime
from edgekit_device.trust.bundle import Checked, read_checked

if TYPE_CHECKING:
    import numpy as np

_MOST_FRAMES = 32
_MOST_BYTES = 256 << 20

_STATUS = Path("/proc/self/status")
_ENGINE = (
    "runtime",
    "library",
    "host_code",
    "dla_core",
    "threads",
    "context_memory",
    "context_bytes",
    "persistent_cache_bytes",
    "weight_budget_bytes",
)

_PROFILED_RUNS = 10  # at most; a quick benchmark profiles fewer runs
_KERNEL_TIME = "_kernel_time"


def do_bench(root: Root, arguments: argparse.Namespace, stdin: BinaryIO) -> Measurement:
    """Measures a release on this machine's clock: ``edgekit.device.bench/1``.

    In order: power mode and clocks are set if requested, the release is opened (cold), its
    first frame runs, the idle board is sampled, it warms up, and it is measured. Any end of the
    command ends the sampling and restores power mode and clocks.
    """
    need_numpy()

    given = arguments.settings
    settings = BenchSettings() if given is None else parse_settings(given)
    on_stage = progress_reporter(settings) if arguments.progress else lambda stage: None
    npz = receive_npz(stdin) if arguments.inputs else b""
    folder = root.app(arguments.app).release(arguments.release)
    # around trtexec, too: both measurements need the same clocks
    with held_power(root.folder, settings.power_mode, settings.lock_clocks) as power:
        found, planned = _measure_release(root, folder, arguments, settings, npz, on_stage)
        trtexec = None
        if settings.trtexec is not None:
            on_stage("trtexec")
            checked = _select_variant(check_release(root, folder), planned.variant)
            trtexec = cross_check(root, folder, checked, settings.trtexec, planned.sizes)
    return replace(found, power=power.report, trtexec=trtexec)


def _measure_release(
    root: Root,
    folder: Path,
    arguments: argparse.Namespace,
    settings: BenchSettings,
    npz: bytes,
    on_stage: Callable[[str], None],
) -> Tuple[Measurement, PlannedShape]:
    on_stage("open")
    checked, release_model, open_ms, before = _open_release(root, folder, arguments, settings.spin)
    frames_given = split_frames(read_npz(npz), release_model.inputs) if npz else []
    planned = planned_shape(release_model, settings.shapes, frames_given)
    began = time.perf_counter()
    with release_model.variant(planned.variant) as model:
        open_ms += (time.perf_counter() - began) * 1e3
        data = load_frames(_select_variant(checked, planned.variant), frames_given, planned.sizes)
        first = model.check(data.frames[0])
        began = time.perf_counter()
        model.run_lane(0, first)
        first_ms = (time.perf_counter() - began) * 1e3
        with BoardWatch(root.folder, settings.monitor_ms, on_stage) as watch:
            watch.idle(settings.idle_ms)
            frames = bench(model, data.frames, settings, watch.stage)
            memory = measure_memory(model, before)
        runtime = describe_runtime(model, settings, arguments.threads)
    nodes = None
    if settings.profile:
        on_stage("layers")
        # a run of its own: a profiler changes the times of whole frames
        nodes = profile(checked, first, arguments.threads, settings.iterations, planned.variant)
    sizes = {} if release_model.is_static and not settings.shapes else planned.sizes
    # the batch is the first axis of the first input
    shape = next(iter(planned.sizes.values()))
    return replace(
        frames,
        release=folder.name,
        settings=replace(
            _requested_settings(settings, arguments.threads, data.source),
            batch=shape[0] if shape else 1,
            shapes=sizes,
        ),
        cold=ColdStart(open_ms, first_ms),
        memory=memory,
        runtime=replace(runtime, notes=(*runtime.notes, *data.notes)),
        monitor=watch.document,
        nodes=nodes,
    ), planned


def _open_release(
    root: Root, folder: Path, arguments: argparse.Namespace, spin: Optional[bool]
) -> Tuple[Checked, Model, float, Optional[Tuple[int, int]]]:
    """Opens the release; returns the bundle, the model, the milliseconds until it is ready, and the
    device's memory before.
    """
    began = time.perf_counter()
    checked = check_release(root, folder)
    need_ready(arguments.app, folder)
    # before the engines take memory; it opens the device, so it also sets how CUDA waits
    before = None if checked.manifest.backend == "reference" else _free_device_memory(spin)
    model = open_model(checked, arguments.threads)
    return checked, model, (time.perf_counter() - began) * 1e3, before


def _free_device_memory(spin: Optional[bool]) -> Optional[Tuple[int, int]]:
    try:
        if spin is not None:
            # before open_cuda: a driver may refuse it once the context exists
            choose_wait(spin)
        return open_cuda().memory()
    except DeviceError:
        return None  # opening the engines reports the error; how CUDA waits is read back later


class PlannedShape(NamedTuple):
    """A shape that a release was built for: the variant that takes it, and the inputs' sizes."""

    variant: int
    sizes: Dict[str, Tuple[int, ...]]


def planned_shape(
    model: Model,
    shapes: Mapping[str, Tuple[int, ...]],
    frames: Sequence[Dict[str, np.ndarray]],
) -> PlannedShape:
    """Returns the shape to measure: as requested, else the frames', else the first variant's.

    Raises:
        DeviceError: "bench.shape": the release was not built for it, or the frames' shape differs.
    """
    own_shapes = {tensor.name: tensor.shape for tensor in model.inputs}
    if frames and set(frames[0]) == set(own_shapes):
        found = {name: frames[0][name].shape for name in own_shapes}
        if shapes and found != {**own_shapes, **shapes}:
            raise DeviceError(
                "the frames have another shape than the one to be measured",
                code="bench.shape",
                where=model.name,
                hint="give frames of that shape, or no shape",
            )
    else:
        # the check of inputs reports wrong names
        found = {**own_shapes, **shapes}
    if found == own_shapes:
        return PlannedShape(0, own_shapes)
    try:
        return PlannedShape(model.planned(found), found)
    except DeviceError as error:
        if model.is_static and not shapes:
            return PlannedShape(0, own_shapes)
        raise DeviceError(
            "the release was not built for this shape: {}".format(error.message),
            code="bench.shape",
            where=error.where,
            hint=error.hint,
        ) from error


def _select_variant(checked: Checked, variant: int) -> Checked:
    """Returns the bundle with only this variant."""
    return replace(checked, manifest=checked.manifest.select_variant(variant))


def _requested_settings(settings: BenchSettings, threads: int, data: str) -> MeasuredSettings:
    """Returns the settings as requested; "runtime" has the settings that took effect."""
    return MeasuredSettings(
        warmup_ms=settings.warmup_ms,
        duration_s=settings.duration_s,
        iterations=settings.iterations,
        streams=settings.streams,
        graph=settings.graph,
        spin=settings.spin,
        transfers=settings.transfers,
        sleep_ms=settings.sleep_ms,
        idle_ms=settings.idle_ms,
        monitor_ms=settings.monitor_ms,
        threads=threads,
        data=data,
    )


# Several different frames are cycled: a single frame would stay in caches, unlike a camera's.
class BenchFrames(NamedTuple):
    """Frames and their source: "given", "samples" or "golden"."""

    source: str
    frames: List[Dict[str, np.ndarray]]
    notes: List[str]


def load_frames(
    checked: Checked,
    frames: Sequence[Dict[str, np.ndarray]] = (),
    sizes: Optional[Mapping[str, Tuple[int, ...]]] = None,
) -> BenchFrames:
    """Returns the frames to measure with: the given frames if there are any, else the bundle's own.

    Args:
        checked: The bundle with only the measured variant.
        frames: The host's frames.
        sizes: The inputs' shapes; None for the variant's own.

    Raises:
        DeviceError: "blob.*" for a missing sample.
    """
    import numpy as np

    manifest = checked.manifest
    if frames:
        return _limit_frames("given", list(frames))
    own_shapes = {tensor.name: tensor.shape for tensor in manifest.inputs}
    if manifest.samples is not None and sizes in (None, own_shapes):
        cases = manifest.samples.cases
        size = sum(manifest.sizes()[digest] for digest in cases[0].inputs.values())
        used = cases[: max(1, min(_MOST_FRAMES, _MOST_BYTES // max(size, 1)))]
        arrays = [
            {
                tensor.name: np.frombuffer(
                    read_checked(checked, case.inputs[tensor.name]), tensor.dtype
                ).reshape(tensor.shape)
                for tensor in manifest.inputs
            }
            for case in used
        ]
        return BenchFrames("samples", arrays, _repeat_notes(len(used), len(cases)))
    # a golden case of another shape has the same ranges of values and seed
    golden = [
        golden_inputs(manifest.inputs, case.seed, case.ranges, sizes or case.shapes)
        for case in manifest.golden[:_MOST_FRAMES]
    ]
    return _limit_frames("golden", golden or [make_frame(manifest, sizes)])


def split_frames(
    arrays: Dict[str, np.ndarray], tensors: Sequence[TensorEntry]
) -> List[Dict[str, np.ndarray]]:
    """Returns one frame, or several if every array has an additional first axis.

    Raises:
        DeviceError: "input.shape" if only some have it, or their numbers of frames differ.
    """
    ranks = {tensor.name: len(tensor.shape) for tensor in tensors}
    known = {name: array for name, array in arrays.items() if name in ranks}
    stacked = [name for name, array in known.items() if array.ndim == ranks[name] + 1]
    if not stacked:
        return [arrays]  # the check of inputs reports other errors
    counts = {int(known[name].shape[0]) for name in stacked}
    if len(stacked) != len(arrays) or len(counts) != 1 or min(counts) < 1:
        raise DeviceError(
            "with several frames every input needs the same number of frames",
            code="input.shape",
            hint="stack the frames with numpy.stack",
        )
    return [{name: array[i] for name, array in arrays.items()} for i in range(min(counts))]


def _limit_frames(source: str, frames: List[Dict[str, np.ndarray]]) -> BenchFrames:
    size = sum(array.nbytes for array in frames[0].values())
    most = max(1, min(_MOST_FRAMES, _MOST_BYTES // max(size, 1)))
    return BenchFrames(source, frames[:most], _repeat_notes(min(most, len(frames)), len(frames)))


def _repeat_notes(used: int, total: int) -> List[str]:
    return [] if used == total else ["the first {} of {} frames are repeated".format(used, total)]


class BoardWatch:
    """Samples the board during the idle time, the warm-up and the measured frames.

    Args:
        folder: ROOT.
        interval_ms: Milliseconds between two samples; 0 takes no samples.
        on_stage: Called with the name of each stage as it begins.

    Attributes:
        document: ``edgekit.monitor/1`` after the measured frames; None without samples.
    """

    def __init__(self, folder: Path, interval_ms: float, on_stage: Callable[[str], None]) -> None:
        self.document: Optional[Monitor] = None
        self._on_stage = on_stage
        self._sampler: Optional[Sampler] = None
        if interval_ms:
            self._sampler = Sampler(int(interval_ms), root=folder)

    def __enter__(self) -> "BoardWatch":
        if self._sampler is not None:
            self._sampler.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._end()

    def idle(self, milliseconds: float) -> None:
        """Keeps the board idle for this time: the baseline."""
        if milliseconds:
            self._on_stage("idle")
        time.sleep(milliseconds / 1e3)
        if self._sampler is not None:
            self._sampler.warming()

    def stage(self, name: str) -> None:
        """Begins a stage of the benchmark."""
        if name == "pipelined":
            self._end()  # later samples would belong to another measurement
        self._on_stage(name)
        if name == "measure" and self._sampler is not None:
            self._sampler.mark()

    def _end(self) -> None:
        sampler, self._sampler = self._sampler, None
        if sampler is not None:
            self.document = sampler.stop()


def progress_reporter(settings: BenchSettings) -> Callable[[str], None]:
    """Returns a callback that reports ``{"stage", "left_s"}`` on stdout, a JSON document per line.

    "left_s" is the least time in seconds for this stage and all later stages; null if unknown.
    """
    measured = settings.duration_s
    stages: List[Tuple[str, Optional[float]]] = [
        ("open", None),
        ("idle", settings.idle_ms / 1e3),
        ("warm-up", settings.warmup_ms / 1e3),
        ("measure", measured),
        ("pipelined", measured),
        ("layers", None),
        ("trtexec", None),
    ]

    def report(stage: str) -> None:
        place = [name for name, _ in stages].index(stage)
        last = len(stages) if stage == "pipelined" else 4  # unknown before if frames pipeline
        known = [seconds for _, seconds in stages[place:last] if seconds is not None]
        line = Stage(stage, round(sum(known), 3) if known else None)
        # unbuffered: the host shows the stage while it runs
        os.write(sys.stdout.fileno(), (json.dumps(write(line)) + "\n").encode("ascii"))

    return report


def measure_memory(model: Model, before: Optional[Tuple[int, int]]) -> MemoryTaken:
    """Returns this process's memory and the device's, in bytes.

    Args:
        model: The model.
        before: The device's free and total memory before the model was opened; None if unknown.
            The difference includes memory that other processes took meanwhile.
    """
    status = _process_memory()
    cuda = find_cuda(model)
    free, total = (None, None) if cuda is None else cuda.memory()
    taken = None if before is None or free is None else max(before[0] - free, 0)
    return MemoryTaken(
        rss_bytes=status.get("VmRSS"),
        peak_rss_bytes=status.get("VmHWM"),
        gpu_bytes=taken,
        gpu_free_bytes=free,
        gpu_total_bytes=total,
    )


def describe_runtime(model: Model, settings: BenchSettings, threads: int) -> UsedRuntime:
    """Returns the runtime of the model and the requested flags that took effect."""
    graph, spin, transfers = settings.graph, settings.spin, settings.transfers
    cuda = find_cuda(model)
    notes = list(model.notes)
    flags: Dict[str, Flag] = {"streams": settings.streams, "threads": threads}
    if cuda is None:
        requested = {"graph": graph, "spin": spin is not None, "no transfers": not transfers}
        left = [name for name, given in requested.items() if given]
        if left:
            notes.append(
                "ignored, because the reference backend has no GPU: {}".format(", ".join(left))
            )
        flags.update(graph=False, spin=None, wait=None, transfers=None, buffers=None)
        try:
            import onnxruntime

            version: Optional[str] = str(onnxruntime.__version__)
        except Exception:  # it ran the model: a missing name is not an error
            version = None
        return UsedRuntime("onnxruntime", version, flags, tuple(notes))

    wait = wait_mode(cuda)
    if spin is not None and wait != ("spin" if spin else "blocking"):
        notes.append(
            "CUDA keeps its way of waiting ({}); the requested one was ignored".format(wait)
        )
    cudla = EngineRuntime("cudla")
    facts = [getattr(engine, "facts", cudla) for engine in model.engines.values()]
    for name in _ENGINE:
        different: List[Fact] = []
        for fact in facts:
            if getattr(fact, name) not in different:
                different.append(getattr(fact, name))
        flags[name] = different[0] if len(different) == 1 else tuple(different)
    flags.update(
        graph=graph,
        spin={"spin": True, "blocking": False}.get(wait),
        wait=wait,
        module_loading=cuda.module_loading(),
        transfers=transfers,
        buffers="fixed" if graph or not transfers else "pooled",
    )
    versions = [fact.version for fact in facts if fact.version]
    return UsedRuntime(
        library="tensorrt" if versions else "cudla",
        version=", ".join(dict.fromkeys(versions)) or None,
        flags=flags,
        notes=tuple(notes),
    )


def _process_memory() -> Dict[str, int]:
    """Returns the sizes in /proc/self/status in bytes."""
    found = {}
    try:
        lines = _STATUS.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return {}
    for line in lines:
        name, _, value = line.partition(":")
        number, _, unit = value.strip().partition(" ")
        if unit == "kB" and number.isdigit():
            found[name] = int(number) << 10
    return found


def profile(
    checked: Checked,
    inputs: Dict[str, np.ndarray],
    threads: int,
    iterations: int,
    variant: int = 0,
) -> Tuple[MeasuredNode, ...]:
    """Runs the model a few times (``iterations``, at most 10) under the backend's own profiler.

    Returns:
        Nodes in each segment's running order; with so few runs a single disturbed run distorts the
        mean. ``node`` is the engine's node for the profiler's name, or that name itself for nodes
        that ONNX Runtime made (reorders, casts); for TensorRT the layer's name, without "op".
    """
    with tempfile.TemporaryDirectory() as folder:
        release_model = open_model(checked, threads, Path(folder))
        with release_model.variant(variant) as model:
            return tuple(_profile_nodes(checked, model, inputs, iterations))


def _profile_nodes(
    checked: Checked, model: Model, inputs: Dict[str, np.ndarray], iterations: int
) -> Iterator[MeasuredNode]:
    frame = model.check(inputs)
    for lane in model.lanes:
        # one more: the first, cold run is left out
        for _ in range(min(iterations, _PROFILED_RUNS) + 1):
            model.run_lane(lane.number, frame)
    # an engine that runs on several devices ends its profiling once
    engines = {id(engine): (digest, engine) for (digest, _), engine in model.engines.items()}
    times = {key: _profiled_times(checked, *pair) for key, pair in engines.items()}
    for lane in model.lanes:
        for segment in lane.segments:
            for node, op, spent in times[id(model.engines[segment.engine, segment.device])]:
                yield MeasuredNode(
                    lane=lane.number,
                    index=segment.index,
                    node=node,
                    op=op,
                    mean_us=sum(spent) / len(spent),
                    median_us=median(spent),
                )


def _profiled_times(
    checked: Checked, digest: str, engine: Any
) -> List[Tuple[str, str, List[float]]]:
    if hasattr(engine, "node_times"):
        found: List[Tuple[str, str, List[float]]] = engine.node_times()
        return found
    if not hasattr(engine, "end_profiling"):
        return []  # a loadable: cuDLA has no profiler
    facts = read_engine(read_checked(checked, digest), digest)
    return _node_times(Path(engine.end_profiling()), facts)


def _node_times(file: Path, facts: EngineFacts) -> List[Tuple[str, str, List[float]]]:
    """Returns each node's microseconds, without the first (cold) run."""
    known: Dict[str, str] = {}
    for node in facts.nodes:
        # ONNX Runtime derives names of its own nodes from a node's name or an output's
        for name in (node.name, *node.outputs):
            known.setdefault(name, node.name or node.outputs[0])
    times: Dict[str, List[float]] = {}
    ops: Dict[str, str] = {}
    for event in json.loads(file.read_text(encoding="utf-8")):
        name = event.get("name", "")
        if event.get("cat") == "Node" and name.endswith(_KERNEL_TIME):
            name = name[: -len(_KERNEL_TIME)]
            times.setdefault(name, []).append(float(event["dur"]))
            ops[name] = event["args"].get("op_name", "")
    return [
        (_engine_node(name, known), ops[name], each[1:] or each) for name, each in times.items()
    ]


def _engine_node(name: str, known: Dict[str, str]) -> str:
    """Returns the engine's node for ONNX Runtime's name, such as "fused Conv" or "y_nchwc"."""
    candidate = name
    while candidate:
        if candidate in known:
            return known[candidate]
        if candidate.startswith("fused "):
            candidate = candidate[len("fused ") :]
            continue
        # suffixes are added with an underscore: cut the last suffix and search again
        candidate = candidate.rpartition("_")[0]
    return name
