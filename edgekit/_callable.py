"""Lets ``edgekit.build(...)`` be a function although ``edgekit.build`` is a floor of the house.

Some floors share their name with the command that ends in them. The module object of such a floor
is given a class whose instances can be called; everything else about the module stays as it is.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

__all__ = ["make_callable"]


class _Callable(ModuleType):
    def __call__(self, *args: Any, **options: Any) -> Any:
        from edgekit import _api

        return getattr(_api, self.__name__.rpartition(".")[2])(*args, **options)


def make_callable(name: str) -> None:
    """Makes the imported module ``name`` ("edgekit.build") call ``edgekit._api``'s function."""
    sys.modules[name].__class__ = _Callable
