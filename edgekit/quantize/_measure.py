"""Measures activation ranges: one pass over the data with ONNX Runtime in FP32."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit._listed import counted, listed
from edgekit.errors import DataError
from edgekit.quantize._histogram import Histogram
from edgekit.quantize._measure_checks import (
    bad_activation,
    bad_input,
    check_weights,
    unbounded,
    warnings_of,
)
from edgekit.quantize._measure_derived import derive, derived, merged, sided
from edgekit.quantize._measure_feeds import Feeds, rows
from edgekit.quantize._measure_parts import PART_BYTES, Part, parts, run_parts
from edgekit.quantize._measure_recount import Recount
from edgekit.quantize._measure_state import Keeper
from edgekit.quantize._methods import METHODS, amax_of, entropy_if_sure
from edgekit.quantize._types import Ranges

if TYPE_CHECKING:
    import numpy as np

    from edgekit.network import Model, Network

__all__ = ["float_tensors", "measure"]

# activations looked at together; a network with more is run in parts, one after the other. While
# those of one part are counted the next one runs, so that there are two at a time
_CHUNK_BYTES = PART_BYTES

_SHOWN = 4

Tell = Callable[[int, int], None]


def measure(
    model: Model,
    data: Iterable[Mapping[str, np.ndarray]],
    *,
    network: Network | None = None,
    progress: Tell | None = None,
    resume: Path | None = None,
    describe: str = "",
) -> Ranges:
    """Measures the range of every float tensor by all methods, in one pass over the data.

    Every value counts. The counts are exact and do not depend on order or batch: the same samples
    in batches of another size give the same ranges, as long as ONNX Runtime computes the same
    values (its matrix products may round differently for another number of rows). The network
    runs without ONNX Runtime's graph optimisations, as written.

    Where two candidates of the entropy method are so near that bins of the final range must be
    counted exactly, the inputs, which are kept (the first 128 MiB in memory, more in a temporary
    file), run a second time, for these tensors alone.

    Memory: 256 KiB a tensor for the counts, and of the activations those of two inputs, in
    parts of at most 256 MiB (or one node's outputs) and what later parts still read of them.

    Args:
        model: The FP32 model.
        data: Inputs by name, one dict a run; read once. Where it has a method ``valid(index)``,
            only so many rows (of its ``batch``, along the first axis) of that run count; where it
            has ``warnings``, the ranges have them too.
        network: Its layers, where they are known. Where some of them are opaque, what comes
            before them is measured, and tensors behind them have the range 0.
        progress: Called with (runs done, runs in all or 0 when unknown). Runs for exact counts
            come on top of both.
        resume: A file where the state is kept every few seconds and that is removed at the end. A
            measurement of the same model and inputs that was interrupted goes on from there, with
            the same results to the bit; a file of others is ignored with a warning.
        describe: What the data is, for people.

    Raises:
        DataError: No data, inputs that do not fit, or a NaN or infinity in a tensor (with the
            sample and the node that makes it).
        ModelError: A weight has NaN or infinities, or ONNX Runtime cannot run the model.
    """
    from edgekit.network import before_opaque, layers

    whole, model = model, before_opaque(model)
    lacking: list[str] = []
    if model is not whole:
        names = float_tensors(whole, network or layers(whole))
        network = layers(model)
        lacking = sorted({*names} - {*float_tensors(model, network)})
    network = network or layers(model)
    check_weights(model)
    with Feeds(data, model) as feeds, ThreadPoolExecutor(max_workers=2) as pool:
        run = _Run(model, network, feeds.batch, pool)
        total = len(data) if isinstance(data, Sized) else 0
        keeper = Keeper(resume, model, list(run.histograms))
        count = run.resume(keeper, feeds, progress, total)
        for feed, valid in feeds:
            run.add(feed, valid, count)
            count += 1
            if progress is not None:
                progress(count, total)
            if keeper.due():
                run.flush()
                keeper.save(run.histograms, count, feeds.digest)
        if count == 0:
            raise DataError(
                "there is no calibration data",
                code="calibration.empty",
                hint="give at least one sample; a few hundred representative ones are usual",
            )
        run.flush()
        if resume is not None and resume.exists():
            keeper.save(run.histograms, count, feeds.digest)
        amax = run.ranges(feeds, count, progress)
        keeper.remove()
    for found in amax.values():
        found.update(dict.fromkeys(lacking, 0.0))
    told: Iterable[str] = getattr(data, "warnings", ())
    warnings = [*told, *run.notes, *warnings_of(run.every, count)]
    if model is not whole:
        warnings.append(_up_to(model, whole, lacking))
    masked = tuple(name for name, histogram in run.every.items() if histogram.is_masked)
    return Ranges(amax, describe or f"{counted(count, 'sample')}", count, tuple(warnings), masked)


def _up_to(part: Model, whole: Model, lacking: Sequence[str]) -> str:
    from edgekit.network import opaque_nodes

    ends = listed([value.name for value in part.proto.graph.output], _SHOWN)
    first = next(iter(opaque_nodes(whole.proto)))
    behind = f"; not measured behind it: {listed(lacking, _SHOWN)}" if lacking else ""
    return f"measured up to {ends}: node {first!r} is run on the board only{behind}"


class _Run:
    """The histograms of a model's tensors and what fills them.

    Attributes:
        histograms: Of the tensors that are counted.
        every: Of all tensors, those that follow from others too; empty until ``ranges``.
    """

    def __init__(
        self, model: Model, network: Network, batch: int, pool: ThreadPoolExecutor
    ) -> None:
        self._names = float_tensors(model, network)
        self._derived = derived(model, network, self._names)
        names = [name for name in self._names if name not in self._derived]
        apart = sided(self._derived)
        inputs = {value.name for value in model.proto.graph.input}
        self.batch = batch
        self.histograms = {name: Histogram(sided=name in apart) for name in names}
        self.every: dict[str, Histogram] = {}
        self.notes: list[str] = []
        self._unbounded = unbounded(model)
        self._model = model
        self._pool = pool
        self._outputs = [name for name in names if name not in inputs]
        self._parts: list[Part] | None = None
        self._pending: list[tuple[str, Future[bool]]] = []
        self._of_pending: tuple[Mapping[str, np.ndarray], int] = {}, 0

    def resume(self, keeper: Keeper, feeds: Feeds, progress: Tell | None, total: int) -> int:
        """Takes over what an earlier measurement counted; returns the number of its runs."""
        state = keeper.load()
        if isinstance(state, str):
            if state:
                self.notes.append(f"the measurement that was interrupted is not used: {state}")
            return 0
        histograms, done, digest = state
        if feeds.skip(done) == digest:
            self.histograms = histograms
            if progress is not None:
                progress(done, total)
            return done
        self.notes.append("the measurement that was interrupted is not used: it has other data")
        count = 0
        for feed, valid in feeds.again():
            self.add(feed, valid, count)
            count += 1
            if progress is not None:
                progress(count, total)
        return count

    def add(self, feed: Mapping[str, np.ndarray], valid: int | None, sample: int) -> None:
        """Runs one set of inputs and counts every tensor, the last of them later.

        Raises:
            DataError: A NaN or an infinity, in these or in the inputs before.
        """
        if self._parts is None:
            self._parts = parts(self._model, self._outputs, _CHUNK_BYTES)
        own = tuple(name for name in feed if name in self.histograms)
        found: list[np.ndarray] = [feed[name] for name in own]
        for names, arrays in chain([(own, found)], run_parts(self._parts, feed)):
            self.flush()
            self._of_pending = feed, sample
            while arrays:
                # the tasks alone hold the arrays: a counted one is freed at once
                name = names[len(arrays) - 1]
                values = rows(arrays.pop(), self.batch, valid)
                if name in self._unbounded:
                    values = _bounded(values)
                self._pending.append((name, self._pool.submit(self.histograms[name].add, values)))
                del values

    def flush(self) -> None:
        """Waits until everything that was added is counted.

        Raises:
            DataError: A NaN or an infinity.
        """
        pending, self._pending = self._pending[::-1], []
        fine = [(name, future.result()) for name, future in pending]
        bad = next((name for name, good in fine if not good), None)
        if bad is not None:
            feed, sample = self._of_pending
            if bad in feed:
                raise bad_input(bad, sample)
            raise bad_activation(self._model, bad, sample, feed, self._unbounded)

    def ranges(
        self, feeds: Feeds, count: int, progress: Tell | None
    ) -> dict[str, dict[str, float]]:
        """Returns the clipping magnitudes by method and tensor."""
        counted = dict(self.histograms)
        derive(self._derived, counted)
        names = self._names
        values = list(self._pool.map(Histogram.whole, [counted[name] for name in names]))
        self.every = dict(zip(names, values, strict=True))
        found = dict(zip(names, self._pool.map(entropy_if_sure, values), strict=True))
        self._parts = None
        recount = Recount(
            self._model, {n: self.every[n] for n, value in found.items() if value is None},
            self._derived, self.batch, self._pool, _CHUNK_BYTES,
        )  # fmt: skip
        exact = recount.run(feeds, count, progress)
        sure = {n: exact[n] if value is None else value for n, value in found.items()}
        amax = {"entropy": sure}
        for method in METHODS:
            if method != "entropy":
                results = self._pool.map(lambda h, m=method: amax_of(h, m), values)
                amax[method] = dict(zip(names, results, strict=True))
        return {method: amax[method] for method in METHODS}


def _bounded(values: np.ndarray) -> np.ndarray:
    """Returns infinities as the largest float32, which no scale suits either; NaN stays."""
    import numpy as np

    most = np.finfo(np.float32).max
    return np.clip(values.astype(np.float32, copy=False), -most, most)


def float_tensors(model: Model, network: Network) -> list[str]:
    """Returns the float tensors that an ONNX node or the caller writes, in graph order.

    Those that only hold another one's values in another shape come last where no layer has them.
    """
    written = model.tensor_names
    found = [
        name
        for name, tensor in network.tensors.items()
        if tensor.dtype in ("float32", "float16") and name in written
    ]
    return [*found, *merged(model, network)]
