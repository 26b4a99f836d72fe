"""Reads one TensorRT bindings package in a process of its own: names, signatures, enum members.

Usage: _bindings_child.py FOLDER MODULE [LOADER]: prints JSON. With LOADER (the folder that holds
edgekit_device) it also makes the classes that the loader derives from the bindings' classes.
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


def _read_class(name: str, kind: type, found: dict[str, Any]) -> None:
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
            _read_class(f"{name}.{key}", member, found)
        elif key.startswith("_") and key != "__init__":
            continue
        elif isinstance(member, property):
            found[f"{name}.{key}"] = {"kind": "property", "writable": member.fset is not None}
        elif type(member).__name__ == "pybind11_static_property":
            found[f"{name}.{key}"] = {"kind": "property", "writable": False}
        elif callable(getattr(kind, key)):
            reported = signatures(getattr(kind, key))
            if reported or key != "__init__":  # without a signature: no constructor is bound
                found[f"{name}.{key}"] = {"kind": "method", "sig": reported}


def read(module: Any) -> dict[str, Any]:
    """All public names of the module."""
    found: dict[str, Any] = {}
    for name, value in vars(module).items():
        if name.startswith("_") or name in _LEAKED or inspect.ismodule(value):
            continue
        if isinstance(value, type):
            _read_class(name, value, found)
        elif isinstance(value, types.FunctionType | types.BuiltinFunctionType):
            found[name] = {"kind": "function", "sig": signatures(value)}
        else:
            found[name] = {"kind": "value"}
    return found


def derive(module: Any) -> list[str]:
    """Makes the classes that the loader derives from the bindings' classes and values.

    Returns:
        The names of the classes that were made; an exception means that the bindings refuse one.
    """
    import numpy as np

    from edgekit_device.build import builder, config
    from edgekit_device.tensorrt import bindings, engine, refit, runtimes

    def quiet(*_: object) -> None:
        pass

    made = [
        bindings.make_logger(module, quiet),
        bindings.make_recorder(module)[0],
        engine.make_profiler(module)[0],
    ]
    try:
        reader = runtimes._make_reader(module, b"a plan")
    except RuntimeError as error:  # from 10.16 on its constructor opens libcuda, which is not here
        if "cuda driver" not in str(error):
            raise
        reader = None
    made.append(reader)
    if hasattr(module, "Builder"):
        made.append(builder.monitor(module, quiet, lambda: False, quiet))
        made.append(config.calibrator(module, b"", quiet))
    weights = refit.make_weights(module, np.ones(3, np.float32), "FLOAT")
    assert (int(weights.size), weights.dtype.name) == (3, "FLOAT")
    if hasattr(module.DataType, "BF16"):
        weights = refit.make_weights(module, np.ones(3, np.uint16), "BF16")
        assert (int(weights.size), weights.dtype.name) == (3, "BF16")
    if reader is not None and hasattr(module, "SeekPosition"):
        assert reader.seek(2, module.SeekPosition.SET)
        assert reader.read(3, 0) == b"pla"
    return [type(made_object).__name__ for made_object in made if made_object is not None]


def main(folder: str, name: str, loader: str = "") -> None:
    """Imports package `name` of `folder` and prints its classes and functions."""
    sys.path.insert(0, folder)
    module = importlib.import_module(name)
    answer = {"version": module.__version__, "symbols": read(module), "derived": []}
    if loader:
        sys.path.insert(0, loader)
        answer["derived"] = derive(module)
    print(json.dumps(answer))


if __name__ == "__main__":
    main(*sys.argv[1:])
