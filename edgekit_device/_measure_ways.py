"""Two ways to run a measured frame: as callers do, or at fixed addresses as trtexec does."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Dict, Iterator, Optional, Sequence

from ._errors import DeviceError
from ._lanes import LaneRun
from ._measure_streams import RunFrame

if TYPE_CHECKING:
    import numpy as np

    from ._cuda import Cuda
    from ._model import Model

__all__ = ["at_fixed", "cuda_of", "fixed_runs", "ordinary_run"]


def cuda_of(model: Model) -> Optional[Cuda]:
    """The device that the model's engines run on; None for the reference backend."""
    for engine in model.engines.values():
        found: Optional[Cuda] = getattr(engine, "cuda", None)
        if found is not None:
            return found
    return None


def at_fixed(model: Model, *, graph: bool, transfers: bool) -> bool:
    """Whether frames are to run at fixed addresses; the reference backend has no such thing.

    Raises:
        DeviceError: "bench.graph" or "bench.fixed" where they cannot.
    """
    if model.backend == "reference" or (transfers and not graph):
        return False
    from ._trt_fixed import why_not

    reason = why_not(model, graph=graph)
    if reason:
        asked = "as a CUDA graph" if graph else "without transfers"
        raise DeviceError(
            "this release cannot be measured {}: {}".format(asked, reason),
            code="bench.graph" if graph else "bench.fixed",
            where=model.name,
            hint="measure without {}".format("--graph" if graph else "--no-transfers"),
        )
    return True


def ordinary_run(model: Model, frames: Sequence[Dict[str, np.ndarray]]) -> RunFrame:
    """Frames as a caller of the model runs them: arrays in, arrays out."""

    def run(lane: LaneRun, frame: int, number: int, record: Any) -> None:
        model.run_lane(lane.number, frames[frame], record, number)

    return run


@contextmanager
def fixed_runs(
    model: Model, frames: Sequence[Dict[str, np.ndarray]], *, graph: bool, transfers: bool
) -> Iterator[RunFrame]:
    """Frames at fixed addresses, with contexts, a stream and buffers of their own for the block.

    Raises:
        DeviceError: As ``FixedLane``.
    """
    from ._trt_fixed import FixedLane

    cuda = cuda_of(model)
    assert cuda is not None  # every engine is a plan
    made: Dict[int, FixedLane] = {}
    try:
        for lane in model.lanes:
            made[lane.number] = FixedLane(
                model, lane, frames, cuda, graph=graph, transfers=transfers
            )

        def run(lane: LaneRun, frame: int, number: int, record: Any) -> None:
            made[lane.number].frame(frame, number, record)

        yield run
    finally:
        for one in made.values():
            one.close()
