"""The rows of calibration data: how a model's inputs divide into them, and reading them ahead."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from edgekit.quantize._feeds import input_specs

if TYPE_CHECKING:
    import numpy as np

    from edgekit.network import Model

__all__ = ["Row", "Rows", "Source", "ahead", "rows_of", "shown"]

T = TypeVar("T")


@dataclass(frozen=True, eq=False, slots=True)
class Row:
    """One sample as it lies in the data, of the inputs' row shapes.

    Attributes:
        arrays: By input name, in the type of the data.
        where: Place for messages, such as ``photos/a.png`` or ``data.npz[3]``.
        constant: Whether an image shows one colour only.
    """

    arrays: Mapping[str, np.ndarray]
    where: str
    constant: bool = False


class Source(Protocol):
    """Rows that can be read any number of times."""

    size: int | None
    """How many there are; None when only reading them all would tell."""

    def rows(self, picks: Iterable[int]) -> Iterator[Row]:
        """Yields the rows of these numbers, which ascend; only a few are in memory at once."""
        ...


@dataclass(frozen=True, eq=False, slots=True)
class Rows:
    """How a model's inputs divide into rows.

    Where all inputs have the same first dimension, that is the batch, and a row is one entry of it.
    Otherwise a row is all that one run takes.

    Attributes:
        specs: NumPy type and shape of one run, by input name.
        batch: Rows that one run takes.
        split: Whether the first dimension is the batch.
    """

    specs: Mapping[str, tuple[np.dtype, tuple[int, ...]]]
    batch: int
    split: bool

    def shape(self, name: str) -> tuple[int, ...]:
        """Returns the shape of an input's row."""
        shape = self.specs[name][1]
        return shape[1:] if self.split else shape

    def count(self, name: str, found: tuple[int, ...]) -> int | None:
        """Returns how many rows an array of shape ``found`` holds; None when it does not fit.

        An array holds one row, rows along its first axis, or whole runs along it. In each case the
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
        """Says what shape an array should have."""
        row = list(self.shape(name))
        return f"one sample is {row}; put samples along the first axis"


def rows_of(model: Model) -> Rows:
    """Returns how the inputs of ``model`` divide into rows."""
    specs = input_specs(model)
    firsts = {shape[:1] for _, shape in specs.values()}
    first = next(iter(firsts)) if len(firsts) == 1 else ()
    return Rows(specs, first[0] if first else 1, bool(first))


def ahead(
    read: Callable[[int], T], picks: Iterable[int], *, workers: int, window: int
) -> Iterator[T]:
    """Yields ``read(pick)`` in order; threads read up to ``window`` of them ahead of the caller.

    With one worker the reads are in order, too. Nothing is read before the first is asked for.
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
        # a caller may stop early: what is not begun is not read
        pool.shutdown(wait=True, cancel_futures=True)


def shown(path: Path | str) -> str:
    """Returns a path for one line of a message, whatever its name holds."""
    text = str(path)
    return text if text.isprintable() else ascii(text)[1:-1]
