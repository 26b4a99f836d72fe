"""Layer times of a profiler as one frame of a trace, the DLA's wait on the DLA's track.

A profile has durations and an order, no starts: its layers stand one after the other from 0. A
build log has no inference at all, only tactics that its builder timed. What an ``IProfiler`` calls
the first "... from nvm" after a loadable is the wait for that loadable (``edgekit.placement`` books
it there); reformats and copies have a track of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from edgekit.bench._trace_process import HOST, Process, nanoseconds
from edgekit.bench._types import BOARD_MEASURED

if TYPE_CHECKING:
    from edgekit.placement import Profile

__all__ = ["profile_process"]

_PROFILED = (
    "durations of a profiler; where they begin is not measured", "one inference, as profiled",
)  # fmt: skip
_WORDS = {
    "log": (
        "the builder's times of single tactics, each the fastest; no inference was run",
        "sum of the fastest tactics",
    ),
    "bench": (
        "durations of edgekit bench; where they begin is not measured",
        "one inference, layers' shares of it",
    ),
    "table": (
        "durations that edgekit tune measured; where they begin is not measured, and they may "
        "overlap",
        "sum of what was measured",
    ),
}
Linked = Callable[[str], "dict[str, Any] | None"]


def profile_process(
    profile: Profile, *, pid: int, dla_cores: int, core: int = 0, linked: Linked | None = None
) -> Process:
    """Makes the process of a profile.

    Args:
        profile: From ``edgekit.placement.read_profile``.
        pid: Process number.
        dla_cores: DLA cores of the target.
        core: Core of loadables that the plan does not place: an engine's run on one core.
        linked: Finds what the plan knows of a layer.
    """
    board = profile.board or "the board"
    what = "fastest tactics of the build" if profile.kind == "log" else "layers"
    process = Process(
        pid, f"{what} measured on {board}, one after the other", BOARD_MEASURED,
        max(dla_cores, core + 1),
    )  # fmt: skip
    process.label, frame = _WORDS.get(profile.kind, _PROFILED)
    elapsed = 0.0
    shown = [(row, "layer") for row in profile.rows] + [(row, "copy") for row in profile.overhead]
    for row, category in sorted(shown, key=lambda one: one[0].place):
        args = _args(linked, (row.name, *row.layers)) if linked else {}
        device = str(args.get("device") or row.device or "")
        if row.device == "GPU" and device.startswith("DLA"):
            device = "GPU"  # what was measured on the GPU is shown there, wherever it was planned
        if device == "DLA" or (row.device == "DLA" and not device.startswith("DLA")):
            device = f"DLA{core}"
        track = "copies" if category == "copy" else device or "GPU or DLA"
        begin, elapsed = nanoseconds(elapsed), elapsed + row.us
        extra = {**args, "device": device or None, "measured_us": row.us}
        if row.layers:
            extra["layers"] = list(row.layers)
        process.add(track, row.name or "layer", begin, nanoseconds(elapsed), category, **extra)
    process.add(
        HOST, frame, 0, nanoseconds(elapsed), "frame",
        device=HOST, file_kind=profile.kind, notes=list(profile.notes),
    )  # fmt: skip
    return process


def _args(linked: Linked, names: tuple[str, ...]) -> dict[str, Any]:
    return next((dict(found) for name in names if (found := linked(name))), {})
