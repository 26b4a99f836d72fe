"""Calibration data from the user's own Python function, found by ``python:module:function``
without running its module.
"""

from __future__ import annotations

import contextlib
import sys
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from importlib import import_module, invalidate_caches
from importlib.machinery import PathFinder
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.errors import DataError
from edgekit.network.source import PYTHON
from edgekit.quantize.data.rows import DataRow, RowLayout
from edgekit.text import unfiltered

HINT = (
    "write python:module:function, where function() returns an iterable of arrays or of dicts of "
    "arrays"
)
# folders that modules came from, by top-level name
_IMPORTED: dict[str, str] = {}


def module_file(spec: str, folders: Sequence[Path]) -> Path:
    """Returns the file of ``python:module:function``'s module without importing anything.

    Args:
        spec: What the user wrote.
        folders: Where modules are looked for before ``sys.path``.

    Raises:
        DataError: ``spec`` is malformed, or there is no such module.
    """
    module, _ = parts_of(spec)
    invalidate_caches()
    places: Any = [str(folder.absolute()) for folder in folders] + sys.path
    names = module.split(".")
    found = None
    for name in names:
        found = PathFinder.find_spec(name, places) if places else None
        places = list(found.submodule_search_locations or ()) if found is not None else None
    if found is None or not found.has_location or found.origin is None:
        raise DataError(
            f"module {module!r} does not exist",
            code="data.python",
            where=spec,
            hint=f"put it into {', '.join(dict.fromkeys(map(str, folders)))} or Python's path",
        )
    if names[0] in sys.stdlib_module_names:
        raise DataError(
            f"{names[0]!r} is the name of a Python standard module",
            code="data.python",
            where=spec,
            hint="rename the file",
        )
    return Path(found.origin)


def parts_of(spec: str) -> tuple[str, str]:
    """Returns module and function; DataError where there are none."""
    module, _, function = spec.removeprefix(PYTHON).partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), function)):
        raise DataError(f"{spec!r} is not python:module:function", code="data.python", hint=HINT)
    return module, function


def drop_other_module(module: str, file: Path) -> None:
    """Drops a module of this name that an earlier call imported from another folder.

    Raises:
        DataError: One of this name is in use that is not ours to drop.
    """
    top = module.partition(".")[0]
    depth = module.count(".") + (file.name == "__init__.py")
    loaded = sys.modules.get(top)
    place = str(file.parents[depth])
    if loaded is not None and _IMPORTED.get(top, place) != place:
        for name in [n for n in sys.modules if n == top or n.startswith(f"{top}.")]:
            del sys.modules[name]
    elif loaded is not None and top not in _IMPORTED:
        origin = getattr(loaded, "__file__", None)
        if origin is not None and not Path(origin).is_relative_to(place):
            raise DataError(
                f"another module {top!r} is already loaded: {origin}",
                code="data.python",
                where=str(file),
                hint="rename the file",
            )
    _IMPORTED[top] = place
    # a file may have been written a moment ago
    invalidate_caches()


class Callables:
    """The rows that a function gives; it is called anew for each pass over the data.

    An item is an array or a dict of arrays by input name, each with one row or with rows along the
    first axis. The function runs in the caller's thread and what it prints goes to stderr.
    """

    size: int | None = None

    def __init__(self, spec: str, rows: RowLayout, folders: Sequence[Path]) -> None:
        """Imports the function.

        Raises:
            DataError: There is none of that name, or its module cannot be imported.
        """
        self._spec = spec
        self._rows = rows
        self._folders = [str(folder.absolute()) for folder in folders]
        self._file = module_file(spec, folders)
        self._call = self._imported()

    def rows(self, picks: Iterable[int]) -> Iterator[DataRow]:
        """Yields rows; see ``Source``. Those before the first pick are made and dropped."""
        wanted = iter(picks)
        at = next(wanted, None)
        if at is None:
            return
        with contextlib.closing(self._every()) as every:
            for index, row in enumerate(every):
                if index == at:
                    # the next pick is read before this row is given: no item is made in vain
                    at = next(wanted, None)
                    yield row
                    if at is None:
                        return

    def _every(self) -> Generator[DataRow, None, None]:
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
                hint="return a new iterable at each call; the function is called for each pass "
                "over the data",
            )

    def _split(self, item: Any, number: int) -> Iterator[DataRow]:
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
                hint="give every input the same number",
            )
        many = min(counts.values())
        for index in range(many):
            rows = {name: self._rows.take(name, arrays[name], index) for name in names}
            yield DataRow(rows, f"{where}[{index}]" if many > 1 else where)

    def _imported(self) -> Callable[[], Any]:
        module, function = parts_of(self._spec)
        drop_other_module(module, self._file)
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
        """Runs the user's code: its module's folder importable, its errors with their line."""
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
                hint="the error is in the function of calibration.data; call it by itself to see "
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
