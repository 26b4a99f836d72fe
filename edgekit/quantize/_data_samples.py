"""Samples: rows put together to what one run of the model takes, and checked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count as numbers
from math import ceil
from typing import TYPE_CHECKING

from edgekit._listed import counted, listed
from edgekit.errors import DataError
from edgekit.quantize._data_rows import Row, Rows, Source

if TYPE_CHECKING:
    import numpy as np

__all__ = ["Samples"]

_NAMED = 3


class Samples:
    """An iterable of inputs that reads each sample when it is asked for, every time anew.

    One sample is what one run of the model takes: as many rows (images, for example) as its batch
    size. The same data give the same rows in the same order for every batch size. Where the last
    sample has fewer, its last row is repeated to fill it up; :meth:`valid` says how many rows
    count.

    Attributes:
        batch: Rows of one sample.
    """

    def __init__(
        self,
        source: Source,
        rows: Rows,
        *,
        limit: int | None = None,
        skip: int = 0,
        spread: bool = False,
        notes: Iterable[str] = (),
    ) -> None:
        """Takes ``limit`` rows of ``source``, the first less ``skip``, or evenly spread ones."""
        self.batch = rows.batch
        self._source = source
        self._rows = rows
        self._skip = skip
        size = source.size
        self._most = limit if size is None else min(size, size if limit is None else limit)
        self._spread = spread and size is not None and limit is not None and limit < size
        self._partial: dict[int, int] = {}
        self._told: dict[str, dict[str, None]] = {note: {} for note in notes}
        left = max(0, (self._most or 0) - skip)
        if size is not None and left % self.batch:
            self._partial[len(self) - 1] = left % self.batch
        if size is not None and limit is not None and size < limit:
            self._told[
                f"the data hold {counted(size, 'sample')}, not the {limit} that count asks for"
            ] = {}

    def __len__(self) -> int:
        """The most samples that there can be; 0 when that is unknown."""
        return ceil(max(0, (self._most or 0) - self._skip) / self.batch)

    def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
        given = 0
        group: list[Row] = []
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
                "there is no calibration data: no sample is left",
                code="data.empty",
                hint="give at least one sample; a few hundred representative ones are usual",
            )

    def valid(self, index: int) -> int:
        """Returns how many rows of sample ``index`` are data; the rest repeats the last of them.

        Only where it is the last one can it be fewer than ``batch``. Ask once the sample was given:
        how many there are may not be known before.
        """
        return self._partial.get(index, self.batch)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a person should know of the data that was read up to now."""
        told = []
        for text, places in self._told.items():
            told.append(f"{text}: {listed(places, _NAMED)}" if places else text)
        return (*getattr(self._source, "warnings", ()), *told)

    def _tell(self, text: str, where: str = "") -> None:
        places = self._told.setdefault(text, {})
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

    def _sample(self, group: list[Row]) -> dict[str, np.ndarray]:
        import numpy as np

        sample = {}
        for name, (dtype, shape) in self._rows.specs.items():
            whole = np.empty(shape, dtype)
            for index, row in enumerate(group):
                part = whole[index : index + 1] if self._rows.split else whole
                self._put(name, row, part[0] if self._rows.split and part.ndim > 1 else part)
            if self._rows.split:
                whole[len(group) :] = whole[len(group) - 1]
            sample[name] = whole
        return sample

    def _put(self, name: str, row: Row, target: np.ndarray) -> None:
        """Copies one row of one input, and looks at its values."""
        import numpy as np

        found, dtype, where = row.arrays[name], target.dtype, row.where
        if not np.can_cast(found.dtype, dtype, casting="same_kind"):
            raise DataError(
                f"input {name!r} has type {found.dtype}",
                code="data.dtype",
                where=where,
                hint=f"the model expects {dtype}",
            )
        # values that are too large become infinite, which is seen below
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
                hint="remove the sample, or check how the data were made (a mean or std of 0?)",
            )
        if dtype.kind in "iu" and not (found.min() == low and found.max() == high):
            raise DataError(
                f"input {name!r} has values from {found.min()} to {found.max()}",
                code="data.dtype",
                where=where,
                hint=f"the model expects {dtype}, which cannot hold them",
            )
        if dtype.kind != "f":
            return
        if found.dtype.kind in "iu" and high > 1:
            self._tell(
                f"input {name!r} takes floats and the data are whole numbers above 1 "
                f"({found.dtype}), given to the network as they are; was it trained on such values?"
            )
        if row.constant or (target.size > 1 and low == high):
            self._tell("constant samples (every value is the same)", where)
