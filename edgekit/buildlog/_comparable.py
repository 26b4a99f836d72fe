"""Whether a log tells of the build that was judged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from edgekit.buildlog._build import PROFILES

if TYPE_CHECKING:
    from edgekit.buildlog._comparison import LayerComparison
    from edgekit.buildlog._types import BuildLog
    from edgekit.dla import Judgement
    from edgekit.targets import Target

__all__ = ["warnings"]

_EVIDENCE = {
    "capability": "the log ends before it says what was offloaded: only capability is compared",
    "refusals": "the log has no lists of layers (build with --verbose): only refusals are compared",
    "none": "the log says nothing of layers on a DLA: build with --useDLACore=0 "
    "--allowGPUFallback --verbose",
}


def warnings(
    judgement: Judgement,
    log: BuildLog,
    target: Target,
    layers: Sequence[LayerComparison],
    foreign: tuple[int, int] | None = None,
) -> tuple[str, ...]:
    """Says why log and judgement may be about different things."""
    found = []
    if foreign:
        known, total = foreign
        found.append(
            "this is the log of another network: "
            f"{known or 'none'} of the {total} layers that it names {'is' if known < 2 else 'are'} "
            "in the model" + (f" (the log is of {log.model})" if log.model else "")
        )
    if log.tensorrt and not _same_release(judgement.tensorrt, log.tensorrt):
        found.append(f"judged for TensorRT {judgement.tensorrt}, built with {log.tensorrt}")
    built = _precision(log.precisions)
    if built and built != judgement.precision:
        found.append(f"judged in {judgement.precision}, built in {built}")
    capability = log.compute_capability
    if capability and target.compute_capability and capability != target.compute_capability:
        board = f"{log.device}, " if log.device else ""
        found.append(
            f"judged for {target.name} (compute capability {target.compute_capability}), "
            f"built on another board ({board}{capability})"
        )
    if log.asked_dla is False:
        found.append("the build did not ask for a DLA (--useDLACore)")
    if log.none_on_dla:
        found.append(
            "the log's list of layers on the DLA is empty: the build may not have asked for a DLA "
            "(--useDLACore)"
        )
    if log.pinned:
        found.append(f"the build pins layers to devices: {log.pinned}")
    if log.evidence in _EVIDENCE:
        found.append(_EVIDENCE[log.evidence])
    # harmless unless a DLA was asked for
    found += [
        note
        for note in log.notes
        if log.asked_dla or note == log.all_on_gpu or not note.startswith(PROFILES)
    ]
    if log.builds > 1:
        found.append(f"the log holds {log.builds} builds: the last that lists layers is compared")
    if log.cut:
        found.append("the log has more layers than are read")
    seen = sum(1 for layer in layers if layer.builder)
    if log.evidence != "none" and not foreign and layers and seen < len(layers) / 2:
        found.append(
            f"only {seen} of {len(layers)} layers are in the log: is it the build of this model?"
        )
    if log.errors:
        found.append(f"the build reported an error: {log.errors[0]}")
    return tuple(found)


def _same_release(judged: str, built: str) -> bool:
    # "10.3" was judged, "10.3.0.30" was built
    ours, theirs = judged.split("."), built.split(".")
    length = min(len(ours), len(theirs))
    return ours[:length] == theirs[:length]


def _precision(allowed: Sequence[str]) -> str:
    for precision in ("int8", "fp16", "fp32"):
        if precision in allowed:
            return precision
    return ""
