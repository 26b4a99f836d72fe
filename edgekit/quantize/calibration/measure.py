"""Measures activation ranges: a pass over the data with ONNX Runtime in FP32, and exact counts in
the entropy method's own bins if its candidates nearly tie. Inputs are read once and retained if
they may be needed again; a file keeps the state of an interrupted measurement.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.errors import DataError, EnvironmentLack
from edgekit.files import write_atomically
from edgekit.network.loading.opaque import before_opaque
from edgekit.network.lowering.layers import layers
from edgekit.network.model import Model, Network
from edgekit.quantize.calibration.checks import (
    bad_activation,
    bad_input,
    check_weights,
    data_warnings,
    tensors_with_few_values,
    unbounded_tensors,
)
from edgekit.quantize.calibration.histograms import (
    BINS,
    ENTROPY_BINS,
    LARGE,
    METHODS,
    DerivedTensor,
    ValueHistogram,
    choose_amax,
    clipping_edge,
    derive,
    derived_tensors,
    edges,
    entropy_if_sure,
    merged_moves,
    nearest_candidate,
    sided_tensors,
)
from edgekit.quantize.calibration.parts import PART_BYTES, NetworkPart, parts, run_parts
from edgekit.quantize.data.rows import check_feed
from edgekit.quantize.scales import Ranges
from edgekit.text import counted, listed

_SCHEMA = "edgekit.measuring/2"
# least time between two states: in seconds, and as a multiple of the time to write a state
_EVERY = 5.0
_SPARE = 20.0
# bytes of inputs kept in memory; further inputs are in a temporary file
_IN_MEMORY = 1 << 27
Feed = tuple[dict[str, "np.ndarray"], int | None]
# values counted at once, and distance to an edge (in bins) at which float32 may pick a wrong bin
_BLOCK = 1 << 16
_NEAR = 0.001

_scratch = threading.local()
# bytes of activations held together; a network with more runs in parts, in sequence. While the
# activations of a part are counted, the next part runs, so two parts are held at a time
_CHUNK_BYTES = PART_BYTES
_SHOWN = 4
OnProgress = Callable[[int, int], None]


class MeasurementState:
    """Keeps the state of a measurement in a file every few seconds.

    Args:
        path: The file; None keeps no state.
        model: The model.
        names: The tensors that are measured, in order.
    """

    def __init__(self, path: Path | None, model: Model, names: list[str]) -> None:
        self._path = path
        self._names = names
        self._next = time.monotonic() + _EVERY
        if path is not None:
            import onnxruntime

            # another ONNX Runtime may round differently, and the result must be that of a single
            # run
            parts = [_SCHEMA, BINS, onnxruntime.__version__, model.digest, names]
            self._identity = hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    def load(self) -> tuple[dict[str, ValueHistogram], int, str] | str:
        """Returns histograms, inputs counted, their digest; or why not (empty without a file)."""
        if self._path is None or not self._path.exists():
            return ""
        try:
            with self._path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
                head = json.loads(bytes(archive["head"]))
                if head["identity"] != self._identity:
                    return "it belongs to another model or edgekit release"
                return self._histograms(archive), int(head["done"]), str(head["inputs"])
        except (OSError, ValueError, KeyError, EOFError, TypeError, zipfile.BadZipFile):
            return "it is damaged"

    def _histograms(self, archive: Mapping[str, np.ndarray]) -> dict[str, ValueHistogram]:
        ranges, has, counts = archive["ranges"], archive["has"], archive["counts"]
        if ranges.shape != (len(self._names), 6) or counts.shape != (int(has.sum()), 2 * BINS):
            raise ValueError("sizes")
        rows = iter(counts.astype("int64"))
        found = {}
        for name, ends, there in zip(self._names, ranges.tolist(), has, strict=True):
            low, high, top, zeros, sided, bottom = ends
            own = next(rows) if there else None
            found[name] = ValueHistogram(low, high, top, own, int(zeros), bool(sided), bottom)
        return found

    def due(self) -> bool:
        """Returns True if a state should be written now."""
        return self._path is not None and time.monotonic() >= self._next

    def save(self, histograms: Mapping[str, ValueHistogram], done: int, inputs: str) -> None:
        """Writes the state atomically: the file is always the complete old or new state."""
        if self._path is None:
            return
        began = time.monotonic()
        head = json.dumps({"identity": self._identity, "done": done, "inputs": inputs})
        values = list(histograms.values())
        there = [h.counts for h in values if h.counts is not None]
        counts = np.stack(there) if there else np.zeros((0, 2 * BINS), np.int64)
        # half the bytes for almost every measurement
        narrow = not counts.size or counts.max() < 1 << 32
        with write_atomically(self._path) as path, path.open("wb") as file:
            np.savez(
                file,
                head=np.frombuffer(head.encode(), np.uint8),
                ranges=np.array(
                    [[h.low, h.high, h.top, h.zeros, h.sided, h.bottom] for h in values], np.float64
                ),
                has=np.array([h.counts is not None for h in values]),
                counts=counts.astype(np.uint32) if narrow else counts,
            )
        spent = time.monotonic() - began
        self._next = began + spent + max(_EVERY, _SPARE * spent)

    def remove(self) -> None:
        """Removes the file: the measurement is finished."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)


def feed_digest(before: str, feed: Mapping[str, np.ndarray], valid: int | None) -> str:
    """Returns the digest of all inputs up to this one."""
    # a chain: the digest after input n covers all inputs up to n, and is known while reading
    digest = hashlib.blake2b(f"{before}{valid}".encode(), digest_size=16)
    for name, array in feed.items():
        digest.update(f"{name}{array.dtype}{array.shape}".encode())
        digest.update(array.reshape(-1).view("uint8").data)
    return digest.hexdigest()


class Feeds:
    """Reads each input once; keeps them to be read again.

    Args:
        data: Inputs by name, one dict a run. If it has a method ``valid(index)``, only that many
            rows of a run count, of ``data.batch`` (by default the first input's first dimension);
            the others fill up a batch.
        model: The model.

    Attributes:
        batch: Rows of a run.
        read: Number of runs read.
        digest: Digest of all inputs read.
    """

    def __init__(self, data: Iterable[Mapping[str, np.ndarray]], model: Model) -> None:
        self._data = iter(data)
        self._valid = getattr(data, "valid", None)
        self.batch: int = getattr(data, "batch", 0) or _batch(model)
        self._model = model
        self._file: Any = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115
        self._stored: list[tuple[tuple[str, ...], int | None]] = []
        self.read = 0
        self.digest = ""

    def __enter__(self) -> Feeds:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __iter__(self) -> Iterator[Feed]:
        """Yields the inputs not read yet, with the number of rows that count (None: all)."""
        for feed in self._data:
            checked = check_feed(feed, self._model, where=f"calibration sample {self.read}")
            valid = None if self._valid is None else int(self._valid(self.read))
            self.digest = feed_digest(self.digest, checked, valid)
            self._keep(checked, valid)
            self.read += 1
            yield checked, valid

    def skip(self, count: int) -> str:
        """Reads inputs without yielding them; returns the digest of all inputs read."""
        feeds = iter(self)
        while self.read < count and next(feeds, None) is not None:
            pass
        return self.digest

    def _keep(self, feed: Mapping[str, np.ndarray], valid: int | None) -> None:
        try:
            # append: ``again`` moves the position
            self._file.seek(0, 2)
            for array in feed.values():
                np.save(self._file, array, allow_pickle=False)
        except OSError as error:
            raise EnvironmentLack(
                f"cannot keep the inputs in a temporary file: {error.strerror or error}",
                code="file.write",
                where=tempfile.gettempdir(),
                hint="free some space, set TMPDIR to another folder, or give fewer inputs",
            ) from error
        self._stored.append((tuple(feed), valid))

    def again(self) -> Iterator[Feed]:
        """Yields the inputs that were read, from the first."""
        place = 0
        for names, valid in list(self._stored):
            self._file.seek(place)
            feed = {name: np.load(self._file, allow_pickle=False) for name in names}
            place = self._file.tell()
            yield feed, valid


def _batch(model: Model) -> int:
    inputs = model.proto.graph.input
    dims = inputs[0].type.tensor_type.shape.dim if len(inputs) else []
    return int(dims[0].dim_value) if len(dims) else 1


def valid_rows(array: np.ndarray, batch: int, valid: int | None) -> np.ndarray:
    """Returns the part of a tensor that belongs to the first ``valid`` of ``batch`` rows.

    Tensors whose first axis is no multiple of the batch are returned whole.
    """
    if valid is None or valid >= batch or not array.ndim or array.shape[0] % batch:
        return array
    return array[: array.shape[0] // batch * valid]


class Recount:
    """Counts some tensors again, now that their largest magnitudes are known.

    Args:
        model: The model.
        histograms: Histograms of the tensors to count.
        derived: Tensors that need no counts of their own if their bins equal the source's bins.
        batch: Rows of a run.
        pool: Counts in parallel.
        limit: Bytes of activations held together.
    """

    def __init__(
        self,
        model: Model,
        histograms: Mapping[str, ValueHistogram],
        derived: Mapping[str, DerivedTensor],
        batch: int,
        pool: ThreadPoolExecutor,
        limit: int,
    ) -> None:
        self._model = model
        self._of = histograms
        self._derived = {
            name: how
            for name, how in derived.items()
            if how.kind != "all"
            and {name, how.sources[0]} <= histograms.keys()
            and histograms[name].amax == histograms[how.sources[0]].amax
        }
        self._batch = batch
        self._pool = pool
        self._limit = limit

    def run(
        self, feeds: Feeds, count: int, progress: Callable[[int, int], None] | None
    ) -> dict[str, float]:
        """Returns the entropy method's clipping magnitudes."""
        if not self._of:
            return {}
        counts = {
            name: np.zeros(ENTROPY_BINS, np.int64) for name in self._of if name not in self._derived
        }
        inputs = {value.name for value in self._model.proto.graph.input}
        outputs = [name for name in counts if name not in inputs]
        made = parts(self._model, outputs, self._limit) if outputs else []
        pending: list[Future[None]] = []
        for done, (feed, valid) in enumerate(feeds.again(), count + 1):
            own = tuple(name for name in feed if name in counts)
            first: list[np.ndarray] = [feed[n] for n in own]
            for names, arrays in chain([(own, first)], run_parts(made, feed)):
                # the part before this is counted while this part runs: at most two parts are in
                # memory
                while pending:
                    pending.pop().result()
                while arrays:
                    # frees a counted array at once
                    name = names[len(arrays) - 1]
                    values = valid_rows(arrays.pop(), self._batch, valid)
                    pending.append(self._pool.submit(self._count, counts[name], name, values))
                    del values
            if progress is not None:
                progress(done, 2 * count)
        for future in pending:
            future.result()
        for name, how in self._derived.items():
            found = counts[how.sources[0]].copy()
            if how.kind == "relu":
                # negative values become zeros, which are in the first bin above the middle
                middle = found.size // 2
                found[middle] += found[:middle].sum()
                found[:middle] = 0
            counts[name] = found
        best = self._pool.map(nearest_candidate, counts.values())
        return {
            name: clipping_edge(candidate, self._of[name].low, self._of[name].high)
            for name, candidate in zip(counts, best, strict=True)
        }

    def _count(self, counts: np.ndarray, name: str, values: np.ndarray) -> None:
        flat = values.reshape(-1)
        for begin in range(0, flat.size, _BLOCK):
            counts += exact_counts(flat[begin : begin + _BLOCK], self._of[name].amax, counts.size)


def exact_counts(values: np.ndarray, amax: float, bins: int) -> np.ndarray:
    """Returns ``numpy.histogram(values, bins, (-amax, amax))``'s counts, several times faster.

    Only values that float32 arithmetic puts near an edge are compared with the edge itself.

    Args:
        values: float32 or float16 [n], of magnitudes up to ``amax``.
        amax: A float32, above 0.
        bins: At most 4096: a value's place is then known to better than ``_NEAR`` of a bin.
    """
    if amax >= LARGE:
        # twice the range overflows float32; scaling by 4 is exact
        values, amax = values * np.float32(0.25), amax / 4.0
    top = np.float32(amax)
    index = np.empty(values.size, np.intp)
    if not hasattr(_scratch, "arrays"):
        _scratch.arrays = np.empty(_BLOCK, np.float32), np.empty(_BLOCK, np.float32)
    if values.size <= _BLOCK:
        place, whole = (array[: values.size] for array in _scratch.arrays)
    else:
        place, whole = np.empty(values.size, np.float32), np.empty(values.size, np.float32)
    np.add(values, top, out=place)
    place *= np.float32(bins / (2.0 * amax))
    np.floor(place, out=whole)
    # the distance to the bin's centre: near 0.5 at an edge
    place -= whole
    place -= np.float32(0.5)
    np.abs(place, out=place)
    near = np.flatnonzero(place > np.float32(0.5 - _NEAR))
    # conversion through int32 is twice as fast as directly
    np.copyto(index, whole.astype(np.int32))
    if near.size:
        found = np.searchsorted(
            _cached_edges(amax, bins), values[near].astype(np.float32), side="right"
        )
        # as numpy.histogram: the last bin includes its upper edge
        index[near] = np.clip(found - 1, 0, bins - 1)
    return np.asarray(np.bincount(index, minlength=bins))


@lru_cache(maxsize=256)
def _cached_edges(amax: float, bins: int) -> np.ndarray:
    return edges(amax, bins)


def measure(
    model: Model,
    data: Iterable[Mapping[str, np.ndarray]],
    *,
    network: Network | None = None,
    progress: OnProgress | None = None,
    resume: Path | None = None,
    describe: str = "",
) -> Ranges:
    """Measures the range of every float tensor by all methods, in one pass over the data.

    Every value counts. The counts are exact and do not depend on order or batch: the same samples
    in batches of another size give the same ranges, as long as ONNX Runtime computes the same
    values (its matrix products may round differently for another number of rows). The network
    runs as written, without ONNX Runtime's graph optimisations.

    If two candidates of the entropy method are so near that bins of the final range must be
    counted exactly, the retained inputs (the first 128 MiB in memory, more in a temporary file)
    run a second time, for these tensors alone.

    Memory: 256 KiB a tensor for the counts, and the activations of two inputs, in parts of at most
    256 MiB (or a node's outputs), plus activations that later parts still read.

    Args:
        model: The FP32 model.
        data: Inputs by name, one dict a run; read once. If it has a method ``valid(index)``,
            only that many rows (of its ``batch``, along the first axis) of that run count; if it
            has ``warnings``, the ranges have them too.
        network: Its layers, if known. If some layers are opaque, only tensors before them are
            measured; tensors after them have the range 0.
        progress: Called with (runs done, runs in all or 0 when unknown). Runs for exact counts
            are added to both.
        resume: A file that keeps the state every few seconds and is removed at the end. An
            interrupted measurement of the same model and inputs resumes from it, with bit-identical
            results; the file of another measurement is ignored with a warning.
        describe: Description of the data, for people.

    Raises:
        DataError: No data, inputs that do not fit, or a NaN or infinity in a tensor (with the
            sample and the node that produces it).
        ModelError: A weight has NaN or infinities, or ONNX Runtime cannot run the model.
    """
    whole, model = model, before_opaque(model)
    lacking: list[str] = []
    if model is not whole:
        network = network or layers(whole)
        names = float_tensors(whole, network)
        network = layers(model, network.release)
        lacking = sorted({*names} - {*float_tensors(model, network)})
    network = network or layers(model)
    check_weights(model)
    with Feeds(data, model) as feeds, ThreadPoolExecutor(max_workers=2) as pool:
        run = _RangeMeasurement(model, network, feeds.batch, pool)
        total = len(data) if isinstance(data, Sized) else 0
        keeper = MeasurementState(resume, model, list(run.histograms))
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
                hint="give at least one sample (usual: a few hundred representative ones)",
            )
        run.flush()
        # a long measurement: an interruption of the recount below resumes with all counts
        if resume is not None and resume.exists():
            keeper.save(run.histograms, count, feeds.digest)
        amax = run.ranges(feeds, count, progress)
        keeper.remove()
    for found in amax.values():
        found.update(dict.fromkeys(lacking, 0.0))
    source_warnings: Iterable[str] = getattr(data, "warnings", ())
    warnings = [*source_warnings, *run.notes, *data_warnings(run.every, count)]
    if model is not whole:
        ends = listed([value.name for value in model.proto.graph.output], _SHOWN)
        first = next(iter(whole.graph.only_on_board))
        unmeasured = f"; not measured after it: {listed(lacking, _SHOWN)}" if lacking else ""
        warnings.append(
            f"measured up to {ends}, because node {first!r} runs only on the board{unmeasured}"
        )
    masked = tuple(name for name, histogram in run.every.items() if histogram.is_masked)
    return Ranges(
        amax,
        describe or f"{counted(count, 'sample')}",
        count,
        tuple(warnings),
        masked,
        tensors_with_few_values(run.every),
    )


class _RangeMeasurement:
    """Fills the histograms of a model's tensors.

    Attributes:
        histograms: Histograms of the counted tensors.
        every: Histograms of all tensors, including derived tensors; empty until ``ranges``.
    """

    def __init__(
        self, model: Model, network: Network, batch: int, pool: ThreadPoolExecutor
    ) -> None:
        self._names = float_tensors(model, network)
        self._derived = derived_tensors(model, network, self._names)
        names = [name for name in self._names if name not in self._derived]
        apart = sided_tensors(self._derived)
        inputs = {value.name for value in model.proto.graph.input}
        self.batch = batch
        self.histograms = {name: ValueHistogram(sided=name in apart) for name in names}
        self.every: dict[str, ValueHistogram] = {}
        self.notes: list[str] = []
        self._unbounded = unbounded_tensors(model)
        self._model = model
        self._pool = pool
        self._outputs = [name for name in names if name not in inputs]
        self._parts: list[NetworkPart] | None = None
        self._pending: list[tuple[str, Future[bool]]] = []
        self._of_pending: tuple[Mapping[str, np.ndarray], int] = {}, 0

    def resume(
        self, keeper: MeasurementState, feeds: Feeds, progress: OnProgress | None, total: int
    ) -> int:
        """Takes over the counts of an earlier measurement; returns the number of its runs."""
        state = keeper.load()
        if isinstance(state, str):
            if state:
                self.notes.append(f"the interrupted measurement is not used: {state}")
            return 0
        histograms, done, digest = state
        if feeds.skip(done) == digest:
            self.histograms = histograms
            if progress is not None:
                progress(done, total)
            return done
        self.notes.append("the interrupted measurement is not used: it has other data")
        count = 0
        for feed, valid in feeds.again():
            self.add(feed, valid, count)
            count += 1
            if progress is not None:
                progress(count, total)
        return count

    def add(self, feed: Mapping[str, np.ndarray], valid: int | None, sample: int) -> None:
        """Runs one set of inputs and counts every tensor; the last tensors are counted later.

        Raises:
            DataError: A NaN or an infinity, in these or in the previous inputs.
        """
        if self._parts is None:
            self._parts = parts(self._model, self._outputs, _CHUNK_BYTES)
        own = tuple(name for name in feed if name in self.histograms)
        found: list[np.ndarray] = [feed[name] for name in own]
        for names, arrays in chain([(own, found)], run_parts(self._parts, feed)):
            self.flush()
            self._of_pending = feed, sample
            while arrays:
                # only the tasks hold the arrays: a counted array is freed at once
                name = names[len(arrays) - 1]
                values = valid_rows(arrays.pop(), self.batch, valid)
                if name in self._unbounded:
                    # infinities become the largest float32, which no scale suits either; NaN stays
                    largest = np.finfo(np.float32).max
                    values = np.clip(values.astype(np.float32, copy=False), -largest, largest)
                self._pending.append((name, self._pool.submit(self.histograms[name].add, values)))
                del values

    def flush(self) -> None:
        """Waits until all added inputs are counted.

        Raises:
            DataError: A NaN or an infinity.
        """
        # tasks were added from the last tensor on; the error names the first bad tensor
        pending, self._pending = self._pending[::-1], []
        fine = [(name, future.result()) for name, future in pending]
        bad = next((name for name, good in fine if not good), None)
        if bad is not None:
            feed, sample = self._of_pending
            if bad in feed:
                raise bad_input(bad, sample)
            raise bad_activation(self._model, bad, sample, feed, self._unbounded)

    def ranges(
        self, feeds: Feeds, count: int, progress: OnProgress | None
    ) -> dict[str, dict[str, float]]:
        """Returns the clipping magnitudes by method and tensor."""
        counted = dict(self.histograms)
        derive(self._derived, counted)
        names = self._names
        values = list(self._pool.map(ValueHistogram.whole, [counted[name] for name in names]))
        self.every = dict(zip(names, values, strict=True))
        found = dict(zip(names, self._pool.map(entropy_if_sure, values), strict=True))
        # frees these sessions before the recount makes its own
        self._parts = None
        recount = Recount(
            self._model,
            {n: self.every[n] for n, value in found.items() if value is None},
            self._derived,
            self.batch,
            self._pool,
            _CHUNK_BYTES,
        )
        exact = recount.run(feeds, count, progress)
        sure = {n: exact[n] if value is None else value for n, value in found.items()}
        amax = {"entropy": sure}
        for method in METHODS:
            if method != "entropy":
                results = self._pool.map(lambda h, m=method: choose_amax(h, m), values)
                amax[method] = dict(zip(names, results, strict=True))
        return {method: amax[method] for method in METHODS}


def float_tensors(model: Model, network: Network) -> list[str]:
    """Returns the float tensors that an ONNX node or the caller writes, in graph order.

    Tensors that only hold another tensor's values in another shape come last if no layer has them.
    """
    written = model.graph.tensor_names
    found = [
        name
        for name, tensor in network.tensors.items()
        if tensor.dtype in ("float32", "float16") and name in written
    ]
    return [*found, *merged_moves(model, network)]
