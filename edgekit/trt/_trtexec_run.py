"""trtexec's arguments that measure a plan as our own benchmark measures it.

trtexec of TensorRT 11 replays CUDA graphs, spins and copies nothing unless it is told otherwise;
older ones do the opposite. So each release gets the flags that make its method the one asked for.
"""

from __future__ import annotations

from typing import Any

from edgekit.trt._trtexec_flags import trtexec

__all__ = ["run_command"]

_START_S = 120.0  # loading an engine, and what the loader needs around it


def run_command(
    tensorrt: str,
    *,
    warmup_ms: float,
    duration_s: float,
    iterations: int,
    streams: int = 1,
    graph: bool = False,
    spin: bool = False,
    transfers: bool = True,
    idle_ms: float = 0.0,
) -> dict[str, Any]:
    """Returns the arguments for ``bench --trtexec`` of the board.

    Args:
        tensorrt: The board's release.
        warmup_ms: Milliseconds of warm-up.
        duration_s: Seconds to measure at least.
        iterations: Inferences at least, of each stream.
        streams: Inferences in flight.
        graph: Replay a CUDA graph; never with a DLA, where TensorRT has none.
        spin: Wait spinning, not blocked.
        transfers: Copy inputs and outputs.
        idle_ms: Pause between two inferences.

    Returns:
        {"always", "gpu", "dla", "version_compatible": lists of arguments in which the board
        replaces {engine}, {times} and {core}, "timeout_s"}.

    Raises:
        BuildError: No such trtexec is known (code "trtexec.version"), or it lacks a flag.
    """
    on = trtexec(tensorrt)
    always = [
        f"{on.flag('--loadEngine')}={{engine}}",
        f"{on.flag('--exportTimes')}={{times}}",
        f"{on.flag('--warmUp')}={warmup_ms:g}",
        f"{on.flag('--duration')}={duration_s:g}",
        f"{on.flag('--iterations')}={iterations}",
        f"{on.flag('--infStreams')}={streams}",
    ]
    if idle_ms:
        always.append(f"{on.flag('--idleTime')}={idle_ms:g}")
    always += _switch(on, spin, "--useSpinWait", "--noSpinWait")
    always += _switch(on, transfers, "--includeDataTransfers", "--noDataTransfers")
    compatible = [on.flag("--versionCompatible")] if on.has("--versionCompatible") else []
    return {
        "always": always,
        "gpu": _switch(on, graph, "--useCudaGraph", "--noCudaGraph"),
        "dla": [
            f"{on.flag('--useDLACore')}={{core}}",
            *_switch(on, False, "--useCudaGraph", "--noCudaGraph"),
        ],
        "version_compatible": compatible,
        "timeout_s": _START_S + 4 * (duration_s + warmup_ms / 1e3),
    }


def _switch(on: Any, wanted: bool, yes: str, no: str) -> list[str]:
    """A release that lacks the flag for what is wanted does it by itself."""
    name = yes if wanted else no
    return [on.flag(name)] if on.has(name) else []
