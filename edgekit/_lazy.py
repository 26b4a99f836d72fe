"""Packages whose names are imported when they are used: a command waits for its own parts only."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

__all__ = ["lazy"]


def lazy(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Returns the ``__getattr__`` of a package (PEP 562), and gives it its ``__dir__``.

    Args:
        package: Its ``__name__``.
        homes: The public names, apart by spaces, by the module of the package that defines them.
    """
    home = {name: module for module, names in homes.items() for name in names.split()}

    def find(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f"{package}.{home[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    vars(sys.modules[package])["__dir__"] = lambda: sorted({*vars(sys.modules[package]), *home})
    return find
