"""From a plan's bytes to an engine: the right runtime, set up in the order that TensorRT asks for.

Order as trtexec's (NVIDIA/TensorRT, samples/common/sampleEngines.cpp): load_runtime, host code,
temporary folder, DLA core, error recorder, deserialise. The DLA core is the runtime's, not the
plan's: it must be set before, each time.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, Optional, Union

from ._errors import DeviceError
from ._trt_errors import Ears
from ._trt_pick import Choice

__all__ = ["Loaded", "deserialize"]

_LARGE_BYTES = 256 << 20  # from here on a plan is streamed, so that it is not in memory twice


class Loaded:
    """An engine and all that must outlive it.

    Attributes:
        trt: The module that made it.
        engine: The ICudaEngine.
        ears: Logger and error recorder of its objects.
        facts: How it was loaded: "runtime" ("full", "lean" or "dispatch"), "version", "library"
            (a lean library that was loaded first), "host_code" (whether the plan's own code may
            run), "dla_core" and "threads"; None and 0 for TensorRT's defaults.
    """

    def __init__(self, trt: Any, engine: Any, ears: Ears, keep: Any, facts: Dict[str, Any]) -> None:
        self.trt = trt
        self.facts = facts
        self.ears = ears
        self._keep = keep
        self.engine = engine


def deserialize(
    trt: Any,
    plan: Union[bytes, memoryview],
    choice: Choice,
    *,
    dla_core: Optional[int] = None,
    threads: int = 0,
    temporary: Optional[Path] = None,
    large: int = _LARGE_BYTES,
    where: str = "",
) -> Loaded:
    """Deserialises a plan.

    Args:
        trt: The choice's module.
        plan: The plan.
        choice: From :func:`edgekit_device._trt_pick.choices`.
        dla_core: The DLA core to use; None for a plan of the GPU alone.
        threads: Threads of the runtime; 0 leaves its default.
        temporary: Where it may unpack a runtime; None leaves its default.
        large: From how many bytes on the plan is streamed.
        where: For messages.

    Raises:
        DeviceError: "engine.*", "tensorrt.*" or "board.no-gpu", with TensorRT's own text.
    """
    ears = Ears(trt)
    parent = runtime = trt.Runtime(ears.logger)
    _heard_nothing(ears, "TensorRT's runtime does not start", where)
    if choice.library is not None:
        runtime = parent.load_runtime(str(choice.library))
        if runtime is None:
            raise ears.error("{} cannot be loaded".format(choice.library), "engine.version", where)
        _heard_nothing(ears, "{} cannot be loaded".format(choice.library), where)
    if choice.host_code:
        runtime.engine_host_code_allowed = True
    if temporary is not None:
        runtime.temporary_directory = str(temporary)
    if threads:
        runtime.max_threads = threads
    if dla_core is not None:
        cores = int(runtime.num_DLA_cores)
        if dla_core >= cores:
            raise DeviceError(
                "the plan drives DLA core {}, and TensorRT finds {} here".format(dla_core, cores),
                code="engine.dla",
                where=where,
                hint="build it for this board; see edgekit doctor for what its DLA lacks",
            )
        runtime.DLA_core = dla_core
    runtime.error_recorder = ears.recorder
    if hasattr(trt, "init_libnvinfer_plugins"):
        # TensorRT's own plugins, as trtexec registers them; the lean runtime has none
        trt.init_libnvinfer_plugins(ears.logger, "")
    ears.forget()
    reader = _reader(trt, plan) if len(plan) >= large else None
    try:
        engine = runtime.deserialize_cuda_engine(plan if reader is None else reader)
    except Exception as error:  # pybind11 makes RuntimeError and TypeError of C++'s
        ears.lines.append(("ERROR", str(error)))
        engine = None
    if engine is None:
        raise ears.error("TensorRT cannot load the plan", "engine.invalid", where)
    # TensorRT has copied what it was given whole; a reader is kept, and a mapped file with it
    facts = {
        "runtime": choice.flavour,
        "version": str(getattr(trt, "__version__", "")),
        "library": None if choice.library is None else choice.library.name,
        "host_code": choice.host_code,
        "dla_core": dla_core,
        "threads": threads,
    }
    return Loaded(trt, engine, ears, (parent, runtime, reader), facts)


def _heard_nothing(ears: Ears, what: str, where: str) -> None:
    # without a driver a Runtime is made all the same, and using it ends the process
    if any("ERROR" in severity for severity, _ in ears.lines):
        raise ears.error(what, "tensorrt.failed", where)


def _reader(trt: Any, plan: Union[bytes, memoryview]) -> Optional[Any]:
    """A stream reader of the kind that the release has; None before 10.0."""
    view = memoryview(plan)
    if hasattr(trt, "IStreamReaderV2"):
        return _reader_v2(trt, view)
    if not hasattr(trt, "IStreamReader"):
        return None

    class Reader(trt.IStreamReader):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.IStreamReader.__init__(self)
            self.position = 0

        def read(self, size: int) -> bytes:
            start, self.position = self.position, min(self.position + size, len(view))
            return bytes(view[start : self.position])

    return Reader()


def _reader_v2(trt: Any, view: memoryview) -> Any:
    class Reader(trt.IStreamReaderV2):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.IStreamReaderV2.__init__(self)
            self.position = 0

        def read(self, num_bytes: int, stream: int) -> bytes:
            start, self.position = self.position, min(self.position + num_bytes, len(view))
            return bytes(view[start : self.position])

        def seek(self, offset: int, where: Any) -> bool:
            base = {
                trt.SeekPosition.SET: 0,
                trt.SeekPosition.CUR: self.position,
                trt.SeekPosition.END: len(view),
            }[where]
            if not 0 <= base + offset <= len(view):
                return False
            self.position = base + offset
            return True

    return Reader()
