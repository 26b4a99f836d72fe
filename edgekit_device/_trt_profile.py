"""TensorRT's layer profiler: times by layer, summed over runs."""

from __future__ import annotations

import threading
from typing import Any, Dict, List, Tuple

__all__ = ["LayerTimes", "profiler"]


class LayerTimes:
    """Milliseconds of each layer's runs, in the order in which layers were first reported."""

    def __init__(self) -> None:
        self._times: Dict[str, List[float]] = {}
        self._lock = threading.Lock()

    def add(self, name: str, milliseconds: float) -> None:
        """Keeps one report."""
        with self._lock:
            self._times.setdefault(name, []).append(milliseconds)

    def warm(self) -> List[Tuple[str, str, List[float]]]:
        """(name, "", microseconds), each layer's first run left out where it has others."""
        with self._lock:
            return [
                (name, "", [1e3 * ms for ms in times[1:] or times])
                for name, times in self._times.items()
            ]


def profiler(trt: Any) -> Tuple[Any, LayerTimes]:
    """Makes a profiler for ``context.profiler``, and what it keeps; keep both."""
    times = LayerTimes()

    class Profiler(trt.IProfiler):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.IProfiler.__init__(self)

        def report_layer_time(self, layer_name: str, ms: float) -> None:
            times.add(str(layer_name), float(ms))

    return Profiler(), times
