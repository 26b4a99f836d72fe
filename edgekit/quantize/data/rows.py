"""The rows of calibration data: how a model's inputs divide into them, checks against the
model's inputs, reading ahead, and samples for one run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count as numbers
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np
from onnx import helper

from edgekit.errors import DataError
from edgekit.text import counted, listed

if TYPE_CHECKING:
    from edgekit.network.model import Model


T = TypeVar("T")
_NAMED = 3


def input_specs(model: Model) -> dict[str, tuple[np.dtype, tuple[int, ...]]]:
    """Returns NumPy type and static shape by input name."""
    found = {}
    for value in model.proto.graph.input:
        tensor = value.type.tensor_type
        dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        found[value.name] = dtype, tuple(dim.dim_value for dim in tensor.shape.dim)
    return found


def check_feed(
    feed: Mapping[str, np.ndarray], model: Model, *, where: str = ""
) -> dict[str, np.ndarray]:
    """Returns the inputs in the model's order, in its types, contiguous.

    Types are converted within a kind (float64 to float32) and from integers to floats.

    Raises:
        DataError: A name is unknown or missing, a shape differs, or a type cannot be converted.
    """
    specs = input_specs(model)
    unknown = [name for name in feed if name not in specs]
    missing = [name for name in specs if name not in feed]
    if unknown or missing:
        parts = []
        if unknown:
            parts.append("unknown inputs " + ", ".join(map(repr, unknown)))
        if missing:
            parts.append("missing inputs " + ", ".join(map(repr, missing)))
        raise DataError(
            "; ".join(parts),
            code="data.inputs",
            where=where,
            hint="the model's inputs are " + ", ".join(map(repr, specs)),
        )
    checked = {}
    for name, (dtype, shape) in specs.items():
        array = np.asarray(feed[name])
        if array.shape != shape:
            raise DataError(
                f"input {name!r} has shape {list(array.shape)}",
                code="data.shape",
                where=where,
                hint=f"the model expects {list(shape)}",
            )
        if not np.can_cast(array.dtype, dtype, casting="same_kind"):
            raise DataError(
                f"input {name!r} has type {array.dtype}",
                code="data.dtype",
                where=where,
                hint=f"the model expects {dtype}",
            )
        checked[name] = np.ascontiguousarray(array, dtype).reshape(shape)
    return checked


@dataclass(frozen=True, eq=False, slots=True)
class DataRow:
    """One sample of the data, in the inputs' row shapes.

    Attributes:
        arrays: By input name, in the type of the data.
        where: Place for messages, such as ``photos/a.png`` or ``data.npz[3]``.
        constant: True if an image has a single colour.
    """

    arrays: Mapping[str, np.ndarray]
    where: str
    constant: bool = False


class RowSource(Protocol):
    """Rows that can be read repeatedly."""

    size: int | None
    """Number of rows; None if unknown without reading them all."""

    def rows(self, picks: Iterable[int]) -> Iterator[DataRow]:
        """Yields the rows of these ascending numbers; only a few are in memory at once."""
        ...


@dataclass(frozen=True, eq=False, slots=True)
class RowLayout:
    """How a model's inputs divide into rows.

    If all inputs have the same first dimension, this is the batch, and a row is an entry of the
    batch. Otherwise a row is the whole input of a run.

    Attributes:
        specs: NumPy type and shape of one run, by input name.
        batch: Rows of one run.
        split: True if the first dimension is the batch.
    """

    specs: Mapping[str, tuple[np.dtype, tuple[int, ...]]]
    batch: int
    split: bool

    def shape(self, name: str) -> tuple[int, ...]:
        """Returns the shape of an input's row."""
        shape = self.specs[name][1]
        return shape[1:] if self.split else shape

    def filled(self, rows: Sequence[np.ndarray]) -> np.ndarray:
        """Returns at most ``batch`` rows of an input as one run; the last row fills the batch."""
        return np.stack([*rows, *[rows[-1]] * (self.batch - len(rows))])

    def count(self, name: str, found: tuple[int, ...]) -> int | None:
        """Returns the number of rows in an array of shape ``found``; None if it does not fit.

        An array holds a row, rows along its first axis, or whole runs along it. In each case the
        rows follow one another in C order.
        """
        row, run = self.shape(name), self.specs[name][1]
        if found == row:
            return 1
        if found[1:] == row and found:
            return found[0]
        if self.split:
            return found[0] * self.batch if found[1:] == run and found else None
        fits = len(found) == len(run) > 0 and found[1:] == run[1:] and found[0] % run[0] == 0
        return found[0] // run[0] if fits else None

    def take(self, name: str, array: np.ndarray, index: int) -> np.ndarray:
        """Returns row ``index`` of an array for which ``count`` gives a number, without a copy."""
        row, run = self.shape(name), self.specs[name][1]
        if array.shape == row:
            return array
        if array.shape[1:] == row:
            taken: np.ndarray = array[index]
        elif self.split:
            taken = array[index // self.batch, index % self.batch]
        else:
            taken = array[index * run[0] : (index + 1) * run[0]]
        return taken

    def hint(self, name: str) -> str:
        """Returns a hint with the shape that an array should have."""
        row = list(self.shape(name))
        return f"put samples along the first axis; one sample is {row}"


def row_layout(model: Model) -> RowLayout:
    """Returns how the inputs of ``model`` divide into rows."""
    specs = input_specs(model)
    firsts = {shape[:1] for _, shape in specs.values()}
    first = next(iter(firsts)) if len(firsts) == 1 else ()
    return RowLayout(specs, first[0] if first else 1, bool(first))


def read_ahead(
    read: Callable[[int], T], picks: Iterable[int], *, workers: int, window: int
) -> Iterator[T]:
    """Yields ``read(pick)`` in order; threads read up to ``window`` picks ahead of the caller.

    With one worker the reads are in order, too. Reading begins with the first request.
    """
    waiting: deque[Future[T]] = deque()
    pool = ThreadPoolExecutor(workers, thread_name_prefix="edgekit-data")
    try:
        for pick in picks:
            waiting.append(pool.submit(read, pick))
            if len(waiting) >= window:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        # a caller may stop early: cancel reads that have not begun
        pool.shutdown(wait=True, cancel_futures=True)


def path_text(path: Path | str) -> str:
    """Returns a path as a single line for a message, with any characters in its name."""
    text = str(path)
    return text if text.isprintable() else ascii(text)[1:-1]


class CalibrationSamples:
    """An iterable of inputs that reads each sample on request, every time anew.

    A sample is the input of one run: as many rows (images, for example) as the model's batch size.
    The same data give the same rows in the same order for every batch size. If the last sample has
    fewer rows, its last row is repeated to fill it up; :meth:`valid` returns how many rows count.

    Attributes:
        batch: Rows of one sample.
        images: True if they are read from images.
    """

    def __init__(
        self,
        source: RowSource,
        rows: RowLayout,
        *,
        limit: int | None = None,
        skip: int = 0,
        spread: bool = False,
        notes: Iterable[str] = (),
        images: bool = False,
    ) -> None:
        """Takes the first ``limit`` rows of ``source`` without ``skip``, or evenly spread rows."""
        self.batch = rows.batch
        self.images = images
        self._source = source
        self._rows = rows
        self._skip = skip
        size = source.size
        self._most = limit if size is None else min(size, size if limit is None else limit)
        # with a limit above the size all rows are taken anyway
        self._spread = spread and size is not None and limit is not None and limit < size
        self._partial: dict[int, int] = {}
        self._notes: dict[str, dict[str, None]] = {note: {} for note in notes}
        left = max(0, (self._most or 0) - skip)
        if size is not None and left % self.batch:
            self._partial[len(self) - 1] = left % self.batch
        if size is not None and limit is not None and size < limit:
            self._notes[f"the data contain {counted(size, 'sample')} (count: {limit})"] = {}

    def __len__(self) -> int:
        """Returns the largest possible number of samples; 0 if unknown."""
        return ceil(max(0, (self._most or 0) - self._skip) / self.batch)

    def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
        given = 0
        group: list[DataRow] = []
        for row in self._source.rows(self._picks()):
            group.append(row)
            if len(group) == self.batch:
                self._partial.pop(given, None)
                yield self._sample(group)
                given, group = given + 1, []
        if group:
            self._partial[given] = len(group)
            yield self._sample(group)
        if not (given or group):
            raise DataError(
                "no calibration sample is left",
                code="data.empty",
                hint="give at least one sample (usual: a few hundred representative ones)",
            )

    def valid(self, index: int) -> int:
        """Returns how many rows of sample ``index`` are data; the rest repeats the last row.

        Only the last sample has fewer than ``batch``. Call it after the sample was returned: the
        number may be unknown before.
        """
        return self._partial.get(index, self.batch)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about the data read so far."""
        found = []
        for text, places in self._notes.items():
            found.append(f"{text}: {listed(places, _NAMED)}" if places else text)
        return (*getattr(self._source, "warnings", ()), *found)

    def _add_note(self, text: str, where: str = "") -> None:
        places = self._notes.setdefault(text, {})
        if where:
            places[where] = None

    def _picks(self) -> Iterable[int]:
        most = self._most
        if most is None:
            return numbers(self._skip)
        if self._spread:
            # the middles of equal parts
            size = self._source.size or 0
            return [(2 * i + 1) * size // (2 * most) for i in range(most)]
        return range(self._skip, most)

    def _sample(self, group: list[DataRow]) -> dict[str, np.ndarray]:
        sample = {}
        for name, (dtype, shape) in self._rows.specs.items():
            whole = np.empty(shape, dtype)
            for index, row in enumerate(group):
                part = whole[index : index + 1] if self._rows.split else whole
                self._copy_row(name, row, part[0] if self._rows.split and part.ndim > 1 else part)
            if self._rows.split:
                whole[len(group) :] = whole[len(group) - 1]
            sample[name] = whole
        return sample

    def _copy_row(self, name: str, row: DataRow, target: np.ndarray) -> None:
        """Copies a row of an input, and checks its values."""
        found, dtype, where = row.arrays[name], target.dtype, row.where
        if not np.can_cast(found.dtype, dtype, casting="same_kind"):
            raise DataError(
                f"input {name!r} has type {found.dtype}",
                code="data.dtype",
                where=where,
                hint=f"the model expects {dtype}",
            )
        # too large values become infinite, which is detected below
        with np.errstate(over="ignore", invalid="ignore"):
            target[...] = found
        if not target.size or dtype.kind not in "fiu":
            return
        low, high = target.min(), target.max()
        if dtype.kind == "f" and not (np.isfinite(low) and np.isfinite(high)):
            finite = np.isfinite(found).all()
            what = f"values outside the range of {dtype}" if finite else "NaN or infinite values"
            raise DataError(
                f"input {name!r} has {what}",
                code="data.nonfinite",
                where=where,
                hint="remove the sample, or check the preprocessing, such as a std of 0",
            )
        # conversion between integer types wraps silently
        if dtype.kind in "iu" and not (found.min() == low and found.max() == high):
            raise DataError(
                f"input {name!r} has values from {found.min()} to {found.max()}",
                code="data.dtype",
                where=where,
                hint=f"the model expects {dtype}, which has a smaller range",
            )
        if dtype.kind != "f":
            return
        if found.dtype.kind in "iu" and high > 1:
            self._add_note(
                f"input {name!r} takes floats, but the data are whole numbers above 1 "
                f"({found.dtype}) and are used unchanged; where the network was trained on others, "
                "save prepared arrays: numpy.save('data.npy', (x / 255 - mean) / std)"
            )
        if row.constant or (target.size > 1 and low == high):
            self._add_note("constant samples (every value is the same)", where)
