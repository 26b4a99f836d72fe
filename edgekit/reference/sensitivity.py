"""The error at the outputs of INT8 in each kernel alone, in one pass over the inputs for all
kernels; and the ``edgekit.sensitivity/1`` document.
"""

from __future__ import annotations

import dataclasses
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.dla.rules import load_rules
from edgekit.errors import BuildError, DataError
from edgekit.network.model import Network
from edgekit.network.module_names import common_module, enclosing_modules
from edgekit.network.module_tree import layer_modules, module_totals
from edgekit.placement.segments import SegmentedPlan
from edgekit.quantize.data.rows import check_feed
from edgekit.quantize.scales import Scales
from edgekit.reference.accuracy import Accuracy
from edgekit.reference.gate import METRICS
from edgekit.reference.kernels import Kernels, ReferenceKernel
from edgekit.removed import FormerDict
from edgekit_device.protocol import fields
from edgekit_device.protocol.codec import (
    array,
    choice,
    document,
    flag,
    mapping,
    member,
    nullable,
    record,
    records,
    text,
)
from edgekit_device.runtime.deviation import Deviation, worst_measures

if TYPE_CHECKING:
    from edgekit.dla.verdicts import Judgement


# bytes that a call reads: more rows at once are no faster
_CALL_BYTES = 1 << 25
# largest relative difference of sums in another order
_CLOSE = 1e-3
# bytes of tensors held at once; above this the variants run in several groups
_MEMORY = 1 << 30


@document(frozen=True)
class Impact:
    """The error at the network's outputs of INT8 in one kernel, all else in FP32.

    Attributes:
        layers: The kernel's layers, which the target runs together.
        device: Its device in the plan.
        snr_db: Variance of the FP32 output over mean squared error, in dB, of the worst output or
            group of its channels; None if every output is bit-equal.
        cosine: Mean over the inputs of the cosine similarity with FP32, the worst output's.
        cosine_min: The worst input's.
        max_abs: Largest absolute difference, in the output's unit.
        top1_agreement: Share of inputs whose largest value is at the same place, 0 to 1.
        place: "first" if it reads a network input, "last" if it writes an output; both or neither
            are possible.
    """

    layers: tuple[str, ...] = member(fields.names)
    device: str = member(fields.device)
    snr_db: float | None = member(nullable(fields.difference))
    cosine: float = member(fields.cosine)
    cosine_min: float = member(fields.cosine)
    max_abs: float = member(fields.figure)
    top1_agreement: float = member(fields.share)
    place: tuple[str, ...] = member(array(choice("first", "last")), default=())

    @property
    def exact(self) -> bool:
        """True if every output is bit-equal."""
        return self.max_abs == 0

    @property
    def name(self) -> str:
        """Its layers, joined as in the target's builder."""
        return " + ".join(self.layers)


@document(frozen=True)
class Sensitivity:
    """Every INT8 kernel of a plan, worst first.

    Attributes:
        impacts: The ranking.
        floats: Reasons of layers that do not run in INT8, by layer name.
        samples: Number of inputs measured.
    """

    impacts: tuple[Impact, ...] = member(records(Impact))
    floats: Mapping[str, str] = member(mapping(fields.name, fields.name))
    samples: int = member(fields.count)


@document(frozen=True)
class Proposal:
    """The layers to keep out of INT8 for an accuracy.

    Attributes:
        metric: "cosine", "snr_db" or "top1_agreement".
        minimum: The lowest value of the metric that passes.
        layers: Layers to keep in FP16, worst first; None if FP16 of all layers misses it too.
        kernels: Number of kernels of these layers.
        accuracy: Accuracy of the build with ``layers`` in FP16 (all layers if None).
        int8: Accuracy of the build without these layers in FP16.
        minimal: True if each single kernel was left out once and the build missed the accuracy.
        builds: Number of builds measured.
        ranked: Number of inputs that ranked the kernels; None for all.
        tried: Number of inputs that measured the builds; None for all.
    """

    metric: str = member(choice(*METRICS))
    minimum: float | None = member(nullable(fields.difference))
    layers: tuple[str, ...] | None = member(nullable(fields.names))
    kernels: int = member(fields.count)
    accuracy: Accuracy = member(record(Accuracy))
    int8: Accuracy = member(record(Accuracy))
    minimal: bool = member(flag)
    builds: int = member(fields.count)
    ranked: int | None = member(nullable(fields.count), default=None)
    tried: int | None = member(nullable(fields.count), default=None)


@document(frozen=True, kw_only=True)
class RankedKernel(Impact):
    """A kernel in the ranking; ``kinds`` are its layers' kinds."""

    kinds: tuple[str, ...] = member(array(text()))


@document(frozen=True)
class FloatLayer:
    """A layer that does not run in INT8, the reason, and the DLA's rule for it, if any."""

    layer: str = member(fields.name)
    why: str = member(fields.name)
    rule: str = member(fields.name)


@document(frozen=True)
class ProposedLayers:
    """The fewest layers to keep in FP16 for an accuracy.

    Attributes:
        metric: "cosine", "snr_db" or "top1_agreement".
        min: The lowest value of the metric that passes.
        reached: True if keeping layers in FP16 reaches it.
        fp16_layers: These layers; empty if it is not reached.
        kernels: Number of kernels of these layers.
        minimal: True if each single kernel was left out once and the build missed the accuracy.
        builds: Number of builds measured.
        accuracy: Accuracy of the build with the layers in FP16 (all layers if not reached).
        int8: Accuracy of the build without these layers in FP16.
    """

    metric: str = member(choice(*METRICS))
    min: float | None = member(nullable(fields.difference))
    reached: bool = member(flag)
    fp16_layers: tuple[str, ...] = member(fields.names)
    kernels: int = member(fields.count)
    minimal: bool = member(flag)
    builds: int = member(fields.count)
    accuracy: Accuracy = member(record(Accuracy))
    int8: Accuracy = member(record(Accuracy))


@document(frozen=True, kw_only=True)
class ModuleImpact:
    """The error of INT8 in each kernel alone of a PyTorch module, inner modules included.

    Attributes:
        module: Its path; "" for the network.
        kind: Its class; "" if the file does not name it.
        kernels: Number of its INT8 kernels. A kernel with layers of several modules belongs to
            their common outer module.
        devices: Number of kernels by device.
        snr_db: The worst SNR of its kernels; None if every output is bit-equal.
        cosine: The worst cosine of its kernels; None without a kernel.
        floats: Number of its layers that do not run in INT8.
    """

    module: str = member(fields.name)
    kind: str = member(fields.name, absent="")
    kernels: int = member(fields.count)
    devices: Mapping[str, int] = member(mapping(fields.count))
    snr_db: float | None = member(nullable(fields.difference))
    cosine: float | None = member(nullable(fields.cosine))
    floats: int = member(fields.count)


@document(frozen=True)
class SensitivityRanking(FormerDict):
    """An ``edgekit.sensitivity/1``: the error of INT8 by kernel, and layers to keep in FP16.

    Attributes:
        samples: Number of inputs measured.
        kernels: Every INT8 kernel, worst first.
        floats: Layers that do not run in INT8.
        proposal: Layers to keep in FP16; None if no accuracy was requested.
        model: The model.
        target: The board.
        data: Description of the measured inputs.
        method: The calibration method.
        notes: Notes for the user.
        config: The proposal as YAML; empty without a proposal.
        file: The written configuration with the proposal.
        shortfall: Why keeping layers in FP16 does not reach the accuracy.
        modules: PyTorch's modules, each before its inner modules; empty if the file names none.
    """

    samples: int = member(fields.count)
    kernels: tuple[RankedKernel, ...] = member(records(RankedKernel))
    floats: tuple[FloatLayer, ...] = member(records(FloatLayer))
    proposal: ProposedLayers | None = member(nullable(record(ProposedLayers)))
    model: str = member(fields.name)
    target: str = member(fields.target)
    data: str = member(fields.name)
    method: str = member(fields.name)
    notes: tuple[str, ...] = member(fields.names)
    config: str = member(fields.name, default="")
    file: str | None = member(nullable(fields.name), default=None)
    shortfall: str = member(fields.name, absent="")
    modules: tuple[ModuleImpact, ...] = member(records(ModuleImpact), absent=())
    schema: str = member(choice("edgekit.sensitivity/1"), default="edgekit.sensitivity/1")


@document(frozen=True, eq=False)
class VariantRows:
    """A tensor's rows: row 0 of the FP32 network, row 1 + i of variant ``ids[i]``.

    Variants that are not listed have row 0: no kernel upstream of the tensor is in INT8.
    """

    ids: tuple[int, ...]
    array: np.ndarray

    @classmethod
    def of(cls, value: np.ndarray) -> VariantRows:
        """Returns a tensor that no variant changes."""
        return cls((), value[None])

    @property
    def base(self) -> np.ndarray:
        """The tensor in the FP32 network."""
        value: np.ndarray = self.array[0]
        return value

    def row(self, variant: int) -> np.ndarray:
        """Returns the tensor in a variant."""
        value: np.ndarray = self.array[self.ids.index(variant) + 1 if variant in self.ids else 0]
        return value

    def gather(self, ids: Sequence[int]) -> np.ndarray:
        """Returns row 0 and the rows of ``ids``; without a copy if these are the tensor's own."""
        if tuple(ids) == self.ids:
            return self.array
        at = {variant: number for number, variant in enumerate(self.ids, 1)}
        rows: np.ndarray = self.array[[0, *(at.get(variant, 0) for variant in ids)]]
        return rows


class KernelRun:
    """A kernel's sessions, opened when they are needed.

    Rows are stacked along the batch if the kernel treats them alike. A single trial with two rows
    of different values checks this: stacked rows must give the same results as each row alone.
    """

    def __init__(self, kernels: Kernels, kernel: ReferenceKernel) -> None:
        self._open: Callable[..., Any] = kernels.session
        self.kernel = kernel
        self._plain: Any = None
        self._stacked: Any = None
        self._quantised: Any = None
        self._tried = False

    def prepare(self, feed: Mapping[str, np.ndarray], *, quantised: bool) -> None:
        """Opens missing sessions; ``feed`` are values for the trial of stacking."""
        if quantised and self._quantised is None:
            self._quantised = self._open(self.kernel, quantised=True)
        if not self._tried:
            self._try(feed)

    def quantised(self, feed: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """Runs the kernel in INT8 on tensors of the FP32 network."""
        return self._call(self._quantised, feed)

    def rows(
        self, feed: Mapping[str, np.ndarray], count: int, spare: int, pool: Executor, workers: int
    ) -> list[np.ndarray]:
        """Runs the kernel in FP32 on ``count`` rows of each tensor.

        Returns:
            By output its rows, followed by space for ``spare`` more rows.
        """
        size = sum(value.nbytes for value in feed.values()) // count
        # a call for each worker, unless its rows take too many bytes
        step = max(1, min(-(-count // workers), _CALL_BYTES // max(1, size)))
        step = step if self._stacked is not None else 1
        made: list[np.ndarray] = []

        def work(start: int) -> list[np.ndarray]:
            end = min(start + step, count)
            return self._some_rows({name: value[start:end] for name, value in feed.items()})

        for start, values in zip(
            range(0, count, step), pool.map(work, range(0, count, step)), strict=True
        ):
            if not made:
                # with room for the INT8 row: appending it would copy all rows
                made = [np.empty((count + spare, *v.shape[1:]), v.dtype) for v in values]
            for target, value in zip(made, values, strict=True):
                target[start : start + len(value)] = value
        return made

    def _some_rows(self, feed: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        count = len(next(iter(feed.values()))) if feed else 1
        if self._stacked is not None:
            flat = {name: v.reshape(-1, *v.shape[2:]) for name, v in feed.items()}
            found = self._call(self._stacked, flat)
            return [value.reshape(count, -1, *value.shape[1:]) for value in found]
        # a single row, as `rows` cuts them
        return [v[None] for v in self._call(self._plain, {n: v[0] for n, v in feed.items()})]

    def _try(self, feed: Mapping[str, np.ndarray]) -> None:
        """Checks if rows can be stacked."""
        self._tried = True
        feed = {name: _finite(value) for name, value in feed.items()}
        if feed and all(value.ndim for value in feed.values()):
            try:
                session = self._open(self.kernel, quantised=False, stacked=True)
                other = {name: _different_values(value) for name, value in feed.items()}
                # a kernel that mixes rows (a sum over the batch) shows only if their values differ
                both = {name: np.concatenate([feed[name], other[name]]) for name in feed}
                alone = zip(self._call(session, feed), self._call(session, other), strict=True)
                apart = [np.concatenate(pair) for pair in alone]
                if all(map(_equal_results, self._call(session, both), apart)):
                    self._stacked = session
                    return
            except (BuildError, ValueError):
                pass  # ONNX Runtime or NumPy refuses stacked rows: run them in sequence
        self._plain = self._open(self.kernel, quantised=False)

    def _call(self, session: Any, feed: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        try:
            found: list[np.ndarray] = session.run(list(self.kernel.outputs), dict(feed))
        except Exception as error:  # ONNX Runtime's exceptions share no base class
            raise BuildError(
                f"ONNX Runtime failed in {self.kernel.layers[0]!r}: {' '.join(str(error).split())}",
                code="build.runtime",
                where=self.kernel.layers[0],
                hint="check that ONNX Runtime can run the model",
            ) from error
        return found


def _finite(value: np.ndarray) -> np.ndarray:
    """Returns the values with 0 for NaN and 1 for infinity, so that they compare as equal."""
    if value.dtype.kind != "f" or np.isfinite(value).all():
        return value
    finite: np.ndarray = np.nan_to_num(value, nan=0.0, posinf=1.0, neginf=-1.0)
    return finite


def _different_values(value: np.ndarray) -> np.ndarray:
    """Returns values of the same range that differ from ``value`` everywhere it matters."""
    turned = np.ascontiguousarray(value.reshape(-1)[::-1]).reshape(value.shape)
    if value.dtype.kind != "f" or not value.size:
        return turned
    # reversed, halved and moved: in range, and symmetric values differ, too
    most = np.abs(value).max() or value.dtype.type(1)
    return np.ascontiguousarray(turned / 2 + most / 4, value.dtype)


def _equal_results(found: np.ndarray, wanted: np.ndarray) -> bool:
    if found.shape != wanted.shape or not found.ndim:
        return False
    if found.dtype.kind != "f":
        return bool((found == wanted).all())
    finite = np.isfinite(wanted)
    if not np.array_equal(finite, np.isfinite(found)):
        return False
    most = float(np.abs(wanted[finite]).max(initial=0.0))
    return bool(np.allclose(found[finite], wanted[finite], rtol=0, atol=_CLOSE * most))


@document(frozen=True)
class _VariantRange:
    """Variants ``first`` to ``end`` (excluded) of a pass that begins at kernel ``start``."""

    first: int
    end: int
    start: int


class KernelChain:
    """The kernels in order, the INT8 kernels among them (the variants), and the running sums."""

    def __init__(self, kernels: Kernels, memory: int) -> None:
        self._all = kernels
        self.kernels = kernels.kernels
        self._running = [KernelRun(kernels, kernel) for kernel in self.kernels]
        self._variants = [at for at, k in enumerate(self.kernels) if k.precision == "int8"]
        self._errors: list[list[Deviation]] = [
            [Deviation(by_channel=True) for _ in kernels.outputs] for _ in self._variants
        ]
        self._memory = memory
        end = len(self.kernels)
        self._last = {name: at for at, k in enumerate(self.kernels) for name in k.inputs}
        self._last.update(dict.fromkeys(kernels.outputs, end))

    @cached_property
    def _groups(self) -> list[_VariantRange]:
        return self._split(0, len(self._variants)) or [_VariantRange(0, 0, 0)]

    @cached_property
    def work(self) -> int:
        """Bytes that the kernels write for an input, with the rows of all variants."""
        return sum(sum(self._written(group)) for group in self._groups)

    def _written(self, group: _VariantRange) -> Iterator[int]:
        """Yields the bytes written by each kernel of a pass."""
        # a bit for each variant: the mask of a tensor has those whose kernel is upstream
        bits = {at: 1 << n for n, at in enumerate(self._variants[group.first : group.end])}
        reach: dict[str, int] = {}
        for at, kernel in enumerate(self.kernels[group.start :], group.start):
            mask = bits.get(at, 0)
            for name in kernel.inputs:
                mask |= reach.get(name, 0)
            reach.update(dict.fromkeys(kernel.outputs, mask))
            size = sum(self._all.nbytes(name) for name in kernel.outputs)
            yield max(1, size) * (1 + mask.bit_count())

    def _split(self, first: int, end: int) -> list[_VariantRange]:
        if first == end:
            return []
        # the other groups begin from the first group's pass
        start = self._variants[first] if first else 0
        if end - first == 1 or self._peak(first, end, start) <= self._memory:
            return [_VariantRange(first, end, start)]
        # halves, as memory falls with the number of variants that are alive together
        middle = (first + end) // 2
        return [*self._split(first, middle), *self._split(middle, end)]

    def _peak(self, first: int, end: int, start: int) -> int:
        """Returns the peak of bytes that the rows of some variants take."""
        bits = {at: 1 << n for n, at in enumerate(self._variants[first:end])}
        reach: dict[str, int] = {}
        alive: dict[str, int] = {}
        most = 0
        for at, kernel in enumerate(self.kernels[start:], start):
            mask = bits.get(at, 0)
            for name in kernel.inputs:
                mask |= reach.get(name, 0)
                alive.setdefault(name, self._all.nbytes(name))
            for name in kernel.outputs:
                reach[name] = mask
                alive[name] = self._all.nbytes(name) * (1 + mask.bit_count())
            most = max(most, sum(alive.values()))
            for name in (*kernel.inputs, *kernel.outputs):
                if self._last.get(name, -1) <= at:
                    alive.pop(name, None)
        return most

    def take(
        self, feed: Mapping[str, np.ndarray], pool: ThreadPoolExecutor, workers: int, sample: int
    ) -> Iterable[int]:
        """Adds an input; yields after each kernel the bytes of ``work`` that are done."""
        # the FP32 row is the same for all groups: the first pass leaves it where the others begin
        starts = {group.start for group in self._groups[1:]}
        saved: dict[int, dict[str, VariantRows]] = {}
        done = 0
        for index, group in enumerate(self._groups):
            alive = (
                saved.pop(group.start, {})
                if index
                else {k: VariantRows.of(v) for k, v in feed.items()}
            )
            own = {self._variants[n]: n for n in range(group.first, group.end)}
            for at, written in enumerate(self._written(group), group.start):
                if index == 0 and at in starts:
                    # copied: a view would keep the rows of the whole group
                    saved[at] = {n: VariantRows.of(rows.base.copy()) for n, rows in alive.items()}
                self._step(at, own.get(at), alive, pool, workers)
                done += written
                yield done
            self._add(group, alive, pool, sample)

    def _step(
        self,
        at: int,
        variant: int | None,
        alive: dict[str, VariantRows],
        pool: ThreadPoolExecutor,
        workers: int,
    ) -> None:
        """Runs a kernel on all rows, and in INT8 on the FP32 network's row."""
        kernel, running = self.kernels[at], self._running[at]
        ids = sorted({i for name in kernel.inputs for i in alive[name].ids})
        feed = {name: alive[name].gather(ids) for name in kernel.inputs}
        added = () if variant is None else (variant,)
        # a variant begins at its own kernel, from the FP32 network's tensors
        base = {name: alive[name].base for name in kernel.inputs}
        running.prepare(base, quantised=variant is not None)
        # at the same time as the rows in FP32
        quantised = pool.submit(running.quantised, base) if variant is not None else None
        made = running.rows(feed, len(ids) + 1, len(added), pool, workers)
        if quantised is not None:
            for rows, value in zip(made, quantised.result(), strict=True):
                rows[-1] = value
        for name in kernel.inputs:
            # freed at its last reader: rows of all tensors at once would exceed the memory
            if self._last[name] == at:
                del alive[name]
        for name, rows in zip(kernel.outputs, made, strict=True):
            alive[name] = VariantRows((*ids, *added), rows)

    def _add(
        self,
        group: _VariantRange,
        alive: Mapping[str, VariantRows],
        pool: ThreadPoolExecutor,
        sample: int,
    ) -> None:
        for at, name in enumerate(self._all.outputs):
            rows = alive[name]
            if rows.base.dtype.kind == "f" and not np.isfinite(rows.base).all():
                raise DataError(
                    f"the network gives NaN or infinity in {name!r} even in FP32",
                    code="accuracy.nonfinite",
                    where=f"input {sample}",
                    hint="check the weights for NaN and the inputs for values out of range",
                )

            def add(variant: int, at: int = at, rows: VariantRows = rows) -> None:
                self._errors[variant][at].add(rows.base, rows.row(variant))

            # list: waits, and raises a worker's error
            list(pool.map(add, range(group.first, group.end)))

    def impacts(self) -> tuple[Impact, ...]:
        """Returns the error of each variant, worst first."""
        found = []
        for variant, at in enumerate(self._variants):
            kernel, errors = self.kernels[at], self._errors[variant]
            whole = worst_measures(errors)
            ratios = [whole.snr_db, *(g.snr_db for e in errors for g in e.groups())]
            worst = min((ratio for ratio in ratios if ratio is not None), default=None)
            place = [
                word
                for word, mine, ends in (
                    ("first", kernel.inputs, self._all.inputs),
                    ("last", kernel.outputs, self._all.outputs),
                )
                if set(mine) & set(ends)
            ]
            found.append(
                Impact(
                    kernel.layers,
                    kernel.device,
                    worst,
                    whole.cosine,
                    whole.cosine_min,
                    whole.max_abs,
                    # of the first output, as in ``accuracy``
                    errors[0].top1_agreement() if errors else 1.0,
                    tuple(place),
                )
            )
        # the worst first; without an SNR last
        return tuple(
            sorted(found, key=lambda item: (item.snr_db is None, item.snr_db or 0.0, item.cosine))
        )


def analyse(
    plan: SegmentedPlan,
    scales: Scales | None,
    data: Iterable[Mapping[str, np.ndarray]],
    *,
    progress: Callable[[int, int], None] | None = None,
    memory: int = _MEMORY,
) -> Sensitivity:
    """Measures the error of each INT8 kernel, with all others in FP32.

    Weights and activations of the kernel are quantised as by ``build_reference`` in the plan's
    build: the result equals a build with only this kernel in INT8, up to the order in which ONNX
    Runtime adds.

    For each input the kernels run once, in order. A tensor has a row for the FP32 network and a row
    for each variant that differs there. So a variant begins at its own kernel, with the FP32
    network's tensors, and skips kernels that its kernel does not reach. The rows of all variants
    pass a kernel in one call, stacked along the batch.

    Args:
        plan: The FP32 model with placement and precision by layer.
        scales: INT8 scales.
        data: Inputs by name, one dict an inference; read once, one at a time.
        progress: Called with (bytes that kernels wrote, bytes in all or 0 if the number of inputs
            is unknown).
        memory: Bytes that tensors between kernels may take at once. A kernel's own memory is added,
            and is no more than in a run of the network.

    Returns:
        The kernels, worst first, and the layers that do not run in INT8.

    Raises:
        DataError: No data, data that do not fit, or FP32 itself gives NaN or infinity.
        BuildError: ONNX Runtime fails.
    """
    chain = KernelChain(Kernels(plan, scales), memory)
    total = len(data) * chain.work if isinstance(data, Sized) else 0
    count = 0
    workers = min(os.cpu_count() or 1, 8)
    with ThreadPoolExecutor(workers) as pool:
        for feed in data:
            checked = check_feed(feed, plan.model, where=f"input {count}")
            done = count * chain.work
            for part in chain.take(checked, pool, workers, count):
                if progress is not None:
                    progress(done + part, total)
            count += 1
    if count == 0:
        raise DataError(
            "no data to measure the sensitivity",
            code="data.empty",
            hint="give at least one input",
        )
    # by the planned precision: is an INT8 kernel missing, or was the layer planned in FP16?
    planned = {placed.name: placed.precision for placed in plan.plan.layers}
    floats = {
        layer: _float_reason(kernel.precision, kernel.unscaled, planned=planned.get(layer, ""))
        for kernel in chain.kernels
        if kernel.precision != "int8"
        for layer in kernel.layers
    }
    return Sensitivity(chain.impacts(), floats, count)


def _float_reason(precision: str, unscaled: tuple[str, ...], *, planned: str) -> str:
    if unscaled:
        return f"no scale for {', '.join(map(repr, unscaled[:3]))}"
    if planned == "int8":
        return f"{precision}, because it has no INT8 kernel or only moves values of such a layer"
    return f"{planned or precision} in the plan"


def ranked_kernels(found: Sensitivity, network: Network) -> tuple[RankedKernel, ...]:
    """Returns the ranking with the kinds of the kernels' layers."""
    kinds = {layer.name: layer.kind for layer in network.layers}
    return tuple(
        RankedKernel(
            **{field.name: getattr(item, field.name) for field in dataclasses.fields(item)},
            kinds=tuple(kinds.get(name, "") for name in item.layers),
        )
        for item in found.impacts
    )


def module_impacts(found: Sensitivity, network: Network) -> tuple[ModuleImpact, ...]:
    """Returns the modules' INT8 errors, each before its inner modules; empty without names."""
    module = layer_modules(network)
    kernels: dict[str, list[Impact]] = defaultdict(list)
    for impact in found.impacts:
        for path in enclosing_modules(
            common_module(module.get(name, "") for name in impact.layers)
        ):
            kernels[path].append(impact)
    floats = Counter(
        path for name in found.floats for path in enclosing_modules(module.get(name, ""))
    )
    rows = []
    # outer modules first, in the network's order
    for totals in module_totals(network, {}):
        own = kernels[totals.module]
        ratios = [impact.snr_db for impact in own if impact.snr_db is not None]
        if own or floats[totals.module]:
            rows.append(
                ModuleImpact(
                    module=totals.module,
                    kind=totals.kind,
                    kernels=len(own),
                    devices=dict(sorted(Counter(impact.device for impact in own).items())),
                    snr_db=min(ratios, default=None),
                    cosine=min((impact.cosine for impact in own), default=None),
                    floats=floats[totals.module],
                )
            )
    return tuple(rows)


def float_layers(
    found: Sensitivity, network: Network, judgement: Judgement
) -> tuple[FloatLayer, ...]:
    """Returns the layers that run in FP16 anyway.

    Args:
        found: The result of :func:`analyse`.
        network: The layers.
        judgement: Their verdicts, with the layers that a DLA always computes in FP16.
    """
    return tuple(
        FloatLayer(name, why, _rule(name, network, judgement)) for name, why in found.floats.items()
    )


def _rule(name: str, network: Network, judgement: Judgement) -> str:
    """Returns the rule by which a DLA computes a layer in FP16 in an INT8 loadable, if any."""
    verdict = judgement.verdicts.get(name)
    if verdict is None or verdict.precision != "fp16" or judgement.precision_of(name) != "int8":
        return ""

    kind = network.layer(name).kind
    rules = [rule for rule in load_rules() if rule.runs_in == "fp16" and kind in rule.kinds]
    return rules[0].id if rules else ""


def proposal_document(proposal: Proposal) -> ProposedLayers:
    """Returns the document's form of a proposal."""
    return ProposedLayers(
        metric=proposal.metric,
        min=proposal.minimum,
        reached=proposal.layers is not None,
        fp16_layers=proposal.layers or (),
        kernels=proposal.kernels if proposal.layers is not None else 0,
        minimal=proposal.minimal,
        builds=proposal.builds,
        accuracy=proposal.accuracy,
        int8=proposal.int8,
    )
