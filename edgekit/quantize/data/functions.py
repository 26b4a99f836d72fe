"""Calibration data from the user's own Python function, ``python:module:function``."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.errors import DataError, EdgekitError
from edgekit.network.functions import UserFunction, describe_type, module_file
from edgekit.quantize.data.rows import DataRow, RowLayout

HINT = (
    "write python:module:function, where function() returns an iterable of arrays or of dicts of "
    "arrays"
)


def _failure(message: str, *, where: str, hint: str) -> DataError:
    return DataError(message, code="data.python", where=where, hint=hint)


def data_file(spec: str, folders: Sequence[Path]) -> Path:
    """Returns the file of ``python:module:function``'s module; raises DataError without a file."""
    return module_file(spec, folders, _failure, HINT)


class Callables:
    """The rows that a function returns; it is called anew for each pass over the data.

    An item is an array or a dict of arrays by input name, each with one row or with rows along the
    first axis. The function runs in the caller's thread; its output goes to stderr.
    """

    size: int | None = None

    def __init__(self, spec: str, rows: RowLayout, folders: Sequence[Path]) -> None:
        """Imports the function.

        Raises:
            DataError: The function does not exist, or its module cannot be imported.
        """
        self._spec = spec
        self._rows = rows
        self._function = UserFunction(
            spec,
            folders,
            _failure,
            hint=HINT,
            about="the error is in the function of calibration.data; call it by itself to see more",
        )
        self._function.load()

    def rows(self, picks: Iterable[int]) -> Iterator[DataRow]:
        """Yields rows; see ``Source``. Rows before the first pick are created and dropped."""
        wanted = iter(picks)
        at = next(wanted, None)
        if at is None:
            return
        with contextlib.closing(self._every()) as every:
            for index, row in enumerate(every):
                if index == at:
                    # the next pick is read before this row is yielded: no item is created in vain
                    at = next(wanted, None)
                    yield row
                    if at is None:
                        return

    def _every(self) -> Generator[DataRow, None, None]:
        items = self._function.call()
        # text and dicts can be iterated, but are no series of samples
        if isinstance(items, str | bytes | Mapping) or not isinstance(items, Iterable):
            raise self._wrong(f"it returned {describe_type(items)}, not an iterable")
        with self._function.watched():
            iterator = iter(items)
        number = 0
        try:
            while True:
                with self._function.watched():
                    # a list distinguishes the end from an item that is None
                    found = list(islice(iterator, 1))
                if not found:
                    break
                yield from self._split(found[0], number)
                number += 1
        finally:
            close = getattr(iterator, "close", None)
            if callable(close):
                with self._function.watched():
                    close()
        if number == 0:
            raise DataError(
                f"{self._spec} gave no sample",
                code="data.empty",
                where=str(self._function.file),
                hint="return a new iterable at each call; the function is called for each pass "
                "over the data",
            )

    def _split(self, item: Any, number: int) -> Iterator[DataRow]:
        where = f"{self._spec}[{number}]"
        names = list(self._rows.specs)
        if not isinstance(item, Mapping):
            if len(names) > 1:
                raise self._wrong(
                    f"item {number} is {describe_type(item)}",
                    f"the model has several inputs: give a dict with {', '.join(map(repr, names))}",
                )
            item = {names[0]: item}
        if set(item) != set(names):
            raise DataError(
                f"the item has {', '.join(map(repr, item)) or 'nothing'}",
                code="data.inputs",
                where=where,
                hint=f"the model's inputs are {', '.join(map(repr, names))}",
            )
        arrays: dict[str, np.ndarray] = {}
        counts = {}
        for name in names:
            with self._function.watched():
                arrays[name] = np.asarray(item[name])
            # text and Python objects are no values of a tensor
            if arrays[name].dtype.kind not in "fiub":
                raise self._wrong(
                    f"item {number} has {describe_type(item[name])} for input {name!r}"
                )
            count = self._rows.count(name, arrays[name].shape)
            if count is None:
                raise DataError(
                    f"input {name!r} has shape {list(arrays[name].shape)}",
                    code="data.shape",
                    where=where,
                    hint=self._rows.hint(name),
                )
            counts[name] = count
        if len(set(counts.values())) > 1:
            raise DataError(
                f"the arrays hold different numbers of samples: {counts}",
                code="data.shape",
                where=where,
                hint="give every input the same number",
            )
        many = min(counts.values())
        for index in range(many):
            rows = {name: self._rows.take(name, arrays[name], index) for name in names}
            yield DataRow(rows, f"{where}[{index}]" if many > 1 else where)

    def _wrong(self, text: str, hint: str = HINT) -> EdgekitError:
        return self._function.wrong(f"{self._spec}: {text}", hint)
