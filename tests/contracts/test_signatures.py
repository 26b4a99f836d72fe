"""The signatures of the public API: what a program that uses edgekit calls."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import edgekit
import edgekit_device
from tests.contracts.conftest import Golden


def signature(function: Callable[..., object]) -> str:
    return re.sub(r"<function .*? at 0x\w+>", "<function>", str(inspect.signature(function)))


def test_signatures(golden: Golden) -> None:
    host = {
        name: signature(getattr(edgekit, name)) for name in dir(edgekit) if not name.startswith("_")
    }
    device: dict[str, Any] = {}
    for name in edgekit_device.__all__:
        value = getattr(edgekit_device, name)
        if inspect.isclass(value):
            device |= {
                f"{name}.{key}": signature(method)
                for key, method in inspect.getmembers(value, inspect.isfunction)
                if not key.startswith("_") or key == "__call__"
            }
            device |= {
                f"{name}.{key}": "property"
                for key, item in inspect.getmembers(value)
                if isinstance(item, property) and not key.startswith("_")
            }
        elif callable(value):
            device[name] = signature(value)
    golden("signatures", {"edgekit": host, "edgekit_device": device})
