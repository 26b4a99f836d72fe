"""A function of the user's Python code, found by ``module:function``. Its module runs only when the
function is called.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module, invalidate_caches
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, Protocol

from edgekit.errors import EdgekitError
from edgekit.network.source import PYTHON
from edgekit.text import unfiltered

# source folders of imported modules, by top-level name
_IMPORTED: dict[str, str] = {}


class Failure(Protocol):
    """Creates the error for a problem with a function."""

    def __call__(self, message: str, *, where: str, hint: str) -> EdgekitError: ...


def module_file(spec: str, folders: Sequence[Path], failure: Failure, hint: str) -> Path:
    """Returns the file of a function's module without importing anything.

    Args:
        spec: The user's text: "module:function", with or without "python:" before it.
        folders: Folders that are searched for modules before ``sys.path``.
        failure: Creates the error.
        hint: The error's hint.

    Raises:
        EdgekitError: ``spec`` is malformed, or the module does not exist.
    """
    module, _ = _split_spec(spec, failure, hint)
    invalidate_caches()
    places: Any = [str(folder.absolute()) for folder in folders] + sys.path
    names = module.split(".")
    found = None
    # step by step: importlib's own find_spec would import the parent packages
    for name in names:
        found = PathFinder.find_spec(name, places) if places else None
        places = list(found.submodule_search_locations or ()) if found is not None else None
    if found is None or not found.has_location or found.origin is None:
        raise failure(
            f"module {module!r} does not exist",
            where=spec,
            hint=f"put it into {', '.join(dict.fromkeys(map(str, folders)))} or Python's path",
        )
    # Python would import the standard module instead of the user's file
    if names[0] in sys.stdlib_module_names:
        raise failure(
            f"{names[0]!r} is the name of a Python standard module",
            where=spec,
            hint="rename the file",
        )
    return Path(found.origin)


def _split_spec(spec: str, failure: Failure, hint: str) -> tuple[str, str]:
    module, _, function = spec.removeprefix(PYTHON).partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), function)):
        form = f"{PYTHON if spec.startswith(PYTHON) else ''}module:function"
        raise failure(f"{spec!r} is not {form}", where="", hint=hint)
    return module, function


class UserFunction:
    """A user's function, which runs in the caller's thread; its output goes to stderr.

    Attributes:
        spec: The user's text.
        file: The module's file.
    """

    def __init__(
        self, spec: str, folders: Sequence[Path], failure: Failure, *, hint: str, about: str
    ) -> None:
        """Finds the module without importing anything.

        Args:
            spec: As for :func:`module_file`.
            folders: As for :func:`module_file`; they are importable while the function runs.
            failure: Creates every error.
            hint: The hint if there is no such function.
            about: The hint if the function raises an exception.

        Raises:
            EdgekitError: As :func:`module_file`.
        """
        self.spec = spec
        self.file = module_file(spec, folders, failure, hint)
        self._folders = [str(folder.absolute()) for folder in folders]
        self._failure, self._hint, self._about = failure, hint, about
        self._loaded: Callable[..., Any] | None = None

    def load(self) -> Callable[..., Any]:
        """Imports the module, once, and returns the function.

        Raises:
            EdgekitError: The module lacks the function, cannot be imported, or another module of
                its name is loaded.
        """
        if self._loaded is not None:
            return self._loaded
        module, function = _split_spec(self.spec, self._failure, self._hint)
        self._drop_other_module(module)
        with self.watched():
            found = getattr(import_module(module), function, None)
        if not callable(found):
            what = "has no function" if found is None else "has no function, but a value,"
            raise self.wrong(f"the module {what} {function!r}")
        self._loaded = found
        return self._loaded

    def call(self, *values: Any, **named: Any) -> Any:
        """Calls the function.

        Raises:
            EdgekitError: The function raised an exception, with its line; or as :meth:`load`.
        """
        function = self.load()
        with self.watched():
            return function(*values, **named)

    def parameters(self) -> dict[str, bool]:
        """Returns its parameters by name, True if required; empty for a function without a
        signature.
        """
        try:
            found = inspect.signature(self.load()).parameters
        except (TypeError, ValueError):
            return {}
        return {name: parameter.default is parameter.empty for name, parameter in found.items()}

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Runs the user's code with its module's folder importable; its errors get their line."""
        before = list(sys.path)
        sys.path[:0] = self._folders
        try:
            # stdout is for a command's document; the user's progress bar may move the cursor
            own = unfiltered(sys.stderr)
            with contextlib.redirect_stdout(own), contextlib.redirect_stderr(own):
                yield
        # the user's code may call sys.exit, which must not end the command
        except (Exception, SystemExit) as error:
            text = str(error).strip().splitlines()
            raise self._failure(
                f"{self.spec} failed: {type(error).__name__}" + (f": {text[0]}" if text else ""),
                where=_line(error, self.file),
                hint=self._about,
            ) from error
        finally:
            for folder in self._folders:
                if folder in sys.path and folder not in before:
                    sys.path.remove(folder)

    def wrong(self, text: str, hint: str = "") -> EdgekitError:
        """Returns the error for a function or its result."""
        return self._failure(text, where=str(self.file), hint=hint or self._hint)

    def _drop_other_module(self, module: str) -> None:
        """Drops a module of this name that an earlier call imported from another folder."""
        top = module.partition(".")[0]
        depth = module.count(".") + (self.file.name == "__init__.py")
        loaded = sys.modules.get(top)
        place = str(self.file.parents[depth])
        # two projects in one process may each have a module of that name
        if loaded is not None and _IMPORTED.get(top, place) != place:
            for name in [n for n in sys.modules if n == top or n.startswith(f"{top}.")]:
                del sys.modules[name]
        elif loaded is not None and top not in _IMPORTED:
            # a module that edgekit did not import may belong to the caller's program: it stays
            origin = getattr(loaded, "__file__", None)
            if origin is not None and not Path(origin).is_relative_to(place):
                raise self.wrong(
                    f"another module {top!r} is already loaded: {origin}", "rename the file"
                )
        _IMPORTED[top] = place
        # the file may have just been written
        invalidate_caches()


def describe_type(value: Any) -> str:
    """Returns a value's type for a message."""
    return "None" if value is None else f"a value of type {type(value).__name__}"


def _line(error: BaseException, file: Path) -> str:
    """Returns file:line of the error: the module's innermost line, or that of a syntax error."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno or 1}"
    found, frame = str(file), error.__traceback__
    while frame is not None:
        if frame.tb_frame.f_code.co_filename == str(file):
            found = f"{file}:{frame.tb_lineno}"
        frame = frame.tb_next
    return found
