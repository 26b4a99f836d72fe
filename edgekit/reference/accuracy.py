"""The error of a build against ONNX Runtime's FP32, whole and segment by segment, and the node
that first writes values that are not finite.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import onnx

from edgekit.errors import DataError
from edgekit.network.loading.opaque import before_opaque
from edgekit.network.model import Model
from edgekit.network.session import session
from edgekit.network.streaming import (
    group_inputs,
    is_large,
    model_session,
    run_group,
)
from edgekit.reference.artefacts import Artefacts, EngineSegment
from edgekit.reference.run import Runner, open_engine
from edgekit_device.detection.matching import Boxes, Detection, MatchedBoxes
from edgekit_device.protocol import fields
from edgekit_device.protocol.codec import (
    document,
    flag,
    member,
    nullable,
    record,
    records,
)
from edgekit_device.runtime.deviation import (
    COLLAPSED_COSINE,
    HARDLY,
    SCORE,
    Deviation,
    Measures,
    SimilarChannels,
    decibels,
    worst_measures,
)

# Outputs that are NaN or infinite although the network's FP32 is finite, and their first node.
#
# An average of cosines shows such an output as 0, which suggests the wrong fault.


#: With fewer objects, shares are not meaningful.
FEW_OBJECTS = 20
_TRIED = 24  # tensors that are computed in FP32, too; masks are infinite in FP32, too
#: Text for an accuracy whose outputs are nearly the same for all inputs.
NOT_KNOWN = "unknown, because the outputs hardly differ between the inputs"


@document(frozen=True, kw_only=True)
class ChannelGroup(SimilarChannels):
    """Channels of an output whose ranges are alike, and different from the other channels'.

    Attributes:
        output: The output.
        channels: Pairs of first and last channel.
        range: Largest magnitude.
        snr_db: As in ``Measures``.
        exact: As in ``Measures``.
        cosine: Cosine similarity of the group.
        worst: Its worst channel.
        collapsed: True if a constant would be as near as the result, or the cosine is below 0.9.
    """

    output: str = member(fields.name)


@document(frozen=True)
class KeptScores:
    """A detector's scores above 0.25, and how many stay above 0.25.

    Attributes:
        above: Number of FP32's scores above 0.25.
        kept: Number of these that are above 0.25 in the build, too.
    """

    output: str = member(fields.name)
    above: int = member(fields.count)
    kept: int = member(fields.count)


@document(frozen=True)
class NodePlace:
    """A node, and the segment and device that compute it.

    Attributes:
        segment: Number of the segment.
    """

    node: str = member(fields.name)
    segment: int = member(fields.count)
    device: str = member(fields.device)


@document(frozen=True)
class NonfiniteOutput:
    """An output with NaN or infinity although FP32 is finite there.

    Attributes:
        output: The output.
        what: "NaN", "infinity", or both.
        inputs: Number of inputs with such values.
        since: The first node whose result is not finite; None if it is not found.
        message: The finding as a sentence.
    """

    output: str = member(fields.name)
    what: str = member(fields.name)
    inputs: int = member(fields.count)
    since: NodePlace | None = member(nullable(record(NodePlace)))
    message: str = member(fields.name)


@document(frozen=True)
class ConstantOutput:
    """An output that is nearly the same for all inputs, so that its figures are not meaningful.

    ``message`` is the finding as a sentence.

    Attributes:
        variation: Share of the FP32 output's root mean square that differs between the inputs, 0
            to 1.
    """

    output: str = member(fields.name)
    variation: float = member(fields.share)
    message: str = member(fields.name)


@document(frozen=True, kw_only=True)
class SegmentMeasures(Measures):
    """The error of a segment's outputs, accumulated from the network's inputs.

    Attributes:
        segment: Its index.
        device: Its device.
        tensor: The worst output.
        constant: True if all its outputs are nearly the same for all inputs.
        lane: The plan variant; None if only one variant was compared.
    """

    segment: int = member(fields.count)
    device: str = member(fields.device)
    tensor: str = member(fields.name)
    constant: bool = member(flag)
    lane: int | None = member(fields.count, absent=None)


@document(frozen=True, kw_only=True)
class Accuracy(Measures):
    """The error of a build against the FP32 model, over outputs that vary between inputs, if any.

    Attributes:
        judged: True if any output varies; otherwise no gate judges by these figures.
        top1_agreement: Share of inputs whose largest value of the first output is at the same
            place, 0 to 1.
        count: Number of inputs.
        nonfinite: Outputs with NaN or infinity.
        constant: Outputs that are nearly the same for all inputs; unknown with a single input.
        groups: Groups of channels of outputs whose ranges differ.
        scores: A detector's scores and how many are kept.
        objects: The objects that the head decodes; None without a head.
        failures: Faults that the figures of the whole may hide: collapsed groups, segments with a
            cosine below 0.9, lost scores and objects; empty if there are none.
        per_segment: The error of each segment.
        data: Description of the measured inputs; empty if not named.
    """

    judged: bool = member(flag)
    top1_agreement: float = member(fields.share)
    count: int = member(fields.count)
    nonfinite: tuple[NonfiniteOutput, ...] = member(records(NonfiniteOutput))
    constant: tuple[ConstantOutput, ...] = member(records(ConstantOutput))
    groups: tuple[ChannelGroup, ...] = member(records(ChannelGroup))
    scores: tuple[KeptScores, ...] = member(records(KeptScores))
    objects: MatchedBoxes | None = member(record(MatchedBoxes), absent=None)
    failures: tuple[str, ...] = member(fields.names)
    per_segment: tuple[SegmentMeasures, ...] = member(records(SegmentMeasures))
    data: str = member(fields.name, absent="")

    @property
    def boxes(self) -> float | None:
        """The F1 score of the build's objects against FP32's, 0 to 1; None without a head."""
        return None if self.objects is None else self.objects.share


class Nonfinite:
    """Collects NaNs and infinities in a build's outputs.

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
        """Adds an output of an inference, whose FP32 is finite."""
        if value.dtype.kind != "f" or np.isfinite(value).all():
            return
        kinds = self._found.setdefault(name, {"inputs": 0, "NaN": 0, "infinity": 0})
        kinds["inputs"] += 1
        kinds["NaN"] += int(np.isnan(value).any())
        kinds["infinity"] += int(np.isinf(value).any())
        # one input is enough to find the node
        self._feeds.setdefault(name, feed)

    def rows(self, count: int) -> tuple[NonfiniteOutput, ...]:
        """Returns each output with such values; ``count`` is the number of inputs."""
        found = []
        # outputs mostly share an input, and each search runs the build with all tensors; ``_feeds``
        # keeps the inputs, so that ids stay unique
        known: dict[int, NodePlace | None] = {}
        for name, kinds in self._found.items():
            feed = self._feeds[name]
            if id(feed) not in known:
                known[id(feed)] = self._first_nonfinite(feed)
            since = known[id(feed)]
            what = " and ".join(kind for kind in ("NaN", "infinity") if kinds[kind])
            text = f"output {name!r} has {what} for {kinds['inputs']} of {count} inputs"
            if since:
                text += (
                    f", first written by node {since.node!r} in segment {since.segment} "
                    f"on {since.device}"
                )
            text += "; FP32 has finite numbers there (limit of FP16: 65,504)"
            found.append(NonfiniteOutput(name, what, kinds["inputs"], since, text))
        return tuple(found)

    def _first_nonfinite(self, feed: Mapping[str, np.ndarray]) -> NodePlace | None:
        """Returns the first node whose output is not finite, but finite in FP32."""
        writers = {
            tensor: node.name for node in self._model.proto.graph.node for tensor in node.output
        }
        tensors = self._runner.run(feed, observe=True)
        for segment in self._runner.segments:
            inside = _results_inside(self._runner.artefacts, segment, tensors)
            bad = (
                # the reference build names its own tensors after a tensor, as in x#part
                name.partition("#")[0]
                for name, value in inside.items()
                if value.dtype.kind == "f" and not np.isfinite(value).all()
            )
            names = [name for name in dict.fromkeys(bad) if name in writers][:_TRIED]
            values = session(self._model, outputs=names).run(names, dict(feed)) if names else []
            for name, value in zip(names, values, strict=True):
                if np.isfinite(value).all():
                    return NodePlace(writers[name], segment.index, segment.device)
        return None


def _results_inside(
    artefacts: Artefacts, segment: EngineSegment, tensors: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Returns all results of a segment's nodes in their order, computed from its inputs."""
    proto = onnx.ModelProto.FromString(artefacts.engines[segment.engine])
    names = [name for node in proto.graph.node for name in node.output if name]
    del proto.graph.output[:]
    proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    session = open_engine(
        proto.SerializeToString(),
        artefacts.weights,
        artefacts.values,
        f"segment {segment.index}",
        plugins=artefacts.functions,
    )
    feed = {name: tensors[name] for name in segment.inputs}
    return dict(zip(names, session.run(names, feed), strict=True))


class Float32Reference:
    """A model in ONNX Runtime FP32, for several comparisons on the same inputs.

    Args:
        model: The model; if it has opaque layers, the part before these runs.
        room: Bytes of outputs that are kept for further comparisons.
    """

    def __init__(self, model: Model, *, room: int = 0) -> None:
        self.model = before_opaque(model)
        self._room = room
        self._kept: dict[tuple[tuple[str, ...], int], list[np.ndarray]] = {}
        self._sessions: dict[tuple[str, ...], Any] = {}

    @property
    def streams(self) -> bool:
        """True if the model runs in pieces."""
        return is_large(self.model.weights)

    @property
    def between(self) -> int:
        """Bytes that an input keeps between the pieces of a streamed model; 0 if not streamed."""
        return max((getattr(item, "between", 0) for item in self._sessions.values()), default=0)

    def outputs(
        self, names: Sequence[str], first: int, group: Sequence[Mapping[str, np.ndarray]]
    ) -> list[list[np.ndarray]]:
        """Returns these tensors for each input of a group; computed, or kept from before.

        Args:
            names: The tensors.
            first: The number of the group's first input among all.
            group: The inputs.
        """
        wanted = tuple(names)
        keys = [(wanted, first + index) for index in range(len(group))]
        missing = [index for index, key in enumerate(keys) if key not in self._kept]
        if missing and wanted not in self._sessions:
            self._sessions[wanted] = model_session(self.model, outputs=names)
        computed = (
            run_group(self._sessions[wanted], names, [group[index] for index in missing])
            if missing
            else []
        )
        made = dict(zip(missing, computed, strict=True))
        found = [made[i] if i in made else self._kept[key] for i, key in enumerate(keys)]
        for index in missing:
            size = sum(value.nbytes for value in made[index])
            if size <= self._room:
                self._room -= size
                self._kept[keys[index]] = made[index]
        return found


def accuracy(
    model: Model | Float32Reference,
    artefacts: Artefacts,
    data: Iterable[Mapping[str, np.ndarray]],
    *,
    outputs: Sequence[str] | None = None,
    lane: int = 0,
    scores: float = 0.0,
    detection: Detection | None = None,
) -> Accuracy:
    """Compares a reference build with the model in ONNX Runtime FP32.

    Args:
        model: The FP32 model; if it has opaque layers, the part before these is compared. Pass a
            ``Float32Reference`` to compare several builds on the same inputs.
        artefacts: A build of the model.
        data: Inputs by name, one dict an inference; read once.
        outputs: Outputs to compare; all when None.
        lane: The plan variant to run.
        scores: Share of a detector's scores above 0.25 that must stay above it; with
            ``detection`` the share of its objects, too.
        detection: Decoding of the outputs to objects; None without objects.

    Raises:
        DataError: No data, or data that do not fit.
        BuildError: ONNX Runtime failed in an engine.
    """
    reference = model if isinstance(model, Float32Reference) else Float32Reference(model)
    runner = Runner(artefacts, lane=lane)
    wanted = list(outputs or artefacts.outputs)
    # segments are compared at their outputs
    borders = [name for segment in runner.segments for name in segment.outputs]
    names = list(dict.fromkeys([*wanted, *borders]))
    # channel by channel for outputs only: inner tensors have too many
    errors = {name: Deviation(by_channel=name in wanted) for name in names}
    nonfinite = Nonfinite(reference.model, runner)
    boxes = None if detection is None else Boxes(detection.options)
    sums: dict[str, np.ndarray] = {}
    count = 0
    for feed, found, values in _compare_inputs(runner, reference, names, data):
        for name, value in zip(names, values, strict=True):
            # masks inside the network may be infinite
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
        if boxes is not None and detection is not None:
            real = dict(zip(names, values, strict=True))
            boxes.add(detection.objects(real), detection.objects(found))
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
    whole = worst_measures([errors[name] for name in varying or wanted])
    segments = [_segment_measures(segment, errors, varied) for segment in runner.segments]
    groups, detected = _parts({name: errors[name] for name in wanted})
    groups = [
        # the SNR of an output that hardly varies is not meaningful
        group
        if group.output in varying
        else replace(group, collapsed=group.cosine < COLLAPSED_COSINE)
        for group in groups
    ]
    objects = None if boxes is None else boxes.result()
    lost_objects = []
    if objects is not None and objects.expected >= FEW_OBJECTS and objects.share < scores:
        lost_objects.append(
            f"{objects.share:.3f} of the objects match ({objects}), {scores:g} are wanted"
        )
    return Accuracy(
        **vars(whole),
        judged=bool(varying),
        top1_agreement=first.top1_agreement(),
        count=count,
        nonfinite=nonfinite.rows(count),
        constant=tuple(
            ConstantOutput(
                name,
                share,
                f"output {name!r} differs by {100 * share:.2g} % between the inputs, as with "
                "random weights: these figures do not show the network's accuracy",
            )
            for name in wanted
            if (share := varied[name]) < HARDLY
        ),
        groups=tuple(groups),
        scores=tuple(detected),
        objects=objects,
        failures=(
            *_failures(segments, groups),
            *_describe_lost_scores(detected, scores),
            *lost_objects,
        ),
        per_segment=tuple(segments),
    )


def _compare_inputs(
    runner: Runner,
    reference: Float32Reference,
    names: Sequence[str],
    data: Iterable[Mapping[str, np.ndarray]],
) -> Iterator[tuple[Mapping[str, np.ndarray], dict[str, np.ndarray], list[np.ndarray]]]:
    """Yields each input with the build's tensors and FP32's."""
    count = 0
    # a group shares each loading of streamed weights, and fits into memory on both sides
    for group in group_inputs(data, [runner, reference]):
        found = runner.run_group(group, observe=True)
        yield from zip(group, found, reference.outputs(names, count, group), strict=True)
        count += len(group)


def collapses(errors: Mapping[str, Deviation], scores: float) -> list[str]:
    """Returns sentences on outputs whose groups of channels collapse or that lose too many scores.

    Args:
        errors: Errors by output, summed by channel.
        scores: Share of a detector's scores above 0.25 that must stay above it.
    """
    groups, detected = _parts(errors)
    return [*_failures((), groups), *_describe_lost_scores(detected, scores)]


def _parts(errors: Mapping[str, Deviation]) -> tuple[list[ChannelGroup], list[KeptScores]]:
    """Returns the groups of channels of outputs, and the kept scores."""
    groups = [
        ChannelGroup(**vars(group), output=name)
        for name, error in errors.items()
        for group in error.groups()
    ]
    detected = [
        KeptScores(name, *shares)
        for name, error in errors.items()
        if (shares := error.scores()) is not None
    ]
    return groups, detected


def _variation(total: np.ndarray, error: Deviation) -> float:
    """Returns the variation of a tensor over the inputs, from its sum over the inputs.

    That is the root mean square of its differences from its mean over the inputs, as a share of
    its root mean square; 1 with a single input.
    """
    count = len(error.cosines)
    size = count * error.total_squares
    # square of the mean over mean of the squares: 1 if all inputs give the same
    mean = float(total.ravel() @ total.ravel()) / size if size > 0 else 1.0
    return math.sqrt(max(1.0 - mean, 0.0)) if count > 1 and math.isfinite(mean) else 1.0


def _segment_measures(
    segment: EngineSegment, errors: Mapping[str, Deviation], varied: Mapping[str, float]
) -> SegmentMeasures:
    worst = min(segment.outputs, key=lambda name: worst_measures([errors[name]]).cosine, default="")
    return SegmentMeasures(
        segment=segment.index,
        device=segment.device,
        tensor=worst,
        **vars(worst_measures([errors[name] for name in segment.outputs])),
        constant=all(varied[name] < HARDLY for name in segment.outputs),
    )


def _failures(segments: Iterable[SegmentMeasures], groups: Iterable[ChannelGroup]) -> list[str]:
    found = [
        f"channels {describe_channels(group.channels)} of output {group.output!r} collapse: SNR "
        f"{describe_snr(group)}, cosine {group.cosine:.3g} (worst is channel "
        f"{group.worst.channel}, {describe_snr(group.worst)})"
        for group in groups
        if group.collapsed
    ]
    return found + [
        f"the cosine of tensor {part.tensor!r} of segment {part.segment} "
        f"({part.device}) is {part.cosine:.3g}, below {COLLAPSED_COSINE:g}"
        for part in segments
        if part.cosine < COLLAPSED_COSINE
    ]


def describe_parts(
    groups: Iterable[ChannelGroup], scores: Iterable[KeptScores], constant: Collection[str]
) -> list[str]:
    """Returns sentences on outputs whose channels differ in range: worst channels, kept scores.

    Args:
        groups: The groups of channels.
        scores: The scores of a detector.
        constant: Outputs that hardly differ between the inputs: their SNR is left out.
    """
    worst: dict[str, ChannelGroup] = {}
    for group in groups:
        if group.output in constant:
            continue
        known = worst.get(group.output)
        if known is None or _rank(group.snr_db) < _rank(known.snr_db):
            worst[group.output] = group
    warnings = [
        f"of output {name!r}, channels {describe_channels(group.channels)} "
        f"(up to {group.range:.3g}) are the worst: SNR {describe_snr(group)}, "
        f"channel {group.worst.channel} {describe_snr(group.worst)}"
        for name, group in worst.items()
    ]
    return warnings + [
        f"output {row.output!r} keeps {row.kept} of {row.above} scores above {SCORE:g}"
        for row in scores
    ]


def _rank(snr_db: float | None) -> float:
    return math.inf if snr_db is None else snr_db


def _describe_lost_scores(detected: Iterable[KeptScores], least: float) -> list[str]:
    return [
        f"output {row.output!r} keeps {row.kept} of {row.above} scores above {SCORE:g}, "
        f"{100 * least:.0f} % are wanted"
        for row in detected
        if row.kept < least * row.above
    ]


def describe_channels(spans: Iterable[Sequence[int]]) -> str:
    """Returns "0 to 3, 7" for pairs of first and last."""
    return ", ".join(f"{a}" if a == b else f"{a} to {b}" for a, b in spans)


class _Ratio(Protocol):
    """An SNR; ``exact`` is True if its None means equal bits."""

    @property
    def snr_db(self) -> float | None: ...
    @property
    def exact(self) -> bool | None: ...


def describe_snr(measures: _Ratio, form: str = "{:.1f} dB") -> str:
    """Returns an SNR for people: "30.1 dB", "exact" or "unknown"; ``form`` formats the figure."""
    return decibels(measures.snr_db, measures.snr_db is None and bool(measures.exact), form)


def describe_metric(accuracy: Accuracy, metric: str) -> str:
    """Returns a gate's metric for people, to six digits."""
    form = "{:.6g}"
    if metric == "snr_db":
        return describe_snr(accuracy, form)
    return form.format(getattr(accuracy, metric))


def accuracy_text(accuracy: Accuracy, figures: str, metric: str, minimum: float | None) -> str:
    """Returns ``figures``, or a text that the accuracy is unknown and no gate judges it.

    Args:
        accuracy: The build's accuracy.
        figures: The text if the accuracy is known.
        metric: The gate's metric.
        minimum: The gate's lowest value; None without a gate.
    """
    if not accuracy.constant:
        return figures
    unjudged = minimum is not None and not accuracy.judged
    return f"accuracy {NOT_KNOWN}" + (
        f"; accuracy.min ({metric}) is not checked" if unjudged else ""
    )


def accuracy_of_variants(
    model: Model | Float32Reference,
    artefacts: Artefacts,
    data: Callable[[int, int], Iterable[Mapping[str, np.ndarray]]],
    *,
    scores: float,
    detection: Detection | None = None,
) -> Accuracy:
    """Compares all plan variants of a build; returns the figures of the worst variant.

    ``per_segment`` and ``failures`` are of all variants. Variants that differ only in the DLA core
    are compared once.

    Args:
        model: As in ``accuracy``.
        artefacts: As in ``accuracy``.
        data: Returns the inputs for a variant, by its number and the number of variants.
        scores: As in ``accuracy``.
        detection: As in ``accuracy``.

    Raises:
        EdgekitError: As in ``accuracy``.
    """
    lanes: dict[tuple[str, ...], int] = {}
    for lane, (_, parts) in enumerate(artefacts.lanes):
        # equal engines give equal results, whatever core runs them
        lanes.setdefault(tuple(part.engine for part in parts), lane)
    found = [
        (
            lane,
            accuracy(
                model,
                artefacts,
                data(number, len(lanes)),
                lane=lane,
                scores=scores,
                detection=detection,
            ),
        )
        for number, lane in enumerate(lanes.values())
    ]
    worst = min((made for _, made in found), key=lambda made: made.cosine)
    fewest = min((made for _, made in found), key=lambda made: made.boxes or 0.0)
    segments = (replace(part, lane=lane) for lane, made in found for part in made.per_segment)
    failures = dict.fromkeys(text for _, made in found for text in made.failures)
    return replace(
        worst, objects=fewest.objects, failures=tuple(failures), per_segment=tuple(segments)
    )
