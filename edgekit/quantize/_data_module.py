"""The module of ``python:module:function``: found without running it, and by its folder."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import invalidate_caches
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from edgekit.errors import DataError
from edgekit.network import PYTHON

__all__ = ["HINT", "make_room", "module_file", "parts_of"]

HINT = "write python:module:function; function() returns an iterable of arrays or dicts of them"
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
            f"there is no module {module!r}",
            code="data.python",
            where=spec,
            hint=f"it is looked for in {', '.join(dict.fromkeys(map(str, folders)))} and in "
            "Python's path",
        )
    if names[0] in sys.stdlib_module_names:
        raise DataError(
            f"{names[0]!r} is the name of a module of Python's own",
            code="data.python",
            where=spec,
            hint="give the file another name",
        )
    return Path(found.origin)


def parts_of(spec: str) -> tuple[str, str]:
    """Returns module and function; DataError where there are none."""
    module, _, function = spec.removeprefix(PYTHON).partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), function)):
        raise DataError(f"{spec!r} names no function", code="data.python", hint=HINT)
    return module, function


def make_room(module: str, file: Path) -> None:
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
                f"another module {top!r} is in use: {origin}",
                code="data.python",
                where=str(file),
                hint="give the file another name",
            )
    _IMPORTED[top] = place
    # a file may have been written a moment ago
    invalidate_caches()
