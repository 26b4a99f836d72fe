"""Times of single nodes or layers, as the backend's own profiler has them."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Dict, List, Tuple

from ._model import open_model
from ._onnx import EngineFacts, read_engine
from ._verify import Checked, read_checked

if TYPE_CHECKING:
    import numpy as np

__all__ = ["profile"]

_PROFILED_RUNS = 10  # at most; a quick bench profiles as briefly
_KERNEL_TIME = "_kernel_time"


def profile(
    checked: Checked, inputs: Dict[str, np.ndarray], threads: int, iterations: int
) -> List[Dict[str, Any]]:
    """Runs the model a few times (``iterations``, at most 10) under the backend's own profiler.

    Returns:
        ``{"lane", "index", "node", "op", "mean_us", "median_us"}`` in each segment's running order;
        of so few runs a disturbed one spoils the mean. ``node`` is the engine's node that the
        profiler's name stands for, or that name itself for nodes that ONNX Runtime made (reorders,
        casts); TensorRT's name of a layer, without "op".
    """
    found = []
    with tempfile.TemporaryDirectory() as folder:
        model = open_model(checked, threads, Path(folder))
        frame = model.check(inputs)
        for lane in model.lanes:
            for _ in range(min(iterations, _PROFILED_RUNS) + 1):
                model.run_lane(lane.number, frame)
        # one that runs for several devices ends its profiling once
        engines = {id(one): (digest, one) for (digest, _), one in model.engines.items()}
        times = {key: _times_of(checked, *pair) for key, pair in engines.items()}
        for lane in model.lanes:
            for segment in lane.segments:
                for node, op, spent in times[id(model.engines[segment.engine, segment.device])]:
                    found.append(
                        {
                            "lane": lane.number,
                            "index": segment.index,
                            "node": node,
                            "op": op,
                            "mean_us": sum(spent) / len(spent),
                            "median_us": median(spent),
                        }
                    )
    return found


def _times_of(checked: Checked, digest: str, engine: Any) -> List[Tuple[str, str, List[float]]]:
    if hasattr(engine, "node_times"):
        found: List[Tuple[str, str, List[float]]] = engine.node_times()
        return found
    if not hasattr(engine, "end_profiling"):
        return []  # a loadable: cuDLA has no profiler
    facts = read_engine(read_checked(checked, digest), digest)
    return _node_times(Path(engine.end_profiling()), facts)


def _node_times(file: Path, facts: EngineFacts) -> List[Tuple[str, str, List[float]]]:
    """Each node's microseconds, the first run (cold) left out."""
    known: Dict[str, str] = {}
    for node in facts.nodes:
        for name in (node.name, *node.outputs):
            known.setdefault(name, node.name or node.outputs[0])
    times: Dict[str, List[float]] = {}
    ops: Dict[str, str] = {}
    for event in json.loads(file.read_text(encoding="utf-8")):
        name = event.get("name", "")
        if event.get("cat") == "Node" and name.endswith(_KERNEL_TIME):
            name = name[: -len(_KERNEL_TIME)]
            times.setdefault(name, []).append(float(event["dur"]))
            ops[name] = event["args"].get("op_name", "")
    return [(_original(name, known), ops[name], each[1:] or each) for name, each in times.items()]


def _original(name: str, known: Dict[str, str]) -> str:
    """The engine's node that ONNX Runtime's name stands for: "fused Conv", "y_nchwc" and such."""
    candidate = name
    while candidate:
        if candidate in known:
            return known[candidate]
        if candidate.startswith("fused "):
            candidate = candidate[len("fused ") :]
            continue
        # suffixes are added with an underscore: cut the last one and look again
        candidate = candidate.rpartition("_")[0]
    return name
