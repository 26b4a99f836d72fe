"""trtexec's flags by release (`trt/trtexec_flags.yaml`), and the arguments with which it measures a
plan as the loader does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from shlex import quote

from edgekit import timeouts
from edgekit.errors import BuildError
from edgekit.knowledge import data_folder, read_facts
from edgekit.targets.releases import parse_version
from edgekit_device.benchmark.settings import BenchSettings, TrtexecOptions
from edgekit_device.protocol.codec import document
from edgekit_device.versions import Version, minor_release


@dataclass(frozen=True, slots=True)
class Trtexec:
    """trtexec of one release: what it takes."""

    tensorrt: str
    version: Version
    flags: frozenset[str]

    def flag(self, name: str) -> str:
        """Returns a flag of this release.

        Raises:
            BuildError: It lacks it (code "trtexec.flag").
        """
        if name in self.flags:
            return name
        raise BuildError(
            f"trtexec of TensorRT {self.tensorrt} does not have {name}",
            code="trtexec.flag",
            where=name,
            hint="leave --with-trtexec out, or remove the setting that needs it",
        )

    def has(self, name: str) -> bool:
        """Whether it takes a flag."""
        return name in self.flags


def trtexec(tensorrt: str) -> Trtexec:
    """Returns trtexec of a release.

    A release without data has what the ones before and after it both have; a newer one
    than all of them has what the newest has.

    Raises:
        BuildError: The release is older than every known one (code "trtexec.version").
        UsageError: ``tensorrt`` is no version.
    """
    version = parse_version(tensorrt)
    sampled = {name: parse_version(name) for name in flag_facts().versions}
    same = [name for name, own in sampled.items() if own[:2] == minor_release(version)]
    before = [name for name, own in sampled.items() if own <= version]
    after = [name for name, own in sampled.items() if own > version]
    if not same and not before:
        oldest = flag_facts().versions[0]
        raise BuildError(
            f"edgekit knows trtexec's flags from TensorRT {oldest} on, not those of {tensorrt}",
            code="trtexec.version",
            where="tensorrt",
            hint="leave --with-trtexec out",
        )
    near = same[:1] or [*before[-1:], *after[:1]]
    flags = frozenset.intersection(*(_flags()[name] for name in near))
    return Trtexec(tensorrt, version, flags)


@cache
def _flags() -> Mapping[str, frozenset[str]]:
    facts = flag_facts()
    return {
        release: frozenset(facts.everywhere)
        | {name for name, where in facts.flags.items() if release in where}
        for release in facts.versions
    }


@document(frozen=True)
class FlagFacts:
    """``trt/trtexec_flags.yaml``.

    Attributes:
        versions: The releases that are known.
        inferred: Those of them whose flags were not read from trtexec itself.
        everywhere: The flags of all of them.
        flags: The others, each with the releases that have it.
    """

    versions: tuple[str, ...]
    inferred: tuple[str, ...]
    everywhere: tuple[str, ...]
    flags: Mapping[str, tuple[str, ...]]


@cache
def flag_facts() -> FlagFacts:
    """Returns ``trt/trtexec_flags.yaml``."""
    return read_facts(
        FlagFacts, data_folder("trt") / "trtexec_flags.yaml", "edgekit.trtexec-flags/1"
    )


def build_line(model: Path, cache: Path | None = None, fp16: Path | None = None) -> str:
    """Returns the command that builds a model for DLA core 0, with the GPU for what it lacks.

    Args:
        model: The ONNX file.
        cache: The calibration cache of a plain model; None for one that has its own precisions.
        fp16: The file of the cache's layers that stay in FP16, in the form of --layerPrecisions.
    """
    calibrated = "" if cache is None else f"--int8 --fp16 --calib={quote(str(cache))} "
    line = f"trtexec --onnx={quote(str(model))} {calibrated}--useDLACore=0 --allowGPUFallback"
    if fp16 is not None:
        line += f' --precisionConstraints=prefer --layerPrecisions="$(cat {quote(str(fp16))})"'
    return line


def translated_line(
    model: Path | None, cache: Path | None, precisions: Sequence[Path], *, keeps_fp16: bool
) -> tuple[str | None, list[str]]:
    """Returns the command that builds a translated Q/DQ model, by trtexec's flags up to 10.7.

    Args:
        model: The plain model's file; None where it was not written.
        cache: The calibration cache, likewise.
        precisions: Files with the layers in FP16; NVIDIA's form (``.json``) is none of trtexec's.
        keeps_fp16: Whether there are such layers.

    Returns:
        The line, None where files for it were not written; and which options write those.
    """
    texts = [path for path in precisions if path.suffix.lower() != ".json"]
    lacking = []
    if model is None:
        lacking.append("-o FILE the plain model")
    if cache is None:
        lacking.append("--save FILE the calibration cache")
    if keeps_fp16 and not texts:
        lacking.append("--precisions FILE.txt the layers in FP16")
    if model is None or cache is None or lacking:
        return None, [f"trtexec needs files that were not written: {', '.join(lacking)}"]
    return build_line(model, cache, texts[0] if keeps_fp16 else None), []


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
        timeout_s=timeouts.TRTEXEC_START_S + 4 * (settings.duration_s + settings.warmup_ms / 1e3),
    )


def _switch(on: Trtexec, wanted: bool, yes: str, no: str) -> list[str]:
    """A release that lacks the flag for what is wanted does it by itself."""
    name = yes if wanted else no
    return [on.flag(name)] if on.has(name) else []
