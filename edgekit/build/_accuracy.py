"""How far a build is from ONNX Runtime's FP32, whole and segment by segment."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from edgekit.build._nonfinite import Nonfinite
from edgekit.build._runner import Runner
from edgekit.errors import DataError
from edgekit_device._deviation import (
    COLLAPSED_COSINE,
    HARDLY,
    SCORE,
    Deviation,
    decibels,
    worst_of,
)

if TYPE_CHECKING:
    import numpy as np

    from edgekit.build._types import Artefacts, Segment
    from edgekit.network import Model

__all__ = [
    "NOT_KNOWN",
    "Deviation",
    "accuracy",
    "channels_told",
    "collapses",
    "decibels",
    "metric_told",
    "parts_told",
    "snr_told",
    "worst_of",
]

#: Of an accuracy whose outputs are nearly the same for all inputs.
NOT_KNOWN = "not known, the outputs hardly differ between the inputs"


def accuracy(
    model: Model,
    artefacts: Artefacts,
    data: Iterable[Mapping[str, np.ndarray]],
    *,
    outputs: Sequence[str] | None = None,
    lane: int = 0,
    scores: float = 0.0,
) -> dict[str, Any]:
    """Compares a reference build with the model in ONNX Runtime FP32.

    Args:
        model: The FP32 model; of one with opaque layers what comes before them is compared.
        artefacts: A build of it.
        data: Inputs by name, one dict an inference; read once.
        outputs: Outputs to compare; all when None.
        lane: Which plan variant to run.
        scores: Share of a detector's scores above 0.25 that must stay above it.

    Returns:
        ``cosine`` (mean over inputs, the worst output's), ``cosine_min``, ``snr_db`` (variance
        of the reference over mean squared error, the worst output's; None with ``exact`` true
        when every output is bit-equal, and with ``exact`` false where none that differs has a
        variance), ``max_abs``, ``top1_agreement`` (first output, 0 to 1),
        ``count``, and ``per_segment`` with the error of each segment's outputs accumulated up to
        there and its worst ``tensor``; ``groups`` has the groups of channels of outputs whose
        ranges differ (``Deviation.groups``), ``scores`` how many of a detector's scores above 0.25
        are kept, ``nonfinite`` the outputs with NaN or infinity, and the node that began it.
        ``constant`` has the outputs that are nearly the same for all inputs, with their
        ``variation``: how much of the FP32 output's root mean square differs between the inputs, 0
        to 1. A segment is ``constant`` if all its outputs are. A single input leaves that open.
        Where other outputs vary the figures are of these; ``judged`` is false where none does: no
        gate judges by such figures.
        ``failures`` says what no figure of the whole may hide: groups that collapse, segments with
        a cosine below 0.9, lost scores; empty where all is well.
        JSON-ready: never NaN or infinite, an output that is not finite gives -999 dB.

    Raises:
        DataError: No data, or it does not fit.
        BuildError: ONNX Runtime failed in an engine.
    """
    import numpy as np

    from edgekit.network import before_opaque, session

    model = before_opaque(model)
    runner = Runner(artefacts, lane=lane)
    wanted = list(outputs or artefacts.outputs)
    borders = [name for segment in runner.segments for name in segment.outputs]
    names = list(dict.fromkeys([*wanted, *borders]))
    reference = session(model, outputs=names)
    errors = {name: Deviation(by_channel=name in wanted) for name in names}
    nonfinite = Nonfinite(model, runner)
    sums: dict[str, np.ndarray] = {}
    count = 0
    for feed in data:
        found = runner.run(feed, observe=True)
        for name, value in zip(names, reference.run(names, dict(feed)), strict=True):
            if name in wanted and value.dtype.kind == "f" and not np.isfinite(value).all():
                raise DataError(
                    f"in FP32 the network itself gives NaN or infinity in {name!r}",
                    code="accuracy.nonfinite",
                    where=f"input {count}",
                    hint="look for NaN in the weights and for inputs out of range",
                )
            errors[name].add(value, found[name])
            with np.errstate(invalid="ignore"):  # FP32 may hold infinities between segments
                sums[name] = sums.get(name, 0.0) + value.astype(np.float64)
            if name in wanted:
                nonfinite.add(name, found[name], feed)
        count += 1
    if count == 0:
        raise DataError(
            "there is no data to measure the accuracy on",
            code="data.empty",
            hint="give at least one input",
        )
    varied = {name: _variation(sums[name], errors[name]) for name in names}
    first = errors[wanted[0]]
    varying = [name for name in wanted if varied[name] >= HARDLY]
    whole = worst_of([errors[name] for name in varying or wanted])
    segments = [_of_segment(segment, errors, varied) for segment in runner.segments]
    groups, detected = _parts({name: errors[name] for name in wanted})
    for group in groups:
        if group["output"] not in varying:  # its SNR says nothing
            group["collapsed"] = group["cosine"] < COLLAPSED_COSINE
    return {
        **whole,
        "judged": bool(varying),
        "top1_agreement": first.top1_agreement(),
        "count": count,
        "nonfinite": nonfinite.rows(count),
        "constant": [
            {
                "output": name,
                "variation": value,
                "told": f"output {name!r} differs by {100 * value:.2g} % of its size between the "
                "inputs, as with random weights: these figures say nothing about the network's "
                "accuracy",
            }
            for name in wanted
            if (value := varied[name]) < HARDLY
        ],
        "groups": groups,
        "scores": detected,
        "failures": [*_failures(segments, groups), *_lost(detected, scores)],
        "per_segment": segments,
    }


def collapses(errors: Mapping[str, Deviation], scores: float) -> list[str]:
    """Says which groups of channels of outputs collapse, and which lose too many scores.

    Args:
        errors: By output, summed by channel.
        scores: Share of a detector's scores above 0.25 that must stay above it.
    """
    groups, detected = _parts(errors)
    return [*_failures((), groups), *_lost(detected, scores)]


def _parts(errors: Mapping[str, Deviation]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Returns the groups of channels of outputs, and the scores that are kept."""
    groups = [{"output": name, **g} for name, error in errors.items() for g in error.groups()]
    detected = [
        {"output": name, "above": shares[0], "kept": shares[1]}
        for name, error in errors.items()
        if (shares := error.scores()) is not None
    ]
    return groups, detected


def _variation(total: np.ndarray, error: Deviation) -> float:
    """Returns the root mean square of a tensor's differences from its mean over the inputs, as a
    share of its root mean square, given its sum over the inputs; 1 of a single input.
    """
    count = len(error.cosines)
    size = count * error.total_squares
    mean = float(total.ravel() @ total.ravel()) / size if size > 0 else 1.0
    return math.sqrt(max(1.0 - mean, 0.0)) if count > 1 and math.isfinite(mean) else 1.0


def _of_segment(
    segment: Segment, errors: Mapping[str, Deviation], varied: Mapping[str, float]
) -> dict[str, Any]:
    worst = min(segment.outputs, key=lambda name: worst_of([errors[name]])["cosine"], default="")
    return {
        "segment": segment.index,
        "device": segment.device,
        "tensor": worst,
        **worst_of([errors[name] for name in segment.outputs]),
        "constant": all(varied[name] < HARDLY for name in segment.outputs),
    }


def _failures(
    segments: Iterable[Mapping[str, Any]], groups: Iterable[Mapping[str, Any]]
) -> list[str]:
    found = [
        f"{channels_told(group['channels'])} of output {group['output']!r} collapse: SNR "
        f"{snr_told(group)}, cosine {group['cosine']:.3g} (worst is channel "
        f"{group['worst']['channel']}, {snr_told(group['worst'])})"
        for group in groups
        if group["collapsed"]
    ]
    return found + [
        f"the cosine of tensor {part['tensor']!r} of segment {part['segment']} "
        f"({part['device']}) is {part['cosine']:.3g}, below {COLLAPSED_COSINE:g}"
        for part in segments
        if part["cosine"] < COLLAPSED_COSINE
    ]


def parts_told(accuracy: Mapping[str, Any]) -> list[str]:
    """Says of each output whose channels differ in range which are the worst, and what it keeps.

    Of outputs that hardly differ between the inputs it says no SNR.

    Args:
        accuracy: What :func:`accuracy` returned.
    """
    worst: dict[str, Mapping[str, Any]] = {}
    constant = {one["output"] for one in accuracy.get("constant") or ()}
    for group in accuracy.get("groups", ()):
        if group["output"] in constant:
            continue
        known = worst.get(group["output"])
        if known is None or _rank(group) < _rank(known):
            worst[group["output"]] = group
    told = [
        f"of output {name!r}, {channels_told(group['channels'])} (up to {group['range']:.3g}) are "
        f"the worst: SNR {snr_told(group)}, channel {group['worst']['channel']} "
        f"{snr_told(group['worst'])}"
        for name, group in worst.items()
    ]
    return told + [
        f"output {row['output']!r} keeps {row['kept']} of {row['above']} scores above {SCORE:g}"
        for row in accuracy.get("scores", ())
    ]


def _rank(group: Mapping[str, Any]) -> float:
    value = group["snr_db"]
    return float("inf") if value is None else float(value)


def _lost(detected: Iterable[Mapping[str, Any]], least: float) -> list[str]:
    return [
        f"output {row['output']!r} keeps {row['kept']} of {row['above']} scores above {SCORE:g}, "
        f"{least:.0%} are wanted"
        for row in detected
        if row["kept"] < least * row["above"]
    ]


def channels_told(spans: Iterable[Sequence[int]]) -> str:
    """Returns "channels 0 to 3, 7" for pairs of first and last."""
    told = [f"{a}" if a == b else f"{a} to {b}" for a, b in spans]
    return f"channels {', '.join(told)}"


def snr_told(measures: Mapping[str, Any], form: str = "{:.1f} dB") -> str:
    """Returns the SNR of ``measures`` for people: "30.1 dB", "exact" or "not known".

    Args:
        measures: ``snr_db``, and ``exact`` or ``max_abs``, which say what its None means.
        form: Of the figure.
    """
    value, exact = measures.get("snr_db"), measures.get("exact")
    if exact is None:  # as of groups in older documents
        exact = not measures.get("max_abs")
    return decibels(value, value is None and exact, form)


def metric_told(measures: Mapping[str, Any], metric: str) -> str:
    """Returns a gate's metric of ``measures`` for people, to six digits."""
    form = "{:.6g}"
    return snr_told(measures, form) if metric == "snr_db" else form.format(measures[metric])
