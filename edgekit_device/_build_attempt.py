"""What is checked of an attempt: before the build, by its callbacks, and from what it said."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Dict, List, Sequence, Set

from ._build_calibrator import missing_scales
from ._build_log import BuildLog, last_errors
from ._build_names import Mapped
from ._build_network import io_faults
from ._build_types import Built, EngineSpec
from ._errors import DeviceError

__all__ = [
    "ATTEMPT",
    "PLUGINS",
    "check_callbacks",
    "check_loadable",
    "check_plugins",
    "check_standalone",
    "code_of",
    "failed",
    "note_missing",
]

#: Code of a failure that other flags may mend.
ATTEMPT = "build.attempt"
#: Code of a version compatible plan that would need plugins: it is built without that.
PLUGINS = "build.plugins"
_SHOWN = 10
# as TensorRT's errors and CUDA's say it, and the builder of a memory that it asked for in vain
_NO_MEMORY = re.compile(
    r"out ?of ?memory|MemoryAllocation|could not be allocated|FAILED_ALLOCATION", re.IGNORECASE
)


def check_loadable(spec: EngineSpec, scales: Dict[str, float]) -> None:
    """Refuses a loadable that cannot be one, with every reason.

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
        raise _not_on_dla(spec, faults)


def check_plugins(spec: EngineSpec, flags: Sequence[str], libraries: Sequence[str]) -> None:
    """Refuses a version compatible plan that works with plugin libraries beside it alone.

    Such a plan has the libraries inside (``plugins_to_serialize``), which is code that a board
    would run, or every runtime has to be given them ("getUsedVCPluginLibraries" in NvOnnxParser.h).
    The loader does neither.

    Args:
        spec: The engine.
        flags: The attempt's.
        libraries: What the parser says that the network needs.

    Raises:
        DeviceError: "build.plugins".
    """
    if "VERSION_COMPATIBLE" not in flags or not libraries:
        return
    names = ", ".join(sorted({PurePosixPath(path).name for path in libraries}))
    raise DeviceError(
        "a version compatible plan of this network needs plugins of {}".format(names),
        code=PLUGINS,
        where=spec.key,
        hint="build.version_compatible: auto or false builds a plan for this release alone",
    )


def check_standalone(
    spec: EngineSpec, mapped: Mapped, built: Built, messages: Sequence[str]
) -> None:
    """Refuses a loadable of which the builder says beforehand that a layer does not fit.

    Only layers that are in the builder's network what they are in the plan: matrix products become
    convolutions later, and of those its answer says nothing.
    """
    exact = mapped.exact()
    faults = []
    for name, fits in built.can_run_on_dla.items():
        if fits:
            continue
        if name in exact:
            reasons = [text for text in messages if any(x.name in text for x in exact[name])]
            faults.append(
                "layer {!r}: {}".format(name, last_errors(reasons) or "TensorRT does not say why")
            )
        else:
            built.notes.append("{}: can_run_on_DLA refuses parts of {!r}".format(spec.key, name))
    if faults:
        raise _not_on_dla(spec, faults)


def _not_on_dla(spec: EngineSpec, faults: List[str]) -> DeviceError:
    more = len(faults) - _SHOWN
    return DeviceError(
        "the loadable cannot be built: {}{}".format(
            "; ".join(faults[:_SHOWN]), "; and {} more".format(more) if more > 0 else ""
        ),
        code="build.not-on-dla",
        where=spec.key,
        hint="nothing of a loadable runs on the GPU: plan again with build.mode split or hybrid",
    )


def code_of(said: str) -> str:
    """The code of a build that gave nothing: a memory's shortage is not the flags' fault."""
    return "build.no-memory" if _NO_MEMORY.search(said) else ATTEMPT


def failed(spec: EngineSpec, log: BuildLog, mark: int, text: str = "") -> DeviceError:
    """The error of a build that gave nothing: TensorRT's own errors, or its last warnings."""
    said = last_errors(log.since(mark, "EF"))
    found = "; ".join(part for part in (text, said) if part)
    if not found:
        found = last_errors(log.since(mark, "W")[-3:])
        found = "it does not say why" + ("; it warned: " + found if found else "")
    return DeviceError(
        "TensorRT did not build it: {}".format(found),
        code=code_of(found),
        where=spec.key,
        hint="`edgekit jobs log` has all that the builder said",
    )


def check_callbacks(
    spec: EngineSpec,
    log: BuildLog,
    asked: Sequence[List[str]],
    scales: Dict[str, float],
    mapped: Mapped,
) -> None:
    """Raises what a callback of ours met, and says when the calibration cache was not taken.

    Raises:
        DeviceError: "build.callback", "build.calibration", or the callback's own.
    """
    if log.crashed is not None:
        if isinstance(log.crashed, DeviceError):
            raise log.crashed
        raise DeviceError(
            "a callback of the builder failed: {}: {}".format(
                type(log.crashed).__name__, log.crashed
            ),
            code="build.callback",
            where=spec.key,
        ) from log.crashed
    if asked:
        lacking = sorted(_int8_tensors(mapped) - {name for name, scale in scales.items() if scale})
        raise DeviceError(
            "TensorRT did not take the calibration cache and asked for data{}".format(
                ": no scale for {}".format(", ".join(map(repr, lacking[:_SHOWN])))
                if lacking
                else ""
            ),
            code="build.calibration",
            where=spec.key,
            hint="run `edgekit calibrate` for this network again; its cache needs every tensor",
        )


def note_missing(spec: EngineSpec, mapped: Mapped, messages: Sequence[str], built: Built) -> None:
    """Notes the tensors of INT8 layers that the builder found no scale for."""
    wanted = _int8_tensors(mapped)
    missing = [name for name in missing_scales(messages) if name in wanted]
    if missing:
        built.notes.append(
            "{}: INT8 layers read or write tensors without a scale: {}".format(
                spec.key, ", ".join(map(repr, missing[:_SHOWN]))
            )
        )


def _int8_tensors(mapped: Mapped) -> Set[str]:
    own = [mapped.layers[i] for i, ours in mapped.ours.items() if ours.precision == "int8"]
    constants = {n for entry in mapped.layers if entry.kind == "CONSTANT" for n in entry.outputs}
    return {name for entry in own for name in (*entry.inputs, *entry.outputs)} - constants
