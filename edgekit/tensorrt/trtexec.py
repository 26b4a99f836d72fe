"""trtexec's command lines for one engine of a build request, one attempt and one release: flags
(`trt/trtexec_flags.yaml`), list values, what it refuses, and the measuring run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from edgekit.errors import BuildError
from edgekit.knowledge import data_folder, read_knowledge
from edgekit.targets.releases import parse_version, within
from edgekit.tensorrt.options import BuildAttempt
from edgekit.tensorrt.releases import release
from edgekit_device.benchmark.settings import BenchSettings, TrtexecOptions
from edgekit_device.build.request import Attempt, EngineSpec, IoSpec, LayerSpec, ProfileShapes
from edgekit_device.versions import Version

_MIB = 1 << 20
_UNNAMED = "(Unnamed Layer*"
Layers = Sequence[LayerSpec]
_SHOWN = 5
_ORDER = ("fp32", "fp16", "int8")
_START_S = 120.0  # loading an engine, and what the loader needs around it


@dataclass(frozen=True, slots=True)
class Trtexec:
    """trtexec of one release: what it takes."""

    tensorrt: str
    version: Version
    flags: frozenset[str]

    def flag(self, name: str) -> str:
        """Returns a flag, or the one that does the same in this release.

        Raises:
            BuildError: It has neither (code "trtexec.flag").
        """
        other = flag_facts()["same"].get(name, "")
        if name in self.flags:
            return name
        if other in self.flags:
            return str(other)
        raise BuildError(
            f"trtexec of TensorRT {self.tensorrt} does not have {name}",
            code="trtexec.flag",
            where=name,
            hint="use build.backend: tensorrt, or remove the setting that needs it",
        )

    def has(self, name: str) -> bool:
        """Whether it takes a flag, or another one that does the same."""
        return name in self.flags or flag_facts()["same"].get(name, "") in self.flags


def trtexec(tensorrt: str) -> Trtexec:
    """Returns trtexec of a release.

    A release without data has what the ones before and after it both have; a newer one
    than all of them has what the newest has.

    Raises:
        BuildError: The release is older than every known one (code "trtexec.version").
        UsageError: ``tensorrt`` is no version.
    """
    version = parse_version(tensorrt)
    sampled = {name: parse_version(name) for name in flag_facts()["versions"]}
    same = [name for name, own in sampled.items() if own[:2] == _minor(version)]
    before = [name for name, own in sampled.items() if own <= version]
    after = [name for name, own in sampled.items() if own > version]
    if not same and not before:
        oldest = flag_facts()["versions"][0]
        raise BuildError(
            f"edgekit knows trtexec's flags from TensorRT {oldest} on, not those of {tensorrt}",
            code="trtexec.version",
            where="tensorrt",
            hint="use build.backend: tensorrt, or a newer TensorRT on the board",
        )
    near = same[:1] or [*before[-1:], *after[:1]]
    flags = frozenset.intersection(*(_flags()[name] for name in near))
    return Trtexec(tensorrt, version, flags)


def _minor(version: Version) -> Version:
    return (*version, 0)[:2]


@lru_cache(maxsize=1)
def _flags() -> Mapping[str, frozenset[str]]:
    facts = flag_facts()
    return {
        release: frozenset(
            name for name, where in facts["flags"].items() if where == "all" or release in where
        )
        for release in facts["versions"]
    }


@lru_cache(maxsize=1)
def flag_facts() -> dict[str, Any]:
    """Returns ``trt/trtexec_flags.yaml``."""
    found: dict[str, Any] = read_knowledge(data_folder("trt") / "trtexec_flags.yaml")
    return found


# Values of trtexec's flags that are lists: layers, tensors, shapes, memory pools.
#
# Its parser (samples/common/sampleOptions.cpp) splits a list at every comma, an item at its last
# colon, and takes single quotes away; there is no escape. So a name may have a colon, and a name
# with a comma or a quote cannot be passed. A star stands for any text: a name with one means other
# layers too, and an exact name wins.


def layer_devices(layers: Layers) -> str:
    """Returns --layerDeviceTypes: the layers that must not be on the DLA, which is the default."""
    return _list((n, "GPU") for x in layers if x.device == "GPU" for n in _names(x))


def partly_named_layers(layers: Layers) -> list[str]:
    """Returns the GPU's layers of which the parser names a part alone (`builder_name` says)."""
    gpu = (x for x in layers if x.device == "GPU")
    return [x.name for x in gpu if _UNNAMED in x.builder_name and x.nodes]


def layer_precisions(layers: Layers, skip: Callable[[str], bool] = lambda precision: False) -> str:
    """Returns --layerPrecisions, without the layers whose types are no choice."""
    own = set(flag_facts()["without_precision"])
    chosen = [x for x in layers if x.kind not in own and not skip(x.precision)]
    return _list((n, x.precision) for x in chosen for n in _names(x))


def layer_output_types(layers: Layers, lowest: str) -> str:
    """Returns --layerOutputTypes of the layers that the plan keeps above the lowest precision."""
    return layer_precisions(layers, lambda precision: precision == lowest)


def io_formats(tensors: Sequence[IoSpec], on: Trtexec) -> str:
    """Returns --inputIOFormats or --outputIOFormats: a type and its formats for each tensor.

    Raises:
        BuildError: trtexec of that release has no such type or format (code "trtexec.format").
    """
    facts = flag_facts()
    parts = []
    for tensor in tensors:
        kind = facts["types"].get(tensor.dtype)
        names = [facts["formats"].get(name) for name in tensor.formats or ["LINEAR"]]
        if (
            kind is None
            or not within(on.version, kind.get("since"), kind.get("until"))
            or None in names
        ):
            raise BuildError(
                f"trtexec of TensorRT {on.tensorrt} does not support tensors of type "
                f"{tensor.dtype} in format {' or '.join(tensor.formats) or 'LINEAR'}",
                code="trtexec.format",
                where=tensor.name,
                hint="use build.backend: tensorrt",
            )
        parts.append(f"{kind['name']}:{'+'.join(names)}")
    return ",".join(parts)


def memory_pool_sizes(limits: Mapping[str, int], on: Trtexec) -> tuple[str, list[str]]:
    """Returns --memPoolSize (MiB, exact), and the pools that this trtexec does not know."""
    known = flag_facts()["pools"]
    parts, unknown = [], []
    for name, size in limits.items():
        row = known.get(name)
        if row is None or ("since" in row and on.version < parse_version(row["since"])):
            unknown.append(name)
        else:
            parts.append(f"{row['name']}:{_decimal(size)}")
    return ",".join(parts), unknown


def profile_shapes(profile: Mapping[str, ProfileShapes], which: str) -> str:
    """Returns --minShapes, --optShapes or --maxShapes of a profile; ``which`` is min, opt, max."""
    return _list(
        (name, "x".join(map(str, getattr(sizes, which))) or "scalar")
        for name, sizes in profile.items()
    )


def _names(layer: LayerSpec) -> list[str]:
    """A network being built has a layer for each ONNX node, of its name; kernels come later."""
    return list(layer.nodes) or [layer.builder_name or layer.name]


def _list(items: Iterable[tuple[str, str]]) -> str:
    parts = []
    for name, value in items:
        bad = next((c for c in flag_facts()["unsayable"] if c in name), "")
        if bad or not name:
            raise BuildError(
                (
                    f"trtexec cannot take the name {name!r}, because {bad!r} is special in its "
                    "arguments"
                )
                if bad
                else "trtexec cannot set a device or type for a layer without a name",
                code="trtexec.name",
                where=name,
                hint="rename the node, or use build.backend: tensorrt",
            )
        parts.append(f"{name}:{value}")
    return ",".join(dict.fromkeys(parts))


def _decimal(size: int) -> str:
    """Bytes as MiB, without an exponent and without rounding (2**20 has 20 binary places)."""
    whole, rest = divmod(size, _MIB)
    return f"{whole}.{rest * 10**20 // _MIB:020d}".rstrip("0").rstrip(".")


# What trtexec refuses or does wrong, checked before it runs.
#
# From its own option parser and builder (samples/common/sampleOptions.cpp, sampleEngines.cpp).


def check_engine(engine: EngineSpec, flags: tuple[str, ...], on: Trtexec) -> None:
    """Checks an engine and an attempt.

    Raises:
        BuildError: "trtexec.refuses".
    """
    typings = release(on.tensorrt).typings
    if engine.typing not in typings:
        _refuse(
            engine, f"TensorRT {on.tensorrt} cannot build {engine.typing}ly typed networks",
            f"it builds {' and '.join(f'{typing}ly' for typing in typings)} typed networks",
        )  # fmt: skip
    if engine.typing == "weak" and "int8" in engine.precisions and not engine.calibration:
        _refuse(
            engine, "INT8 needs a calibration cache, otherwise trtexec invents the ranges",
            "make one with edgekit calibrate, or give one",
        )  # fmt: skip
    if "REFIT_INDIVIDUAL" in flags and engine.refit_individual:
        _refuse(
            engine, "trtexec cannot mark individual weights as refittable",
            "use build.refit: identical or any, or build.backend: tensorrt",
        )  # fmt: skip
    if engine.kind == "loadable":
        _standalone(engine)


def _standalone(engine: EngineSpec) -> None:
    if engine.device == "GPU":
        _refuse(engine, "a loadable needs a DLA core, but none is given", "")
    if engine.gpu_fallback:
        _refuse(engine, "a DLA loadable has no GPU fallback", "use build.mode: hybrid")
    allowed = flag_facts()["standalone"]
    for side in ("inputs", "outputs"):
        for tensor in getattr(engine, side):
            legal = allowed[side].get(tensor.dtype, ())
            if len(tensor.formats) != 1 or tensor.formats[0] not in legal:
                given = f"format {' or '.join(tensor.formats)}" if tensor.formats else "no format"
                _refuse(
                    engine,
                    f"the loadable's {side[:-1]} {tensor.name} has type {tensor.dtype} and {given}",
                    "use one format for each type: "
                    + "; ".join(f"{t}: {', '.join(f)}" for t, f in allowed[side].items()),
                )


def _refuse(engine: EngineSpec, message: str, hint: str) -> None:
    raise BuildError(message, code="trtexec.refuses", where=str(engine.key), hint=hint)


# trtexec's command lines: one engine of a build request, one attempt, one release.
#
# The rules that trtexec itself enforces are looked at first (:func:`check_engine`), since it
# reports of them after minutes, or not at all: with --int8 and no cache it makes ranges up.


def trtexec_command(
    engine: EngineSpec,
    attempt: BuildAttempt | Attempt,
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
        engine: As the request has it.
        attempt: What to set.
        tensorrt: The board's release.
        timing_cache: Whether to keep the timings.
        notes: Takes what trtexec cannot do of the request, as sentences.

    Raises:
        BuildError: This trtexec cannot build that: a flag that it lacks ("trtexec.flag"), a name
            that cannot be passed to it ("trtexec.name"), a format ("trtexec.format"), a list too
            long ("trtexec.length"), or what it would refuse or do wrong ("trtexec.refuses").
        UsageError: ``tensorrt`` is no version.
    """
    on = trtexec(tensorrt)
    flags = attempt.flags
    check_engine(engine, flags, on)
    made = _CommandLine(on, notes if notes is not None else [])
    made.add("--onnx", "{model}")
    made.add("--saveEngine", "{engine}")
    if engine.device != "GPU":
        made.add("--useDLACore", engine.device.removeprefix("DLA"))
    if engine.kind == "loadable":
        made.add("--buildDLAStandalone")
    elif engine.gpu_fallback:
        made.add("--allowGPUFallback")
    _types(made, engine)
    _tensors(made, engine)
    if engine.device != "GPU" and engine.kind == "plan":
        made.add("--layerDeviceTypes", layer_devices(engine.layers))
        if parted := partly_named_layers(engine.layers):
            shown = ", ".join(parted[:_SHOWN]) + (" ..." if len(parted) > _SHOWN else "")
            made.note(
                "trtexec sets devices and types only for named layers; layers that TensorRT's "
                "parser adds without a name, such as a Gemm's bias, may run on the DLA for "
                f"{shown}"
            )
    parts, unknown = memory_pool_sizes(engine.pools, on)
    made.add("--memPoolSize", parts)
    if unknown:
        made.note(f"trtexec cannot limit the memory pool {', '.join(unknown)}")
    _builder_flags(made, flags)
    _profiles(made, engine)
    if engine.optimization_level is not None:
        made.add_if_known("--builderOptimizationLevel", str(engine.optimization_level))
    if timing_cache:
        made.add("--timingCacheFile", "{timing_cache}")
    made.add("--profilingVerbosity", "detailed")
    if engine.kind == "plan" and "EXCLUDE_LEAN_RUNTIME" not in flags:
        made.add("--exportLayerInfo", "{layer_info}")
    made.add("--verbose")
    made.add("--skipInference")
    return made.arguments


class _CommandLine:
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
                f"{name} has {len(argument):,} characters, too many for one command-line argument",
                code="trtexec.length",
                where=name,
                hint="use build.backend: tensorrt",
            )
        self.arguments.append(argument)

    def add_if_known(self, flag: str, value: str) -> None:
        """Adds a flag, or notes that this trtexec does not have it."""
        if self.on.has(flag):
            self.add(flag, value)
        else:
            self.note(
                f"trtexec of TensorRT {self.on.tensorrt} does not have {flag}, so it is left out"
            )

    def note(self, text: str) -> None:
        """Says once what cannot be done."""
        if text not in self.notes:
            self.notes.append(text)

    def fits(self, flag: str, value: str) -> bool:
        """Whether a value is short enough for one argument."""
        return len(f"{flag}={value}".encode()) <= int(flag_facts()["longest_argument"])


def _types(made: _CommandLine, engine: EngineSpec) -> None:
    if engine.typing == "strong":
        made.add("--stronglyTyped")
        return
    for precision in engine.precisions:
        made.add(f"--{precision}")
    if "int8" in engine.precisions:
        made.add("--calib", "{calibration}")
    if not engine.precisions or engine.constraints == "none":
        return
    layers, lowest = engine.layers, max(engine.precisions, key=_ORDER.index)
    parts = layer_precisions(layers)
    above = layer_output_types(layers, lowest)
    if not made.fits("--layerPrecisions", parts):
        parts = above
        made.note(
            f"trtexec gets the precision of layers above {lowest} only, because all layers do "
            "not fit on a command line"
        )
    if parts:
        made.add("--precisionConstraints", engine.constraints)
        made.add("--layerPrecisions", parts)
        made.add("--layerOutputTypes", above)


def _tensors(made: _CommandLine, engine: EngineSpec) -> None:
    """Types and formats; float32 in rows is what trtexec takes by itself."""
    sides = (("--inputIOFormats", engine.inputs), ("--outputIOFormats", engine.outputs))
    plain = all(
        tensor.dtype == "float32" and tensor.formats in ((), ("LINEAR",))
        for _, tensors in sides
        for tensor in tensors
    )
    if plain:
        return
    for flag, tensors in sides:
        made.add(flag, io_formats(tensors, made.on))


def _builder_flags(made: _CommandLine, flags: tuple[str, ...]) -> None:
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
                hint="use build.backend: tensorrt, or remove the setting that needs it",
            )
        name, _, value = argument.partition("=")
        made.add(name, value or None)


def _profiles(made: _CommandLine, engine: EngineSpec) -> None:
    several = len(engine.profiles) > 1
    for number, profile in enumerate(engine.profiles):
        if several:
            made.add("--profile", str(number))
        for which in ("min", "opt", "max"):
            made.add(f"--{which}Shapes", profile_shapes(profile, which))


# trtexec's arguments that measure a plan as our own benchmark measures it.
#
# trtexec of TensorRT 11 replays CUDA graphs, spins and copies nothing by default;
# older ones do the opposite. So each release gets the flags that make its method the requested one.


def run_command(tensorrt: str, settings: BenchSettings) -> TrtexecOptions:
    """Returns trtexec's arguments to measure as ``settings`` say, on a board of this release.

    A CUDA graph is never requested for a DLA, where TensorRT has none.

    Raises:
        BuildError: No such trtexec is known (code "trtexec.version"), or it lacks a flag.
    """
    on = trtexec(tensorrt)
    always = [
        f"{on.flag('--loadEngine')}={{engine}}",
        f"{on.flag('--exportTimes')}={{times}}",
        f"{on.flag('--warmUp')}={settings.warmup_ms:g}",
        f"{on.flag('--duration')}={settings.duration_s:g}",
        f"{on.flag('--iterations')}={settings.iterations}",
        f"{on.flag('--infStreams')}={settings.streams}",
    ]
    if settings.sleep_ms:
        always.append(f"{on.flag('--idleTime')}={settings.sleep_ms:g}")
    always += _switch(on, settings.spin is True, "--useSpinWait", "--noSpinWait")
    always += _switch(on, settings.transfers, "--includeDataTransfers", "--noDataTransfers")
    compatible = [on.flag("--versionCompatible")] if on.has("--versionCompatible") else []
    on_dla = [
        f"{on.flag('--useDLACore')}={{core}}",
        *_switch(on, False, "--useCudaGraph", "--noCudaGraph"),
    ]
    return TrtexecOptions(
        always=tuple(always),
        gpu=tuple(_switch(on, settings.graph, "--useCudaGraph", "--noCudaGraph")),
        dla=tuple(on_dla),
        version_compatible=tuple(compatible),
        timeout_s=_START_S + 4 * (settings.duration_s + settings.warmup_ms / 1e3),
    )


def _switch(on: Any, wanted: bool, yes: str, no: str) -> list[str]:
    """A release that lacks the flag for what is wanted does it by itself."""
    name = yes if wanted else no
    return [on.flag(name)] if on.has(name) else []
