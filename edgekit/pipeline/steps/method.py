"""The calibration method, given or chosen, and the INT8 scales that follow; and Q/DQ nodes instead
of a cache on strongly typed releases. `calibration.method: auto` takes the method whose INT8 is
nearest to FP32 for the plan, on inputs held out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.errors import DataError, EdgekitError
from edgekit.network.model import Model
from edgekit.network.session import session
from edgekit.pipeline.context import Context, computed
from edgekit.pipeline.steps.calibrate import (
    binding,
    calibrated,
    calibration_inputs,
    check_finite_weights,
    inputs_beyond,
    inputs_identity,
    measures,
    ranges,
    report_inference,
    scales_by,
    with_nodes,
)
from edgekit.pipeline.steps.load import fp16_choice, fp16_layers, lowers, named, source, translated
from edgekit.pipeline.steps.plan import binding_of, plan
from edgekit.pipeline.steps.rewrite import (
    judgement,
    known_scales,
    model,
    model_digest,
    network,
    rewritten,
)
from edgekit.pipeline.steps.scales import ScaleBinding, describe_widened, warn_unequal
from edgekit.pipeline.steps.translation import describe_translation
from edgekit.quantize.scales import Ranges, Scales, tied
from edgekit.text import counted, listed
from edgekit_device.arrays.deviation import Deviation, decibels, worst_of

if TYPE_CHECKING:
    from edgekit.placement.plan import Plan
    from edgekit.reference.run import Runner


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


def choose_method(context: Context, placed: Plan) -> dict[str, Any]:
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
    macs = max(1, sum(layer.macs for layer in network(context).layers))
    errors = MethodErrors(context, placed, most=min(max(_MACS // int(macs), _FEWEST), _MOST))
    inputs = _inputs(context)
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

    def __init__(self, context: Context, placed: Plan, most: int) -> None:
        from edgekit.placement.segments import segmented
        from edgekit.quantize.calibration.histograms import METHODS
        from edgekit.reference.weights import WeightStore

        self.count = self._held_out = self._runs = 0
        self._context = context
        self._bound = binding_of(placed)
        self._segments = segmented(model(context), network(context), placed)
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
        context = self._context
        most = self._most_runs // len(self._found)
        inputs = [HeldOutInput(feed, ranges(context), False)
                  for feed in islice(calibration_inputs(context), most)]  # fmt: skip
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
        context = self._context
        context.update(self._runs, self._most_runs, f"{text}: FP32")
        real = [self._reference.run(self._names, dict(one.feed)) for one in inputs]
        different = {id(one.ranges): one.ranges for one in inputs}
        scales = {
            method: {
                key: scales_by(context, own, method, self._bound) for key, own in different.items()
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
        for which, own in scales.items():
            self._context.update(self._runs, self._most_runs, text)
            runner = self._runner(own, len(scales))
            for number, one in enumerate(inputs):
                if id(one.ranges) != which:
                    continue
                outputs = runner.run(one.feed)
                self._runs += 1
                self._context.update(self._runs, self._most_runs, text)
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
        return collapses(joined, self._context.file.accuracy.scores)

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
    """Says in sentences which method was chosen, by which figures, and what rules others out."""
    chosen, snr, failures = choice["method"], choice["snr_db"], choice["failures"]
    measured, most = choice["measured_snr_db"], choice["inputs"]
    where = _compared_on(choice)
    text = f"Calibration method: {chosen}."
    if methods_are_equal(choice):
        return (
            f"{text} All methods give the same SNR against FP32 on {where}: "
            f"{decibels(snr[chosen], False)} (emulated on this machine)"
        )
    # methods that were surely worse after a few inputs have figures of these alone: they come last
    ranked = sorted(snr, key=lambda name: (choice["compared"][name] < most, -float(snr[name])))
    early = [name for name in ranked if choice["compared"][name] < most]
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
        count = counted(choice["compared"][name], "input")
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


def _compared_on(choice: Mapping[str, Any]) -> str:
    """Returns on how many inputs methods were compared, and whether their ranges include them."""
    text, known = counted(choice["inputs"], "input"), choice["inputs"] - choice["held_out"]
    if not known:
        return f"{text} other than those of the ranges"
    if known == choice["inputs"]:
        return f"{text}, the same as those of the ranges"
    return f"{text}, {known} of them among those of the ranges"


def _figures(values: Mapping[str, float], names: Sequence[str]) -> str:
    return ", ".join(f"{name} {decibels(values[name], False)}" for name in names)


@dataclass(frozen=True)
class HeldOutInput:
    """An input to compare on, the ranges to compare with, and whether these leave it out."""

    feed: Feed
    ranges: Ranges
    held_out: bool


def _inputs(context: Context) -> Iterator[HeldOutInput]:
    """Yields inputs to compare on, those first that the ranges leave out."""
    beyond = 0
    # an input that is not needed may be damaged
    with suppress(DataError):
        for feed in inputs_beyond(context, _COMPARED[-1]):
            yield HeldOutInput(feed, ranges(context), held_out=True)
            beyond += 1
    if beyond:
        for feed in calibration_inputs(context):
            yield HeldOutInput(feed, ranges(context), held_out=False)
        return
    retained: deque[Feed] = deque()
    size = 0
    for feed in calibration_inputs(context):
        retained.append(feed)
        size += sum(value.nbytes for value in feed.values())
        while len(retained) > _RETAINED or (size > _HELD_BYTES and len(retained) > 2):
            size -= sum(value.nbytes for value in retained.popleft().values())
    every = list(retained)
    if len(every) == 1:
        yield HeldOutInput(every[0], ranges(context), held_out=False)
        return
    half = len(every) // 2
    parts = every[:half], every[half:]
    others = _measured(context, parts[1], "second"), _measured(context, parts[0], "first")
    # of each half by turns
    for i in range(half):
        for part, own in zip(parts, others, strict=True):
            yield HeldOutInput(part[i], own, held_out=True)


def _measured(context: Context, feeds: list[Feed], which: str) -> Ranges:
    from edgekit.quantize.calibration.measure import measure

    progress = report_inference(context, f"ranges on the {which} half of the inputs")
    return measure(model(context), feeds, network=network(context), progress=progress)


def plan_to_try(context: Context) -> Plan:
    """Returns the plan, of one variant; where there is none, that of the GPU alone."""
    from edgekit.placement.placing import PlacementQuery
    from edgekit.placement.plan import Options

    try:
        placed = plan(context)
    except EdgekitError:
        placed = PlacementQuery(
            network(context), judgement(context), context.target, "int8", context.file.power_mode,
            Options(dla_cores=()),
        ).plan()  # fmt: skip
    return replace(placed, plans=placed.plans[:1])


def chooses(context: Context) -> bool:
    """Says whether scales are measured and the method is chosen by what it gives."""
    return measures(context) and context.file.calibration.method == "auto"


def choice(context: Context) -> dict[str, Any] | None:
    """Returns what the calibration methods give, measured; None where the method is given.

    It stays when the accuracy gate decides otherwise later: then ``gate`` has the method that the
    gate took, its ``metric``, the ``figures`` and ``failures`` by method, and ``passes``.
    """
    if not chooses(context):
        return None
    by_gate = context.method_by_gate
    if by_gate or context.fp16_by_gate:
        context = replace(context, method_by_gate=None, fp16_by_gate=())
    found = _choice(calibrated(context))
    return {**found, "gate": asdict(by_gate)} if by_gate else found


@computed(rewritten)
def _choice(context: Context) -> dict[str, Any]:
    placed = plan_to_try(context)
    places = [[p.name, p.device, p.precision, p.segment] for p in placed.layers]
    found: dict[str, Any] = context.stored(
        "method", lambda: choose_method(context, placed), model_digest(context),
        inputs_identity(context), places, fp16_choice(context, gate=False), context.tensorrt,
    )  # fmt: skip
    context.note(choice_note(found))
    return found


def method(context: Context) -> str:
    """Returns the configuration's calibration method, or what was chosen, by the gate at last."""
    if context.method_by_gate:
        return context.method_by_gate.method
    chosen = choice(context)
    return str(chosen["method"]) if chosen else context.file.calibration.method


@computed()
def scales(context: Context) -> Scales | None:
    """Returns INT8 scales for every placement; None for other precisions.

    What any layer that the DLA can run ties is equal, wherever a plan has the layer.

    Raises:
        ModelError: "model.nonfinite": a weight has NaN or infinite values.
    """
    if context.file.precision != "int8":
        context.stored("calibrate", dict, model_digest(context), context.file.precision)
        return None
    context = calibrated(context)
    # scales that were given say nothing of the weights
    check_finite_weights(context)
    return _tied(context, binding(context))


@computed()
def plan_scales(context: Context) -> Scales | None:
    """Returns the scales of what is built: those layers share one that the plan has on a DLA."""
    return scales_of(context, plan(calibrated(context)))


def scales_of(context: Context, placed: Plan) -> Scales | None:
    """Returns the INT8 scales for a plan, made equal where its layers need it."""
    if scales(context) is None:
        return None
    return _tied(calibrated(context), binding_of(placed))


def _tied(context: Context, bound: ScaleBinding) -> Scales:
    """Returns the scales with those equal that layers bind.

    On strongly typed releases they name the tensors that have Q/DQ nodes.
    """
    known, found, net = known_scales(context), translated(context), network(context)
    if known is None:
        return scales_by(context, ranges(context), method(context), bound)
    scales = known.reading.scales
    if found is None or context.file.calibration.cache is not None:
        return with_nodes(context, tied(scales, net, **bound))
    data = describe_translation(found, named(context))
    scales = replace(scales, method="qdq", data=data)
    if lowers(context):
        # typed: the nodes say what is built
        return with_nodes(context, warn_unequal(scales, net, bound))
    # implicit: a cache with these scales, which the constraints bind
    scales = tied(scales, net, **bound)
    widened = describe_widened(scales.changes, "the largest is used, as TensorRT does")
    return replace(scales, warnings=(*scales.warnings, *widened))


# INT8 on strongly typed releases (from TensorRT 11.4.1 on): Q/DQ nodes instead of a cache.
#
# Planning, costs and the reference build use the plain network, its scales and the precision
# of each layer between Q/DQ nodes. The nodes are no layers of the plan: they take no time,
# since each is a part of the kernel that writes or reads its tensor (assumed; NVIDIA's DLA
# operator matrix says of both "can be collapsed to INT8 scaling factor"). Where INT8 and FP16
# meet, the plan pays for the reformat as in any other build.


def typed_model(context: Context) -> Model:
    """Returns the Q/DQ model: the user's own where nothing was rewritten, or else a lowered one."""
    from edgekit.quantize.qdq.to_explicit import to_qdq

    scales, net = plan_scales(context), network(context)
    assert scales is not None, "requested for a strongly typed release"
    own = translated(context) is not None and model(context) is source(context)
    if own and not _keeps_more(context):
        return named(context)
    return to_qdq(model(context), net, scales.scales, fp16_layers=fp16_layers(context, net))


def typed_identity(context: Context) -> list[Any]:
    """Returns what ``typed_model`` depends on."""
    scales = plan_scales(context)
    fp16 = sorted(fp16_layers(context, network(context)))
    return [
        named(context).digest, model_digest(context), _keeps_more(context), fp16,
        scales and dict(scales.scales),
    ]  # fmt: skip


def _keeps_more(context: Context) -> bool:
    """Whether layers stay in FP16 that the user's Q/DQ model has in INT8, or scales differ."""
    section = context.file.calibration
    return bool(section.fp16_layers or context.fp16_by_gate or section.cache)
