"""How far a build is from ONNX Runtime's FP32, whole and segment by segment, and where it
first has values that are not finite.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from edgekit.errors import DataError
from edgekit.network.loading.opaque import before_opaque
from edgekit.network.model import Model
from edgekit.network.session import session
from edgekit.reference.artefacts import Artefacts, EngineSegment
from edgekit.reference.run import Runner, open_engine
from edgekit_device.arrays.deviation import (
    COLLAPSED_COSINE,
    HARDLY,
    SCORE,
    Deviation,
    decibels,
    worst_of,
)

# Outputs that are NaN or infinite although the network's FP32 has numbers there, and since where.
#
# An average of cosines shows such an output as 0; whoever reads that looks for the wrong fault.


_TRIED = 24  # tensors that are computed in FP32, too; masks are infinite in FP32, too
#: Of an accuracy whose outputs are nearly the same for all inputs.
NOT_KNOWN = "unknown, because the outputs hardly differ between the inputs"


class Nonfinite:
    """Collects what is not finite in a build's outputs.

    Args:
        model: The FP32 model.
        runner: The build.
    """

    def __init__(self, model: Model, runner: Runner) -> None:
        self._model = model
        self._runner = runner
        self._found: dict[str, dict[str, int]] = {}
        self._feeds: dict[str, Mapping[str, np.ndarray]] = {}

    def add(self, name: str, value: np.ndarray, feed: Mapping[str, np.ndarray]) -> None:
        """Takes in one output of one inference, whose FP32 is finite."""
        if value.dtype.kind != "f" or np.isfinite(value).all():
            return
        kinds = self._found.setdefault(name, {"inputs": 0, "NaN": 0, "infinity": 0})
        kinds["inputs"] += 1
        kinds["NaN"] += int(np.isnan(value).any())
        kinds["infinity"] += int(np.isinf(value).any())
        self._feeds.setdefault(name, feed)

    def rows(self, count: int) -> list[dict[str, Any]]:
        """Returns an object for each such output: ``output``, ``what``, ``inputs`` of ``count``,
        ``since`` (``node``, ``segment``, ``device``; None if it is not found), ``told``.
        """
        found = []
        known: dict[int, dict[str, Any] | None] = {}
        for name, kinds in self._found.items():
            feed = self._feeds[name]
            if id(feed) not in known:
                known[id(feed)] = self._since(feed)
            since = known[id(feed)]
            what = " and ".join(kind for kind in ("NaN", "infinity") if kinds[kind])
            text = f"output {name!r} has {what} for {kinds['inputs']} of {count} inputs"
            if since:
                text += (
                    f", first written by node {since['node']!r} in segment {since['segment']} "
                    f"on {since['device']}"
                )
            text += "; FP32 has finite numbers there (limit of FP16: 65,504)"
            found.append({"output": name, "what": what, "inputs": kinds["inputs"],
                          "since": since, "told": text})  # fmt: skip
        return found

    def _since(self, feed: Mapping[str, np.ndarray]) -> dict[str, Any] | None:
        """Returns the first node whose output is not finite although it is in FP32."""
        writers = {
            tensor: node.name for node in self._model.proto.graph.node for tensor in node.output
        }
        tensors = self._runner.run(feed, observe=True)
        for segment in self._runner.segments:
            inside = _inside(self._runner.artefacts, segment, tensors)
            bad = (
                name.partition("#")[0]
                for name, value in inside.items()
                if value.dtype.kind == "f" and not np.isfinite(value).all()
            )
            names = [name for name in dict.fromkeys(bad) if name in writers][:_TRIED]
            values = session(self._model, outputs=names).run(names, dict(feed)) if names else []
            for name, value in zip(names, values, strict=True):
                if np.isfinite(value).all():
                    return _place(writers[name], segment)
        return None


def _inside(
    artefacts: Artefacts, segment: EngineSegment, tensors: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Returns all that the nodes of a segment write, in their order, from what it reads."""
    proto = onnx.ModelProto.FromString(artefacts.engines[segment.engine])
    names = [name for node in proto.graph.node for name in node.output if name]
    del proto.graph.output[:]
    proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    session = open_engine(
        proto.SerializeToString(), artefacts.weights, artefacts.values, f"segment {segment.index}"
    )
    feed = {name: tensors[name] for name in segment.inputs}
    return dict(zip(names, session.run(names, feed), strict=True))


def _place(node: str, segment: EngineSegment) -> dict[str, Any]:
    return {"node": node, "segment": segment.index, "device": segment.device}


class Float32:
    """A model in ONNX Runtime FP32, for several comparisons on the same inputs.

    Args:
        model: The model; of one with opaque layers what comes before them runs.
        room: Bytes of outputs that are kept for further comparisons.
    """

    def __init__(self, model: Model, *, room: int = 0) -> None:
        self.model = before_opaque(model)
        self._room = room
        self._kept: dict[tuple[tuple[str, ...], int], list[np.ndarray]] = {}
        self._sessions: dict[tuple[str, ...], Any] = {}

    def outputs(
        self, names: Sequence[str], number: int, feed: Mapping[str, np.ndarray]
    ) -> list[np.ndarray]:
        """Returns these tensors for the input with this number; computed, or kept from before."""
        key = tuple(names), number
        if key in self._kept:
            return self._kept[key]
        if key[0] not in self._sessions:
            self._sessions[key[0]] = session(self.model, outputs=names)
        found: list[np.ndarray] = self._sessions[key[0]].run(list(names), dict(feed))
        size = sum(value.nbytes for value in found)
        if size <= self._room:
            self._room -= size
            self._kept[key] = found
        return found


def accuracy(
    model: Model | Float32,
    artefacts: Artefacts,
    data: Iterable[Mapping[str, np.ndarray]],
    *,
    outputs: Sequence[str] | None = None,
    lane: int = 0,
    scores: float = 0.0,
) -> dict[str, Any]:
    """Compares a reference build with the model in ONNX Runtime FP32.

    Args:
        model: The FP32 model; of one with opaque layers what comes before them is compared. A
            ``Float32`` where other builds are compared on the same inputs.
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
        a cosine below 0.9, lost scores; empty if all is well.
        JSON-ready: never NaN or infinite, an output that is not finite gives -999 dB.

    Raises:
        DataError: No data, or it does not fit.
        BuildError: ONNX Runtime failed in an engine.
    """
    reference = model if isinstance(model, Float32) else Float32(model)
    runner = Runner(artefacts, lane=lane)
    wanted = list(outputs or artefacts.outputs)
    borders = [name for segment in runner.segments for name in segment.outputs]
    names = list(dict.fromkeys([*wanted, *borders]))
    errors = {name: Deviation(by_channel=name in wanted) for name in names}
    nonfinite = Nonfinite(reference.model, runner)
    sums: dict[str, np.ndarray] = {}
    count = 0
    for feed in data:
        found = runner.run(feed, observe=True)
        for name, value in zip(names, reference.outputs(names, count, feed), strict=True):
            if name in wanted and value.dtype.kind == "f" and not np.isfinite(value).all():
                raise DataError(
                    f"the network gives NaN or infinity in {name!r} even in FP32",
                    code="accuracy.nonfinite",
                    where=f"input {count}",
                    hint="check the weights for NaN and the inputs for values out of range",
                )
            errors[name].add(value, found[name])
            with np.errstate(invalid="ignore"):  # FP32 may hold infinities between segments
                sums[name] = sums.get(name, 0.0) + value.astype(np.float64)
            if name in wanted:
                nonfinite.add(name, found[name], feed)
        count += 1
    if count == 0:
        raise DataError(
            "no data to measure the accuracy",
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
                "variation": share,
                "told": (
                    f"output {name!r} differs by {100 * share:.2g} % between the inputs, as with "
                    "random weights: these figures do not show the network's accuracy"
                ),
            }
            for name in wanted
            if (share := varied[name]) < HARDLY
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
    segment: EngineSegment, errors: Mapping[str, Deviation], varied: Mapping[str, float]
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
        f"{describe_channels(group['channels'])} of output {group['output']!r} collapse: SNR "
        f"{describe_snr(group)}, cosine {group['cosine']:.3g} (worst is channel "
        f"{group['worst']['channel']}, {describe_snr(group['worst'])})"
        for group in groups
        if group["collapsed"]
    ]
    return found + [
        f"the cosine of tensor {part['tensor']!r} of segment {part['segment']} "
        f"({part['device']}) is {part['cosine']:.3g}, below {COLLAPSED_COSINE:g}"
        for part in segments
        if part["cosine"] < COLLAPSED_COSINE
    ]


def describe_parts(accuracy: Mapping[str, Any]) -> list[str]:
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
    warnings = [
        f"of output {name!r}, {describe_channels(group['channels'])} (up to {group['range']:.3g}) "
        f"are the worst: SNR {describe_snr(group)}, channel {group['worst']['channel']} "
        f"{describe_snr(group['worst'])}"
        for name, group in worst.items()
    ]
    return warnings + [
        f"output {row['output']!r} keeps {row['kept']} of {row['above']} scores above {SCORE:g}"
        for row in accuracy.get("scores", ())
    ]


def _rank(group: Mapping[str, Any]) -> float:
    value = group["snr_db"]
    return float("inf") if value is None else float(value)


def _lost(detected: Iterable[Mapping[str, Any]], least: float) -> list[str]:
    return [
        f"output {row['output']!r} keeps {row['kept']} of {row['above']} scores above {SCORE:g}, "
        f"{100 * least:.0f} % are wanted"
        for row in detected
        if row["kept"] < least * row["above"]
    ]


def describe_channels(spans: Iterable[Sequence[int]]) -> str:
    """Returns "channels 0 to 3, 7" for pairs of first and last."""
    texts = [f"{a}" if a == b else f"{a} to {b}" for a, b in spans]
    return f"channels {', '.join(texts)}"


def describe_snr(measures: Mapping[str, Any], form: str = "{:.1f} dB") -> str:
    """Returns the SNR of ``measures`` for people: "30.1 dB", "exact" or "not known".

    Args:
        measures: ``snr_db``, and ``exact`` or ``max_abs``, which explain its None: no error, or
            nothing that varies.
        form: Of the figure.
    """
    value = measures.get("snr_db")
    exact = measures.get("exact", measures.get("max_abs") == 0)
    return decibels(value, value is None and exact, form)


def describe_metric(measures: Mapping[str, Any], metric: str) -> str:
    """Returns a gate's metric of ``measures`` for people, to six digits."""
    form = "{:.6g}"
    return describe_snr(measures, form) if metric == "snr_db" else form.format(measures[metric])
