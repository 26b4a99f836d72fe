"""How far a build is: IProgressMonitor's phases as one fraction, and the wish to stop."""

from __future__ import annotations

import threading
from typing import Any, Callable, Dict, Optional

__all__ = ["STEPS", "Phases", "monitor"]

#: A whole build has this many steps, whatever TensorRT counts.
STEPS = 1000


class Phases:
    """Phases nested in one another, each of some steps, as one fraction that never falls.

    A phase's step that is under way counts as far as its furthest inner phase is.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._steps: Dict[str, int] = {}
        self._done: Dict[str, int] = {}
        self._parent: Dict[str, Optional[str]] = {}
        self._reached = 0

    def start(self, name: str, parent: Optional[str], steps: int) -> None:
        """A phase of ``steps`` steps begins inside ``parent`` (None: the outermost)."""
        with self._lock:
            self._steps[name], self._done[name] = max(int(steps), 1), 0
            self._parent[name] = parent if parent in self._steps else None

    def step(self, name: str, step: int) -> None:
        """Step ``step`` (from 0) of a phase is complete."""
        with self._lock:
            if name in self._steps:
                self._done[name] = max(self._done[name], min(int(step) + 1, self._steps[name]))

    def finish(self, name: str) -> None:
        """A phase ended."""
        with self._lock:
            # a phase that ends early, as all do after a cancellation, is not done
            for table in (self._steps, self._done, self._parent):
                table.pop(name, None)

    def reached(self) -> int:
        """Of ``STEPS``, how many are done."""
        with self._lock:
            roots = [name for name, parent in self._parent.items() if parent is None]
            if roots:
                fraction = max(self._fraction(name, 0) for name in roots)
                self._reached = max(self._reached, min(int(fraction * STEPS), STEPS))
            return self._reached

    def _fraction(self, name: str, depth: int) -> float:
        inner = [
            self._fraction(child, depth + 1)
            for child, parent in self._parent.items()
            if parent == name and depth < 16
        ]
        done, steps = self._done[name], self._steps[name]
        if done >= steps:
            return 1.0
        return (done + max(inner, default=0.0)) / steps


def monitor(
    trt: Any,
    tell: Callable[[int, str], None],
    cancelled: Callable[[], bool],
    crashed: Callable[[BaseException], None],
) -> Optional[Any]:
    """An IProgressMonitor, or None where the release has none (before 10.0).

    Args:
        trt: TensorRT's module.
        tell: Called with (steps of ``STEPS``, phase) when either changes, from TensorRT's threads.
        cancelled: Asked after every step; once true the build is told to stop.
        crashed: Told of an exception here, which TensorRT would swallow.
    """
    if not hasattr(trt, "IProgressMonitor"):
        return None
    phases = Phases()
    last = [(-1, "")]

    def report(name: str) -> None:
        news = (phases.reached(), name)
        if news[0] != last[0][0]:
            last[0] = news
            tell(*news)

    class Monitor(trt.IProgressMonitor):  # type: ignore[misc]  # known only when it runs
        def __init__(self) -> None:
            trt.IProgressMonitor.__init__(self)

        def phase_start(self, phase_name: str, parent_phase: Optional[str], num_steps: int) -> None:
            try:
                phases.start(phase_name, parent_phase, num_steps)
                report(phase_name)
            except BaseException as error:
                crashed(error)

        def step_complete(self, phase_name: str, step: int) -> bool:
            try:
                phases.step(phase_name, step)
                report(phase_name)
                return not cancelled()
            except BaseException as error:
                crashed(error)
                return False

        def phase_finish(self, phase_name: str) -> None:
            try:
                phases.finish(phase_name)
                report(phase_name)
            except BaseException as error:
                crashed(error)

    return Monitor()
