"""trtexec's command lines: one engine of a build request, one attempt, one release.

The rules that trtexec itself enforces are looked at first (``_trtexec_checks.py``), since it tells
of them after minutes, or not at all: with --int8 and no cache it makes ranges up.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgekit.errors import BuildError
from edgekit.trt import _trtexec_lists as lists
from edgekit.trt._trtexec_checks import check
from edgekit.trt._trtexec_flags import Trtexec, flag_facts, trtexec
from edgekit.trt._types import Attempt

__all__ = ["command"]

_SHOWN = 5
_ORDER = ("fp32", "fp16", "int8")


def command(
    engine: Mapping[str, Any],
    attempt: Attempt | Mapping[str, Any],
    tensorrt: str,
    *,
    timing_cache: bool = True,
    notes: list[str] | None = None,
) -> list[str]:
    """Returns trtexec's arguments, without the program, that build an engine.

    The board puts its own paths for {model}, {engine}, {calibration}, {timing_cache} and
    {layer_info}. The engine's layer information is left out where trtexec could not open what it
    built: a loadable, and a plan whose lean runtime is elsewhere.

    Args:
        engine: As ``edgekit.build.request/1`` has it.
        attempt: What to set; a mapping has "flags".
        tensorrt: The board's release.
        timing_cache: Whether to keep the timings.
        notes: Takes what trtexec cannot do of what the request asks, as sentences.

    Raises:
        BuildError: This trtexec cannot build that: a flag that it lacks ("trtexec.flag"), a name
            that it cannot be told ("trtexec.name"), a format ("trtexec.format"), a list too long
            ("trtexec.length"), or what it would refuse or do wrong ("trtexec.refuses").
        UsageError: ``tensorrt`` is no version.
    """
    on = trtexec(tensorrt)
    flags = attempt.flags if isinstance(attempt, Attempt) else tuple(attempt["flags"])
    check(engine, flags, on)
    made = _Line(on, notes if notes is not None else [])
    made.add("--onnx", "{model}")
    made.add("--saveEngine", "{engine}")
    if engine["device"] != "GPU":
        made.add("--useDLACore", engine["device"].removeprefix("DLA"))
    if engine["kind"] == "loadable":
        made.add("--buildDLAStandalone")
    elif engine["gpu_fallback"]:
        made.add("--allowGPUFallback")
    _types(made, engine)
    _tensors(made, engine)
    if engine["device"] != "GPU" and engine["kind"] == "plan":
        made.add("--layerDeviceTypes", lists.devices(engine["layers"]))
        if parted := lists.parted(engine["layers"]):
            shown = ", ".join(parted[:_SHOWN]) + (" ..." if len(parted) > _SHOWN else "")
            made.note(
                "trtexec places and types named layers alone: what TensorRT's parser adds without "
                f"a name, such as a Gemm's bias, may run on the DLA for {shown}"
            )
    told, unknown = lists.pools(engine["pools"], on)
    made.add("--memPoolSize", told)
    if unknown:
        made.note(f"trtexec sets no limit for the memory pool {', '.join(unknown)}")
    _builder_flags(made, flags)
    _profiles(made, engine)
    if engine["optimization_level"] is not None:
        made.wish("--builderOptimizationLevel", str(engine["optimization_level"]))
    if timing_cache:
        made.add("--timingCacheFile", "{timing_cache}")
    made.add("--profilingVerbosity", "detailed")
    if engine["kind"] == "plan" and "EXCLUDE_LEAN_RUNTIME" not in flags:
        made.add("--exportLayerInfo", "{layer_info}")
    made.add("--verbose")
    made.add("--skipInference")
    return made.arguments


class _Line:
    """Arguments of one release; nothing that it does not take gets in."""

    def __init__(self, on: Trtexec, notes: list[str]) -> None:
        self.on = on
        self.notes = notes
        self.arguments: list[str] = []

    def add(self, flag: str, value: str | None = None) -> None:
        """Adds a flag; an empty value leaves it out."""
        if value == "":
            return
        name = self.on.flag(flag)
        argument = name if value is None else f"{name}={value}"
        if len(argument.encode()) > flag_facts()["longest_argument"]:
            raise BuildError(
                f"{name} has {len(argument):,} characters, more than one argument may have",
                code="trtexec.length",
                where=name,
                hint="build with build.backend: tensorrt",
            )
        self.arguments.append(argument)

    def wish(self, flag: str, value: str) -> None:
        """Adds a flag, or notes that this trtexec does not have it."""
        if self.on.has(flag):
            self.add(flag, value)
        else:
            self.note(f"trtexec of TensorRT {self.on.tensorrt} does not take {flag}: left out")

    def note(self, text: str) -> None:
        """Says once what cannot be done."""
        if text not in self.notes:
            self.notes.append(text)

    def fits(self, flag: str, value: str) -> bool:
        """Whether a value is short enough for one argument."""
        return len(f"{flag}={value}".encode()) <= int(flag_facts()["longest_argument"])


def _types(made: _Line, engine: Mapping[str, Any]) -> None:
    if engine["typing"] == "strong":
        made.add("--stronglyTyped")
        return
    for precision in engine["precisions"]:
        made.add(f"--{precision}")
    if "int8" in engine["precisions"]:
        made.add("--calib", "{calibration}")
    if not engine["precisions"] or engine["constraints"] == "none":
        return
    layers, lowest = engine["layers"], max(engine["precisions"], key=_ORDER.index)
    told = lists.precisions(layers)
    above = lists.output_types(layers, lowest)
    if not made.fits("--layerPrecisions", told):
        told = above
        made.note(
            f"trtexec is told the precision of the layers above {lowest} alone: all of them are "
            "too many for a command line"
        )
    if told:
        made.add("--precisionConstraints", engine["constraints"])
        made.add("--layerPrecisions", told)
        made.add("--layerOutputTypes", above)


def _tensors(made: _Line, engine: Mapping[str, Any]) -> None:
    """Types and formats; float32 in rows is what trtexec takes by itself."""
    sides = (("--inputIOFormats", engine["inputs"]), ("--outputIOFormats", engine["outputs"]))
    plain = all(
        tensor["dtype"] == "float32" and tensor["formats"] in ([], ["LINEAR"])
        for _, tensors in sides
        for tensor in tensors
    )
    if plain:
        return
    for flag, tensors in sides:
        made.add(flag, lists.formats(tensors, made.on))


def _builder_flags(made: _Line, flags: tuple[str, ...]) -> None:
    known = flag_facts()["builder_flags"]
    for flag in flags:
        if flag == "REFIT_IDENTICAL" and "STRIP_PLAN" in flags:
            continue  # what --stripWeights means
        argument = known.get(flag)
        if argument is None:
            raise BuildError(
                f"trtexec cannot set {flag}",
                code="trtexec.flag",
                where=flag,
                hint="build with build.backend: tensorrt, or leave out what needs it",
            )
        name, _, value = argument.partition("=")
        made.add(name, value or None)


def _profiles(made: _Line, engine: Mapping[str, Any]) -> None:
    several = len(engine["profiles"]) > 1
    for number, profile in enumerate(engine["profiles"]):
        if several:
            made.add("--profile", str(number))
        for which in ("min", "opt", "max"):
            made.add(f"--{which}Shapes", lists.shapes(profile, which))
