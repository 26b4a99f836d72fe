"""Runtime: which plans it takes, and what must have been set before."""

import re
import weakref
from pathlib import Path
from typing import Any

from ._behaviour import plays
from ._plan_format import BadPlan, read
from ._play_base import emit
from ._play_plugins import registered


@plays("Runtime", "__init__")
def _runtime(this: Any, logger: Any) -> None:
    state = this._s
    state.logger = logger
    state.error_recorder = None
    state.gpu_allocator = None
    state.DLA_core = 0
    state.core_set = False
    state.max_threads = 1
    state.temporary_directory = "/tmp"
    state.tempfile_control_flags = 3
    state.engine_host_code_allowed = False
    state.takes = state.double.build
    state.loaded = False


@plays("Runtime", "get num_DLA_cores")
def _cores(this: Any) -> int:
    return int(this._s.double.settings.dla_cores)


@plays("Runtime", "set DLA_core")
def _set_core(this: Any, value: int) -> None:
    state = this._s
    if value and not 0 <= value < state.double.settings.dla_cores:
        emit(
            state.double, state.logger, "ERROR", f"IRuntime::setDLACore: core {value} is not there"
        )
        state.double.offend(
            f"Runtime.DLA_core = {value} of {state.double.settings.dla_cores} cores"
        )
        return
    state.DLA_core = value
    state.core_set = True


@plays("Runtime", "load_runtime")
def _load_runtime(this: Any, path: str) -> Any:
    state = this._s
    if not Path(path).is_file():
        emit(state.double, state.logger, "ERROR", f"IRuntime::loadRuntime: cannot open {path}")
        return None
    numbers = re.findall(r"\d+", Path(path).name.partition(".so")[2])
    made = type(this)(state.logger)
    for name in ("temporary_directory", "tempfile_control_flags", "error_recorder"):
        setattr(made._s, name, vars(state)[name])
    if len(numbers) >= 3:
        made._s.takes = (*(int(one) for one in numbers[:4]), 0)[:4]
    made._s.loaded = True
    return made


def refuse(this: Any, text: str, code: str = "INVALID_STATE") -> None:
    """Logs an error and gives it to the error recorder."""
    state = this._s
    emit(state.double, state.logger, "ERROR", text)
    if state.error_recorder is not None:
        member = state.double.factory.classes["ErrorCodeTRT"].__members__[code]
        state.error_recorder.report_error(member, text)


@plays("Runtime", "deserialize_cuda_engine")
def _deserialize(
    this: Any, serialized_engine: Any = None, stream_reader: Any = None, **_more: Any
) -> Any:
    state = this._s
    data = (
        bytes(memoryview(serialized_engine))
        if serialized_engine is not None
        else _drain(this, stream_reader or next(iter(_more.values())))
    )
    try:
        version, facts, model = read(data)
    except BadPlan as bad:
        refuse(this, str(bad))
        return None
    problem = _unfit(state, version, facts)
    if problem:
        refuse(this, problem)
        return None
    if facts["dla"] and not state.core_set:
        state.double.offend("Runtime.DLA_core was not set before a plan with DLA layers")
    if facts["dla"] and state.DLA_core >= state.double.settings.dla_cores:
        refuse(this, f"Cannot create DLA engine, {state.double.settings.dla_cores} not available")
        return None
    carries = facts["lean_embedded"] or facts.get("plugins_embedded")
    if not carries and state.engine_host_code_allowed:
        state.double.offend("engine_host_code_allowed for a plan that carries no code")
    emit(state.double, state.logger, "INFO", f"Loaded engine size: {len(data) >> 20} MiB")
    return state.double.factory.new(
        "ICudaEngine",
        facts=facts,
        model=model,
        logger=state.logger,
        error_recorder=state.error_recorder,
        dla_core=state.DLA_core if facts["dla"] else -1,
        plan_version=version,
        refitted=facts["refitted"],
        values={},
        contexts=weakref.WeakSet(),
        runtime=this,
    )


def _unfit(state: Any, version: tuple[int, ...], facts: dict[str, Any]) -> str:
    """Why this runtime refuses the plan, or nothing."""
    takes, compatible = tuple(state.takes), facts["version_compatible"]
    embedded = facts.get("plugins_embedded", ())
    if embedded and not state.engine_host_code_allowed:
        return (
            "IRuntime::deserializeCudaEngine: Error Code 4: API Usage Error (Plan embeds plugin "
            "libraries, but IRuntime::setEngineHostCodeAllowed(true) was not called.)"
        )
    for text in facts.get("plugins", ()):
        name, version_of, namespace, _ = text.split("|")
        known = (name, version_of, namespace) in registered(state.double)
        if text not in embedded and not known:
            return (
                f"IPluginRegistry::getCreator: Error Code 4: API Usage Error (Cannot find plugin: "
                f"{name}, version: {version_of}, namespace:{namespace}.)"
            )
    if facts["lean_embedded"] and not state.engine_host_code_allowed:
        return (
            "IRuntime::deserializeCudaEngine: Error Code 4: API Usage Error (Plan embeds a "
            "runtime, but IRuntime::setEngineHostCodeAllowed(true) was not called.)"
        )
    if state.double.flavour == "dispatch" and not facts["lean_embedded"] and not state.loaded:
        return (
            "IRuntime::deserializeCudaEngine: Error Code 4: API Usage Error (no runtime was loaded)"
        )
    if state.loaded:
        if takes[:3] != version[:3]:
            return (
                "IRuntime::deserializeCudaEngine: the loaded runtime is of another version of "
                f"TensorRT: {_dotted(takes)}, the plan of {_dotted(version)}"
            )
        return "" if compatible else _not_lean()
    if not compatible:
        if state.double.flavour != "full":
            return _not_lean()
        if takes != tuple(version):
            return (
                "The engine plan file is not compatible with this version of TensorRT, expecting "
                f"library version {_dotted(takes)} got {_dotted(version)}, please rebuild."
            )
        return ""
    if version > takes:
        return (
            "The engine plan file is not compatible with this version of TensorRT: "
            f"{_dotted(version)} is newer than {_dotted(takes)}"
        )
    return ""


def _not_lean() -> str:
    return (
        "IRuntime::deserializeCudaEngine: Error Code 1: Internal Error\n"
        "Unexpected call to stub loadRunner for ReformatRunner"
    )


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def _drain(this: Any, reader: Any) -> bytes:
    """All bytes of a stream reader; V2 is also asked to seek, as the library does."""
    kinds = this._s.double.factory.classes
    second = kinds.get("IStreamReaderV2")
    parts = []
    if second is not None and isinstance(reader, second):
        where = kinds["SeekPosition"].__members__
        reader.read(28, 0)
        if not reader.seek(0, where["SET"]):
            raise RuntimeError("the stream reader cannot seek")
        while piece := bytes(memoryview(reader.read(1 << 16, 0))):
            parts.append(piece)
    else:
        while piece := bytes(memoryview(reader.read(1 << 16))):
            parts.append(piece)
    return b"".join(parts)
