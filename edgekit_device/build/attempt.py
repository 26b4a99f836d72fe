"""Runs an attempt at an engine in its own process, so that a builder's crash is a failed attempt.
Its whole log is stored, with the important messages in memory. The attempt is checked before the
build, by its callbacks, and by its log.

The child's end also frees all its memory, which on a board is the GPU's too, and it can be killed
during a call that cannot be stopped (no IProgressMonitor before 10.0).
"""

from __future__ import annotations

import re
import threading
import time
from pathlib import PurePosixPath
from typing import Any, Callable, Dict, List, Optional, Sequence, Set, Tuple

from edgekit_device.build.config import missing_scales
from edgekit_device.build.network import MappedLayers, io_faults
from edgekit_device.build.request import BuiltEngine, EngineSpec
from edgekit_device.errors import DeviceError, listed
from edgekit_device.jobs.job import JobContext
from edgekit_device.processes import ChildDied, Report, run_in_child
from edgekit_device.tensorrt.bindings import make_logger

#: Code of an attempt whose process died.
CRASHED = "build.crashed"

# the severity letters of TensorRT's own loggers
_LETTERS = {"INTERNAL_ERROR": "F", "ERROR": "E", "WARNING": "W", "INFO": "I", "VERBOSE": "V"}

# limit of a failure's text for people; the log has the rest
_SHOWN_MESSAGES = 8

# a verbose build of a large network logs hundreds of megabytes, nearly all about tactics
_MOST_RETAINED = 32 << 20

# verbose lines that are retained beyond that: devices of layers, and memory
_IMPORTANT = re.compile(r"\[DlaLayer\]|\[GpuLayer\]|Layers Running on|running on GPU|DLA|offloaded")

#: ``(name of a stage, pattern of the message that begins it)``, for releases without
#: IProgressMonitor; the texts are TensorRT's own (verbose, 8.5 to 10.3).
STAGES: Tuple[Tuple[str, Any], ...] = (
    ("optimising the graph", re.compile(r"Original: \d+ layers|After .+: \d+ layers")),
    ("placing layers", re.compile(r"-+ Layers [Rr]unning on")),
    ("compiling for the DLA", re.compile(r"DLA Memory Pool Sizes|offloaded to DLA")),
    ("timing tactics", re.compile(r"-+ Timing Runner|\*{3,} Autotuning format combination")),
    ("generating the engine", re.compile(r"Engine generation completed|Formats and tactics sel")),
)

#: Code of a failure that other flags may avoid.
ATTEMPT = "build.attempt"

#: Code of a version compatible plan that would need plugins: it is built without that flag.
PLUGINS = "build.plugins"

# texts of TensorRT's and CUDA's errors, and of the builder, about memory that is not available
_NO_MEMORY = re.compile(
    r"out ?of ?memory|MemoryAllocation|could not be allocated|FAILED_ALLOCATION", re.IGNORECASE
)


def run_isolated(context: JobContext, work: Callable[[Report], object]) -> Any:
    """Runs ``work`` in a forked process, follows its progress, and returns its answer's JSON.

    Raises:
        DeviceError: As ``in_child``, or "build.crashed" with the signal.
        JobCancelled: The job was cancelled; the process has ended.
    """
    try:
        answer = run_in_child(
            lambda turn, report: work(report),
            on_report=context.progress,
            stopped=context.check_cancelled,
        )
    except ChildDied as error:
        context.check_cancelled()  # ends the job's whole process group
        raise DeviceError(
            "the build process died: {}".format(error.cause),
            code=CRASHED,
            hint="the last lines of the job's log show its last step; `dmesg` shows whether "
            "memory ran out",
        ) from error
    # a child that was told to stop may still have finished
    context.check_cancelled()
    return answer


# TensorRT uses the logger of a process's first builder or runtime for all later ones, so a process
# has a single logger, and readers mark the start of their part.
class BuilderLog:
    """Receives TensorRT's messages from any thread.

    Attributes:
        logger: A ``trt.ILogger`` of the module that it was made with; None without one.
        crashed: The exception of a callback; TensorRT would discard it.
    """

    def __init__(self, trt: Any, write: Callable[[str], None]) -> None:
        self._write = write
        # TensorRT may log from any thread
        self._lock = threading.Lock()
        self._lines: List[str] = []
        self._messages: List[Tuple[str, str]] = []
        self._retained = 0
        self.stage: Optional[Callable[[str], None]] = None
        self.crashed: Optional[BaseException] = None
        self.logger = None if trt is None else make_logger(trt, self._on_message)

    def add(self, letter: str, text: str) -> None:
        """Adds a message; ``letter`` is its severity: V, I, W, E or F."""
        # the time and tags of TensorRT's own Python logger
        stamp = time.strftime("%m/%d/%Y-%H:%M:%S")
        line = "[{}] [TRT] [{}] {}".format(stamp, letter, text)
        with self._lock:
            keep = letter != "V" or self._retained < _MOST_RETAINED or bool(_IMPORTANT.search(text))
            if keep:
                self._lines.append(line)
                self._retained += len(line) + 1
                self._write(line)
            # in memory as well: the reasons of failures are read from these
            if letter in "WEF":
                self._messages.append((letter, text))
        if self.stage is not None and letter in "VI":
            for name, pattern in STAGES:
                if pattern.search(text):
                    self.stage(name)
                    break

    def _on_message(self, severity: str, text: str) -> None:
        try:
            self.add(_LETTERS.get(severity, "I"), text)
        except BaseException as error:
            self.crashed = self.crashed or error

    def mark(self) -> int:
        """Returns the current position, for ``since``."""
        with self._lock:
            return len(self._messages)

    def since(self, mark: int, letters: str) -> List[str]:
        """Returns the texts of messages of these severities after ``mark``."""
        with self._lock:
            return [text for letter, text in self._messages[mark:] if letter in letters]

    def text(self) -> str:
        """Returns the log so far; a very long log without most lines about tactics."""
        with self._lock:
            return "\n".join(self._lines) + "\n" if self._lines else ""


def last_errors(messages: Sequence[str]) -> str:
    """Returns the last errors, each once, in a single line."""
    return "; ".join(
        " ".join(text.split()) for text in list(dict.fromkeys(messages))[-_SHOWN_MESSAGES:]
    )


def check_loadable(spec: EngineSpec, scales: Dict[str, float]) -> None:
    """Refuses an engine that cannot be a loadable, with every reason.

    Raises:
        DeviceError: "build.not-on-dla".
    """
    if not spec.standalone:
        return
    faults = io_faults(spec, scales)
    if spec.dla_core is None:
        faults.append("a loadable runs on a DLA, not on the GPU")
    if spec.profiles:
        faults.append("a loadable has no optimisation profiles")
    if spec.gpu_fallback:
        faults.append("a loadable cannot fall back to the GPU")
    if faults:
        raise _not_on_dla_error(spec, faults)


def check_plugins(spec: EngineSpec, flags: Sequence[str], libraries: Sequence[str]) -> None:
    """Refuses a version compatible plan that works only with plugin libraries shipped with it.

    Such a plan contains the libraries (``plugins_to_serialize``), which are code that a board would
    run, or every runtime has to load them ("getUsedVCPluginLibraries" in NvOnnxParser.h). The
    loader does neither.

    Args:
        spec: The engine.
        flags: The attempt's flags.
        libraries: The libraries that the network needs according to the parser.

    Raises:
        DeviceError: "build.plugins".
    """
    if "VERSION_COMPATIBLE" not in flags or not libraries:
        return
    names = ", ".join(sorted({PurePosixPath(path).name for path in libraries}))
    raise DeviceError(
        "a version-compatible plan of this network needs plugins of {}".format(names),
        code=PLUGINS,
        where=spec.key,
        hint="build for this release only: build.version_compatible: auto or false",
    )


def check_standalone(
    spec: EngineSpec, mapped: MappedLayers, built: BuiltEngine, messages: Sequence[str]
) -> None:
    """Refuses a loadable if the builder reports before the build that a layer cannot run on DLA.

    Considers only layers that have the same kind in the builder's network as in the plan: matrix
    products become convolutions later, and the builder's answer does not cover these.
    """
    exact = mapped.exact()
    faults = []
    for name, fits in built.can_run_on_dla.items():
        if fits:
            continue
        if name in exact:
            # a warning names the builder's layer
            reasons = [text for text in messages if any(x.name in text for x in exact[name])]
            faults.append(
                "layer {!r}: {}".format(name, last_errors(reasons) or "TensorRT gives no reason")
            )
        else:
            built.notes.append("{}: can_run_on_DLA rejects parts of {!r}".format(spec.key, name))
    if faults:
        raise _not_on_dla_error(spec, faults)


def _not_on_dla_error(spec: EngineSpec, faults: List[str]) -> DeviceError:
    return DeviceError(
        "the loadable cannot be built: {}".format(listed(faults, between="; ")),
        code="build.not-on-dla",
        where=spec.key,
        hint="a loadable has no GPU fallback: plan again with build.mode split or hybrid",
    )


def failure_code(said: str) -> str:
    """Returns the code of a failed build; lack of memory, which other flags do not avoid, has its
    own.
    """
    return "build.no-memory" if _NO_MEMORY.search(said) else ATTEMPT


def build_error(spec: EngineSpec, log: BuilderLog, mark: int, text: str = "") -> DeviceError:
    """Returns the error of a failed build: TensorRT's own errors, or its last warnings."""
    errors = last_errors(log.since(mark, "EF"))
    found = "; ".join(part for part in (text, errors) if part)
    if not found:
        # some refusals come as warnings only
        found = last_errors(log.since(mark, "W")[-3:])
        found = "it gives no reason" + ("; its warnings: " + found if found else "")
    return DeviceError(
        "TensorRT failed to build it: {}".format(found),
        code=failure_code(found),
        where=spec.key,
        hint="`edgekit jobs log` shows the builder's full output",
    )


def check_callbacks(
    spec: EngineSpec,
    log: BuilderLog,
    requested: Sequence[List[str]],
    scales: Dict[str, float],
    mapped: MappedLayers,
) -> None:
    """Raises a callback's error, and reports a calibration cache that was not used.

    Raises:
        DeviceError: "build.callback", "build.calibration", or the callback's own.
    """
    if log.crashed is not None:
        if isinstance(log.crashed, DeviceError):
            # an error of this program has its own code and hint already
            raise log.crashed
        raise DeviceError(
            "a callback of the builder failed: {}: {}".format(
                type(log.crashed).__name__, log.crashed
            ),
            code="build.callback",
            where=spec.key,
        ) from log.crashed
    # a calibrator is asked for a batch only if TensorRT did not use its cache
    if requested:
        # a scale of 0 is no scale
        unscaled = sorted(_int8_tensors(mapped) - {name for name, scale in scales.items() if scale})
        raise DeviceError(
            "TensorRT rejected the calibration cache and asked for data{}".format(
                ": no scale for {}".format(listed(map(repr, unscaled))) if unscaled else ""
            ),
            code="build.calibration",
            where=spec.key,
            hint="run `edgekit calibrate` for this network again; the cache must contain every "
            "tensor",
        )


def note_missing(
    spec: EngineSpec, mapped: MappedLayers, messages: Sequence[str], built: BuiltEngine
) -> None:
    """Notes the tensors of INT8 layers that the builder found no scale for."""
    wanted = _int8_tensors(mapped)
    missing = [name for name in missing_scales(messages) if name in wanted]
    if missing:
        built.notes.append(
            "{}: INT8 layers use tensors without a scale: {}".format(
                spec.key, listed(map(repr, missing))
            )
        )


def _int8_tensors(mapped: MappedLayers) -> Set[str]:
    int8_layers = [mapped.layers[i] for i, ours in mapped.ours.items() if ours.precision == "int8"]
    constants = {n for entry in mapped.layers if entry.kind == "CONSTANT" for n in entry.outputs}
    return {name for entry in int8_layers for name in (*entry.inputs, *entry.outputs)} - constants
