"""Chooses the calibration method whose INT8 is nearest to FP32 for a plan, on held-out inputs."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice

import numpy as np

from edgekit.errors import DataError
from edgekit.network.session import session
from edgekit.placement.segments import SegmentedPlan
from edgekit.quantize.calibration.histograms import METHODS
from edgekit.quantize.scales import Ranges, Scales
from edgekit.reference.accuracy import Accuracy, collapses, describe_metric
from edgekit.reference.build import build_reference
from edgekit.reference.gate import GateChoice
from edgekit.reference.proposal import reaches
from edgekit.reference.run import Runner
from edgekit.reference.weights import WeightStore
from edgekit.text import counted, listed
from edgekit_device.protocol import fields
from edgekit_device.protocol.codec import (
    array,
    choice,
    document,
    mapping,
    member,
    number,
    record,
    text,
)
from edgekit_device.runtime.deviation import Deviation, decibels, worst_measures

Feed = Mapping[str, "np.ndarray"]
# numbers of inputs after which the methods are compared, until the best is known well enough
COMPARED = (8, 16, 32, 64)
# inputs for all methods: by multiply-accumulates (ResNet-50: 15), at least, at most. The share of a
# method that is surely not the best goes to the others
_MACS, _FEWEST, _MOST = 64_000_000_000, 8, 64
# a method is dropped when it is surely worse than the best (standard errors); the best is known
# when no other method can be ahead by more than this (dB)
_SURE, _NEGLIGIBLE_DB = 3.0, 1.0
_EXACT, _WORST = 999.0, -999.0
# engines stay loaded if their weights take at most this many bytes: loading a fully connected layer
# takes as long as twenty inferences
_LOADED_BYTES = 1 << 29
# if the data have no inputs beyond the measured inputs, the ranges of each half are measured again,
# of at most this many inputs
_RETAINED = 64
_HELD_BYTES = 1 << 28
# its square is finite
_INFINITE = 1e60
_method = choice(*METHODS)
_decibels = mapping(number(-1000, 1000), _method)


@document(frozen=True)
class MethodChoice:
    """The chosen calibration method, with its figures.

    Attributes:
        method: The method.
        snr_db: SNR by method, of the worst output, or group of its channels if their ranges
            differ; 999 if every bit is the same, -999 if the result is not finite.
        measured_snr_db: SNR over the measured inputs of methods within 1 dB of the best, if there
            are several.
        compared: Number of inputs compared, by method.
        failures: Collapsed groups and lost scores, by method that has any.
        inputs: Largest number of inputs.
        held_out: Number of these inputs that the ranges had not seen.
        gate: The accuracy gate's choice instead; None if the gate kept the choice.
    """

    method: str = member(_method)
    snr_db: Mapping[str, float] = member(_decibels)
    measured_snr_db: Mapping[str, float] = member(_decibels)
    compared: Mapping[str, int] = member(mapping(fields.count, _method))
    failures: Mapping[str, tuple[str, ...]] = member(mapping(array(text(most=1 << 20)), _method))
    inputs: int = member(fields.count)
    held_out: int = member(fields.count)
    gate: GateChoice | None = member(record(GateChoice), absent=None)


@document(frozen=True)
class HeldOutInput:
    """An input to compare on, its ranges, and True if the ranges were measured without it."""

    feed: Feed
    ranges: Ranges
    held_out: bool


def inputs_to_compare(
    ranges: Ranges,
    beyond: Callable[[], Iterable[Feed]],
    inputs: Iterable[Feed],
    measure: Callable[[Sequence[Feed], str], Ranges],
) -> Iterator[HeldOutInput]:
    """Yields inputs to compare on, beginning with inputs that the ranges leave out.

    Args:
        ranges: Ranges measured on ``inputs``.
        beyond: Returns further inputs, up to the first damaged input.
        inputs: The measured inputs.
        measure: Measures the ranges of a half of the inputs, "first" or "second".
    """
    found = 0
    # an unneeded input may be damaged
    with suppress(DataError):
        for feed in beyond():
            yield HeldOutInput(feed, ranges, held_out=True)
            found += 1
    if found:
        for feed in inputs:
            yield HeldOutInput(feed, ranges, held_out=False)
        return
    retained: deque[Feed] = deque()
    size = 0
    for feed in inputs:
        retained.append(feed)
        size += sum(value.nbytes for value in feed.values())
        # the last inputs stay; two are needed for two halves
        while len(retained) > _RETAINED or (size > _HELD_BYTES and len(retained) > 2):
            size -= sum(value.nbytes for value in retained.popleft().values())
    every = list(retained)
    if len(every) == 1:
        yield HeldOutInput(every[0], ranges, held_out=False)
        return
    half = len(every) // 2
    parts = every[:half], every[half:]
    # each half with the ranges of the other, so that no range has seen its inputs
    others = measure(parts[1], "second"), measure(parts[0], "first")
    # alternately from each half
    for i in range(half):
        for part, own in zip(parts, others, strict=True):
            yield HeldOutInput(part[i], own, held_out=True)


def compare_methods(
    errors: MethodErrors,
    inputs: Iterator[HeldOutInput],
    measured: Callable[[], Iterable[HeldOutInput]],
) -> MethodChoice:
    """Compares the methods with FP32 until the best is known well enough.

    A few inputs have much larger INT8 errors than the others: a single input of 64 can have more
    than half of the squared error over all inputs, so that any 16 would choose by chance.
    Therefore the mean of the inputs' RMS errors is compared. More inputs are taken until no method
    can be more than 1 dB ahead of the best by three standard errors.

    Of the methods within 1 dB of the best, the method with the best SNR over the measured inputs,
    computed as in the accuracy, is chosen: there an odd input counts.

    A method with which groups of channels collapse, or a detector loses its scores, is chosen only
    if all others do the same.

    Args:
        errors: The errors of the methods.
        inputs: Inputs to compare on.
        measured: Returns the inputs that accuracy is measured on.

    Raises:
        BuildError: ONNX Runtime fails.
    """
    for until in COMPARED:
        batch = list(islice(inputs, min(until - errors.count, errors.affordable)))
        if batch:
            errors.add(batch)
        if not batch or errors.is_decided():
            break
    errors.settle(measured)
    return errors.choice()


def most_inputs(macs: int) -> int:
    """Returns the number of inputs for each method, by a network's multiply-accumulates."""
    return min(max(_MACS // max(1, macs), _FEWEST), _MOST)


class MethodErrors:
    """The output errors of the methods' INT8, by input.

    Args:
        segments: The plan that is built.
        scales_of: Returns a method's scales for the plan, from ranges.
        scores: Share of a detector's scores above 0.25 that must stay above it.
        most: Number of inputs for each method if all are compared to the end.
        update: Called with (inferences done, inferences in all, description of the step).

    Attributes:
        count: Number of inputs so far.
    """

    def __init__(
        self,
        segments: SegmentedPlan,
        scales_of: Callable[[Ranges, str], Scales],
        scores: float,
        most: int,
        update: Callable[[int, int, str], None],
    ) -> None:
        self.count = self._held_out = self._runs = 0
        self._scales_of, self._scores, self._update = scales_of, scores, update
        self._segments = segments
        runnable = self._segments.runnable.model
        self._names = list(runnable.graph.outputs)
        self._reference = session(runnable, outputs=self._names)
        self._weights = WeightStore(runnable)
        self._loaded: dict[str, Runner] = {}
        self._measured: dict[str, float] = {}
        self._found: dict[str, list[dict[str, Deviation]]] = {name: [] for name in METHODS}
        self._left = list(METHODS)
        self._most_runs = most * len(METHODS)

    @property
    def affordable(self) -> int:
        """Number of further inputs for the remaining methods; 0 for a few."""
        more = (self._most_runs - self._runs) // len(self._left)
        return more if more >= _FEWEST // 2 else 0

    def add(self, inputs: Sequence[HeldOutInput]) -> None:
        """Compares on further inputs, each with the scales of its ranges."""
        text = f"comparing calibration methods on inputs {self.count + 1} to "
        text += f"{self.count + len(inputs)}"
        for method, found in self._compare(inputs, self._left, text).items():
            self._found[method] += found
        self.count += len(inputs)
        self._held_out += sum(tensor.held_out for tensor in inputs)

    def settle(self, measured: Callable[[], Iterable[HeldOutInput]]) -> None:
        """Compares the methods near the best on the inputs on which accuracy is measured.

        Their SNR is computed as in the accuracy.

        Args:
            measured: Returns these inputs.
        """
        near = self._methods_near_best()
        if len(near) < 2:
            return
        inputs = list(islice(measured(), self._most_runs // len(self._found)))
        # progress of this comparison begins anew
        self._runs, self._most_runs = 0, len(inputs) * len(near)
        text = "comparing the best calibration methods on the measured inputs"
        found = self._compare(inputs, near, text)
        for method, each in found.items():
            joined = [Deviation.join_all([item[name] for item in each]) for name in self._names]
            whole = worst_measures(joined)
            if whole.snr_db is None and not whole.exact:
                self._measured = {}  # the accuracy's SNR is unknown: no output varies
                return
            value = _EXACT if whole.exact or whole.snr_db is None else whole.snr_db
            self._measured[method] = round(value, 2)

    def _methods_near_best(self) -> list[str]:
        snr = {name: float(_worst_snr_db(self._noise(name).mean(axis=0))) for name in self._left}
        good = [name for name in self._left if not self._failures(name)] or self._left
        best = max(snr[name] for name in good)
        return [name for name in good if snr[name] > best - _NEGLIGIBLE_DB]

    def _compare(
        self, inputs: Sequence[HeldOutInput], methods: Sequence[str], text: str
    ) -> dict[str, list[dict[str, Deviation]]]:
        self._update(self._runs, self._most_runs, f"{text}: FP32")
        real = [self._reference.run(self._names, dict(tensor.feed)) for tensor in inputs]
        # by id: the inputs share at most two objects, and comparing their contents is slow
        different = {id(tensor.ranges): tensor.ranges for tensor in inputs}
        scales = {
            method: {key: self._scales_of(own, method) for key, own in different.items()}
            for method in methods
        }
        used = {own.digest for each in scales.values() for own in each.values()}
        # builds of dropped methods free their memory
        self._loaded = {digest: self._loaded[digest] for digest in used & self._loaded.keys()}
        known: dict[tuple[str, ...], list[dict[str, Deviation]]] = {}
        found = {}
        for method, each in scales.items():
            digests = tuple(own.digest for own in each.values())
            # methods with equal scales are the same build
            if digests in known:
                self._runs += len(inputs)
            else:
                known[digests] = self._run_build(inputs, real, each, f"{text}: {method}")
            found[method] = known[digests]
        return found

    def _run_build(
        self,
        inputs: Sequence[HeldOutInput],
        real: Sequence[Sequence[np.ndarray]],
        scales: Mapping[int, Scales],
        text: str,
    ) -> list[dict[str, Deviation]]:
        found: list[dict[str, Deviation]] = [{} for _ in inputs]
        for which, own in scales.items():
            self._update(self._runs, self._most_runs, text)
            runner = self._runner(own, len(scales))
            chosen = [index for index, item in enumerate(inputs) if id(item.ranges) == which]
            answers = runner.run_all(inputs[index].feed for index in chosen)
            for index, (_, outputs) in zip(chosen, answers, strict=True):
                self._runs += 1
                self._update(self._runs, self._most_runs, text)
                for name, value in zip(self._names, real[index], strict=True):
                    error = Deviation(by_channel=True)
                    error.add(value, outputs[name])
                    found[index][name] = error
        return found

    def _runner(self, scales: Scales, ranges: int) -> Runner:
        """Returns a loaded build; it stays loaded if all possible builds together are small."""
        if scales.digest in self._loaded:
            return self._loaded[scales.digest]
        built = build_reference(self._segments, scales, store=self._weights)
        runner = Runner(built)
        size = sum(value.nbytes for value in built.values.values())
        if size * len(self._found) * ranges <= _LOADED_BYTES:
            self._loaded[scales.digest] = runner
        return runner

    @property
    def by_output(self) -> dict[str, dict[str, list[Deviation]]]:
        """The errors of each input, by method and output."""
        return {
            method: {name: [errors[name] for errors in found] for name in self._names}
            for method, found in self._found.items()
        }

    def is_decided(self) -> bool:
        """Returns True if the best method is known well enough; drops methods that are worse.

        The standard errors of the gaps are from a jackknife over the inputs.
        """
        if self.count < 2:
            return False
        noise = {method: self._noise(method) for method in self._left}
        whole = {method: _worst_snr_db(each.mean(axis=0)) for method, each in noise.items()}
        apart = {
            method: _worst_snr_db((each.sum(axis=0) - each) / (self.count - 1))
            for method, each in noise.items()
        }
        best = min(self._left, key=lambda name: (bool(self._failures(name)), -float(whole[name])))
        left, is_decided = [best], True
        for other in self._left:
            if other == best:
                continue
            gap = float(whole[best] - whole[other])
            gaps = apart[best] - apart[other]
            # jackknife: (n - 1) / n times the sum of squares around the mean of the left-out gaps
            error = float(np.sqrt((self.count - 1) * np.mean((gaps - gaps.mean()) ** 2)))
            if gap <= _SURE * error or gap <= 0:
                left.append(other)
            # a method that fails is not chosen, however near it is
            near = _SURE * error - gap < _NEGLIGIBLE_DB
            is_decided &= near or bool(self._failures(other))
        self._left = [name for name in self._left if name in left]
        return is_decided

    def _noise(self, method: str) -> np.ndarray:
        """Returns the RMS error over the RMS signal, by input and by part of the outputs."""
        columns = []
        for each in self.by_output[method].values():
            joined = Deviation.join_all(each)
            for channels in joined.parts():
                signal = joined.variance(channels)
                # a constant part has no SNR
                if signal > 0:
                    errors = np.array([item.error(channels) for item in each])
                    columns.append(np.sqrt(errors / signal))
        noise = np.stack(columns, axis=1) if columns else np.zeros((len(self._found[method]), 1))
        # a result that is not finite is the worst, but must not make sums NaN
        found: np.ndarray = np.minimum(np.nan_to_num(noise, nan=_INFINITE), _INFINITE)
        return found

    def _failures(self, method: str) -> list[str]:
        outputs = self.by_output[method]
        joined = {name: Deviation.join_all(each) for name, each in outputs.items()}
        return collapses(joined, self._scores)

    def choice(self) -> MethodChoice:
        """Returns the best method and its figures."""
        snr = {
            name: round(float(_worst_snr_db(self._noise(name).mean(axis=0))), 2)
            for name in self._found
        }
        failures = {name: self._failures(name) for name in self._found}
        return MethodChoice(
            method=(
                max(self._measured, key=lambda name: (self._measured[name], snr[name]))
                if self._measured
                else min(self._left, key=lambda name: (bool(failures[name]), -snr[name]))
            ),
            snr_db=snr,
            measured_snr_db=self._measured,
            compared={name: len(found) for name, found in self._found.items()},
            failures={name: tuple(texts) for name, texts in failures.items() if texts},
            inputs=self.count,
            held_out=self._held_out,
        )


def _worst_snr_db(noise: np.ndarray) -> np.ndarray:
    """Returns the SNR of the worst part in dB, from RMS noise over signal."""
    with np.errstate(divide="ignore"):
        found = -20 * np.log10(noise.max(axis=-1))
    return np.asarray(np.where(np.isposinf(found), _EXACT, np.maximum(found, _WORST)))


def methods_are_equal(choice: MethodChoice) -> bool:
    """Returns True if all methods give the same result; then the first is taken."""
    figures = choice.snr_db, choice.measured_snr_db
    return not choice.failures and all(len(set(each.values())) <= 1 for each in figures)


def choice_note(choice: MethodChoice) -> str:
    """Returns sentences on the chosen method, its figures, and the failures of others."""
    chosen, snr, failures = choice.method, choice.snr_db, choice.failures
    measured, most = choice.measured_snr_db, choice.inputs
    where = _describe_inputs(choice)
    text = f"Calibration method: {chosen}."
    if methods_are_equal(choice):
        return (
            f"{text} All methods give the same SNR against FP32 on {where}: "
            f"{decibels(snr[chosen], False)} (emulated on this machine)"
        )
    # methods dropped after a few inputs have figures of only these inputs: they come last
    ranked = sorted(snr, key=lambda name: (choice.compared[name] < most, -float(snr[name])))
    early = [name for name in ranked if choice.compared[name] < most]
    out = [] if len(failures) == len(snr) else list(failures)
    compared = [name for name in ranked if name not in (*early, *out)]
    if measured:
        near = sorted(measured, key=lambda name: -float(measured[name]))
        text += (
            f" On {where}, {listed(sorted(near))} are within {_NEGLIGIBLE_DB:g} dB of the best "
            f"({_figures(snr, compared)}); of these {chosen} is nearest to FP32 on the inputs "
            f"that the ranges were measured on ({_figures(measured, near)})"
        )
    else:
        text += f" SNR against FP32 on {where}: {_figures(snr, compared)}"
    text += "; emulated on this machine"
    for name in (name for name in early if name not in out):
        count = counted(choice.compared[name], "input")
        text += f". {name} was clearly worse after {count} ({decibels(snr[name], False)})"
    if failures and not out:
        lost = failures[chosen][0]
        text += (
            f". Every method loses too much ({chosen}: {lost}). More or better data may help "
            "(calibration: {data: FOLDER, count: 500}); "
            "`edgekit calibrate MODEL --sensitivity` names the layers to keep in FP16"
        )
    for name in out:
        text += f". {name} ({decibels(snr[name], False)}) is not taken: {failures[name][0]}"
    return text


def _describe_inputs(choice: MethodChoice) -> str:
    """Returns a text on the number of compared inputs, and if the ranges include them."""
    text, known = counted(choice.inputs, "input"), choice.inputs - choice.held_out
    if not known:
        return f"{text} other than those of the ranges"
    if known == choice.inputs:
        return f"{text}, the same as those of the ranges"
    return f"{text}, {known} among those of the ranges"


def _figures(values: Mapping[str, float], names: Sequence[str]) -> str:
    return ", ".join(f"{name} {decibels(values[name], False)}" for name in names)


def choice_by_gate(
    found: Mapping[str, Accuracy], first: str, metric: str, minimum: float | None
) -> GateChoice:
    """Returns the method whose build is nearest to FP32 by the accuracy gate's metric.

    Args:
        found: The accuracy of each method's build, on the same inputs.
        first: The method that wins a tie.
        metric: A metric of ``gate.METRICS``.
        minimum: The lowest value that passes; None if the gate only forbids collapses.
    """

    def nearness(name: str) -> tuple[bool, int, float, bool]:
        accuracy = found[name]
        value = getattr(accuracy, metric)
        if value is None:  # no error, or no output varies
            value = -math.inf if accuracy.max_abs else math.inf
        return reaches(accuracy, metric, minimum), -len(accuracy.failures), value, name == first

    ranked = sorted(found, key=nearness, reverse=True)
    return GateChoice(
        method=ranked[0],
        metric=metric,
        figures={name: getattr(found[name], metric) for name in ranked},
        failures={name: found[name].failures for name in ranked if found[name].failures},
        passes=nearness(ranked[0])[0],
    )


def gate_note(
    by_gate: GateChoice,
    found: Mapping[str, Accuracy],
    minimum: float | None,
    first: str,
    inputs: str,
) -> str:
    """Returns a note on why the accuracy gate chose a method.

    Args:
        by_gate: The gate's choice.
        found: As for :func:`choice_by_gate`, likewise ``minimum``.
        minimum: The lowest value that passes, or None.
        first: Description of the method that missed the gate.
        inputs: Description of the compared inputs.
    """
    taken, metric = by_gate.method, by_gate.metric
    each = ", ".join(f"{name} {describe_metric(found[name], metric)}" for name in by_gate.figures)
    reach = "the accuracy gate" if minimum is None else f"{metric} {minimum:g}"
    figures = f"({metric} on {inputs}: {each})"
    lost = {name: texts[0] for name, texts in by_gate.failures.items()}
    if by_gate.passes:
        text = (
            f"Calibration method: {taken}, by the accuracy gate {figures}; {first} misses {reach}"
        )
        return text + "".join(f". {name} is not taken: {why}" for name, why in lost.items())
    text = f"No calibration method reaches {reach} with all layers in INT8 {figures}"
    if taken in lost:
        text += f"; {taken}, the best, fails because {lost[taken]}"
    return (
        f"{text}. The accuracy gate continues from the best, {taken}, and keeps layers in FP16; "
        "with more or better data fewer may be needed: calibration: {data: FOLDER, count: 500}"
    )
