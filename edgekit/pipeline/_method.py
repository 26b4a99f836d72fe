"""``calibration.method: auto``: the method whose INT8 is nearest to FP32 on inputs held out."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from edgekit._listed import counted
from edgekit.errors import DataError, EdgekitError
from edgekit.pipeline._calibrating import runs_told

if TYPE_CHECKING:
    import numpy as np

    from edgekit.build import Deviation, Runner
    from edgekit.pipeline._placing import Placing
    from edgekit.placement import Plan
    from edgekit.quantize import Ranges, Scales

__all__ = ["Errors", "Input", "all_alike", "choice_note", "choose_method", "plan_to_try"]

Feed = Mapping[str, "np.ndarray"]

# inputs after which the methods are compared, until the best is known well enough
_COMPARED = (8, 16, 32, 64)
# how many inputs all methods may take: by multiply-accumulates (ResNet-50: 15), at least, at most.
# What a method that is surely not the best no longer takes is left to the others
_MACS, _FEWEST, _MOST = 64_000_000_000, 8, 64
# a method is no longer compared when it is surely behind the best (standard errors), and the best
# is known when no other one can be further ahead of it than this (dB)
_SURE, _BEHIND = 3.0, 1.0
# where the data hold no inputs beyond those measured, the ranges of each half of them are measured
# once more: of so many of them
_KEPT = 64
_HELD_BYTES = 1 << 28
_EXACT, _WORST = 999.0, -999.0
# engines stay loaded where their weights take at most so many bytes: to load a fully connected
# layer takes as long as twenty inferences
_LOADED_BYTES = 1 << 29
# no square of it is infinite
_INFINITE = 1e60


def choose_method(work: Placing, plan: Plan) -> dict[str, Any]:
    """Builds a plan with the scales of each method and compares them with FP32.

    The inputs are such as the ranges were not measured on: those of the data that follow, or
    further synthetic ones; where there are too few, the measured ones are added. Where the data
    hold no others, each half of them is compared on with the ranges of the other half; a single
    input is both.

    A few inputs cost INT8 much more than the others: in a squared error over all inputs one of 64
    can have more than half, so that any 16 would choose by chance. What is compared is therefore
    the mean of the inputs' RMS errors; and more inputs are taken until no method can be more than
    1 dB ahead of the best by three standard errors.

    Of the methods that are within 1 dB of the best, the one with the best SNR as the accuracy has
    it, over the measured inputs, is taken: there an odd input counts.

    A method with which groups of channels collapse, or a detector loses its scores, is chosen only
    where all others do the same.

    Returns:
        ``method``; ``snr_db`` by method (of the worst output, or group of its channels where their
        ranges differ; 999 where every bit is the same, -999 where the result is not finite);
        ``measured_snr_db`` of methods that were within 1 dB of the best, where several were;
        ``compared``, on how many inputs, by method; ``failures`` by method, where there are any;
        ``inputs``, how many there were at most; ``held_out``, how many of them the ranges had not
        seen.

    Raises:
        BuildError: ONNX Runtime fails.
    """
    macs = max(1, sum(layer.macs for layer in work.network.layers))
    errors = Errors(work, plan, most=min(max(_MACS // int(macs), _FEWEST), _MOST))
    inputs = _inputs(work)
    for until in _COMPARED:
        batch = list(islice(inputs, min(until - errors.count, errors.affordable)))
        if batch:
            errors.add(batch)
        if not batch or errors.decided():
            break
    errors.settle()
    return errors.choice()


class Errors:
    """What the methods' INT8 costs the outputs, by input.

    Args:
        most: How many inputs each method may take when all are compared to the end.

    Attributes:
        count: Inputs so far.
    """

    def __init__(self, work: Placing, plan: Plan, most: int) -> None:
        from edgekit.build import WeightStore
        from edgekit.network import before_opaque, session
        from edgekit.quantize import METHODS

        self.count = self._held_out = self._runs = 0
        self._work = work
        self._plan = plan
        self._bound = work.binding_of(plan)
        # what ONNX Runtime can run
        model = before_opaque(work.model)
        self._names = [value.name for value in model.proto.graph.output]
        self._reference = session(model, outputs=self._names)
        self._weights = WeightStore(model)
        self._loaded: dict[str, Runner] = {}
        self._measured: dict[str, float] = {}
        self._found: dict[str, list[dict[str, Deviation]]] = {name: [] for name in METHODS}
        self._left = list(METHODS)
        self._most_runs = most * len(METHODS)

    @property
    def affordable(self) -> int:
        """How many further inputs the methods that are left may take; 0 for a few."""
        more = (self._most_runs - self._runs) // len(self._left)
        return more if more >= _FEWEST // 2 else 0

    def add(self, inputs: Sequence[Input]) -> None:
        """Compares on further inputs, each with the scales of its own ranges."""
        text = f"comparing calibration methods on inputs {self.count + 1} to "
        text += f"{self.count + len(inputs)}"
        for method, found in self._compare(inputs, self._left, text).items():
            self._found[method] += found
        self.count += len(inputs)
        self._held_out += sum(one.held_out for one in inputs)

    def settle(self) -> None:
        """Compares the methods that are near the best on the inputs that accuracy is told of.

        Their SNR is that of the accuracy.
        """
        from edgekit.build import Deviation, worst_of

        near = self._near()
        if len(near) < 2:
            return
        work = self._work
        most = self._most_runs // len(self._found)
        inputs = [Input(feed, work.ranges, False) for feed in islice(work.inputs(), most)]
        self._runs, self._most_runs = 0, len(inputs) * len(near)
        text = "comparing the best calibration methods on the measured inputs"
        found = self._compare(inputs, near, text)
        for method, each in found.items():
            joined = [Deviation.joined([one[name] for one in each]) for name in self._names]
            whole = worst_of(joined)
            if whole["snr_db"] is None and not whole["exact"]:
                self._measured = {}  # the accuracy's SNR is not known: nothing varies
                return
            value = _EXACT if whole["exact"] else float(whole["snr_db"])
            self._measured[method] = round(value, 2)

    def _near(self) -> list[str]:
        snr = {name: float(_db(self._noise(name).mean(axis=0))) for name in self._left}
        good = [name for name in self._left if not self._failures(name)] or self._left
        best = max(snr[name] for name in good)
        return [name for name in good if snr[name] > best - _BEHIND]

    def _compare(
        self, inputs: Sequence[Input], methods: Sequence[str], text: str
    ) -> dict[str, list[dict[str, Deviation]]]:
        work = self._work
        work.update(self._runs, self._most_runs, f"{text}: FP32")
        real = [self._reference.run(self._names, dict(one.feed)) for one in inputs]
        different = {id(one.ranges): one.ranges for one in inputs}
        scales = {
            method: {
                key: work.scales_by(ranges, method, self._bound)
                for key, ranges in different.items()
            }
            for method in methods
        }
        used = {own.digest for each in scales.values() for own in each.values()}
        self._loaded = {digest: self._loaded[digest] for digest in used & self._loaded.keys()}
        known: dict[tuple[str, ...], list[dict[str, Deviation]]] = {}
        found = {}
        for method, each in scales.items():
            digests = tuple(own.digest for own in each.values())
            if digests in known:
                self._runs += len(inputs)
            else:
                known[digests] = self._of(inputs, real, each, f"{text}: {method}")
            found[method] = known[digests]
        return found

    def _of(
        self,
        inputs: Sequence[Input],
        real: Sequence[Sequence[np.ndarray]],
        scales: Mapping[int, Scales],
        text: str,
    ) -> list[dict[str, Deviation]]:
        from edgekit.build import Deviation

        found: list[dict[str, Deviation]] = [{} for _ in inputs]
        for ranges, own in scales.items():
            self._work.update(self._runs, self._most_runs, text)
            runner = self._runner(own, len(scales))
            for number, one in enumerate(inputs):
                if id(one.ranges) != ranges:
                    continue
                outputs = runner.run(one.feed)
                self._runs += 1
                self._work.update(self._runs, self._most_runs, text)
                for name, value in zip(self._names, real[number], strict=True):
                    error = Deviation(by_channel=True)
                    error.add(value, outputs[name])
                    found[number][name] = error
        return found

    def _runner(self, scales: Scales, ranges: int) -> Runner:
        """Returns a loaded build; it stays loaded where all that there may be are small."""
        from edgekit.build import Runner, build_reference

        if scales.digest in self._loaded:
            return self._loaded[scales.digest]
        work = self._work
        built = build_reference(work.model, work.network, self._plan, scales, store=self._weights)
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

    def decided(self) -> bool:
        """Whether the best method is surely not far behind another; drops those behind it.

        Errors of the gaps are those of a jackknife over the inputs.
        """
        import numpy as np

        if self.count < 2:
            return False
        noise = {method: self._noise(method) for method in self._left}
        whole = {method: _db(each.mean(axis=0)) for method, each in noise.items()}
        apart = {
            method: _db((each.sum(axis=0) - each) / (self.count - 1))
            for method, each in noise.items()
        }
        best = min(self._left, key=lambda name: (bool(self._failures(name)), -float(whole[name])))
        left, decided = [best], True
        for other in self._left:
            if other == best:
                continue
            gap = float(whole[best] - whole[other])
            gaps = apart[best] - apart[other]
            error = float(np.sqrt((self.count - 1) * np.mean((gaps - gaps.mean()) ** 2)))
            if gap <= _SURE * error or gap <= 0:
                left.append(other)
            # one that fails is not chosen, however near it is
            near = _SURE * error - gap < _BEHIND
            decided &= near or bool(self._failures(other))
        self._left = [name for name in self._left if name in left]
        return decided

    def _noise(self, method: str) -> np.ndarray:
        """Returns RMS error over RMS signal by input and by part of the outputs."""
        import numpy as np

        from edgekit.build import Deviation

        columns = []
        for each in self.by_output[method].values():
            joined = Deviation.joined(each)
            for channels in joined.parts():
                signal = joined.variance(channels)
                if signal > 0:
                    errors = np.array([one.error(channels) for one in each])
                    columns.append(np.sqrt(errors / signal))
        noise = np.stack(columns, axis=1) if columns else np.zeros((len(self._found[method]), 1))
        found: np.ndarray = np.minimum(np.nan_to_num(noise, nan=_INFINITE), _INFINITE)
        return found

    def _failures(self, method: str) -> list[str]:
        from edgekit.build import Deviation, collapses

        outputs = self.by_output[method]
        joined = {name: Deviation.joined(each) for name, each in outputs.items()}
        return collapses(joined, self._work.file.accuracy.scores)

    def choice(self) -> dict[str, Any]:
        """Returns what ``choose_method`` does."""
        snr = {name: round(float(_db(self._noise(name).mean(axis=0))), 2) for name in self._found}
        failures = {name: self._failures(name) for name in self._found}
        return {
            "method": (
                max(self._measured, key=lambda name: (self._measured[name], snr[name]))
                if self._measured
                else min(self._left, key=lambda name: (bool(failures[name]), -snr[name]))
            ),
            "snr_db": snr,
            "measured_snr_db": self._measured,
            "compared": {name: len(found) for name, found in self._found.items()},
            "failures": {name: texts for name, texts in failures.items() if texts},
            "inputs": self.count,
            "held_out": self._held_out,
        }


def _db(noise: np.ndarray) -> np.ndarray:
    """Returns the SNR of the worst part, of RMS noise over signal."""
    import numpy as np

    with np.errstate(divide="ignore"):
        found = -20 * np.log10(noise.max(axis=-1))
    return np.asarray(np.where(np.isposinf(found), _EXACT, np.maximum(found, _WORST)))


def all_alike(choice: Mapping[str, Any]) -> bool:
    """Whether nothing tells the methods of ``choose_method`` apart; then the first is taken."""
    return not choice["failures"] and all(
        len(set(choice[key].values())) <= 1 for key in ("snr_db", "measured_snr_db")
    )


def choice_note(choice: Mapping[str, Any]) -> str:
    """Says which method was chosen, and what all of them gave."""
    from edgekit.build import decibels

    which = f"{counted(choice['inputs'], 'input')}, {choice['held_out'] or 'none'} held out"
    ranked = sorted(choice["snr_db"].items(), key=lambda item: -float(item[1]))
    if all_alike(choice):
        return (
            f"calibration method {choice['method']}: on {which}, emulated on this machine, the "
            f"methods cannot be told apart: SNR {decibels(ranked[0][1], False)} with each"
        )
    snr = ", ".join(
        f"{name} {decibels(value, False)}"
        + (
            f" ({counted(number, 'input')})"
            if (number := choice["compared"][name]) < choice["inputs"]
            else ""
        )
        for name, value in ranked
    )
    note = (
        f"calibration method {choice['method']}, by its SNR on {which}, emulated on this machine: "
        f"{snr}"
    )
    measured = sorted(choice["measured_snr_db"].items(), key=lambda item: -float(item[1]))
    if measured:
        each = ", ".join(f"{name} {decibels(value, False)}" for name, value in measured)
        note += f"; of those within 1 dB of the best by that on the measured inputs: {each}"
    lost = [f"{name}, {texts[0]}" for name, texts in choice["failures"].items()]
    return note + (f"; not good enough: {'; '.join(lost)}" if lost else "")


@dataclass(frozen=True)
class Input:
    """An input to compare on, the ranges to compare with, and whether these leave it out."""

    feed: Feed
    ranges: Ranges
    held_out: bool


def _inputs(work: Placing) -> Iterator[Input]:
    """Yields inputs to compare on, those first that the ranges leave out."""
    beyond = 0
    # an input that was not asked for may be damaged
    with suppress(DataError):
        for feed in work.inputs_beyond(_COMPARED[-1]):
            yield Input(feed, work.ranges, held_out=True)
            beyond += 1
    if beyond:
        for feed in work.inputs():
            yield Input(feed, work.ranges, held_out=False)
        return
    kept: deque[Feed] = deque()
    size = 0
    for feed in work.inputs():
        kept.append(feed)
        size += sum(value.nbytes for value in feed.values())
        while len(kept) > _KEPT or (size > _HELD_BYTES and len(kept) > 2):
            size -= sum(value.nbytes for value in kept.popleft().values())
    every = list(kept)
    if len(every) == 1:
        yield Input(every[0], work.ranges, held_out=False)
        return
    half = len(every) // 2
    parts = every[:half], every[half:]
    ranges = _measured(work, parts[1], "second"), _measured(work, parts[0], "first")
    # of each half by turns
    for i in range(half):
        for part, own in zip(parts, ranges, strict=True):
            yield Input(part[i], own, held_out=True)


def _measured(work: Placing, feeds: list[Feed], which: str) -> Ranges:
    from edgekit.quantize import measure

    told = runs_told(work, f"ranges on the {which} half of the inputs")
    return measure(work.model, feeds, network=work.network, progress=told)


def plan_to_try(work: Placing) -> Plan:
    """Returns the plan, of one variant; where there is none, that of the GPU alone."""
    from edgekit.placement import Ask, Options

    try:
        plan = work.plan
    except EdgekitError:
        plan = Ask(
            work.network, work.judgement, work.target, "int8", work.file.power_mode,
            Options(dla_cores=()),
        ).plan()  # fmt: skip
    return replace(plan, plans=plan.plans[:1])
