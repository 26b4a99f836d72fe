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
    """trtexec of one release: its flags."""

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
        """Returns True if it has a flag."""
        return name in self.flags


def trtexec(tensorrt: str) -> Trtexec:
    """Returns trtexec of a release.

    A release without data has the flags common to the known releases before and after it; a
    release newer than all has the flags of the newest known release.

    Raises:
        BuildError: The release is older than every known release (code "trtexec.version").
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
        versions: The known releases.
        inferred: Known releases whose flags were not read from trtexec itself.
        everywhere: The flags of all known releases.
        flags: The other flags, each with the releases that have it.
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
    """Returns the command that builds a model for DLA core 0 with GPU fallback.

    Args:
        model: The ONNX file.
        cache: The calibration cache of a plain model; None if the model has the precisions.
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
        model: The plain model's file; None if it was not written.
        cache: The calibration cache; None if it was not written.
        precisions: Files with the layers in FP16; trtexec does not read NVIDIA's form (``.json``).
        keeps_fp16: True if there are layers in FP16.

    Returns:
        The line, None if files for it were not written; and the options that write these files.
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


# trtexec of TensorRT 11 replays CUDA graphs, spins and skips copies by default;
# older releases do the opposite. Each release gets the flags for the requested method.


def run_command(tensorrt: str, settings: BenchSettings) -> TrtexecOptions:
    """Returns trtexec's arguments to measure with ``settings`` on a board of this release.

    A CUDA graph is never requested for a DLA: TensorRT does not support it there.

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
    """Returns the flag for the wanted behaviour; none if the release behaves so by default."""
    name = yes if wanted else no
    return [on.flag(name)] if on.has(name) else []
