"""Calibration data from the user's own Python function."""

from __future__ import annotations

import contextlib
import sys
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit._plain import unfiltered
from edgekit.errors import DataError
from edgekit.quantize._data_module import HINT, make_room, module_file, parts_of
from edgekit.quantize._data_rows import Row, Rows

if TYPE_CHECKING:
    import numpy as np

__all__ = ["Callables"]


class Callables:
    """The rows that a function gives; it is called anew for each pass over the data.

    An item is an array or a dict of arrays by input name, each with one row or with rows along the
    first axis. The function runs in the caller's thread and what it prints goes to stderr.
    """

    size: int | None = None

    def __init__(self, spec: str, rows: Rows, folders: Sequence[Path]) -> None:
        """Imports the function.

        Raises:
            DataError: There is none of that name, or its module cannot be imported.
        """
        self._spec = spec
        self._rows = rows
        self._folders = [str(folder.absolute()) for folder in folders]
        self._file = module_file(spec, folders)
        self._call = self._imported()

    def rows(self, picks: Iterable[int]) -> Iterator[Row]:
        """Yields rows; see ``Source``. Those before the first pick are made and dropped."""
        wanted = iter(picks)
        at = next(wanted, None)
        if at is None:
            return
        with contextlib.closing(self._every()) as every:
            for index, row in enumerate(every):
                if index == at:
                    # asked for before the row is given: no further item is made in vain
                    at = next(wanted, None)
                    yield row
                    if at is None:
                        return

    def _every(self) -> Generator[Row, None, None]:
        with self._watched():
            items = self._call()
        if isinstance(items, str | bytes | Mapping) or not isinstance(items, Iterable):
            raise self._wrong(f"it returned {_kind(items)}, not an iterable")
        with self._watched():
            iterator = iter(items)
        number = 0
        try:
            while True:
                with self._watched():
                    found = list(islice(iterator, 1))
                if not found:
                    break
                yield from self._split(found[0], number)
                number += 1
        finally:
            close = getattr(iterator, "close", None)
            if callable(close):
                with self._watched():
                    close()
        if number == 0:
            raise DataError(
                f"{self._spec} gave no sample",
                code="data.empty",
                where=str(self._file),
                hint="it is called for each pass over the data and must return a new iterable",
            )

    def _split(self, item: Any, number: int) -> Iterator[Row]:
        import numpy as np

        where = f"{self._spec}[{number}]"
        names = list(self._rows.specs)
        if not isinstance(item, Mapping):
            if len(names) > 1:
                raise self._wrong(
                    f"item {number} is {_kind(item)}",
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
            with self._watched():
                arrays[name] = np.asarray(item[name])
            if arrays[name].dtype.kind not in "fiub":
                raise self._wrong(f"item {number} has {_kind(item[name])} for input {name!r}")
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
                hint="every input needs the same number",
            )
        many = min(counts.values())
        for index in range(many):
            rows = {name: self._rows.take(name, arrays[name], index) for name in names}
            yield Row(rows, f"{where}[{index}]" if many > 1 else where)

    def _imported(self) -> Callable[[], Any]:
        module, function = parts_of(self._spec)
        make_room(module, self._file)
        with self._watched():
            found = getattr(import_module(module), function, None)
        if not callable(found):
            what = "has no function" if found is None else "has no function, but a value,"
            raise DataError(
                f"the module {what} {function!r}",
                code="data.python",
                where=str(self._file),
                hint=HINT,
            )
        call: Callable[[], Any] = found
        return call

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        """Runs the user's code: its module's folder importable, its errors told with their line."""
        before = list(sys.path)
        sys.path[:0] = self._folders
        try:
            # stdout is for a command's document; the user's own progress bar may move the cursor
            own = unfiltered(sys.stderr)
            with contextlib.redirect_stdout(own), contextlib.redirect_stderr(own):
                yield
        except (Exception, SystemExit) as error:
            text = str(error).strip().splitlines()
            raise DataError(
                f"{self._spec} failed: {type(error).__name__}" + (f": {text[0]}" if text else ""),
                code="data.python",
                where=_line(error, self._file),
                hint="this is in the code that calibration.data names; run it by itself to see "
                "more",
            ) from error
        finally:
            for folder in self._folders:
                if folder in sys.path and folder not in before:
                    sys.path.remove(folder)

    def _wrong(self, text: str, hint: str = HINT) -> DataError:
        return DataError(
            f"{self._spec}: {text}", code="data.python", where=str(self._file), hint=hint
        )


def _line(error: BaseException, file: Path) -> str:
    """Returns file:line of the user's code: the innermost line of the module, or of what it ran."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno or 1}"
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename == str(file)]
    return f"{own[-1].filename}:{own[-1].lineno}" if own else str(file)


def _kind(value: Any) -> str:
    return "None" if value is None else f"a value of type {type(value).__name__}"
