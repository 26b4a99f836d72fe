"""Questions of the self-test that run a plan: as a CUDA graph, and by trtexec."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence

from ._errors import DeviceError
from ._types import IoEntry

__all__ = ["by_trtexec", "replayed", "sides_of"]

_LAUNCHES = 10
_SAID = ("Latency:", "Enqueue Time:", "GPU Compute Time:", "Throughput:", "[E]", "[W]", "&&&&")
_TRTEXEC = ("--loadEngine={engine}", "--exportTimes={times}", "--warmUp=100", "--duration=1",
            "--iterations=10")  # fmt: skip
_TIMEOUT_S = 120.0


def sides_of(made: Mapping[str, Any]) -> Dict[str, List[IoEntry]]:
    """A built engine's tensors by "input" and "output"."""
    sides: Dict[str, List[IoEntry]] = {"input": [], "output": []}
    for one in made["io"]:
        sides[one["mode"]].append(
            IoEntry(
                name=one["name"],
                dtype=one["dtype"],
                shape=tuple(one["shape"]),
                format=one["format"],
                strides=tuple(one["strides"]),
                scale=one["scale"],
            )
        )
    return sides


def replayed(engine: Any, made: Mapping[str, Any]) -> Dict[str, Any]:
    """Captures an engine's work and replays it; the milliseconds of the enqueues and launches.

    Raises:
        DeviceError: "cuda.*", or "engine.failed" where it does not run.
    """
    import time

    from ._cuda import open_cuda
    from ._cuda_graph import Graph
    from ._trt_io import io_bytes

    cuda = open_cuda()
    stream = cuda.stream()
    context = engine.create_execution_context()
    for entries in sides_of(made).values():
        for io in entries:
            context.set_tensor_address(io.name, cuda.malloc(io_bytes(io)))

    def execute() -> None:
        if not context.execute_async_v3(stream):
            raise DeviceError("the plan does not run", code="engine.failed")

    def timed(work: Any) -> float:
        began = time.perf_counter()
        work()
        cuda.synchronize(stream)
        return round((time.perf_counter() - began) * 1e3, 4)

    execute()  # the first enqueue of a context must not be captured
    cuda.synchronize(stream)
    found = {"enqueued_ms": [timed(execute) for _ in range(_LAUNCHES)]}
    graph = Graph(cuda, stream, execute)
    found["launched_ms"] = [timed(graph.launch) for _ in range(_LAUNCHES)]
    return found


def by_trtexec(
    root: Path, program: Path, plan: bytes, core: Optional[int], more: Sequence[str] = ()
) -> Dict[str, Any]:
    """Runs trtexec on a plan as the cross-check of a bench does; what it said of its times."""
    from ._files import workspace
    from ._trtexec_check import run_plan

    arguments = [*_TRTEXEC, *([] if core is None else ["--useDLACore={core}"]), *more]
    with workspace(root) as work:
        (work / "plan").write_bytes(plan)
        told = run_plan(program, arguments, work, core, _TIMEOUT_S)
    lines = [line for line in told["console"].splitlines() if any(word in line for word in _SAID)]
    return {
        "command": told["command"],
        "why": told["why"],
        "lines": lines,
        "times": (told["times"] or "")[:1000],
    }
