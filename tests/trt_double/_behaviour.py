"""The registry of what the double plays; each `_play_*` module adds its classes."""

import importlib
from collections.abc import Callable
from typing import Any

BEHAVIOURS: dict[tuple[str, str], Any] = {}
FUNCTIONS: dict[str, Any] = {}

_Function = Callable[..., Any]


def plays(owner: str, *members: str) -> Callable[[_Function], _Function]:
    """Registers a function as `owner`'s members; a property's are "get name" and "set name"."""

    def register(function: _Function) -> _Function:
        for member in members:
            BEHAVIOURS[(owner, member)] = function
        return function

    return register


def plays_function(name: str) -> Callable[[_Function], _Function]:
    """Registers a function of the module; it gets the module's Factory first."""

    def register(function: _Function) -> _Function:
        FUNCTIONS[name] = function
        return function

    return register


for _name in (
    "_play_base",
    "_play_plugins",
    "_play_network",
    "_play_parser",
    "_play_config",
    "_play_cache",
    "_build",
    "_play_runtime",
    "_play_engine",
    "_play_inspector",
    "_play_refit",
    "_play_onnx_refit",
    "_play_memory",
    "_play_context",
):
    importlib.import_module(f"{__package__}.{_name}")
