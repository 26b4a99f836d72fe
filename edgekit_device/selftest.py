"""The job "selftest": measures undocumented properties of a board and records them; its items are
those of ``edgekit doctor --selftest``.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Tuple, Union, cast

from edgekit_device.account import account_name
from edgekit_device.benchmark.trtexec import run_plan
from edgekit_device.board.identity import fingerprint
from edgekit_device.board.inventory import command_output, find_trtexec
from edgekit_device.board.monitor import Sampler
from edgekit_device.board.power import PowerReport, held_power
from edgekit_device.board.power_tools import NvpmodelMode, read_modes
from edgekit_device.board.probe import probe
from edgekit_device.build.attempt import run_isolated
from edgekit_device.build.request import (
    Attempt,
    BuildJobRequest,
    BuildResult,
    EngineResult,
    TimingCacheUse,
    read_request,
)
from edgekit_device.cuda.cudla import open_loadable
from edgekit_device.cuda.driver import CudaGraph, open_cuda
from edgekit_device.cuda.memory import DeviceTensor, io_bytes
from edgekit_device.errors import DeviceError
from edgekit_device.files import workspace
from edgekit_device.jobs.job import JobCancelled, JobContext
from edgekit_device.protocol import fields
from edgekit_device.protocol.codec import (
    array,
    choice,
    document,
    flag,
    long_text,
    mapping,
    member,
    nullable,
    number,
    read,
    record,
    records,
    text,
    with_schema,
    write,
)
from edgekit_device.protocol.failure import Failure
from edgekit_device.protocol.manifest import IoEntry
from edgekit_device.tensorrt.bindings import find_module
from edgekit_device.tensorrt.engine import TensorRTEngine
from edgekit_device.tensorrt.memory import EngineMemory, SharedMemory, device_bytes
from edgekit_device.tensorrt.plan import read_header
from edgekit_device.tensorrt.refit import RefitWeight, refit_weights
from edgekit_device.tensorrt.runtimes import LoadedPlan, RuntimeChoice, deserialize, start_runtime
from edgekit_device.versions import show

_VC, _STRIP = "VERSION_COMPATIBLE", "STRIP_PLAN"

SCHEMA = "edgekit.selftest/1"
_MOST_TEXT = 20_000

_BUILT = Dict[str, EngineResult]
_TEGRASTATS_S = 3.5
_SAMPLED_S = 3.0

# the fields of a build's answer that the questions are about
_COPIED = (
    "bytes",
    "full_bytes",
    "stripped",
    "version_compatible",
    "lean_embedded",
    "refit",
    "dla_core",
    "attempts",
    "weights",
    "io",
    "layers",
    "can_run_on_dla",
    "unmapped",
    "timing_cache",
    "seconds",
)

BUILDS = frozenset({"build", "build_again"})
"""Checks that run a build, which isolates itself."""

_LAUNCHES = 10
_TIMES = array(number(0.0, 1e9))

_SHOWN_PREFIXES = (
    "Latency:",
    "Enqueue Time:",
    "GPU Compute Time:",
    "Throughput:",
    "[E]",
    "[W]",
    "&&&&",
)

_TRTEXEC = (
    "--loadEngine={engine}",
    "--exportTimes={times}",
    "--warmUp=100",
    "--duration=1",
    "--iterations=10",
)
_TIMEOUT_S = 120.0
_LINES = array(long_text)


# docs/not-yet-on-hardware.md names the same ids; a test compares both.
class SelftestItem(NamedTuple):
    """A question to the board.

    Attributes:
        id: Stable name.
        what: The action, as a command or in words.
        expected: The expected answer, and why.
        do: The check that answers it: a name in ``CHECKS``.
        flags: Builder flags of the plan that it builds or reads.
        needs: The ids of the items whose plans it reads.
        device: The device of the plan's layers.
        standalone: True if it is a loadable for cuDLA.
    """

    id: str
    what: str
    expected: str
    do: str
    flags: Tuple[str, ...] = ()
    needs: Tuple[str, ...] = ()
    device: str = "DLA0"
    standalone: bool = False


ITEMS: Tuple[SelftestItem, ...] = (
    SelftestItem("probe", "edgekit_device.pyz probe", "every field is known", "probe"),
    SelftestItem("build-gpu", "build the toy network for the GPU", "it builds", "build",
         device="GPU"),
    SelftestItem("build-hybrid", "build it for DLA0 with GPU_FALLBACK", "it builds; the log names "
         "one loadable and after it its memory", "build"),
    SelftestItem("can-run-on-dla", "IBuilderConfig.can_run_on_DLA of each layer",
         "true for all three", "verdicts", needs=("build-hybrid",)),
    SelftestItem("inspector-dla", "IEngineInspector of a plan with a DLA layer",
         "the layer's name is {ForeignNode[...]}; its other fields are not publicly known",
         "inspector", needs=("build-hybrid",)),
    SelftestItem("timing-cache", "the same build again", "the timing cache is reused",
         "build_again", needs=("build-hybrid",)),
    SelftestItem("dla-vc", "DLA with VERSION_COMPATIBLE", "not documented", "build", (_VC,)),
    SelftestItem("dla-strip", "DLA with STRIP_PLAN and REFIT_IDENTICAL; sizes and Refitter's "
         "weights", "not documented how much of a loadable's weights goes", "build",
         (_STRIP, "REFIT_IDENTICAL")),
    SelftestItem("dla-vc-strip", "DLA with VERSION_COMPATIBLE, STRIP_PLAN and REFIT_IDENTICAL",
         "not documented", "build", (_VC, _STRIP, "REFIT_IDENTICAL")),
    SelftestItem("lean-outside", "the GPU with VERSION_COMPATIBLE, EXCLUDE_LEAN_RUNTIME, "
         "STRIP_PLAN and REFIT_IDENTICAL; bytes of the plan and of the refitted one",
         "both are far smaller than the lean runtime: SerializationFlag.EXCLUDE_LEAN_RUNTIME keeps "
         "it out of the second", "build", (_VC, "EXCLUDE_LEAN_RUNTIME", _STRIP, "REFIT_IDENTICAL"),
         device="GPU"),
    SelftestItem("dla-refit", "DLA with REFIT",
         "not documented whether a loadable's weights can be refit", "build", ("REFIT",)),
    SelftestItem("load-full", "load the hybrid plan with tensorrt, DLA_core 0", "it loads",
         "load_full", needs=("build-hybrid",)),
    SelftestItem("dla-core-1", "load the plan of DLA core 0 with Runtime.DLA_core = 1",
         "it loads: the runtime chooses the core", "load_core_1", needs=("build-hybrid",)),
    SelftestItem("lean-load", "load the version compatible plan with tensorrt_lean", "it loads",
         "load_lean", needs=("dla-vc",)),
    SelftestItem("lean-refit", "the weights that tensorrt_lean's Refitter names",
         "the same as tensorrt's", "lean_weights", needs=("dla-vc-strip",)),
    SelftestItem("standalone", "build it as a standalone loadable (DLA_STANDALONE, DIRECT_IO)",
         "it builds", "build", standalone=True),
    SelftestItem("cudla", "cuDLA's tensor descriptors of the loadable",
         "size and strides as NVIDIA's samples have them", "cudla", needs=("standalone",),
         standalone=True),
    SelftestItem("graph", "capture the GPU's plan as a CUDA graph and replay it ten times, beside "
         "ten enqueues", "it is captured after one enqueue outside; launches take the host less",
         "graph", needs=("build-gpu",), device="GPU"),
    SelftestItem("lent-memory", "run the GPU's plan in a context without memory of its own, in "
         "half of the persistent L2 cache, beside one as TensorRT makes it",
         "the same bits; the driver says how it loads kernels and how much cache it has",
         "lent_memory", needs=("build-gpu",), device="GPU"),
    SelftestItem("lent-memory-dla", "the same of the hybrid plan", "the same bits", "lent_memory",
         needs=("build-hybrid",)),
    SelftestItem("trtexec-gpu", "trtexec --loadEngine of the GPU's plan, as `edgekit bench "
         "--with-trtexec` runs it", "it passes and prints its times", "trtexec",
         needs=("build-gpu",), device="GPU"),
    SelftestItem("trtexec-dla", "the same of the hybrid plan, with --useDLACore=0",
         "it passes and prints its times", "trtexec", needs=("build-hybrid",)),
    SelftestItem("tegrastats-dla", "tegrastats --interval 1000", "engine fields need root",
         "tegrastats"),
    SelftestItem("monitor", "the sampler of `edgekit bench` at 100 ms for three seconds",
         "tegrastats, completed from sysfs; below 1 % of a core; no unknown field, rails in every "
         "sample", "monitor"),
    SelftestItem("clocks-held", "jetson_clocks locked by `edgekit bench`'s guard, then restored",
         "clocks and power mode are as before", "held"),
    SelftestItem("nsys-dla", "nsys --version", "2024.5.4 with JetPack 5.1 and 6", "nsys"),
    SelftestItem("power-modes", "/etc/nvpmodel.conf and nvpmodel -q",
         "the modes of NVIDIA's conf files", "power"),
)  # fmt: skip


@document(frozen=True)
class LoadedAnswer:
    """The result of loading a plan.

    Attributes:
        plan: The version in the plan's header.
        runtime: The version of the runtime that loads it.
        weights: The weights that a refit can set.
        enqueued_ms: Milliseconds of ten enqueues.
        launched_ms: Milliseconds of ten launches of the same work as a CUDA graph.
        context_bytes: Bytes of device memory that a context needs while it runs.
        bit_equal: True if its outputs were the same with memory that the caller provides.
        persistent_cache_bytes: Bytes of L2 cache that the GPU can keep for chosen data.
        module_loading: How CUDA loads kernels: "lazy", "eager", or None if unknown.
    """

    plan: str = member(text())
    runtime: str = member(text())
    loaded: bool = member(flag)
    weights: Optional[Mapping[str, RefitWeight]] = member(mapping(record(RefitWeight)), absent=None)
    enqueued_ms: Optional[Tuple[float, ...]] = member(_TIMES, absent=None)
    launched_ms: Optional[Tuple[float, ...]] = member(_TIMES, absent=None)
    context_bytes: Optional[int] = member(fields.count, absent=None)
    bit_equal: Optional[bool] = member(flag, absent=None)
    persistent_cache_bytes: Optional[int] = member(fields.count, absent=None)
    module_loading: Optional[str] = member(text(), absent=None)


@document(frozen=True)
class CudlaTensor:
    """A tensor that a loadable reads or writes, and its bytes according to cuDLA's descriptor."""

    name: str = member(long_text)
    bytes: int = member(fields.count)


@document(frozen=True)
class CudlaAnswer:
    """cuDLA's facts about a loadable."""

    inputs: Tuple[CudlaTensor, ...] = member(records(CudlaTensor))
    outputs: Tuple[CudlaTensor, ...] = member(records(CudlaTensor))


@document(frozen=True)
class TrtexecAnswer:
    """trtexec's output for a plan.

    Attributes:
        command: The command without the board's paths.
        why: Reason for missing times.
        lines: Its lines about times, warnings and errors.
        times: The first 1,000 characters of the file from ``--exportTimes``.
    """

    command: Optional[str] = member(nullable(long_text))
    why: Optional[str] = member(nullable(long_text))
    lines: Tuple[str, ...] = member(array(long_text))
    times: str = member(long_text)


@document(frozen=True)
class PowerAnswer:
    """The power modes of the board's nvpmodel.conf, and the output of ``nvpmodel -q``."""

    modes: Tuple[NvpmodelMode, ...] = member(records(NvpmodelMode))
    now: Tuple[str, ...] = member(array(long_text))


_ANSWERS = (
    LoadedAnswer,
    CudlaAnswer,
    TrtexecAnswer,
    PowerAnswer,
    TimingCacheUse,
    Failure,
    PowerReport,
)
#: A check's finding. A mapping of flags is by layer; other mappings are a build's facts, and the
#: board's probe and monitor without private or long parts.
Found = Union[
    str,
    Tuple[str, ...],
    LoadedAnswer,
    CudlaAnswer,
    TrtexecAnswer,
    PowerAnswer,
    TimingCacheUse,
    Failure,
    PowerReport,
    Mapping[str, Any],
]


def _read_found(value: Any) -> Found:
    if isinstance(value, list):
        lines: Tuple[str, ...] = _LINES(value)
        return lines
    if not isinstance(value, dict):
        text_found: str = long_text(value)
        return text_found
    for kind in _ANSWERS:
        with contextlib.suppress(DeviceError):
            return cast(Found, read(kind, value))
    return value


with_schema(_read_found, anyOf=(long_text, _LINES, *map(record, _ANSWERS), {"type": "object"}))


@document(frozen=True)
class SelftestAnswer:
    """The answer to a question.

    Attributes:
        id: Stable name.
        what: The action, as a command or in words.
        expected: The expected answer, and why.
        found: The finding; the error if it failed, the reason if it was skipped. An object of
            another form is a build's facts, flags by layer, or the board's probe or monitor.
        seconds: Duration in seconds.
    """

    id: str = member(text())
    what: str = member(text())
    expected: str = member(text())
    status: str = member(choice("answered", "failed", "skipped"))
    found: Found = member(_read_found)
    seconds: float = member(number(0.0, 1e9))


@document(frozen=True)
class SelftestResult:
    """``edgekit.selftest/1``: the answers of a board."""

    fingerprint: Mapping[str, str] = member(mapping(text()))
    items: Tuple[SelftestAnswer, ...] = member(records(SelftestAnswer))
    schema: str = member(choice(SCHEMA), default=SCHEMA)


def run(context: JobContext) -> SelftestResult:
    """Runs the check of every item of ``ITEMS``.

    Each check runs in its own process, so that a crash is an answer too. The document does not
    identify the board's owner: names of host and account and the home folder are removed.

    Args:
        context: The job; its request is a ``BuildJobRequest`` of the toy network's single engine.

    Raises:
        JobCancelled: It was cancelled.
    """
    items: List[SelftestAnswer] = []
    built: _BUILT = {}
    for position, item in enumerate(ITEMS):
        context.progress(item.id, position, len(ITEMS), item.what)
        started = time.monotonic()
        status, found = _run_check(context, item, built)
        context.log("{}: {}".format(item.id, status))
        seconds = round(time.monotonic() - started, 2)
        items.append(SelftestAnswer(item.id, item.what, item.expected, status, found, seconds))
    context.progress("done", len(ITEMS), len(ITEMS))
    result = SelftestResult(fingerprint(context.root.folder), tuple(items))
    return read(SelftestResult, scrub(write(result), _private_names(context)))


def _run_check(context: JobContext, item: SelftestItem, built: _BUILT) -> Any:
    lacks = [name for name in item.needs if name not in built]
    if lacks:
        return "skipped", "needs {}".format(", ".join(lacks))
    check = CHECKS[item.do]
    try:
        if item.do in BUILDS:
            # a build starts its own processes
            found = check(context, item, built)
        else:
            found = run_isolated(context, lambda _: check(context, item, built))
    except JobCancelled:
        raise
    except DeviceError as error:
        return "failed", error.to_json()["error"]
    except Exception as error:  # an answer; the other checks continue
        return "failed", {"code": "selftest.error", "message": repr(error)[:_MOST_TEXT]}
    return "answered", found


def _private_names(context: JobContext) -> List[str]:
    names = {
        socket.gethostname(),
        socket.gethostname().partition(".")[0],
        account_name(),
        os.path.expanduser("~"),
        str(context.root.folder),
    }
    return sorted(
        (name for name in names if len(name) > 1 and not name.isdigit()), key=len, reverse=True
    )


def scrub(value: Any, names: List[str]) -> Any:
    """Replaces ``names`` that are whole words in texts, and shortens long texts."""
    if isinstance(value, str):
        for name in names:
            value = re.sub(r"(?<![\w-]){}(?![\w-])".format(re.escape(name)), "<private>", value)
        return value if len(value) <= _MOST_TEXT else value[:_MOST_TEXT] + " [cut]"
    if isinstance(value, dict):
        return {scrub(key, names): scrub(item, names) for key, item in value.items()}
    if isinstance(value, list):
        return [scrub(item, names) for item in value]
    return value


def _build_plan(context: JobContext, item: SelftestItem, built: _BUILT) -> Any:
    result = _run_build(context, item)
    engine = result.engines[0]
    built[item.id] = engine
    found = {name: getattr(engine, name) for name in _COPIED}
    found["tensorrt"], found["notes"] = result.tensorrt, result.notes
    # the lines about the DLA, its loadables and their memory
    words = ("DLA", "ForeignNode", "memory", "Memory", "[E]")
    lines = _text(context, engine.log).splitlines()
    found["log"] = [line for line in lines if any(word in line for word in words)][:400]
    return found


def _run_build(context: JobContext, item: SelftestItem) -> BuildResult:
    from edgekit_device.build.job import build

    return build(context, _request(context, item))


def _request(context: JobContext, item: SelftestItem) -> BuildJobRequest:
    """Returns the toy network's request with this question's flags, device and kind."""
    gpu = item.device == "GPU"
    flags = (*item.flags, *(("DIRECT_IO",) if item.standalone else ()))
    found = read_request(context.request)
    spec = found.engines[0]
    formats = ("DLA_LINEAR",) if item.standalone else ()
    dtype = "float16" if item.standalone else "float32"
    spec = replace(
        spec,
        device=item.device,
        kind="loadable" if item.standalone else "plan",
        gpu_fallback=not gpu and not item.standalone,
        attempts=(Attempt(flags, ""),),
        layers=tuple(replace(layer, device="GPU" if gpu else "DLA") for layer in spec.layers),
        inputs=tuple(replace(tensor, formats=formats, dtype=dtype) for tensor in spec.inputs),
        outputs=tuple(replace(tensor, formats=formats, dtype=dtype) for tensor in spec.outputs),
    )
    return replace(found, name=item.id, engines=(spec,))


def _probe(context: JobContext, item: SelftestItem, built: _BUILT) -> Any:
    found = write(probe(context.root.folder))
    found.pop("user"), found.pop("root")
    return found


def _load(
    context: JobContext, name: str, built: _BUILT, flavour: str, core: Optional[int]
) -> Tuple[LoadedPlan, LoadedAnswer]:
    trt = find_module(flavour)
    if trt is None:
        raise DeviceError("this runtime is not on the board", code="selftest.no-" + flavour)
    engine = built[name]
    plan = context.blob(engine.full or engine.engine)
    start_runtime(trt, context.root.folder)
    # the plan's embedded runtime is this board's own: the plan was just built here
    choice = RuntimeChoice(flavour, host_code=engine.lean_embedded)
    loaded = deserialize(trt, plan, choice, dla_core=core, where=name)
    version = show(read_header(plan))
    return loaded, LoadedAnswer(version, str(trt.__version__), loaded.engine is not None)


def _lean_weights(context: JobContext, item: SelftestItem, built: _BUILT) -> Any:
    engine = replace(built["dla-vc-strip"], full=None)  # boards get the stripped plan
    loaded, found = _load(context, item.needs[0], {item.needs[0]: engine}, "lean", 0)
    return replace(found, weights=refit_weights(loaded.trt, loaded.engine))


def _cudla(context: JobContext, item: SelftestItem, built: _BUILT) -> Any:
    made = built["standalone"]
    sides = io_entries(made)
    io = SimpleNamespace(inputs=tuple(sides["input"]), outputs=tuple(sides["output"]))
    # opening compares cuDLA's descriptors with the build's expectation and reports a difference
    loadable = open_loadable(context.blob(made.engine), 0, io)
    try:
        return CudlaAnswer(
            tuple(CudlaTensor(io.name, size) for io, size in loadable.inputs),
            tuple(CudlaTensor(io.name, size) for io, size in loadable.outputs),
        )
    finally:
        loadable.close()


def _graph(context: JobContext, item: SelftestItem, built: _BUILT) -> Any:
    loaded, found = _load(context, item.needs[0], built, "full", None)
    enqueued, launched = time_replays(loaded.engine, built[item.needs[0]])
    return replace(found, enqueued_ms=enqueued, launched_ms=launched)


def _lent_memory(context: JobContext, item: SelftestItem, built: _BUILT) -> Any:
    core = None if item.device == "GPU" else 0
    loaded, found = _load(context, item.needs[0], built, "full", core)
    made, cuda = built[item.needs[0]], open_cuda()
    block = SharedMemory(cuda)
    block.reserve(device_bytes(loaded.engine))
    return replace(
        found,
        context_bytes=device_bytes(loaded.engine),
        bit_equal=_run_outputs(loaded, made, EngineMemory(loaded))
        == _run_outputs(loaded, made, EngineMemory(loaded, block, cuda.persistent_cache() // 2)),
        persistent_cache_bytes=cuda.persistent_cache(),
        module_loading=cuda.module_loading(),
    )


def _run_outputs(loaded: LoadedPlan, made: EngineResult, memory: EngineMemory) -> Dict[str, bytes]:
    """Returns each output's bytes for fixed inputs, run twice in the same context."""
    import numpy as np

    sides = io_entries(made)
    engine = TensorRTEngine(loaded, open_cuda(), sides["input"], sides["output"], memory=memory)
    random = np.random.RandomState(0)
    feeds = {io.name: random.uniform(-1, 1, io.shape).astype(io.dtype) for io in sides["input"]}
    engine.enqueue(feeds)
    found = {}
    for name, tensor in engine.enqueue(feeds).items():
        array = tensor.numpy() if isinstance(tensor, DeviceTensor) else tensor
        found[name] = array.tobytes()
    return found


def _trtexec(context: JobContext, item: SelftestItem, built: _BUILT) -> Any:
    program = find_trtexec()
    if program is None:
        raise DeviceError("trtexec is not on this board", code="selftest.no-program")
    plan = context.blob(built[item.needs[0]].engine)
    return time_trtexec(context.root.folder, program, plan, None if item.device == "GPU" else 0)


def _tegrastats(context: JobContext, item: SelftestItem, built: _BUILT) -> Any:
    program = _find_program("tegrastats")
    try:
        completed = subprocess.run(
            [program, "--interval", "1000"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_TEGRASTATS_S,
            check=False,
        )
        out: Optional[bytes] = completed.stdout
    except subprocess.TimeoutExpired as stopped:  # the expected end: it never ends by itself
        out = stopped.stdout
    return (out or b"").decode("utf-8", "replace").splitlines()


def _monitor(context: JobContext, item: SelftestItem, built: _BUILT) -> Any:
    with Sampler(100) as sampler:
        time.sleep(_SAMPLED_S)
        found = write(sampler.stop())
    samples = found.pop("samples")
    return dict(found, count=len(samples), last=samples[-1:])


def _power(context: JobContext, item: SelftestItem, built: _BUILT) -> Any:
    output = command_output(["nvpmodel", "-q"]) or command_output(["sudo", "-n", "nvpmodel", "-q"])
    return PowerAnswer(tuple(read_modes()), tuple((output or "").splitlines()))


def _lock_clocks(context: JobContext, item: SelftestItem, built: _BUILT) -> Any:
    _find_program("jetson_clocks")
    with held_power(context.root.folder, lock=True) as power:
        pass
    return power.report


def _find_program(program: str) -> str:
    path = shutil.which(program)
    if path is None:
        raise DeviceError("{} is not on this board".format(program), code="selftest.no-program")
    return path


def _text(context: JobContext, digest: Optional[str]) -> str:
    return context.blob(digest).decode("utf-8", "replace") if digest else ""


CHECKS: Dict[str, Callable[[JobContext, SelftestItem, _BUILT], Any]] = {
    "build": _build_plan,
    "build_again": lambda context, item, built: _run_build(context, item).engines[0].timing_cache,
    "cudla": _cudla,
    "inspector": lambda context, item, built: _text(context, built["build-hybrid"].inspector),
    "lean_weights": _lean_weights,
    "lent_memory": _lent_memory,
    "load_core_1": lambda context, item, built: _load(context, "build-hybrid", built, "full", 1)[1],
    "load_full": lambda context, item, built: _load(context, "build-hybrid", built, "full", 0)[1],
    "load_lean": lambda context, item, built: _load(context, "dla-vc", built, "lean", 0)[1],
    "monitor": _monitor,
    "graph": _graph,
    "held": _lock_clocks,
    "nsys": lambda *_: (command_output([_find_program("nsys"), "--version"]) or "").strip(),
    "power": _power,
    "probe": _probe,
    "tegrastats": _tegrastats,
    "trtexec": _trtexec,
    "verdicts": lambda context, item, built: built["build-hybrid"].can_run_on_dla,
}


def io_entries(made: EngineResult) -> Dict[str, List[IoEntry]]:
    """Returns a built engine's tensors by "input" and "output"."""
    sides: Dict[str, List[IoEntry]] = {"input": [], "output": []}
    for io in made.io:
        sides[io.mode].append(IoEntry(io.name, io.dtype, io.shape, io.format, io.strides, io.scale))
    return sides


def time_replays(engine: Any, made: EngineResult) -> Tuple[Tuple[float, ...], Tuple[float, ...]]:
    """Captures an engine's work, replays it, and returns the milliseconds of enqueues and launches.

    Raises:
        DeviceError: "cuda.*", or "engine.failed" if the engine does not run.
    """
    cuda = open_cuda()
    stream = cuda.stream()
    context = engine.create_execution_context()
    for entries in io_entries(made).values():
        for io in entries:
            context.set_tensor_address(io.name, cuda.malloc(io_bytes(io)))

    def execute() -> None:
        if not context.execute_async_v3(stream):
            raise DeviceError("the plan does not run", code="engine.failed")

    def timed(work: Any) -> float:
        began = time.perf_counter()
        work()
        cuda.synchronize(stream)
        return round((time.perf_counter() - began) * 1e3, 4)

    execute()  # the first enqueue of a context must not be captured
    cuda.synchronize(stream)
    enqueued = tuple(timed(execute) for _ in range(_LAUNCHES))
    graph = CudaGraph(cuda, stream, execute)
    return enqueued, tuple(timed(graph.launch) for _ in range(_LAUNCHES))


def time_trtexec(root: Path, program: Path, plan: bytes, core: Optional[int]) -> TrtexecAnswer:
    """Runs trtexec on a plan like a benchmark's cross-check; returns its times."""
    arguments = [*_TRTEXEC, *([] if core is None else ["--useDLACore={core}"])]
    with workspace(root) as work:
        (work / "plan").write_bytes(plan)
        result = run_plan(program, arguments, work, core, _TIMEOUT_S)
    lines = [
        line
        for line in result.console.splitlines()
        if any(word in line for word in _SHOWN_PREFIXES)
    ]
    return TrtexecAnswer(result.command, result.why, tuple(lines), (result.times or "")[:1000])
