"""The plan: placement with the configuration's options, whether it is better with the rewrites or
without them, and `calibration.method: auto`, the method whose INT8 is nearest to FP32 for
that plan on inputs held out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from edgekit.config.loader import open_config
from edgekit.dla.verdicts import Judgement
from edgekit.errors import DataError, EdgekitError, GateError, UsageError
from edgekit.network.model import Model, Network
from edgekit.pipeline.cache import identity_of_path
from edgekit.pipeline.progress import describe_bound
from edgekit.pipeline.steps.calibrate import Calibration, report_inference
from edgekit.pipeline.steps.scales import ScaleBinding
from edgekit.quantize.needs import needs, without_too
from edgekit.quantize.scales import Ranges, Scales
from edgekit.text import counted
from edgekit_device.arrays.deviation import Deviation, decibels, worst_of

if TYPE_CHECKING:
    from edgekit.placement.placing import PlacementQuery
    from edgekit.placement.plan import Options, Plan
    from edgekit.placement.segments import SegmentedPlan
    from edgekit.reference.run import Runner


# relative: predictions are no finer
_NOTICED = 1e-3


def better_without(before: PlacementQuery, after: PlacementQuery) -> str:
    """Returns why the network is better planned as it came; empty where it is not.

    What a rewrite writes for the DLA can be slower on the GPU, which matters where the best plan
    stays there. Planning twice takes time, so it is done only where the GPU alone got slower.

    Args:
        before: The network as it came, with the user's constraints.
        after: The rewritten one, with the same constraints.
    """
    from edgekit.placement.forecast import forecast
    from edgekit.placement.plan import plan_value

    alone = [
        forecast(query.network, query.judgement, query.target, power_mode=query.power_mode)
        for query in (before, after)
    ]
    if alone[0] is None or alone[1] is None:
        return ""
    if alone[1].gpu_only_us <= alone[0].gpu_only_us * (1 + _NOTICED):
        return ""
    try:
        without = before.plan(options=replace(before.options, cores_why=""))
    except (GateError, UsageError):
        # it cannot be planned as it came, or a constraint names what only the rewritten one has
        return ""
    try:
        rewritten = after.plan(options=replace(after.options, cores_why=""))
    except GateError as error:
        return f"it cannot be planned with them ({error.message})"
    except UsageError:
        # the step that plans says it better
        return ""
    old, new = plan_value(without), plan_value(rewritten)
    more = without.objective == "throughput"
    worse = new < old * (1 - _NOTICED) if more else new > old * (1 + _NOTICED)
    if not worse:
        return ""
    unit = {"throughput": "frames/s", "energy": "µJ"}.get(without.objective, "µs")
    return (
        f"the best plan for {without.objective} is predicted at {new:.4g} {unit} with them and "
        f"{old:.4g} {unit} without"
    )


Feed = Mapping[str, "np.ndarray"]
# inputs after which the methods are compared, until the best is known well enough
_COMPARED = (8, 16, 32, 64)
# how many inputs all methods may take: by multiply-accumulates (ResNet-50: 15), at least, at most.
# What a method that is surely not the best no longer takes is left to the others
_MACS, _FEWEST, _MOST = 64_000_000_000, 8, 64
# a method is no longer compared when it is surely worse than the best (standard errors), and the
# best is known when no other one can be further ahead of it than this (dB)
_SURE, _NEGLIGIBLE_DB = 3.0, 1.0
# where the data hold no inputs beyond those measured, the ranges of each half of them are measured
# once more: of so many of them
_RETAINED = 64
_HELD_BYTES = 1 << 28
_EXACT, _WORST = 999.0, -999.0
# engines stay loaded where their weights take at most so many bytes: to load a fully connected
# layer takes as long as twenty inferences
_LOADED_BYTES = 1 << 29
# no square of it is infinite
_INFINITE = 1e60


def choose_method(work: PlannedWork, plan: Plan) -> dict[str, Any]:
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
    errors = MethodErrors(work, plan, most=min(max(_MACS // int(macs), _FEWEST), _MOST))
    inputs = _inputs(work)
    for until in _COMPARED:
        batch = list(islice(inputs, min(until - errors.count, errors.affordable)))
        if batch:
            errors.add(batch)
        if not batch or errors.decided():
            break
    errors.settle()
    return errors.choice()


class MethodErrors:
    """What the methods' INT8 costs the outputs, by input.

    Args:
        most: How many inputs each method may take when all are compared to the end.

    Attributes:
        count: Inputs so far.
    """

    def __init__(self, work: PlannedWork, plan: Plan, most: int) -> None:
        from edgekit.network.session import session
        from edgekit.placement.segments import segmented
        from edgekit.quantize.calibration.histograms import METHODS
        from edgekit.reference.weights import WeightStore

        self.count = self._held_out = self._runs = 0
        self._work = work
        self._plan = plan
        self._bound = work.binding_of(plan)
        self._segments = segmented(work.model, work.network, plan)
        model = self._segments.runnable.model
        self._names = list(model.graph.outputs)
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

    def add(self, inputs: Sequence[HeldOutInput]) -> None:
        """Compares on further inputs, each with the scales of its own ranges."""
        text = f"comparing calibration methods on inputs {self.count + 1} to "
        text += f"{self.count + len(inputs)}"
        for method, found in self._compare(inputs, self._left, text).items():
            self._found[method] += found
        self.count += len(inputs)
        self._held_out += sum(one.held_out for one in inputs)

    def settle(self) -> None:
        """Compares the methods that are near the best on the inputs that accuracy is measured on.

        Their SNR is that of the accuracy.
        """
        near = self._near()
        if len(near) < 2:
            return
        work = self._work
        most = self._most_runs // len(self._found)
        inputs = [HeldOutInput(feed, work.ranges, False) for feed in islice(work.inputs(), most)]
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
        return [name for name in good if snr[name] > best - _NEGLIGIBLE_DB]

    def _compare(
        self, inputs: Sequence[HeldOutInput], methods: Sequence[str], text: str
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
        inputs: Sequence[HeldOutInput],
        real: Sequence[Sequence[np.ndarray]],
        scales: Mapping[int, Scales],
        text: str,
    ) -> list[dict[str, Deviation]]:
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
        from edgekit.reference.build import build_reference
        from edgekit.reference.run import Runner

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

    def decided(self) -> bool:
        """Whether the best method is surely not far worse than another; drops those that are worse.

        Errors of the gaps are those of a jackknife over the inputs.
        """
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
            near = _SURE * error - gap < _NEGLIGIBLE_DB
            decided &= near or bool(self._failures(other))
        self._left = [name for name in self._left if name in left]
        return decided

    def _noise(self, method: str) -> np.ndarray:
        """Returns RMS error over RMS signal by input and by part of the outputs."""
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
        from edgekit.reference.accuracy import collapses

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
    with np.errstate(divide="ignore"):
        found = -20 * np.log10(noise.max(axis=-1))
    return np.asarray(np.where(np.isposinf(found), _EXACT, np.maximum(found, _WORST)))


def methods_are_equal(choice: Mapping[str, Any]) -> bool:
    """Whether the methods of ``choose_method`` give the same; then the first is taken."""
    return not choice["failures"] and all(
        len(set(choice[key].values())) <= 1 for key in ("snr_db", "measured_snr_db")
    )


def choice_note(choice: Mapping[str, Any]) -> str:
    """Says which method was chosen, and what all of them gave."""
    which = f"{counted(choice['inputs'], 'input')}, {choice['held_out'] or 'none'} held out"
    ranked = sorted(choice["snr_db"].items(), key=lambda item: -float(item[1]))
    if methods_are_equal(choice):
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
class HeldOutInput:
    """An input to compare on, the ranges to compare with, and whether these leave it out."""

    feed: Feed
    ranges: Ranges
    held_out: bool


def _inputs(work: PlannedWork) -> Iterator[HeldOutInput]:
    """Yields inputs to compare on, those first that the ranges leave out."""
    beyond = 0
    # an input that is not needed may be damaged
    with suppress(DataError):
        for feed in work.inputs_beyond(_COMPARED[-1]):
            yield HeldOutInput(feed, work.ranges, held_out=True)
            beyond += 1
    if beyond:
        for feed in work.inputs():
            yield HeldOutInput(feed, work.ranges, held_out=False)
        return
    retained: deque[Feed] = deque()
    size = 0
    for feed in work.inputs():
        retained.append(feed)
        size += sum(value.nbytes for value in feed.values())
        while len(retained) > _RETAINED or (size > _HELD_BYTES and len(retained) > 2):
            size -= sum(value.nbytes for value in retained.popleft().values())
    every = list(retained)
    if len(every) == 1:
        yield HeldOutInput(every[0], work.ranges, held_out=False)
        return
    half = len(every) // 2
    parts = every[:half], every[half:]
    ranges = _measured(work, parts[1], "second"), _measured(work, parts[0], "first")
    # of each half by turns
    for i in range(half):
        for part, own in zip(parts, ranges, strict=True):
            yield HeldOutInput(part[i], own, held_out=True)


def _measured(work: PlannedWork, feeds: list[Feed], which: str) -> Ranges:
    from edgekit.quantize.calibration.measure import measure

    progress = report_inference(work, f"ranges on the {which} half of the inputs")
    return measure(work.model, feeds, network=work.network, progress=progress)


def plan_to_try(work: PlannedWork) -> Plan:
    """Returns the plan, of one variant; where there is none, that of the GPU alone."""
    from edgekit.placement.placing import PlacementQuery
    from edgekit.placement.plan import Options

    try:
        plan = work.plan
    except EdgekitError:
        plan = PlacementQuery(
            work.network, work.judgement, work.target, "int8", work.file.power_mode,
            Options(dla_cores=()),
        ).plan()  # fmt: skip
    return replace(plan, plans=plan.plans[:1])


class PlannedWork(Calibration):
    """From the rewritten network and its scales to its placement.

    Attributes:
        explains: Whether an impossible plan is reported with the constraints that conflict, which
            takes further placements.
    """

    explains = True
    _segments: SegmentedPlan | None = None

    def _better_without(self, model: Model) -> str:
        if self.file.placement.profile is not None:
            return ""  # measured times are of one of the two networks only
        self.update(0, 0, "planning with and without the rewrites")
        before, after = (self._query_for(*self._judged(item)) for item in (self.source, model))
        return better_without(before, after)

    @property
    def _constraints_key(self) -> list[Any]:
        # what the accuracy gate keeps in FP16 is found when the rewrites are settled
        fp16 = self.fp16_choice(gate=False)
        placement = self.file.placement.model_dump()
        return [self.file.power_mode, self.file.build.mode, placement, fp16]

    @cached_property
    def options(self) -> Options:
        """The configuration's section ``placement``."""
        from edgekit.placement.plan import Options, Pin

        section = self.file.placement
        bounds = section.bounds.model_dump(exclude_none=True)
        pools = None if section.pools == "auto" else section.pools.model_dump(exclude_none=True)
        return Options(
            objective=section.objective,
            bounds=bounds,
            dla_cores=self._cores,
            gpu=section.gpu and self.file.build.mode != "standalone",
            pins=tuple(Pin(pin.layers, pin.device) for pin in section.pin),
            max_loadables=section.max_loadables,
            max_transitions=section.max_transitions,
            min_loadable_layers=section.min_loadable_layers,
            pools=pools,
            profile=self._profile,
            cores_why=self._cores_why,
        )

    @cached_property
    def _cores(self) -> tuple[int, ...]:
        """The DLA cores to plan with; a note says when they are fewer than requested."""
        cores = self._requested_cores
        if not self._cores_why:
            return cores
        self.notes.append(
            f"a hybrid engine drives one DLA core: only core {cores[0]} is used "
            "(build.mode: split uses several)"
        )
        return cores[:1]

    @property
    def _requested_cores(self) -> tuple[int, ...]:
        return tuple(dict.fromkeys(self.file.placement.dla_cores))

    @property
    def _cores_why(self) -> str:
        """Why only the first of the requested cores is used, if so."""
        section, cores = self.file.placement, self._requested_cores
        there = all(core < self.target.dla.cores for core in cores)
        one = self.file.build.mode == "hybrid" and section.objective != "throughput"
        if not (one and there and cores[1:]):
            return ""
        return f"a hybrid engine drives one DLA core, here {cores[0]}; build.mode: split has all"

    @cached_property
    def _profile(self) -> Any:
        """The measured times that the configuration names, or None."""
        path = self.file.placement.profile
        if path is None:
            return None
        from edgekit.placement.profiles.reader import read_profile

        self.update(0, 0, "reading the profile")
        info = self.file.placement.layer_info
        return read_profile(
            self.config.resolve(path), layer_info=info and self.config.resolve(info)
        )

    @cached_property
    def query(self) -> PlacementQuery:
        """All that the placement needs, to solve it once or with changes."""
        return self._query_for(self.network, self.judgement)

    def _query_for(self, network: Network, judgement: Judgement) -> PlacementQuery:
        from edgekit.placement.placing import PlacementQuery

        # a board without a DLA judges nothing, and has its layers in FP16 all the same
        options = replace(self.options, fp16_layers=self.fp16_layers(network))
        return PlacementQuery(
            network, judgement, self.target, self.file.precision, self.file.power_mode, options
        )

    @cached_property
    def plan(self) -> Plan:
        """The placement."""
        from edgekit.placement.explanation import explain_gpu_only
        from edgekit.placement.placing import explain_conflict
        from edgekit.placement.plan import plan_from_json

        found: list[Plan] = []
        self.fp16_layers(self.network, strict=True)

        def compute() -> dict[str, Any]:
            if self.file.precision == "int8":
                self.check_weights()
            try:
                plan = self.query.plan(
                    progress=lambda a, b: self.update(a, b, f"placing{self.fp16_suffix}"),
                    on_bound=lambda value, bound: self.update(
                        0,
                        0,
                        f"placing{self.fp16_suffix}: "
                        + describe_bound(value, bound, self._in_units),
                    ),
                )
            except GateError as error:
                if not self.explains:
                    raise
                text = "looking for the constraints that conflict"
                explain_conflict(self.query, error, partial(self._looking, text))
                raise
            if self.explains:
                text = "looking for what keeps the DLA out"
                plan = explain_gpu_only(self.query, plan, partial(self._looking, text))
            found.append(plan)
            return plan.to_json()

        document = self.stored("plan", compute, *self.plan_identity)
        plan = found[0] if found else plan_from_json(document)
        # they are noted whatever was known before the plan was computed
        _ = self._cores, self.known_scales
        more = (*self.fp16_notes(self.network, plan), *self.layers_notes)
        return replace(plan, notes=(*plan.notes, *more))

    @property
    def segments(self) -> SegmentedPlan:
        """The plan with the segments to cut the model into, computed once for both backends."""
        from edgekit.placement.segments import segmented

        known = self._segments
        if known is None or known.plan is not self.plan or known.model is not self.model:
            self._segments = known = segmented(self.model, self.network, self.plan)
        return known

    @cached_property
    def plan_scales(self) -> Scales | None:
        """The INT8 scales of what is built: those layers share one that the plan has on a DLA."""
        # they may show that layers have no INT8, which the plan follows
        return None if self.scales is None else self.scales_of(self.plan)

    def scales_of(self, plan: Plan) -> Scales | None:
        """Returns the INT8 scales for a plan, made equal where its layers need it."""
        return None if self.scales is None else self._tied(self.binding_of(plan))

    def binding_of(self, plan: Plan) -> ScaleBinding:
        """Returns what binds scales in a plan: the layers that it has in INT8 on a DLA."""
        layers = [layer for share in plan.plans for layer in share.layers]
        int8 = [layer for layer in layers if layer.precision == "int8"]
        on_dla = {layer.name for layer in int8 if layer.device != "GPU"}
        floats = {layer.name for layer in layers} - {layer.name for layer in int8}
        return {"dla_layers": on_dla, "fp16_layers": floats}

    @cached_property
    def scales(self) -> Scales | None:
        """INT8 scales, after what follows from the ranges for the layers' precision."""
        if self.file.precision == "int8" and self.known is None:
            self.measured()
        return super().scales

    def measured(self) -> Ranges:
        """Returns the measured ranges, with what follows for the plan whatever the method is.

        Where no scale suits a tensor, or where one would be shared by tensors of much different
        range, the layers that need it are judged in FP16.
        """
        self.check_weights()
        ranges = self.ranges
        before = self.fp16_layers(self.network)
        self.amax = tuple(
            {name: value for name, value in amax.items() if name not in ranges.masked}
            for amax in ranges.amax.values()
        )
        if self.fp16_layers(self.network) != before:
            self._judge_again()
        unscaled: frozenset[str] = frozenset()
        scales = self.scales_by(ranges, "minmax")
        if scales.missing:
            without = without_too(self.network, scales.missing, scales.scales)
            able = self._binding["dla_layers"]
            lacks = needs(self.network, scales.scales, on_dla=able, without=without).lacks
            unscaled = frozenset(lack.tensor for lack in lacks)
        if unscaled != self.unscaled:
            self.unscaled = unscaled
            self._judge_again()
        return ranges

    def _judge_again(self) -> None:
        for name in ("_seen", "query", "plan"):
            self.__dict__.pop(name, None)

    @property
    def method(self) -> str:
        """The configuration's calibration method, or the one that was chosen."""
        return str(self.choice["method"]) if self.choice else self.file.calibration.method

    @cached_property
    def choice(self) -> dict[str, Any] | None:
        """What the calibration methods give, measured; None where the method is given.

        It stays when layers are kept in FP16 later, and for variants of this work.
        """
        if not self.chooses:
            return None
        self.measured()
        plan = plan_to_try(self)
        placed = [[p.name, p.device, p.precision, p.segment] for p in plan.layers]
        found: dict[str, Any] = self.stored(
            "method", lambda: choose_method(self, plan), self.model_digest, self.inputs_identity,
            placed, self.fp16_choice(gate=False), self.tensorrt,
        )  # fmt: skip
        self.notes.append(choice_note(found))
        return found

    def keep(self, layers: Iterable[str]) -> None:
        """Keeps further layers in FP16; what follows from the plan is computed anew."""
        self.fp16_by_gate = tuple(dict.fromkeys((*self.fp16_by_gate, *layers)))
        known = "_seen scales query plan plan_scales build_key artefacts accuracy"
        for name in known.split():
            self.__dict__.pop(name, None)

    def take(self, plan: Plan, fp16_by_gate: Iterable[str] = ()) -> None:
        """Takes a placement that somebody else chose, and layers that stay in FP16 for it."""
        self.keep(fp16_by_gate)
        self.__dict__["plan"] = plan

    @property
    def fp16_suffix(self) -> str:
        """Names the layers that stay in FP16 in the progress text; empty without them."""
        return (
            f" with {counted(len(self.fp16_by_gate), 'layer')} in FP16" if self.fp16_by_gate else ""
        )

    def _in_units(self, value: float) -> str:
        from edgekit.placement.plan import OBJECTIVE_UNITS
        from edgekit.reports.text import energy, microseconds, significant

        unit = OBJECTIVE_UNITS[self.options.objective]
        if unit == "qps":
            return f"{significant(value)} per second"
        return (energy if unit == "uj" else microseconds)(value)

    def _looking(self, what: str, done: int, total: int) -> None:
        self.update(done, total, what)

    @property
    def plan_identity(self) -> tuple[Any, ...]:
        """What a plan depends on: model, board, constraints and the profile's content."""
        section = self.file.placement
        files = [identity_of_path(self.config.resolve(path)) if path else None
                 for path in (section.profile, section.layer_info)]  # fmt: skip
        return (
            self.model_digest, self.file.target, self.file.power_mode, self.file.build.mode,
            section.model_dump(), files, self.fp16_choice(), sorted(self.unscaled),
            sorted(self.fp16_layers(self.network)), *self._rules,
        )  # fmt: skip

    def variant(self, **changes: Any) -> Self:
        """Returns the same work with other keys of the configuration; what it can, it shares."""
        other = type(self)(open_config(self.config, **changes), self.cache, force=self.force)
        other.update, other.weighs = self.update, self.weighs
        mine, its = self.file, other.file
        shared = []
        if mine.model == its.model:
            shared.append("named")
            if (other.file.target, other.tensorrt, its.precision) == (
                self.file.target, self.tensorrt, mine.precision,
            ):  # fmt: skip
                shared += ["source", "translated"]
            keys = ("target", "precision", "tensorrt", "calibration", "rewrite")
            if not self.fp16_by_gate and all(
                getattr(mine, key) == getattr(its, key) for key in keys
            ):
                # whether the rewrites are used follows from the constraints, which may differ
                shared += ["_found", "_rewritten", "_seen", "choice"]
                other.unscaled, other.amax = self.unscaled, self.amax
        old, new = mine.placement, its.placement
        if (old.profile, old.layer_info) == (new.profile, new.layer_info):
            shared.append("_profile")
        for name in shared:
            if name in self.__dict__:
                other.__dict__[name] = self.__dict__[name]
        return other
