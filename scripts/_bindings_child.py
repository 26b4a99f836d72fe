"""Reads one TensorRT bindings package in a process of its own: names, signatures, enum members.

Usage: _bindings_child.py FOLDER MODULE [LOADER]: prints JSON. With LOADER (the folder that holds
edgekit_device) it also makes what the loader derives from the bindings' classes.
"""

import importlib
import inspect
import json
import re
import sys
import types
from typing import Any

# names that leak out of the package's own __init__
_LEAKED = {"attr", "value", "ctypes", "os", "sys", "warnings", "tensorrt", "log_found_dlls"}


def signatures(function: Any) -> list[str]:
    """pybind11's signatures of a function, overloads numbered as its docstring numbers them."""
    lines = [line.strip() for line in (function.__doc__ or "").splitlines()]
    name = re.escape(getattr(function, "__name__", ""))
    found = [line for line in lines if re.match(rf"\d+\. {name}\(", line)]
    return found or [line for line in lines[:1] if re.match(rf"{name}\(", line)]


def _class(name: str, kind: type, found: dict[str, Any]) -> None:
    members = getattr(kind, "__members__", None)
    if isinstance(members, dict):
        found[name] = {"kind": "enum"}
        for key, member in members.items():
            found[f"{name}.{key}"] = {"kind": "enum_member", "value": int(member)}
        return
    bases = [base.__name__ for base in kind.__mro__[1:-1] if base.__name__ != "pybind11_object"]
    found[name] = {"kind": "class", "bases": bases}
    for key, member in vars(kind).items():
        if isinstance(member, type):
            _class(f"{name}.{key}", member, found)
        elif key.startswith("_") and key != "__init__":
            continue
        elif isinstance(member, property):
            found[f"{name}.{key}"] = {"kind": "property", "writable": member.fset is not None}
        elif type(member).__name__ == "pybind11_static_property":
            found[f"{name}.{key}"] = {"kind": "property", "writable": False}
        elif callable(getattr(kind, key)):
            told = signatures(getattr(kind, key))
            if told or key != "__init__":  # without a signature: no constructor is bound
                found[f"{name}.{key}"] = {"kind": "method", "sig": told}


def read(module: Any) -> dict[str, Any]:
    """All public names of the module."""
    found: dict[str, Any] = {}
    for name, value in vars(module).items():
        if name.startswith("_") or name in _LEAKED or inspect.ismodule(value):
            continue
        if isinstance(value, type):
            _class(name, value, found)
        elif isinstance(value, types.FunctionType | types.BuiltinFunctionType):
            found[name] = {"kind": "function", "sig": signatures(value)}
        else:
            found[name] = {"kind": "value"}
    return found


def derive(module: Any) -> list[str]:
    """What the loader derives from the bindings' classes: the names made; raises where it fails."""
    from edgekit_device import _trt_modules

    made = [type(_trt_modules.logger(module, lambda severity, text: None)).__name__]
    made.append(type(_trt_modules.recorder(module)[0]).__name__)
    if hasattr(module, "IProgressMonitor") and hasattr(module, "Builder"):
        from edgekit_device import _build_progress

        made.extend(name for name in ("monitor",) if hasattr(_build_progress, name))
    return made


def main(folder: str, name: str, loader: str = "") -> None:
    """Imports package `name` of `folder` and prints what it has."""
    sys.path.insert(0, folder)
    module = importlib.import_module(name)
    answer = {"version": module.__version__, "symbols": read(module), "derived": []}
    if loader:
        sys.path.insert(0, loader)
        answer["derived"] = derive(module)
    print(json.dumps(answer))


if __name__ == "__main__":
    main(*sys.argv[1:])
