"""How a configuration's benchmark is asked of a board."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

from edgekit.errors import DataError, EnvironmentLack

if TYPE_CHECKING:
    from edgekit.config import Config
    from edgekit.config._schema_bench import BenchSection
    from edgekit.deploy import BenchSettings
    from edgekit.pipeline._host_steps import HostSteps

__all__ = ["board_settings", "check_frames", "frames", "recorded", "stages_told", "tensorrt_of"]

_IDLE_S = 2.0
_MOST_FRAMES = 32  # a board cycles no more


def board_settings(
    section: BenchSection, *, backend: str, tensorrt: str | None = None, profile: bool = False
) -> BenchSettings:
    """Returns what the board's ``bench`` is asked.

    Args:
        section: The configuration's ``bench``.
        backend: The bundle's: "reference" or "tensorrt".
        tensorrt: The board's release, for trtexec's flags.
        profile: Whether single layers are measured, too.

    Raises:
        BuildError: ``with_trtexec`` and trtexec of that release is not known.
    """
    from edgekit.deploy import BenchSettings

    idle_s = section.idle_s
    if idle_s is None:
        idle_s = _IDLE_S if backend != "reference" and section.monitor_ms else 0.0
    return BenchSettings(
        section.warmup_ms,
        section.duration_s,
        section.iterations,
        streams=section.streams,
        graph=section.graph,
        spin=section.spin,
        transfers=section.transfers,
        sleep_ms=section.sleep_ms,
        idle_ms=1000 * idle_s,
        monitor_ms=section.monitor_ms,
        power_mode=section.power_mode,
        lock_clocks=section.lock_clocks,
        trtexec=_trtexec(section, backend, tensorrt) if section.with_trtexec else None,
        profile=profile,
    )


def _trtexec(section: BenchSection, backend: str, tensorrt: str | None) -> dict[str, Any]:
    from edgekit.trt import run_command

    if backend == "reference":  # the board says that there is nothing for trtexec
        lists = ("always", "gpu", "dla", "version_compatible")
        return {**{name: [] for name in lists}, "timeout_s": 0.0}
    if not tensorrt:
        raise EnvironmentLack(
            "the board does not tell its TensorRT, so trtexec's flags are not known",
            code="bench.trtexec",
            hint="see `edgekit doctor`, or leave --with-trtexec out",
        )
    return run_command(
        tensorrt,
        warmup_ms=section.warmup_ms,
        duration_s=section.duration_s,
        iterations=section.iterations,
        streams=section.streams,
        graph=section.graph,
        spin=section.spin is True,
        transfers=section.transfers,
        idle_ms=section.sleep_ms,
    )


def tensorrt_of(
    section: BenchSection, hello: Mapping[str, Any], ask: Callable[[], Mapping[str, Any]]
) -> str | None:
    """Returns a board's TensorRT for ``board_settings``; None where nobody tells it.

    Args:
        section: The configuration's ``bench``.
        hello: What the board says of itself, from its files; empty where it was not asked.
        ask: Asks it for its ``edgekit.probe/1``, which runs TensorRT's module; only for trtexec.
    """
    known = hello.get("tensorrt")
    if not known and section.with_trtexec:
        known = (ask().get("fingerprint") or {}).get("tensorrt")
    return str(known) if known else None


def frames(pipeline: HostSteps) -> bytes | None:
    """Returns ``bench.inputs`` as an ``.npz``, several frames stacked; None where none are named.

    Raises:
        DataError: They cannot be read, or do not fit the network.
    """
    named = pipeline.file.bench.inputs
    if named is None:
        return None
    import numpy as np

    from edgekit.quantize import load_data
    from edgekit_device._npz import write_npz

    path = pipeline.config.resolve(named)
    found = list(islice(load_data(path, pipeline.work.model, whole=True), _MOST_FRAMES))
    if not found:
        raise DataError("the file holds no input", code="data.empty", where=str(path))
    if len(found) == 1:
        return write_npz(dict(found[0]))
    return write_npz({name: np.stack([one[name] for one in found]) for name in found[0]})


def check_frames(pipeline: HostSteps, *, kept: bool) -> None:
    """Refuses ``bench.inputs`` that do not fit the network, before anything is built for them.

    Args:
        pipeline: The configuration's pipeline.
        kept: Whether an older measurement may do, for which the file is not needed any more.

    Raises:
        DataError: As ``frames``.
    """
    named = pipeline.file.bench.inputs
    if named is not None and (not kept or pipeline.config.resolve(named).exists()):
        frames(pipeline)


def recorded(document: Mapping[str, Any], config: Config, release: Mapping[str, Any]) -> list[str]:
    """Keeps a measurement in the history; says why it could not, which is no failure."""
    from edgekit.history import record

    try:
        record(document, config=config, release=release)
    except (DataError, EnvironmentLack) as error:
        return [f"not kept in the history: {error.message}"]
    return []


def stages_told(
    pipeline: HostSteps, clock: Callable[[], float] = time.monotonic
) -> Callable[[str, float | None], None]:
    """Returns what a board's stages are told to: the step's progress, by the seconds left.

    Only the board knows which stages follow, and not before it is there: the part that is done is
    counted in seconds that went by, never in what the first stages promised.
    """
    began = clock()

    def told(stage: str, left: float | None) -> None:
        past = clock() - began
        # what takes as long as it takes has no part
        pipeline.work.update(past if left else 0.0, past + left if left else 0.0, stage)

    return told
